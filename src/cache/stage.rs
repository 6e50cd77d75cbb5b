//! Staged relists: what a list that is not the first has changed, kept from readers until the list is complete.
//!
//! client-go's `AtomicFIFO` passes a relist to the store in one step. This crate does so without holding the list itself:
//! an object that the list repeats unchanged is dropped at once, and one that is new or changed waits in a [`Stage`] beside
//! the partition. The end of the list writes the stage into the partition, buries what the list did not name, and publishes
//! both as one snapshot; the notifications follow that snapshot.
//!
//! - A list that breaks off leaves the stage. The next list goes on with it, since every staged state is later than the one
//!   that readers see. So nothing of a list is visible before a list is complete.
//! - While the stage is open, everything that the queue brings goes there, events that were queued before the list included.
//!   A resync repeats the objects that readers see.
//! - The partition stays at the resume version that it had: readers' objects are still those of that version.
//! - A stage is bounded ([`Stage::LIMIT`]). Beyond the bound, and where an informer is short of memory or reads objects in
//!   another way than before, the rest of the list is published in parts, as a first list is.
//!
//! The stage is part of the partition, so a store that recovers from what was published goes on with it.

use std::sync::Arc;

use super::posting::PartitionId;
use super::snapshot::Partition;
use super::store::{Applied, Store};
use informer_hub_types::{MemoryStep, ObjectKey, StoredObject};

/// What one batch did.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// What listeners are to be notified of now.
    pub(super) applied: Vec<Applied>,
    /// Objects that are in memory since this batch, whether readers see them yet or not.
    pub(super) newcomers: Vec<Arc<StoredObject>>,
    /// Whether anything that readers see has another state now.
    pub(super) shown: bool,
}

/// How a list that is not the first comes to readers.
#[derive(Clone, Default)]
pub(super) enum Relist {
    /// No such list is under way.
    #[default]
    None,
    /// In one step, when it is complete.
    Staged(Stage),
    /// Object by object, until it is complete.
    InParts,
}

/// Changes that readers do not see yet. Persistent, so that cloning a partition costs two reference counts more.
#[derive(Clone, Default)]
pub(super) struct Stage {
    /// The last staged state of each changed key; `None` where the object is gone.
    objects: imbl::OrdMap<ObjectKey, Option<Arc<StoredObject>>>,
    /// What to notify listeners of, in order.
    applied: imbl::Vector<Applied>,
    /// Bytes of bodies at the time they were staged, and [`Self::OVERHEAD`] for each change.
    bytes: usize,
}

impl Stage {
    /// The bound in bytes: bodies as they lie in memory, and [`Self::OVERHEAD`] for each change. Some 50,000 changed pods.
    pub(super) const LIMIT: usize = 64 * 1024 * 1024;

    /// What one change takes besides the body: the rest of an object, its place here, and the notification to come.
    const OVERHEAD: usize = 640;

    /// Stages an object, or that there is none any more.
    pub(super) fn write(&mut self, key: &ObjectKey, object: Option<&Arc<StoredObject>>) {
        self.bytes += Self::OVERHEAD + object.map_or(0, |object| object.body_size());
        self.objects.insert(key.clone(), object.cloned());
    }

    /// Whether the bound is passed. Counts anew before it says so, since most bodies are compressed by then.
    fn is_full(&mut self) -> bool {
        if self.bytes > Self::LIMIT {
            let bodies = self.objects.values().flatten().map(|object| object.body_size());
            self.bytes = bodies.sum::<usize>() + Self::OVERHEAD * self.objects.len().max(self.applied.len());
        }
        self.bytes > Self::LIMIT
    }
}

impl Applied {
    /// The object that it brought into the store.
    fn newcomer(&self) -> Option<&Arc<StoredObject>> {
        match self {
            Self::Added(new) | Self::Updated { new, .. } | Self::Restored { whole: new, .. } => Some(new),
            Self::Deleted { .. } | Self::Repeated(_) | Self::Synced => None,
        }
    }

    /// The key that it is about.
    fn key(&self) -> Option<&ObjectKey> {
        match self {
            Self::Added(object)
            | Self::Updated { new: object, .. }
            | Self::Deleted { stored: object, .. }
            | Self::Repeated(object)
            | Self::Restored { whole: object, .. } => Some(object.key()),
            Self::Synced => None,
        }
    }
}

impl Partition {
    /// Bytes that a list under way has changed, which readers do not see yet.
    #[must_use]
    pub fn staged_bytes(&self) -> usize {
        match &self.relist {
            Relist::Staged(stage) => stage.bytes,
            Relist::None | Relist::InParts => 0,
        }
    }

