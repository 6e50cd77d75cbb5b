//! A partition that comes from disk: put into a store as a whole, and gone on from.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use super::objects::{Change, Objects};
use super::posting::PartitionId;
use super::snapshot::{DeclaredIndex, Partition};
use super::store::{Applied, Store};
use informer_hub_types::{InformerHealth, ObjectKey, Origin, ResourceVersion, StoredObject};

/// Objects that are read from disk, by key. What comes in the order of keys costs least.
#[derive(Clone, Default)]
pub struct Gathering {
    objects: Objects,
}

impl Gathering {
    /// Puts an object at its key.
    pub fn put(&mut self, object: Arc<StoredObject>) {
        self.objects.insert(object);
    }

    /// Empties a key.
    pub fn remove(&mut self, key: &ObjectKey) {
        self.objects.remove(key);
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// All of them, by key.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<StoredObject>> {
        self.objects.iter()
    }
}

impl fmt::Debug for Gathering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gathering").field("len", &self.len()).finish()
    }
}

/// A partition as it was kept.
#[derive(Debug)]
pub struct SavedPartition {
    /// The informer that is to go on with it.
    pub origin: Arc<Origin>,
    /// What that shows of itself.
    pub health: Arc<InformerHealth>,
    /// The indices that all of its objects have their values in.
    pub indexes: Vec<DeclaredIndex>,
    /// How its objects were taken in.
    pub settings: u64,
    /// Up to which version it is complete; `None` where it may not be.
    pub version: Option<ResourceVersion>,
    /// Whether its first list was complete.
    pub synced: bool,
    /// Who was told of all that is in it.
    pub readers: BTreeSet<String>,
    /// Its objects.
    pub objects: Gathering,
}

/// A partition as it was when it came from disk, for as long as somebody who was told of that state has yet to come.
pub struct Restored {
    waiting: Mutex<Waiting>,
}

struct Waiting {
    /// Whether its first list was complete.
    synced: bool,
    /// Nobody has opened it yet.
    is_fresh: bool,
    readers: BTreeSet<String>,
    objects: Option<Objects>,
    /// What readers were told of that is not on disk as told to them, each its own.
    told: BTreeMap<String, Vec<Arc<StoredObject>>>,
}

impl Waiting {
    /// Takes a reader off who is waited for: whether it was told that the first list was complete, and the objects that it was
    /// told of.
    fn take(&mut self, name: &str) -> Option<(bool, Objects)> {
        let told = self.told.remove(name);
        if !self.readers.remove(name) {
            // Of the partition on disk it was told nothing but this.
            let mut then = Objects::default();
            for object in told? {
                then.insert(object);
            }
            return Some((false, then));
        }
        let objects = if self.readers.is_empty() { self.objects.take() } else { self.objects.clone() };
        let mut then = objects?;
        for object in told.unwrap_or_default() {
            // Of the same object a body is worth more than a newer version without one.
            let is_worth_less = |stored: &Arc<StoredObject>| stored.uid() == object.uid() && !object.is_kept();
            if !then.get(object.key()).is_some_and(is_worth_less) {
                then.insert(object);
            }
        }
        Some((self.synced, then))
    }
}

impl Restored {
    /// Who was told of all that was in it, and has not come yet.
    #[must_use]
    pub fn readers(&self) -> BTreeSet<String> {
        self.waiting.lock().readers.clone()
    }

    /// Whether this one is among them.
    #[must_use]
    pub fn has_reader(&self, name: &str) -> bool {
        self.waiting.lock().readers.contains(name)
    }

    /// Who was told of some of it, and has not come yet.
    #[must_use]
    pub fn awaited(&self) -> BTreeSet<String> {
        let waiting = self.waiting.lock();
        waiting.readers.iter().chain(waiting.told.keys()).cloned().collect()
    }

    /// Notes an object of which a reader was told: one that is not on disk in that state; or any, where it is not known on disk
    /// who was told of the partition. The later one counts.
    pub fn note_told(&self, reader: &str, object: Arc<StoredObject>) {
        self.waiting.lock().told.entry(reader.to_owned()).or_default().push(object);
    }

    /// Waits for nobody any more: who comes later begins anew.
    pub fn give_up(&self) {
        let mut waiting = self.waiting.lock();
        waiting.readers.clear();
        waiting.told.clear();
        waiting.objects = None;
    }

    /// Whether nobody has opened it yet.
    #[must_use]
    pub fn is_fresh(&self) -> bool {
        self.waiting.lock().is_fresh
    }

    /// Whether it is as it was when it came from disk.
    #[must_use]
    pub fn is_unchanged(&self, partition: &Partition) -> bool {
        let waiting = self.waiting.lock();
        waiting.objects.as_ref().is_none_or(|objects| objects.is_same(&partition.objects))
    }

