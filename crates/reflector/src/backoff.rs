//! How long to wait after a failure: client-go's policy, as a pure value.

use std::time::Duration;

use informer_hub_types::clock::Instant;

/// Exponential backoff with full jitter upwards.
///
/// The first delay is 800 ms, each next one twice as long up to 30 s, and each is drawn uniformly from `[d, 2d)`, so
/// that many clients that failed together do not come back together. After two minutes without a failure it starts
/// over. As client-go's reflector does up to 1.35; newer ones also start over during a persistent failure, which
/// this deliberately does not.
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
    /// A policy with its own first delay and cap.
    #[must_use]
    pub fn new(first: Duration, cap: Duration) -> Self {
        Self { first, cap, reset_after: Duration::from_secs(120), failures: 0, last: None }
    }

    /// The delay after a failure now. `random` gives numbers in `[0, 1)`.
    pub fn next_delay(&mut self, now: Instant, random: &mut dyn FnMut() -> f64) -> Duration {
        if self.last.is_some_and(|last| now.saturating_duration_since(last) >= self.reset_after) {
            self.failures = 0;
        }
        let base = self.first.saturating_mul(2_u32.saturating_pow(self.failures)).min(self.cap);
        self.failures = self.failures.saturating_add(1).min(32);
        let delay = jittered(base, random);
        // The wait itself is no time without failures.
        self.last = Some(now + delay);
        delay
    }

    /// A delay like that after a first failure, which changes nothing of those that follow.
    pub fn first_delay(&self, random: &mut dyn FnMut() -> f64) -> Duration {
        jittered(self.first, random)
    }

    /// Failures in a row, as far as they count.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

/// Permits one attempt ahead of its backoff between two attempts that waited their backoff out.
///
/// Several clients of one server share the news that it answers again. Without this bound, a server that answers and
/// breaks off at once would be asked by all clients at the pace of the fastest one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Haste {
    /// The next wait may be cut short.
    #[default]
    Ready,
    /// The current wait is cut short.
    Taken,
    /// The attempt after the cut wait is under way or has failed: the next wait is not cut short.
    Spent,
}

impl Haste {
    /// Longest wait that remains when a wait is cut short; drawn from zero up to this.
    pub const SPREAD: Duration = Duration::from_millis(250);

    /// Whether the wait may be cut short; if so, this is the one.
    pub fn take(&mut self) -> bool {
        let is_ready = *self == Self::Ready;
        if is_ready {
            *self = Self::Taken;
        }
        is_ready
    }

    /// A wait has ended.
    pub fn waited(&mut self) {
        *self = if *self == Self::Taken { Self::Spent } else { Self::Ready };
    }
}

/// Uniform in `[base, 2·base)`.
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
    fn a_policy_of_ones_own_doubles_to_its_own_cap() {
        let (mut backoff, now) = (Backoff::new(Duration::from_millis(10), Duration::from_millis(100)), clock::now());
        let delays: Vec<_> = (0..6).map(|_| millis(backoff.next_delay(now, &mut || 0.0))).collect();
        assert_eq!(delays, [10, 20, 40, 80, 100, 100]);
        assert_eq!(backoff.failures(), 6);
        assert_eq!(millis(backoff.first_delay(&mut || 0.5)), 15);
        assert_eq!(backoff.failures(), 6, "a first delay is none of the row");
    }

    #[test]
    fn the_row_of_failures_has_an_end_that_cannot_overflow() {
        let (mut backoff, now) = (Backoff::new(Duration::from_secs(1), Duration::MAX / 4), clock::now());
        for _ in 0..100 {
            let _ = backoff.next_delay(now, &mut || 0.0);
        }
        assert_eq!(backoff.failures(), 32);
        assert_eq!(backoff.next_delay(now, &mut || 0.0), Duration::from_secs(u64::from(u32::MAX)));
    }

    #[test]
    fn jitter_adds_up_to_the_delay_once_more() {
        let (mut backoff, now) = (Backoff::default(), clock::now());
        assert_eq!(millis(backoff.next_delay(now, &mut || 0.5)), 1200);
        for _ in 0..100 {
            let _ = backoff.next_delay(now, &mut || 0.999);
        }
        let plateau = backoff.next_delay(now, &mut || 0.999);
        assert!(plateau >= Duration::from_secs(59) && plateau < Duration::from_secs(60));
    }

    #[test]
    fn two_minutes_without_a_failure_start_over() {
        let (mut backoff, mut now) = (Backoff::default(), clock::now());
        for _ in 0..5 {
            now += backoff.next_delay(now, &mut || 0.0);
        }
        assert_eq!(millis(backoff.next_delay(now + Duration::from_secs(119), &mut || 0.0)), 25_600);
        let later = now + Duration::from_secs(119 + 26 + 120);
        assert_eq!(millis(backoff.next_delay(later, &mut || 0.0)), 800);
        // The wait itself does not count: two minutes from its end, to the moment.
        let (mut backoff, now) = (Backoff::default(), clock::now());
        let ended = now + backoff.next_delay(now, &mut || 0.0);
        let mut just_before = backoff.clone();
        let two_minutes = Duration::from_secs(120);
        assert_eq!(millis(just_before.next_delay(ended + two_minutes - Duration::from_nanos(1), &mut || 0.0)), 1600);
        assert_eq!(millis(backoff.next_delay(ended + two_minutes, &mut || 0.0)), 800);
    }

    #[test]
    fn one_wait_is_cut_short_between_two_that_run_to_their_end() {
        let mut haste = Haste::default();
        assert!(haste.take());
        assert!(!haste.take(), "the wait is short already");
        haste.waited();
        assert!(!haste.take(), "the attempt ahead of time has failed");
        haste.waited();
        assert!(haste.take());
    }

    #[test]
    fn a_wrong_random_number_breaks_nothing() {
        let (mut backoff, now) = (Backoff::default(), clock::now());
        for wrong in [f64::NAN, -1.0, 7.0, f64::INFINITY] {
            assert!(backoff.next_delay(now, &mut || wrong) <= Duration::from_secs(60));
        }
    }
}
