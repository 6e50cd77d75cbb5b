//! What a reflector found out, on its way to the store.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{ObjectKey, ResourceVersion, StoredObject};

/// Why a delta exists. client-go's delta types.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeltaKind {
    /// The watch said ADDED.
    Added,
    /// The watch said MODIFIED.
    Updated,
    /// The watch said DELETED; the object is the last state that the apiserver sent.
    Deleted,
    /// A list has it, whether new, changed or unchanged.
    Replaced,
    /// A resync repeats it; nothing changed.
    Sync,
}

/// One thing that happened to one object.
#[derive(Clone, Debug)]
pub struct Delta {
    /// What happened.
    pub kind: DeltaKind,
    /// The object after it (for a deletion: before it).
    pub object: Arc<StoredObject>,
}

/// Deltas of one key, oldest first. Nearly always one.
pub type Deltas = SmallVec<[Delta; 1]>;

/// One step of a reflector's output. Steps of one informer are applied in order.
#[derive(Clone, Debug)]
pub enum Change {
    /// Something happened to one object.
    Delta(Delta),
    /// A list begins: what it does not name will vanish at [`Change::ReplaceEnd`].
    ReplaceBegin,
    /// The list has this key, but its object could not be taken in (too large): keep what the store has.
    ReplaceKeep(ObjectKey),
    /// The list is complete at this version.
    ReplaceEnd(ResourceVersion),
    /// Everything up to this version has been handed over.
    Progress(ResourceVersion),
}
