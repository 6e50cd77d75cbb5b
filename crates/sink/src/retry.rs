//! Whether and when a failed batch is retried, and the circuit breaker for failing receivers. `machine/outcome` then
//! retries, halves or gives up the batch.

use std::time::Duration;

use rand::Rng;

use super::lanes::{Gate, LaneId};
use informer_hub_types::clock::Instant;
use informer_hub_types::{RetryParams, exponential_backoff};

/// Upper bound of a receiver's `Retry-After`, so that a wrong header cannot stop a sink for a year.
pub(crate) const MAX_RETRY_AFTER: Duration = Duration::from_secs(3600);

/// Next step for a batch that the receiver did not acknowledge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Retry the batch at this time.
    RetryAt(Instant),
    /// Give the batch up: its retry time is over.
    GiveUp,
}

/// Decides when to retry a batch that has failed `attempts` times since its first attempt at `since`.
///
/// The delay is random between zero and the exponential bound (full jitter), so that many senders spread out. The last
/// attempt is made at the end of the retry time. `after`, from `Retry-After`, is always a minimum.
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
    Decision::RetryAt(after.map_or(at, |after| at.max(end_of_pause(now, after))))
}

/// Returns when a `Retry-After` pause of length `after` ends, at most [`MAX_RETRY_AFTER`] from now.
fn end_of_pause(now: Instant, after: Duration) -> Instant {
    now + after.min(MAX_RETRY_AFTER)
}

/// Circuit breaker of a receiver. [`Self::THRESHOLD`] failures in a row, over all lanes (parallel queues), open it; a
/// success closes it.
///
/// # While it is open
/// - If several lanes have failed since the last success, one attempt at a time is made. The lanes take turns, so an
///   event that always fails does not hold back other lanes.
/// - If only one lane has failed, its batch may be the cause, so the other lanes are not held back.
///
/// A `Retry-After` pauses all lanes.
#[derive(Debug, Default)]
pub struct Circuit {
    /// Number of failures since the last success.
    failures: u32,
    /// Lanes (parallel queues) that have failed since the last success.
    failing: FailingLanes,
    /// Lanes (parallel queues) with an attempt to deliver in flight.
    in_flight: Vec<LaneId>,
    hold_until: Option<Instant>,
}

/// Whether no lane, one lane or several lanes (parallel queues) have failed since the last success.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FailingLanes {
    #[default]
    None,
    One(LaneId),
    Several,
}

impl FailingLanes {
    fn and(self, lane: LaneId) -> Self {
        match self {
            Self::None => Self::One(lane),
            Self::One(known) if known == lane => self,
            Self::One(_) | Self::Several => Self::Several,
        }
    }
}

impl Circuit {
    /// Number of consecutive failures that open the circuit.
    pub const THRESHOLD: u32 = 5;

    /// Returns which lanes (parallel queues) may start an attempt to deliver now.
    #[must_use]
    pub fn gate(&self, now: Instant) -> Gate {
        match (self.hold_until, self.in_flight.first()) {
            (Some(until), _) if now < until => Gate::Until(until),
            // `lane` has an attempt in flight, so this gate admits no attempt until that one has ended.
            (_, Some(lane)) if self.is_probing() => Gate::Only(*lane),
            _ => Gate::All,
        }
    }

