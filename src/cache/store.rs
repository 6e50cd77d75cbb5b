//! The store: one per resource, over all clusters, with its indices. Written by one actor, read from snapshots.
//!
//! Invariant: the indices are those of the objects; `indices` says what that means.

use std::sync::Arc;

use arc_swap::ArcSwap;
use hashbrown::HashSet;

use super::builds::{BuildId, BuildStep, Builds, IndexBuild, Next};
use super::delta_fifo::Popped;
use super::indexers::{AddIndexersError, IndexerConflict, Indexers};
use super::posting::PartitionId;
use super::snapshot::{DeclaredIndex, Outbox, Partition, Snapshot};
use super::stage::{Batch, Relist};
use informer_hub_types::{
    ApiResource, ClusterLabels, ClusterName, Delta, DeltaKind, Deltas, InformerHealth, ObjectKey, Origin,
    ResourceVersion, StoredObject,
};

/// What a change did to the store: the raw material of notifications.
#[derive(Clone, Debug)]
pub enum Applied {
    /// The key was free.
    Added(Arc<StoredObject>),
    /// The same object, changed.
    Updated {
        /// What the store had.
        old: Arc<StoredObject>,
        /// What it has now.
        new: Arc<StoredObject>,
    },
    /// The key is free now.
    Deleted {
        /// What the store had.
        stored: Arc<StoredObject>,
        /// The last state known: the DELETED event's object, or `stored` where the deletion was not seen.
        last: Arc<StoredObject>,
        /// Whether the deletion was not seen.
        tombstone: bool,
    },
    /// Nothing changed; a resync repeats it.
    Repeated(Arc<StoredObject>),
    /// Nothing changed, but the store has the body again, which there had been no room for.
    Restored {
        /// What the store had.
        bare: Arc<StoredObject>,
        /// What it has now.
        whole: Arc<StoredObject>,
    },
    /// The informer's first list is complete.
    Synced,
}

/// The write half: the next snapshot in the making, published when a batch is complete.
#[derive(Debug)]
pub struct Store {
    pub(super) next: Snapshot,
    published: Arc<ArcSwap<Snapshot>>,
    pub(super) builds: Builds,
}

impl Store {
    /// An empty store of `resource`.
    #[must_use]
    pub fn new(resource: ApiResource) -> Self {
        Self::recover(Arc::new(ArcSwap::from_pointee(Snapshot::new(resource))))
    }

    /// A store that goes on from what was last published: after its actor died, nothing half-done is left.
    #[must_use]
    pub fn recover(published: Arc<ArcSwap<Snapshot>>) -> Self {
        let next = Snapshot::clone(&published.load());
        Self { next, published, builds: Builds::default() }
    }

    /// Where snapshots appear. Loading one costs about 10 ns and blocks nobody.
    #[must_use]
    pub fn published(&self) -> &Arc<ArcSwap<Snapshot>> {
        &self.published
    }

    /// Opens the partition of one informer, or finds it again after the informer's restart.
    pub fn open(
        &mut self,
        origin: Arc<Origin>,
        health: Arc<InformerHealth>,
        indexes: Vec<DeclaredIndex>,
    ) -> PartitionId {
        let id = self.find(&origin).unwrap_or_else(|| self.next.fresh_id());
        self.next.open(id, origin, health, indexes);
        self.publish();
        id
    }

    /// The partition of an informer.
    pub(super) fn find(&self, origin: &Origin) -> Option<PartitionId> {
        let is_it = |known: &Origin| known.cluster == origin.cluster && known.scope == origin.scope;
        self.next.partitions().find(|(_, partition)| is_it(partition.origin())).map(|(id, _)| id)
    }

    /// Takes over a partition of another store, whose informer goes on as that of `origin`: what it has, how far it is, and
    /// what its readers know of it. Where it is one of this store, it stays in its place. Costs what indexing its objects
    /// does.
    pub fn adopt(&mut self, partition: &Partition, origin: Arc<Origin>) -> PartitionId {
        let known = self.find(partition.origin()).filter(|_| partition.origin().resource.gvr == origin.resource.gvr);
        let id = if let Some(id) = known {
            self.next.relabel(id, origin);
            id
        } else {
            let id = self.next.fresh_id();
            partition.iter().for_each(|object| self.index(id, object));
            self.next.adopt(id, partition.clone(), origin);
            id
        };
        self.publish();
        id
    }

