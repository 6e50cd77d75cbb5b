//! Store of one resource over all clusters, with its indices: applies a batch of changes, then publishes a snapshot
//! that readers see.
//!
//! Invariant: the indices contain exactly the values of the stored objects; the module `indices` has the details.

use std::sync::Arc;

use arc_swap::ArcSwap;
use hashbrown::HashSet;

use super::applied::{Applied, Outbox};
use super::builds::Builds;
use super::delta_fifo::Popped;
use super::history::{Draft, Pending, SavedVersion};
use super::posting::PartitionId;
use super::snapshot::{DeclaredIndex, Partition, Snapshot};
use super::stage::{Batch, Relist};
use super::versions::{Before, SavedClusters};
use informer_hub_types::{
    ApiResource, ClusterLabels, ClusterName, Delta, DeltaKind, Deltas, InformerHealth, ObjectKey, Origin,
    ResourceVersion, StoredObject,
};

/// Write half of a resource's cache: builds the next snapshot and publishes it when a batch is complete.
#[derive(Debug)]
pub struct Store {
    pub(super) next: Snapshot,
    pub(super) published: Arc<ArcSwap<Snapshot>>,
    pub(super) builds: Builds,
    pub(super) pending: Pending,
    /// If the state was restored from disk and did not change since: the fleet version (version over all clusters) and
    /// the cluster versions that were saved with it.
    pub(super) saved_version: Option<(SavedVersion, SavedClusters)>,
}

impl Store {
    /// Creates an empty store of `resource`.
    #[must_use]
    pub fn new(resource: ApiResource) -> Self {
        Self::recover(Arc::new(ArcSwap::from_pointee(Snapshot::new(resource))))
    }

    /// Creates a store that continues the last published snapshot, for example after the actor that owned the store
    /// failed. A snapshot never contains part of a batch.
    #[must_use]
    pub fn recover(published: Arc<ArcSwap<Snapshot>>) -> Self {
        let next = Snapshot::clone(&published.load());
        if let Some(history) = next.history() {
            history.recover(next.version(), next.floors());
        }
        Self { next, published, builds: Builds::default(), pending: Pending::default(), saved_version: None }
    }

    /// Returns the published snapshot. Loading it takes about 10 ns and blocks no other thread.
    #[must_use]
    pub fn published(&self) -> &Arc<ArcSwap<Snapshot>> {
        &self.published
    }

    /// Opens the partition of an informer, and returns its ID. If the informer already has a partition, as after a
    /// restart, returns the ID of this partition.
    pub fn open(
        &mut self,
        origin: Arc<Origin>,
        health: Arc<InformerHealth>,
        indexes: impl Into<Arc<[DeclaredIndex]>>,
    ) -> PartitionId {
        let id = self.find(&origin).unwrap_or_else(|| self.next.fresh_id());
        let before = self.partition(id).map(|partition| Arc::clone(partition.origin()));
        self.next.open(id, origin, health, indexes.into());
        if let Some(before) = before {
            self.record_relabel(id, before);
        }
        self.publish();
        id
    }

    /// Returns the partition of an informer, found by its cluster and scope.
    pub(super) fn find(&self, origin: &Origin) -> Option<PartitionId> {
        let is_it = |known: &Origin| known.cluster == origin.cluster && known.scope == origin.scope;
        self.next.partitions().find(|(_, partition)| is_it(partition.origin())).map(|(id, _)| id)
    }

    /// Copies a partition with objects, versions and readers into this store, for the informer with this `origin`. If
    /// the partition is already in this store, only its origin changes. The copy costs as much as indexing its objects.
    pub fn adopt(&mut self, partition: &Partition, origin: Arc<Origin>) -> PartitionId {
        let known = self.find(partition.origin()).filter(|_| partition.origin().resource.gvr == origin.resource.gvr);
        let id = if let Some(id) = known {
            let before = self.partition(id).map(|partition| Arc::clone(partition.origin()));
            self.next.relabel(id, origin);
            if let Some(before) = before {
                self.record_relabel(id, before);
            }
            id
        } else {
            let id = self.next.fresh_id();
            partition.iter().for_each(|object| self.index(id, object));
            self.next.adopt(id, partition.clone(), origin);
            self.record_adoption(id);
            id
        };
        self.publish();
        id
    }

    pub(super) fn partition(&self, id: PartitionId) -> Option<&Partition> {
        self.next.partition(id)
    }

    /// Adds an object of a partition to the indices.
    pub(super) fn index(&mut self, id: PartitionId, object: &StoredObject) {
        self.next.indices.insert(id, object);
        self.builds.put(id, object);
    }

