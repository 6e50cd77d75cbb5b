//! Staging of relists (lists after the first one): changes stay hidden until the list is complete. The module `stage`
//! describes the rules.

use std::sync::Arc;

use super::applied::Applied;
use super::history::Draft;
use super::posting::PartitionId;
use super::snapshot::Partition;
use super::stage::{Batch, Relist, Stage};
use super::store::Store;
use hashbrown::HashMap;

use informer_hub_types::{MemoryStep, ObjectKey, ResourceVersion, StoredObject};

impl Partition {
    /// Returns the size in bytes of staged changes, which stay hidden until a list is complete; zero if there are none.
    #[must_use]
    #[doc(hidden)]
    pub fn staged_bytes(&self) -> usize {
        match &self.relist {
            Relist::Staged(stage) => stage.bytes,
            Relist::None | Relist::InParts => 0,
        }
    }

    /// Returns all objects including staged changes, by key.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn newest_objects(&self) -> Vec<Arc<StoredObject>> {
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

    /// Returns whether the next list may be staged, which means hidden until complete and then published in one step.
    /// The first list must be complete, bodies must be kept, and memory must not be short. All stored objects must be
    /// decoded with the present settings and CRD.
    fn may_stage(&self) -> bool {
        self.synced
            && !self.bare
            && self.memory() == MemoryStep::Full
            && self.outdated.is_none()
            && self.converting.is_none()
    }

    /// Starts a relist when a list delivers its first object: staged (hidden until complete) if possible, else
    /// published in parts.
    pub(super) fn begin_relist(&mut self) {
        if matches!(self.relist, Relist::None) && self.synced {
            self.relist = if self.may_stage() { Relist::Staged(Stage::default()) } else { Relist::InParts };
        }
    }

    /// Records that a list has replaced all objects. Every object now has values in all declared indices, and is
    /// decoded with the present settings and CRD generation.
    pub(super) fn finish_list(&mut self) {
        (self.is_indexed, self.outdated) = (true, None);
        if let Some(generation) = self.converting.take().filter(|generation| *generation > 0) {
            self.health().set_definition_generation(generation);
        }
    }

    /// Records at the end of a list whether the cluster's resource versions went back (`rewound`), as after an etcd
    /// restore. `version` is that of the list.
    ///
    /// If they went back, another list must follow, because this one kept stored objects with an equal version although
    /// their contents may differ. Also records the objects that still have a version greater than `version`.
    pub(super) fn note_rewind(&mut self, version: &ResourceVersion, rewound: bool) {
        // The list that follows a rewound one does not replace the objects that both lists name without contents.
        let (objects, before) = (&self.objects, std::mem::take(&mut self.rewound));
        let is_newer = |object: &StoredObject| object.resource_version().newer_than(version);
        self.rewound = if rewound {
            self.iter().filter(|object| is_newer(object)).map(|object| object.key().clone()).collect()
        } else {
            before.into_iter().filter(|key| objects.get(key).is_some_and(|object| is_newer(object))).collect()
        };
        if rewound {
            (self.converting, self.deleted) = (Some(0), None);
        }
    }

    /// Returns the newest object at a key, from the staged changes (hidden until a list is complete) or else the
    /// visible objects.
    pub(super) fn newest(&self, key: &ObjectKey) -> Option<&Arc<StoredObject>> {
        match &self.relist {
            Relist::Staged(stage) => stage.objects.get(key).map_or_else(|| self.get(key), Option::as_ref),
            Relist::None | Relist::InParts => self.get(key),
        }
    }

    /// Returns the stage (changes hidden until a list is complete) if a new state of `key` must go there. Returns
    /// `None` if the state must be written to the visible objects.
    ///
    /// `is_same` means that the resource version is unchanged, and only the body or the index values are new. Such a
    /// state goes to the stage only if the stage already contains `key`.
    pub(super) fn stage_of(&mut self, key: &ObjectKey, is_same: bool) -> Option<&mut Stage> {
        match &mut self.relist {
            Relist::Staged(stage) if !is_same || stage.objects.contains_key(key) => Some(stage),
            _ => None,
        }
    }

    /// Records an applied change. Listeners are notified of it with this batch or, if the change is staged, once the
    /// staged list is published.
    pub(super) fn note(&mut self, batch: &mut Batch, applied: Applied, is_same: bool) {
        self.note_event(batch, applied, is_same, None);
    }

