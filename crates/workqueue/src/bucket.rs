//! A token bucket that hands out reservations.

use std::num::NonZeroU32;
use std::time::Duration;

use super::limiters::RateLimiter;
use informer_hub_types::TokenBucket;
use informer_hub_types::clock::Instant;

/// One token per interval, up to a burst of them; who finds none is told when the next that is not yet promised comes.
///
/// It does not tell keys apart. Each call takes a token, also if the key is not tried in the end, so that a flood of
/// failures pushes later retries far out; [`WithMaxWaitRateLimiter`](super::WithMaxWaitRateLimiter) caps that.
#[derive(Debug, Clone)]
pub struct BucketRateLimiter(TokenBucket);

impl BucketRateLimiter {
    /// `qps` tokens a second, `burst` at most at once.
    #[must_use]
    pub fn new(qps: NonZeroU32, burst: u32) -> Self {
        Self::every(Duration::from_secs(1) / qps.get(), burst)
    }

    /// A token every `interval`, `burst` at most at once.
    #[must_use]
    pub fn every(interval: Duration, burst: u32) -> Self {
        Self(TokenBucket::new(interval, burst))
    }

    /// Takes a token, and says how long it takes until it is there.
    pub fn reserve(&mut self, now: Instant) -> Duration {
        self.0.take(1, now)
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
        self.0.is_full(now)
    }
}
