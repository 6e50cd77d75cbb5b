//! Places (namespaces of clusters) that lists and watches omit, because access reviews hide them from the reader. If an
//! omitted place becomes visible, a watch is refused, because its client lacks the place's older objects.
//!
//! Applies only to readers whose rights come from access reviews. [`crate::api::rights::Omissions`] records the omitted
//! places.

use std::collections::{BTreeMap, BTreeSet};

use smol_str::SmolStr;

use super::ReadApi;
use super::read_request::ReadRequest;
use super::scope::{Clusters, Scope};
use super::selection::Selection;
use crate::api::rights::{
    Extent, MAX_NAMESPACES, Namespaces, OmissionKey, Place, Point, Reviewer, StateAnswer, WatchOmissions,
};
use crate::cache::{HistoryCursor, Snapshot};
use informer_hub_access::{Verb, Visibility};
use informer_hub_types::{ClusterLabels, ClusterName};

/// Selected clusters that have the resource, with their labels and the namespaces of their objects. The empty namespace
/// stands for objects without a namespace.
type Territory<'s> = BTreeMap<&'s ClusterName, (&'s ClusterLabels, BTreeSet<&'s str>)>;

impl Scope {
    fn territory<'s>(&self, snapshot: &'s Snapshot, selection: &Selection) -> Territory<'s> {
        let mut territory = Territory::new();
        for (_, partition) in snapshot.partitions().filter(|(_, it)| it.has_synced()) {
            let origin = partition.origin();
            if !self.clusters.include(origin) {
                continue;
            }
            let (_, namespaces) =
                territory.entry(&origin.cluster).or_insert_with(|| (&origin.cluster_labels, BTreeSet::new()));
            if self.cache.resource.namespaced {
                let all = partition.namespaces().iter().map(SmolStr::as_str);
                namespaces.extend(all.filter(|namespace| !selection.excludes_namespace(namespace)));
            } else {
                namespaces.insert("");
            }
        }
        territory
    }

    /// Returns the namespaces with objects that the reader may not see. If more than [`MAX_NAMESPACES`] namespaces of a
    /// cluster need a review, the further ones are left out, because they are never reviewed.
    fn omitted(&self, territory: &Territory<'_>) -> Namespaces {
        let mut omitted = Namespaces::new();
        for (cluster, (labels, namespaces)) in territory {
            let is_reviewed = |it: &&&str| !self.visibility.sees_by_rules(cluster, labels, namespace_of(it));
            let reviewed = namespaces.iter().filter(is_reviewed).take(MAX_NAMESPACES);
            let hidden = reviewed.filter(|it| !self.visibility.sees(cluster, labels, namespace_of(it)));
            let hidden: BTreeSet<_> = hidden.map(|namespace| SmolStr::from(*namespace)).collect();
            if !hidden.is_empty() {
                omitted.insert((*cluster).clone(), hidden);
            }
        }
        omitted
    }

    /// Returns the omitted namespaces to which clusters have denied access. Leaves out namespaces whose access review
    /// has no answer yet: they are reviewed when one of their objects changes.
    fn denied(&self, territory: &Territory<'_>) -> Namespaces {
        let mut omitted = self.omitted(territory);
        for (cluster, namespaces) in &mut omitted {
            let Some((labels, _)) = territory.get(cluster) else { continue };
            // At a root of one cluster, only the review of all its namespaces counts.
            let is_denied = !self.naming.is_fleet() && self.visibility.is_decided(cluster, labels, None);
            namespaces.retain(|it| is_denied || self.visibility.is_decided(cluster, labels, namespace_of(it)));
        }
        omitted
    }

    /// Returns for which namespaces of a cluster access reviews must be sent, to learn whether a list would contain
    /// `namespaces`.
    ///
    /// If the request names a namespace, only that namespace is reviewed. Otherwise, access to the whole cluster is
    /// reviewed. If that is denied at URL roots of several clusters, access to each of `namespaces` is reviewed.
    /// Cluster-scoped resources need access to the whole cluster.
    fn extent(&self, asked: &ReadRequest, namespaces: &BTreeSet<SmolStr>) -> Extent {
        match &asked.path.namespace {
            Some(namespace) => Extent::Namespace(namespace.clone()),
            None if self.naming.is_fleet() && self.cache.resource.namespaced => {
                Extent::All(namespaces.iter().cloned().collect())
            }
            None => Extent::All(Vec::new()),
        }
    }

    fn omission_key(&self, asked: &ReadRequest) -> OmissionKey {
        let root = match &self.clusters {
            Clusters::One(cluster) => Some(cluster),
            Clusters::Matching(_) => None,
        };
        OmissionKey::new(&asked.user, &self.cache.resource.gvr, root)
    }

    /// Returns the [`Point`] (progress of a client) that belongs to the resource version that the client has. `None` if
    /// no watch can resume from this version.
    pub(super) fn point(&self, snapshot: &Snapshot, version: u64) -> Option<Point> {
        let position = match &self.clusters {
            Clusters::One(cluster) => snapshot.locate(cluster, version).ok()?.version(),
            Clusters::Matching(_) => version,
        };
        Some(Point { position, version })
    }

    /// Returns the [`Point`] (progress of a client) of a client that has received all changes up to the cursor of its
    /// watch.
    pub(super) fn point_of(&self, cursor: &HistoryCursor) -> Point {
        let end = Point { position: cursor.version(), version: cursor.version() };
        match &self.clusters {
            Clusters::One(_) => {
                let snapshot = self.snapshot();
                let point = self.cluster_version(&snapshot).and_then(|version| self.point(&snapshot, version));
                point.unwrap_or(Point { version: 0, ..end })
            }
            Clusters::Matching(_) => end,
        }
    }

    /// Records which places (cluster and namespace) an answer omits and which it shows. The answer is a list or the
    /// initial state of a watch, read from `snapshot` at `version`.
    pub(super) fn record_answer(
        &self,
        api: &ReadApi,
        asked: &ReadRequest,
        selection: &Selection,
        (snapshot, version): (&Snapshot, u64),
    ) {
        if self.visibility.reviewed().is_none() {
            return;
        }
        let Some(at) = self.point(snapshot, version) else { return };
        let territory = self.territory(snapshot, selection);
        let oldest = match &self.clusters {
            Clusters::One(_) => 0,
            Clusters::Matching(_) => self.cache.history.oldest(),
        };
        let is_first = asked.options.continuation.is_empty();
        let answer = StateAnswer { at, is_first, omitted: self.omitted(&territory), oldest };
        api.rights.omissions().answered(&self.omission_key(asked), &answer, |cluster, namespace| {
            territory.contains_key(cluster) && !selection.excludes_namespace(namespace)
        });
    }
}