    /// Records an applied change. Listeners are notified of it with this batch or, if the change is staged, once the
    /// staged list is published. For a deletion, `event` is the resource version of the DELETED event.
    pub(super) fn note_event(
        &mut self,
        batch: &mut Batch,
        applied: Applied,
        is_same: bool,
        event: Option<&ResourceVersion>,
    ) {
        batch.newcomers.extend(applied.newcomer().cloned());
        if let Some(stage) = applied.key().and_then(|key| self.stage_of(key, is_same)) {
            stage.applied.push_back(applied);
            return;
        }
        if let Some(drafts) = &mut batch.drafts {
            drafts.extend(Draft::of(&applied, event));
        }
        batch.applied.push(applied);
    }
}

impl Store {
    /// Publishes the staged changes with this batch if they exceed the size limit or if staging is no longer allowed.
    /// The rest of the list is then published batch by batch.
    pub(super) fn check_stage(&mut self, id: PartitionId, partition: &mut Partition, batch: &mut Batch) {
        let may_stage = partition.may_stage();
        if let Relist::Staged(stage) = &mut partition.relist
            && (!may_stage || stage.is_full())
        {
            self.publish_stage(id, partition, batch);
            partition.relist = Relist::InParts;
        }
    }

    /// Writes the staged changes, which readers do not see yet, to the partition and its indices.
    pub(super) fn publish_stage(&mut self, id: PartitionId, partition: &mut Partition, batch: &mut Batch) {
        let Relist::Staged(stage) = std::mem::take(&mut partition.relist) else { return };
        let observed = if batch.drafts.is_some() { observed_deletions(&stage) } else { HashMap::new() };
        for (key, new) in &stage.objects {
            let old = partition.get(key).cloned();
            if let Some(drafts) = &mut batch.drafts {
                record_difference(drafts, old.as_ref(), new.as_ref(), observed.get(key).copied());
            }
            match (old, new) {
                (Some(old), Some(new)) => self.exchange(id, partition, &old, new, is_same_state(&old, new)),
                (None, Some(new)) => self.insert(id, partition, new),
                (Some(old), None) => self.remove(id, partition, &old),
                (None, None) => {}
            }
        }
        drop(observed);
        batch.applied.extend(stage.applied);
        batch.visible_change = true;
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

    /// Replaces a stored object in the partition and in the indices, or in the stage if the change is staged. With
    /// `is_same`, UID and resource version are unchanged: only the body or the index values are new.
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
        if is_same {
            new.set_fleet_version(old.fleet_version());
        }
        self.next.indices.update(id, old, new);
        self.builds.put(id, new);
        partition.put(new);
    }
}

fn is_same_state(old: &StoredObject, new: &StoredObject) -> bool {
    let version = new.resource_version();
    old.uid() == new.uid() && old.resource_version() == version && !version.is_empty()
}

/// Returns the last known states of objects that a watch reported as deleted while changes were staged, by key.
fn observed_deletions(stage: &Stage) -> HashMap<&ObjectKey, &Arc<StoredObject>> {
    let observed = stage.applied.iter().filter_map(|applied| match applied {
        Applied::Deleted { stored, last, tombstone: false } => Some((stored.key(), last)),
        _ => None,
    });
    observed.collect()
}

/// Records the difference of one key between the visible and the staged state. `observed` is the object in the last
/// watch event that deleted the key; `None` if there was none.
fn record_difference(
    drafts: &mut Vec<Draft>,
    old: Option<&Arc<StoredObject>>,
    new: Option<&Arc<StoredObject>>,
    observed: Option<&Arc<StoredObject>>,
) {
    let deletion = |old: &Arc<StoredObject>| {
        let last = observed.filter(|last| last.uid() == old.uid());
        Draft::deleted(old, last.unwrap_or(old), last.map(|last| last.resource_version()))
    };
    match (old, new) {
        (Some(old), Some(new)) if old.uid() != new.uid() => drafts.extend([deletion(old), Draft::put(None, new)]),
        (Some(old), Some(new)) if is_same_state(old, new) => {}
        (old, Some(new)) => drafts.push(Draft::put(old, new)),
        (Some(old), None) => drafts.push(deletion(old)),
        (None, None) => {}
    }
}
