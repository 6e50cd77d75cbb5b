//! Messages to the cache actor.

use crate::actors::cache::write_half::{Lease, SharedWriteHalf};
use crate::actors::runtime::pressure::Pressure;
use crate::cache::AddIndexersError;
use crate::cache::Answer;
use crate::cache::DeclaredIndex;
use crate::cache::Indexers;
use crate::cache::Outbox;
use crate::cache::PartitionId;
use crate::cache::Popped;
use crate::cache::Query;
use crate::cache::QueryError;
use crate::cache::Snapshot;
use actix::Message;
use informer_hub_types::ClusterLabels;
use informer_hub_types::ClusterName;
use informer_hub_types::InformerHealth;
use informer_hub_types::MemoryStep;
use informer_hub_types::Origin;
use informer_hub_types::ResourceVersion;
use informer_hub_types::SharedStr;
use std::sync::Arc;

/// Opens an informer's partition, or finds it again.
#[derive(Debug, Message)]
#[rtype(result = "OpenedPartition")]
pub struct OpenPartition {
    /// The informer.
    pub origin: Arc<Origin>,
    /// What it shows of itself.
    pub health: Arc<InformerHealth>,
    /// The indices that it declares.
    pub indexes: Vec<DeclaredIndex>,
    /// What tells how it takes objects in from how an earlier one did.
    pub settings: u64,
}

/// Answer to [`OpenPartition`].
#[derive(Debug)]
pub struct OpenedPartition {
    /// The partition.
    pub id: PartitionId,
    /// The right to write to it, until it is opened again.
    pub lease: Lease,
    /// What its last batch did, in case nobody was told.
    pub outbox: Option<Outbox>,
    /// How much of its objects it keeps.
    pub step: MemoryStep,
    /// Where a watch may go on from what was on disk; once, for the first to open it.
    pub resume: Option<ResourceVersion>,
    /// The short way to the store, for small batches.
    pub(in crate::actors) write_half: SharedWriteHalf,
}

/// Forgets a partition and its objects. Without the lease, nothing happens.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct ClosePartition {
    /// The partition.
    pub partition: PartitionId,
    /// The right to close it.
    pub lease: Lease,
}

/// Forgets partitions whose informers died before they could close them, whoever has the lease.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub enum CloseAbandoned {
    /// That of one informer.
    Origin(Arc<Origin>),
    /// All of a cluster.
    Cluster(ClusterName),
}

/// Applies a batch to a partition; `None` when the partition is closed, or the lease was taken over.
#[derive(Debug, Message)]
#[rtype(result = "Option<AppliedBatch>")]
pub struct Apply {
    /// The partition.
    pub partition: PartitionId,
    /// The right to write to it.
    pub lease: Lease,
    /// The batch.
    pub batch: Vec<Popped>,
    /// With it, the partition is complete up to this version, where that is known.
    pub version: Option<ResourceVersion>,
}

/// Answer to [`Apply`].
#[derive(Debug)]
pub struct AppliedBatch {
    /// What it did.
    pub outbox: Outbox,
    /// Objects in the partition now.
    pub objects: u64,
    /// Set when compression lags: wait for it before the next batch.
    pub pressure: Option<Pressure>,
}

/// The store has been written to past its cache: there may be something to compress, or a rest to watch for.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct Attend;

/// A cluster is expected to have the resource though it could not be asked yet (or, with `expected` false, no more).
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Expect {
    /// The cluster.
    pub cluster: ClusterName,
    /// Its labels.
    pub labels: ClusterLabels,
    /// Whether it is.
    pub expected: bool,
}

/// Has a partition keep so much of its objects; answered when what comes is kept so. What is there already follows in
/// slices. Without the lease, nothing happens.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct KeepStep {
    /// The partition.
    pub partition: PartitionId,
    /// The right to write to it.
    pub lease: Lease,
    /// How much.
    pub step: MemoryStep,
}

/// A question; answered from one snapshot.
#[derive(Debug, Message)]
#[rtype(result = "Result<Answer, QueryError>")]
pub struct Ask(pub Query);

/// Asks for a snapshot, to read from without further messages.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "Arc<Snapshot>")]
pub struct TakeSnapshot;

/// Adds computed indices. They are built while the cache goes on being written, one demand at a time; the answer comes
/// when they are complete and published, in one snapshot. Until then whoever asks them is told that there is no such
/// index, and their names are taken.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<(), AddIndexersError>")]
pub struct AddIndexers(pub Indexers);

/// Takes a computed index away, also one that is not complete yet; whether there was one of the name.
#[derive(Clone, Debug, Message)]
#[rtype(result = "bool")]
pub struct RemoveIndexer(pub SharedStr);
