//! Ids of a sink's lanes (parallel queues), and the rule that says which lanes may start an attempt.

use informer_hub_types::clock::Instant;

/// Id of a lane, one of a sink's parallel queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneId(pub(super) usize);

impl LaneId {
    /// Creates the id of the lane (one of a sink's parallel queues) with this number.
    #[cfg(test)]
    pub(crate) fn new(number: usize) -> Self {
        Self(number)
    }
}

/// Rule that says which of a sink's lanes (parallel queues) may start a delivery attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// All lanes may start an attempt.
    All,
    /// Only this lane may start an attempt.
    Only(LaneId),
    /// No lane may start an attempt before this time.
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
