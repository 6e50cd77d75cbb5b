//! Simulated clusters (Kubernetes' list and watch protocol over HTTP on loopback), a simulated disk, and an oracle, for
//! demo, tests and benches.
//!
//! A [`World`] holds a cluster's state and history. It does no I/O and is determined by a seed. [`Churn`] changes it.
//! [`SimCluster`] serves it, with the faults of a [`FaultScript`]. An [`oracle`] compares a consumer's state with the
//! world's and rejects notifications that are impossible. [`replay`] is a simpler, faster server for benches.

mod access;
mod answer;
mod bad_protobuf;
mod churn;
mod collection;
mod connection;
mod definitions;
mod discovery;
pub mod disk;
mod fault;
mod filter;
mod handler;
mod http;
mod lease_requests;
mod leases;
mod list;
mod media;
mod object;
pub mod oracle;
mod piped;
mod pods;
mod protobuf;
mod pump;
mod raw_response;
pub mod replay;
mod request;
mod server;
mod shared;
mod users;
mod watch;
mod world;
mod writer;

#[cfg(test)]
mod tests;

pub use answer::RawAnswer;
pub use bad_protobuf::BadProtobuf;
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
pub use world::{GroundTruth, World, WorldConfig};
