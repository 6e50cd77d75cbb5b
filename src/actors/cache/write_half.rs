//! The write half of a cache: its store, who may write to it, and what lies uncompressed.
//!
//! The cache actor owns it. A processor with a few changes reaches it without a message, so that a lone event does not
//! wait for two threads to wake: it takes the lock if that is free, and sends a message if it is not. So nobody on the
//! way of events waits for the lock, and the cache actor waits for no more than [`DIRECT_BATCH`] changes.
//!
//! A store that somebody panicked over is half-done. It is taken out while it is written to, and put back only after
//! that, so that nobody finds it in such a state: what a panic leaves behind is nothing, which the cache actor replaces
//! by what was published last.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use crate::actors::runtime::capacity::DIRECT_BATCH;
use crate::cache::{Applied, Held, Outbox, PartitionId, Popped, Snapshot, Store, Young};
use informer_hub_types::{MemoryStep, ObjectKey, ResourceVersion};

/// The right to write to a partition. Whoever opens the partition next takes it away, so that a pipeline that is
/// being replaced cannot slip a batch in behind its successor's back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lease(pub(in crate::actors) u64);

/// See the module.
pub(in crate::actors) struct WriteHalf {
    pub(in crate::actors) store: Store,
    pub(in crate::actors) young: Young,
    /// Who may write. Not kept over the cache's death, since its writers have to open their partitions again then.
    pub(in crate::actors) leases: BTreeMap<PartitionId, Lease>,
    /// Whether anything has changed since the resource was last looked at for a rest.
    pub(in crate::actors) changed: bool,
    /// Whether it is being looked at for that.
    pub(in crate::actors) watched: bool,
    /// Whether a compression is under way.
    pub(in crate::actors) packing: bool,
    /// What each partition keeps, where that is not everything.
    steps: BTreeMap<PartitionId, MemoryStep>,
    /// Snapshots that are kept for who goes on with an answer.
    held: Arc<Mutex<Held>>,
    /// Bytes that lie plain, for who looks without the lock.
    measured: Arc<AtomicUsize>,
    young_bytes: usize,
}

/// What a batch did.
pub(in crate::actors) struct Written {
    pub(in crate::actors) outbox: Outbox,
    /// Objects in the partition now.
    pub(in crate::actors) objects: u64,
    /// Whether the cache actor has something to see to: what is young to be compressed, or a rest to be watched for.
    pub(in crate::actors) attend: bool,
}

impl WriteHalf {
    fn new(store: Store, young_bytes: usize, held: Arc<Mutex<Held>>, measured: Arc<AtomicUsize>) -> Self {
        let (leases, steps, young) = (BTreeMap::new(), BTreeMap::new(), Young::new(young_bytes));
        let (changed, watched, packing) = (false, false, false);
        Self { store, young, leases, changed, watched, packing, steps, held, measured, young_bytes }
    }

    /// Has a partition keep so much from now on; whether it may be told so by who holds this lease.
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

    /// A partition is closed.
    pub(in crate::actors) fn forget(&mut self, partition: PartitionId) {
        self.leases.remove(&partition);
        self.steps.remove(&partition);
        self.store.close(partition);
        self.tighten();
    }

    /// Little lies plain, and little is held, while any partition is short of memory.
    fn tighten(&mut self) {
        let tight = !self.steps.is_empty();
        let limit = if tight { self.young_bytes.min(Young::TIGHT_LIMIT) } else { self.young_bytes };
        self.young.set_limit(limit);
        self.held.lock().set_tight(tight);
    }

    /// As [`Store::strip`]; where to go on.
    pub(in crate::actors) fn strip(
        &mut self,
        partition: PartitionId,
        after: Option<&ObjectKey>,
        most: usize,
    ) -> Option<ObjectKey> {
        let (bytes, next) = self.store.strip(partition, after, most);
        let mut held = self.held.lock();
        if !held.is_empty() {
            held.note_replaced(bytes);
        }
        next
    }

    /// Shows how much lies plain.
    pub(in crate::actors) fn measure(&self) {
        self.measured.store(self.young.bytes(), Relaxed);
    }

    /// Notes what held snapshots keep from being freed.
    fn note_replaced(&self, applied: &[Applied]) {
        let mut held = self.held.lock();
        if !held.is_empty() {
            let replaced = applied.iter().filter_map(|applied| match applied {
                Applied::Updated { old, .. } | Applied::Deleted { stored: old, .. } => Some(old.body_size()),
                Applied::Added(_) | Applied::Repeated(_) | Applied::Restored { .. } | Applied::Synced => None,
            });
            held.note_replaced(replaced.sum());
        }
    }

