//! Write half of a cache: the store, its uncompressed objects, and leases (rights to write). Leases admit one informer
//! pipeline per partition.
//!
//! The cache actor owns the write half. A processor (the writer of an informer's changes) applies small batches
//! directly instead of by message, which saves two thread wake-ups per event. If the lock is not free, the processor
//! sends a message instead of waiting. So the data path never waits for the lock, and the actor waits for at most
//! [`DIRECT_BATCH`] changes.
//!
//! A panic while writing would leave a store half-modified. Therefore each write moves the write half out of its slot
//! in [`SharedWriteHalf`] and returns it afterwards. After a panic the slot is empty, and the cache actor recovers from
//! the last published snapshot.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use crate::actors::runtime::capacity::DIRECT_BATCH;
use crate::cache::{Applied, Outbox, PartitionId, PinnedSnapshots, Popped, Snapshot, Store, Uncompressed};
use informer_hub_types::{MemoryStep, ObjectKey, ResourceVersion, clock};

/// Right to write to a partition. Opening the partition again revokes it, so a pipeline that is being replaced cannot
/// write after its successor has started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lease(pub(in crate::actors) u64);

/// Writable part of a cache: its store, the leases (rights to write to a partition), and the uncompressed objects.
pub(in crate::actors) struct WriteHalf {
    pub(in crate::actors) store: Store,
    pub(in crate::actors) uncompressed: Uncompressed,
    /// Current writer of each partition. Not preserved if the cache actor dies: writers then reopen their partitions.
    pub(in crate::actors) leases: BTreeMap<PartitionId, Lease>,
    /// Whether anything has changed since the last idle check.
    pub(in crate::actors) changed: bool,
    pub(in crate::actors) idle_timer_runs: bool,
    /// Whether a compression round or a slice of the sweep (recompression of poorly packed chunks) is running.
    pub(in crate::actors) packing: bool,
    /// Memory step (how much of the objects is kept) of each partition that is not at [`MemoryStep::Full`].
    steps: BTreeMap<PartitionId, MemoryStep>,
    /// Partitions (cached objects of one informer each) whose first list is being read.
    first_lists: BTreeSet<PartitionId>,
    /// Limit on the bytes of uncompressed objects while a first list is being read.
    list_limit: usize,
    /// Snapshots retained for continue tokens.
    pinned: Arc<Mutex<PinnedSnapshots>>,
    /// Bytes of uncompressed objects, readable without the lock.
    uncompressed_bytes: Arc<AtomicUsize>,
    uncompressed_limit: usize,
}

/// Result of writing a batch.
pub(in crate::actors) struct WrittenBatch {
    pub(in crate::actors) outbox: Outbox,
    /// Number of objects in the partition after the batch.
    pub(in crate::actors) objects: u64,
    /// Whether to send [`Maintain`](super::messages::Maintain) to the cache actor, which compresses objects or starts
    /// the idle timer.
    pub(in crate::actors) maintain: bool,
}

impl WriteHalf {
    fn new(
        store: Store,
        uncompressed_limit: usize,
        pinned: Arc<Mutex<PinnedSnapshots>>,
        uncompressed_bytes: Arc<AtomicUsize>,
    ) -> Self {
        let (leases, steps, uncompressed) = (BTreeMap::new(), BTreeMap::new(), Uncompressed::new(uncompressed_limit));
        let (changed, idle_timer_runs, packing) = (false, false, false);
        Self {
            store,
            uncompressed,
            leases,
            changed,
            idle_timer_runs,
            packing,
            steps,
            first_lists: BTreeSet::new(),
            list_limit: Uncompressed::SAMPLES_LIMIT,
            pinned,
            uncompressed_bytes,
            uncompressed_limit,
        }
    }

    /// Sets how much of a partition's objects is kept in memory. If the lease (right to write) is not current, changes
    /// nothing and returns false.
    pub(in crate::actors) fn keep(&mut self, partition: PartitionId, lease: Lease, step: MemoryStep) -> bool {
        if self.leases.get(&partition) != Some(&lease) {
            return false;
        }
        self.store.keep_bodies(partition, step.keeps_bodies());
        if step == MemoryStep::Full {
            self.steps.remove(&partition);
        } else {
            self.steps.insert(partition, step);
        }
        self.tighten();
        true
    }

