//! One resource of an event stream: first its existing objects, if the client requests them, then its window of recent
//! changes.

use std::collections::VecDeque;
use std::sync::Arc;

use super::change_filter::ChangeFilter;
use super::position::{Position, Unreadable, hash_of};
use crate::api::kubernetes::{CacheInfo, Warnings, is_visible};
use crate::api::rights::{Extent, Place, Reviewer, RightsCheck, SeenLabels};
use crate::api::v1::short_name;
use crate::cache::{
    HistoryCursor, HistoryReader, HistoryScope, HistorySubscription, PartitionId, RecordedChange, Snapshot,
};
use informer_hub_access::Visibility;
use informer_hub_types::{Notification, Object, ObjectKey, Origin};

/// Maximum number of changes per read of the window of recent changes.
const BATCH: usize = 256;

/// Maximum number of existing objects per read.
const SCAN: usize = 512;

/// Reason why the stream cannot continue at the client's position and starts anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Expired {
    /// The client has not read for too long.
    Gap,
    /// The position is older than the window of recent changes.
    TooOld,
    /// The position is not one of this hub, or lacks the resource.
    Unknown,
}

impl Expired {
    /// Returns the word for this reason in the event `expired`.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Gap => "gap",
            Self::TooOld => "position-too-old",
            Self::Unknown => "unknown-position",
        }
    }

    pub(super) fn message(self) -> &'static str {
        match self {
            Self::Gap => "changes were dropped before the client read them",
            Self::TooOld => "the changes after Last-Event-ID are no longer kept",
            Self::Unknown => "Last-Event-ID is no position of this hub for these resources",
        }
    }
}

/// Result of reading a feed, which returns the objects and changes of one resource.
#[derive(Debug)]
pub(super) enum Next {
    Item(Item),
    /// It is not known whether the reader may see the next object. [`Feed::review`] asks the cluster.
    Undecided,
    /// No item is available now.
    Nothing,
}

/// Item of a feed, which returns the objects and changes of one resource.
#[derive(Debug)]
pub(super) enum Item {
    /// An object that already existed when the stream began or started anew.
    Present(Notification),
    Change(Arc<RecordedChange>),
    /// All existing objects have been returned.
    Synced,
    Expired(Expired),
}

/// Reader of one resource's objects and changes for a stream.
#[derive(Debug)]
pub(super) struct Feed {
    cache: CacheInfo,
    name: String,
    hash: [u8; 4],
    scope: HistoryScope,
    subscription: HistorySubscription,
    cursor: HistoryCursor,
    /// Version in the window of recent changes up to which the stream has received the changes.
    version: u64,
    /// Existing objects that are still to be read; `None` once all objects are read.
    replay: Option<Replay>,
    items: VecDeque<Item>,
    /// Objects that the reader may see, as far as known from rules and access reviews.
    visibility: Visibility,
    reviewer: Reviewer,
    labels: SeenLabels,
}

/// Existing objects that are sent before changes, read informer by informer.
#[derive(Debug)]
struct Replay {
    snapshot: Arc<Snapshot>,
    /// Partitions (objects of one informer each) that are not read completely; the last one is being read.
    partitions: Vec<PartitionId>,
    after: Option<ObjectKey>,
}

impl Feed {
    /// Begins at the position of the client. Without a position, begins with the existing objects if the client
    /// requests them, else with the next change.
    pub(super) async fn begin(
        cache: CacheInfo,
        wanted: &ChangeFilter,
        known: Option<&Result<Position, Unreadable>>,
    ) -> Self {
        let (visibility, reviewer) = wanted.rights(&cache).await;
        let scope = wanted.scope();
        // Subscribed before anything is read, so that no change is missed.
        let subscription = cache.history.subscribe(&scope);
        let (name, hash) = (short_name(&cache.resource.gvr), hash_of(&cache.resource.gvr));
        let cursor = HistoryCursor::after(0);
        let (replay, items) = (None, VecDeque::new());
        let (version, labels) = (0, SeenLabels::default());
        let mut feed = Self {
            cache,
            name,
            hash,
            scope,
            subscription,
            cursor,
            version,
            replay,
            items,
            visibility,
            reviewer,
            labels,
        };
        feed.have_labels_changed(wanted);
        let version = known.map(|known| known.as_ref().ok().and_then(|known| known.version(feed.hash)));
        match version {
            None => feed.start(wanted),
            Some(version) => match feed.resume(version) {
                Ok(cursor) => (feed.version, feed.cursor) = (cursor.version(), cursor),
                Err(expired) => feed.expire(expired, wanted),
            },
        }
        feed
    }

    fn resume(&self, version: Option<u64>) -> Result<HistoryCursor, Expired> {
        let version = version.ok_or(Expired::Unknown)?;
        if version > self.history().newest() {
            return Err(Expired::Unknown);
        }
        self.history().resume(&self.scope, version).map_err(|_| Expired::TooOld)
    }

    /// Starts at the present state, with the existing objects if the request asks for them.
    fn start(&mut self, wanted: &ChangeFilter) {
        let snapshot = self.cache.published.load_full();
        self.version = snapshot.version();
        self.cursor = HistoryCursor::after(self.version);
        if wanted.replay {
            let is_wanted = |id: &PartitionId| {
                let partition = snapshot.partition(*id);
                partition.is_some_and(|partition| partition.has_synced() && wanted.selects(partition.origin()))
            };
            let mut partitions: Vec<_> = snapshot.partitions().map(|(id, _)| id).filter(is_wanted).collect();
            partitions.reverse();
            self.replay = Some(Replay { snapshot, partitions, after: None });
        }
    }

