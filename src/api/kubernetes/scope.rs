//! The cache and the clusters that a request addresses.

use std::sync::Arc;

use super::encode::Naming;
use super::fleet::{CacheInfo, ClusterInfo, Fleet};
use super::freshness::Coverage;
use super::rights::Rights;
use crate::cache::{HistoryScope, Partition, PartitionId, Snapshot};
use informer_hub_kubeapi::{ResourcePath, Root, Status};
use informer_hub_types::{ClusterName, LabelSelector, Origin, View};

/// Clusters of a root.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Clusters {
    /// One cluster.
    One(ClusterName),
    /// The clusters whose labels match, also as they are added and removed.
    Matching(LabelSelector),
}

impl Clusters {
    /// Returns clusters and naming of a root.
    pub(super) fn of(root: &Root) -> (Self, Naming) {
        match root {
            Root::Cluster(name) => (Self::One(name.clone()), Naming::Cluster),
            Root::Fleet(selector) => (Self::Matching(selector.clone()), Naming::Fleet),
            Root::Unique(selector) => (Self::Matching(selector.clone()), Naming::Unique),
        }
    }

    /// Returns whether a cluster is among them.
    pub(super) fn include(&self, origin: &Origin) -> bool {
        match self {
            Self::One(name) => origin.cluster == *name,
            Self::Matching(selector) => {
                selector.is_empty() || selector.matches(|label| origin.cluster_labels.get(label).map(String::as_str))
            }
        }
    }

    /// Returns those of all clusters that are among them.
    pub(super) fn find(&self, fleet: &dyn Fleet) -> Vec<ClusterInfo> {
        let mut found = fleet.clusters();
        found.retain(|cluster| match self {
            Self::One(name) => cluster.name == *name,
            Self::Matching(selector) => selector.matches(|label| cluster.labels.get(label).map(String::as_str)),
        });
        found
    }
}

/// Cache, clusters and naming of a request.
#[derive(Clone, Debug)]
pub(super) struct Scope {
    pub(super) cache: CacheInfo,
    pub(super) clusters: Clusters,
    pub(super) naming: Naming,
}

impl Scope {
    /// Finds the cache of a resource below a root.
    ///
    /// # Errors
    /// [`Status`] of code 404 if the hub does not cache the resource there or the reader may not see it, of code 503
    /// if the first list of the only cluster is not complete.
    pub(super) fn find(fleet: &dyn Fleet, root: &Root, path: &ResourcePath, rights: Rights) -> Result<Self, Status> {
        let (clusters, naming) = Clusters::of(root);
        let is_wanted = |cache: &CacheInfo| {
            let gvr = &cache.resource.gvr;
            gvr.group == path.group && gvr.version == path.version && gvr.resource == path.resource
        };
        let mut caches = fleet.caches();
        caches.retain(|cache| is_wanted(cache) && rights.may_see(&cache.resource.gvr) && has_any(cache, &clusters));
        caches.sort_by_key(|cache| view_rank(&cache.view));
        let Some(cache) = caches.into_iter().next() else { return Err(Status::path_not_found()) };
        let is_misplaced = path.namespace.is_some() && !cache.resource.namespaced;
        let lacks_namespace = path.name.is_some() && path.namespace.is_none() && cache.resource.namespaced;
        if is_misplaced || lacks_namespace {
            return Err(Status::path_not_found());
        }
        let scope = Self { cache, clusters, naming };
        if let Clusters::One(cluster) = &scope.clusters
            && !scope.has_synced(&scope.cache.published.load())
        {
            let text = format!("the first list of {} in cluster {cluster} is not complete", scope.cache.resource.gvr);
            return Err(Status { retry_after: Some(1), ..Status::service_unavailable(text) });
        }
        Ok(scope)
    }

    /// Returns whether a partition of these clusters has synced.
    pub(super) fn has_synced(&self, snapshot: &Snapshot) -> bool {
        self.partitions(snapshot).next().is_some()
    }

    /// Returns the synced partitions of these clusters.
    pub(super) fn partitions<'s>(
        &'s self,
        snapshot: &'s Snapshot,
    ) -> impl Iterator<Item = (PartitionId, &'s Partition)> {
        let is_included =
            |(_, partition): &(_, &Partition)| partition.has_synced() && self.clusters.include(partition.origin());
        snapshot.partitions().filter(is_included)
    }

    /// Returns the freshness of the clusters in a snapshot.
    pub(super) fn coverage(&self, snapshot: &Snapshot) -> Coverage {
        let mut coverage = Coverage::default();
        for (_, partition) in snapshot.partitions().filter(|(_, it)| self.clusters.include(it.origin())) {
            if partition.has_synced() {
                coverage.add(partition);
            } else {
                coverage.add_missing(&partition.origin().cluster);
            }
        }
        if let Clusters::Matching(selector) = &self.clusters {
            let is_included = |labels: &std::collections::BTreeMap<String, String>| {
                selector.matches(|label| labels.get(label).map(String::as_str))
            };
            for (cluster, _) in snapshot.expected().filter(|(_, labels)| is_included(labels)) {
                coverage.add_missing(cluster);
            }
        }
        coverage
    }

    /// Returns the changes of these clusters.
    pub(super) fn changes(&self) -> HistoryScope {
        match &self.clusters {
            Clusters::One(cluster) => HistoryScope::Cluster(cluster.clone()),
            Clusters::Matching(selector) if selector.is_empty() => HistoryScope::Fleet,
            Clusters::Matching(_) => {
                let clusters = self.clusters.clone();
                HistoryScope::Selected(Arc::new(move |origin| clusters.include(origin)))
            }
        }
    }

    /// Returns the present state.
    pub(super) fn snapshot(&self) -> Arc<Snapshot> {
        self.cache.published.load_full()
    }
}

/// Returns whether some cluster has the resource, or will once it answers. A selection of clusters may have it later.
pub(super) fn has_any(cache: &CacheInfo, clusters: &Clusters) -> bool {
    let snapshot = cache.published.load();
    match clusters {
        Clusters::One(name) => {
            snapshot.partitions().any(|(_, partition)| partition.origin().cluster == *name)
                || snapshot.expected().any(|(cluster, _)| cluster == name)
        }
        Clusters::Matching(_) => true,
    }
}

/// Returns the order in which views of a resource are preferred.
pub(in crate::api) fn view_rank(view: &View) -> u8 {
    match view {
        View::Whole => 0,
        View::Shared => 1,
        View::Metadata => 2,
        View::Private(_) => 3,
    }
}
