//! Histogram of durations with fixed bounds, which any thread can record into and read from.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;

use super::{TraceParent, clock};

/// Upper bounds of buckets in seconds, for network requests.
pub const REQUEST_SECONDS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// Upper bounds of buckets in seconds, for work inside the process, which is fast unless it waits for another
/// component.
pub const LAG_SECONDS: &[f64] = &[
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
];

/// Upper bounds of buckets in seconds, for lists and watches. There are few, because each cluster has its own
/// histograms.
const STREAM_SECONDS: &[f64] = &[0.1, 1.0, 10.0, 60.0, 600.0, 3600.0];

/// Upper bounds of buckets in seconds, for the time from reading a change to storing it. There are few, because each
/// cluster has its own histograms.
const STORE_SECONDS: &[f64] = &[0.0005, 0.005, 0.05, 0.5, 5.0, 30.0];

/// Duration histograms of one cluster. All its informers record into them, so that another resource costs no extra
/// memory.
#[derive(Debug)]
pub struct ClusterTimings {
    /// Complete lists, from the first request to the last object.
    pub lists: Histogram,
    /// Watches, from opening to end.
    pub watches: Histogram,
    /// Time from reading a watch event to storing its object, for a sample of the events.
    pub stored: Histogram,
}

impl Default for ClusterTimings {
    fn default() -> Self {
        Self {
            lists: Histogram::new(STREAM_SECONDS),
            watches: Histogram::new(STREAM_SECONDS),
            stored: Histogram::new(STORE_SECONDS),
        }
    }
}

/// Histogram of durations. Recording never waits; if another thread is using the bucket's exemplar, the new exemplar is
/// dropped.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    /// One bucket per bound, then one for durations above all bounds.
    buckets: Box<[Bucket]>,
    nanos: AtomicU64,
}

#[derive(Debug, Default)]
struct Bucket {
    count: AtomicU64,
    exemplar: Mutex<Option<Exemplar>>,
}

/// Exemplar: a trace in which a duration of a bucket was observed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Exemplar {
    /// Trace ID.
    pub trace: u128,
    /// Span ID.
    pub span: u64,
    /// Duration in seconds.
    pub seconds: f64,
    /// When the observation was recorded.
    pub at: jiff::Timestamp,
}

/// Snapshot of a histogram. Its parts are read one after the other, so a duration recorded meanwhile may be in some of
/// them only.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct HistogramState {
    /// Upper bounds in seconds, ascending.
    pub bounds: &'static [f64],
    /// Count of each bucket, not cumulative. The last one counts durations above all bounds.
    pub counts: Vec<u64>,
    /// Sum of all durations in seconds.
    pub sum: f64,
    /// Last exemplar of each bucket; `None` without a traced duration.
    pub exemplars: Vec<Option<Exemplar>>,
}

impl Histogram {
    /// Creates an empty histogram with ascending upper bounds in seconds.
    #[must_use]
    pub fn new(bounds: &'static [f64]) -> Self {
        let buckets = (0..=bounds.len()).map(|_| Bucket::default()).collect();
        Self { bounds, buckets, nanos: AtomicU64::new(0) }
    }

    /// Records a duration. If it was observed in a trace, `seen_in`, the trace becomes its bucket's exemplar.
    pub fn record(&self, duration: Duration, seen_in: Option<TraceParent>) {
        let seconds = duration.as_secs_f64();
        let bucket = &self.buckets[self.bounds.partition_point(|bound| *bound < seconds)];
        bucket.count.fetch_add(1, Relaxed);
        self.nanos.fetch_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX), Relaxed);
        if let Some(TraceParent { trace, span }) = seen_in
            && let Some(mut exemplar) = bucket.exemplar.try_lock()
        {
            *exemplar = Some(Exemplar { trace, span, seconds, at: clock::wall() });
        }
    }

    /// Returns a snapshot of the histogram.
    #[must_use]
    pub fn state(&self) -> HistogramState {
        HistogramState {
            bounds: self.bounds,
            counts: self.buckets.iter().map(|bucket| bucket.count.load(Relaxed)).collect(),
            sum: Duration::from_nanos(self.nanos.load(Relaxed)).as_secs_f64(),
            exemplars: self.buckets.iter().map(|bucket| *bucket.exemplar.lock()).collect(),
        }
    }
}

impl HistogramState {
    /// Adds the counts of another snapshot. If this snapshot is empty, copies the other one. If their bounds differ,
    /// does nothing.
    pub fn add(&mut self, other: &Self) {
        if self.counts.is_empty() {
            self.clone_from(other);
        } else if self.bounds == other.bounds {
            self.counts.iter_mut().zip(&other.counts).for_each(|(mine, theirs)| *mine += theirs);
            self.exemplars.iter_mut().zip(&other.exemplars).for_each(|(mine, theirs)| *mine = theirs.or(*mine));
            self.sum += other.sum;
        }
    }

    /// Returns the number of recorded durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: &[f64] = &[0.5, 1.0];

    #[test]
    fn duration_counts_in_the_first_bucket_with_a_bound_not_below_it() {
        let histogram = Histogram::new(BOUNDS);
        for millis in [0, 500, 501, 1000, 1001, 100_000] {
            histogram.record(Duration::from_millis(millis), None);
        }
        let state = histogram.state();
        assert_eq!(state.counts, [2, 2, 2]);
        assert_eq!((state.count(), state.sum), (6, 103.002));
        assert!(state.exemplars.iter().all(Option::is_none));
    }

    #[test]
    fn exemplar_is_the_last_trace_of_a_bucket() {
        let histogram = Histogram::new(BOUNDS);
        histogram.record(Duration::from_millis(700), Some(TraceParent { trace: 1, span: 2 }));
        histogram.record(Duration::from_millis(900), Some(TraceParent { trace: 3, span: 4 }));
        histogram.record(Duration::from_millis(800), None);
        let [None, Some(exemplar), None] = histogram.state().exemplars[..] else { panic!("one bucket has one") };
        assert_eq!((exemplar.trace, exemplar.span, exemplar.seconds), (3, 4, 0.9));
    }

    #[test]
    fn add_sums_states_with_equal_bounds() {
        let one = Histogram::new(BOUNDS);
        one.record(Duration::from_secs(1), Some(TraceParent { trace: 1, span: 1 }));
        let mut sum = HistogramState::default();
        sum.add(&one.state());
        sum.add(&one.state());
        sum.add(&Histogram::new(REQUEST_SECONDS).state());
        assert_eq!((&sum.counts[..], sum.sum), (&[0, 2, 0][..], 2.0));
        assert!(sum.exemplars[1].is_some());
    }

    #[test]
    fn bounds_are_ascending() {
        for bounds in [REQUEST_SECONDS, LAG_SECONDS] {
            assert!(bounds.is_sorted_by(|one, next| one < next));
        }
    }
}
