//! Metrics of a work queue as a plain value: client-go's metrics without a registry.

use std::time::Duration;

/// Histogram of durations by powers of ten.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Histogram {
    count: u64,
    sum: Duration,
    buckets: [u64; 12],
}

impl Histogram {
    /// Upper bounds (inclusive) of the buckets: powers of ten from 10 ns to 1,000 s, as in Kubernetes' own controllers.
    pub const BOUNDS: [Duration; 12] = [
        Duration::from_nanos(10),
        Duration::from_nanos(100),
        Duration::from_micros(1),
        Duration::from_micros(10),
        Duration::from_micros(100),
        Duration::from_millis(1),
        Duration::from_millis(10),
        Duration::from_millis(100),
        Duration::from_secs(1),
        Duration::from_secs(10),
        Duration::from_secs(100),
        Duration::from_secs(1000),
    ];

    pub(super) fn observe(&mut self, took: Duration) {
        self.count += 1;
        self.sum = self.sum.saturating_add(took);
        if let Some(at) = Self::BOUNDS.iter().position(|bound| took <= *bound) {
            self.buckets[at] += 1;
        }
    }

    /// Returns the number of recorded durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the sum of the recorded durations.
    #[must_use]
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// Returns each of the [`Histogram::BOUNDS`] with its count, not cumulative. Longer durations are counted in
    /// [`Histogram::count`] only.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> {
        Self::BOUNDS.into_iter().zip(self.buckets)
    }
}

/// Current state and counters of a queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// Keys to be processed: queued, or added again while in process.
    pub depth: usize,
    /// Keys whose delay has not ended.
    pub delayed: usize,
    /// Keys in process.
    pub processing: usize,
    /// Keys added, not counting those already queued.
    pub adds: u64,
    /// Keys added with a delay, from the limiter or otherwise.
    pub retries: u64,
    /// Time from a key's addition, or from its due time if it was delayed, to the start of its processing.
    pub queue_latency: Histogram,
    /// Processing time of keys.
    pub work_duration: Histogram,
    /// Total age of all keys in process. If it grows without bound, a worker is stuck.
    pub unfinished_work: Duration,
    /// Age of the oldest key in process.
    pub longest_running: Duration,
}

/// The counters and histograms of [`Metrics`].
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
