//! The cache actor, one per resource over all clusters: the write half of a store, index builds, queries.

pub(in crate::actors) mod actor;
pub(in crate::actors) mod messages;
pub(in crate::actors) mod questions;
pub(in crate::actors) mod write_half;
