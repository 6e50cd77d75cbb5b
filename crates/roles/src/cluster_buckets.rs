//! Interface to two NATS buckets: which collector owns each cluster, and the document that it wrote about the cluster.

use futures::stream::BoxStream;
use informer_hub_fleet::{ClusterChange, ClusterRevisions};

use super::answer::{Answered, BackendError};

/// Changes of the buckets of owners and documents, in order within each bucket. If the stream ends or fails, the caller
/// opens a new watch.
pub type ClusterChangeStream = BoxStream<'static, Result<ClusterChange, BackendError>>;

/// Returns the error for a stream of changes that has ended. Such a stream is endless unless it fails.
pub(super) fn watch_ended() -> BackendError {
    BackendError("NATS: the watch of the owners and resources of clusters has ended".to_owned())
}

/// Buckets with the owners of all clusters, and the owners' documents about them.
///
/// # Contract
/// As with [`Backend`](crate::Backend), a request may fail although it was executed, and ends within a deadline. A
/// watch may stop delivering changes without ending. So the caller compares the changes that it has read with
/// [`ClusterBuckets::cluster_revisions`].
pub trait ClusterBuckets: Send + Sync + 'static {
    /// Follows the buckets of owners and documents: all entries that exist, `OwnersComplete` and `DocumentsComplete`,
    /// then each change.
    fn follow_clusters(&self) -> Answered<ClusterChangeStream>;

    /// Returns the last revisions of the buckets of owners and documents, and when the buckets were created.
    fn cluster_revisions(&self) -> Answered<ClusterRevisions>;
}
