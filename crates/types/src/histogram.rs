//! A histogram of durations with fixed bounds: recorded from any thread, read at any time by who collects metrics.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;

use super::{TraceParent, clock};

/// Upper bounds in seconds for what goes over a network: from a millisecond to half a minute.
pub const REQUEST_SECONDS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// Upper bounds in seconds for what stays in the process when all is well, and waits for somebody when it is not.
pub const LAG_SECONDS: &[f64] = &[
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
];

/// Upper bounds in seconds for lists and watches. Few, since each cluster has them.
const STREAM_SECONDS: &[f64] = &[0.1, 1.0, 10.0, 60.0, 600.0, 3600.0];

/// Upper bounds in seconds for the way into the store. Few, since each cluster has them.
const STORE_SECONDS: &[f64] = &[0.0005, 0.005, 0.05, 0.5, 5.0, 30.0];

/// Durations of what the informers of one cluster do. Shared by all of them, so that a resource costs no memory for it.
#[derive(Debug)]
pub struct ClusterTimings {
    /// Lists that were complete, from their first request to their last object.
    pub lists: Histogram,
    /// Watches, from their opening to their end.
    pub watches: Histogram,
    /// Changes, from being read off their watch to being in the store; in samples.
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

/// Durations, counted by bucket. Recording is lock-free but for an exemplar, which is dropped rather than waited for.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    /// One more than there are bounds: the last is of what is longer than all of them.
    buckets: Box<[Bucket]>,
    nanos: AtomicU64,
}

#[derive(Debug, Default)]
struct Bucket {
    count: AtomicU64,
    exemplar: Mutex<Option<Exemplar>>,
}

/// A trace in which a duration of a bucket was seen.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Exemplar {
    /// The trace's id.
    pub trace: u128,
    /// The span's.
    pub span: u64,
    /// The duration in seconds.
    pub seconds: f64,
    /// When it was recorded.
    pub at: jiff::Timestamp,
}

/// A histogram at about one moment: the buckets are read one after the other.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct HistogramState {
    /// Upper bounds in seconds, growing.
    pub bounds: &'static [f64],
    /// How many of each bucket, not of those before it; the last of what is longer than all bounds.
    pub counts: Vec<u64>,
    /// All durations together, in seconds.
    pub sum: f64,
    /// The last trace of each bucket.
    pub exemplars: Vec<Option<Exemplar>>,
}

impl Histogram {
    /// An empty one with these upper bounds, growing, in seconds.
    #[must_use]
    pub fn new(bounds: &'static [f64]) -> Self {
        let buckets = (0..=bounds.len()).map(|_| Bucket::default()).collect();
        Self { bounds, buckets, nanos: AtomicU64::new(0) }
    }

    /// Counts a duration, and keeps the ids of the trace and the span that it was seen in, if any.
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

    /// What has been counted.
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
    /// Adds what another one of the same bounds has counted; nothing where the bounds differ, unless this is empty.
    pub fn add(&mut self, other: &Self) {
        if self.counts.is_empty() {
            self.clone_from(other);
        } else if self.bounds == other.bounds {
            self.counts.iter_mut().zip(&other.counts).for_each(|(mine, theirs)| *mine += theirs);
            self.exemplars.iter_mut().zip(&other.exemplars).for_each(|(mine, theirs)| *mine = theirs.or(*mine));
            self.sum += other.sum;
        }
    }

    /// How many there are in all buckets together.
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
    fn a_duration_counts_in_the_first_bucket_whose_bound_it_does_not_exceed() {
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
    fn the_last_trace_of_a_bucket_is_its_exemplar() {
        let histogram = Histogram::new(BOUNDS);
        histogram.record(Duration::from_millis(700), Some(TraceParent { trace: 1, span: 2 }));
        histogram.record(Duration::from_millis(900), Some(TraceParent { trace: 3, span: 4 }));
        histogram.record(Duration::from_millis(800), None);
        let [None, Some(exemplar), None] = histogram.state().exemplars[..] else { panic!("one bucket has one") };
        assert_eq!((exemplar.trace, exemplar.span, exemplar.seconds), (3, 4, 0.9));
    }

    #[test]
    fn states_add_up_where_their_bounds_are_the_same() {
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
    fn bounds_grow() {
        for bounds in [REQUEST_SECONDS, LAG_SECONDS] {
            assert!(bounds.is_sorted_by(|one, next| one < next));
        }
    }
}