    /// Closes a partition (cached objects of one informer) and drops its objects.
    pub(in crate::actors) fn forget(&mut self, partition: PartitionId) {
        self.leases.remove(&partition);
        self.steps.remove(&partition);
        self.first_lists.remove(&partition);
        self.store.close(partition);
        self.tighten();
    }

    /// Updates the limits on uncompressed objects, retained snapshots and recorded changes. They are lower while any
    /// partition is short of memory, i.e. its memory step is not [`MemoryStep::Full`].
    fn tighten(&mut self) {
        let tight = !self.steps.is_empty();
        self.limit_uncompressed();
        self.pinned.lock().set_tight(tight);
        self.store.set_history_tight(tight);
    }

    /// Sets the limit on the bytes of uncompressed objects while a first list is being read.
    pub(in crate::actors) fn set_list_limit(&mut self, limit: usize) {
        self.list_limit = limit;
        self.limit_uncompressed();
    }

    fn limit_uncompressed(&mut self) {
        let most = if self.steps.is_empty() { usize::MAX } else { Uncompressed::TIGHT_LIMIT };
        let list_limit = (!self.first_lists.is_empty()).then_some(self.list_limit);
        self.uncompressed.set_limits(self.uncompressed_limit.min(most), list_limit);
    }

    /// Notes whether the first list of a partition is being read.
    fn note_first_list(&mut self, partition: PartitionId, is_read: bool) {
        let changed = if is_read { self.first_lists.insert(partition) } else { self.first_lists.remove(&partition) };
        if changed {
            self.limit_uncompressed();
        }
    }

    /// Returns whether a processor must wait for compression after a batch.
    ///
    /// The limit on uncompressed objects is shared by all clusters of the resource. After a large batch, or a batch of
    /// a first list, the processor waits if the limit is exceeded by half. After other batches, it waits only at three
    /// times the limit.
    pub(in crate::actors) fn lags(&self, partition: PartitionId, is_small: bool) -> bool {
        if is_small && !self.first_lists.contains(&partition) {
            self.uncompressed.is_full()
        } else {
            self.uncompressed.is_pressing()
        }
    }

    /// Drops the bodies (JSON or protobuf) of the next `most` objects after the key `after`, by [`Store::strip`].
    /// Returns the key after which to continue; `None` at the end of the partition.
    pub(in crate::actors) fn strip(
        &mut self,
        partition: PartitionId,
        after: Option<&ObjectKey>,
        most: usize,
    ) -> Option<ObjectKey> {
        let (bytes, next) = self.store.strip(partition, after, most);
        let mut pinned = self.pinned.lock();
        if !pinned.is_empty() {
            pinned.note_replaced(bytes);
        }
        next
    }

    /// Publishes the number of uncompressed bytes, so that it can be read without the lock.
    pub(in crate::actors) fn publish_size(&self) {
        self.uncompressed_bytes.store(self.uncompressed.bytes(), Relaxed);
    }

    /// Sets the time that is recorded with later changes.
    fn set_time(&mut self) {
        if self.store.history().is_some() {
            self.store.set_time(clock::now());
        }
    }

    /// Counts the bytes of replaced objects as memory of the retained snapshots, which still reference these objects.
    fn note_replaced(&self, applied: &[Applied]) {
        let mut pinned = self.pinned.lock();
        if !pinned.is_empty() {
            let replaced = applied.iter().filter_map(|applied| match applied {
                Applied::Updated { old, .. } | Applied::Deleted { stored: old, .. } => Some(old.body_size()),
                Applied::Added(_) | Applied::Repeated(_) | Applied::Restored { .. } | Applied::Synced => None,
            });
            pinned.note_replaced(replaced.sum());
        }
    }

