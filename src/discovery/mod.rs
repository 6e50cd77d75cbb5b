//! Resource discovery rules: which resources of a cluster to watch, to watch in another API version, or to stop
//! watching. Performs no I/O.
//!
//! [`decide_watch`] decides about one requested resource. [`share`] assigns the resources of a cluster to patterns.
//! [`Pace`] schedules discovery requests.
//!
//! # When objects count as deleted
//! A resource that discovery does not list is not served now. There are three possible causes: its CRD was deleted, no
//! version of it is served, or the apiserver has just started and does not know it yet. The objects are gone only if
//! the CRD was deleted. They therefore count as deleted only if the watch of CRDs shows that the CRD is gone.

mod pace;
mod plan;
mod signals;

#[cfg(test)]
mod plan_tests;

pub use pace::{Answer, DiscoveryIntervals, Pace};
pub use plan::{Claim, DiscoveryResults, Share, WatchDecision, decide_watch, definition_of, share};
pub use signals::{definitions, services};
