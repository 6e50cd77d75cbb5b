//! The cache and the clusters that a request addresses. If its reader may not address them, the answer is 404 or 403.
//! [`crate::api::rights`] decides which objects of these clusters are visible.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use smol_str::SmolStr;

use super::encode::Naming;
use super::fleet::{CacheInfo, ClusterInfo, Fleet};
use super::freshness::Coverage;
use crate::api::notes::Notes;
use crate::api::rights::{Extent, Place, Rights, SeenLabels, sees_cluster};
use crate::cache::{HistoryScope, Partition, PartitionId, Snapshot};
use informer_hub_access::{Reader, Verb, Visibility};
use informer_hub_kubeapi::{Access, ResourcePath, Root, Status};
use informer_hub_types::{ClusterLabels, ClusterName, LabelSelector, Origin, View};

/// Clusters that a URL root selects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Clusters {
    /// One cluster.
    One(ClusterName),
    /// The clusters whose labels match, including clusters that are added later.
    Matching(LabelSelector),
}

impl Clusters {
    /// Returns the clusters that a URL root selects, and the naming of objects below it.
    pub(super) fn of(root: &Root) -> (Self, Naming) {
        match root {
            Root::Cluster(name) => (Self::One(name.clone()), Naming::Cluster),
            Root::Fleet(selector) => (Self::Matching(selector.clone()), Naming::Fleet),
            Root::Unique(selector) => (Self::Matching(selector.clone()), Naming::Unique),
        }
    }

    /// Returns whether the selection includes the cluster of an informer.
    pub(super) fn include(&self, origin: &Origin) -> bool {
        self.include_cluster(&origin.cluster, &origin.cluster_labels)
    }

    fn include_cluster(&self, cluster: &ClusterName, labels: &ClusterLabels) -> bool {
        match self {
            Self::One(name) => cluster == name,
            Self::Matching(selector) => {
                selector.is_empty() || selector.matches(|label| labels.get(label).map(String::as_str))
            }
        }
    }

    /// Returns the selected clusters of the fleet.
    pub(super) fn find(&self, fleet: &dyn Fleet) -> Vec<ClusterInfo> {
        let mut found = fleet.clusters();
        found.retain(|cluster| self.include_cluster(&cluster.name, &cluster.labels));
        found
    }
}

/// The cache and the clusters that a request addresses, and how objects are named in the answer. Also knows which
/// objects of the cache the reader may see.
#[derive(Clone, Debug)]
pub(super) struct Scope {
    pub(super) cache: CacheInfo,
    pub(super) clusters: Clusters,
    pub(super) naming: Naming,
    pub(super) visibility: Visibility,
}

impl Scope {
    /// Finds the cache of a resource below a URL root.
    ///
    /// # Errors
    /// [`Status`] of code 404 if the hub does not cache the resource there, or the reader may not see it. [`Status`] of
    /// code 503 at a URL root of one cluster whose first list is not complete.
    pub(super) fn find(
        fleet: &dyn Fleet,
        root: &Root,
        path: &ResourcePath,
        (rights, reader, notes): (&Rights, &Reader, &Notes),
    ) -> Result<Self, Status> {
        let (clusters, naming) = Clusters::of(root);
        let is_wanted = |cache: &CacheInfo| {
            let gvr = &cache.resource.gvr;
            gvr.group == path.group && gvr.version == path.version && gvr.resource == path.resource
        };
        let mut caches = fleet.caches();
        caches.retain(|cache| is_wanted(cache) && has_any(cache, &clusters));
        caches.sort_by_key(|cache| view_rank(&cache.view));
        let Some(cache) = caches.into_iter().next() else { return Err(Status::path_not_found()) };
        let is_misplaced = path.namespace.is_some() && !cache.resource.namespaced;
        let lacks_namespace = path.name.is_some() && path.namespace.is_none() && cache.resource.namespaced;
        if is_misplaced || lacks_namespace {
            return Err(Status::path_not_found());
        }
        let visibility = rights.visibility(reader, &cache.resource);
        // An unrestricted reader gets 404 for resources that the hub never serves, such as Secrets by default.
        if reader.sees_everything() && !visibility.may_see_some() {
            notes.withhold();
            return Err(Status::path_not_found());
        }
        let scope = Self { cache, clusters, naming, visibility };
        if let Clusters::One(cluster) = &scope.clusters
            && !scope.labels_of(cluster).is_some_and(|labels| sees_cluster(reader, cluster, &labels))
        {
            notes.withhold();
            return Err(Status::path_not_found());
        }
        if let Clusters::One(cluster) = &scope.clusters
            && !scope.is_synced(cluster)
        {
            let text = format!("the first list of {} in cluster {cluster} is not complete", scope.cache.resource.gvr);
            return Err(Status { retry_after: Some(1), ..Status::service_unavailable(text) });
        }
        Ok(scope)
    }

