//! Visible changes of a batch, before they have versions.

use std::sync::Arc;

use super::change::ChangeKind;
use crate::applied::Applied;
use informer_hub_types::{ResourceVersion, StoredObject};

/// A visible change of one object that has no fleet version (change number over all clusters) yet.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub(crate) kind: ChangeKind,
    pub(crate) object: Arc<StoredObject>,
    pub(crate) old: Option<Arc<StoredObject>>,
    pub(crate) version: DraftVersion,
    /// Whether the hub may have missed the last state before the deletion. `object` may then be an older state.
    pub(crate) is_tombstone: bool,
}

/// Version of a change in its cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DraftVersion {
    /// Sent by the apiserver; `None` if it is not an integer.
    Received(Option<u64>),
    /// Unknown: the deletion was not observed.
    Missed,
}

impl Draft {
    /// Creates the draft of a recorded change from `applied`, a change of the store. Returns `None` if readers see no
    /// change. `event` is the version of the watch event that deleted the object.
    pub(crate) fn of(applied: &Applied, event: Option<&ResourceVersion>) -> Option<Self> {
        match applied {
            Applied::Added(object) => Some(Self::put(None, object)),
            Applied::Updated { old, new } => Some(Self::put(Some(old), new)),
            Applied::Deleted { stored, last, tombstone } => {
                let event = if *tombstone { event } else { Some(last.resource_version()) };
                Some(Self { is_tombstone: *tombstone, ..Self::deleted(stored, last, event) })
            }
            // A reader that has listed the object without its body needs the body.
            Applied::Restored { bare, whole } => Some(Self::put(Some(bare), whole)),
            Applied::Repeated(_) | Applied::Synced => None,
        }
    }

    /// Creates the draft of a recorded change: an update of `old`, or an addition if that is `None`.
    pub(crate) fn put(old: Option<&Arc<StoredObject>>, object: &Arc<StoredObject>) -> Self {
        let kind = if old.is_some() { ChangeKind::Modified } else { ChangeKind::Added };
        let version = DraftVersion::Received(object.resource_version().as_number());
        Self { kind, object: Arc::clone(object), old: old.cloned(), version, is_tombstone: false }
    }

    /// Creates the draft of a recorded deletion. `event` is the version of the watch event that reported the deletion;
    /// `None` if there was no such event.
    pub(crate) fn deleted(
        stored: &Arc<StoredObject>,
        last: &Arc<StoredObject>,
        event: Option<&ResourceVersion>,
    ) -> Self {
        let version = event.map_or(DraftVersion::Missed, |event| DraftVersion::Received(event.as_number()));
        let (kind, is_tombstone) = (ChangeKind::Deleted, event.is_none());
        Self { kind, object: Arc::clone(last), old: Some(Arc::clone(stored)), version, is_tombstone }
    }

    /// Returns the apiserver's version of the change, if it is greater than that of the object's previous state.
    pub(crate) fn received(&self) -> Option<u64> {
        let DraftVersion::Received(version) = self.version else { return None };
        let old = self.old.as_ref().and_then(|old| old.resource_version().as_number());
        version.filter(|version| old.is_none_or(|old| *version > old))
    }

    pub(crate) fn is_missed(&self) -> bool {
        self.version == DraftVersion::Missed
    }
}
