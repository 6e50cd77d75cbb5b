//! Backoff after failures, by client-go's policy.

use std::time::Duration;

use informer_hub_types::clock::Instant;

/// Exponential backoff with jitter.
///
/// The base delay is 800 ms at first and doubles up to 30 s. Each delay is drawn uniformly from `[base, 2·base)`, so
/// that clients that failed together do not retry together. After two minutes without a failure, the base delay is 800
/// ms again. This is the policy of client-go's reflector up to 1.35. Newer client-go versions also reset the delay
/// during a persistent failure; this backoff does not.
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    cap: Duration,
    reset_after: Duration,
    failures: u32,
    last: Option<Instant>,
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new(Duration::from_millis(800), Duration::from_secs(30))
    }
}

impl Backoff {
    /// Creates a backoff whose base delay is `first` at first, and doubles up to `cap`.
    #[must_use]
    pub fn new(first: Duration, cap: Duration) -> Self {
        Self { first, cap, reset_after: Duration::from_secs(120), failures: 0, last: None }
    }

    /// Returns the delay after a failure at `now`. `random` yields numbers in `[0, 1)`.
    pub fn next_delay(&mut self, now: Instant, random: &mut dyn FnMut() -> f64) -> Duration {
        if self.last.is_some_and(|last| now.saturating_duration_since(last) >= self.reset_after) {
            self.failures = 0;
        }
        let base = self.first.saturating_mul(2_u32.saturating_pow(self.failures)).min(self.cap);
        self.failures = self.failures.saturating_add(1).min(32);
        let delay = jittered(base, random);
        // The delay itself does not count as time without failures.
        self.last = Some(now + delay);
        delay
    }

    /// Returns a random delay as long as after a first failure, but does not count a failure.
    pub fn first_delay(&self, random: &mut dyn FnMut() -> f64) -> Duration {
        jittered(self.first, random)
    }

    /// Returns the number of counted failures in a row, at most 32.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

/// Limit on how often a client cuts its waits short: after a shortened wait, the next wait must run to its end.
///
/// When a server answers one client, the other clients cut their waits short. Without this limit, a server that answers
/// only now and then would get requests from all clients after each answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EarlyRetry {
    /// The next wait may be ended early.
    #[default]
    Ready,
    /// The current wait was cut short.
    Taken,
    /// The last wait was cut short, so the next wait must run to its end.
    Spent,
}

impl EarlyRetry {
    /// Maximum time that a wait still lasts after it was cut short. The actual time is random, so that clients do not
    /// retry together.
    pub const SPREAD: Duration = Duration::from_millis(250);

    /// Tries to cut the current wait short. Returns whether this is permitted: at most once per wait.
    pub fn take(&mut self) -> bool {
        let is_ready = *self == Self::Ready;
        if is_ready {
            *self = Self::Taken;
        }
        is_ready
    }

    /// Records that a wait has ended. If the wait was cut short, the next wait must run to its end.
    pub fn waited(&mut self) {
        *self = if *self == Self::Taken { Self::Spent } else { Self::Ready };
    }
}

/// Returns a delay drawn uniformly from `[base, 2·base)`.
pub(super) fn jittered(base: Duration, random: &mut dyn FnMut() -> f64) -> Duration {
    let share = random();
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    base + base.mul_f64(share)
}

#[cfg(test)]
mod tests {
    use super::*;
    use informer_hub_types::clock;

    fn millis(delay: Duration) -> u128 {
        delay.as_millis()
    }

    // client-go: TestReflectorListAndWatchInitConnBackoff.
    #[test]
    fn delays_double_and_flatten_at_the_cap() {
        let (mut backoff, now) = (Backoff::default(), clock::now());
        let delays: Vec<_> = (0..8).map(|_| millis(backoff.next_delay(now, &mut || 0.0))).collect();
        assert_eq!(delays, [800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000]);
    }

    // client-go: TestNewReflectorWithCustomBackoff.
    #[test]
    fn custom_policy_doubles_up_to_its_cap() {
        let (mut backoff, now) = (Backoff::new(Duration::from_millis(10), Duration::from_millis(100)), clock::now());
        let delays: Vec<_> = (0..6).map(|_| millis(backoff.next_delay(now, &mut || 0.0))).collect();
        assert_eq!(delays, [10, 20, 40, 80, 100, 100]);
        assert_eq!(backoff.failures(), 6);
        assert_eq!(millis(backoff.first_delay(&mut || 0.5)), 15);
        assert_eq!(backoff.failures(), 6, "a first delay is not counted");
    }

    #[test]
    fn failure_count_saturates() {
        let (mut backoff, now) = (Backoff::new(Duration::from_secs(1), Duration::MAX / 4), clock::now());
        for _ in 0..100 {
            let _ = backoff.next_delay(now, &mut || 0.0);
        }
        assert_eq!(backoff.failures(), 32);
        assert_eq!(backoff.next_delay(now, &mut || 0.0), Duration::from_secs(u64::from(u32::MAX)));
    }

    #[test]
    fn jitter_adds_at_most_the_base_delay() {
        let (mut backoff, now) = (Backoff::default(), clock::now());
        assert_eq!(millis(backoff.next_delay(now, &mut || 0.5)), 1200);
        for _ in 0..100 {
            let _ = backoff.next_delay(now, &mut || 0.999);
        }
        let plateau = backoff.next_delay(now, &mut || 0.999);
        assert!(plateau >= Duration::from_secs(59) && plateau < Duration::from_secs(60));
    }

    #[test]
    fn backoff_resets_after_two_minutes_without_failure() {
        let (mut backoff, mut now) = (Backoff::default(), clock::now());
        for _ in 0..5 {
            now += backoff.next_delay(now, &mut || 0.0);
        }
        assert_eq!(millis(backoff.next_delay(now + Duration::from_secs(119), &mut || 0.0)), 25_600);
        let later = now + Duration::from_secs(119 + 26 + 120);
        assert_eq!(millis(backoff.next_delay(later, &mut || 0.0)), 800);
        // The two minutes begin at the end of the delay, to the nanosecond.
        let (mut backoff, now) = (Backoff::default(), clock::now());
        let ended = now + backoff.next_delay(now, &mut || 0.0);
        let mut just_before = backoff.clone();
        let two_minutes = Duration::from_secs(120);
        assert_eq!(millis(just_before.next_delay(ended + two_minutes - Duration::from_nanos(1), &mut || 0.0)), 1600);
        assert_eq!(millis(backoff.next_delay(ended + two_minutes, &mut || 0.0)), 800);
    }

    #[test]
    fn early_retry_is_permitted_every_other_wait() {
        let mut early_retry = EarlyRetry::default();
        assert!(early_retry.take());
        assert!(!early_retry.take(), "the wait is already cut short");
        early_retry.waited();
        assert!(!early_retry.take(), "the early attempt has failed");
        early_retry.waited();
        assert!(early_retry.take());
    }

    #[test]
    fn invalid_random_number_is_tolerated() {
        let (mut backoff, now) = (Backoff::default(), clock::now());
        for invalid in [f64::NAN, -1.0, 7.0, f64::INFINITY] {
            assert!(backoff.next_delay(now, &mut || invalid) <= Duration::from_secs(60));
        }
    }
}
