//! Values of all metrics at one moment.

use std::fmt::Write;

use super::catalogue::{CATALOGUE, Id, Kind};
use informer_hub_types::HistogramState;

/// Snapshot of all metrics. The values of one metric are stored together, in order of insertion.
#[derive(Debug)]
pub struct Snapshot {
    taken: jiff::Timestamp,
    sets: Vec<Labels>,
    points: Vec<Vec<Point>>,
    histograms: Vec<Vec<(LabelSet, &'static str, HistogramState)>>,
}

/// Handle of a label set in a snapshot. It is valid only in the snapshot that created it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LabelSet(u32);

impl LabelSet {
    /// Empty label set: for metrics without labels. A metric with one label uses it too if that label's value is passed
    /// as `word`, as in [`Snapshot::count_word`].
    pub const NONE: Self = Self(0);
}

/// A label set with its text in Prometheus' format.
#[derive(Debug, Default)]
pub(super) struct Labels {
    pub(super) pairs: Vec<(&'static str, String)>,
    pub(super) text: String,
}

/// A value of a metric with its labels. Values whose labels differ only in the last one can share a label set: `word`
/// then has the value of the last label, which `set` leaves out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    pub(super) set: LabelSet,
    /// Value of the metric's last label; empty if `set` has that label.
    pub(super) word: &'static str,
    pub(super) value: f64,
}

impl Snapshot {
    /// Creates an empty snapshot.
    #[must_use]
    pub fn new(taken: jiff::Timestamp) -> Self {
        let per_metric = CATALOGUE.len();
        Self {
            taken,
            sets: vec![Labels::default()],
            points: vec![Vec::new(); per_metric],
            histograms: vec![Vec::new(); per_metric],
        }
    }

