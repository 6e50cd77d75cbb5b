//! Entries of the queue.

use hashbrown::HashSet;

use informer_hub_types::{Delta, ObjectKey, ResourceVersion};

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) kind: EntryKind,
    /// Number of entries that were queued before this one.
    pub(super) arrival: u64,
    /// Resource version up to which all changes had arrived when this entry was queued.
    pub(super) since: Option<ResourceVersion>,
}

#[derive(Debug)]
pub(super) enum EntryKind {
    /// A delta, and the bytes that it counts against the limit.
    Delta(Delta, usize),
    /// Placeholder for a delta that a merge has removed. The watermark (version from which a watch can resume) must not
    /// pass it before the delta's replacement has been popped.
    Superseded,
    /// End of a list. The first such entry in the queue belongs to the first element of `ends`.
    ReplaceEnd,
}

#[derive(Debug)]
pub(super) struct End {
    pub(super) keep: HashSet<ObjectKey>,
    pub(super) version: ResourceVersion,
    pub(super) rewound: bool,
}

/// Limit of the watermark (version from which a watch can resume), set when the placeholder of a removed delta leaves
/// the queue. It applies at least until the delta's replacement has been popped.
#[derive(Debug)]
pub(super) struct Hold {
    pub(super) since: Option<ResourceVersion>,
    /// `arrival` number of the removed delta.
    pub(super) arrival: u64,
}
