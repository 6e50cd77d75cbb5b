//! List and watch of one resource, from checkpoint and log.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{self, StreamExt, TryStreamExt};
use informer_hub_codec::{Decoded, Decoder};
use informer_hub_fleet::checkpoint::CheckpointError;
use informer_hub_fleet::{Entry, EntryPage, Partition, ReadOutcome, Reader, Record, ResetReason, Sequence};
use informer_hub_reflector::{
    ErrorClass, ListRequest, ListStream, ListerWatcher, SourceError, VersionMatch, WatchBatch, WatchItem, WatchRequest,
    WatchStream,
};
use informer_hub_types::clock::{self, Instant};
use informer_hub_types::{ResourceVersion, StoredObject, exponential_backoff, with_causes};
use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;

use super::Shared;
use super::feed::Feed;
use super::live::Subscription;
use crate::backend::BackendError;
use crate::listed::{self, LogSource};
use crate::restore::{PAGE_BYTES, RestoreError, Restored, restore, restore_at};

/// First and longest pause between attempts to list while the log has no complete state.
const LOOK: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(4));
/// Maximum wait for a stale cluster to become current, and for the tail of the log to open.
const FRESH: Duration = Duration::from_secs(10);
/// How long the reflector keeps its objects after the log has lost the newest entries about them. In this time, a
/// collector should notice the loss with its next append, and store a newer state.
const HOLD: Duration = Duration::from_secs(300);

/// List and watch of one resource from the log; see the [module documentation](self).
pub(super) struct ServingSource(Arc<Served>);

struct Served {
    shared: Arc<Shared>,
    feed: Arc<Feed>,
    partition: Partition,
    decoder: Mutex<Decoder>,
    position: Mutex<Position>,
}

/// Position in the log up to which the reflector has received all changes.
#[derive(Default)]
struct Position {
    reader: Reader,
    /// Version of the last item passed to the reflector; `None` if the reflector has to list.
    version: Option<ResourceVersion>,
    /// Sequence up to which all entries of the partition have been read.
    covered: Sequence,
    /// Whether the log ended before this position at the last attempt to restore the objects. If the next attempt finds
    /// the same, the missing entries count as lost.
    was_short: bool,
    /// Set if the log has lost entries that the reflector has received: version of the reflector's objects, and when
    /// the loss was noticed.
    floor: Option<(ResourceVersion, Instant)>,
}

impl Position {
    /// Drops the position, because the log has lost entries up to it.
    fn lose(&mut self) {
        let floor = self.version.take().map(|version| (version, clock::now()));
        *self = Self { floor: floor.or(self.floor.take()), ..Self::default() };
    }

    /// Returns whether the log's state at version `at` is older than the reflector's objects. Returns `false` once
    /// [`HOLD`] has passed since the log lost entries.
    fn is_outdated(&self, at: &ResourceVersion) -> bool {
        self.floor.as_ref().is_some_and(|(floor, since)| floor.newer_than(at) && since.elapsed() < HOLD)
    }
}

impl ServingSource {
    pub(super) fn new(shared: Arc<Shared>, feed: Arc<Feed>, partition: Partition, decoder: Decoder) -> Self {
        let decoder = Mutex::new(decoder);
        Self(Arc::new(Served { shared, feed, partition, decoder, position: Mutex::default() }))
    }
}

impl ListerWatcher for ServingSource {
    fn list(&self, request: ListRequest) -> BoxFuture<'static, Result<ListStream, SourceError>> {
        let served = Arc::clone(&self.0);
        Box::pin(async move { served.list(&request.version).await })
    }

    fn watch(&self, request: WatchRequest) -> BoxFuture<'static, Result<WatchStream, SourceError>> {
        let served = Arc::clone(&self.0);
        Box::pin(async move {
            let end = clock::now() + request.timeout;
            if request.initial_events {
                let initial = listed::initial_events(Arc::clone(&served).list(&request.version).await?);
                return Ok(initial.chain(stream::once(served.follow(end)).try_flatten()).boxed());
            }
            served.begins_at(&request.version)?;
            served.follow(end).await
        })
    }

    /// Returns `None`: the versions of lists from the log may decrease, which the reflector would take for a restored
    /// etcd backup.
    fn current_version(&self) -> BoxFuture<'static, Result<Option<ResourceVersion>, SourceError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn trim(&self) {
        self.0.decoder.lock().trim();
    }
}

impl fmt::Debug for ServingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServingSource").field("partition", &self.0.partition).finish_non_exhaustive()
    }
}

impl LogSource for Served {
    fn decoder(&self) -> &Mutex<Decoder> {
        &self.decoder
    }

