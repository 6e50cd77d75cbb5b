//! Watch of a NATS key-value bucket: delivers its present entries, then each later change.

use async_nats::jetstream::kv::{Entry, Store, Watch};
use futures::stream::{self, BoxStream, StreamExt};
use informer_hub_types::Shard;

use super::{NatsError, subject_of};
use crate::cluster_change::ClusterChange;
use crate::partition::Subjects;

/// Watch of all entries of a key-value bucket. It survives a lost connection, after which it may deliver some entries a
/// second time.
pub(super) struct BucketWatch {
    changes: Watch,
    /// Noun phrase for the bucket's entries, such as `cluster owners`, for error messages.
    contents: &'static str,
    /// Last revision of the bucket when the watch began.
    begin: u64,
    /// Two flags: whether all entries that existed when the watch began were delivered, and whether
    /// [`BucketChange::Complete`] was delivered afterwards.
    complete: (bool, bool),
}

pub(super) enum BucketChange {
    /// An entry was written or removed.
    Entry(Entry),
    /// All entries that existed when the watch began were delivered. Holds the revision of the bucket at that time.
    Complete(u64),
}

impl BucketWatch {
    pub(super) async fn open(store: &Store, contents: &'static str) -> Result<Self, NatsError> {
        let action = || format!("follow the {contents} of the fleet");
        let changes = store.watch_with_history(">").await.map_err(NatsError::request(action()))?;
        let state = store.stream.get_info().await.map_err(NatsError::request(action()))?.state;
        Ok(Self { changes, contents, begin: state.last_sequence, complete: (state.messages == 0, false) })
    }

    /// Returns the next change; `None` if the watch has ended. Then the caller must open a new watch.
    ///
    /// # Cancel safety
    /// No change is lost if the future is dropped.
    pub(super) async fn next(&mut self) -> Result<Option<BucketChange>, NatsError> {
        if self.complete == (true, false) {
            self.complete.1 = true;
            return Ok(Some(BucketChange::Complete(self.begin)));
        }
        let Some(change) = self.changes.next().await else { return Ok(None) };
        let change = change.map_err(NatsError::request(format!("follow the {} of the fleet", self.contents)))?;
        self.complete.0 |= change.delta == 0;
        Ok(Some(BucketChange::Entry(change)))
    }
}

/// Stream of [`ClusterChange`]s from one of two buckets: the owners of clusters, or the documents about clusters.
pub type ClusterChanges = BoxStream<'static, Result<ClusterChange, NatsError>>;

/// Returns a stream of a bucket's present entries, one for each shard, and then of each change.
///
/// `entry` makes a stream item from a bucket entry. `complete` makes an item that reports that all entries up to a
/// revision were delivered. The stream has such an item after the present entries.
///
/// Entries whose keys name no shard are skipped among the present entries. A later change of such an entry becomes a
/// `complete` item.
pub(super) async fn follow_clusters(
    store: &Store,
    subjects: &Subjects,
    contents: &'static str,
    complete: fn(u64) -> ClusterChange,
    entry: fn(Shard, Entry) -> ClusterChange,
) -> Result<ClusterChanges, NatsError> {
    let (watch, subjects) = (BucketWatch::open(store, contents).await?, subjects.clone());
    let changes = stream::try_unfold((watch, subjects), move |(mut watch, subjects)| async move {
        while let Some(change) = watch.next().await? {
            let change = match change {
                BucketChange::Complete(revision) => complete(revision),
                BucketChange::Entry(changed) => match subjects.shard(&subject_of(&changed.key)) {
                    Some(shard) => entry(shard, changed),
                    None if watch.complete.1 => complete(changed.revision),
                    None => continue,
                },
            };
            return Ok(Some((change, (watch, subjects))));
        }
        Ok(None)
    });
    Ok(changes.boxed())
}

/// Returns the revision of the bucket's last write, and the time of the bucket's creation in microseconds since 1970.
pub(super) async fn last_revision(store: &Store, contents: &'static str) -> Result<(u64, u64), NatsError> {
    let info = store.stream.get_info().await;
    let info = info.map_err(NatsError::request(format!("read the last revision of the {contents} of the fleet")))?;
    let created = info.created.unix_timestamp_nanos() / 1_000;
    Ok((info.state.last_sequence, u64::try_from(created).unwrap_or(0)))
}
