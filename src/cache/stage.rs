//! Staged relists: changes of a list after the first one, hidden from readers until the list is complete.
//!
//! client-go's `AtomicFIFO` passes a relist to the store in one step. This crate does so without keeping the whole list
//! in memory. An object that the list repeats unchanged is dropped immediately. A new or changed one waits in a
//! [`Stage`] beside the partition. At the end of the list, the stage is written to the partition, unlisted objects are
//! deleted, and both are published as one snapshot. The notifications follow that snapshot.
//!
//! - If a list is interrupted, its stage stays, and the next list adds to it. This is correct because every staged
//!   state is newer than the visible one. No part is visible until a list is complete.
//! - During a staged relist, all changes are staged, including events queued before the list. A resync repeats the
//!   visible objects.
//! - The version from which a watch can resume stays that of the visible objects.
//! - A stage is bounded ([`Stage::LIMIT`]). The rest of a list is published in parts, as a first list is, in three
//!   cases: above the limit, under memory pressure, or if the informer decodes objects differently than before.
//!
//! The stage is part of the partition, so a store that recovers from the published snapshot continues it.

use std::sync::Arc;

use super::applied::Applied;
use super::history::Draft;
use informer_hub_types::{ObjectKey, StoredObject};

/// Effects on the store of one batch of queued changes.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// Effects of which listeners are notified after this batch.
    pub(super) applied: Vec<Applied>,
    /// Objects that this batch added to memory, visible or staged.
    pub(super) newcomers: Vec<Arc<StoredObject>>,
    /// Whether the visible state changed.
    pub(super) visible_change: bool,
    /// Visible changes, to be recorded in the store's history of recent changes; `None` if the store keeps no history.
    pub(super) drafts: Option<Vec<Draft>>,
}

impl Batch {
    /// Creates an empty batch. If `records` is set, it gathers the changes that readers can see, for the store's
    /// history.
    pub(super) fn new(records: bool) -> Self {
        Self { drafts: records.then(Vec::new), ..Self::default() }
    }
}

/// How the partition publishes a relist, which is any list after its first one.
#[derive(Clone, Default)]
pub(super) enum Relist {
    /// No relist is running.
    #[default]
    None,
    /// All changes in one snapshot, when the relist is complete.
    Staged(Stage),
    /// Batch by batch, because the list may not be staged (hidden until complete).
    InParts,
}

/// Changes of a relist that readers do not see yet. Its data structures are persistent: cloning a partition only
/// increments two more reference counts.
#[derive(Clone, Default)]
pub(super) struct Stage {
    /// Last staged state of each changed key; `None` if the object is deleted.
    pub(super) objects: imbl::OrdMap<ObjectKey, Option<Arc<StoredObject>>>,
    /// Effects of which listeners are notified, in order, once the stage is published.
    pub(super) applied: imbl::Vector<Applied>,
    /// Size of the staged bodies (stored JSON) when they were added, plus [`Self::OVERHEAD`] per change.
    pub(super) bytes: usize,
}

impl Stage {
    /// Limit in bytes: stored bodies, plus [`Self::OVERHEAD`] per change. About 50,000 changed pods.
    pub(super) const LIMIT: usize = 64 * 1024 * 1024;

    /// Bytes of a change besides the body: the rest of the object, the stage entry and the notification.
    const OVERHEAD: usize = 640;

    /// Stages an object, or its deletion.
    pub(super) fn write(&mut self, key: &ObjectKey, object: Option<&Arc<StoredObject>>) {
        self.bytes += Self::OVERHEAD + object.map_or(0, |object| object.body_size());
        self.objects.insert(key.clone(), object.cloned());
    }

    /// Returns whether the limit is exceeded. Recounts first, because most bodies have been compressed meanwhile.
    pub(super) fn is_full(&mut self) -> bool {
        if self.bytes > Self::LIMIT {
            let bodies = self.objects.values().flatten().map(|object| object.body_size());
            self.bytes = bodies.sum::<usize>() + Self::OVERHEAD * self.objects.len().max(self.applied.len());
        }
        self.bytes > Self::LIMIT
    }
}
