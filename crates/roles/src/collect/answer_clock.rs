//! Clock by which a collector judges that others show no sign of life. Pure.

use std::time::Duration;

use informer_hub_types::clock::Instant;

/// Clock that stands still while the services do not answer: a collector cannot renew then, so its silence means nothing.
#[derive(Debug)]
pub(super) struct AnswerClock {
    /// Time between two answers that is usual.
    usual: Duration,
    last: Option<Instant>,
    /// Time in which no answer came.
    silent: Duration,
}

impl AnswerClock {
    pub(super) fn new(usual: Duration) -> Self {
        Self { usual, last: None, silent: Duration::ZERO }
    }

    /// Returns the time of an answer that arrives now.
    pub(super) fn answered(&mut self, now: Instant) -> Instant {
        let passed = self.last.replace(now).map_or(Duration::ZERO, |last| now.duration_since(last));
        self.silent += passed.saturating_sub(self.usual);
        now.checked_sub(self.silent).unwrap_or(now)
    }
}

#[cfg(test)]
mod tests {
    use informer_hub_types::clock;

    use super::*;

    #[test]
    fn time_without_an_answer_passes_only_as_between_two_answers() {
        let (mut clock, began) = (AnswerClock::new(Duration::from_secs(2)), clock::now());
        let mut passed = |at| clock.answered(began + Duration::from_secs(at)).duration_since(began).as_secs();
        assert_eq!([0, 1, 3, 60, 61, 70].map(&mut passed), [0, 1, 3, 5, 6, 8]);
    }
}
