//! Foundations of all actors: limits, supervision, yielding, signals. Depends on no actor.

pub mod capacity;
pub(in crate::actors) mod gauge;
pub(in crate::actors) mod jitter;
pub(in crate::actors) mod pressure;
pub(in crate::actors) mod recovery;
pub(in crate::actors) mod supervision;
pub(in crate::actors) mod thread_pools;
pub(in crate::actors) mod waiters;
pub(in crate::actors) mod yield_budget;
