//! Metrics of a work queue as a plain value: client-go's metrics without a registry.

use std::time::Duration;

/// Number of buckets of a [`Histogram`], one per power of ten.
const BUCKETS: usize = 12;

/// Histogram of durations by powers of ten.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Histogram {
    count: u64,
    sum: Duration,
    buckets: [u64; BUCKETS],
}

impl Histogram {
    pub(super) fn observe(&mut self, took: Duration) {
        self.count += 1;
        self.sum = self.sum.saturating_add(took);
        if let Some(at) = Self::bounds().position(|bound| took <= bound) {
            self.buckets[at] += 1;
        }
    }

    /// Returns the upper bounds of the buckets, which are those of Kubernetes' own controllers: 10 ns to 1,000 s.
    fn bounds() -> impl Iterator<Item = Duration> {
        (0..BUCKETS).scan(Duration::from_nanos(10), |bound, _| {
            let this = *bound;
            *bound *= 10;
            Some(this)
        })
    }

    /// Returns the number of durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the sum of the durations.
    #[must_use]
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// Returns each upper bound (inclusive) with its count, not cumulative. Longer durations are counted in
    /// [`Histogram::count`] only.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> {
        Self::bounds().zip(self.buckets)
    }
}

/// Current state and counters of a queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// Keys to be processed: queued, or added again while in process.
    pub depth: usize,
    /// Delayed keys.
    pub delayed: usize,
    /// Keys in process.
    pub processing: usize,
    /// Keys added, not counting those already queued.
    pub adds: u64,
    /// Keys added with a delay, from the limiter or otherwise.
    pub retries: u64,
    /// Time between a key's addition or due time and its processing.
    pub queue_latency: Histogram,
    /// Processing time of keys.
    pub work_duration: Histogram,
    /// Total age of all keys in process. If it grows without bound, a worker is stuck.
    pub unfinished_work: Duration,
    /// Age of the oldest key in process.
    pub longest_running: Duration,
}

/// The counters of [`Metrics`].
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) adds: u64,
    pub(super) retries: u64,
    pub(super) queue_latency: Histogram,
    pub(super) work_duration: Histogram,
}

impl Tally {
    /// Returns the metrics, given the ages of the keys in process.
    pub(super) fn metrics(
        &self,
        depth: usize,
        delayed: usize,
        ages: impl ExactSizeIterator<Item = Duration> + Clone,
    ) -> Metrics {
        Metrics {
            depth,
            delayed,
            processing: ages.len(),
            adds: self.adds,
            retries: self.retries,
            queue_latency: self.queue_latency,
            work_duration: self.work_duration,
            unfinished_work: ages.clone().fold(Duration::ZERO, Duration::saturating_add),
            longest_running: ages.max().unwrap_or_default(),
        }
    }
}