    /// Removes a partition with its objects.
    pub fn close(&mut self, id: PartitionId) {
        if self.builds.is_under_way()
            && let Some(partition) = self.next.partition(id)
        {
            partition.iter().for_each(|object| self.builds.discard(id, object.key()));
        }
        self.record_leave(id);
        self.next.close(id);
        self.publish();
    }

    /// Sets whether a partition stores the JSON of its objects (bodies) or only their metadata. [`Self::strip`] drops
    /// the bodies that are already stored.
    pub fn keep_bodies(&mut self, id: PartitionId, keep: bool) {
        if self.next.partition(id).is_some_and(|partition| partition.bare == keep) {
            self.write(id, |_, partition| partition.bare = !keep);
        }
    }

    /// Drops the bodies (JSON) of the next `most` objects after the key `after`, if the partition is set to keep none.
    /// Existing handles to these objects keep their bodies. Returns the dropped bytes, and the key to continue after if
    /// there are more objects.
    pub fn strip(&mut self, id: PartitionId, after: Option<&ObjectKey>, most: usize) -> (usize, Option<ObjectKey>) {
        let Some(partition) = self.next.partition(id).filter(|partition| partition.bare) else { return (0, None) };
        let slice: Vec<_> = partition.iter_after(after).take(most).cloned().collect();
        let next = slice.last().filter(|_| slice.len() == most).map(|object| object.key().clone());
        let whole: Vec<_> = slice.into_iter().filter(|object| object.is_kept()).collect();
        if !whole.is_empty() {
            self.write(id, |_, partition| whole.iter().for_each(|object| partition.put(object)));
        }
        (whole.iter().map(|object| object.body_size()).sum(), next)
    }

    /// Records a cluster that should have the resource but has not answered yet; without `labels`, removes it.
    pub fn expect(&mut self, cluster: ClusterName, labels: Option<ClusterLabels>) {
        self.next.expect(cluster, labels);
        self.publish();
    }

    /// Returns the effects of a partition's last batch, from which notifications are made. They are kept until the next
    /// batch, so that a restarted processor can notify listeners of them.
    #[must_use]
    pub fn outbox(&self, id: PartitionId) -> Option<Outbox> {
        self.next.partition(id).and_then(|partition| partition.outbox.clone())
    }

    /// Applies a batch of changes and publishes one snapshot, without a version up to which the changes are complete.
    /// Returns the effects, from which notifications are made; `None` if the partition is closed. Details:
    /// [`Self::apply_batch`].
    pub fn apply(&mut self, id: PartitionId, batch: Vec<Popped>) -> Option<Outbox> {
        self.apply_up_to(id, batch, None)
    }

    /// Applies a batch of changes to a partition and publishes one snapshot. `version` is the resource version up to
    /// which the changes are complete, if known. Returns the effects, from which notifications are made; `None` if the
    /// partition is closed. Details: [`Self::apply_batch`].
    pub fn apply_up_to(
        &mut self,
        id: PartitionId,
        batch: Vec<Popped>,
        version: Option<ResourceVersion>,
    ) -> Option<Outbox> {
        self.apply_batch(id, batch, version).map(|(outbox, _)| outbox)
    }

    /// Applies a batch of changes to a partition and publishes the result as one snapshot. `version` is the resource
    /// version up to which the changes are complete, if known. Changes of a list after the first one are staged (see
    /// the module `stage`).
    ///
    /// An empty batch with a version only moves the partition's version forward. It gets no number, and drops the kept
    /// effects of the previous batch.
    ///
    /// Returns the visible effects in order, with the batch's number within the partition, and the objects that were
    /// added to memory. `None` if the partition is closed.
    pub fn apply_batch(
        &mut self,
        id: PartitionId,
        popped: Vec<Popped>,
        version: Option<ResourceVersion>,
    ) -> Option<(Outbox, Vec<Arc<StoredObject>>)> {
        let mut partition = self.next.take(id)?;
        let (has_deltas, is_news) = (!popped.is_empty(), !popped.is_empty() || version.is_none());
        let (health, complete) = (Arc::clone(partition.health()), version.clone());
        let (before, mut list) = (Before::of(&partition), None);
        let mut batch = Batch::new(self.records() && partition.synced);
        for popped in popped {
            match popped {
                Popped::Deltas(key, deltas) => self.apply_deltas(id, &mut partition, &key, deltas, &mut batch),
                Popped::ReplaceEnd { keep, version, rewound } => {
                    self.publish_stage(id, &mut partition, &mut batch);
                    partition.relist = Relist::None;
                    self.sweep(id, &mut partition, &keep, &mut batch);
                    list = Some(version.clone());
                    if !partition.synced {
                        partition.synced = true;
                        batch.applied.push(Applied::Synced);
                    }
                    partition.finish_list();
                    partition.note_rewind(&version, rewound);
                    partition.version = Some(version);
                }
            }
        }
        self.check_stage(id, &mut partition, &mut batch);
        // Without a version, the partition may be incomplete. A watch from an earlier version would bring back objects
        // that an interrupted list has deleted. Staged changes are not visible: if the batch changed nothing visible,
        // the partition keeps its version.
        if partition.is_staging() {
            partition.resume = partition.resume.filter(|_| !batch.visible_change);
        } else if version.is_some() || has_deltas || batch.visible_change {
            partition.complete_up_to(version);
        }
        let is_staging = partition.is_staging();
        self.record_batch(id, &mut partition, batch.drafts.take().unwrap_or_default(), list.as_ref(), before);
        let number = partition.number() + u64::from(is_news);
        let outbox = Outbox { number, applied: batch.applied.into() };
        if is_news || partition.outbox.is_some() {
            partition.outbox = Some(outbox.clone());
        }
        self.next.put(id, partition);
        self.publish();
        // During a list the previous version stays: the partition is still complete up to it.
        if complete.is_some() && !is_staging {
            health.set_stored(complete);
        }
        Some((outbox, batch.newcomers))
    }

