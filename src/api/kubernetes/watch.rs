//! Watches: reads changes from a cache's window of recent changes (`cache/history`) and writes them as events.
//!
//! A watch has no queue. It reads the window from its position whenever there are changes and the client has received
//! the previous events. A client that falls behind the window gets an `ERROR` event with 410 and lists again.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;

use super::encode::Encoder;
use super::frames::{EventType, Frames};
use super::listing::Scan;
use super::omitted::OmittedPlaces;
use super::scope::{Clusters, Scope};
use super::selection::Selection;
use super::shared_frames::SharedFrames;
use crate::api::rights::{Extent, Place, Reviewer, RightsCheck, SeenLabels};
use crate::cache::{
    ChangeKind, HistoryCursor, HistoryReader, HistoryScope, HistorySubscription, LocateError, RecordedChange,
};
use informer_hub_kubeapi::Status;
use informer_hub_types::StoredObject;
use informer_hub_types::clock::{self, Instant};

/// Time between bookmarks.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(50);

/// Number of bytes after which a chunk of events ends.
const CHUNK: usize = 64 << 10;

/// Maximum number of changes per read of the window of recent changes.
const BATCH: usize = 256;

/// Options of a watch that decide how it begins and ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct WatchOptions {
    /// Whether the client accepts bookmarks.
    pub(super) bookmarks: bool,
    /// Version of the bookmark after the initial state (`sendInitialEvents`); `None` if none is wanted.
    pub(super) end_bookmark: Option<u64>,
    /// Resource version of the cluster that the client has, if the hub has not reached it yet; otherwise `None`.
    /// Changes up to this version are left out, because the client knows them.
    pub(super) skipped: Option<u64>,
    /// Time at which the watch ends.
    pub(super) until: Instant,
}

/// Text of the event that ends or refuses a watch because the reader's rights have changed. Clients then list again.
pub(super) const OTHER_RIGHTS: &str = "the rights of the reader have changed";

/// A running watch.
#[derive(Debug)]
pub(super) struct Watch {
    scope: Scope,
    selection: Arc<Selection>,
    frames: Frames,
    shared: SharedFrames,
    history: HistoryReader,
    changes_of: HistoryScope,
    changed: HistorySubscription,
    cursor: HistoryCursor,
    /// Scan of the initial state; `None` once it is written.
    initial: Option<Scan>,
    options: WatchOptions,
    /// Whether the client may still have a newer version (`options.skipped`) than the hub.
    is_ahead: bool,
    rights: RightsCheck,
    reviewer: Reviewer,
    /// Namespaces whose older objects the client may lack; `None` if the reader's rights do not come from access
    /// reviews.
    omitted: Option<OmittedPlaces>,
    labels: SeenLabels,
    next_bookmark: Instant,
    /// Changes that were read and are not written yet, newest first.
    pending: Vec<Arc<RecordedChange>>,
    /// Whether the watch ends once everything is written, because the hub shuts down.
    is_ending: bool,
    is_ended: bool,
    events: u64,
}

impl Watch {
    /// Creates a watch that begins at the position `cursor`. `initial` reads the objects at that position, if they are
    /// sent before the changes.
    pub(super) fn new(
        scope: Scope,
        selection: Arc<Selection>,
        (encoder, shared): (Encoder, SharedFrames),
        (cursor, initial): (HistoryCursor, Option<Scan>),
        options: WatchOptions,
        (reviewer, omitted): (Reviewer, Option<OmittedPlaces>),
    ) -> Self {
        let history = scope.cache.history.clone();
        let changes_of = scope.changes();
        let changed = history.subscribe(&changes_of);
        let frames = Frames::new(encoder, &scope.cache.resource);
        let mut labels = SeenLabels::default();
        scope.have_labels_changed(&mut labels);
        Self {
            scope,
            selection,
            frames,
            shared,
            history,
            changes_of,
            changed,
            cursor,
            initial,
            options,
            is_ahead: options.skipped.is_some(),
            rights: reviewer.check(),
            reviewer,
            omitted,
            labels,
            next_bookmark: clock::now() + BOOKMARK_INTERVAL,
            pending: Vec::new(),
            is_ending: false,
            is_ended: false,
            events: 0,
        }
    }

    /// Waits for the next events; `None` at the end. `closing` completes when the hub shuts down.
    ///
    /// # Cancel safety
    /// Not cancel safe: events that were not returned are lost.
    pub(super) async fn next(&mut self, closing: impl Future<Output = ()>) -> Option<Bytes> {
        let mut closing = std::pin::pin!(closing);
        let mut out = Vec::new();
        while !self.is_ended {
            if !self.has_rights().await {
                self.fail(&Status::expired(OTHER_RIGHTS), &mut out);
                return Some(out.into());
            }
            let is_current = self.write(&mut out);
            if let Some(status) = self.frames.failure() {
                self.fail(&status, &mut out);
            }
            if out.is_empty() && is_current && self.is_ending {
                self.end(&mut out);
            }
            if !out.is_empty() {
                return Some(out.into());
            }
            if self.is_ended || !is_current {
                if !self.review_next().await {
                    self.fail(&Status::expired(OTHER_RIGHTS), &mut out);
                    return Some(out.into());
                }
                tokio::task::yield_now().await;
                continue;
            }
            let wake = self.options.until.min(self.next_bookmark);
            let wake = self.rights.next().map_or(wake, |check| wake.min(check));
            tokio::select! {
                () = self.changed.changed() => {}
                () = tokio::time::sleep_until(wake) => self.tick(&mut out),
                () = closing.as_mut(), if !self.is_ending => self.is_ending = true,
            }
            if !out.is_empty() {
                return Some(out.into());
            }
        }
        None
    }