    /// Applies a batch of changes. Returns `None` if the partition is closed or the lease (right to write) is not
    /// current.
    pub(in crate::actors) fn apply(
        &mut self,
        partition: PartitionId,
        lease: Lease,
        batch: Vec<Popped>,
        version: Option<ResourceVersion>,
    ) -> Option<WrittenBatch> {
        if self.leases.get(&partition) != Some(&lease) {
            return None;
        }
        let has_changes = !batch.is_empty();
        self.set_time();
        let (outbox, added) = self.store.apply_batch(partition, batch, version)?;
        self.note_replaced(&outbox.applied);
        for object in added {
            self.uncompressed.add(object);
        }
        self.changed |= has_changes;
        self.publish_size();
        let (objects, has_synced) = {
            let snapshot = self.store.published().load();
            snapshot.partition(partition).map_or((0, true), |written| (written.len() as u64, written.has_synced()))
        };
        self.note_first_list(partition, !has_synced);
        let maintain = has_changes && !self.idle_timer_runs || self.uncompressed.is_over() && !self.packing;
        Some(WrittenBatch { outbox, objects, maintain })
    }
}

/// Shared handle of processors and the cache actor to the write half in `slot`. The slot is empty during a write, after
/// a panic, and after the actor has stopped.
#[derive(Clone)]
pub(in crate::actors) struct SharedWriteHalf {
    slot: Arc<Mutex<Option<WriteHalf>>>,
    published: Arc<ArcSwap<Snapshot>>,
    uncompressed_limit: usize,
    pinned: Arc<Mutex<PinnedSnapshots>>,
    uncompressed_bytes: Arc<AtomicUsize>,
}

/// Outcome of an attempt to write a batch without a message to the actor.
pub(in crate::actors) enum Direct {
    /// The batch was passed to [`WriteHalf::apply`], with this result.
    Applied(Option<WrittenBatch>),
    /// The batch was not applied and must be sent by message.
    Deferred(Vec<Popped>, Option<ResourceVersion>),
}

impl SharedWriteHalf {
    pub(in crate::actors) fn new(store: Store, uncompressed_limit: usize) -> Self {
        let published = Arc::clone(store.published());
        let pinned = Arc::<Mutex<PinnedSnapshots>>::default();
        let uncompressed_bytes = Arc::<AtomicUsize>::default();
        let half = WriteHalf::new(store, uncompressed_limit, Arc::clone(&pinned), Arc::clone(&uncompressed_bytes));
        Self { slot: Arc::new(Mutex::new(Some(half))), published, uncompressed_limit, pinned, uncompressed_bytes }
    }

    /// Returns the snapshots retained for continue tokens.
    pub(in crate::actors) fn pinned(&self) -> &Arc<Mutex<PinnedSnapshots>> {
        &self.pinned
    }

    /// Returns the bytes of uncompressed objects, which can be read without the lock.
    pub(in crate::actors) fn uncompressed_bytes(&self) -> &AtomicUsize {
        &self.uncompressed_bytes
    }

    /// Returns the handle through which snapshots are published.
    pub(in crate::actors) fn published(&self) -> &Arc<ArcSwap<Snapshot>> {
        &self.published
    }

    /// Runs `work` on the write half, waiting for the lock. If the slot is empty because a writer panicked, first
    /// recovers from the last published snapshot, without leases. For the cache actor and the directory of caches;
    /// processors call [`Self::apply`].
    pub(in crate::actors) fn write<T>(&self, work: impl FnOnce(&mut WriteHalf) -> T) -> T {
        let mut slot = self.slot.lock();
        let recover = || {
            let store = Store::recover(Arc::clone(&self.published));
            WriteHalf::new(
                store,
                self.uncompressed_limit,
                Arc::clone(&self.pinned),
                Arc::clone(&self.uncompressed_bytes),
            )
        };
        let mut half = slot.take().unwrap_or_else(recover);
        half.set_time();
        let result = work(&mut half);
        *slot = Some(half);
        result
    }

