//! State of one leader election, and its transitions. Only [`ElectionState`] decides when the send fence is open.

use std::sync::Arc;
use std::time::Duration;

use informer_hub_lease::{ElectionParams, Elector};
use informer_hub_sink::SendFence;
use informer_hub_types::rng;

/// State of an election. Each change of the state also opens or closes the fence (the switch that stops deliveries),
/// under the same lock.
pub(super) struct ElectionState {
    pub(super) elector: Elector,
    pub(super) was_leader: bool,
    /// Published progress of the sinks, as text: that of this process if it leads, else the text last read from the
    /// lease.
    pub(super) note: Arc<str>,
    pub(super) error: Option<String>,
    /// Delay before this process takes a free lease, unless the last holder handed the lease over to a named process.
    pub(super) claim_delay: Duration,
    course: Course,
}

/// Whether an election keeps its lease or gives it up, and to which process.
enum Course {
    /// Competes for the lease and keeps it.
    Stand,
    /// Hands the lease over to another process. Sinks begin no delivery.
    HandOver {
        to: String,
        /// Whether the leader has reconciled its sinks once since the handover began. If so, the lease is released at
        /// the next reconciliation.
        is_drained: bool,
    },
    /// Releases the lease for another process, and then competes for it again.
    Release,
    /// Releases the lease and ends.
    End,
    /// The election has ended. It no longer opens or closes the fence, because a new election of the same sink may
    /// already use the fence.
    Over,
}

impl ElectionState {
    pub(super) fn new(elector: Elector) -> Self {
        let (note, claim_delay) = ("".into(), Duration::ZERO);
        Self { elector, was_leader: false, note, error: None, claim_delay, course: Course::Stand }
    }

    /// Opens or closes the fence according to the state.
    pub(super) fn set_fence(&self, fence: &SendFence) {
        if matches!(self.course, Course::Over) {
            return;
        }
        let is_draining = self.is_handing_over();
        if is_draining {
            fence.set_draining(true);
        }
        // The elector of an election that releases the lease does not lead.
        fence.set(self.elector.leads_until());
        if !is_draining {
            // Comes last: a fence that closes must not be open before that.
            fence.set_draining(false);
        }
    }

    /// Begins a handover to the process `to`. Returns false, and does nothing, if this process does not lead or is
    /// already giving the lease up.
    pub(super) fn hand_over(&mut self, to: &str, now: Duration) -> bool {
        let begins = matches!(self.course, Course::Stand) && self.elector.leads(now);
        if begins {
            self.course = Course::HandOver { to: to.to_owned(), is_drained: false };
        }
        begins
    }

    pub(super) fn is_handing_over(&self) -> bool {
        matches!(self.course, Course::HandOver { .. } | Course::Release)
    }

    /// Advances a handover. From the second call on, returns the process that takes the lease. Returns `None` before
    /// that, and without a handover.
    pub(super) fn advance_handover(&mut self) -> Option<String> {
        let Course::HandOver { to, is_drained } = &mut self.course else { return None };
        std::mem::replace(is_drained, true).then(|| to.clone())
    }

    /// Ends a handover if the lease was lost before it was released.
    pub(super) fn end_lost_handover(&mut self, now: Duration) {
        if matches!(self.course, Course::HandOver { .. }) && !self.elector.leads(now) {
            self.course = Course::Stand;
        }
    }

    /// Begins to release the lease of a handover. Returns false if the handover has ended, because the lease was lost.
    pub(super) fn release(&mut self, now: Duration) -> bool {
        let releases = matches!(self.course, Course::HandOver { is_drained: true, .. });
        if releases {
            self.course = Course::Release;
            self.elector.resign(now);
        }
        releases
    }

    /// Begins the end of this election: starts to release the lease, and no longer competes for it. Returns true if
    /// nothing is left to release.
    pub(super) fn end(&mut self, now: Duration) -> bool {
        if matches!(self.course, Course::Over) {
            return true;
        }
        self.course = Course::End;
        self.elector.resign(now);
        self.elector.has_resigned()
    }

    /// Makes the election compete for its lease again, after the elector has released the lease. Returns false, and
    /// does nothing, if the election is ending.
    pub(super) fn stand_again(&mut self, identity: &str, params: ElectionParams) -> bool {
        if matches!(self.course, Course::End | Course::Over) {
            return false;
        }
        self.elector = Elector::new(identity, params, rng::rng());
        // Lets the receiving process take the lease first.
        self.elector.set_claim_delay(params.lease_duration);
        self.course = Course::Stand;
        true
    }

    /// Ends the election: closes the fence, which later calls of [`Self::set_fence`] leave alone.
    pub(super) fn close(&mut self, fence: &SendFence) {
        if !matches!(self.course, Course::Over) {
            self.course = Course::Over;
            fence.set(None);
            fence.set_draining(false);
        }
    }
}
