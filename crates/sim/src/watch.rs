//! WATCH answers: initial events, history from a version on, live events, bookmarks, expiry.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use serde_json::json;

use super::collection::{Cursor, Expired, ResourceDef};
use super::fault::Fault;
use super::filter::Filter;
use super::http::Status;
use super::object::{Event, EventKind, SimObject};
use super::pump::{Source, Unit, expired};
use super::request::{ObjectsRequest, is_signal};
use super::shared::Shared;
use super::world::World;
use informer_hub_types::clock::{self, Instant};
use informer_hub_types::{ApiResource, Watcher};

/// Maximum number of events read from the history under one lock.
const BATCH: usize = 64;

/// Events of one watch, created on demand.
#[derive(Debug)]
pub(super) struct WatchSource {
    shared: Arc<Shared>,
    def: ResourceDef,
    /// Version at which the collection (the resource's objects and history) was created. It identifies the collection,
    /// since a removed resource can be created again.
    created_at: u64,
    /// Requested API version of the resource, if its objects are stored in another one; `None` otherwise.
    shown_as: Option<ApiResource>,
    /// Whether the counter `open_watches` includes this watch.
    counts: bool,
    filter: Filter,
    partial: bool,
    initial: VecDeque<Arc<SimObject>>,
    /// Version of the bookmark that ends the initial events; `None` once it is sent.
    marker: Option<u64>,
    /// Position in the history; `None` if the requested version had expired when the watch was opened.
    cursor: Option<Cursor>,
    pending: VecDeque<Arc<Event>>,
    position: u64,
    changed: Watcher<u64>,
    deadline: Instant,
    bookmarks: Option<Duration>,
    next_bookmark: Instant,
    ended: bool,
}

impl WatchSource {
    pub(super) fn open(
        shared: &Arc<Shared>,
        request: &ObjectsRequest,
        streaming: bool,
        fault: Option<&Fault>,
    ) -> Result<Self, Status> {
        let timeout = request.query.number("timeoutSeconds")?.filter(|&seconds| seconds > 0);
        let timeout = timeout.map_or(shared.config.watch_timeout, Duration::from_secs);
        let version = request.version()?.unwrap_or(0);
        let allowed = request.query.flag("allowWatchBookmarks");
        let regular = allowed && fault != Some(&Fault::NoBookmarks);
        let now = clock::now();
        // Subscribes before reading the world, so that no change is missed.
        let changed = shared.changes();
        shared.with_world(|world| {
            let current = world.version();
            if streaming && version > current {
                return Err(Status::too_large(version, current));
            }
            let collection = world.collection(&request.def.api.gvr).ok_or_else(|| request.not_found())?;
            let from_start = streaming || version == 0;
            let selected = || collection.objects().values().filter(|object| request.filter.matches(object));
            let marked = streaming && allowed && fault != Some(&Fault::WithholdMarker);
            let counts = !is_signal(&request.def.api.gvr);
            if counts {
                shared.counters.open_watches.fetch_add(1, Relaxed);
            }
            Ok(Self {
                created_at: collection.created_at(),
                shown_as: (collection.def().api.gvr != request.def.api.gvr).then(|| request.def.api.clone()),
                counts,
                shared: Arc::clone(shared),
                def: request.def.clone(),
                filter: request.filter.clone(),
                partial: request.partial,
                initial: if from_start { selected().cloned().collect() } else { VecDeque::new() },
                marker: marked.then_some(current),
                cursor: if from_start { Some(collection.end()) } else { collection.cursor_after(version).ok() },
                pending: VecDeque::new(),
                position: if from_start { current } else { version },
                changed,
                deadline: now + timeout,
                bookmarks: regular.then_some(shared.config.bookmark_every),
                next_bookmark: now + shared.config.bookmark_every,
                ended: false,
            })
        })
    }

    /// Adds new events of the history to `pending`. Returns whether `pending` has any event, and the cluster's current
    /// version.
    fn read(&mut self) -> Result<(bool, u64), Expired> {
        let Some(cursor) = &mut self.cursor else { return Err(Expired) };
        let (gvr, created_at) = (&self.def.api.gvr, self.created_at);
        let (events, version) = self.shared.with_world(|world: &mut World| {
            let version = world.version();
            let Some((collection, is_served)) = world.watched(gvr, created_at) else { return Ok((None, version)) };
            let events = collection.read(cursor, BATCH)?;
            Ok((Some(events).filter(|events| is_served || !events.is_empty()), version))
        })?;
        match events {
            Some(events) => self.pending.extend(events),
            // The resource is no longer served: the watch closes, and the next one gets 404.
            None => self.ended = true,
        }
        Ok((!self.pending.is_empty(), version))
    }