    pub(super) fn partition(&self, id: PartitionId) -> Option<&Partition> {
        self.next.partition(id)
    }

    /// Takes an object that is in a partition into the indices.
    pub(super) fn index(&mut self, id: PartitionId, object: &StoredObject) {
        self.next.indices.insert(id, object);
        self.builds.put(id, object);
    }

    /// Forgets a partition and all that is in it.
    pub fn close(&mut self, id: PartitionId) {
        if self.builds.is_under_way()
            && let Some(partition) = self.next.partition(id)
        {
            partition.iter().for_each(|object| self.builds.discard(id, object.key()));
        }
        self.next.close(id);
        self.publish();
    }

    /// Whether a partition keeps bodies. Where it ceases to, those that it has go by [`Self::strip`].
    pub fn keep_bodies(&mut self, id: PartitionId, keep: bool) {
        if self.next.partition(id).is_some_and(|partition| partition.bare == keep) {
            self.write(id, |_, partition| partition.bare = !keep);
        }
    }

    /// Drops the bodies of the next `most` objects of a partition that keeps none, after a key; whoever holds an object
    /// from before keeps its body. How many bytes of bodies went, and where to go on, if there is more.
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

    /// Notes a cluster that should have the resource and could not be asked yet; `None` to take it back.
    pub fn expect(&mut self, cluster: ClusterName, labels: Option<ClusterLabels>) {
        self.next.expect(cluster, labels);
        self.publish();
    }

    /// Adds computed indices, over the objects that there are and those to come, in one snapshot. Calls each function
    /// once for each object, on this thread; [`Self::plan_indexers`] has others do that.
    ///
    /// # Errors
    /// [`IndexerConflict`] when there is or is to be an index of such a name, declared or computed; then nothing is
    /// added.
    pub fn add_indexers(&mut self, indexers: Indexers) -> Result<(), IndexerConflict> {
        self.check_names(&indexers)?;
        // On their own, not in line: nothing is written before they are complete.
        let made = Builds::at_once(indexers, Arc::new(self.next.clone()));
        self.next.indices.append(made);
        self.publish();
        Ok(())
    }

    /// Puts computed indices in line, to be built while the store goes on being written. Until they are complete there
    /// are none of these names for those who read; the names are taken all the same.
    ///
    /// One demand of a store is worked on at a time: see [`Self::begin_build`]. While it is, whoever writes calls its
    /// functions as those of complete indices. Dropping the store ends it.
    ///
    /// # Errors
    /// As [`Self::add_indexers`].
    pub fn plan_indexers(&mut self, indexers: Indexers) -> Result<BuildId, IndexerConflict> {
        self.check_names(&indexers)?;
        Ok(self.builds.add(indexers))
    }

    /// Begins with the demand whose turn it is, if one waits and none is under way. Its work is to be done, anywhere,
    /// then [`Self::resume_build`] called.
    pub fn begin_build(&mut self) -> Option<(BuildId, Arc<IndexBuild>)> {
        self.builds.begin(|| Arc::new(self.next.clone()))
    }

    /// Goes on with the demand that is under way when its work has been done: hands out what has come up meanwhile, or
    /// publishes its indices and ends it. `None` when none is under way.
    pub fn resume_build(&mut self) -> Option<BuildStep> {
        let (made, removed) = match self.builds.resume()? {
            Next::Work(build) => return Some(BuildStep::Work(build)),
            Next::Made(made, removed) => (made, removed),
        };
        if !made.is_empty() {
            self.next.indices.append(made);
            self.publish();
        }
        if removed.is_empty() {
            return Some(BuildStep::Done(Ok(())));
        }
        let names = removed.iter().map(ToString::to_string).collect();
        let resource = self.next.resource().gvr.to_string();
        Some(BuildStep::Done(Err(AddIndexersError::Removed { resource, names })))
    }

    /// Gives up the demand that is under way: its work cannot be done.
    pub fn give_up_build(&mut self) {
        self.builds.give_up();
    }

    fn check_names(&self, indexers: &Indexers) -> Result<(), IndexerConflict> {
        let mut taken = self.next.index_names();
        taken.extend(self.builds.names().cloned());
        let names: Vec<_> = indexers.names().filter(|name| taken.contains(name)).map(ToString::to_string).collect();
        if names.is_empty() {
            return Ok(());
        }
        Err(IndexerConflict { resource: self.next.resource().gvr.to_string(), names })
    }

