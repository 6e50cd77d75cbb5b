//! Roles of the processes of a fleet.
//!
//! A collector owns clusters, watches them, and writes their changes to the replicated log of `informer_hub_fleet`.
//! [`Collector`] wraps the connector of each cluster that it owns, so informers, caches and subscribers work as in a
//! single process.
//!
//! ```text
//!  apiserver ─► source ─► CollectingSource ─► reflector ─► …
//!                           │  a change continues to the reflector once the log has stored it
//!                           ▼
//!                        Appender ─► Backend (log, owners, checkpoints: JetStream, or simulated)
//! ```
//!
//! A replica watches no cluster. Its connectors read what collectors have stored, so caches and readers work as in a
//! single process as well:
//!
//! ```text
//!  log, checkpoints ─► ServingSource ─► reflector ─► …
//!  owners, documents of clusters ─► ServingConnector: discovery, and since when a cluster is stale
//! ```
//!
//! # Layout
//! - [`Backend`]: interface to the log, buckets and checkpoints that the processes of a fleet share.
//! - `appender`: task that appends records to the log and reports when they are stored.
//! - `restore`: the objects of a partition, from its checkpoint and the log's tail.
//! - [`ClusterBuckets`]: interface to the owners and documents of all clusters.
//! - `cluster_watch`: one watch of the owners and documents per process; `progress`: how far it has read.
//! - [`RosterStore`]: interface to the live collectors and deliverers, and the operator's drains and pins.
//! - `collect`: ownership of clusters, list and watch of their resources, checkpoints, documents about clusters,
//!   balance.
//! - `serve`: list and watch from the log, and discovery from the documents.

mod answer;
mod appender;
mod backend;
mod cluster_buckets;
mod cluster_watch;
mod collect;
mod listed;
mod log_partition;
#[cfg(feature = "nats")]
mod nats;
mod progress;
mod restore;
mod roster_store;
mod serve;
#[cfg(any(test, feature = "testing"))]
pub mod simulated;
#[cfg(test)]
mod simulation_tests;

pub use answer::{Answered, BackendError};
pub use backend::{Backend, TailStream};
pub use cluster_buckets::{ClusterBuckets, ClusterChangeStream};
pub use collect::{Collector, CollectorParams, CollectorStatus, ConnectorWrap, Host, ShardOwner, Zone};
pub use informer_hub_fleet::Ownership;
pub use informer_hub_fleet::roster::{Deliverer, Member, MoveInProgress, RosterEntry, RosterItem};
#[cfg(feature = "nats")]
pub use nats::{Credentials, FixedLimits, FleetRoster, LeaseHolder, NatsBackend, NatsParams, NatsProblem};
pub use roster_store::RosterStore;
pub use serve::{Cursor, Replica, ReplicaParams, ReplicaStatus, ServedShard, Stale};