    /// Returns the event as this watch sends it. An object that enters the watch's selection is sent as ADDED, one that
    /// leaves it as DELETED. `None` if the object is in the selection neither before nor after the event.
    fn render(&self, event: &Event) -> Option<Unit> {
        let is = self.filter.matches(&event.object);
        let was =
            event.previous.as_ref().map_or(event.kind == EventKind::Deleted && is, |old| self.filter.matches(old));
        let kind = match (event.kind, was, is) {
            (EventKind::Deleted, true, _) | (_, true, false) => EventKind::Deleted,
            (EventKind::Deleted, false, _) | (_, false, false) => return None,
            (_, false, true) => EventKind::Added,
            (_, true, true) => EventKind::Modified,
        };
        // An object that leaves the selection is sent in its last selected state, with the version at which it left.
        let left = (kind == EventKind::Deleted && event.kind != EventKind::Deleted).then_some(event.previous.as_ref());
        let last_inside = left
            .flatten()
            .map(|old| Arc::new(old.at_version(&self.def.api.gvr, &self.def.api.kind, event.object.version())));
        let object = last_inside.as_ref().unwrap_or(&event.object);
        Some(self.event(kind, object))
    }

    fn event(&self, kind: EventKind, object: &SimObject) -> Unit {
        let json = match &self.shown_as {
            _ if self.partial => object.partial(),
            Some(other) => object.read_as(&other.gvr, &other.kind).json().clone(),
            None => object.json().clone(),
        };
        Unit::Event(kind.as_str(), json)
    }

    fn bookmark(&self, version: u64, ends_initial_events: bool) -> Unit {
        let api = &self.def.api;
        let mut metadata = json!({ "resourceVersion": version.to_string(), "creationTimestamp": null });
        if ends_initial_events {
            metadata["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        let (kind, api_version) = if self.partial {
            ("PartialObjectMetadata", "meta.k8s.io/v1".to_owned())
        } else {
            (api.kind.as_str(), api.gvr.api_version())
        };
        let object = json!({ "kind": kind, "apiVersion": api_version, "metadata": metadata });
        Unit::Event("BOOKMARK", object.to_string().into())
    }

    /// Returns the next event or a due bookmark; `None` if there is nothing to send now.
    fn ready(&mut self) -> Option<Unit> {
        if let Some(object) = self.initial.pop_front() {
            return Some(self.event(EventKind::Added, &object));
        }
        if let Some(version) = self.marker.take() {
            return Some(self.bookmark(version, true));
        }
        loop {
            while let Some(event) = self.pending.pop_front() {
                if event.object.version() <= self.position {
                    continue;
                }
                self.position = event.object.version();
                if let Some(unit) = self.render(&event) {
                    return Some(unit);
                }
            }
            match self.read() {
                Err(Expired) => {
                    self.ended = true;
                    return Some(Unit::Event("ERROR", expired().to_value().to_string().into()));
                }
                Ok((true, _)) => {}
                Ok((false, version)) => return self.bookmark_if_due(version),
            }
        }
    }

    fn bookmark_if_due(&mut self, version: u64) -> Option<Unit> {
        let now = clock::now();
        let every = self.bookmarks.filter(|_| !self.ended && now >= self.next_bookmark)?;
        self.next_bookmark = now + every;
        self.position = self.position.max(version);
        Some(self.bookmark(self.position, false))
    }
}

impl Source for WatchSource {
    const WATCH: bool = true;

    async fn next(&mut self) -> Option<Unit> {
        loop {
            if self.ended || clock::now() >= self.deadline {
                return None;
            }
            drop(self.changed.read_latest());
            if let Some(unit) = self.ready() {
                return Some(unit);
            }
            if self.ended {
                return None;
            }
            let wake = self.bookmarks.map_or(self.deadline, |_| self.next_bookmark.min(self.deadline));
            tokio::select! {
                biased;
                changed = self.changed.changed() => changed.ok()?,
                () = tokio::time::sleep_until(wake) => {}
            }
        }
    }

    fn position(&self) -> u64 {
        self.position
    }
}

impl Drop for WatchSource {
    fn drop(&mut self) {
        if self.counts {
            self.shared.counters.open_watches.fetch_sub(1, Relaxed);
        }
    }
}