    /// Forgets a computed index, or one that is to be; whether there was one of that name. A declared one stays.
    pub fn remove_indexer(&mut self, name: &str) -> bool {
        let known = self.next.indices.forget(name);
        if known {
            self.publish();
        }
        known || self.builds.remove(name)
    }

    /// What the last batch of a partition did, until the next batch: for a processor that died before telling.
    #[must_use]
    pub fn outbox(&self, id: PartitionId) -> Option<Outbox> {
        self.next.partition(id).and_then(|partition| partition.outbox.clone())
    }

    /// As [`Self::apply_up_to`], of which it is not known up to where it is complete.
    pub fn apply(&mut self, id: PartitionId, batch: Vec<Popped>) -> Option<Outbox> {
        self.apply_up_to(id, batch, None)
    }

    /// As [`Self::apply_batch`], for a caller that compresses nothing.
    pub fn apply_up_to(
        &mut self,
        id: PartitionId,
        batch: Vec<Popped>,
        version: Option<ResourceVersion>,
    ) -> Option<Outbox> {
        self.apply_batch(id, batch, version).map(|(outbox, _)| outbox)
    }

    /// Applies one batch to one partition and publishes the result as one snapshot; with it, the partition is complete up
    /// to `version`, where that is known. An empty batch with a version counts as none, and says that the caller is done
    /// with the outbox before it. While a list that is not the first is under way, what it changes is staged (see `stage`).
    ///
    /// Returns what changed for readers, in order, with the batch's number within the partition, and the objects that were
    /// taken in. `None` when the partition is closed.
    pub fn apply_batch(
        &mut self,
        id: PartitionId,
        popped: Vec<Popped>,
        version: Option<ResourceVersion>,
    ) -> Option<(Outbox, Vec<Arc<StoredObject>>)> {
        let mut partition = self.next.take(id)?;
        let (has_deltas, is_news) = (!popped.is_empty(), !popped.is_empty() || version.is_none());
        let (health, complete) = (Arc::clone(partition.health()), version.clone());
        let mut batch = Batch::default();
        for popped in popped {
            match popped {
                Popped::Deltas(key, deltas) => self.apply_deltas(id, &mut partition, &key, deltas, &mut batch),
                Popped::ReplaceEnd { keep, version } => {
                    self.publish_stage(id, &mut partition, &mut batch);
                    partition.relist = Relist::None;
                    self.sweep(id, &mut partition, &keep, &mut batch.applied);
                    if !partition.synced {
                        partition.synced = true;
                        batch.applied.push(Applied::Synced);
                    }
                    partition.version = Some(version);
                    partition.is_indexed = true;
                    partition.outdated = None;
                    partition.converted_from = None;
                }
            }
        }
        self.check_stage(id, &mut partition, &mut batch);
        // Without a version nobody can tell how far it is complete with what comes now: from an earlier one on a watch
        // would bring back what a list that was broken off has ended. What is staged is not there yet, so that a partition
        // which has nothing else that is new stays at the version it had.
        if partition.is_staging() {
            partition.resume = partition.resume.filter(|_| !batch.shown);
        } else if version.is_some() || has_deltas || batch.shown {
            partition.resume = version;
        }
        let is_staging = partition.is_staging();
        let number = partition.number() + u64::from(is_news);
        let outbox = Outbox { number, applied: batch.applied.into() };
        if is_news || partition.outbox.is_some() {
            partition.outbox = Some(outbox.clone());
        }
        self.next.put(id, partition);
        self.publish();
        // While a list is under way, the version before it stays: what was complete up to there still is.
        if complete.is_some() && !is_staging {
            health.set_stored(complete);
        }
        Some((outbox, batch.newcomers))
    }

    /// Puts an object at its key, whatever was there: no version or UID is compared. For a store that a program writes
    /// itself; what comes from a watch goes through [`Self::apply`].
    pub(super) fn put(&mut self, id: PartitionId, object: &Arc<StoredObject>) {
        self.write(id, |store, partition| {
            note_version(partition, object);
            store.set(id, partition, object);
        });
    }

    /// Empties the key of an object, whatever is there, as of that object's version.
    pub(super) fn discard(&mut self, id: PartitionId, object: &StoredObject) {
        self.write(id, |store, partition| {
            note_version(partition, object);
            if let Some(stored) = partition.get(object.key()).cloned() {
                store.remove(id, partition, &stored);
            }
        });
    }

