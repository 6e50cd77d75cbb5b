//! Objects of a partition as they were restored from disk. Readers that acknowledged this state before the restart
//! receive only the changes since then.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use super::applied::Applied;
use super::objects::{Change, Objects};
use informer_hub_types::StoredObject;

/// State of a partition when it was restored. Kept until every reader (sink or durable subscription) that had received
/// this state before the restart has reconnected.
pub struct Restored {
    waiting: Mutex<Waiting>,
}

struct Waiting {
    /// Whether the partition's first list was complete when it was saved.
    synced: bool,
    /// Whether no informer has opened the partition yet.
    is_fresh: bool,
    readers: BTreeSet<String>,
    objects: Option<Objects>,
    /// By reader (sink or durable subscription): the objects of events that it received after the last checkpoint.
    delivered: BTreeMap<String, Vec<Arc<StoredObject>>>,
}

impl Waiting {
    /// Removes a reader (sink or durable subscription) that has reconnected. Returns whether the reader has received
    /// the end of the first list, and the state that it last received.
    ///
    /// Returns `None` if the reader has received nothing, or has reconnected before.
    fn take(&mut self, name: &str) -> Option<(bool, Objects)> {
        let delivered = self.delivered.remove(name);
        if !self.readers.remove(name) {
            // The reader did not acknowledge the restored state, so it has only the delivered objects.
            let mut state = Objects::default();
            for object in delivered? {
                state.insert(object);
            }
            return Some((false, state));
        }
        let objects = if self.readers.is_empty() { self.objects.take() } else { self.objects.clone() };
        let mut state = objects?;
        for object in delivered.unwrap_or_default() {
            // A state with a body is preferred to a newer one of the same object without.
            let is_worth_less = |stored: &Arc<StoredObject>| stored.uid() == object.uid() && !object.is_kept();
            if !state.get(object.key()).is_some_and(is_worth_less) {
                state.insert(object);
            }
        }
        Some((self.synced, state))
    }
}

impl Restored {
    /// Creates the state of a restored partition that no informer has opened yet.
    pub(super) fn new(synced: bool, readers: BTreeSet<String>, objects: Option<Objects>) -> Self {
        let waiting = Waiting { synced, is_fresh: true, readers, objects, delivered: BTreeMap::new() };
        Self { waiting: Mutex::new(waiting) }
    }

    /// Marks the partition as not opened by any informer, as after a restore.
    pub(super) fn set_fresh(&self) {
        self.waiting.lock().is_fresh = true;
    }

    /// Marks the partition as opened by an informer. Returns whether no informer had opened it before.
    pub(super) fn open(&self) -> bool {
        std::mem::take(&mut self.waiting.lock().is_fresh)
    }

    /// Returns whether `objects` is still the restored state, unmodified. Also true if the restored state was dropped,
    /// because no reader needs it any more.
    pub(super) fn has_objects(&self, objects: &Objects) -> bool {
        self.waiting.lock().objects.as_ref().is_none_or(|restored| restored.is_same(objects))
    }

    /// Returns the readers (sinks and durable subscriptions) that acknowledged the whole restored state and have not
    /// reconnected.
    #[must_use]
    pub fn readers(&self) -> BTreeSet<String> {
        self.waiting.lock().readers.clone()
    }

    /// Returns whether this reader (sink or durable subscription) acknowledged the whole restored state and has not
    /// reconnected.
    #[must_use]
    pub fn has_reader(&self, name: &str) -> bool {
        self.waiting.lock().readers.contains(name)
    }

    /// Returns the readers (sinks and durable subscriptions) that received objects of this partition before the restart
    /// and have not reconnected.
    #[must_use]
    pub fn awaited(&self) -> BTreeSet<String> {
        let waiting = self.waiting.lock();
        waiting.readers.iter().chain(waiting.delivered.keys()).cloned().collect()
    }

    /// Records the object of an event that a reader (sink or durable subscription) received after the last checkpoint.
    /// A later call for the same object replaces the earlier state.
    pub fn note_delivered(&self, reader: &str, object: Arc<StoredObject>) {
        self.waiting.lock().delivered.entry(reader.to_owned()).or_default().push(object);
    }

    /// Stops waiting for readers (sinks and durable subscriptions) to reconnect. A reader that reconnects later is
    /// treated as a new one.
    pub fn give_up(&self) {
        let mut waiting = self.waiting.lock();
        waiting.readers.clear();
        waiting.delivered.clear();
        waiting.objects = None;
    }

    /// Returns whether no informer has opened the partition yet.
    #[must_use]
    pub fn is_fresh(&self) -> bool {
        self.waiting.lock().is_fresh
    }

    /// Removes a reader (sink or durable subscription) that has reconnected. Returns whether the reader has received
    /// the end of the first list. Also returns the changes that lead from its last received state to the state `now`.
    ///
    /// Returns `None` if the reader has received nothing, or has reconnected before.
    pub(super) fn reconnect(&self, name: &str, now: &Objects) -> Option<(bool, Vec<Applied>)> {
        let (synced, state) = self.waiting.lock().take(name)?;
        let mut since = Vec::new();
        state.changes(now, |change| match change {
            Change::Added(new) => since.push(Applied::Added(Arc::clone(new))),
            Change::Removed(old) => since.push(deleted(old)),
            Change::Exchanged(old, new) if old.uid() != new.uid() => {
                since.extend([deleted(old), Applied::Added(Arc::clone(new))]);
            }
            Change::Exchanged(old, new) if old.resource_version() != new.resource_version() => {
                since.push(Applied::Updated { old: Arc::clone(old), new: Arc::clone(new) });
            }
            Change::Exchanged(..) => {}
        });
        Some((synced, since))
    }
}

fn deleted(old: &Arc<StoredObject>) -> Applied {
    Applied::Deleted { stored: Arc::clone(old), last: Arc::clone(old), tombstone: true }
}

impl fmt::Debug for Restored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Restored").field("readers", &self.readers()).finish_non_exhaustive()
    }
}
