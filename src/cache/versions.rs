//! Versions that readers get when they list a snapshot, and from which they then watch: the fleet version (version over
//! all clusters), and the resource version of each cluster.

use std::collections::BTreeMap;

use super::history::{ClusterMarks, ClusterVersions, Floor, HistoryCursor, HistoryReader, LocateError};
use super::posting::PartitionId;
use super::snapshot::{Partition, Snapshot};
use informer_hub_types::{ClusterLabels, ClusterName, Freshness};

impl Snapshot {
    /// Returns the fleet version (version over all clusters) of the last change; zero if the store does not count
    /// changes.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the store's window of recent changes, from which watches continue; `None` if the store keeps none.
    #[must_use]
    pub fn history(&self) -> Option<&HistoryReader> {
        self.history.as_ref()
    }

    /// Returns the partitions of a cluster whose objects are visible to readers that list and watch: those whose first
    /// list is complete, in the order they were opened.
    pub fn joined_partitions(&self, cluster: &ClusterName) -> impl Iterator<Item = (PartitionId, &Partition)> {
        let known = self.partitions_of(cluster).iter().filter_map(|id| Some((*id, self.partition(*id)?)));
        known.filter(|(_, partition)| partition.has_synced())
    }

    /// Returns whether at most one informer watches the cluster. If several do, a resource version from the hub may be
    /// greater than any that the cluster has assigned.
    #[must_use]
    #[doc(hidden)]
    pub fn has_one_informer(&self, cluster: &ClusterName) -> bool {
        self.partitions_of(cluster).len() <= 1
    }

    /// Returns the clusters in which the first list of at least one informer is complete, by name.
    pub fn joined_clusters(&self) -> impl Iterator<Item = &ClusterName> {
        self.clusters().map(|(name, _)| name).filter(|name| self.joined_partitions(name).next().is_some())
    }

    /// Returns the resource version that a reader gets when it lists a cluster's objects in this snapshot, and from
    /// which its watch continues. `None` if it is unknown, or if the store does not count changes.
    #[must_use]
    pub fn cluster_version(&self, cluster: &ClusterName) -> Option<u64> {
        self.cluster_marks(cluster).version()
    }

    /// Returns the resource versions to save with a cluster's objects, so that its readers can resume after a restart.
    #[doc(hidden)]
    #[must_use]
    pub fn cluster_versions(&self, cluster: &ClusterName) -> ClusterVersions {
        self.cluster_marks(cluster).versions()
    }

    /// Returns the resource version up to which all changes of a cluster are in the snapshot; `None` if it is unknown.
    /// Only informers whose first list is complete count. May be less than [`Self::cluster_version`], because the
    /// snapshot may already have later changes of some objects.
    #[must_use]
    pub fn cluster_complete(&self, cluster: &ClusterName) -> Option<u64> {
        self.cluster_marks(cluster).complete
    }

    /// Returns the position in the history of recent changes at which a reader with resource version `version` of a
    /// cluster continues.
    ///
    /// # Errors
    /// [`LocateError`] if the version is too old or too new, or if the store does not count changes.
    pub fn locate(&self, cluster: &ClusterName, version: u64) -> Result<HistoryCursor, LocateError> {
        let history = self.history.as_ref().ok_or(LocateError::Expired { oldest: None })?;
        history.locate(cluster, version, &self.cluster_marks(cluster))
    }

    /// Returns, by cluster, the lowest resource version from which readers can resume if no changes before this
    /// snapshot are recorded.
    pub(super) fn floors(&self) -> Vec<(ClusterName, Floor)> {
        self.joined_clusters().map(|name| (name.clone(), self.cluster_marks(name).as_floor())).collect()
    }

    pub(super) fn cluster_marks(&self, cluster: &ClusterName) -> ClusterMarks {
        ClusterMarks::of(self.joined_partitions(cluster).map(|(_, partition)| &partition.marks))
    }

    /// Returns the freshness of a cluster: that of its least current partition, or [`Freshness::Missing`] without
    /// partitions.
    #[must_use]
    pub fn cluster_freshness(&self, cluster: &ClusterName) -> Freshness {
        let partitions = self.partitions_of(cluster).iter().filter_map(|id| self.partition(*id));
        partitions.map(Partition::freshness).reduce(less_current).unwrap_or(Freshness::Missing)
    }

    /// Returns the clusters of the resource by name, each with labels and freshness. After them come the clusters that
    /// should have the resource but have not answered yet.
    pub fn cluster_states(&self) -> impl Iterator<Item = (&ClusterName, &ClusterLabels, Freshness)> {
        let known = self.clusters().filter_map(|(name, ids)| {
            let first = self.partition(*ids.first()?)?;
            Some((name, &first.origin().cluster_labels, self.cluster_freshness(name)))
        });
        known.chain(self.expected().map(|(name, labels)| (name, labels, Freshness::Missing)))
    }
}

impl Partition {
    /// Describes the part of the cluster's objects and fields that the informer keeps, as text for people; `None` if it
    /// keeps everything.
    #[must_use]
    #[doc(hidden)]
    pub fn part(&self) -> Option<String> {
        let scope = &self.origin().scope;
        let parts = [
            scope.namespace.as_ref().map(|namespace| format!("namespace {namespace}")),
            scope.label_selector.as_ref().map(|selector| format!("labels {selector}")),
            scope.field_selector.as_ref().map(|selector| format!("fields {selector}")),
            self.health().omitted().map(|omitted| omitted.to_string()),
        ];
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

/// Resource versions of each cluster in a saved state.
pub(super) type SavedClusters = BTreeMap<ClusterName, ClusterVersions>;

/// Flags of a partition before a batch was applied, to detect what the batch changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Before {
    pub(super) had_joined: bool,
    pub(super) was_converted: bool,
}

impl Before {
    pub(super) fn of(partition: &Partition) -> Self {
        Self { had_joined: partition.synced, was_converted: partition.converting.is_some() }
    }
}

/// Returns the worse of two freshness states. From worst to best: missing, stale for longer, stale for less time,
/// synced.
fn less_current(one: Freshness, other: Freshness) -> Freshness {
    match (&one, &other) {
        (Freshness::Missing, _) | (_, Freshness::Synced) => one,
        (_, Freshness::Missing) | (Freshness::Synced, _) => other,
        (Freshness::StaleSince { since }, Freshness::StaleSince { since: also }) => {
            if since <= also {
                one
            } else {
                other
            }
        }
    }
}
