//! Decoded watch events, and descriptions of objects that cannot be decoded.

use std::sync::Arc;

use informer_hub_types::{ObjectKey, ResourceVersion, StoredObject};

/// One event of a WATCH.
#[derive(Debug)]
pub enum WatchItem {
    /// Event `ADDED`, with the added object.
    Added(Arc<StoredObject>),
    /// Event `MODIFIED`, with the changed object.
    Modified(Arc<StoredObject>),
    /// Event `DELETED`, with the last state of the object. If the state cannot be decoded, the object has only key, UID
    /// and `resourceVersion`.
    Deleted(Arc<StoredObject>),
    /// Event `BOOKMARK`, which reports the progress of the watch without an object.
    Bookmark {
        /// The `resourceVersion` that the watch has reached.
        version: ResourceVersion,
        /// Whether the bookmark has the annotation `k8s.io/initial-events-end: "true"`.
        initial_events_end: bool,
    },
    /// An event that cannot be decoded.
    Skipped(Skipped),
}

impl WatchItem {
    /// Returns the object of the event; `None` for a bookmark or a skipped event.
    #[must_use]
    pub fn object(&self) -> Option<&Arc<StoredObject>> {
        match self {
            Self::Added(object) | Self::Modified(object) | Self::Deleted(object) => Some(object),
            Self::Bookmark { .. } | Self::Skipped(_) => None,
        }
    }
}

/// An object that cannot be decoded. It is counted and shown, and does not fail the list or watch.
#[derive(Debug, Clone)]
pub struct Skipped {
    /// Key of the skipped object, if known.
    pub key: Option<ObjectKey>,
    /// `resourceVersion` of the skipped object, if known.
    pub version: Option<ResourceVersion>,
    /// Why the object was skipped: the limit that it exceeds, or an error.
    pub reason: String,
}
