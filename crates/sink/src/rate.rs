//! How often a sink may send: a bucket of tokens, one for each event. Pure; time is given.

use std::time::Duration;

use informer_hub_types::clock::Instant;
use informer_hub_types::{RateLimit, TokenBucket};

/// Says when a batch may go. A batch of more events than a burst holds waits for a full bucket and leaves a debt, so
/// that it goes at all and the rate in the long run still holds.
#[derive(Clone, Copy, Debug)]
pub struct RateLimiter {
    burst: u32,
    bucket: TokenBucket,
}

impl RateLimiter {
    /// A full bucket.
    #[must_use]
    pub fn new(limit: RateLimit) -> Self {
        let (interval, burst) = (Duration::from_secs(1) / limit.events_per_second.get(), limit.burst.get());
        Self { burst, bucket: TokenBucket::new(interval, burst) }
    }

    /// When a batch of `events` may go; `now` where it may go at once.
    #[must_use]
    pub fn ready_at(&self, events: usize, now: Instant) -> Instant {
        now + self.bucket.wait(tokens(events).min(self.burst), now)
    }

    /// Takes what a batch of `events` that goes now needs. Also where it goes too early, e.g. for a shutdown.
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
    fn a_burst_goes_at_once_and_then_the_rate_holds() {
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
    fn a_batch_larger_than_a_burst_goes_and_is_paid_for_later() {
        let (mut limiter, now) = limiter(10, 5);
        assert!(limiter.ready_at(100, now) <= now);
        limiter.take(100, now);
        assert_eq!(limiter.ready_at(1, now), now + Duration::from_millis(9600));
        assert_eq!(limiter.ready_at(100, now), now + Duration::from_secs(10));
    }

    #[test]
    fn a_pause_saves_up_no_more_than_a_burst() {
        let (mut limiter, start) = limiter(1, 3);
        let later = start + Duration::from_secs(3600);
        for _ in 0..3 {
            assert!(limiter.ready_at(1, later) <= later);
            limiter.take(1, later);
        }
        assert_eq!(limiter.ready_at(1, later), later + Duration::from_secs(1));
    }
}
