//! Token bucket, the rate limiter used throughout the hub.

use std::time::Duration;

use super::clock::Instant;

/// Token bucket with one token per interval, up to a burst.
///
/// [`Self::take`] may take more tokens than there are. The debt is paid off before new tokens become available. The
/// caller passes the current time.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    interval: Duration,
    burst: Duration,
    /// When the bucket will be full if no more tokens are taken; `None` before the first `take`. This time also gives
    /// the number of missing tokens: one for each `interval` until `full_at`.
    full_at: Option<Instant>,
}

impl TokenBucket {
    /// Creates a full bucket that gains a token every `interval` and holds at most `burst` tokens.
    #[must_use]
    pub const fn new(interval: Duration, burst: u32) -> Self {
        Self { interval, burst: interval.saturating_mul(burst), full_at: None }
    }

    /// Returns how long until `tokens` tokens are available; zero if they are available now.
    ///
    /// If `tokens` exceeds the burst, the bucket never holds so many. Then returns what [`Self::take`] would return
    /// now: the time until its debt would be paid off, which is never zero.
    #[must_use]
    pub fn wait(&self, tokens: u32, now: Instant) -> Duration {
        self.due(self.full_after(tokens, now), now)
    }

    /// Takes `tokens` tokens, even if they are not available yet. Returns how long until the resulting debt is paid
    /// off; zero without a debt.
    pub fn take(&mut self, tokens: u32, now: Instant) -> Duration {
        let full_at = self.full_after(tokens, now);
        self.full_at = Some(full_at);
        self.due(full_at, now)
    }

    /// Returns whether the bucket holds a full burst.
    #[must_use]
    pub fn is_full(&self, now: Instant) -> bool {
        self.full_at.is_none_or(|at| at <= now)
    }

    fn full_after(&self, tokens: u32, now: Instant) -> Instant {
        let from = self.full_at.map_or(now, |at| at.max(now));
        from.checked_add(self.interval.saturating_mul(tokens)).unwrap_or(from)
    }

    fn due(&self, full_at: Instant, now: Instant) -> Duration {
        full_at.saturating_duration_since(now).saturating_sub(self.burst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn bucket_gives_a_burst_at_once_and_then_a_token_per_interval() {
        let (mut bucket, start) = (TokenBucket::new(SECOND, 3), clock::now());
        assert!(bucket.is_full(start));
        let waits: Vec<_> = (0..5).map(|_| bucket.take(1, start).as_secs()).collect();
        assert_eq!(waits, [0, 0, 0, 1, 2]);
        assert_eq!(bucket.wait(1, start + SECOND), 2 * SECOND, "one token of debt, and one to take");
        assert!(!bucket.is_full(start + 4 * SECOND) && bucket.is_full(start + 5 * SECOND));
        let waits: Vec<_> = (0..4).map(|_| bucket.take(1, start + 3600 * SECOND).as_secs()).collect();
        assert_eq!(waits, [0, 0, 0, 1], "an idle bucket holds at most a burst");
    }

    #[test]
    fn wait_takes_no_tokens_and_take_may_leave_a_debt() {
        let (mut bucket, start) = (TokenBucket::new(SECOND, 2), clock::now());
        assert_eq!((bucket.wait(2, start), bucket.wait(5, start)), (Duration::ZERO, 3 * SECOND));
        assert_eq!(bucket.take(5, start), 3 * SECOND);
        assert_eq!(bucket.wait(1, start), 4 * SECOND);
    }

    #[test]
    fn extreme_intervals_do_not_overflow() {
        let (mut bucket, start) = (TokenBucket::new(Duration::MAX, u32::MAX), clock::now());
        assert_eq!(bucket.take(u32::MAX, start), Duration::ZERO);
        let mut none = TokenBucket::new(SECOND, 0);
        assert_eq!(none.take(1, start), SECOND, "without a burst the first token waits too");
    }
}
