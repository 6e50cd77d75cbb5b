//! Simulated clusters: Kubernetes' list and watch protocol over real HTTP on loopback, for the demo, tests and benches.
//!
//! A [`World`] is a cluster's state and history, pure and decided by a seed; [`Churn`] changes it; [`SimCluster`]
//! serves it and lets a [`FaultScript`] go wrong with it. The world knows the truth at each moment: an
//! [`oracle`] compares it with what a consumer has seen, and checks on the way that nothing was told that cannot
//! have happened. [`replay`] is a second, much simpler server that is as fast as a socket, for benches.

mod access;
mod answer;
mod churn;
mod collection;
mod connection;
mod definitions;
mod discovery;
pub mod disk;
mod fault;
mod filter;
mod http;
mod list;
mod object;
pub mod oracle;
mod piped;
mod pods;
mod pump;
pub mod replay;
mod request;
mod server;
mod shared;
mod watch;
mod world;

#[cfg(test)]
mod tests;

pub use answer::RawAnswer;
pub use churn::{Churn, Operation, Weights};
pub use collection::ResourceDef;
pub use disk::{DiskCall, SimDisk};
pub use fault::{Fault, FaultRecord, FaultScript, Rule, When};
pub use filter::{Filter, InvalidFilter};
pub use object::{Event, EventKind, SimObject};
pub use piped::PipedCluster;
pub use pods::{NAMESPACES, PHASES};
pub use server::{SimCluster, SimServer};
pub use shared::{SimConfig, Stats, Streaming};
pub use world::{Truth, World, WorldConfig};
