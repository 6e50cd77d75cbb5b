//! Published state of clusters and informers, read without messages to actors.

pub(in crate::actors) mod accepted;
pub(in crate::actors) mod fleet_view;
pub(in crate::actors) mod hub;
pub(in crate::actors) mod sync;
