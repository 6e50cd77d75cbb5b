//! Key-value bucket with one [`ClusterDocument`] per shard: facts that a collector has found about the shard's cluster.

use std::time::Duration;

use async_nats::jetstream::kv::{Entry, Operation, Store};
use informer_hub_types::Shard;

use super::bucket_watch::{ClusterChanges, follow_clusters, last_revision};
use super::{NatsError, context, open_bucket, shard_key, write_entry};
use crate::cluster_change::ClusterChange;
use crate::cluster_document::ClusterDocument;
use crate::partition::Subjects;

const IN_FLIGHT: usize = 256;
/// Noun phrase for the bucket's entries, for error messages.
const CONTENTS: &str = "collectors' documents";

/// Reads and writes [`ClusterDocument`]s in a key-value bucket of JetStream.
#[derive(Clone, Debug)]
pub struct Documents {
    store: Store,
    subjects: Subjects,
}

impl Documents {
    /// Opens the bucket of documents, or creates it.
    pub async fn open(
        client: async_nats::Client,
        subjects: Subjects,
        replicas: usize,
        timeout: Duration,
    ) -> Result<Self, NatsError> {
        let store = open_bucket(&context(client, timeout, IN_FLIGHT), &bucket(&subjects), replicas).await?;
        Ok(Self { store, subjects })
    }

    /// Returns the document about a shard's cluster, with its revision; `None` if there is none.
    pub async fn get(&self, shard: &Shard) -> Result<Option<(u64, ClusterDocument)>, NatsError> {
        let what = format!("collector's document about cluster {shard}");
        let entry = self.store.entry(shard_key(&self.subjects, shard)).await;
        let entry = entry.map_err(NatsError::request(format!("read the {what}")))?;
        let Some(entry) = entry.filter(|entry| entry.operation == Operation::Put) else { return Ok(None) };
        let document = ClusterDocument::decode(&entry.value).map_err(|source| NatsError::Decode { what, source })?;
        Ok(Some((entry.revision, document)))
    }

    /// Returns a stream of the present documents about all clusters, and then of each change. If the stream ends or
    /// fails, call this method again.
    pub async fn follow(&self) -> Result<ClusterChanges, NatsError> {
        follow_clusters(&self.store, &self.subjects, CONTENTS, ClusterChange::DocumentsComplete, change).await
    }

    /// Returns the revision of the bucket's last write, and the time of the bucket's creation in microseconds since
    /// 1970.
    pub async fn last_revision(&self) -> Result<(u64, u64), NatsError> {
        last_revision(&self.store, CONTENTS).await
    }

    /// Stores the document about a shard's cluster by compare-and-set. Returns the new revision, or `None` if the
    /// comparison fails.
    ///
    /// `seen` is the revision of the document that the caller has read. `None` means that there must be no document
    /// yet.
    pub async fn put(
        &self,
        shard: &Shard,
        document: &ClusterDocument,
        seen: Option<u64>,
    ) -> Result<Option<u64>, NatsError> {
        let action = format!("write the collector's document about cluster {shard}");
        let value = document.encode().map_err(NatsError::request(action.clone()))?;
        write_entry(&self.store, shard_key(&self.subjects, shard), value, seen, action).await
    }
}

pub(super) fn bucket(subjects: &Subjects) -> String {
    format!("{}-clusters", subjects.fleet())
}

fn change(shard: Shard, entry: Entry) -> ClusterChange {
    let Entry { revision, operation, value, .. } = entry;
    ClusterChange::Document { shard, revision, document: (operation == Operation::Put).then_some(value) }
}