    /// Stores an object without comparing versions or UIDs. For a store that a program writes itself; watch events go
    /// through [`Self::apply`].
    pub(super) fn put(&mut self, id: PartitionId, object: &Arc<StoredObject>) {
        self.write(id, |store, partition| {
            note_version(partition, object);
            store.set(id, partition, object);
        });
    }

    /// Removes the stored object with the key of `object`. The partition gets the resource version of `object`.
    pub(super) fn discard(&mut self, id: PartitionId, object: &StoredObject) {
        self.write(id, |store, partition| {
            note_version(partition, object);
            if let Some(stored) = partition.get(object.key()).cloned() {
                store.remove(id, partition, &stored);
            }
        });
    }

    /// Replaces the contents of a partition. Of objects with the same key, the last one is stored.
    pub(super) fn replace(&mut self, id: PartitionId, objects: Vec<Arc<StoredObject>>, version: ResourceVersion) {
        let keep: HashSet<_> = objects.iter().map(|object| object.key().clone()).collect();
        self.write(id, |store, partition| {
            store.sweep(id, partition, &keep, &mut Batch::default());
            for object in objects {
                store.set(id, partition, &object);
            }
            partition.version = Some(version);
        });
    }

    /// Calls `write` to change one partition, then publishes one snapshot.
    pub(super) fn write(&mut self, id: PartitionId, write: impl FnOnce(&mut Self, &mut Partition)) {
        let Some(mut partition) = self.next.take(id) else { return };
        write(self, &mut partition);
        self.next.put(id, partition);
        self.publish();
    }

    pub(super) fn set(&mut self, id: PartitionId, partition: &mut Partition, object: &Arc<StoredObject>) {
        match partition.get(object.key()).cloned() {
            Some(stored) => self.exchange(id, partition, &stored, object, false),
            None => self.insert(id, partition, object),
        }
    }

    fn apply_deltas(
        &mut self,
        id: PartitionId,
        partition: &mut Partition,
        key: &ObjectKey,
        deltas: Deltas,
        batch: &mut Batch,
    ) {
        for Delta { kind, object } in deltas {
            match kind {
                DeltaKind::Sync => {
                    // Without its body the object cannot be repeated.
                    let stored = partition.get(key).filter(|stored| stored.is_kept());
                    batch.applied.extend(stored.cloned().map(Applied::Repeated));
                    continue;
                }
                DeltaKind::Replaced => partition.begin_relist(),
                DeltaKind::Added | DeltaKind::Updated | DeltaKind::Deleted => {}
            }
            batch.visible_change |= !partition.is_staging();
            match (kind, partition.newest(key).cloned()) {
                (DeltaKind::Deleted, Some(stored)) => self.delete(id, partition, stored, object, batch),
                (DeltaKind::Deleted, None) => {}
                (_, None) => {
                    self.insert(id, partition, &object);
                    partition.note(batch, Applied::Added(object), false);
                }
                (_, Some(stored)) => self.update(id, partition, kind, stored, object, batch),
            }
        }
    }

