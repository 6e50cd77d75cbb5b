//! Recorded changes: of one object, and of a whole partition.

use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use crate::objects::Objects;
use crate::posting::PartitionId;
use informer_hub_types::clock::Instant;
use informer_hub_types::{ObjectKey, Origin, StoredObject};

/// Kind of a recorded change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChangeKind {
    /// The object is new.
    Added,
    /// The object has another state.
    Modified,
    /// The object is gone.
    Deleted,
}

/// A visible change of one object.
#[derive(Clone, Debug)]
pub struct RecordedChange {
    /// Fleet version: the number of this change, counted over all clusters of the cache.
    pub version: u64,
    /// Partition (the objects of one informer) that has the object.
    pub partition: PartitionId,
    /// Informer of the partition at the time of the change.
    pub origin: Arc<Origin>,
    /// Kind of the change.
    pub kind: ChangeKind,
    /// New state, or the last known state of a deleted object.
    pub object: Arc<StoredObject>,
    /// Previous state in the store. For a deletion it may be the same as `object`. `None` if the object is new.
    pub old: Option<Arc<StoredObject>>,
    /// Resource version of this change in its cluster. `None` if no reader can resume from this change.
    pub cluster_version: Option<u64>,
    /// Time of the change.
    pub at: Instant,
    /// How the hub learned of the change.
    pub cause: ChangeCause,
}

/// How the hub learned of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChangeCause {
    /// The object changed in its cluster.
    Object,
    /// The object was deleted. The hub did not receive its last state, and possibly did not observe the deletion
    /// either.
    Missed,
    /// The whole partition (the objects of one informer) was added or removed, or changed cluster labels made it
    /// visible or invisible to the reader. The object need not have changed.
    Partition,
}

/// One change of all objects of a partition (one informer). The objects, in key order, have the fleet versions (change
/// numbers over all clusters) from `first` to `last`.
pub(crate) struct PartitionChange {
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) partition: PartitionId,
    pub(crate) kind: PartitionChangeKind,
    /// Informer of the partition: as it was after the change, or, for a removed partition, before the removal.
    pub(crate) origin: Arc<Origin>,
    pub(crate) objects: Objects,
    pub(crate) at: Instant,
}

#[derive(Debug)]
pub(crate) enum PartitionChangeKind {
    Joined,
    Left,
    /// The labels of the cluster changed. The value is the origin with the previous labels.
    Relabelled(Arc<Origin>),
}

impl fmt::Debug for PartitionChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let versions = self.first..=self.last;
        f.debug_struct("PartitionChange").field("kind", &self.kind).field("versions", &versions).finish_non_exhaustive()
    }
}

impl PartitionChange {
    /// Returns how this change looks to a reader that sees only the informers for which `selects` returns true: all
    /// objects are added, or all are deleted. Also returns the informer to report as the origin of the changes. `None`
    /// if the reader sees no change.
    pub(crate) fn effect(&self, selects: impl Fn(&Origin) -> bool) -> Option<(ChangeKind, &Arc<Origin>)> {
        let is_selected = selects(&self.origin);
        match &self.kind {
            PartitionChangeKind::Joined => is_selected.then_some((ChangeKind::Added, &self.origin)),
            PartitionChangeKind::Left => is_selected.then_some((ChangeKind::Deleted, &self.origin)),
            PartitionChangeKind::Relabelled(before) => match (selects(before), is_selected) {
                (false, true) => Some((ChangeKind::Added, &self.origin)),
                (true, false) => Some((ChangeKind::Deleted, before)),
                (true, true) | (false, false) => None,
            },
        }
    }

    /// Returns the objects whose changes have a fleet version above `version`, each with the fleet version of its
    /// change. `after` is the key of the object whose change has exactly `version`. Without `after`, the earlier
    /// objects are skipped one by one.
    pub(crate) fn after(
        &self,
        version: u64,
        after: Option<&ObjectKey>,
    ) -> impl Iterator<Item = (u64, &Arc<StoredObject>)> {
        let first = self.first.max(version + 1);
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let passed = if after.is_some() { 0 } else { usize::try_from(first - self.first).unwrap_or(usize::MAX) };
        (first..).zip(self.objects.range(start, Bound::Unbounded).skip(passed))
    }
}
