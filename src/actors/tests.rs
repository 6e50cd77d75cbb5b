//! The tree of supervisors, shot at: whatever dies, nothing is lost and nobody else notices.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod cache;
mod crash;
#[path = "../../tests/hub/fleet.rs"]
#[allow(dead_code, reason = "shared with the tests of the whole hub, which need more of it")]
mod fleet;
mod outage;
mod questions;
mod reflector;
mod supervision;

pub(in crate::actors) use crash::{Crash, CrashIn, Victim};
