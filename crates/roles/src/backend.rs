//! Interface to the backend: the log, buckets and checkpoints that the processes of a fleet share. The implementations
//! use NATS JetStream, or simulate it in memory.

use std::fmt::Debug;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;

use informer_hub_fleet::kept::Retained;
use informer_hub_fleet::{Answer, ClusterDocument, Entry, EntryPage, Ownership, Partition, Request, Sequence};
use informer_hub_lease as lease;
use informer_hub_types::Shard;

pub(crate) use super::answer::{Answered, BackendError};
use super::cluster_buckets::ClusterBuckets;
use super::roster_store::RosterStore;

/// Entries of the log in order, as they are stored. Entries may repeat. If the stream ends or fails, the caller opens a
/// new one.
pub type TailStream = BoxStream<'static, Result<Entry, BackendError>>;

/// Backend of a fleet: the log, the buckets of owners, documents and leases, the roster, and the store of checkpoints.
///
/// # Contract
/// - A request may fail although it was executed.
/// - A change of a bucket entry names the revision that it replaces. So of two concurrent changes, one has no effect.
/// - Every future completes within a deadline that the implementation sets.
pub trait Backend: ClusterBuckets + RosterStore + Debug + Send + Sync + 'static {
    /// Executes a request of a [`Writer`](informer_hub_fleet::Writer) to the log.
    fn execute(&self, request: Request) -> BoxFuture<'static, Answer>;

    /// Returns a page of a partition's entries after a sequence number; `None` if the log retains no entry of the
    /// partition. The page ends as soon as its entries have `page_bytes` in total, or with the partition's last entry.
    /// So it has at least one entry if the partition has any after that number.
    fn entries(&self, partition: &Partition, after: Sequence, page_bytes: usize) -> Answered<Option<EntryPage>>;

    /// Follows the log's entries of all partitions after the sequence `after`; `None` follows only entries that are
    /// stored after the call. Returns the sequence after which the stream begins.
    ///
    /// A tail may stop delivering entries without ending. So the caller compares the entries that it has read with
    /// [`Backend::retained`].
    fn tail(&self, after: Option<Sequence>) -> Answered<(Sequence, TailStream)>;

    /// Returns the range of entries that the log retains, over all partitions, and the limits of its retention.
    fn retained(&self) -> Answered<Retained>;

    /// Returns which collector owns a shard: a cluster, or a part of its resources. `None` if it never had an owner.
    fn owner(&self, shard: &Shard) -> Answered<Option<Ownership>>;

    /// Makes `collector` the owner of a shard, if the shard's entry is still `seen`, the one that the caller has read.
    /// The new epoch (term number) is above `newest` and above the epoch of `seen`. Returns `None` if the entry has
    /// changed.
    fn claim(
        &self,
        shard: &Shard,
        collector: &str,
        seen: Option<&Ownership>,
        newest: u64,
    ) -> Answered<Option<Ownership>>;

    /// Renews an ownership: same epoch (term number), new revision, current weight (cost). Returns `None` if another
    /// process has changed the entry.
    fn renew(&self, own: &Ownership) -> Answered<Option<Ownership>>;

    /// Writes an ownership again after its entry was deleted: same epoch (term number) and weight (cost). Returns
    /// `None` if there is an entry.
    fn restore_owner(&self, own: &Ownership) -> Answered<Option<Ownership>>;

    /// Gives up an ownership. If `own.next` names a collector, other collectors wait for the duration of a lease before
    /// they claim the shard. If it is empty, any collector may claim the shard at once. Returns false, and changes
    /// nothing, if another process has changed the shard's entry.
    fn release(&self, own: &Ownership) -> Answered<bool>;

    /// Returns the document that the owner of a shard wrote about the cluster, with its revision; `None` if there is
    /// none.
    fn document(&self, shard: &Shard) -> Answered<Option<(u64, ClusterDocument)>>;

    /// Stores the document about the cluster of a shard, if the stored one has the revision `seen`. If `seen` is
    /// `None`, there must be no document yet. Returns the new revision; `None` if another process has changed the
    /// document.
    fn save_document(&self, shard: &Shard, document: ClusterDocument, seen: Option<u64>) -> Answered<Option<u64>>;

    /// Returns the newest checkpoint of a partition; if `before` is set, the newest one before that sequence. `None` if
    /// there is none.
    fn checkpoint(&self, partition: &Partition, before: Option<Sequence>) -> Answered<Option<Bytes>>;

    /// Stores a checkpoint that contains all entries up to `sequence`, unless a stored checkpoint is at least as new.
    /// Some older checkpoints are [kept](informer_hub_fleet::kept).
    fn save_checkpoint(
        &self,
        partition: &Partition,
        sequence: Sequence,
        collector: &str,
        checkpoint: Bytes,
    ) -> Answered<()>;

    /// Returns a number that identifies the store of checkpoints, such as its creation time. If an earlier call
    /// returned another number, the store was deleted and its checkpoints are lost.
    fn checkpoints_created(&self) -> Answered<u64>;

    /// Executes a request of an [`Elector`](lease::Elector) for the lease called `name`.
    fn lease(&self, name: &str, request: lease::Request) -> Answered<lease::Answer>;
}
