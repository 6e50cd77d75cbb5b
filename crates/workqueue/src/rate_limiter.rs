//! Interface of rate limiters.

use std::time::Duration;

use informer_hub_types::clock::Instant;

/// Rate limiter that determines the delay before a key is retried.
///
/// The queue calls it under a lock. It must be fast, must not panic, and must not use the queue, which would deadlock.
pub trait RateLimiter<T>: Send {
    /// Returns how long after `now` to retry `item`, and counts one retry.
    fn when(&mut self, item: &T, now: Instant) -> Duration;

    /// Stops tracking `item`, after success or after giving up. Keys that are not forgotten are kept forever.
    fn forget(&mut self, item: &T);

    /// Returns how many retries of `item` have been counted.
    fn num_requeues(&self, item: &T) -> u32;

    /// Returns whether a new limiter would behave identically from `now` on: no retries are counted and no token is
    /// missing. Only then may the limiter be dropped and later be replaced by a new one.
    fn is_idle(&self, now: Instant) -> bool {
        let _ = now;
        false
    }
}

impl<T, R: RateLimiter<T> + ?Sized> RateLimiter<T> for Box<R> {
    fn when(&mut self, item: &T, now: Instant) -> Duration {
        (**self).when(item, now)
    }

    fn forget(&mut self, item: &T) {
        (**self).forget(item);
    }

    fn num_requeues(&self, item: &T) -> u32 {
        (**self).num_requeues(item)
    }

    fn is_idle(&self, now: Instant) -> bool {
        (**self).is_idle(now)
    }
}