    /// Applies a batch; `None` when the partition is closed, or the lease was taken over.
    pub(in crate::actors) fn apply(
        &mut self,
        partition: PartitionId,
        lease: Lease,
        batch: Vec<Popped>,
        version: Option<ResourceVersion>,
    ) -> Option<Written> {
        if self.leases.get(&partition) != Some(&lease) {
            return None;
        }
        let is_news = !batch.is_empty();
        let (outbox, newcomers) = self.store.apply_batch(partition, batch, version)?;
        self.note_replaced(&outbox.applied);
        for object in newcomers {
            self.young.add(object);
        }
        self.changed |= is_news;
        self.measure();
        let attend = is_news && !self.watched || self.young.is_over() && !self.packing;
        let snapshot = self.store.published().load();
        let objects = snapshot.partition(partition).map_or(0, |partition| partition.len() as u64);
        Some(Written { outbox, objects, attend })
    }
}

/// A write half that processors share with the cache actor. Nothing is in it while somebody writes, once somebody has
/// panicked over it, and once its actor has ended.
#[derive(Clone)]
pub(in crate::actors) struct SharedWriteHalf {
    slot: Arc<Mutex<Option<WriteHalf>>>,
    published: Arc<ArcSwap<Snapshot>>,
    young_bytes: usize,
    held: Arc<Mutex<Held>>,
    young: Arc<AtomicUsize>,
}

/// What came of the short way.
pub(in crate::actors) enum Direct {
    /// It was taken. `None`: as of [`WriteHalf::apply`].
    Applied(Option<Written>),
    /// It is not for this batch, which has to go by message.
    NotNow(Vec<Popped>, Option<ResourceVersion>),
}

impl SharedWriteHalf {
    pub(in crate::actors) fn new(store: Store, young_bytes: usize) -> Self {
        let published = Arc::clone(store.published());
        let held = Arc::<Mutex<Held>>::default();
        let young = Arc::<AtomicUsize>::default();
        let half = WriteHalf::new(store, young_bytes, Arc::clone(&held), Arc::clone(&young));
        Self { slot: Arc::new(Mutex::new(Some(half))), published, young_bytes, held, young }
    }

    /// Snapshots that are kept for who goes on with an answer.
    pub(in crate::actors) fn held(&self) -> &Arc<Mutex<Held>> {
        &self.held
    }

    /// Bytes that lie plain in it.
    pub(in crate::actors) fn young(&self) -> &AtomicUsize {
        &self.young
    }

    /// Where its snapshots appear.
    pub(in crate::actors) fn published(&self) -> &Arc<ArcSwap<Snapshot>> {
        &self.published
    }

    /// For the cache actor, which waits for the lock. Goes on from what was published last, and with no lease, where a
    /// processor has panicked over it.
    pub(in crate::actors) fn write<T>(&self, work: impl FnOnce(&mut WriteHalf) -> T) -> T {
        let mut slot = self.slot.lock();
        let recover = || {
            let store = Store::recover(Arc::clone(&self.published));
            WriteHalf::new(store, self.young_bytes, Arc::clone(&self.held), Arc::clone(&self.young))
        };
        let mut half = slot.take().unwrap_or_else(recover);
        let result = work(&mut half);
        *slot = Some(half);
        result
    }

    /// The short way of a small batch: writes to the store from the caller's thread, unless somebody else does just now
    /// or compression lags.
    pub(in crate::actors) fn apply(
        &self,
        partition: PartitionId,
        lease: Lease,
        batch: Vec<Popped>,
        version: Option<ResourceVersion>,
    ) -> Direct {
        if !is_small(&batch) {
            return Direct::NotNow(batch, version);
        }
        let Some(mut slot) = self.slot.try_lock() else { return Direct::NotNow(batch, version) };
        match slot.take() {
            Some(mut half) if !half.young.is_full() => {
                let written = half.apply(partition, lease, batch, version);
                *slot = Some(half);
                Direct::Applied(written)
            }
            other => {
                *slot = other;
                Direct::NotNow(batch, version)
            }
        }
    }

    /// Nobody writes to it from now on: its actor has ended.
    pub(in crate::actors) fn close(&self) {
        *self.slot.lock() = None;
    }
}