    /// Refuses a request if the reader has no right to its objects, as kube-apiserver does. At URL roots of several
    /// clusters, a right to some of the objects is enough; the answer then has only the visible objects.
    ///
    /// # Errors
    /// [`Status`] of code 403.
    pub(super) fn check_access(&self, reader: &Reader, verb: Verb, path: &ResourcePath) -> Result<(), Status> {
        let visibility = &self.visibility;
        let is_allowed = match &self.clusters {
            _ if visibility.is_everything() => true,
            Clusters::Matching(_) => visibility.may_see_some(),
            Clusters::One(cluster) => {
                let labels = self.labels_of(cluster).unwrap_or_default();
                let namespace = path.namespace.as_deref();
                let is_of_all = namespace.is_none() && self.cache.resource.namespaced;
                visibility.sees(cluster, &labels, namespace)
                    || is_of_all && visibility.sees_some_by_rules(cluster, &labels)
            }
        };
        if is_allowed {
            return Ok(());
        }
        let access = Access {
            user: reader.name(),
            verb: verb.as_str(),
            group: &path.group,
            resource: &path.resource,
            subresource: "",
            namespace: path.namespace.as_deref().unwrap_or_default(),
            name: path.name.as_deref().unwrap_or_default(),
        };
        let failure = match &self.clusters {
            Clusters::One(cluster) => self.failure_of(cluster),
            Clusters::Matching(_) => None,
        };
        Err(Status::forbidden(&access, failure.as_deref().unwrap_or_default()))
    }

    /// Returns why a cluster has not answered an access review; `None` if it has answered or was not asked.
    fn failure_of(&self, cluster: &ClusterName) -> Option<Arc<str>> {
        self.visibility.reviewed()?.get(cluster)?.failure.clone()
    }

    /// Sends access reviews for the namespaces of a snapshot, if the reader's rights come from the clusters.
    pub(super) async fn review(
        &mut self,
        snapshot: &Snapshot,
        (rights, reader): (&Rights, &Reader),
        verb: Verb,
        path: &ResourcePath,
    ) {
        if self.visibility.reviewed().is_some() {
            let places = self.places(snapshot, path.namespace.as_ref());
            self.visibility = rights.reviewed(reader, verb, &self.cache.resource, places).await;
        }
    }

    /// Returns whether the reader's access to every namespace in a snapshot has been reviewed.
    pub(super) fn is_reviewed(&self, snapshot: &Snapshot, path: &ResourcePath) -> bool {
        let Some(reviewed) = self.visibility.reviewed() else { return true };
        self.places(snapshot, path.namespace.as_ref()).iter().all(|place| {
            let Some(review) = reviewed.get(&place.cluster) else { return false };
            let Extent::All(namespaces) = &place.extent else { return true };
            let is_decided = review.everywhere == Some(true) || review.failure.is_some();
            is_decided || {
                let is_known =
                    |namespace: &SmolStr| self.visibility.is_decided(&place.cluster, &place.labels, Some(namespace));
                namespaces.iter().all(is_known)
            }
        })
    }

