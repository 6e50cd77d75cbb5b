//! Bucket of the roster. One consumer follows it, so that reading it costs no request.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::kv::{Entry, Operation, Store};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::bucket_watch::{BucketChange, BucketWatch};
use super::{NatsError, context, find_bucket, open_bucket, write_entry};
use crate::partition::Subjects;
use crate::roster::{RosterEntry, RosterItem};

const IN_FLIGHT: usize = 256;
/// Pause before the bucket is followed again after an error.
const PAUSE: Duration = Duration::from_secs(1);

/// Entries by key; `None` until all are known.
type Known = Option<Arc<BTreeMap<String, RosterEntry>>>;

/// Roster of a fleet in a key-value bucket of JetStream.
#[derive(Debug)]
pub struct RosterBucket {
    store: Store,
    known: watch::Receiver<Known>,
    following: JoinHandle<()>,
    timeout: Duration,
}

impl RosterBucket {
    /// Opens the bucket, or creates it, and follows it.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn open(
        client: async_nats::Client,
        subjects: &Subjects,
        replicas: usize,
        timeout: Duration,
    ) -> Result<Self, NatsError> {
        let store = open_bucket(&context(client, timeout, IN_FLIGHT), &bucket(subjects), replicas).await?;
        Ok(Self::start(store, timeout))
    }

    /// Opens the bucket if it exists, and follows it.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn find(
        client: async_nats::Client,
        subjects: &Subjects,
        timeout: Duration,
    ) -> Result<Option<Self>, NatsError> {
        let store = find_bucket(&context(client, timeout, IN_FLIGHT), &bucket(subjects)).await?;
        Ok(store.map(|store| Self::start(store, timeout)))
    }

    fn start(store: Store, timeout: Duration) -> Self {
        let (sender, known) = watch::channel(None);
        let following = tokio::spawn(follow(store.clone(), sender));
        Self { store, known, following, timeout }
    }

    /// Returns all entries, as far as the server has announced their changes.
    pub async fn entries(&self) -> Result<Vec<RosterEntry>, NatsError> {
        let mut known = self.known.clone();
        let action = || "read the roster of the fleet";
        let waiting = tokio::time::timeout(self.timeout, known.wait_for(Option::is_some)).await;
        let known = waiting.map_err(NatsError::request(action()))?.map_err(NatsError::request(action()))?;
        Ok(known.iter().flat_map(|known| known.values()).cloned().collect())
    }

    /// Writes an item, whatever its entry is. Returns its revision.
    pub async fn put(&self, item: &RosterItem) -> Result<u64, NatsError> {
        let put = self.store.put(item.key(), item.encode().into()).await;
        put.map_err(NatsError::request(format!("write {} of the roster", item.key())))
    }

    /// Writes an item if its entry has the expected revision, or if there is none. Returns its revision; `None` if the entry
    /// has changed.
    pub async fn replace(&self, item: &RosterItem, expected: Option<u64>) -> Result<Option<u64>, NatsError> {
        let action = format!("write {} of the roster", item.key());
        write_entry(&self.store, item.key(), item.encode().into(), expected, action).await
    }

    /// Removes the entry of an item. The server keeps a mark, which has no value.
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

fn bucket(subjects: &Subjects) -> String {
    format!("{}-collectors", subjects.fleet())
}

/// Follows the bucket until the task is aborted.
async fn follow(store: Store, sender: watch::Sender<Known>) {
    loop {
        // After an error, the entries are as old as the error; a collector that renews nothing then counts as dead.
        let _ = follow_once(&store, &sender).await;
        tokio::time::sleep(PAUSE).await;
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

/// Returns an entry; `None` if it is removed, or cannot be read: a later version may write other items.
fn decode(change: &Entry) -> Option<RosterEntry> {
    if change.operation != Operation::Put {
        return None;
    }
    let item = RosterItem::decode(change.value.clone()).ok()?;
    let written_millis = i64::try_from(change.created.unix_timestamp_nanos() / 1_000_000).unwrap_or(0);
    Some(RosterEntry { item, revision: change.revision, written_millis })
}