    /// Returns whether the reader still has the rights that it had. True if no check is due. Clusters that leave
    /// several checks in a row unanswered count as having revoked the rights.
    async fn has_rights(&mut self) -> bool {
        let is_due = self.rights.is_due();
        if !self.rights.holds() {
            return false;
        }
        if !is_due {
            return true;
        }
        if self.scope.have_labels_changed(&mut self.labels) || !self.reviewer.has_same(&self.scope.visibility).await {
            return false;
        }
        match &mut self.omitted {
            Some(omitted) => omitted.are_still().await,
            None => true,
        }
    }

    /// Returns false if the cluster has to be asked whether the reader may see the object of a change.
    fn is_decided(&self, change: &RecordedChange) -> bool {
        let origin = &change.origin;
        let namespace = change.object.key().namespace();
        !self.scope.naming.is_fleet()
            || self.selection.excludes_namespace(namespace.unwrap_or_default())
            || self.scope.visibility.is_decided(&origin.cluster, &origin.cluster_labels, namespace)
    }

    /// Asks the cluster of the next change whether the reader may see the namespace of the changed object, unless that
    /// is known. Returns false if the client must list again: the reader may see the namespace, and the client may lack
    /// older objects in it.
    async fn review_next(&mut self) -> bool {
        let Some(change) = self.pending.last().filter(|change| !self.is_decided(change)) else { return true };
        let change = Arc::clone(change);
        let place = Place {
            cluster: change.origin.cluster.clone(),
            labels: change.origin.cluster_labels.clone(),
            extent: Extent::of(change.object.key().namespace()),
        };
        self.scope.visibility = self.reviewer.with(&self.scope.visibility, place).await;
        let (origin, namespace) = (&change.origin, change.object.key().namespace());
        !self.scope.visibility.sees(&origin.cluster, &origin.cluster_labels, namespace)
            || !self.omitted.as_ref().is_some_and(|omitted| omitted.refuse(&origin.cluster, namespace))
    }

    /// Returns the number of events written.
    pub(super) fn events(&self) -> u64 {
        self.events
    }

    fn tick(&mut self, out: &mut Vec<u8>) {
        let now = clock::now();
        if now >= self.options.until {
            self.end(out);
        } else if now >= self.next_bookmark {
            self.next_bookmark = now + BOOKMARK_INTERVAL;
            self.bookmark(out);
        }
    }

    /// Ends the watch with a bookmark, so that the client resumes from the newest version.
    fn end(&mut self, out: &mut Vec<u8>) {
        self.is_ended = true;
        self.bookmark(out);
    }

    fn fail(&mut self, status: &Status, out: &mut Vec<u8>) {
        self.is_ended = true;
        self.frames.error(status, out);
    }

    /// Writes the pending events, up to a chunk. Returns whether everything is written.
    fn write(&mut self, out: &mut Vec<u8>) -> bool {
        if self.initial.is_some() {
            self.write_initial(out);
            return false;
        }
        let mut is_current = false;
        if self.pending.is_empty() {
            if self.is_removed() {
                let text = "the hub no longer watches the resource in this cluster, or watches another version of it";
                self.fail(&Status::expired(text), out);
                return true;
            }
            let mut changes = std::mem::take(&mut self.pending);
            match self.history.read(&self.changes_of, &mut self.cursor, BATCH, &mut changes) {
                Ok(has_all) => is_current = has_all,
                Err(expired) => {
                    let version = self.cursor.version();
                    self.fail(&Status::watch_expired(version, expired.oldest), out);
                    return true;
                }
            }
            if let Some(expired) = self.skipped_by_list() {
                self.fail(&expired, out);
                return true;
            }
            changes.reverse();
            self.pending = changes;
        }
        while out.len() < CHUNK
            && let Some(change) = self.pending.pop()
        {
            if !self.is_decided(&change) {
                self.pending.push(change);
                return false;
            }
            self.write_change(&change, out);
        }
        is_current && self.pending.is_empty()
    }

    /// Returns an error if the client had a newer version than the hub, and the hub has passed that version by a list.
    ///
    /// The client may have objects that were deleted before that list. The hub never saw them, so it cannot report
    /// their deletion.
    fn skipped_by_list(&mut self) -> Option<Status> {
        let Clusters::One(cluster) = &self.scope.clusters else { return None };
        let skipped = self.options.skipped.filter(|_| self.is_ahead)?;
        match self.scope.snapshot().locate(cluster, skipped) {
            Err(LocateError::Expired { oldest }) => Some(Status::watch_expired(skipped, oldest.unwrap_or_default())),
            Err(LocateError::Future { .. }) => None,
            Ok(_) => {
                self.is_ahead = false;
                None
            }
        }
    }

