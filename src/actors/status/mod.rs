//! What clusters and informers show of themselves, read without a message to any actor.

pub(in crate::actors) mod fleet_view;
pub(in crate::actors) mod hub;
pub(in crate::actors) mod sync;
