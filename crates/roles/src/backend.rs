//! Port to the services that the processes of a fleet share.

use std::fmt::Debug;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;

use informer_hub_fleet::kept::Retained;
use informer_hub_fleet::{Answer, ClusterDocument, Entry, Ownership, Partition, Request, Sequence};
use informer_hub_lease as lease;
use informer_hub_types::Shard;

pub(crate) use super::answer::{Answered, BackendError};
use super::cluster_buckets::ClusterBuckets;
use super::roster_store::RosterStore;

/// Entries of the log as they are stored, in order. Entries may repeat. Ends, or fails, if a new tail has to be opened.
pub type TailStream = BoxStream<'static, Result<Entry, BackendError>>;

/// The log, the buckets of owners, documents and leases, the roster, and the store of checkpoints.
///
/// # Contract
/// - A request may fail although it was executed.
/// - Changes of the buckets compare the revision, so of two concurrent ones, one has no effect.
/// - Every future ends within a deadline of the adapter.
pub trait Backend: ClusterBuckets + RosterStore + Debug + Send + Sync + 'static {
    /// Executes a request of a [`Writer`](informer_hub_fleet::Writer).
    fn execute(&self, request: Request) -> BoxFuture<'static, Answer>;

    /// Returns the retained entries of a partition after a sequence, up to the last one. `None` if none of the partition is
    /// retained.
    fn entries(&self, partition: &Partition, after: Sequence) -> Answered<Option<Vec<Entry>>>;

    /// Follows the entries of all partitions after a sequence; without a sequence, those that are stored after the
    /// call. Returns the sequence after which the stream begins.
    ///
    /// A tail may become silent without an end. So the caller compares the entries that it has read with
    /// [`Backend::retained`].
    fn tail(&self, after: Option<Sequence>) -> Answered<(Sequence, TailStream)>;

    /// Returns what the log retains of all partitions.
    fn retained(&self) -> Answered<Retained>;

    /// Returns the ownership of a shard.
    fn owner(&self, shard: &Shard) -> Answered<Option<Ownership>>;

    /// Makes `collector` the owner of a shard, under an epoch above `newest` and that of `seen`. Returns `None` if the
    /// ownership is no longer `seen`.
    fn claim(
        &self,
        shard: &Shard,
        collector: &str,
        seen: Option<&Ownership>,
        newest: u64,
    ) -> Answered<Option<Ownership>>;

    /// Renews an ownership: same epoch, new revision, and its weight. Returns `None` if it has changed.
    fn renew(&self, own: &Ownership) -> Answered<Option<Ownership>>;

    /// Writes an ownership again whose entry was deleted: same epoch and weight. Returns `None` if there is an entry.
    fn restore_owner(&self, own: &Ownership) -> Answered<Option<Ownership>>;

    /// Gives an ownership up, for its `next` or for any collector. Returns whether it was still held.
    fn release(&self, own: &Ownership) -> Answered<bool>;

    /// Returns the document about the cluster of a shard, by its collector, and its revision.
    fn document(&self, shard: &Shard) -> Answered<Option<(u64, ClusterDocument)>>;

    /// Stores the document about the cluster of a shard, by its collector, after the revision that the caller has seen.
    /// Returns the new revision, or `None` if the document has changed.
    fn save_document(&self, shard: &Shard, document: ClusterDocument, seen: Option<u64>) -> Answered<Option<u64>>;

    /// Returns the newest checkpoint of a partition, or the newest one before a sequence.
    fn checkpoint(&self, partition: &Partition, before: Option<Sequence>) -> Answered<Option<Bytes>>;

    /// Stores a checkpoint up to a sequence, unless there is one that is as new. Some older ones are
    /// [kept](informer_hub_fleet::kept).
    fn save_checkpoint(
        &self,
        partition: &Partition,
        sequence: Sequence,
        collector: &str,
        checkpoint: Bytes,
    ) -> Answered<()>;

    /// Returns when the store of checkpoints was created. Another value than before means that checkpoints are lost.
    fn checkpoints_created(&self) -> Answered<u64>;

    /// Executes a request of an [`Elector`](lease::Elector) for the lease with a name.
    fn lease(&self, name: &str, request: lease::Request) -> Answered<lease::Answer>;
}