    /// Returns the clusters and namespaces for which a request needs access reviews. At a URL root of one cluster, a
    /// request without a namespace needs the right to all namespaces, as in kube-apiserver.
    fn places(&self, snapshot: &Snapshot, namespace: Option<&SmolStr>) -> Vec<Place> {
        let has_namespaces = self.naming.is_fleet() && self.cache.resource.namespaced && namespace.is_none();
        let mut found: BTreeMap<ClusterName, (ClusterLabels, BTreeSet<SmolStr>)> = BTreeMap::new();
        for (_, partition) in snapshot.partitions().filter(|(_, it)| self.clusters.include(it.origin())) {
            let origin = partition.origin();
            let known = found.entry(origin.cluster.clone()).or_default();
            known.0.clone_from(&origin.cluster_labels);
            if has_namespaces {
                known.1.extend(partition.namespaces().iter().cloned());
            }
        }
        for (cluster, labels) in self.expected(snapshot) {
            found.entry(cluster.clone()).or_insert_with(|| (labels.clone(), BTreeSet::new()));
        }
        let place = |(cluster, (labels, namespaces)): (_, (_, BTreeSet<SmolStr>))| {
            let extent = match namespace {
                Some(namespace) => Extent::Namespace(namespace.clone()),
                None => Extent::All(namespaces.into_iter().collect()),
            };
            Place { cluster, labels, extent }
        };
        found.into_iter().map(place).collect()
    }

    /// Returns the selected clusters that should have the resource but have not answered yet, with their labels.
    fn expected<'s>(&'s self, snapshot: &'s Snapshot) -> impl Iterator<Item = (&'s ClusterName, &'s ClusterLabels)> {
        snapshot.expected().filter(|(cluster, labels)| self.clusters.include_cluster(cluster, labels))
    }

    /// Returns the labels of a cluster; `None` unless the cluster has the resource, or is expected to have it once it
    /// answers.
    fn labels_of(&self, cluster: &ClusterName) -> Option<ClusterLabels> {
        let snapshot = self.cache.published.load();
        let mut origins = snapshot.partitions().map(|(_, partition)| partition.origin());
        let known = origins.find(|origin| origin.cluster == *cluster).map(|origin| origin.cluster_labels.clone());
        known.or_else(|| snapshot.expected().find(|(name, _)| *name == cluster).map(|(_, labels)| labels.clone()))
    }

    /// Returns whether at least one informer of the resource in a cluster has synced, even if the reader may not see
    /// its objects.
    fn is_synced(&self, cluster: &ClusterName) -> bool {
        let snapshot = self.cache.published.load();
        snapshot.partitions().any(|(_, partition)| partition.has_synced() && partition.origin().cluster == *cluster)
    }

    /// Returns whether the URL root selects a cluster. At roots of several clusters, the cluster must also have the
    /// resource, or be expected to have it.
    pub(super) fn covers(&self, cluster: &ClusterName) -> bool {
        match &self.clusters {
            Clusters::One(name) => name == cluster,
            Clusters::Matching(_) => {
                self.labels_of(cluster).is_some_and(|labels| self.clusters.include_cluster(cluster, &labels))
            }
        }
    }

    /// Returns whether objects of an informer may be in the answer.
    fn include(&self, origin: &Origin) -> bool {
        self.clusters.include(origin) && is_visible(&self.visibility, origin)
    }

    /// Returns whether any partition (objects of one informer) that is visible in the selected clusters has synced.
    pub(super) fn has_synced(&self, snapshot: &Snapshot) -> bool {
        self.partitions(snapshot).next().is_some()
    }

    /// Returns the synced and visible partitions (objects of one informer each) of the selected clusters.
    pub(super) fn partitions<'s>(
        &'s self,
        snapshot: &'s Snapshot,
    ) -> impl Iterator<Item = (PartitionId, &'s Partition)> {
        let is_included = |(_, partition): &(_, &Partition)| partition.has_synced() && self.include(partition.origin());
        snapshot.partitions().filter(is_included)
    }

    /// Returns which of the selected clusters are outdated, missing or incomplete in a snapshot.
    pub(super) fn coverage(&self, snapshot: &Snapshot) -> Coverage {
        let mut coverage = Coverage::default();
        for (_, partition) in snapshot.partitions().filter(|(_, it)| self.include(it.origin())) {
            if partition.has_synced() {
                coverage.add(partition);
            } else {
                coverage.add_missing(&partition.origin().cluster);
            }
        }
        if matches!(self.clusters, Clusters::Matching(_)) {
            for (cluster, labels) in self.expected(snapshot) {
                if self.visibility.sees_any(cluster, labels) {
                    coverage.add_missing(cluster);
                }
            }
        }
        coverage.add_unanswered(&self.visibility);
        coverage
    }

    /// Returns the filter for the changes of the selected clusters in the window of recent changes.
    pub(super) fn changes(&self) -> HistoryScope {
        match &self.clusters {
            Clusters::One(cluster) => HistoryScope::Cluster(cluster.clone()),
            Clusters::Matching(selector) if selector.is_empty() && self.visibility.is_everything() => {
                HistoryScope::Fleet
            }
            Clusters::Matching(_) => {
                let (clusters, visibility) = (self.clusters.clone(), self.visibility.clone());
                HistoryScope::Selected(Arc::new(move |origin| {
                    // With access reviews, a cluster is asked about a namespace when it has a change, so no informer is
                    // left out here.
                    let is_asked = visibility.reviewed().is_some();
                    clusters.include(origin) && (is_asked || is_visible(&visibility, origin))
                }))
            }
        }
    }

    /// Returns whether a watch must end: a cluster has new labels, and with them the reader sees other namespaces of
    /// it. Stores the present labels in `seen`.
    pub(super) fn have_labels_changed(&self, seen: &mut SeenLabels) -> bool {
        let snapshot = self.cache.published.load();
        let origins = snapshot.partitions().map(|(_, partition)| partition.origin());
        // As in `Self::changes`.
        let has_all = matches!(self.clusters, Clusters::One(_)) || self.visibility.reviewed().is_some();
        let is_followed = |origin: &Origin| has_all || is_visible(&self.visibility, origin);
        seen.changed(&self.visibility, is_followed, origins.filter(|origin| self.clusters.include(origin)))
    }

    pub(super) fn snapshot(&self) -> Arc<Snapshot> {
        self.cache.published.load_full()
    }
}

