//! Key-value bucket of the roster: the live processes of a fleet, and the operator's settings. A watch keeps a copy of
//! the bucket in memory, so reads need no request.
//!
//! If the bucket was deleted, the next [`RosterBucket::put`] creates it again. Each other process notices this at its
//! own next put, because the bucket's revision has jumped. It then follows the new bucket.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use async_nats::jetstream::Context;
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::kv::{Entry, Operation, PutError, Store};
use futures::FutureExt;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use super::bucket_watch::{BucketChange, BucketWatch};
use super::{NatsError, context, find_bucket, open_bucket, write_entry};
use crate::partition::Subjects;
use crate::roster::{RosterEntry, RosterItem};

const IN_FLIGHT: usize = 256;
/// Largest increase of the bucket's revision between two puts of one process. A larger increase, or a decrease, shows
/// that the bucket was created again.
///
/// Revisions of a new bucket begin at the current time in microseconds, or at 1 if an earlier program version created
/// it.
const LARGEST_STEP: u64 = 10_000;
/// Pause after an error of the watch, before the bucket is watched again.
const PAUSE: Duration = Duration::from_secs(1);

/// Entries of the roster by key; `None` until the watch has delivered all.
type Known = Option<Arc<BTreeMap<String, RosterEntry>>>;

/// Roster of a fleet in a key-value bucket of JetStream.
#[derive(Debug)]
pub struct RosterBucket {
    context: Context,
    store: Store,
    known: watch::Receiver<Known>,
    following: JoinHandle<()>,
    timeout: Duration,
    /// Number of copies of the bucket if a put has to create it again; `None` if puts must not create it.
    replicas: Option<usize>,
    /// Revision of the bucket after this process's last put.
    last: AtomicU64,
    /// Notified after this process has noticed that the bucket was created again. The watch is then opened again.
    recreated: Arc<Notify>,
}

impl RosterBucket {
    /// Opens the bucket of the roster, or creates it, and follows it.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn open(
        client: async_nats::Client,
        subjects: &Subjects,
        replicas: usize,
        timeout: Duration,
    ) -> Result<Self, NatsError> {
        let context = context(client, timeout, IN_FLIGHT);
        let store = open_bucket(&context, &bucket(subjects), replicas).await?;
        Ok(Self::start(context, store, timeout, Some(replicas)))
    }

    /// Opens the bucket of the roster and follows it; `None` if it does not exist.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn find(
        client: async_nats::Client,
        subjects: &Subjects,
        timeout: Duration,
    ) -> Result<Option<Self>, NatsError> {
        let context = context(client, timeout, IN_FLIGHT);
        let store = find_bucket(&context, &bucket(subjects)).await?;
        Ok(store.map(|store| Self::start(context, store, timeout, None)))
    }

    fn start(context: Context, store: Store, timeout: Duration, replicas: Option<usize>) -> Self {
        let (sender, known) = watch::channel(None);
        let recreated = Arc::<Notify>::default();
        let following = tokio::spawn(follow(store.clone(), sender, Arc::clone(&recreated)).boxed());
        Self { context, store, known, following, timeout, replicas, last: AtomicU64::new(0), recreated }
    }

    /// Returns all entries of the roster, from the watch's copy of the bucket. Waits until the copy is complete.
    pub async fn entries(&self) -> Result<Vec<RosterEntry>, NatsError> {
        let mut known = self.known.clone();
        let action = || "read the roster of the fleet";
        let waiting = tokio::time::timeout(self.timeout, known.wait_for(Option::is_some)).await;
        let known = waiting.map_err(NatsError::request(action()))?.map_err(NatsError::request(action()))?;
        Ok(known.iter().flat_map(|known| known.values()).cloned().collect())
    }

    /// Writes an item, and replaces the item's present entry. Returns the revision of the write. If the bucket was
    /// deleted, a handle from [`Self::open`] creates it again.
    pub async fn put(&self, item: &RosterItem) -> Result<u64, NatsError> {
        let put = async || self.store.put(item.key(), item.encode().into()).await;
        let written = match (put().await, self.replicas) {
            (Err(error), Some(replicas)) if has_no_stream(&error) && self.recreate(replicas).await? => put().await,
            (written, _) => written,
        };
        let revision = written.map_err(NatsError::request(format!("write {} of the roster", item.key())))?;
        let before = self.last.swap(revision, Relaxed);
        if before > 0 && (revision <= before || revision - before > LARGEST_STEP) {
            self.recreated.notify_one();
        }
        Ok(revision)
    }

    /// Creates the bucket again if it was deleted. Returns `false` if the bucket exists. The caller's write has then
    /// failed because the NATS servers are electing the bucket's leader.
    async fn recreate(&self, replicas: usize) -> Result<bool, NatsError> {
        let bucket = &self.store.name;
        if find_bucket(&self.context, bucket).await?.is_some() {
            return Ok(false);
        }
        open_bucket(&self.context, bucket, replicas).await?;
        tracing::warn!(
            bucket,
            "the NATS bucket with the roster of collectors was deleted; created it again, but drains and pins are \
             lost: repeat `informer-hub fleet drain` and `informer-hub fleet move`"
        );
        Ok(true)
    }

    /// Writes an item by compare-and-set. Returns the new revision, or `None` if the comparison fails.
    ///
    /// `expected` is the revision of the item's present entry. `None` means that there must be no entry yet.
    pub async fn replace(&self, item: &RosterItem, expected: Option<u64>) -> Result<Option<u64>, NatsError> {
        let action = format!("write {} of the roster", item.key());
        write_entry(&self.store, item.key(), item.encode().into(), expected, action).await
    }

    /// Removes the entry of an item. The server keeps a deletion marker under the item's key.
    pub async fn remove(&self, item: &RosterItem) -> Result<(), NatsError> {
        let removed = self.store.purge(item.key()).await;
        removed.map_err(NatsError::request(format!("remove {} from the roster", item.key())))
    }
}