    fn expire(&mut self, expired: Expired, wanted: &ChangeFilter) {
        self.items.clear();
        self.items.push_back(Item::Expired(expired));
        self.start(wanted);
    }

    fn history(&self) -> &HistoryReader {
        &self.cache.history
    }

    /// Returns the resource as kubectl writes it.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns this resource's part of the stream's position: hash of the name, and version. `None` while existing objects
    /// are being sent.
    pub(super) fn position(&self) -> Option<([u8; 4], u64)> {
        let is_replaying = self.replay.is_some() || self.items.iter().any(|item| !matches!(item, Item::Change(_)));
        (!is_replaying).then_some((self.hash, self.version))
    }

    /// Adds a warning for each selected cluster whose objects may be outdated or missing.
    pub(super) fn warn(&self, wanted: &ChangeFilter, warnings: &mut Warnings) {
        let snapshot = self.cache.published.load();
        let may_have = |origin: &Origin| wanted.selects(origin) && is_visible(&self.visibility, origin);
        for (_, partition) in snapshot.partitions().filter(|(_, partition)| may_have(partition.origin())) {
            if partition.has_synced() {
                warnings.add(partition);
            } else {
                warnings.add_missing(&partition.origin().cluster);
            }
        }
        warnings.add_unanswered(&self.visibility);
    }

    pub(super) fn next(&mut self, wanted: &ChangeFilter) -> Next {
        if self.items.is_empty() {
            self.read(wanted);
        }
        if self.undecided(wanted).is_some() {
            return Next::Undecided;
        }
        let Some(item) = self.items.pop_front() else { return Next::Nothing };
        if let Item::Change(change) = &item {
            self.version = change.version;
        }
        if self.items.is_empty() && self.replay.is_none() {
            self.version = self.cursor.version();
        }
        Next::Item(item)
    }

    /// Returns cluster and namespace of the next object if it is not known whether the reader may see them; else `None`.
    fn undecided(&self, wanted: &ChangeFilter) -> Option<Place> {
        let (origin, object) = match self.items.front()? {
            Item::Present(notification) => notification.object().map(|object| (object.origin(), object.stored()))?,
            Item::Change(change) => (&change.origin, &change.object),
            Item::Synced | Item::Expired(_) => return None,
        };
        let (cluster, labels, namespace) = (&origin.cluster, &origin.cluster_labels, object.key().namespace());
        if !wanted.selects_namespace(namespace) || self.visibility.is_decided(cluster, labels, namespace) {
            return None;
        }
        Some(Place { cluster: cluster.clone(), labels: labels.clone(), extent: Extent::of(namespace) })
    }

    /// Asks the cluster of the next object whether the reader may see it, if that is not known yet.
    pub(super) async fn review(&mut self, wanted: &ChangeFilter) {
        if let Some(place) = self.undecided(wanted) {
            self.visibility = self.reviewer.with(&self.visibility, place).await;
        }
    }

    pub(super) fn sees(&self, object: &Object) -> bool {
        let origin = object.origin();
        self.visibility.sees(&origin.cluster, &origin.cluster_labels, object.stored().key().namespace())
    }

    /// Returns a periodic check of the reader's rights, which starts now.
    pub(super) fn check(&self) -> RightsCheck {
        self.reviewer.check()
    }

    /// Returns false if cluster labels or access reviews now show the reader other namespaces than before, so that the
    /// stream must end.
    pub(super) async fn has_same_rights(&mut self, wanted: &ChangeFilter) -> bool {
        !self.have_labels_changed(wanted) && self.reviewer.has_same(&self.visibility).await
    }

    fn have_labels_changed(&mut self, wanted: &ChangeFilter) -> bool {
        let snapshot = self.cache.published.load();
        let origins = snapshot.partitions().map(|(_, partition)| partition.origin());
        self.labels.changed(&self.visibility, |_| true, origins.filter(|origin| wanted.selects(origin)))
    }

    /// Reads the next objects or changes into `items`. A read may find none although more follow; [`Self::is_current`]
    /// then returns false.
    fn read(&mut self, wanted: &ChangeFilter) {
        if let Some(mut replay) = self.replay.take() {
            if replay.read(wanted, &mut self.items) {
                self.replay = Some(replay);
            } else {
                self.items.push_back(Item::Synced);
            }
            return;
        }
        let mut changes = Vec::new();
        match self.cache.history.read(&self.scope, &mut self.cursor, BATCH, &mut changes) {
            Ok(_) if changes.is_empty() => self.version = self.cursor.version(),
            Ok(_) => self.items.extend(changes.into_iter().map(Item::Change)),
            Err(_) => self.expire(Expired::Gap, wanted),
        }
    }

    /// Returns whether all existing objects and changes have been read and returned.
    pub(super) fn is_current(&self) -> bool {
        self.items.is_empty() && self.replay.is_none() && self.history().newest() <= self.cursor.version()
    }

    /// Waits until the cache records another change in the selected clusters.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn changed(&mut self) {
        self.subscription.changed().await;
    }
}

impl Replay {
    /// Reads the next existing objects into `items`. Returns whether there are more.
    fn read(&mut self, wanted: &ChangeFilter, items: &mut VecDeque<Item>) -> bool {
        let Some(partition) = self.partitions.last().and_then(|id| self.snapshot.partition(*id)) else { return false };
        let mut last = None;
        for object in partition.iter_after(self.after.as_ref()).take(SCAN) {
            items.extend(wanted.present(partition.origin(), object).map(Item::Present));
            last = Some(object.key().clone());
        }
        if last.is_none() {
            self.partitions.pop();
        }
        self.after = last;
        !self.partitions.is_empty()
    }
}