    /// All objects with what is staged, by key.
    #[cfg(test)]
    pub(crate) fn newest_objects(&self) -> Vec<Arc<StoredObject>> {
        let mut all: std::collections::BTreeMap<_, _> =
            self.iter().map(|it| (it.key().clone(), Arc::clone(it))).collect();
        if let Relist::Staged(stage) = &self.relist {
            for (key, object) in &stage.objects {
                match object {
                    Some(object) => _ = all.insert(key.clone(), Arc::clone(object)),
                    None => _ = all.remove(key),
                }
            }
        }
        all.into_values().collect()
    }

    /// Whether changes are kept from readers until a list is complete.
    pub(super) fn is_staging(&self) -> bool {
        matches!(self.relist, Relist::Staged(_))
    }

    /// Whether a list may be published in one step: readers have a complete state, which it takes no more than a bounded
    /// stage to go on from.
    fn may_stage(&self) -> bool {
        self.synced
            && !self.bare
            && self.memory() == MemoryStep::Full
            && self.outdated.is_none()
            && self.converted_from.is_none()
    }

    /// A list has brought an object.
    pub(super) fn begin_relist(&mut self) {
        if matches!(self.relist, Relist::None) && self.synced {
            self.relist = if self.may_stage() { Relist::Staged(Stage::default()) } else { Relist::InParts };
        }
    }

    /// The object at a key with what is staged.
    pub(super) fn newest(&self, key: &ObjectKey) -> Option<&Arc<StoredObject>> {
        match &self.relist {
            Relist::Staged(stage) => stage.objects.get(key).map_or_else(|| self.get(key), Option::as_ref),
            Relist::None | Relist::InParts => self.get(key),
        }
    }

    /// The stage, if a state of `key` that comes now belongs there. With `is_same`, it is the state that readers see, read in
    /// another way or with the body that they lack: that is staged only where the key is.
    pub(super) fn stage_of(&mut self, key: &ObjectKey, is_same: bool) -> Option<&mut Stage> {
        match &mut self.relist {
            Relist::Staged(stage) if !is_same || stage.objects.contains_key(key) => Some(stage),
            _ => None,
        }
    }

    /// Notes what a change did: for listeners now, or when the stage is published.
    pub(super) fn note(&mut self, batch: &mut Batch, applied: Applied, is_same: bool) {
        batch.newcomers.extend(applied.newcomer().cloned());
        match applied.key().and_then(|key| self.stage_of(key, is_same)) {
            Some(stage) => stage.applied.push_back(applied),
            None => batch.applied.push(applied),
        }
    }
}

impl Store {
    /// Publishes what is staged with this batch where it has become too much, or where it may not be staged any longer. The
    /// rest of the list follows in parts.
    pub(super) fn check_stage(&mut self, id: PartitionId, partition: &mut Partition, batch: &mut Batch) {
        let may_stage = partition.may_stage();
        if let Relist::Staged(stage) = &mut partition.relist
            && (!may_stage || stage.is_full())
        {
            self.publish_stage(id, partition, batch);
            partition.relist = Relist::InParts;
        }
    }

    /// Writes what is staged to the partition and its indices: the list is complete.
    pub(super) fn publish_stage(&mut self, id: PartitionId, partition: &mut Partition, batch: &mut Batch) {
        let Relist::Staged(stage) = std::mem::take(&mut partition.relist) else { return };
        for (key, new) in &stage.objects {
            match (partition.get(key).cloned(), new) {
                (Some(old), Some(new)) => self.exchange(id, partition, &old, new, false),
                (None, Some(new)) => self.insert(id, partition, new),
                (Some(old), None) => self.remove(id, partition, &old),
                (None, None) => {}
            }
        }
        batch.applied.extend(stage.applied);
        batch.shown = true;
    }

    pub(super) fn insert(&mut self, id: PartitionId, partition: &mut Partition, object: &Arc<StoredObject>) {
        if let Some(stage) = partition.stage_of(object.key(), false) {
            return stage.write(object.key(), Some(object));
        }
        partition.put(object);
        self.next.indices.insert(id, object);
        self.builds.put(id, object);
    }

    pub(super) fn remove(&mut self, id: PartitionId, partition: &mut Partition, object: &Arc<StoredObject>) {
        if let Some(stage) = partition.stage_of(object.key(), false) {
            return stage.write(object.key(), None);
        }
        partition.discard(object.key());
        self.next.indices.remove(id, object);
        self.builds.discard(id, object.key());
    }

    /// Puts another state of an object in the place of one; with `is_same`, the same state read in another way.
    pub(super) fn exchange(
        &mut self,
        id: PartitionId,
        partition: &mut Partition,
        old: &StoredObject,
        new: &Arc<StoredObject>,
        is_same: bool,
    ) {
        if let Some(stage) = partition.stage_of(new.key(), is_same) {
            return stage.write(new.key(), Some(new));
        }
        self.next.indices.update(id, old, new);
        self.builds.put(id, new);
        partition.put(new);
    }
}
