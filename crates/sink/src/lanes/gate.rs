//! Numbers of a sink's lanes, and the lanes that may start an attempt.

use informer_hub_types::clock::Instant;

/// Number of a lane, one of a sink's parallel queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneId(pub(super) usize);

impl LaneId {
    /// Creates the id of the lane with this number.
    #[cfg(test)]
    pub(crate) fn new(number: usize) -> Self {
        Self(number)
    }
}

/// Lanes that may start an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// All lanes.
    All,
    /// Only this lane.
    Only(LaneId),
    /// No lane before this time.
    Until(Instant),
}

impl Gate {
    pub(super) fn admits(self, lane: usize) -> bool {
        match self {
            Self::All => true,
            Self::Only(LaneId(only)) => only == lane,
            Self::Until(_) => false,
        }
    }
}
