//! View of the reader of one request.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::request::Parts;

use crate::api::kubernetes::{CacheInfo, ReadApi};
use crate::api::rights::{Extent, Place, Rights, RightsCheck, reader_of, sees_cluster};
use crate::cache::{Query, Snapshot};
use informer_hub_access::{Reader, Verb};
use informer_hub_types::{ApiResource, ClusterLabels, ClusterName, ObjectKey, Origin};

/// View of one reader. Every path below `/v1` that reads objects asks it, and nothing else, what the reader may see.
#[derive(Clone, Debug)]
pub(in crate::api) struct Sight {
    reader: Reader,
    rights: Rights,
}

impl Sight {
    /// Returns the view of the reader of a request.
    pub(in crate::api) fn of(api: &ReadApi, parts: &Parts) -> Self {
        Self { reader: reader_of(parts), rights: api.rights().clone() }
    }

    /// Returns whether no cluster and no namespace is hidden.
    pub(in crate::api) fn is_everything(&self) -> bool {
        self.reader.sees_everything()
    }

    /// Returns whether objects of a resource may be visible in some cluster and namespace.
    pub(in crate::api) fn resource(&self, resource: &ApiResource) -> bool {
        self.rights.may_see(&self.reader, resource)
    }

    /// Returns whether anything of a cluster may be visible.
    pub(in crate::api) fn cluster(&self, name: &ClusterName, labels: &ClusterLabels) -> bool {
        sees_cluster(&self.reader, name, labels)
    }

    /// Returns whether an object is visible.
    pub(in crate::api) fn object(&self, origin: &Origin, key: &ObjectKey) -> bool {
        self.rights.sees(&self.reader, origin, key.namespace())
    }

    /// Restricts a query of a cache to the visible objects. Asks the clusters, if the reader's rights are those that they
    /// give.
    pub(in crate::api) async fn restrict(&self, cache: &CacheInfo, query: Query) -> Query {
        let places = if self.reader.grants().reviews { places(&cache.published.load()) } else { Vec::new() };
        let visibility = self.rights.reviewed(&self.reader, Verb::List, &cache.resource, places).await;
        if visibility.is_everything() { query } else { query.visible_to(self.reader.name(), visibility) }
    }

    /// Returns the check of a stream that begins now.
    pub(in crate::api) fn check(&self) -> RightsCheck {
        self.rights.check(&self.reader)
    }
}

/// Returns all namespaces of all clusters.
fn places(snapshot: &Snapshot) -> Vec<Place> {
    let mut found: BTreeMap<ClusterName, (ClusterLabels, BTreeSet<_>)> = BTreeMap::new();
    for (_, partition) in snapshot.partitions() {
        let origin = partition.origin();
        let known = found.entry(origin.cluster.clone()).or_default();
        known.0.clone_from(&origin.cluster_labels);
        if snapshot.resource().namespaced {
            known.1.extend(partition.namespaces());
        }
    }
    let place = |(cluster, (labels, namespaces)): (_, (_, BTreeSet<_>))| Place {
        cluster,
        labels,
        extent: Extent::All(namespaces.into_iter().collect()),
    };
    found.into_iter().map(place).collect()
}
