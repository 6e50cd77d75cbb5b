//! Exponential backoff.

use std::time::Duration;

use crate::rng;

/// Returns `first` doubled `doublings` times, at most `most`. The caller adds jitter.
#[must_use]
pub fn exponential_backoff(first: Duration, doublings: u32, most: Duration) -> Duration {
    // After 96 doublings even one nanosecond exceeds every `Duration`.
    (0..doublings.min(96)).fold(first, |delay, _| delay.saturating_mul(2)).min(most)
}

/// Returns a random delay between half of the [`exponential_backoff`] for these arguments and its full value.
#[must_use]
pub fn jittered_backoff(first: Duration, doublings: u32, most: Duration) -> Duration {
    exponential_backoff(first, doublings, most).mul_f64(0.5 + 0.5 * rng::unit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_its_maximum_without_overflow() {
        let second = Duration::from_secs(1);
        let delays: Vec<_> =
            (0..5).map(|doublings| exponential_backoff(second, doublings, 10 * second).as_secs()).collect();
        assert_eq!(delays, [1, 2, 4, 8, 10]);
        assert_eq!(exponential_backoff(second, 0, second / 2), second / 2);
        assert_eq!(exponential_backoff(Duration::from_nanos(1), u32::MAX, Duration::MAX), Duration::MAX);
        assert_eq!(exponential_backoff(Duration::ZERO, u32::MAX, second), Duration::ZERO);
    }
}