    /// A reader that was told of the restored state, or of some of it, has come: what has happened since then, which it is to be
    /// told next. And whether it was told that the first list was complete. `None` when it was told nothing, or has come before.
    pub(super) fn welcome(&self, name: &str, now: &Partition) -> Option<(bool, Vec<Applied>)> {
        let (synced, then) = self.waiting.lock().take(name)?;
        let mut since = Vec::new();
        then.changes(&now.objects, |change| match change {
            Change::Added(new) => since.push(Applied::Added(Arc::clone(new))),
            Change::Removed(old) => since.push(gone(old)),
            Change::Exchanged(old, new) if old.uid() != new.uid() => {
                since.extend([gone(old), Applied::Added(Arc::clone(new))]);
            }
            Change::Exchanged(old, new) if old.resource_version() != new.resource_version() => {
                since.push(Applied::Updated { old: Arc::clone(old), new: Arc::clone(new) });
            }
            Change::Exchanged(..) => {}
        });
        Some((synced, since))
    }
}

impl Partition {
    /// What differs from an earlier state: objects that are new or another allocation, and keys of those that are gone.
    /// Costs in proportion to the difference.
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

    /// Whether its objects are those of another state, none written to since.
    #[must_use]
    pub fn has_objects_of(&self, other: &Self) -> bool {
        self.objects.is_same(&other.objects)
    }

    /// Sees that its informer lists nothing older than what it has, or than what readers were told of: either may be newer than
    /// the version up to which it is complete.
    pub fn raise_floor(&self, told: Option<&ResourceVersion>) {
        let objects = self.iter().map(|object| object.resource_version());
        let comparable = objects.chain(told).filter(|version| version.as_number().is_some());
        let Some(newest) = comparable.max_by_key(|version| version.as_number()) else { return };
        let health = self.health();
        if health.version().is_none_or(|known| newest.newer_than(&known)) {
            health.set_version(newest.clone());
        }
    }
}

/// Whether an object is to take the place of what is under its key.
fn is_news(object: &StoredObject, stored: Option<&Arc<StoredObject>>) -> bool {
    stored.is_none_or(|stored| {
        let same = stored.uid() == object.uid();
        // Of the same object a body is worth more than a newer version without one.
        object.resource_version().newer_than(stored.resource_version()) && (object.is_kept() || !same)
    })
}

fn gone(old: &Arc<StoredObject>) -> Applied {
    Applied::Deleted { stored: Arc::clone(old), last: Arc::clone(old), tombstone: true }
}

impl fmt::Debug for Restored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Restored").field("readers", &self.readers()).finish_non_exhaustive()
    }
}

impl Store {
    /// Puts a partition in as it was kept, unless its informer has one already. Costs about a microsecond for an object
    /// and as much for a value of an index; bodies are not looked at.
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
            let waiting = Waiting { synced, is_fresh: true, objects: objects_then, readers, told: BTreeMap::new() };
            partition.objects = objects;
            partition.settings = settings;
            partition.resume = version;
            partition.synced = synced;
            partition.restored = Some(Arc::new(Restored { waiting: Mutex::new(waiting) }));
        });
        Some(id)
    }

    /// Puts a partition in that was closed with its cluster, as it was then: an informer that opens it goes on with it as with
    /// one from disk. Costs what indexing its objects does.
    pub fn reopen(&mut self, partition: &Partition, origin: Arc<Origin>) -> PartitionId {
        let id = self.adopt(partition, origin);
        self.write(id, |_, partition| {
            if let Some(restored) = &partition.restored {
                restored.waiting.lock().is_fresh = true;
                return;
            }
            let (readers, told) = (BTreeSet::new(), BTreeMap::new());
            let waiting = Waiting { synced: partition.synced, is_fresh: true, readers, objects: None, told };
            partition.restored = Some(Arc::new(Restored { waiting: Mutex::new(waiting) }));
        });
        id
    }

    /// Takes in an object of which a reader was told after the partition was written to disk: unless what is there under
    /// its key is not older, or is the same object with a body that this one lacks. How far the partition has come stays as it
    /// is. Tells whether the store has it now.
    pub fn revive(&mut self, id: PartitionId, object: &Arc<StoredObject>) -> bool {
        let mut is_in = false;
        self.write(id, |store, partition| {
            if is_news(object, partition.get(object.key())) {
                store.set(id, partition, object);
                is_in = true;
            }
        });
        is_in
    }

    /// An informer has opened a partition and takes objects in in its way. Where the partition came from disk, and nobody
    /// has opened it before, and was taken in in the same way: the version from which a watch may go on.
    pub fn go_on(&mut self, id: PartitionId, settings: u64) -> Option<ResourceVersion> {
        let partition = self.partition(id)?;
        let is_same = settings != 0 && partition.settings == settings;
        let restored = partition.restored.clone();
        let is_fresh = restored.is_some_and(|it| std::mem::take(&mut it.waiting.lock().is_fresh));
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
