//! The parts of a snapshot that the reader of a query may see, found once per query.

use std::collections::BTreeMap;

use super::builder::Query;
use crate::posting::PartitionId;
use crate::snapshot::Snapshot;
use crate::visible_ranges::KeyRanges;
use informer_hub_types::ClusterSelector;

/// Objects that the reader of a query may see, by partition.
#[derive(Default)]
pub(super) struct VisibleParts {
    /// Visible key ranges of each partition. A partition with `None` is visible as a whole; a missing partition is
    /// invisible. If there is no map, everything is visible.
    partitions: Option<BTreeMap<PartitionId, Option<KeyRanges>>>,
}

impl VisibleParts {
    /// Finds the parts of a snapshot that the reader of a query may see.
    pub(super) fn new(snapshot: &Snapshot, query: &Query) -> Self {
        let Some(visibility) = query.visibility() else { return Self::default() };
        let mut partitions = BTreeMap::new();
        let mut add = |ids: &[PartitionId]| {
            for id in ids {
                let Some(partition) = snapshot.partition(*id) else { continue };
                let origin = partition.origin();
                let visible = visibility.visible(&origin.cluster, &origin.cluster_labels);
                let watched = origin.scope.namespace.as_deref();
                if !visible.is_nothing() && watched.is_none_or(|namespace| visible.sees(Some(namespace))) {
                    partitions.insert(*id, partition.visible_ranges(&visible));
                }
            }
        };
        match &query.clusters {
            ClusterSelector::Names(names) => names.iter().for_each(|name| add(snapshot.partitions_of(name))),
            ClusterSelector::All | ClusterSelector::Labels(_) => snapshot.clusters().for_each(|(_, ids)| add(ids)),
        }
        Self { partitions: Some(partitions) }
    }

    /// Returns the visible key ranges of a partition: `Some(None)` if all of it is visible, `None` if nothing is.
    #[expect(clippy::option_option, reason = "nothing, everything, and some ranges")]
    pub(super) fn of(&self, id: PartitionId) -> Option<Option<KeyRanges>> {
        match &self.partitions {
            None => Some(None),
            Some(partitions) => partitions.get(&id).cloned(),
        }
    }
}
