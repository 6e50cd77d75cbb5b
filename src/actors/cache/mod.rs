//! The cache actor, one per resource and view over all clusters: store writes, index builds, queries.

pub(in crate::actors) mod actor;
pub(in crate::actors) mod messages;
pub(in crate::actors) mod query_runner;
pub(in crate::actors) mod write_half;
