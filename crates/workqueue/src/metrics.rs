//! What a queue counts, as a value: client-go's metrics without a registry.

use std::collections::HashMap;
use std::time::Duration;

use super::queue::Running;
use informer_hub_types::clock::Instant;

/// How many powers of ten [`Histogram`] tells apart.
const BUCKETS: usize = 12;

/// How long things took: their number, their sum, and how many were in each power of ten.
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

    /// The upper bounds of the buckets, which are those of Kubernetes' own controllers: 10 ns to 1,000 s.
    fn bounds() -> impl Iterator<Item = Duration> {
        (0..BUCKETS).scan(Duration::from_nanos(10), |bound, _| {
            let this = *bound;
            *bound *= 10;
            Some(this)
        })
    }

    /// How many there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// How long they took together.
    #[must_use]
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// Each upper bound (inclusive) with the number of those above the one before it. What took longer than the last
    /// is in [`Histogram::count`] only.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> {
        Self::bounds().zip(self.buckets)
    }
}

/// The state of a queue and its history, as of one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// Keys that want to be worked on: in line, or added again while they are worked on.
    pub depth: usize,
    /// Keys that will be added later.
    pub delayed: usize,
    /// Keys that are worked on.
    pub processing: usize,
    /// Keys that were added; those that already waited do not count.
    pub adds: u64,
    /// Keys that were to be added later, because of the limiter or otherwise.
    pub retries: u64,
    /// How long keys waited from when they were added or due until they were taken.
    pub queue_latency: Histogram,
    /// How long the work on keys took.
    pub work_duration: Histogram,
    /// For how long present work has gone on, all of it together. What grows without end is stuck.
    pub unfinished_work: Duration,
    /// For how long the oldest present work has gone on.
    pub longest_running: Duration,
}

/// The part of [`Metrics`] that is history.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) adds: u64,
    pub(super) retries: u64,
    pub(super) queue_latency: Histogram,
    pub(super) work_duration: Histogram,
}

impl Tally {
    pub(super) fn metrics<T>(
        &self,
        depth: usize,
        delayed: usize,
        processing: &HashMap<T, Running>,
        now: Instant,
    ) -> Metrics {
        let ages = || processing.values().map(|running| now.saturating_duration_since(running.since));
        Metrics {
            depth,
            delayed,
            processing: processing.len(),
            adds: self.adds,
            retries: self.retries,
            queue_latency: self.queue_latency,
            work_duration: self.work_duration,
            unfinished_work: ages().fold(Duration::ZERO, Duration::saturating_add),
            longest_running: ages().max().unwrap_or_default(),
        }
    }
}
