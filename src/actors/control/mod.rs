//! Supervision tree: registry, clusters, informers, discovery, memory governor and checkpoints.
//!
//! It starts, stops and restarts actors; objects never pass through it.

pub(in crate::actors) mod checkpoint;
pub(in crate::actors) mod cluster;
pub(in crate::actors) mod discovery;
pub(in crate::actors) mod informer;
pub(in crate::actors) mod memory_governor;
pub(in crate::actors) mod messages;
pub(in crate::actors) mod registry;
pub(in crate::actors) mod system;