    /// Applies a small batch on the caller's thread, unless another write is running or compression lags.
    pub(in crate::actors) fn apply(
        &self,
        partition: PartitionId,
        lease: Lease,
        batch: Vec<Popped>,
        version: Option<ResourceVersion>,
    ) -> Direct {
        if !is_small(&batch) {
            return Direct::Deferred(batch, version);
        }
        let Some(mut slot) = self.slot.try_lock() else { return Direct::Deferred(batch, version) };
        match slot.take() {
            Some(mut half) if !half.lags(partition, true) => {
                let written = half.apply(partition, lease, batch, version);
                *slot = Some(half);
                Direct::Applied(written)
            }
            other => {
                *slot = other;
                Direct::Deferred(batch, version)
            }
        }
    }

    /// Empties the slot of the write half, because the actor has stopped. Later calls of [`Self::apply`] write nothing.
    pub(in crate::actors) fn close(&self) {
        *self.slot.lock() = None;
    }
}

/// Returns whether a batch is quick to apply. A batch with the end of a list is not, because the end visits the whole
/// partition.
pub(in crate::actors) fn is_small(batch: &[Popped]) -> bool {
    let changes = |popped: &Popped| match popped {
        Popped::Deltas(_, deltas) => deltas.len(),
        Popped::ReplaceEnd { .. } => DIRECT_BATCH + 1,
    };
    batch.iter().map(changes).sum::<usize>() <= DIRECT_BATCH
}

