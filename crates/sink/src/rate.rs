//! Rate limiter of a sink: a token bucket with one token per event. It has no clock.

use std::time::Duration;

use informer_hub_types::clock::Instant;
use informer_hub_types::{RateLimit, TokenBucket};

/// Rate limiter for batches. A batch larger than the burst waits for a full bucket and leaves a debt for later batches,
/// so that the long-term rate still holds.
#[derive(Clone, Copy, Debug)]
pub struct RateLimiter {
    burst: u32,
    bucket: TokenBucket,
}

impl RateLimiter {
    /// Creates a limiter with a full bucket.
    #[must_use]
    pub fn new(limit: RateLimit) -> Self {
        let (interval, burst) = (Duration::from_secs(1) / limit.events_per_second.get(), limit.burst.get());
        Self { burst, bucket: TokenBucket::new(interval, burst) }
    }

    /// Returns when a batch of `events` may be sent: `now` if it need not wait.
    #[must_use]
    pub fn ready_at(&self, events: usize, now: Instant) -> Instant {
        now + self.bucket.wait(tokens(events).min(self.burst), now)
    }

    /// Takes the tokens of a batch that is sent now, even if it is sent early, e.g. at a shutdown.
    pub fn take(&mut self, events: usize, now: Instant) {
        self.bucket.take(tokens(events), now);
    }
}

fn tokens(events: usize) -> u32 {
    u32::try_from(events).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use informer_hub_types::clock;

    fn limiter(events_per_second: u32, burst: u32) -> (RateLimiter, Instant) {
        let number = |n| NonZeroU32::new(n).unwrap();
        let limit = RateLimit { events_per_second: number(events_per_second), burst: number(burst) };
        (RateLimiter::new(limit), clock::now())
    }

    #[test]
    fn burst_is_sent_at_once_then_the_rate_applies() {
        let (mut limiter, start) = limiter(100, 200);
        let (mut now, mut sent) = (start, 0_u32);
        while now < start + Duration::from_secs(10) {
            let at = limiter.ready_at(10, now);
            if at <= now {
                limiter.take(10, now);
                sent += 10;
            } else {
                now = at;
            }
        }
        assert!((1190..=1210).contains(&sent), "{sent}");
    }

    #[test]
    fn batch_larger_than_the_burst_leaves_a_debt() {
        let (mut limiter, now) = limiter(10, 5);
        assert!(limiter.ready_at(100, now) <= now);
        limiter.take(100, now);
        assert_eq!(limiter.ready_at(1, now), now + Duration::from_millis(9600));
        assert_eq!(limiter.ready_at(100, now), now + Duration::from_secs(10));
    }

    #[test]
    fn idle_time_accumulates_at_most_one_burst() {
        let (mut limiter, start) = limiter(1, 3);
        let later = start + Duration::from_secs(3600);
        for _ in 0..3 {
            assert!(limiter.ready_at(1, later) <= later);
            limiter.take(1, later);
        }
        assert_eq!(limiter.ready_at(1, later), later + Duration::from_secs(1));
    }
}
