//! Messages of the cache actor.

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

/// Opens an informer's partition (its objects in the cache), or finds the existing one.
#[derive(Debug, Message)]
#[rtype(result = "OpenedPartition")]
pub struct OpenPartition {
    /// Identity of the informer.
    pub origin: Arc<Origin>,
    /// Health of the informer.
    pub health: Arc<InformerHealth>,
    /// Indices that the informer declares.
    pub indexes: Arc<[DeclaredIndex]>,
    /// Fingerprint of the options that decide how objects are decoded. Restored objects are reused only if they were
    /// decoded under the same fingerprint.
    pub settings: u64,
    /// `metadata.generation` of a CRD change that altered objects without watch events, e.g. by a new default. The next
    /// list must then be compared with the stored objects. `None` without such a change.
    pub converted_by: Option<u64>,
}

/// Answer to [`OpenPartition`].
#[derive(Debug)]
pub struct OpenedPartition {
    /// ID of the informer's partition of the cache.
    pub id: PartitionId,
    /// Right to write to the partition, valid until it is opened again.
    pub lease: Lease,
    /// Changes of the last applied batch. The listeners may not have been notified of them yet.
    pub outbox: Option<Outbox>,
    /// Memory step of the partition: how much of the objects is kept.
    pub step: MemoryStep,
    /// resourceVersion from which a watch may resume after a restart. Only the first informer that opens the partition
    /// receives it.
    pub resume: Option<ResourceVersion>,
    /// Direct access to the store for small batches.
    pub(in crate::actors) write_half: SharedWriteHalf,
}

/// Closes a partition and drops its objects. Does nothing if the lease (the caller's right to write) is not current, or
/// while a hub with a state directory stops.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct ClosePartition {
    /// ID of the informer's partition of the cache.
    pub partition: PartitionId,
    /// Right of the caller to write to the partition.
    pub lease: Lease,
}

/// Closes partitions whose informers died before they could close them, whether or not the caller holds their leases
/// (rights to write).
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub enum CloseAbandoned {
    /// The partition of one informer.
    Origin(Arc<Origin>),
    /// All partitions of a cluster.
    Cluster(ClusterName),
}

/// Applies a batch to a partition. The answer is `None` if the partition is closed or the lease (the caller's right to
/// write) is not current.
#[derive(Debug, Message)]
#[rtype(result = "Option<AppliedBatch>")]
pub struct Apply {
    /// ID of the informer's partition of the cache.
    pub partition: PartitionId,
    /// Right of the caller to write to the partition.
    pub lease: Lease,
    /// Changes to apply.
    pub batch: Vec<Popped>,
    /// resourceVersion up to which the partition is complete once the batch is applied; `None` if unknown.
    pub version: Option<ResourceVersion>,
}

/// Answer to [`Apply`].
#[derive(Debug)]
pub struct AppliedBatch {
    /// Changes to deliver to listeners.
    pub outbox: Outbox,
    /// Number of objects in the partition after the batch.
    pub objects: u64,
    /// Set if compression lags: the writer must wait with this handle before it sends the next batch.
    pub pressure: Option<Pressure>,
}

/// Asks the actor to check for compression work after a write that bypassed it.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct Maintain;

/// Marks a cluster as expected to have the cache's resource, although the cluster could not be queried yet. Answers
/// then report the cluster as missing. Also removes the mark.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Expect {
    /// Name of the cluster.
    pub cluster: ClusterName,
    /// Labels of the cluster.
    pub labels: ClusterLabels,
    /// Whether to mark the cluster as expected (`true`) or to remove the mark (`false`).
    pub expected: bool,
}

/// Sets the memory step (how much of the objects is kept) of a partition. Answered once new objects are stored
/// accordingly; existing objects follow in slices. Does nothing if the lease (the caller's right to write) is not
/// current.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct SetMemoryStep {
    /// ID of the informer's partition of the cache.
    pub partition: PartitionId,
    /// Right of the caller to write to the partition.
    pub lease: Lease,
    /// New memory step: how much of the objects is kept.
    pub step: MemoryStep,
}

/// Runs a query on one snapshot.
#[derive(Debug, Message)]
#[rtype(result = "Result<Answer, QueryError>")]
pub struct Ask(pub Query);

/// Returns the current snapshot, from which the caller reads without further messages.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "Arc<Snapshot>")]
pub struct TakeSnapshot;

/// Adds computed indices while the cache accepts writes. Requests are executed one after the other.
///
/// Answered when all indices of the request are built and published in one snapshot. Until then their names are
/// reserved, and queries that use them fail with [`QueryError::UnknownIndex`].
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<(), AddIndexersError>")]
pub struct AddIndexers(pub Indexers);

/// Removes a computed index, even if it is still being built. Returns whether the index existed.
#[derive(Clone, Debug, Message)]
#[rtype(result = "bool")]
pub struct RemoveIndexer(pub SharedStr);