    fn unreadable(&self, error: &CheckpointError) -> SourceError {
        self.failed(ErrorClass::Transient, &with_causes(error))
    }
}

impl Served {
    fn failed(&self, class: ErrorClass, cause: &str) -> SourceError {
        SourceError { class, message: format!("log of {}: {cause}", self.partition) }
    }

    fn refused(&self, error: &BackendError) -> SourceError {
        self.failed(ErrorClass::Refused, &error.to_string())
    }

    fn last(&self) -> Sequence {
        self.position.lock().reader.state(&self.partition).map_or(0, |state| state.last)
    }

    /// Returns the state of the partition at the cursor, the version up to which an earlier process has delivered. Only
    /// the first list begins there. Returns `None` without a cursor, and for later lists, which must not be older than
    /// the first.
    async fn at_cursor(&self, version: &VersionMatch) -> Result<Option<Restored>, SourceError> {
        let Some(cursor) = &self.shared.params.cursor else { return Ok(None) };
        let has_begun = self.shared.begun.lock().contains(&self.partition);
        if has_begun || matches!(version, VersionMatch::NotOlderThan(_)) {
            return Ok(None);
        }
        let delivered = cursor.version(&self.partition).await;
        let delivered = delivered.map_err(|error| self.failed(ErrorClass::Refused, &error))?;
        let Some(version) = delivered else { return Ok(None) };
        let _permit = self.shared.restores.acquire().await;
        let restored = restore_at(&self.shared.backend, &self.partition, version, &self.shared.io).await;
        let restored = restored.map_err(|error| self.unrestored(error))?;
        if restored.is_none() {
            let partition = &self.partition;
            tracing::warn!(
                %partition, version,
                "the fleet's log of changes no longer has the last delivered version; objects deleted since then get no \
                 delete event"
            );
        }
        Ok(restored)
    }

    fn unrestored(&self, error: RestoreError) -> SourceError {
        match error {
            RestoreError::Backend(error) => self.refused(&error),
            RestoreError::Short(..) => {
                let failed = self.failed(ErrorClass::Transient, &with_causes(&error));
                let mut position = self.position.lock();
                // An outdated server may have answered once. The second time, the log has lost entries.
                if std::mem::replace(&mut position.was_short, true) {
                    position.lose();
                }
                failed
            }
            error => self.failed(ErrorClass::Transient, &with_causes(&error)),
        }
    }

    /// Waits until the log has a complete state that is not older than the reflector's objects. Returns this state, and
    /// a sequence up to which it contains all entries.
    async fn restored(&self, version: &VersionMatch) -> Result<(Restored, Sequence), SourceError> {
        let deadline = clock::now() + self.shared.params.patience;
        let mut attempts = 0;
        loop {
            // Read before the restore, so that the restored state has all entries up to this position.
            let covered = tokio::time::timeout(FRESH, self.shared.live.position()).await.unwrap_or(0);
            let restored = {
                let _permit = self.shared.restores.acquire().await;
                restore(&self.shared.backend, &self.partition, self.last(), &self.shared.io).await
            };
            let restored = restored.map_err(|error| self.unrestored(error))?;
            match (&restored.state.resume, version) {
                (Some(at), VersionMatch::NotOlderThan(asked)) if restored.state.complete && asked.newer_than(at) => {
                    return Err(self.failed(
                        ErrorClass::TooLarge,
                        &format!("it has version {at}, older than the requested version {asked}"),
                    ));
                }
                (Some(at), _) if restored.state.complete && !self.position.lock().is_outdated(at) => {
                    return Ok((restored, covered));
                }
                _ => {}
            }
            if let Some(reported) = self.feed.known().reported(&self.partition) {
                return Err(reported);
            }
            attempts += 1;
            let next = clock::now() + exponential_backoff(LOOK.0, attempts, LOOK.1);
            if next >= deadline {
                let what = "it has no complete list yet; a collector with the same [resources] must watch the resource";
                return Err(self.feed.missing(&format!("log of {}: {what}", self.partition)));
            }
            tokio::time::sleep_until(next).await;
        }
    }

    async fn list(self: Arc<Self>, version: &VersionMatch) -> Result<ListStream, SourceError> {
        let (restored, covered) = match self.at_cursor(version).await? {
            // The log may have entries after this state, so only the entries up to the state itself are covered.
            Some(restored) => (restored, 0),
            None => self.restored(version).await?,
        };
        self.begin(&restored, covered);
        Ok(listed::page(self, restored))
    }

    /// Follows the log from the reflector's position, until the time `end`.
    async fn follow(self: Arc<Self>, end: Instant) -> Result<WatchStream, SourceError> {
        if self.shared.params.cursor.is_some() {
            // Only now is the first list complete. After an incomplete one, the next begins at the cursor again.
            self.shared.begun.lock().insert(self.partition.clone());
        }
        self.fresh().await?;
        let (subscription, missed) = self.subscribe().await?;
        let watch = Watch { served: self, subscription, missed, end };
        Ok(stream::try_unfold(watch, Watch::next).boxed())
    }

