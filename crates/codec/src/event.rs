//! Decoded watch events, and objects that could not be decoded.

use std::sync::Arc;

use informer_hub_types::{ObjectKey, ResourceVersion, StoredObject};

/// One event of a WATCH.
#[derive(Debug)]
pub enum WatchItem {
    /// ADDED.
    Added(Arc<StoredObject>),
    /// MODIFIED.
    Modified(Arc<StoredObject>),
    /// DELETED, with the last state; with the head alone, where that cannot be taken in.
    Deleted(Arc<StoredObject>),
    /// BOOKMARK.
    Bookmark {
        /// How far the watch has come.
        version: ResourceVersion,
        /// Whether it carries `k8s.io/initial-events-end: "true"`.
        initial_events_end: bool,
    },
    /// An event that cannot be taken in.
    Skipped(Skipped),
}

impl WatchItem {
    /// The object that it tells of.
    #[must_use]
    pub fn object(&self) -> Option<&Arc<StoredObject>> {
        match self {
            Self::Added(object) | Self::Modified(object) | Self::Deleted(object) => Some(object),
            Self::Bookmark { .. } | Self::Skipped(_) => None,
        }
    }
}

/// An object that was seen but could not be taken in. Counted and shown; never fatal by itself.
#[derive(Debug, Clone)]
pub struct Skipped {
    /// Its key, as far as it could be read.
    pub key: Option<ObjectKey>,
    /// Its version, as far as it could be read.
    pub version: Option<ResourceVersion>,
    /// Why, in words that name the limit or the mistake.
    pub reason: String,
}
