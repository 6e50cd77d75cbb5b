//! Failure tests of the supervision tree: whatever actor dies, no event is lost and other clusters are not affected.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod cache;
mod crash;
#[path = "../../tests/hub/fleet.rs"]
#[allow(dead_code, reason = "shared with the tests of the whole hub, which need more of it")]
mod fleet;
mod informer;
mod outage;
mod queries;
mod reflector;
mod supervision;
#[cfg(target_os = "linux")]
mod thread_pools;

use crate::actors::cache::messages::OpenPartition;
use crate::cache::DeclaredIndex;
use crate::cache::testing::origin;
use informer_hub_types::InformerHealth;

pub(in crate::actors) use crash::{Crash, CrashIn, Victim};

/// Returns the message that opens the cache partition of a new informer, which declares these indices.
fn partition_of<const N: usize>(indexes: [&str; N]) -> OpenPartition {
    OpenPartition {
        origin: origin("c"),
        health: InformerHealth::new(),
        indexes: indexes.into_iter().map(DeclaredIndex::from).collect(),
        settings: 0,
        converted_by: None,
    }
}
