//! Foundation of scale-out: a replicated log of changes, ownership of clusters, and their assignment to collectors.
//!
//! Everything except `jetstream` (feature `nats`) is synchronous and does no I/O; the caller passes time, requests and
//! answers.
//!
//! # Data flow
//! ```text
//! collector ─► Writer ─► Log (JetStream stream) ─► Reader ─► serving replica, deliverer
//!    ▲   one subject per partition, one epoch per owner │
//!    └──────────── Reader: before a takeover ◄──────────┘◄── checkpoints (object store)
//! ```
//!
//! # Layout
//! - [`Partition`], [`Subjects`]: a part of the log with its own order, and its NATS subject.
//! - [`Record`], [`Entry`], [`Header`]: contents of the log in a binary form. [`EntryPage`]: some entries of a partition.
//! - [`writer`]: claims partitions and appends records, until another collector claims them.
//! - [`reader`]: returns the records of each partition in order, and detects gaps and old epochs.
//! - [`checkpoint`]: the saved objects of a partition at a sequence of the log.
//! - [`kept`]: choice of the older checkpoints that a store keeps.
//! - [`ClusterChange`]: change of a cluster's owner or document, from a watch of their buckets.
//! - [`ClusterDocument`]: facts about a cluster that a collector has found, for replicas that cannot ask the apiserver.
//! - [`assign`](mod@assign): which collector owns which cluster.
//! - [`roster`]: live collectors and deliverers, and the operator's drains and pins.
//! - [`Log`]: interface to the log. `SimulatedLog` (feature `testing`) and `jetstream::JetStreamLog` implement it.

pub mod assign;
pub mod checkpoint;
mod cluster_change;
mod cluster_document;
mod entry;
#[cfg(feature = "nats")]
pub mod jetstream;
pub mod kept;
mod log;
mod ownership;
mod page;
mod partition;
pub mod reader;
#[cfg(test)]
mod reader_tests;
mod record;
pub mod roster;
#[cfg(any(test, feature = "testing"))]
pub mod simulated_log;
#[cfg(test)]
mod simulation_tests;
mod wire;
pub mod writer;

pub use cluster_change::{ClusterChange, ClusterRevisions};
pub use cluster_document::{ClusterDocument, FailureKind, SourceFailure};
pub use entry::{Entry, Header, MAX_BODY, Sequence, pack, unpack};
pub use log::{Answer, Log, Request, RequestId};
pub use ownership::Ownership;
pub use page::EntryPage;
pub use partition::{InvalidFleetName, Partition, Subjects};
pub use reader::{PartitionState, ReadOutcome, Reader};
pub use record::{Record, ResetReason};
pub use wire::DecodeError;
pub use writer::{Writer, WriterEvent, WriterParams};
