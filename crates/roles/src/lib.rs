//! Roles of the processes of a fleet.
//!
//! A collector owns clusters, watches them, and writes their changes to the replicated log of `informer_hub_fleet`. It takes
//! effect at the port to a cluster: [`Collector`] wraps the connector of each cluster that it owns, so informers, caches and
//! subscribers work as in a single process.
//!
//! ```text
//!  apiserver ─► source ─► CollectingSource ─► reflector ─► …
//!                           │  a change continues to the reflector once the log has stored it
//!                           ▼
//!                        Appender ─► Backend (log, owners, checkpoints: JetStream, or simulated)
//! ```
//!
//! # Layout
//! - [`Backend`]: port to the services that the processes of a fleet share.
//! - `appender`: task that appends records to the log and reports when they are stored.
//! - `restore`: the objects of a partition, from its checkpoint and the log's tail.
//! - `collect`: ownership of clusters, list and watch of their resources, checkpoints.

mod appender;
mod backend;
mod collect;
#[cfg(feature = "nats")]
mod nats;
mod restore;
#[cfg(any(test, feature = "testing"))]
pub mod simulated;
#[cfg(test)]
mod simulation_tests;

pub use backend::{Answered, Backend, BackendError};
pub use collect::{ClusterOwner, Collector, CollectorParams, CollectorStatus, ConnectorWrap, Host};
#[cfg(feature = "nats")]
pub use nats::{Credentials, NatsBackend, NatsParams, NatsProblem};
