//! The memory budget of a hub: how much each informer may keep, so that the process stays within a limit.
//!
//! # The contract
//! The governor receives a [`Reading`] several times a second: resident memory of the process, and usage per informer.
//! It decides which informers must keep less and which may keep more. Memory that the limit leaves for informers is
//! shared by *max-min fairness*. An informer that needs less than an equal share gets all it needs; the others share
//! the rest equally. The informer *furthest above its share* is degraded first, one
//! [step](informer_hub_types::MemoryStep) at a time, and no further than the limit requires.
//!
//! Upgrades have hysteresis. A better step must fit into the informer's share with 20 % to spare, and total memory must
//! stay clear of the limit. An upgrade follows after a wait that doubles with each relapse (a degradation soon after an
//! upgrade).
//!
//! # Two measures
//! *Resident* memory is the value that an out-of-memory killer compares. It cannot be attributed to informers.
//! *Accounted* memory is counted per informer: stored body bytes, an estimate for the rest of each object, and queued
//! bytes. The difference is *slack*: the program, threads, connections and free memory of the allocator. Memory that
//! informers release stays resident until the allocator returns it, which takes seconds. It must not be counted as
//! slack.
//!
//! Pure: no clock, no randomness, no I/O. `actors/control/memory_governor` measures and applies the decisions;
//! `actors/memory/headroom` delays new objects.

mod governor;
mod share;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use governor::{Change, Decision, Governor, MemoryShare, Reading, Report, UNLIMITED, Usage};
pub use share::level;

/// Timing of the governor's decisions on how much each informer keeps in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// Time an informer stays at a memory step before it may be upgraded; doubles with each relapse (an upgrade that is
    /// soon undone). Up to half of it is added at random. Default 30 s.
    pub wait: Duration,
    /// Upper bound of `wait`. Default 30 min.
    pub longest_wait: Duration,
    /// Time after an upgrade within which a degradation counts as a relapse, which doubles the wait. Default 10 min.
    pub relapse: Duration,
    /// Time for which the estimated effect of a degradation (to a step that keeps less) overrides the measured memory
    /// usage. Default 5 s.
    pub settle: Duration,
    /// Time for which an informer stays paused (accepts no data) before it must release its objects, unless the limit
    /// is exceeded. Default 2 s.
    pub pause: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            wait: seconds(30),
            longest_wait: seconds(30 * 60),
            relapse: seconds(10 * 60),
            settle: seconds(5),
            pause: seconds(2),
        }
    }
}