    /// Creates a label set for the values of one entity, such as a cluster or a sink.
    pub fn labels(&mut self, pairs: &[(&'static str, &str)]) -> LabelSet {
        let Ok(number) = u32::try_from(self.sets.len()) else { return LabelSet::NONE };
        let mut text = String::new();
        for (name, value) in pairs {
            let comma = if text.is_empty() { "" } else { "," };
            let _ = write!(text, "{comma}{name}=\"{}\"", Escaped(value));
        }
        let pairs = pairs.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        self.sets.push(Labels { pairs, text });
        LabelSet(number)
    }

    /// Adds a value of the metric `id` with the labels `set`. Not for histograms.
    pub fn put(&mut self, id: Id, set: LabelSet, value: f64) {
        self.put_word(id, set, "", value);
    }

    /// Adds a count or a size as a value of the metric `id` with the labels `set`.
    pub fn count(&mut self, id: Id, set: LabelSet, value: u64) {
        self.put(id, set, exact(value));
    }

    /// Adds 1 (true) or 0 (false) as a value of the metric `id` with the labels `set`.
    pub fn flag(&mut self, id: Id, set: LabelSet, value: bool) {
        self.count(id, set, u64::from(value));
    }

    /// Adds a count as a value of the metric `id`. `word` is the value of the metric's last label, which `set` must
    /// leave out.
    pub fn count_word(&mut self, id: Id, set: LabelSet, word: &'static str, value: u64) {
        self.put_word(id, set, word, exact(value));
    }

    fn put_word(&mut self, id: Id, set: LabelSet, word: &'static str, value: f64) {
        debug_assert!(self.fits(id, set, word), "the labels of {} are {:?}", id.metric().name, id.metric().labels);
        debug_assert_ne!(id.metric().kind, Kind::Histogram);
        self.points[id as usize].push(Point { set, word, value });
    }

    /// Adds a histogram. `word` is the value of the metric's last label, or empty if `set` has that label.
    pub fn histogram(&mut self, id: Id, set: LabelSet, word: &'static str, state: HistogramState) {
        debug_assert!(self.fits(id, set, word), "the labels of {} are {:?}", id.metric().name, id.metric().labels);
        debug_assert_eq!(id.metric().kind, Kind::Histogram);
        self.histograms[id as usize].push((set, word, state));
    }

    fn fits(&self, id: Id, set: LabelSet, word: &str) -> bool {
        let names = self.set(set).pairs.iter().map(|(name, _)| *name);
        let mut expected = id.metric().labels.to_vec();
        if !word.is_empty() {
            expected.pop();
        }
        names.eq(expected)
    }

    /// Returns the number of values; a histogram counts as one.
    #[must_use]
    pub fn len(&self) -> usize {
        let histograms: usize = self.histograms.iter().map(Vec::len).sum();
        self.points.iter().map(Vec::len).sum::<usize>() + histograms
    }

    /// Returns whether there are no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the value of the metric with these label values, in the order of the metric's labels; `None` if there is
    /// none. For tests and tables.
    #[must_use]
    pub fn value(&self, id: Id, labels: &[&str]) -> Option<f64> {
        let is_match = |point: &&Point| {
            let set_values = self.set(point.set).pairs.iter().map(|(_, value)| value.as_str());
            set_values.chain(Some(point.word).filter(|word| !word.is_empty())).eq(labels.iter().copied())
        };
        self.points_of(id).iter().find(is_match).map(|point| point.value)
    }

    /// Returns the time at which the values were read.
    #[must_use]
    pub fn taken(&self) -> jiff::Timestamp {
        self.taken
    }

    pub(super) fn set(&self, set: LabelSet) -> &Labels {
        &self.sets[set.0 as usize]
    }

    pub(super) fn points_of(&self, id: Id) -> &[Point] {
        &self.points[id as usize]
    }

    pub(super) fn histograms_of(&self, id: Id) -> &[(LabelSet, &'static str, HistogramState)] {
        &self.histograms[id as usize]
    }
}

/// Converts a count to a float, as metrics need it; exact up to 2^53.
fn exact(value: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "scrapers keep floats")]
    let value = value as f64;
    value
}

/// Formatter that escapes a label value, which is written between quotes.
struct Escaped<'a>(&'a str);

impl std::fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut rest = self.0;
        while let Some(at) = rest.find(['\\', '"', '\n']) {
            f.write_str(&rest[..at])?;
            f.write_str(match rest.as_bytes()[at] {
                b'\n' => "\\n",
                b'"' => "\\\"",
                _ => "\\\\",
            })?;
            rest = &rest[at + 1..];
        }
        f.write_str(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_is_found_by_its_labels() {
        let mut snapshot = Snapshot::new(jiff::Timestamp::UNIX_EPOCH);
        let (one, two) = (snapshot.labels(&[("cluster", "a")]), snapshot.labels(&[("cluster", "b")]));
        snapshot.flag(Id::ClusterUp, one, true);
        snapshot.flag(Id::ClusterUp, two, false);
        snapshot.count_word(Id::Informers, two, "watching", 7);
        snapshot.put(Id::ProcessCpu, LabelSet::NONE, 0.5);
        assert_eq!(snapshot.value(Id::ClusterUp, &["a"]), Some(1.0));
        assert_eq!(snapshot.value(Id::ClusterUp, &["b"]), Some(0.0));
        assert_eq!(snapshot.value(Id::ClusterUp, &["c"]), None);
        assert_eq!(snapshot.value(Id::Informers, &["b", "watching"]), Some(7.0));
        assert_eq!(snapshot.value(Id::ProcessCpu, &[]), Some(0.5));
        assert_eq!(snapshot.len(), 4);
    }

    #[test]
    #[should_panic(expected = "the labels of informer_hub_objects are")]
    fn labels_that_differ_from_the_metrics_are_rejected() {
        let mut snapshot = Snapshot::new(jiff::Timestamp::UNIX_EPOCH);
        let set = snapshot.labels(&[("cluster", "a")]);
        snapshot.count(Id::Objects, set, 1);
    }

    #[test]
    fn label_values_are_escaped() {
        let mut snapshot = Snapshot::new(jiff::Timestamp::UNIX_EPOCH);
        let set = snapshot.labels(&[("cluster", "a\"b\\c\nd"), ("resource", "é")]);
        assert_eq!(snapshot.set(set).text, r#"cluster="a\"b\\c\nd",resource="é""#);
        assert_eq!(snapshot.set(set).pairs[0].1, "a\"b\\c\nd");
    }
}
