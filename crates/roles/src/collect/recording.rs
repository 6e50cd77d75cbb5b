//! Conversion of watch events into records of the log: which events are new to the log, and which version it has
//! reached. Pure: no I/O.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use informer_hub_fleet::{PartitionState, Record, ResetReason};
use informer_hub_reflector::WatchItem;
use informer_hub_types::clock::Instant;
use informer_hub_types::{ObjectKey, ResourceVersion, StoredObject};

/// State of a watch whose events are recorded.
#[derive(Clone, Copy, Debug)]
pub(super) struct WatchState {
    /// Whether the initial events of a streaming list are still arriving.
    pub(super) initial: bool,
    /// Whether ADDED events advance the version up to which the log is complete. False for the first events of a watch
    /// without a version, which come in no order.
    pub(super) ordered: bool,
}

/// Turns the watch events of one partition into records for the log. Leaves out events that the log has already.
#[derive(Debug, Default)]
pub(super) struct Recording {
    position: Option<Position>,
    /// State of the log from which the watch was resumed. A watch event that this state already contains is a
    /// repetition.
    restored: PartitionState,
    progressed: Option<Instant>,
    keep_alive: Duration,
}

/// Position up to which events have been recorded. Of the events at exactly `version`, only some may be recorded.
#[derive(Debug)]
struct Position {
    version: ResourceVersion,
    /// Objects whose events at exactly `version` were recorded; `None` if all were recorded. Several events may have
    /// one version: when an etcd lease expires, etcd deletes all Kubernetes Events with that lease in one revision.
    recorded: Option<HashSet<ObjectKey>>,
}

impl Position {
    /// Returns the position after all events of a version.
    fn after(version: ResourceVersion) -> Self {
        Self { version, recorded: None }
    }

    /// Returns whether all changes up to a version were recorded.
    fn has(&self, version: &ResourceVersion) -> bool {
        self.version == *version || self.version.newer_than(version)
    }

    /// Returns whether the event of an object at a version was recorded.
    fn has_event(&self, version: &ResourceVersion, key: &ObjectKey) -> bool {
        match &self.recorded {
            Some(recorded) if self.version == *version => recorded.contains(key),
            _ => self.has(version),
        }
    }
}

impl Recording {
    pub(super) fn new(keep_alive: Duration) -> Self {
        Self { keep_alive, ..Self::default() }
    }

    /// Starts from the restored state of a log to which this process has not written.
    pub(super) fn begin(&mut self, restored: PartitionState) {
        self.position = restored.resume.clone().map(Position::after);
        self.restored = restored;
    }

    /// Resumes from the restored state of a log to which this process has written. Does not change `position`, which
    /// may be newer than this state.
    pub(super) fn repeat(&mut self, restored: PartitionState) {
        self.restored = restored;
    }

    /// Returns the record that announces a full list. Clears the position and the restored state.
    pub(super) fn reset(&mut self) -> Record {
        (self.position, self.restored) = (None, PartitionState::default());
        Record::Reset { reason: ResetReason::Restart }
    }

    /// Returns the record which states that all changes up to `version` are in the log.
    pub(super) fn progress(&mut self, version: ResourceVersion, now: Instant) -> Record {
        self.progressed = Some(now);
        if !self.is_at(&version) {
            self.position = Some(Position::after(version.clone()));
        }
        self.restored.unconfirmed.retain(|_, seen| seen.newer_than(&version));
        Record::Progress { version }
    }

    /// Adds the records of watch events to `records`, and returns the events to pass on: an event that the restored
    /// state contains becomes a bookmark.
    pub(super) fn batch(
        &mut self,
        watch: &mut WatchState,
        items: Vec<WatchItem>,
        now: Instant,
        records: &mut Vec<Record>,
    ) -> Vec<WatchItem> {
        let mut reached = None;
        let passed = items.into_iter().map(|item| self.item(watch, item, now, records, &mut reached)).collect();
        let is_due = self.progressed.is_none_or(|at| now.duration_since(at) >= self.keep_alive);
        if let Some(version) = reached.filter(|_| !watch.initial && (is_due || !records.is_empty())) {
            records.push(self.progress(version, now));
        }
        passed
    }

    fn item(
        &mut self,
        watch: &mut WatchState,
        item: WatchItem,
        now: Instant,
        records: &mut Vec<Record>,
        reached: &mut Option<ResourceVersion>,
    ) -> WatchItem {
        let (object, is_added) = match &item {
            WatchItem::Bookmark { version, initial_events_end: true } if watch.initial => {
                (watch.initial, watch.ordered) = (false, true);
                records.push(self.progress(version.clone(), now));
                return item;
            }
            WatchItem::Bookmark { version, .. } => {
                if !watch.initial
                    && !version.is_any()
                    && !self.position.as_ref().is_some_and(|position| position.has(version))
                {
                    watch.ordered = true;
                    *reached = Some(version.clone());
                }
                return item;
            }
            WatchItem::Skipped(_) => return item,
            WatchItem::Added(object) => (object, true),
            WatchItem::Modified(object) | WatchItem::Deleted(object) => (object, false),
        };
        let version = object.resource_version();
        if watch.initial {
            records.extend(record(&item));
            return item;
        }
        watch.ordered |= !is_added;
        if self.restored.repeats(object.key(), version) {
            return WatchItem::Bookmark { version: version.clone(), initial_events_end: false };
        }
        let has_event = |position: &Position| position.has_event(version, object.key());
        if watch.ordered && self.position.as_ref().is_some_and(has_event) {
            // An earlier watch has recorded this event.
            return item;
        }
        records.extend(record(&item));
        if watch.ordered && !version.is_empty() {
            if !self.is_at(version) {
                self.position = Some(Position { version: version.clone(), recorded: Some(HashSet::new()) });
            }
            if let Some(Position { recorded: Some(recorded), .. }) = &mut self.position {
                recorded.insert(object.key().clone());
            }
            *reached = Some(version.clone());
        }
        item
    }

    fn is_at(&self, version: &ResourceVersion) -> bool {
        self.position.as_ref().is_some_and(|position| position.version == *version)
    }
}

/// Returns the record of an object in a list.
pub(super) fn put(object: &StoredObject) -> Record {
    let (key, uid, version) = (object.key().clone(), object.uid().clone(), object.resource_version().clone());
    Record::Put { key, uid, version, body: body(object) }
}

fn record(item: &WatchItem) -> Option<Record> {
    Some(match item {
        WatchItem::Added(object) | WatchItem::Modified(object) => put(object),
        WatchItem::Deleted(object) => {
            let (key, uid, version) = (object.key().clone(), object.uid().clone(), object.resource_version().clone());
            Record::Delete { key, uid, version, last_state: body(object), tombstone: false }
        }
        WatchItem::Bookmark { .. } | WatchItem::Skipped(_) => return None,
    })
}

/// Returns the object as JSON; empty if the last state of a deleted object could not be decoded.
fn body(object: &StoredObject) -> Bytes {
    object.json().map(Bytes::from_owner).unwrap_or_default()
}