    /// Applies an added, changed or listed object whose key is in the store.
    fn update(
        &mut self,
        id: PartitionId,
        partition: &mut Partition,
        kind: DeltaKind,
        stored: Arc<StoredObject>,
        mut object: Arc<StoredObject>,
        batch: &mut Batch,
    ) {
        // This is the only reference yet. Sharing the stored key saves a second copy of its text.
        if let Some(object) = Arc::get_mut(&mut object) {
            object.share_key(stored.key());
        }
        // A list is authoritative even if versions went back (an etcd restore rewinds them). A watch only advances.
        let is_rewound = partition.rewound.remove(stored.key()).is_some();
        let only_advances = kind != DeltaKind::Replaced && !is_rewound;
        if only_advances && stored.resource_version().newer_than(object.resource_version()) {
            return;
        }
        if stored.uid() != object.uid() {
            self.remove(id, partition, &stored);
            self.insert(id, partition, &object);
            partition.note(batch, Applied::Deleted { last: Arc::clone(&stored), stored, tombstone: true }, false);
            partition.note(batch, Applied::Added(object), false);
        } else if stored.resource_version() != object.resource_version() || object.resource_version().is_empty() {
            self.exchange(id, partition, &stored, &object, false);
            partition.note(batch, Applied::Updated { old: stored, new: object }, false);
        } else if !stored.is_kept() && !partition.bare {
            self.exchange(id, partition, &stored, &object, true);
            partition.note(batch, Applied::Restored { bare: stored, whole: object }, true);
        } else if partition.converting.is_some() && has_different_text(&stored, &object) {
            self.exchange(id, partition, &stored, &object, false);
            partition.note(batch, Applied::Updated { old: stored, new: object }, false);
        } else if partition.outdated.is_some() || stored.index_values() != object.index_values() {
            // The same state, decoded by an informer that declares other indices or keeps other fields. Its body is plain
            // until it is packed.
            batch.newcomers.push(Arc::clone(&object));
            self.exchange(id, partition, &stored, &object, true);
        }
    }

    /// Applies a DELETED event of an object whose key is in the store.
    fn delete(
        &mut self,
        id: PartitionId,
        partition: &mut Partition,
        stored: Arc<StoredObject>,
        last: Arc<StoredObject>,
        batch: &mut Batch,
    ) {
        let same = stored.uid() == last.uid() && !last.is_head_only();
        let event = last.resource_version().clone();
        let is_rewound = partition.rewound.remove(stored.key()).is_some();
        if !is_rewound && stored.resource_version().newer_than(last.resource_version()) {
            return;
        }
        self.remove(id, partition, &stored);
        partition.note_deletion(&event);
        // If the UID differs, the deletion of the stored object was not observed, and the other object was never
        // stored. If the event has only a head, the last state is unknown.
        let last = if same { last } else { Arc::clone(&stored) };
        partition.note_event(batch, Applied::Deleted { stored, last, tombstone: !same }, false, Some(&event));
    }

    /// Removes the objects that a complete list does not contain.
    fn sweep(&mut self, id: PartitionId, partition: &mut Partition, keep: &HashSet<ObjectKey>, batch: &mut Batch) {
        let gone: Vec<_> = partition.iter().filter(|object| !keep.contains(object.key())).map(Arc::clone).collect();
        for stored in gone {
            self.remove(id, partition, &stored);
            if let Some(drafts) = &mut batch.drafts {
                drafts.push(Draft::deleted(&stored, &stored, None));
            }
            batch.applied.push(Applied::Deleted { last: Arc::clone(&stored), stored, tombstone: true });
        }
    }

    /// Returns the resource version of a partition's last complete list. If a program writes the partition, not an
    /// informer, returns the version of the last write.
    #[must_use]
    pub fn version(&self, id: PartitionId) -> Option<ResourceVersion> {
        self.next.partition(id).and_then(|partition| partition.version.clone())
    }
}

impl Partition {
    /// Records the resource version at which an object was deleted.
    fn note_deletion(&mut self, version: &ResourceVersion) {
        if self.deleted.as_ref().is_none_or(|newest| version.newer_than(newest)) {
            self.deleted = Some(version.clone());
        }
    }

    /// Sets the resource version up to which the visible state is complete, and from which a watch may resume. Sets
    /// `None` instead if an object was deleted at a newer version: a watch from the older version would repeat the
    /// object's earlier events, and so add the deleted object again for a while.
    fn complete_up_to(&mut self, version: Option<ResourceVersion>) {
        if let Some(complete) = &version {
            self.deleted.take_if(|deleted| !deleted.newer_than(complete));
        }
        self.resume = version.filter(|_| self.deleted.is_none());
    }
}

/// For a partition that a program writes: sets the partition's resource version to that of `object`. An object without
/// a version changes nothing.
fn note_version(partition: &mut Partition, object: &StoredObject) {
    if !object.resource_version().is_empty() {
        partition.version = Some(object.resource_version().clone());
    }
}

/// Returns whether two decoded forms of the same object state differ in their JSON. False if one of them has no JSON.
fn has_different_text(one: &StoredObject, other: &StoredObject) -> bool {
    one.is_kept() && other.is_kept() && one.json_text().ok() != other.json_text().ok()
}
