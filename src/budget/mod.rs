//! The memory budget of a hub: what each informer may keep, so that the process stays within a limit.
//!
//! # The contract
//! The governor is told, several times a second, what the process has resident and what each informer keeps, and says
//! which informer is to keep less, or may keep more. What the limit leaves of what is nobody's is shared by *max-min
//! fairness*: whoever needs less than an equal share has all that it needs, whatever others want, and those that want
//! more share the rest equally. Who is *furthest above its share* goes down first, a [step](informer_hub_types::MemoryStep) at a time, and
//! no further than the limit asks for.
//!
//! The way back has hysteresis: a better step must fit into the informer's share with a fifth to spare, and the hub must
//! stay clear of the limit; it comes after a wait that doubles with each relapse.
//!
//! # Two measures
//! *Resident* is what an out-of-memory killer looks at, and says nothing of whose it is. *Accounted* is counted per
//! informer: bodies as they lie, an estimate for all else of an object, what waits in queues. The difference is nobody's
//! (the program, threads, connections, what the allocator has free) and is measured as *slack*. What informers have let
//! go stays resident until the allocator has given it back, which takes some seconds and must not be taken for slack.
//!
//! Pure: no clock, no dice, no I/O.

mod governor;
mod share;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use governor::{Change, Governor, Reading, Report, Shown, UNLIMITED, Usage, Verdict};
pub use share::level;

/// How fast the governor acts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// How long an informer stays where it was put before it may keep more again; doubles with each relapse. Up to half
    /// of it is added at random. Default 30 s.
    pub wait: Duration,
    /// The most that comes to. Default 30 min.
    pub longest_wait: Duration,
    /// Within this after it was given more, having to give it back is a relapse. Default 10 min.
    pub relapse: Duration,
    /// For how long an estimate of what a step brings counts for more than what is seen of it yet. Default 5 s.
    pub settle: Duration,
    /// How long an informer that was paused is left at that, unless the limit is passed. Default 2 s.
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
