//! Isolation of an event that always fails, so that it holds back only its object.
//!
//! If the receiver answers with an error such as 500, or not at all, it may be down, or it may fail for one event. A
//! batch counts as the cause of its failures in two cases:
//!
//! - *Proven*: the batch has failed [`PROVEN`] times, and the receiver has accepted another batch since its first
//!   attempt.
//! - *Assumed*: the batch has failed [`Circuit::THRESHOLD`] times, and fewer than [`ASSUMED`] events of its lane are
//!   set aside without a proof. This case is needed if the other lanes are empty: no other batch can then prove
//!   anything, and the lane would never try its other objects. While the receiver is down, each event set aside is
//!   attempted with its own backoff.
//!
//! A batch that counts as the cause is halved after each further failure, until the failing event is alone. That event
//! is set aside (see [`Lanes`](crate::Lanes)) with the backoff and the time limit of failures without a refusal
//! ([`give_up_after`](informer_hub_types::RetryParams::give_up_after)). The event is never given up early. If events
//! set aside fill their share of the queue, the failing event stays its lane's batch and blocks the lane.

use super::Machine;
use crate::lanes::Refusals;
use crate::{Circuit, LaneId};
use informer_hub_types::clock::Instant;

/// Number of failures after which a batch counts as their cause, if the receiver has accepted another batch since this
/// batch was first attempted.
const PROVEN: u32 = 3;
/// Maximum number of failing events of a lane (parallel queue) that are set aside although the receiver itself may be
/// down.
const ASSUMED: usize = 4;

impl<T> Machine<T> {
    /// Schedules the next attempt of a failed batch at `due`. If the batch counts as the cause of its failures, halves
    /// it, or sets its single event aside. The batch has failed `attempts` times since its first attempt at `since`.
    pub(super) fn retry_failed(
        &mut self,
        lane: LaneId,
        (attempts, since): (u32, Instant),
        error: &str,
        due: Instant,
        now: Instant,
    ) {
        let is_proven = attempts >= PROVEN && self.last_accepted.is_some_and(|accepted| accepted >= since);
        let is_assumed = attempts >= Circuit::THRESHOLD && self.lanes.unproven(lane, self.last_accepted) < ASSUMED;
        let was_set_aside = self.lanes.refusals(lane).is_some();
        if self.lanes.batch_len(lane) > 1 && (is_proven || is_assumed) {
            // Without proof the backoff continues, since the receiver may be down.
            self.lanes.halve(lane, if is_proven { 1 } else { attempts });
        } else if was_set_aside || (is_proven || is_assumed) && self.lanes.has_share() {
            let refusals = Refusals { since, refused_since: None, last: now, attempts, error: error.into() };
            return self.lanes.set_aside(lane, refusals, due);
        }
        self.lanes.retry_at(lane, due);
    }
}
