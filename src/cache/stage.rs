//! Staged relists: changes of a list after the first one, hidden from readers until the list is complete.
//!
//! client-go's `AtomicFIFO` passes a relist to the store in one step. This crate does so without holding the list. An
//! object that the list repeats unchanged is dropped at once. A new or changed one waits in a [`Stage`] beside the
//! partition. At the end of the list, the stage is written to the partition, unlisted objects are deleted, and both are
//! published as one snapshot. The notifications follow that snapshot.
//!
//! - An interrupted list leaves its stage, and the next list continues it, because every staged state is newer than the
//!   visible one. So no part of a list is visible before a list is complete.
//! - While the stage is open, all changes go there, including events queued before the list. A resync repeats the
//!   visible objects.
//! - The partition keeps its resume version, because the visible objects are those of that version.
//! - A stage is bounded ([`Stage::LIMIT`]). Above the limit, under memory pressure, or if the informer decodes objects
//!   differently than before, the rest of the list is published in parts, as a first list is.
//!
//! The stage is part of the partition, so a store that recovers from the published snapshot continues it.

use std::sync::Arc;

use super::posting::PartitionId;
use super::snapshot::Partition;
use super::store::{Applied, Store};
use informer_hub_types::{MemoryStep, ObjectKey, StoredObject};

/// Effects of one batch.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// Effects that listeners are notified of now.
    pub(super) applied: Vec<Applied>,
    /// Objects that are in memory since this batch, visible or staged.
    pub(super) newcomers: Vec<Arc<StoredObject>>,
    /// Whether the visible state changed.
    pub(super) shown: bool,
}

/// How a list after the first one is published.
#[derive(Clone, Default)]
pub(super) enum Relist {
    /// No such list is running.
    #[default]
    None,
    /// In one step, when it is complete.
    Staged(Stage),
    /// Object by object.
    InParts,
}

/// Changes that are not visible yet. Persistent: cloning a partition costs two more reference counts.
#[derive(Clone, Default)]
pub(super) struct Stage {
    /// Last staged state of each changed key; `None` if the object is deleted.
    objects: imbl::OrdMap<ObjectKey, Option<Arc<StoredObject>>>,
    /// Effects to notify listeners of, in order.
    applied: imbl::Vector<Applied>,
    /// Bytes of bodies when they were staged, plus [`Self::OVERHEAD`] per change.
    bytes: usize,
}

impl Stage {
    /// Limit in bytes: stored bodies, plus [`Self::OVERHEAD`] per change. About 50,000 changed pods.
    pub(super) const LIMIT: usize = 64 * 1024 * 1024;

    /// Bytes of a change besides the body: the rest of the object, the stage entry and the notification.
    const OVERHEAD: usize = 640;

    /// Stages an object, or its deletion.
    pub(super) fn write(&mut self, key: &ObjectKey, object: Option<&Arc<StoredObject>>) {
        self.bytes += Self::OVERHEAD + object.map_or(0, |object| object.body_size());
        self.objects.insert(key.clone(), object.cloned());
    }

    /// Returns whether the limit is exceeded. Recounts first, because most bodies have been compressed meanwhile.
    fn is_full(&mut self) -> bool {
        if self.bytes > Self::LIMIT {
            let bodies = self.objects.values().flatten().map(|object| object.body_size());
            self.bytes = bodies.sum::<usize>() + Self::OVERHEAD * self.objects.len().max(self.applied.len());
        }
        self.bytes > Self::LIMIT
    }
}

impl Applied {
    /// Returns the object that was stored.
    fn newcomer(&self) -> Option<&Arc<StoredObject>> {
        match self {
            Self::Added(new) | Self::Updated { new, .. } | Self::Restored { whole: new, .. } => Some(new),
            Self::Deleted { .. } | Self::Repeated(_) | Self::Synced => None,
        }
    }

    /// Returns the key of the object.
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
    /// Returns the bytes of staged changes.
    #[must_use]
    pub fn staged_bytes(&self) -> usize {
        match &self.relist {
            Relist::Staged(stage) => stage.bytes,
            Relist::None | Relist::InParts => 0,
        }
    }

    /// Returns all objects including staged changes, by key.
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

    /// Returns whether changes are staged until a list is complete.
    pub(super) fn is_staging(&self) -> bool {
        matches!(self.relist, Relist::Staged(_))
    }

    /// Returns whether a list may be published in one step: the visible state is complete, and a bounded stage suffices
    /// to update it.
    fn may_stage(&self) -> bool {
        self.synced
            && !self.bare
            && self.memory() == MemoryStep::Full
            && self.outdated.is_none()
            && self.converted_from.is_none()
    }

    /// Starts staging when a list delivers its first object.
    pub(super) fn begin_relist(&mut self) {
        if matches!(self.relist, Relist::None) && self.synced {
            self.relist = if self.may_stage() { Relist::Staged(Stage::default()) } else { Relist::InParts };
        }
    }

    /// Returns the object at a key, including staged changes.
    pub(super) fn newest(&self, key: &ObjectKey) -> Option<&Arc<StoredObject>> {
        match &self.relist {
            Relist::Staged(stage) => stage.objects.get(key).map_or_else(|| self.get(key), Option::as_ref),
            Relist::None | Relist::InParts => self.get(key),
        }
    }

    /// Returns the stage if a new state of `key` belongs there. With `is_same`, the state is the visible one in another
    /// form. It is staged only if the key is staged already.
    pub(super) fn stage_of(&mut self, key: &ObjectKey, is_same: bool) -> Option<&mut Stage> {
        match &mut self.relist {
            Relist::Staged(stage) if !is_same || stage.objects.contains_key(key) => Some(stage),
            _ => None,
        }
    }

    /// Records an effect, for listeners now or when the stage is published.
    pub(super) fn note(&mut self, batch: &mut Batch, applied: Applied, is_same: bool) {
        batch.newcomers.extend(applied.newcomer().cloned());
        match applied.key().and_then(|key| self.stage_of(key, is_same)) {
            Some(stage) => stage.applied.push_back(applied),
            None => batch.applied.push(applied),
        }
    }
}

impl Store {
    /// Publishes the stage with this batch if it exceeds the limit or staging is no longer allowed. The rest of the
    /// list follows in parts.
    pub(super) fn check_stage(&mut self, id: PartitionId, partition: &mut Partition, batch: &mut Batch) {
        let may_stage = partition.may_stage();
        if let Relist::Staged(stage) = &mut partition.relist
            && (!may_stage || stage.is_full())
        {
            self.publish_stage(id, partition, batch);
            partition.relist = Relist::InParts;
        }
    }

    /// Applies the stage to the partition and its indices.
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

    /// Replaces an object. With `is_same`, the new one is the same state in another form.
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