    /// Returns whether the hub no longer watches the resource in the only cluster of this watch. The objects still
    /// exist in the cluster, so they are not reported as deleted.
    fn is_removed(&self) -> bool {
        matches!(self.scope.clusters, Clusters::One(_))
            && !self.history.is_closed()
            && !self.scope.has_synced(&self.scope.cache.published.load())
    }

    fn write_initial(&mut self, out: &mut Vec<u8>) {
        let Some(scan) = &mut self.initial else { return };
        let (frames, events) = (&mut self.frames, &mut self.events);
        let has_more = scan.advance(|(object, origin)| {
            *events += 1;
            frames.event(EventType::Added, object, origin, None, out);
            out.len() < CHUNK
        });
        if !has_more {
            self.initial = None;
            if let Some(version) = self.options.end_bookmark {
                self.frames.bookmark(version, true, out);
            }
        }
    }

    /// Writes a change as an event. Objects that begin or cease to match the selection appear as added or deleted.
    fn write_change(&mut self, change: &RecordedChange, out: &mut Vec<u8>) {
        let is_fleet = self.frames.naming().is_fleet();
        if self.options.skipped.is_some_and(|skipped| self.is_known(change, skipped)) {
            return;
        }
        let cluster = &change.origin.cluster;
        let namespace = change.object.key().namespace();
        if !self.scope.visibility.sees(cluster, &change.origin.cluster_labels, namespace) {
            if let Some(omitted) = &mut self.omitted
                && !self.selection.excludes_namespace(namespace.unwrap_or_default())
            {
                omitted.omit(cluster, namespace);
            }
            return;
        }
        let is_unique = self.frames.is_unique();
        let selected = |object: &StoredObject| self.selection.matches(object, cluster, is_unique);
        let (old, new) = (change.old.as_ref().unwrap_or(&change.object), &change.object);
        let (had, has) = match change.kind {
            ChangeKind::Added => (false, selected(new)),
            ChangeKind::Modified => (selected(old), selected(new)),
            ChangeKind::Deleted => (selected(old), false),
        };
        let (event, object) = match (had, has) {
            (false, false) => return,
            (false, true) => (EventType::Added, new),
            (true, true) => (EventType::Modified, new),
            (true, false) if change.kind == ChangeKind::Deleted => (EventType::Deleted, new),
            // The object no longer matches: kube-apiserver sends its last matching state.
            (true, false) => (EventType::Deleted, old),
        };
        // At a cluster root an object has its own version; only a deletion is newer than the state it shows.
        let version = if is_fleet { Some(change.version) } else { change.cluster_version };
        let version = version.filter(|_| is_fleet || event == EventType::Deleted);
        self.events += 1;
        let (frames, origin) = (&mut self.frames, &change.origin);
        match frames.shared_encoding(event, origin, version) {
            Some(encoding) => self.shared.append(object, encoding, out, |out| {
                frames.event(event, object, origin, version, out);
            }),
            None => frames.event(event, object, origin, version, out),
        }
    }

    /// Returns whether a client that has reached the cluster's version `skipped` already knows a change.
    ///
    /// The version of the changed object is compared, because the hub gives some changes versions that do not exist in
    /// the cluster. A deletion that the hub found by a list has no version in the cluster. It counts as known only if
    /// the next change re-creates the object at a version that the client knows.
    fn is_known(&self, change: &RecordedChange, skipped: u64) -> bool {
        let own = |change: &RecordedChange| change.object.resource_version().as_number();
        let is_seen = |change: &RecordedChange| own(change).is_some_and(|version| version <= skipped);
        if change.kind != ChangeKind::Deleted || own(change) == change.cluster_version {
            return is_seen(change);
        }
        let next = self.pending.iter().rev().find(|next| next.object.key() == change.object.key());
        next.is_some_and(|next| next.kind == ChangeKind::Added && is_seen(next))
    }

    /// Writes a bookmark, if the client accepts them and everything before it is written.
    fn bookmark(&mut self, out: &mut Vec<u8>) {
        if !self.options.bookmarks || self.initial.is_some() || !self.pending.is_empty() {
            return;
        }
        let version = if self.frames.naming().is_fleet() {
            Some(self.cursor.version())
        } else {
            // The newest state's version is that of this watch only if it has written all changes.
            let snapshot = self.scope.snapshot();
            self.scope.cluster_version(&snapshot).filter(|_| snapshot.version() <= self.cursor.version())
        };
        // A client that is ahead of the hub must not go back.
        if let Some(version) = version.filter(|version| self.options.skipped <= Some(*version)) {
            self.frames.bookmark(version, false, out);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(omitted) = &mut self.omitted {
            omitted.reach(self.scope.point_of(&self.cursor));
        }
    }
}