/// Whether a batch is soon applied. The end of a list is not: it walks over the whole partition.
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
        let half = SharedWriteHalf::new(Store::new(pods()), usize::MAX / 2);
        let id = open(&half);
        (half, id)
    }

    fn open(half: &SharedWriteHalf) -> PartitionId {
        half.write(|half| {
            let id = half.store.open(origin("c"), InformerHealth::new(), Vec::new());
            half.leases.insert(id, LEASE);
            id
        })
    }

    fn batch(script: &str) -> Vec<Popped> {
        let mut fifo = DeltaFifo::new(usize::MAX);
        push_all(&mut fifo, script);
        fifo.pop(usize::MAX)
    }

    /// What the short way did, or `not now`.
    fn direct(half: &SharedWriteHalf, id: PartitionId, lease: Lease, script: &str) -> Vec<String> {
        match half.apply(id, lease, batch(script), None) {
            Direct::Applied(Some(written)) => lines(&written.outbox.applied),
            Direct::Applied(None) => vec!["refused".to_owned()],
            Direct::NotNow(..) => vec!["not now".to_owned()],
        }
    }

    fn contents(half: &SharedWriteHalf, id: PartitionId) -> Vec<String> {
        let snapshot = half.published().load_full();
        snapshot.partition(id).unwrap().iter().map(|object| object.key().name().to_owned()).collect()
    }

    #[test]
    fn a_few_changes_are_published_at_once_and_the_cache_has_to_attend_until_it_watches() {
        let (half, id) = opened();
        assert!(matches!(
            half.apply(id, LEASE, batch("+a@1"), None),
            Direct::Applied(Some(Written { attend: true, .. }))
        ));
        half.write(|half| half.watched = true);
        let Direct::Applied(Some(written)) = half.apply(id, LEASE, batch("~a@2 +b@3"), None) else {
            panic!("not taken")
        };
        assert_eq!((lines(&written.outbox.applied), written.objects), (vec!["a@1>2".to_owned(), "+b@3".into()], 2));
        assert!(!written.attend);
        assert_eq!(contents(&half, id), ["a", "b"]);
        half.write(|half| half.young = Young::new(0));
        assert!(matches!(
            half.apply(id, LEASE, batch("~a@4"), None),
            Direct::Applied(Some(Written { attend: true, .. }))
        ));
    }

    #[test]
    fn what_is_large_or_finds_somebody_writing_or_compression_behind_goes_by_message() {
        let (half, id) = opened();
        let many: Vec<_> = (0..=DIRECT_BATCH).map(|i| format!("+a{i}@1")).collect();
        assert_eq!(direct(&half, id, LEASE, &many.join(" ")), ["not now"]);
        let changes: Vec<_> = (0..=DIRECT_BATCH).map(|i| format!("~a@{}", i + 1)).collect();
        assert_eq!(direct(&half, id, LEASE, &changes.join(" ")), ["not now"], "of one object too");
        assert_eq!(direct(&half, id, LEASE, "[ *a@1 ]1"), ["not now"], "the end of a list is long");
        half.write(|_| assert_eq!(direct(&half, id, LEASE, "+b@2"), ["not now"], "and nobody waited"));
        half.write(|half| half.young = Young::new(0));
        assert_eq!(direct(&half, id, LEASE, "+b@2"), ["+b@2"]);
        assert_eq!(direct(&half, id, LEASE, "+c@3"), ["not now"]);
    }

    #[test]
    fn a_lease_that_was_taken_over_is_refused() {
        let (half, id) = opened();
        half.write(|half| half.leases.insert(id, Lease(2)));
        assert_eq!(direct(&half, id, LEASE, "+a@1"), ["refused"]);
        assert_eq!(direct(&half, id, Lease(2), "+a@1"), ["+a@1"]);
    }

    #[test]
    fn nobody_finds_a_store_that_was_panicked_over() {
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
        assert_eq!(half.write(|half| half.leases.len()), 0, "its writers have to open their partitions again");
        assert_eq!(direct(&half, id, LEASE, "+b@2"), ["refused"]);
    }

    #[test]
    fn a_closed_one_is_written_to_by_nobody() {
        let (half, id) = opened();
        half.close();
        assert_eq!(direct(&half, id, LEASE, "+a@1"), ["not now"]);
        assert!(contents(&half, id).is_empty());
    }
}