    /// Puts exactly these objects into a partition; of a repeated key the last one counts.
    pub(super) fn replace(&mut self, id: PartitionId, objects: Vec<Arc<StoredObject>>, version: ResourceVersion) {
        let keep: HashSet<_> = objects.iter().map(|object| object.key().clone()).collect();
        self.write(id, |store, partition| {
            store.sweep(id, partition, &keep, &mut Vec::new());
            for object in objects {
                store.set(id, partition, &object);
            }
            partition.version = Some(version);
        });
    }

    /// One write to one partition, published as one snapshot.
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
                    // Of a body that is not kept there is nothing to repeat.
                    let stored = partition.get(key).filter(|stored| stored.is_kept());
                    batch.applied.extend(stored.cloned().map(Applied::Repeated));
                    continue;
                }
                DeltaKind::Replaced => partition.begin_relist(),
                DeltaKind::Added | DeltaKind::Updated | DeltaKind::Deleted => {}
            }
            batch.shown |= !partition.is_staging();
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

    /// A live object under a key that the store has.
    fn update(
        &mut self,
        id: PartitionId,
        partition: &mut Partition,
        kind: DeltaKind,
        stored: Arc<StoredObject>,
        mut object: Arc<StoredObject>,
        batch: &mut Batch,
    ) {
        // Nobody else has it yet; somebody who had would only keep a second text of the key.
        if let Some(object) = Arc::get_mut(&mut object) {
            object.share_key(stored.key());
        }
        // A list speaks for its moment, whatever the numbers say (an etcd restore rewinds them); a watch only goes on.
        let from_watch = kind != DeltaKind::Replaced;
        if from_watch && stored.resource_version().newer_than(object.resource_version()) {
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
        } else if partition.converted_from.is_some() && reads_otherwise(&stored, &object) {
            self.exchange(id, partition, &stored, &object, false);
            partition.note(batch, Applied::Updated { old: stored, new: object }, false);
        } else if partition.outdated.is_some() || stored.index_values() != object.index_values() {
            // The same state, read by an informer that declares other indices now, or keeps other parts of it.
            self.exchange(id, partition, &stored, &object, true);
        }
    }

    /// A DELETED event for a key that the store has.
    fn delete(
        &mut self,
        id: PartitionId,
        partition: &mut Partition,
        stored: Arc<StoredObject>,
        last: Arc<StoredObject>,
        batch: &mut Batch,
    ) {
        let same = stored.uid() == last.uid() && !last.is_head_only();
        if stored.resource_version().newer_than(last.resource_version()) {
            return;
        }
        self.remove(id, partition, &stored);
        // Of another UID: the stored one went unseen, and the other came and went without anyone being told. Of a head
        // alone: how it last was cannot be told.
        let last = if same { last } else { Arc::clone(&stored) };
        partition.note(batch, Applied::Deleted { stored, last, tombstone: !same }, false);
    }

    /// Removes what a complete list did not name.
    fn sweep(
        &mut self,
        id: PartitionId,
        partition: &mut Partition,
        keep: &HashSet<ObjectKey>,
        applied: &mut Vec<Applied>,
    ) {
        let gone: Vec<_> = partition.iter().filter(|object| !keep.contains(object.key())).map(Arc::clone).collect();
        for stored in gone {
            self.remove(id, partition, &stored);
            applied.push(Applied::Deleted { last: Arc::clone(&stored), stored, tombstone: true });
        }
    }

    fn publish(&mut self) {
        self.published.store(Arc::new(self.next.clone()));
    }

    /// How far a partition has come: the version of its last complete list (or, where a program writes it, write).
    #[must_use]
    pub fn version(&self, id: PartitionId) -> Option<ResourceVersion> {
        self.next.partition(id).and_then(|partition| partition.version.clone())
    }
}

/// Sets the version of a partition that a program writes. An object without a version leaves it as it was.
fn note_version(partition: &mut Partition, object: &StoredObject) {
    if !object.resource_version().is_empty() {
        partition.version = Some(object.resource_version().clone());
    }
}

/// Whether two readings of one state are not the same text.
fn reads_otherwise(one: &StoredObject, other: &StoredObject) -> bool {
    one.is_kept() && other.is_kept() && one.json_text().ok() != other.json_text().ok()
}