/// Returns whether objects of an informer may be visible.
pub(in crate::api) fn is_visible(visibility: &Visibility, origin: &Origin) -> bool {
    let (cluster, labels) = (&origin.cluster, &origin.cluster_labels);
    match origin.scope.namespace.as_deref() {
        Some(namespace) => visibility.sees(cluster, labels, Some(namespace)),
        None => visibility.sees_any(cluster, labels),
    }
}

/// Returns whether the selected clusters have the resource or may have it later, which is always true at URL roots of
/// several clusters. A single cluster must have a partition, or be expected to have the resource once it answers.
fn has_any(cache: &CacheInfo, clusters: &Clusters) -> bool {
    let snapshot = cache.published.load();
    match clusters {
        Clusters::One(name) => {
            snapshot.partitions().any(|(_, partition)| partition.origin().cluster == *name)
                || snapshot.expected().any(|(cluster, _)| cluster == name)
        }
        Clusters::Matching(_) => true,
    }
}

/// Returns whether discovery lists a resource. For one cluster, the reader must be able to see objects of it there.
pub(super) fn is_listed(cache: &CacheInfo, clusters: &Clusters, visibility: &Visibility) -> bool {
    let snapshot = cache.published.load();
    match clusters {
        Clusters::One(name) if visibility.reviewed().is_none() => {
            let is_it = |cluster: &ClusterName, labels| cluster == name && visibility.sees_any(cluster, labels);
            let mut origins = snapshot.partitions().map(|(_, partition)| partition.origin());
            origins.any(|origin| is_it(&origin.cluster, &origin.cluster_labels))
                || snapshot.expected().any(|(cluster, labels)| is_it(cluster, labels))
        }
        _ => visibility.may_see_some() && has_any(cache, clusters),
    }
}

/// Returns the rank of a view, which is the choice of object parts that a cache keeps. Of several caches of a resource,
/// the one with the lowest rank is used.
pub(in crate::api) fn view_rank(view: &View) -> u8 {
    match view {
        View::Whole => 0,
        View::Shared => 1,
        View::Metadata => 2,
        View::Private(_) => 3,
    }
}
