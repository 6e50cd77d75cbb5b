//! Builds partitions from saved objects.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use super::objects::{Change, Objects};
use super::posting::PartitionId;
use super::restored::Restored;
use super::snapshot::{DeclaredIndex, Partition};
use super::stage::Relist;
use super::store::Store;
use informer_hub_types::{InformerHealth, ObjectKey, Origin, ResourceVersion, StoredObject};

/// Objects read from disk, by key. Inserting in key order is cheapest.
#[derive(Clone, Default)]
pub struct Gathering {
    objects: Objects,
}

impl Gathering {
    /// Inserts an object.
    pub fn put(&mut self, object: Arc<StoredObject>) {
        self.objects.insert(object);
    }

    /// Removes a key.
    pub fn remove(&mut self, key: &ObjectKey) {
        self.objects.remove(key);
    }

    /// Returns the number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Returns whether there are no objects.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Returns all objects, by key.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<StoredObject>> {
        self.objects.iter()
    }
}

impl fmt::Debug for Gathering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gathering").field("len", &self.len()).finish()
    }
}

/// A partition as it was saved to disk, and the informer that continues it.
#[derive(Debug)]
pub struct SavedPartition {
    /// Informer that continues the partition.
    pub origin: Arc<Origin>,
    /// Health of the informer that continues the partition.
    pub health: Arc<InformerHealth>,
    /// Indices that cover all objects of the partition.
    pub indexes: Vec<DeclaredIndex>,
    /// Hash of the settings that the objects were decoded with.
    pub settings: u64,
    /// Version up to which the partition is complete; `None` if it may be incomplete.
    pub version: Option<ResourceVersion>,
    /// Whether the partition's first list was complete.
    pub synced: bool,
    /// Readers (sinks and durable subscriptions) that have acknowledged the whole saved state.
    pub readers: BTreeSet<String>,
    /// Objects of the partition, by key.
    pub objects: Gathering,
}

impl Restored {
    /// Returns whether the partition's objects are the restored objects, unmodified. Also true if the reference to the
    /// restored objects was dropped, because no reader needs it any more.
    #[must_use]
    pub fn is_unchanged(&self, partition: &Partition) -> bool {
        self.has_objects(&partition.objects)
    }
}

impl Partition {
    /// Compares the partition with its earlier state `before`. Calls `put` for each object that is new or was replaced,
    /// and `gone` for each key that was removed. The cost is proportional to the number of differences.
    #[doc(hidden)]
    pub fn changes_since<'p>(
        &'p self,
        before: &'p Self,
        mut put: impl FnMut(&'p Arc<StoredObject>),
        mut gone: impl FnMut(&'p ObjectKey),
    ) {
        before.objects.changes(&self.objects, |change| match change {
            Change::Added(new) | Change::Exchanged(_, new) => put(new),
            Change::Removed(old) => gone(old.key()),
        });
    }

    /// Returns whether both partitions share the same object tree in memory, as after a clone that was not modified.
    /// Compares no objects.
    #[must_use]
    #[doc(hidden)]
    pub fn has_objects_of(&self, other: &Self) -> bool {
        self.objects.is_same(&other.objects)
    }

    /// Raises the minimum resource version that the informer's next list must have. The new minimum is the version of
    /// the newest stored object, or `delivered` (the version of an event that a reader received), whichever is greater.
    #[doc(hidden)]
    pub fn raise_floor(&self, delivered: Option<&ResourceVersion>) {
        let objects = self.iter().map(|object| object.resource_version());
        let comparable = objects.chain(delivered).filter(|version| version.as_number().is_some());
        let Some(newest) = comparable.max_by_key(|version| version.as_number()) else { return };
        let health = self.health();
        if health.version().is_none_or(|known| newest.newer_than(&known)) {
            health.set_version(newest.clone());
        }
    }
}

/// Returns whether a delivered object should replace the stored one: it must be newer. A newer state without a body
/// does not replace a stored state of the same object.
fn is_news(object: &StoredObject, stored: Option<&Arc<StoredObject>>) -> bool {
    stored.is_none_or(|stored| {
        let same = stored.uid() == object.uid();
        // A state with a body is preferred to a newer one of the same object without.
        object.resource_version().newer_than(stored.resource_version()) && (object.is_kept() || !same)
    })
}

impl Store {
    /// Restores a saved partition, unless its informer has one already. Costs about 1 µs per object and per index
    /// value; bodies are not decoded.
    pub fn restore(&mut self, saved: SavedPartition) -> Option<PartitionId> {
        let SavedPartition { origin, health, indexes, settings, version, synced, readers, objects } = saved;
        if self.find(&origin).is_some() {
            return None;
        }
        let id = self.open(origin, health, indexes);
        let Gathering { objects } = objects;
        self.write(id, |store, partition| {
            partition.plain_bytes = objects.iter().map(|object| object.plain_size() as u64).sum();
            objects.iter().for_each(|object| store.index(id, object));
            let objects_then = (!readers.is_empty()).then(|| objects.clone());
            partition.objects = objects;
            partition.settings = settings;
            let complete = version.as_ref().and_then(ResourceVersion::as_number);
            partition.resume = version;
            partition.synced = synced;
            partition.restored = Some(Arc::new(Restored::new(synced, readers, objects_then)));
            store.record_join(id, partition, complete);
        });
        Some(id)
    }

