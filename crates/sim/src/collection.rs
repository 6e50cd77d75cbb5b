//! Objects of one resource, their recent event history, and the snapshots that paged lists read.

use std::collections::VecDeque;
use std::sync::Arc;

use imbl::OrdMap;
use serde_json::Value;

use super::object::{Event, EventKind, SimObject};
use informer_hub_types::{ApiResource, Gvr, ObjectKey};

/// Number of snapshots kept for continue tokens and lists of an exact version; older ones expire.
const SNAPSHOTS: usize = 32;

/// All objects of a resource at one version.
pub(super) type Objects = OrdMap<ObjectKey, Arc<SimObject>>;

/// Resource that a simulated cluster serves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResourceDef {
    /// Group, version, resource, kind, scope.
    pub api: ApiResource,
    /// Singular name, as discovery shows it.
    pub singular: String,
    /// Short names, as discovery shows them.
    pub short_names: Vec<String>,
    /// Whether the resource is a custom resource. List items of custom resources carry `kind` and `apiVersion`; items
    /// of built-in types do not.
    pub custom: bool,
}

impl ResourceDef {
    /// Creates a resource whose singular name is its lowercase kind, without short names.
    #[must_use]
    pub fn new(gvr: &Gvr, kind: &str, namespaced: bool, custom: bool) -> Self {
        Self {
            api: ApiResource { gvr: gvr.clone(), kind: kind.into(), namespaced },
            singular: kind.to_lowercase(),
            short_names: Vec::new(),
            custom,
        }
    }

    /// Adds a short name.
    #[must_use]
    pub fn short_name(mut self, name: &str) -> Self {
        self.short_names.push(name.to_owned());
        self
    }
}

/// Position of a watch in a resource's history.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Cursor(u64);

/// Error: the requested history was dropped, so the watcher must list again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Expired;

#[derive(Clone, Debug)]
pub(super) struct Collection {
    def: ResourceDef,
    /// The cluster's resourceVersion when this collection was created. Distinguishes two collections of the same
    /// resource.
    created_at: u64,
    objects: Objects,
    /// Latest events, oldest first; at most `capacity`.
    history: VecDeque<Arc<Event>>,
    capacity: usize,
    /// Sequence number of the first event in `history`. The first event of the collection had the number 0.
    first: u64,
    /// Highest version whose event was dropped from `history`. A watch cannot start from an older version.
    floor: u64,
    /// resourceVersion of the last event.
    last: u64,
    snapshots: VecDeque<(u64, Objects)>,
}

impl Collection {
    pub(super) fn new(def: ResourceDef, capacity: usize, floor: u64) -> Self {
        let (objects, history, snapshots) = (Objects::new(), VecDeque::new(), VecDeque::new());
        let (created_at, capacity) = (floor, capacity.max(1));
        Self { def, created_at, objects, history, capacity, first: 0, floor, last: floor, snapshots }
    }

    pub(super) fn def(&self) -> &ResourceDef {
        &self.def
    }

    pub(super) fn created_at(&self) -> u64 {
        self.created_at
    }

    pub(super) fn objects(&self) -> &Objects {
        &self.objects
    }

    pub(super) fn put(&mut self, object: SimObject) {
        let object = Arc::new(object);
        let previous = self.objects.insert(object.key().clone(), Arc::clone(&object));
        let kind = if previous.is_some() { EventKind::Modified } else { EventKind::Added };
        self.record(Event::new(kind, object, previous));
    }

    /// Changes all objects without events, so that watches do not see the changes.
    pub(super) fn rewrite(&mut self, change: impl Fn(&mut Value)) {
        let ApiResource { gvr, kind, .. } = &self.def.api;
        let rewritten = self.objects.iter().map(|(key, object)| {
            let mut body = object.value();
            change(&mut body);
            (key.clone(), Arc::new(SimObject::encode(gvr, kind, object.version(), body)))
        });
        self.objects = rewritten.collect();
    }

    /// Removes the object with the key of `last_state` and records the event.
    pub(super) fn remove(&mut self, last_state: SimObject) {
        let previous = self.objects.remove(last_state.key());
        self.record(Event::new(EventKind::Deleted, Arc::new(last_state), previous));
    }

    fn record(&mut self, event: Event) {
        self.last = event.object.version();
        self.history.push_back(Arc::new(event));
        while self.history.len() > self.capacity {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(event) = self.history.pop_front() {
            self.first += 1;
            self.floor = self.floor.max(event.object.version());
        }
    }

    /// Drops the history and all snapshots. Versions older than `version`, the cluster's current one, expire.
    pub(super) fn compact(&mut self, version: u64) {
        while !self.history.is_empty() {
            self.drop_oldest();
        }
        self.floor = self.floor.max(version);
        self.snapshots.clear();
    }

    /// Returns the position of the first event after `version`.
    pub(super) fn cursor_after(&self, version: u64) -> Result<Cursor, Expired> {
        if version < self.floor {
            return Err(Expired);
        }
        let skipped = self.history.partition_point(|event| event.object.version() <= version);
        Ok(Cursor(self.first + skipped as u64))
    }

    /// Returns the position after the last event.
    pub(super) fn end(&self) -> Cursor {
        Cursor(self.first + self.history.len() as u64)
    }

    /// Returns up to `limit` events from `cursor` on and advances `cursor`.
    pub(super) fn read(&self, cursor: &mut Cursor, limit: usize) -> Result<Vec<Arc<Event>>, Expired> {
        let skip = cursor.0.checked_sub(self.first).ok_or(Expired)?;
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        let events: Vec<_> = self.history.iter().skip(skip).take(limit).cloned().collect();
        cursor.0 += events.len() as u64;
        Ok(events)
    }

    /// Keeps a snapshot of the current state for later pages of a list at `version`.
    pub(super) fn keep_snapshot(&mut self, version: u64) {
        if self.snapshots.iter().any(|(kept, _)| *kept == version) {
            return;
        }
        self.snapshots.push_back((version, self.objects.clone()));
        if self.snapshots.len() > SNAPSHOTS {
            self.snapshots.pop_front();
        }
    }

    /// Returns the objects as of `version`: the current ones if nothing has changed since, else those of a kept
    /// snapshot. `None` if there is no such snapshot. `now` is the cluster's current version.
    pub(super) fn at(&self, version: u64, now: u64) -> Option<Objects> {
        if version >= self.last.max(self.floor) && version <= now {
            return Some(self.objects.clone());
        }
        self.snapshots.iter().find(|(kept, _)| *kept == version).map(|(_, objects)| objects.clone())
    }
}
