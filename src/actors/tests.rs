//! Failure tests of the supervision tree: whatever actor dies, no event is lost and other clusters are not affected.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod cache;
mod crash;
#[path = "../../tests/hub/fleet.rs"]
#[allow(dead_code, reason = "shared with the tests of the whole hub, which need more of it")]
mod fleet;
mod outage;
mod queries;
mod reflector;
mod supervision;
#[cfg(target_os = "linux")]
mod thread_pools;

pub(in crate::actors) use crash::{Crash, CrashIn, Victim};
