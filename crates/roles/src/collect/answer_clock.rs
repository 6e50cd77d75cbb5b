//! Clock by which a collector decides that another collector no longer renews its ownerships. Pure: no I/O.

use std::time::Duration;

use informer_hub_types::clock::Instant;

/// Clock that stops while the backend does not answer, since collectors cannot renew their ownerships in that time.
#[derive(Debug)]
pub(super) struct AnswerClock {
    /// Normal time between two answers of the backend. If an answer takes longer, the clock advances only by this time.
    usual: Duration,
    last: Option<Instant>,
    /// Total time for which the clock stood still.
    silent: Duration,
}

impl AnswerClock {
    pub(super) fn new(usual: Duration) -> Self {
        Self { usual, last: None, silent: Duration::ZERO }
    }

    /// Records that an answer of the backend arrives at `now`. Returns what this clock shows at that moment.
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