impl Drop for RosterBucket {
    fn drop(&mut self) {
        self.following.abort();
    }
}

pub(super) fn bucket(subjects: &Subjects) -> String {
    format!("{}-collectors", subjects.fleet())
}

/// Watches the bucket and keeps the copy in `sender` up to date, until the task is aborted.
async fn follow(store: Store, sender: watch::Sender<Known>, recreated: Arc<Notify>) {
    loop {
        tokio::select! {
            // After an error the copy is outdated. Collectors whose renewals are missing in it then count as dead.
            _ = follow_once(&store, &sender) => tokio::time::sleep(PAUSE).await,
            () = recreated.notified() => {}
        }
    }
}

async fn follow_once(store: &Store, sender: &watch::Sender<Known>) -> Result<(), NatsError> {
    let mut changes = BucketWatch::open(store, "roster").await?;
    let (mut entries, mut complete) = (BTreeMap::new(), false);
    while let Some(change) = changes.next().await? {
        match change {
            BucketChange::Complete(_) => complete = true,
            BucketChange::Entry(change) => match decode(&change) {
                Some(entry) => _ = entries.insert(change.key, entry),
                None => _ = entries.remove(&change.key),
            },
        }
        if complete {
            sender.send_replace(Some(Arc::new(entries.clone())));
        }
    }
    Ok(())
}

/// Returns whether a write to a bucket failed because the bucket's stream is missing or has no leader.
fn has_no_stream(error: &PutError) -> bool {
    let publish = error.source().and_then(|source| source.downcast_ref::<PublishError>());
    publish.is_some_and(|error| error.kind() == PublishErrorKind::StreamNotFound)
}

/// Decodes an entry. Returns `None` if the entry was removed, or if only later program versions know its kind.
fn decode(change: &Entry) -> Option<RosterEntry> {
    if change.operation != Operation::Put {
        return None;
    }
    let item = RosterItem::decode(change.value.clone()).ok()?;
    let written_millis = i64::try_from(change.created.unix_timestamp_nanos() / 1_000_000).unwrap_or(0);
    Some(RosterEntry { item, revision: change.revision, written_millis })
}
