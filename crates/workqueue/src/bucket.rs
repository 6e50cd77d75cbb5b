//! Rate limiter with a token bucket shared by all keys.

use std::num::NonZeroU32;
use std::time::Duration;

use super::rate_limiter::RateLimiter;
use informer_hub_types::TokenBucket;
use informer_hub_types::clock::Instant;

/// Token bucket: one token per interval, up to a burst. If no token is left, a key reserves the next one and waits
/// until it is available.
///
/// Does not distinguish keys. Each call takes a token, even if the key is not retried in the end. So after many
/// failures, later retries are delayed for very long. [`WithMaxWaitRateLimiter`](super::WithMaxWaitRateLimiter) limits
/// these delays.
#[derive(Debug, Clone)]
pub struct BucketRateLimiter(TokenBucket);

impl BucketRateLimiter {
    /// Creates a limiter with `qps` tokens per second and at most `burst` at once.
    #[must_use]
    pub fn new(qps: NonZeroU32, burst: u32) -> Self {
        Self::every(Duration::from_secs(1) / qps.get(), burst)
    }

    /// Creates a limiter with a token every `interval` and at most `burst` at once.
    #[must_use]
    pub fn every(interval: Duration, burst: u32) -> Self {
        Self(TokenBucket::new(interval, burst))
    }

    /// Takes a token and returns how long until it is available.
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
