//! Resource discovery rules: which resources of a cluster are watched, moved or stopped. Pure.
//!
//! [`decide_watch`] decides about one requested resource. [`share`] assigns the resources of a cluster to patterns.
//! [`Pace`] schedules discovery requests.
//!
//! # When objects count as deleted
//! A resource that discovery does not list is not served now. Either its CRD was deleted, or no version is served, or
//! an apiserver that just started does not know it yet. Its objects are gone only in the first case. They therefore
//! count as deleted only if the watch of CRDs shows that the CRD itself is gone.

mod pace;
mod plan;
mod signals;

#[cfg(test)]
mod plan_tests;

pub use pace::{Answer, DiscoveryIntervals, Pace};
pub use plan::{Claim, DiscoveryResults, Share, WatchDecision, decide_watch, definition_of, share};
pub use signals::{definitions, services};