    /// Sets the position to a restored state, which a list then passes to the reflector.
    fn begin(&self, restored: &Restored, covered: Sequence) {
        let mut position = self.position.lock();
        (position.was_short, position.floor) = (false, None);
        position.covered = covered.max(restored.state.last);
        position.version.clone_from(&restored.state.resume);
        position.reader = Reader::new();
        position.reader.restore(self.partition.clone(), restored.state.clone());
    }

    /// Checks that a watch begins at the last version passed to the reflector. The error makes the reflector list.
    fn begins_at(&self, version: &VersionMatch) -> Result<(), SourceError> {
        let position = self.position.lock();
        match version {
            VersionMatch::NotOlderThan(version) if position.version.as_ref() == Some(version) => Ok(()),
            _ => Err(self.failed(ErrorClass::Expired, "a watch must begin at the last version that was read")),
        }
    }

    /// Waits until the objects of the partition are current; fails with the reason if they stay stale.
    async fn fresh(&self) -> Result<(), SourceError> {
        let is_fresh = self.feed.wait(FRESH, |known| known.failure(&self.partition).is_none().then_some(())).await;
        match (is_fresh, self.feed.known().failure(&self.partition)) {
            (None, Some(failure)) => Err(failure),
            _ => Ok(()),
        }
    }

    /// Subscribes to the partition, then reads the entries that the log has after the position, so that none is missed.
    ///
    /// If these entries exceed a page, the subscription is `None`: its queue would fill up while the reflector
    /// processes the page. The caller then calls this function again.
    async fn subscribe(&self) -> Result<(Option<Subscription>, Missed), SourceError> {
        let subscribing = tokio::time::timeout(FRESH, self.shared.live.subscribe(&self.partition)).await;
        let subscription = subscribing.map_err(|_| {
            let error = self.shared.live.error().unwrap_or_else(|| "it is not open yet".to_owned());
            self.failed(ErrorClass::Refused, &format!("cannot follow the log: {error}"))
        })?;
        let subscribed = self.shared.live.position().await;
        let (page, room) = self.page().await?;
        let Some(page) = page else {
            self.check_covered().await?;
            self.cover(subscribed);
            return Ok((Some(subscription), Missed::default()));
        };
        let last = self.last();
        if page.last < last {
            return Err(self.lost(&format!("the log ends at entry {}, before entry {last}, which was read", page.last)));
        }
        if page.entries.is_empty() {
            self.cover(subscribed);
        }
        let subscription = (!page.has_more()).then_some(subscription);
        Ok((subscription, Missed { entries: page.entries.into(), room }))
    }

    /// Reads the entries after the position, up to the size of a page. All partitions share the memory of a limited
    /// number of pages. While it is used up, a page has one entry, so that no partition waits for another.
    async fn page(&self) -> Result<(Option<EntryPage>, Option<OwnedSemaphorePermit>), SourceError> {
        let Shared { backend, reads, pages, .. } = &*self.shared;
        let _reading = reads.acquire().await;
        let room = Arc::clone(pages).try_acquire_owned().ok();
        let page_bytes = if room.is_some() { PAGE_BYTES } else { 1 };
        let page = backend.entries(&self.partition, self.last(), page_bytes).await;
        Ok((page.map_err(|error| self.refused(&error))?, room))
    }

    fn cover(&self, sequence: Sequence) {
        let mut position = self.position.lock();
        position.covered = position.covered.max(sequence);
    }

    /// Drops the position, because the log has lost entries that were read. The error makes the reflector list.
    fn lost(&self, cause: &str) -> SourceError {
        self.position.lock().lose();
        self.failed(ErrorClass::Expired, cause)
    }

    /// Fails if the log may have removed entries of the partition before they were read. Needed only if the log retains
    /// no entry of the partition. Otherwise, the next entry names its predecessor, so a gap is noticed.
    async fn check_covered(&self) -> Result<(), SourceError> {
        let retained = self.shared.backend.retained().await.map_err(|error| self.refused(&error))?;
        let last = self.last();
        let covered = self.position.lock().covered.max(last);
        if retained.last < covered {
            let last = retained.last;
            return Err(self.lost(&format!("the log ends at entry {last}, before entry {covered}, which was read")));
        }
        if retained.first <= covered + 1 {
            return Ok(());
        }
        self.position.lock().version = None;
        let gone = format!("entries between {covered} and {} were removed before they were read", retained.first);
        Err(self.failed(ErrorClass::Expired, &gone))
    }

