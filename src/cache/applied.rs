//! Effects of changes on the store.

use std::sync::Arc;

use informer_hub_types::{ObjectKey, StoredObject};

/// Effect of a change on the store, from which notifications are made.
#[derive(Clone, Debug)]
pub enum Applied {
    /// A new object: its key was not in the store.
    Added(Arc<StoredObject>),
    /// A new state of an existing object.
    Updated {
        /// Previous state in the store.
        old: Arc<StoredObject>,
        /// New state in the store.
        new: Arc<StoredObject>,
    },
    /// A removed object.
    Deleted {
        /// Previous state in the store.
        stored: Arc<StoredObject>,
        /// Last known state: from the DELETED event, or `stored` if the deletion was not observed.
        last: Arc<StoredObject>,
        /// Whether the deletion was not observed.
        tombstone: bool,
    },
    /// An unchanged object, repeated by a resync.
    Repeated(Arc<StoredObject>),
    /// An unchanged object whose body is in the store again, after it was left out for lack of memory.
    Restored {
        /// Previous state in the store, without its body.
        bare: Arc<StoredObject>,
        /// New state in the store, with its body.
        whole: Arc<StoredObject>,
    },
    /// The end of the informer's first list.
    Synced,
}

/// Effects of the last batch of changes that was applied to a partition (the objects of one informer).
#[derive(Clone, Debug)]
pub struct Outbox {
    /// Number of the batch of changes within its partition, from 1.
    pub number: u64,
    /// Effects in the order in which the changes were applied.
    pub applied: Arc<[Applied]>,
}

impl Applied {
    /// Returns the object that the change stored; `None` for deletions, repeated objects and `Synced`.
    pub(super) fn newcomer(&self) -> Option<&Arc<StoredObject>> {
        match self {
            Self::Added(new) | Self::Updated { new, .. } | Self::Restored { whole: new, .. } => Some(new),
            Self::Deleted { .. } | Self::Repeated(_) | Self::Synced => None,
        }
    }

    /// Returns the key of the changed object; `None` for `Synced`.
    pub(super) fn key(&self) -> Option<&ObjectKey> {
        match self {
            Self::Added(object)
            | Self::Updated { new: object, .. }
            | Self::Deleted { stored: object, .. }
            | Self::Repeated(object)
            | Self::Restored { whole: object, .. } => Some(object.key()),
            Self::Synced => None,
        }
    }
}