    /// Reopens a partition that was closed when its cluster was removed. An informer can continue it, like a partition
    /// that was restored from disk. All objects of the partition are indexed again, which takes most of the time.
    pub fn reopen(&mut self, partition: &Partition, origin: Arc<Origin>) -> PartitionId {
        let id = self.adopt(partition, origin);
        self.write(id, |_, partition| {
            // The watch resumes from the version of the visible objects, so staged changes are delivered again.
            partition.relist = Relist::None;
            if let Some(restored) = &partition.restored {
                restored.set_fresh();
                return;
            }
            partition.restored = Some(Arc::new(Restored::new(partition.synced, BTreeSet::new(), None)));
        });
        id
    }

    /// Adds an object that was delivered to a reader (sink or durable subscription) after the partition was saved.
    /// Returns whether it was added.
    ///
    /// The object is ignored if the stored object is as new or newer. A state without a body is also ignored if the
    /// stored object has the same UID. The resume version of the partition does not change.
    pub fn add_delivered(&mut self, id: PartitionId, object: &Arc<StoredObject>) -> bool {
        let mut is_in = false;
        self.write(id, |store, partition| {
            if is_news(object, partition.get(object.key())) {
                store.set(id, partition, object);
                is_in = true;
            }
        });
        is_in
    }

    /// Records that the resource's CRD has a new generation, which may change objects without events or new resource
    /// versions. No watch may resume until a list is complete.
    pub fn convert(&mut self, id: PartitionId, generation: u64) {
        self.write(id, |_, partition| {
            (partition.converting, partition.resume, partition.relist) = (Some(generation), None, Relist::None);
        });
    }

    /// Records the hash of the decoding settings of the informer that opens a partition. Returns the resource version
    /// from which the informer's watch can resume.
    ///
    /// Returns `None` if the partition was not restored, was already opened since then, has other settings, or lacks
    /// the body of an object. The informer must then list.
    pub fn go_on(&mut self, id: PartitionId, settings: u64) -> Option<ResourceVersion> {
        let partition = self.partition(id)?;
        let is_same = settings != 0 && partition.settings == settings;
        let restored = partition.restored.clone();
        let is_fresh = restored.is_some_and(|it| it.open());
        let is_whole = || partition.iter().all(|object| object.is_kept());
        let resume = partition.resume.clone().filter(|_| is_fresh && is_same && !partition.bare && is_whole());
        if !is_same {
            self.write(id, |_, partition| {
                partition.outdated = Some(partition.settings).filter(|before| *before != 0 && !partition.is_empty());
                partition.settings = settings;
            });
        }
        resume
    }
}