    /// Advances the position by an entry of the log, and returns the entry's changes for the reflector.
    fn read(&self, entry: &Entry) -> Result<Vec<WatchItem>, SourceError> {
        let mut position = self.position.lock();
        let items = match position.reader.read(entry) {
            Ok(ReadOutcome::Records(records)) => self.items(records),
            Ok(ReadOutcome::Nothing | ReadOutcome::Stale { .. }) => return Ok(Vec::new()),
            Ok(ReadOutcome::Gap(gap)) => {
                let (after, next) = (gap.after, gap.next);
                let gone = format!("entries between {after} and {next} were removed before they were read");
                Err(self.failed(ErrorClass::Expired, &gone))
            }
            Ok(ReadOutcome::Incomplete) => {
                Err(self.failed(ErrorClass::Expired, "entries were removed before they were read"))
            }
            Err(error) => Err(self.failed(ErrorClass::Expired, &with_causes(&error))),
        };
        let Ok(items) = items else {
            position.version = None;
            return items;
        };
        let last = items.iter().rev().filter_map(version).find(|version| !version.is_empty());
        if let Some(last) = last {
            position.version = Some(last.clone());
        }
        Ok(items)
    }

    fn items(&self, records: Vec<Record>) -> Result<Vec<WatchItem>, SourceError> {
        let mut decoder = self.decoder.lock();
        let mut items = Vec::with_capacity(records.len());
        for record in records {
            items.push(match record {
                Record::Put { body, .. } => match decoder.decode_object(&body) {
                    Ok(Decoded::Object(object)) => WatchItem::Modified(object),
                    Ok(Decoded::Skipped(skipped)) => WatchItem::Skipped(skipped),
                    Err(error) => return Err(self.failed(ErrorClass::Expired, &with_causes(&error))),
                },
                Record::Delete { key, uid, version, last_state, .. } => {
                    let object = match decoder.decode_object(&last_state) {
                        Ok(Decoded::Object(object)) => object,
                        // The log has no last state of the object, or the state cannot be decoded.
                        Ok(Decoded::Skipped(_)) | Err(_) => Arc::new(StoredObject::head_only(key, uid, version)),
                    };
                    WatchItem::Deleted(object)
                }
                Record::Progress { version } => WatchItem::Bookmark { version, initial_events_end: false },
                Record::Reset { reason: ResetReason::Restart | ResetReason::Gone } => {
                    return Err(self.failed(ErrorClass::Expired, "the collector lists the objects again"));
                }
                Record::Reset { reason: ResetReason::Relist } | Record::Owner { .. } | Record::Checkpoint { .. } => {
                    continue;
                }
            });
        }
        Ok(items)
    }
}

fn version(item: &WatchItem) -> Option<&ResourceVersion> {
    match item {
        WatchItem::Added(object) | WatchItem::Modified(object) | WatchItem::Deleted(object) => {
            Some(object.resource_version())
        }
        WatchItem::Bookmark { version, .. } => Some(version),
        WatchItem::Skipped(_) => None,
    }
}

/// Entries that have been read from the log and are processed before the queue of the subscription.
#[derive(Default)]
struct Missed {
    entries: VecDeque<Entry>,
    /// Permit for the memory of a page, released once the entries are processed. `None` if there is at most one entry.
    room: Option<OwnedSemaphorePermit>,
}

struct Watch {
    served: Arc<Served>,
    /// Queue of the partition's later entries. `None` while the log has entries to read first.
    subscription: Option<Subscription>,
    missed: Missed,
    end: Instant,
}

impl Watch {
    async fn next(mut self) -> Result<Option<(WatchBatch, Self)>, SourceError> {
        let mut known = self.served.feed.subscribe();
        loop {
            while let Some(entry) = self.missed.entries.pop_front() {
                let items = self.served.read(&entry)?;
                if !items.is_empty() {
                    return Ok(Some((WatchBatch::from(items), self)));
                }
            }
            self.missed.room = None;
            if let Some(failure) = known.read_latest().failure(&self.served.partition) {
                return Err(failure);
            }
            let Some(subscription) = &mut self.subscription else {
                if clock::now() >= self.end {
                    return Ok(None);
                }
                (self.subscription, self.missed) = self.served.subscribe().await?;
                continue;
            };
            tokio::select! {
                biased;
                entry = subscription.next() => match entry {
                    Some(entry) => self.missed.entries.push_back(entry),
                    None => self.subscription = None,
                },
                _ = known.changed() => {}
                () = tokio::time::sleep_until(self.end) => {
                    self.served.cover(subscription.covered().unwrap_or(0));
                    return Ok(None);
                }
            }
        }
    }
}
