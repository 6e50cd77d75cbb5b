//! Deltas: the changes that a reflector passes on to the store.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{ObjectKey, ResourceVersion, StoredObject};

/// Cause of a delta: client-go's delta types.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeltaKind {
    /// The watch sent ADDED.
    Added,
    /// The watch sent MODIFIED.
    Updated,
    /// The watch sent DELETED. The object is the last state that the apiserver sent.
    Deleted,
    /// A list contains the object, whether new, changed or unchanged.
    Replaced,
    /// A resync repeats the object unchanged.
    Sync,
}

/// One change to one object.
#[derive(Clone, Debug)]
pub struct Delta {
    /// Cause of the delta: a watch event, a list or a resync.
    pub kind: DeltaKind,
    /// Object after the change; for a deletion, before it.
    pub object: Arc<StoredObject>,
}

/// Deltas of one key, oldest first. Nearly always one.
pub type Deltas = SmallVec<[Delta; 1]>;

/// One item of a reflector's output. The items of one informer are applied in order.
#[derive(Clone, Debug)]
pub enum Change {
    /// One object changed.
    Delta(Delta),
    /// A list begins. Keys that it does not contain are deleted at [`Change::ReplaceEnd`].
    ReplaceBegin,
    /// The list contains this key, but its object could not be decoded or is too large. The store keeps the state of
    /// the object that it already has, if any.
    ReplaceKeep(ObjectKey),
    /// The resourceVersions of the list in progress went back, because the cluster's etcd was restored from a backup.
    /// So versions from before this list cannot be compared with versions of the list or of later changes.
    /// [`Change::ReplaceEnd`] follows, and must be processed before later changes.
    Rewind,
    /// The list is complete, as of this resourceVersion.
    ReplaceEnd(ResourceVersion),
    /// The reflector has passed on all changes up to this resourceVersion.
    Progress(ResourceVersion),
}