    /// Returns whether the receiver has failed [`Self::THRESHOLD`] times in a row.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.failures >= Self::THRESHOLD
    }

    /// Returns whether only one attempt at a time may be in flight: the circuit is open, and several lanes have failed.
    fn is_probing(&self) -> bool {
        self.is_open() && self.failing == FailingLanes::Several
    }

    /// Returns whether a pause that the receiver asked for still lasts.
    #[must_use]
    pub fn is_paused(&self, now: Instant) -> bool {
        self.hold_until.is_some_and(|until| now < until)
    }

    /// Records the start of an attempt to deliver a lane's batch.
    pub fn started(&mut self, lane: LaneId) {
        self.in_flight.push(lane);
    }

    /// Records the end of an attempt to deliver a lane's batch, with any outcome. While the circuit is open, another
    /// lane may then make an attempt.
    pub fn ended(&mut self, lane: LaneId) {
        self.in_flight.retain(|other| *other != lane);
    }

    /// Records an acknowledged batch. Returns whether this closed the circuit.
    pub fn succeeded(&mut self) -> bool {
        let was_open = self.is_open();
        (self.failures, self.failing) = (0, FailingLanes::None);
        was_open
    }

    /// Records a failure caused by the receiver, not by the content. Returns whether this opened the circuit.
    pub fn failed(&mut self, lane: LaneId) -> bool {
        self.failures = self.failures.saturating_add(1);
        self.failing = self.failing.and(lane);
        self.failures == Self::THRESHOLD
    }

    /// Records that the receiver asked for a pause.
    pub fn pause(&mut self, now: Instant, after: Duration) {
        self.hold_until = self.hold_until.max(Some(end_of_pause(now, after)));
    }

    /// Ends a pause early. A later `Retry-After` of the receiver may begin another one.
    pub fn end_pause(&mut self) {
        self.hold_until = None;
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
            Decision::GiveUp => unreachable!("the deadline has not passed"),
        };
        (0..1000).map(one).collect()
    }

    #[test]
    fn delays_double_with_full_jitter_up_to_the_maximum() {
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
    fn last_attempt_is_made_at_the_deadline() {
        let (now, mut rng) = (clock::now(), StdRng::seed_from_u64(7));
        let deadline = now + PARAMS.give_up_after;
        assert_eq!(decide(&PARAMS, 99, now, None, deadline, &mut rng), Decision::GiveUp);
        let just_before = deadline - Duration::from_millis(1);
        for _ in 0..100 {
            let decision = decide(&PARAMS, 99, now, None, just_before, &mut rng);
            assert!(matches!(decision, Decision::RetryAt(at) if at <= deadline), "{decision:?}");
        }
    }

    /// Records a failed attempt of a lane. Returns whether this opened the circuit.
    fn fail(circuit: &mut Circuit, lane: usize) -> bool {
        circuit.started(LaneId::new(lane));
        circuit.ended(LaneId::new(lane));
        circuit.failed(LaneId::new(lane))
    }

    #[test]
    fn open_circuit_allows_one_attempt_at_a_time() {
        let (now, mut circuit) = (clock::now(), Circuit::default());
        let lane = LaneId::new;
        // This attempt is in flight when the circuit opens.
        circuit.started(lane(0));
        for at in [1, 2, 3, 1] {
            assert!(!fail(&mut circuit, at));
        }
        assert_eq!(circuit.gate(now), Gate::All);
        assert!(fail(&mut circuit, 2));
        assert_eq!(circuit.gate(now), Gate::Only(lane(0)), "its attempt has not ended");
        circuit.ended(lane(0));
        assert!(!circuit.failed(lane(0)));
        assert_eq!(circuit.gate(now), Gate::All, "any lane may probe");
        circuit.started(lane(3));
        assert_eq!(circuit.gate(now), Gate::Only(lane(3)));
        circuit.ended(lane(3));
        assert_eq!(circuit.gate(now), Gate::All, "the next lane probes, whatever the outcome was");
        circuit.started(lane(1));
        assert!(circuit.succeeded());
        assert_eq!(circuit.gate(now), Gate::All);
    }

    #[test]
    fn failures_of_a_single_lane_do_not_hold_back_others() {
        let (now, mut circuit) = (clock::now(), Circuit::default());
        let opened = (0..20).filter(|_| fail(&mut circuit, 1)).count();
        assert!(opened == 1 && circuit.is_open());
        circuit.started(LaneId::new(1));
        assert_eq!(circuit.gate(now), Gate::All);
        fail(&mut circuit, 2);
        assert_eq!(circuit.gate(now), Gate::Only(LaneId::new(1)), "two lanes fail");
        circuit.succeeded();
        fail(&mut circuit, 1);
        assert!(!circuit.is_open(), "a success forgets earlier failures");
    }

    #[test]
    fn success_between_failures_keeps_the_circuit_closed() {
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
    fn pause_stops_all_lanes_until_its_end() {
        let (now, mut circuit) = (clock::now(), Circuit::default());
        let (short, long) = (Duration::from_secs(5), Duration::from_secs(60));
        circuit.pause(now, long);
        circuit.pause(now, short);
        assert_eq!(circuit.gate(now), Gate::Until(now + long));
        assert_eq!((circuit.gate(now + long), circuit.is_paused(now + long)), (Gate::All, false));
        assert!(circuit.is_paused(now));
        circuit.end_pause();
        assert_eq!((circuit.gate(now), circuit.is_paused(now)), (Gate::All, false));
    }
}
