//! The whole hub over simulated clusters: real HTTP, real actors, faults by script.
#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

mod away;
mod bad_input;
mod basics;
mod cluster_sources;
mod comings;
mod durable;
mod faults;
mod fleet;
mod hostile;
mod informers;
mod memory;
mod metrics;
mod out_of_reach;
mod parity;
mod questions;
mod refusals;
mod relist;
mod reload;
mod restart;
mod storms;
mod subscriptions;
