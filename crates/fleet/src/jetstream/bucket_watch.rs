//! Watch of a bucket: its entries, and then each change.

use async_nats::jetstream::kv::{Entry, Store, Watch};
use futures::stream::{self, BoxStream, StreamExt};
use informer_hub_types::Shard;

use super::{NatsError, subject_of};
use crate::cluster_change::ClusterChange;
use crate::partition::Subjects;

/// Watch of all entries of a bucket. After a lost connection it continues; entries may repeat then.
pub(super) struct BucketWatch {
    changes: Watch,
    /// Name of the bucket's contents, for error messages.
    contents: &'static str,
    /// Last revision of the bucket when the watch began.
    begin: u64,
    /// First: whether all entries that existed when the watch began were delivered. Second: whether
    /// [`BucketChange::Complete`] was delivered.
    complete: (bool, bool),
}

pub(super) enum BucketChange {
    /// An entry was written or removed.
    Entry(Entry),
    /// All entries that existed when the watch began are delivered, up to this revision.
    Complete(u64),
}

impl BucketWatch {
    pub(super) async fn open(store: &Store, contents: &'static str) -> Result<Self, NatsError> {
        let action = || format!("follow the {contents} of the fleet");
        let changes = store.watch_with_history(">").await.map_err(NatsError::request(action()))?;
        let state = store.stream.get_info().await.map_err(NatsError::request(action()))?.state;
        Ok(Self { changes, contents, begin: state.last_sequence, complete: (state.messages == 0, false) })
    }

    /// Returns the next change. `None` means that the watch has ended: open a new one.
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

/// Changes of a bucket whose entries concern clusters.
pub type ClusterChanges = BoxStream<'static, Result<ClusterChange, NatsError>>;

/// Follows the entries of all clusters. An entry whose key names no shard only advances the revision.
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

/// Returns the last revision of a bucket, and when it was created, in microseconds since 1970.
pub(super) async fn last_revision(store: &Store, contents: &'static str) -> Result<(u64, u64), NatsError> {
    let info = store.stream.get_info().await;
    let info = info.map_err(NatsError::request(format!("read the last revision of the {contents} of the fleet")))?;
    let created = info.created.unix_timestamp_nanos() / 1_000;
    Ok((info.state.last_sequence, u64::try_from(created).unwrap_or(0)))
}
