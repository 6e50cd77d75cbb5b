//! Delays that grow.

use std::time::Duration;

/// `first`, twice as long each of so many times, up to `most`. What it is drawn from at random is the caller's business.
#[must_use]
pub fn exponential_backoff(first: Duration, times: u32, most: Duration) -> Duration {
    // Ninety-six doublings make every delay there is of a nanosecond.
    (0..times.min(96)).fold(first, |delay, _| delay.saturating_mul(2)).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_doubles_up_to_its_end_and_overflows_nowhere() {
        let second = Duration::from_secs(1);
        let delays: Vec<_> = (0..5).map(|times| exponential_backoff(second, times, 10 * second).as_secs()).collect();
        assert_eq!(delays, [1, 2, 4, 8, 10]);
        assert_eq!(exponential_backoff(second, 0, second / 2), second / 2);
        assert_eq!(exponential_backoff(Duration::from_nanos(1), u32::MAX, Duration::MAX), Duration::MAX);
        assert_eq!(exponential_backoff(Duration::ZERO, u32::MAX, second), Duration::ZERO);
    }
}
