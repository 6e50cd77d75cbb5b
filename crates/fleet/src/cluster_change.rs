//! Changes in two NATS buckets: one has the owner of each cluster, the other a document that describes each cluster.

use bytes::Bytes;
use informer_hub_types::Shard;

use crate::ownership::Ownership;
use crate::wire::DecodeError;

/// Item of a watch of the owners or the documents of all clusters.
///
/// A watch first delivers every existing entry, then [`OwnersComplete`](Self::OwnersComplete) or
/// [`DocumentsComplete`](Self::DocumentsComplete), then each change. Entries may repeat. A repeated `…Complete` only
/// reports a newer revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterChange {
    /// The entry with the owner of a shard was written or removed.
    Owner {
        /// Shard of the owner.
        shard: Shard,
        /// Revision of the bucket after this change.
        revision: u64,
        /// New content of the entry; `None` if it was removed, an error if it cannot be decoded.
        owner: Result<Option<Ownership>, DecodeError>,
    },
    /// The entry with the document about a shard's cluster was written or removed.
    Document {
        /// Shard whose owner wrote the document.
        shard: Shard,
        /// Revision of the bucket after this change.
        revision: u64,
        /// The document in its [binary form](crate::ClusterDocument::decode); `None` if the entry is removed.
        document: Option<Bytes>,
    },
    /// All owners up to this revision of the bucket were delivered.
    OwnersComplete(u64),
    /// All documents up to this revision of the bucket were delivered.
    DocumentsComplete(u64),
}

/// Last revisions of the buckets of owners and of documents, and the creation time of the younger bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClusterRevisions {
    /// Last revision of the bucket of owners (which collector watches which cluster).
    pub owners: u64,
    /// Last revision of the bucket of documents (the description of each cluster that collectors publish).
    pub documents: u64,
    /// Creation time of the younger bucket, in microseconds since 1970. If this time changes, a bucket was deleted and
    /// created again, and its entries are lost.
    pub created: u64,
}
