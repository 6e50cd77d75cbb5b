//! When a failed batch is tried again, when it is given up, and when a failing receiver is left in peace.

use std::time::Duration;

use rand::Rng;

use super::lanes::{Gate, LaneId};
use informer_hub_types::clock::Instant;
use informer_hub_types::{RetryParams, exponential_backoff};

/// A receiver's `Retry-After` counts up to this: a slip of the pen must not stop a sink for a year.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(3600);

/// What to do with a batch that was not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Try it again then.
    RetryAt(Instant),
    /// It had its time.
    GiveUp,
}

/// Decides about a batch that has failed `attempts` times since `since`.
///
/// The delay is random between zero and the exponential bound, so that many senders do not return together. The last
/// attempt is made at the deadline. `after` is a minimum in any case.
pub(crate) fn decide(
    params: &RetryParams,
    attempts: u32,
    since: Instant,
    after: Option<Duration>,
    now: Instant,
    rng: &mut impl Rng,
) -> Decision {
    let deadline = since + params.give_up_after;
    if now >= deadline {
        return Decision::GiveUp;
    }
    let delay =
        rng.random_range(Duration::ZERO..=exponential_backoff(params.first, attempts.saturating_sub(1), params.max));
    let at = (now + delay).min(deadline);
    Decision::RetryAt(after.map_or(at, |after| at.max(hold(now, after))))
}

/// Until when a `Retry-After` holds.
fn hold(now: Instant, after: Duration) -> Instant {
    now + after.min(MAX_RETRY_AFTER)
}

/// Leaves a failing receiver in peace: after [`Self::THRESHOLD`] failures in a row, over all lanes, one lane probes
/// and the others wait for its success. A `Retry-After` holds all lanes back.
#[derive(Debug, Default)]
pub struct Circuit {
    failures: u32,
    probe: Option<LaneId>,
    hold_until: Option<Instant>,
}

impl Circuit {
    /// Failures in a row that open the circuit.
    pub const THRESHOLD: u32 = 5;

    /// Who may start an attempt now.
    #[must_use]
    pub fn gate(&self, now: Instant) -> Gate {
        match (self.hold_until, self.probe) {
            (Some(until), _) if now < until => Gate::Until(until),
            (_, Some(lane)) if self.is_open() => Gate::Only(lane),
            _ => Gate::All,
        }
    }

    /// Whether only a probe is let through.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.failures >= Self::THRESHOLD
    }

    /// Notes the start of an attempt: with an open circuit and no probe, this lane becomes the probe.
    pub fn started(&mut self, lane: LaneId) {
        if self.is_open() && self.probe.is_none() {
            self.probe = Some(lane);
        }
    }

    /// Notes an acknowledged batch. Tells whether this closed the circuit.
    pub fn succeeded(&mut self) -> bool {
        let was_open = self.is_open();
        (self.failures, self.probe) = (0, None);
        was_open
    }

    /// Notes a failure that says something of the receiver. Tells whether this opened the circuit.
    pub fn failed(&mut self, lane: LaneId) -> bool {
        self.failures = self.failures.saturating_add(1);
        if self.failures == Self::THRESHOLD {
            self.probe = Some(lane);
        }
        self.failures == Self::THRESHOLD
    }

    /// Notes that the receiver asked for a pause.
    pub fn pause(&mut self, now: Instant, after: Duration) {
        self.hold_until = self.hold_until.max(Some(hold(now, after)));
    }

    /// Notes that `lane` has given up its batch: if it was the probe, the next lane that starts takes over.
    pub fn gave_up(&mut self, lane: LaneId) {
        if self.probe == Some(lane) {
            self.probe = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;
    use informer_hub_types::clock;

    const PARAMS: RetryParams = RetryParams {
        first: Duration::from_millis(500),
        max: Duration::from_secs(300),
        give_up_after: Duration::from_secs(3600),
        refused_for: Duration::from_secs(600),
    };

    fn delays(attempts: u32, after: Option<Duration>) -> Vec<Duration> {
        let (now, mut rng) = (clock::now(), StdRng::seed_from_u64(7));
        let one = |_| match decide(&PARAMS, attempts, now, after, now, &mut rng) {
            Decision::RetryAt(at) => at - now,
            Decision::GiveUp => unreachable!("its time is not up"),
        };
        (0..1000).map(one).collect()
    }

    #[test]
    fn delays_double_with_full_jitter_up_to_the_longest() {
        for (attempts, top) in [(1, 500), (2, 1000), (4, 4000), (11, 300_000), (40, 300_000), (u32::MAX, 300_000)] {
            let (delays, top) = (delays(attempts, None), Duration::from_millis(top));
            assert!(delays.iter().all(|delay| *delay <= top));
            assert!(delays.iter().any(|delay| *delay > top.mul_f64(0.9)), "{attempts}");
            assert!(delays.iter().any(|delay| *delay < top.mul_f64(0.1)), "{attempts}");
        }
    }

    #[test]
    fn retry_after_is_a_minimum_up_to_an_hour() {
        let after = Duration::from_secs(120);
        assert!(delays(1, Some(after)).iter().all(|delay| *delay >= after));
        let year = Duration::from_secs(365 * 24 * 3600);
        assert!(delays(1, Some(year)).iter().all(|delay| *delay == MAX_RETRY_AFTER));
    }

    #[test]
    fn a_batch_is_given_up_when_its_time_is_over_and_tried_once_more_right_then() {
        let (now, mut rng) = (clock::now(), StdRng::seed_from_u64(7));
        let deadline = now + PARAMS.give_up_after;
        assert_eq!(decide(&PARAMS, 99, now, None, deadline, &mut rng), Decision::GiveUp);
        let just_before = deadline - Duration::from_millis(1);
        for _ in 0..100 {
            let decision = decide(&PARAMS, 99, now, None, just_before, &mut rng);
            assert!(matches!(decision, Decision::RetryAt(at) if at <= deadline), "{decision:?}");
        }
    }

    #[test]
    fn five_failures_in_a_row_leave_one_lane_to_probe() {
        let (now, mut circuit) = (clock::now(), Circuit::default());
        let lane = LaneId::new;
        for i in 0..4 {
            assert!(!circuit.failed(lane(i)));
        }
        assert_eq!(circuit.gate(now), Gate::All);
        assert!(circuit.failed(lane(2)));
        assert_eq!(circuit.gate(now), Gate::Only(lane(2)));
        assert!(!circuit.failed(lane(3)));
        assert_eq!(circuit.gate(now), Gate::Only(lane(2)));
        circuit.gave_up(lane(2));
        assert_eq!(circuit.gate(now), Gate::All);
        circuit.started(lane(1));
        assert_eq!(circuit.gate(now), Gate::Only(lane(1)));
        assert!(circuit.succeeded());
        assert_eq!(circuit.gate(now), Gate::All);
    }

    #[test]
    fn a_success_in_between_keeps_the_circuit_closed() {
        let (now, mut circuit) = (clock::now(), Circuit::default());
        for _ in 0..10 {
            for i in 0..4 {
                circuit.failed(LaneId::new(i));
            }
            assert!(!circuit.succeeded());
        }
        assert_eq!(circuit.gate(now), Gate::All);
    }

    #[test]
    fn a_pause_holds_every_lane_until_it_is_over() {
        let (now, mut circuit) = (clock::now(), Circuit::default());
        let (short, long) = (Duration::from_secs(5), Duration::from_secs(60));
        circuit.pause(now, long);
        circuit.pause(now, short);
        assert_eq!(circuit.gate(now), Gate::Until(now + long));
        assert_eq!(circuit.gate(now + long), Gate::All);
    }
}
