//! View of the reader of one request below `/v1`: the visible clusters, resources and namespaces.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::request::Parts;
use smol_str::SmolStr;

use crate::api::kubernetes::{CacheInfo, ReadApi};
use crate::api::notes::Notes;
use crate::api::rights::{Extent, Place, Reviewer, Rights, names_cluster, reader_of, sees_cluster};
use crate::cache::Query;
use informer_hub_access::{Reader, Verb, Visibility};
use informer_hub_types::{ApiResource, ClusterLabels, ClusterName, Gvr, Object, Origin};

/// Clusters and objects that the reader of one request may see. Paths below `/v1` that read objects check rights only
/// by this type.
#[derive(Clone, Debug)]
pub(in crate::api) struct Sight {
    reader: Reader,
    rights: Rights,
    notes: Notes,
}

/// Namespaces to review, by cluster, together with the cluster's labels.
type Places = BTreeMap<ClusterName, (ClusterLabels, BTreeSet<SmolStr>)>;

impl Sight {
    /// Returns the rights of the reader of a request.
    pub(in crate::api) fn of(api: &ReadApi, parts: &Parts) -> Self {
        Self { reader: reader_of(parts), rights: api.rights().clone(), notes: Notes::of(parts) }
    }

    /// Returns whether the reader may see everything.
    pub(in crate::api) fn is_everything(&self) -> bool {
        self.reader.sees_everything()
    }

    /// Records for the audit log that the reader may not see the requested objects.
    pub(in crate::api) fn withhold(&self) {
        self.notes.withhold();
    }

    /// Returns whether objects of a resource may be visible in some cluster and namespace.
    pub(in crate::api) fn resource(&self, resource: &ApiResource) -> bool {
        self.rights.may_see(&self.reader, resource)
    }

    /// Returns whether objects of a cluster may be visible.
    pub(in crate::api) fn cluster(&self, name: &ClusterName, labels: &ClusterLabels) -> bool {
        sees_cluster(&self.reader, name, labels)
    }

    /// Returns whether the reader may learn the name of a cluster that its request does not name, for example from a
    /// suggestion.
    pub(in crate::api) fn names_cluster(&self, name: &ClusterName, labels: &ClusterLabels) -> bool {
        names_cluster(&self.reader, name, labels)
    }

    /// Returns whether the reader may see objects of a namespace, even if there are none at present. Sends an access
    /// review if the reader's rights come from the cluster.
    pub(in crate::api) async fn sees(
        &self,
        verb: Verb,
        resource: &ApiResource,
        (cluster, labels): (&ClusterName, &ClusterLabels),
        namespace: Option<&str>,
    ) -> bool {
        let namespaces = namespace.map(SmolStr::from).into_iter().collect();
        let places = [(cluster.clone(), (labels.clone(), namespaces))].into();
        self.reviewed(verb, resource, places).await.sees(cluster, labels, namespace)
    }

    /// Removes objects that the reader may not see. Sends access reviews if the reader's rights come from the clusters.
    pub(in crate::api) async fn retain(&self, verb: Verb, objects: &mut Vec<Object>) {
        let mut wanted: BTreeMap<&Gvr, (&ApiResource, Places)> = BTreeMap::new();
        for object in objects.iter() {
            let origin = object.origin();
            let (_, places) = wanted.entry(&origin.resource.gvr).or_insert_with(|| (&origin.resource, Places::new()));
            add(places, origin, object.stored().key().namespace().map(Into::into));
        }
        let mut visible: BTreeMap<Gvr, Visibility> = BTreeMap::new();
        for (gvr, (resource, places)) in wanted {
            visible.insert(gvr.clone(), self.reviewed(verb, resource, places).await);
        }
        objects.retain(|object| {
            let origin = object.origin();
            let namespace = object.stored().key().namespace();
            let visibility = visible.get(&origin.resource.gvr);
            visibility.is_some_and(|it| it.sees(&origin.cluster, &origin.cluster_labels, namespace))
        });
    }

    /// Returns which objects of a cache the reader may see.
    ///
    /// If the reader's rights come from the clusters, sends access reviews to the clusters of the informers that
    /// `is_wanted` accepts. The reviews ask about `namespaces`, or about all namespaces if `namespaces` is empty.
    pub(in crate::api) async fn visibility(
        &self,
        verb: Verb,
        cache: &CacheInfo,
        is_wanted: impl Fn(&Origin) -> bool,
        namespaces: &[String],
    ) -> Visibility {
        if !self.reader.grants().reviews {
            return self.rights.visibility(&self.reader, &cache.resource);
        }
        let mut places = Places::new();
        let snapshot = cache.published.load_full();
        for (_, partition) in snapshot.partitions().filter(|(_, partition)| is_wanted(partition.origin())) {
            let is_among = |name: &SmolStr| namespaces.is_empty() || namespaces.iter().any(|wanted| wanted == name);
            add(&mut places, partition.origin(), partition.namespaces().iter().filter(|name| is_among(name)).cloned());
        }
        self.reviewed(verb, &cache.resource, places).await
    }

    async fn reviewed(&self, verb: Verb, resource: &ApiResource, places: Places) -> Visibility {
        let place = |(cluster, (labels, namespaces)): (_, (_, BTreeSet<_>))| {
            let namespaces = namespaces.into_iter().filter(|_| resource.namespaced);
            Place { cluster, labels, extent: Extent::All(namespaces.collect()) }
        };
        let places = places.into_iter().map(place).collect();
        self.rights.reviewed(&self.reader, verb, resource, places).await
    }

    /// Restricts a query of a cache to the objects that the reader may see. Returns the query and the [`Visibility`]
    /// by which it was restricted. If the reader may see everything, the query is unchanged.
    pub(in crate::api) async fn restrict(&self, cache: &CacheInfo, query: Query) -> (Query, Visibility) {
        let visibility = self.visibility(Verb::List, cache, |origin| query.selects(origin), &[]).await;
        if visibility.is_everything() {
            return (query, visibility);
        }
        (query.visible_to(self.reader.name(), visibility.clone()), visibility)
    }

    /// Returns the reviewer with which an open stream of a resource repeats the access reviews of its reader.
    pub(in crate::api) fn reviewer(&self, resource: &ApiResource) -> Reviewer {
        self.rights.reviewer(&self.reader, Verb::Watch, resource)
    }
}

fn add(places: &mut Places, origin: &Origin, namespaces: impl IntoIterator<Item = SmolStr>) {
    let known = places.entry(origin.cluster.clone()).or_default();
    known.0.clone_from(&origin.cluster_labels);
    known.1.extend(namespaces);
}
