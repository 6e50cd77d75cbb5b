//! Watch on JetStream of the owners of clusters and the documents about them: one consumer of each bucket.

use futures::stream::{self, StreamExt};
use futures::try_join;
use informer_hub_fleet::ClusterRevisions;
use informer_hub_fleet::jetstream::ClusterChanges;

use super::{NatsBackend, failure};
use crate::backend::Answered;
use crate::cluster_buckets::{ClusterBuckets, ClusterChangeStream, watch_ended};

impl ClusterBuckets for NatsBackend {
    fn follow_clusters(&self) -> Answered<ClusterChangeStream> {
        self.perform(|services| async move {
            let (owners, documents) = try_join!(services.owners.follow(), services.documents.follow())?;
            Ok(stream::select(endless(owners), endless(documents)).boxed())
        })
    }

    fn cluster_revisions(&self) -> Answered<ClusterRevisions> {
        self.perform(|services| async move {
            let (owners, documents) = try_join!(services.owners.last_revision(), services.documents.last_revision())?;
            let ((owners, of_owners), (documents, of_documents)) = (owners, documents);
            Ok(ClusterRevisions { owners, documents, created: of_owners.max(of_documents) })
        })
    }
}

/// Returns the changes of a bucket, with an error after their end. The caller then opens a new watch, instead of
/// receiving only the changes of the other bucket.
fn endless(changes: ClusterChanges) -> ClusterChangeStream {
    let ended = stream::once(async { Err(watch_ended()) });
    changes.map(|change| change.map_err(|error| failure(&error))).chain(ended).boxed()
}
