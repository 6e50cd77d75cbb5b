//! Counters and durations of access and token reviews.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use informer_hub_types::{Histogram, HistogramState, REQUEST_SECONDS};

/// Numbers of reviews since the start, by outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReviewCounts {
    /// Requests answered without a new review: from the cache, or by a review already in flight.
    pub cached: u64,
    /// Reviews that allowed the access or accepted the token.
    pub allowed: u64,
    /// Reviews that denied the access or rejected the token.
    pub denied: u64,
    /// Reviews that no cluster answered.
    pub failed: u64,
}

/// Counters of one kind of review: access or token reviews.
#[derive(Debug)]
pub struct ReviewMeter {
    cached: AtomicU64,
    outcomes: [AtomicU64; 3],
    durations: Histogram,
}

impl Default for ReviewMeter {
    fn default() -> Self {
        Self { cached: AtomicU64::new(0), outcomes: Default::default(), durations: Histogram::new(REQUEST_SECONDS) }
    }
}

impl ReviewMeter {
    /// Counts a request that is answered from the cache or by a review in flight.
    pub(crate) fn cached(&self) {
        self.cached.fetch_add(1, Relaxed);
    }

    /// Counts a review and its duration. If no cluster answered, `is_allowed` is `None`.
    pub(crate) fn answered(&self, is_allowed: Option<bool>, took: Duration) {
        let outcome = match is_allowed {
            Some(true) => 0,
            Some(false) => 1,
            None => 2,
        };
        self.outcomes[outcome].fetch_add(1, Relaxed);
        self.durations.record(took, None);
    }

    /// Returns the numbers of reviews.
    #[must_use]
    pub fn counts(&self) -> ReviewCounts {
        let [allowed, denied, failed] = [0, 1, 2].map(|at: usize| self.outcomes[at].load(Relaxed));
        ReviewCounts { cached: self.cached.load(Relaxed), allowed, denied, failed }
    }

    /// Returns the durations of all reviews, including those without an answer.
    #[must_use]
    pub fn durations(&self) -> HistogramState {
        self.durations.state()
    }
}
