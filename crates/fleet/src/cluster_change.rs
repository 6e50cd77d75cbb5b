//! Changes of the buckets of owners and documents.

use bytes::Bytes;
use informer_hub_types::Shard;

use crate::ownership::Ownership;
use crate::wire::DecodeError;

/// Item of a watch of the owners or the documents of all clusters.
///
/// A watch begins with each entry that exists. Then the bucket's `…Complete` follows, then each change. Entries may repeat,
/// and a later `…Complete` is a change that concerns no shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterChange {
    /// Entry of an owner.
    Owner {
        /// The shard.
        shard: Shard,
        /// Revision of the bucket with this change.
        revision: u64,
        /// The ownership; `None` if the entry is removed.
        owner: Result<Option<Ownership>, DecodeError>,
    },
    /// Entry of a document.
    Document {
        /// The shard.
        shard: Shard,
        /// Revision of the bucket with this change.
        revision: u64,
        /// The document in its [binary form](crate::ClusterDocument::decode); `None` if the entry is removed.
        document: Option<Bytes>,
    },
    /// The owners are complete up to this revision of the bucket.
    OwnersComplete(u64),
    /// The documents are complete up to this revision of the bucket.
    DocumentsComplete(u64),
}

/// Last revisions of the buckets, and their age.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClusterRevisions {
    /// Last revision of the owners' bucket.
    pub owners: u64,
    /// Last revision of the documents' bucket.
    pub documents: u64,
    /// Creation time of the bucket that was created later. A changed value means that entries are lost.
    pub created: u64,
}
