//! Leader election by a lease: a record in a store that has compare-and-set.
//!
//! An [`Elector`] is the state machine of one contender. It has no I/O and no clock: its driver passes the time, sends
//! each [`Request`] to the store and reports the [`Answer`]. The semantics are those of client-go's `leaderelection`.
//!
//! # Safety
//! At most one contender leads at any time, under two conditions:
//!
//! - [`ElectionParams::renew_deadline`] is shorter than [`ElectionParams::lease_duration`]. The difference is greater
//!   than the drift between the clocks of two contenders within one lease.
//! - The clocks go on while a process or a machine is suspended.
//!
//! The election works as follows:
//!
//! - A holder leads until `renew_deadline` after it *sent* the last successful write.
//! - Another contender takes over `lease_duration` after it *received* the last change of the record.
//! - Clocks of different contenders are never compared, and no time is read from the record.
//! - A write names the version that it replaces, so that one of two concurrent writes fails. A delayed or repeated
//!   write fails for the same reason.
//!
//! A record that is deleted counts as held until its last holder's lease has expired. Only a contender that starts
//! after the deletion cannot know of that holder.
//!
//! # Groups
//! Contenders that share several leases use [`group`]: it knows which of them run, and decides which one hands a lease
//! over.

mod elector;
pub mod group;
pub mod kubernetes;
#[cfg(any(test, feature = "testing"))]
pub mod memory;

pub use elector::{Answer, ElectionParams, Elector, Record, Request};
