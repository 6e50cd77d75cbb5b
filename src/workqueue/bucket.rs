//! A token bucket that hands out reservations.

use std::num::NonZeroU32;
use std::time::Duration;

use super::limiters::RateLimiter;
use crate::types::clock::Instant;

/// One token per interval, up to a burst of them; who finds none is told when the next that is not yet promised comes.
///
/// It does not tell keys apart. Each call takes a token, also if the key is not tried in the end, so that a flood of
/// failures pushes later retries far out; [`WithMaxWaitRateLimiter`](super::WithMaxWaitRateLimiter) caps that.
#[derive(Debug, Clone)]
pub struct BucketRateLimiter {
    interval: Duration,
    burst: Duration,
    /// When the bucket will be full if nobody takes anything more. All that there is to know of a bucket, in exact
    /// numbers: it holds the burst less what this lies ahead.
    full_at: Option<Instant>,
}

impl BucketRateLimiter {
    /// `qps` tokens a second, `burst` at most at once.
    #[must_use]
    pub fn new(qps: NonZeroU32, burst: u32) -> Self {
        Self::every(Duration::from_secs(1) / qps.get(), burst)
    }

    /// A token every `interval`, `burst` at most at once.
    #[must_use]
    pub fn every(interval: Duration, burst: u32) -> Self {
        Self { interval, burst: interval.saturating_mul(burst), full_at: None }
    }

    /// Takes a token, and says how long it takes until it is there.
    pub fn reserve(&mut self, now: Instant) -> Duration {
        let from = self.full_at.map_or(now, |at| at.max(now));
        let full_at = from.checked_add(self.interval).unwrap_or(from);
        self.full_at = Some(full_at);
        full_at.saturating_duration_since(now).saturating_sub(self.burst)
    }
}

impl<T> RateLimiter<T> for BucketRateLimiter {
    fn when(&mut self, _: &T, now: Instant) -> Duration {
        self.reserve(now)
    }

    fn forget(&mut self, _: &T) {}

    fn num_requeues(&self, _: &T) -> u32 {
        0
    }

    fn is_idle(&self, now: Instant) -> bool {
        self.full_at.is_none_or(|at| at <= now)
    }
}