fn namespace_of(namespace: &str) -> Option<&str> {
    Some(namespace).filter(|namespace| !namespace.is_empty())
}

/// Returns the namespaces among `places` whose objects are visible according to `visibility`.
fn visible_of(visibility: &Visibility, places: &Namespaces, territory: &Territory<'_>) -> Namespaces {
    let visible = places.iter().filter_map(|(cluster, namespaces)| {
        let (labels, _) = territory.get(cluster)?;
        let visible = namespaces.iter().filter(|it| visibility.sees(cluster, labels, namespace_of(it)));
        let visible: BTreeSet<_> = visible.cloned().collect();
        (!visible.is_empty()).then(|| (cluster.clone(), visible))
    });
    visible.collect()
}

/// Places (cluster and namespace) whose older objects the client of a running watch may lack, because its list omitted
/// them.
#[derive(Debug)]
pub(super) struct OmittedPlaces {
    watch: WatchOmissions,
    /// Places that a list would have shown when the watch began, although the client lacks their older objects. The
    /// watch was accepted nevertheless: after an earlier refusal, the client's new list had omitted them again.
    listed: Namespaces,
    /// Repeats the access reviews in `reviewed`, which are for the verb `list`. Detects when a list would show a place
    /// whose older objects the client lacks.
    lister: Reviewer,
    /// Last answers to the access reviews that `lister` repeats.
    reviewed: Visibility,
}

impl OmittedPlaces {
    /// Returns the places whose older objects the client of a watch may lack. `from` is the client's progress; `None`
    /// if the client has no objects yet.
    ///
    /// Returns `None` if the client must list again: the watch and a list would both show one of these places. A place
    /// does not count for a while if the client's list after an earlier refusal omitted it again.
    pub(super) async fn of(
        (api, asked): (&ReadApi, &ReadRequest),
        scope: &Scope,
        selection: &Selection,
        from: Option<Point>,
    ) -> Option<Self> {
        let (snapshot, key) = (scope.snapshot(), scope.omission_key(asked));
        let territory = scope.territory(&snapshot, selection);
        let is_wanted = |cluster: &ClusterName, namespace: &str| {
            territory.contains_key(cluster) && !selection.excludes_namespace(namespace)
        };
        let record = api.rights.omissions();
        let mut lacking = from.map(|from| record.covering(&key, from, is_wanted)).unwrap_or_default();
        let visible = visible_of(&scope.visibility, &lacking, &territory);
        let places = visible.iter().map(|(cluster, namespaces)| {
            let labels = territory.get(cluster).map(|(labels, _)| (*labels).clone()).unwrap_or_default();
            Place { cluster: cluster.clone(), labels, extent: scope.extent(asked, namespaces) }
        });
        let resource = &scope.cache.resource;
        let reviewed = api.rights.reviewed(&asked.user, Verb::List, resource, places.collect()).await;
        let listed = visible_of(&reviewed, &visible, &territory);
        if !listed.is_empty() && record.refuses(&key, &listed) {
            return None;
        }
        if from.is_some() {
            // The client may lack them although the record, which is bounded, has none of them.
            for (cluster, namespaces) in scope.denied(&territory) {
                lacking.entry(cluster).or_default().extend(namespaces);
            }
        }
        let watch = record.follow(key, from.unwrap_or_default(), lacking);
        Some(Self { watch, listed, lister: api.rights.reviewer(&asked.user, Verb::List, resource), reviewed })
    }

    /// Repeats the access reviews that are due. Returns false if the client must list again: a list may now show a
    /// place whose older objects the client lacks.
    pub(super) async fn are_still(&mut self) -> bool {
        self.lister.has_same(&self.reviewed).await && !self.watch.refuses(&self.listed)
    }

    /// Returns whether the client must list again, because this namespace has become visible and the client may lack
    /// older objects in it.
    pub(super) fn refuse(&self, cluster: &ClusterName, namespace: Option<&str>) -> bool {
        let namespace = namespace.unwrap_or_default();
        let place = || [(cluster.clone(), BTreeSet::from([SmolStr::from(namespace)]))].into();
        self.watch.contains(cluster, namespace) && self.watch.refuses(&place())
    }

    /// Records that the watch did not show a change in this namespace to its client, which may therefore lack objects
    /// there.
    pub(super) fn omit(&mut self, cluster: &ClusterName, namespace: Option<&str>) {
        self.watch.omit(cluster, namespace.unwrap_or_default());
    }

    /// Records that the client has received all changes up to `point`.
    pub(super) fn reach(&mut self, point: Point) {
        self.watch.reach(point);
    }
}
