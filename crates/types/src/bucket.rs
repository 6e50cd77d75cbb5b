//! A token bucket: the one rule by which whatever is to happen only so often is held back.

use std::time::Duration;

use super::clock::Instant;

/// A token every interval, up to a burst of them. Who takes more than there are leaves a debt, which is paid before the
/// next has any. Time is given.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    interval: Duration,
    burst: Duration,
    /// When it will be full if nobody takes anything more; `None` before anybody has. All that there is to know of a
    /// bucket, in exact numbers: it holds the burst less what this lies ahead.
    full_at: Option<Instant>,
}

impl TokenBucket {
    /// A full one, with a token every `interval` and `burst` at most at once.
    #[must_use]
    pub const fn new(interval: Duration, burst: u32) -> Self {
        Self { interval, burst: interval.saturating_mul(burst), full_at: None }
    }

    /// How long until so many tokens are there, if nobody takes any; zero: they are. Of more than a burst, until the debt
    /// of who takes them now would be no more than what is missing of a burst.
    #[must_use]
    pub fn wait(&self, tokens: u32, now: Instant) -> Duration {
        self.due(self.full_after(tokens, now), now)
    }

    /// Takes so many tokens, also where they are not there yet; how long until they are.
    pub fn take(&mut self, tokens: u32, now: Instant) -> Duration {
        let full_at = self.full_after(tokens, now);
        self.full_at = Some(full_at);
        self.due(full_at, now)
    }

    /// Whether no token is missing.
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
    fn a_burst_is_there_at_once_and_then_a_token_every_interval() {
        let (mut bucket, start) = (TokenBucket::new(SECOND, 3), clock::now());
        assert!(bucket.is_full(start));
        let waits: Vec<_> = (0..5).map(|_| bucket.take(1, start).as_secs()).collect();
        assert_eq!(waits, [0, 0, 0, 1, 2]);
        assert_eq!(bucket.wait(1, start + SECOND), 2 * SECOND, "two are owed");
        assert!(!bucket.is_full(start + 4 * SECOND) && bucket.is_full(start + 5 * SECOND));
        let waits: Vec<_> = (0..4).map(|_| bucket.take(1, start + 3600 * SECOND).as_secs()).collect();
        assert_eq!(waits, [0, 0, 0, 1], "a pause saves up no more than a burst");
    }

    #[test]
    fn asking_takes_nothing_and_taking_too_many_is_paid_for() {
        let (mut bucket, start) = (TokenBucket::new(SECOND, 2), clock::now());
        assert_eq!((bucket.wait(2, start), bucket.wait(5, start)), (Duration::ZERO, 3 * SECOND));
        assert_eq!(bucket.take(5, start), 3 * SECOND);
        assert_eq!(bucket.wait(1, start), 4 * SECOND);
    }

    #[test]
    fn the_ends_of_time_are_no_trouble() {
        let (mut bucket, start) = (TokenBucket::new(Duration::MAX, u32::MAX), clock::now());
        assert_eq!(bucket.take(u32::MAX, start), Duration::ZERO);
        let mut none = TokenBucket::new(SECOND, 0);
        assert_eq!(none.take(1, start), SECOND, "without a burst the first waits too");
    }
}