impl fmt::Debug for SharedWriteHalf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedWriteHalf").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::cache::DeltaFifo;
    use crate::cache::testing::{lines, origin, pods, push_all};
    use informer_hub_types::InformerHealth;

    const LEASE: Lease = Lease(1);

    fn opened() -> (SharedWriteHalf, PartitionId) {
        opened_with(usize::MAX / 2)
    }

    fn opened_with(uncompressed_limit: usize) -> (SharedWriteHalf, PartitionId) {
        let half = SharedWriteHalf::new(Store::new(pods()), uncompressed_limit);
        let id = open(&half, "c");
        (half, id)
    }

    fn open(half: &SharedWriteHalf, cluster: &str) -> PartitionId {
        half.write(|half| {
            let id = half.store.open(origin(cluster), InformerHealth::new(), Vec::new());
            half.leases.insert(id, LEASE);
            id
        })
    }

    fn batch(script: &str) -> Vec<Popped> {
        let mut fifo = DeltaFifo::new(usize::MAX);
        push_all(&mut fifo, script);
        fifo.pop(usize::MAX)
    }

    /// Writes a batch without a message to the actor and returns its changes. Returns `refused` if the lease is not
    /// current, and `not now` if the batch must be sent by message.
    fn direct(half: &SharedWriteHalf, id: PartitionId, lease: Lease, script: &str) -> Vec<String> {
        match half.apply(id, lease, batch(script), None) {
            Direct::Applied(Some(written)) => lines(&written.outbox.applied),
            Direct::Applied(None) => vec!["refused".to_owned()],
            Direct::Deferred(..) => vec!["not now".to_owned()],
        }
    }

    fn contents(half: &SharedWriteHalf, id: PartitionId) -> Vec<String> {
        let snapshot = half.published().load_full();
        snapshot.partition(id).unwrap().iter().map(|object| object.key().name().to_owned()).collect()
    }

    #[test]
    fn direct_write_publishes_and_requests_maintenance_until_the_idle_timer_runs() {
        let (half, id) = opened();
        assert!(matches!(
            half.apply(id, LEASE, batch("+a@1"), None),
            Direct::Applied(Some(WrittenBatch { maintain: true, .. }))
        ));
        half.write(|half| half.idle_timer_runs = true);
        let Direct::Applied(Some(written)) = half.apply(id, LEASE, batch("~a@2 +b@3"), None) else {
            panic!("not taken")
        };
        assert_eq!((lines(&written.outbox.applied), written.objects), (vec!["a@1>2".to_owned(), "+b@3".into()], 2));
        assert!(!written.maintain);
        assert_eq!(contents(&half, id), ["a", "b"]);
        half.write(|half| half.uncompressed = Uncompressed::new(0));
        assert!(matches!(
            half.apply(id, LEASE, batch("~a@4"), None),
            Direct::Applied(Some(WrittenBatch { maintain: true, .. }))
        ));
    }

    #[test]
    fn direct_write_defers_large_batches_concurrent_writes_and_lagging_compression() {
        let (half, id) = opened();
        let many: Vec<_> = (0..=DIRECT_BATCH).map(|i| format!("+a{i}@1")).collect();
        assert_eq!(direct(&half, id, LEASE, &many.join(" ")), ["not now"]);
        let changes: Vec<_> = (0..=DIRECT_BATCH).map(|i| format!("~a@{}", i + 1)).collect();
        assert_eq!(direct(&half, id, LEASE, &changes.join(" ")), ["not now"], "changes of one object count too");
        assert_eq!(direct(&half, id, LEASE, "[ *a@1 ]1"), ["not now"], "the end of a list is never small");
        half.write(|_| {
            assert_eq!(direct(&half, id, LEASE, "+b@2"), ["not now"], "the caller does not wait for the lock");
        });
        let (half, id) = opened_with(0);
        assert_eq!(direct(&half, id, LEASE, "+b@2"), ["+b@2"]);
        assert_eq!(direct(&half, id, LEASE, "+c@3"), ["not now"]);
    }

    #[test]
    fn first_list_lowers_the_limit_for_its_partition_until_it_ends() {
        let (half, listing) = opened();
        let other = open(&half, "d");
        let apply = |half: &mut WriteHalf, id, script| half.apply(id, LEASE, batch(script), None).unwrap();
        half.write(|half| {
            half.set_list_limit(0);
            apply(half, other, "[ ]1");
        });
        assert_eq!(direct(&half, other, LEASE, "+a@2"), ["+a@2"]);
        assert_eq!(direct(&half, listing, LEASE, "+b@2"), ["+b@2"]);
        assert!(half.write(|half| half.uncompressed.is_over()));
        assert_eq!(direct(&half, listing, LEASE, "+c@3"), ["not now"]);
        assert_eq!(direct(&half, other, LEASE, "+d@3"), ["+d@3"], "changes of other clusters do not wait");
        assert!(half.write(|half| half.lags(other, false)), "large batches do");
        half.write(|half| {
            apply(half, listing, "[ *b@2 ]4");
            assert!(!half.uncompressed.is_over() && !half.lags(listing, false));
        });
        assert_eq!(direct(&half, listing, LEASE, "+c@5"), ["+c@5"]);
    }

    #[test]
    fn closed_partition_reads_no_first_list() {
        let (half, id) = opened();
        half.write(|half| half.set_list_limit(0));
        assert_eq!(direct(&half, id, LEASE, "+a@1"), ["+a@1"]);
        assert!(half.write(|half| half.uncompressed.is_over()));
        half.write(|half| half.forget(id));
        assert!(!half.write(|half| half.uncompressed.is_over()));
    }

    #[test]
    fn direct_write_rejects_a_revoked_lease() {
        let (half, id) = opened();
        half.write(|half| half.leases.insert(id, Lease(2)));
        assert_eq!(direct(&half, id, LEASE, "+a@1"), ["refused"]);
        assert_eq!(direct(&half, id, Lease(2), "+a@1"), ["+a@1"]);
    }

    #[test]
    fn write_half_recovers_from_the_published_snapshot_after_a_panic() {
        let (half, id) = opened();
        assert_eq!(direct(&half, id, LEASE, "+a@1"), ["+a@1"]);
        let panics = catch_unwind(AssertUnwindSafe(|| {
            half.write(|half| {
                half.store = Store::new(pods());
                panic!("on purpose");
            });
        }));
        assert!(panics.is_err());
        assert_eq!(direct(&half, id, LEASE, "+b@2"), ["not now"]);
        assert_eq!(half.write(|half| half.leases.len()), 0, "writers must reopen their partitions");
        assert_eq!(direct(&half, id, LEASE, "+b@2"), ["refused"]);
    }

    #[test]
    fn closed_write_half_accepts_no_writes() {
        let (half, id) = opened();
        half.close();
        assert_eq!(direct(&half, id, LEASE, "+a@1"), ["not now"]);
        assert!(contents(&half, id).is_empty());
    }
}
