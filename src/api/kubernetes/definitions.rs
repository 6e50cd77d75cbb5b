//! Definitions of resources: columns, list kind, names and selectable fields.
//!
//! The definition of a custom resource comes from its CustomResourceDefinition: in the cluster of the request, or in
//! the first cluster of the fleet that serves the resource and that the reader may know of. It is read from the hub's
//! own cache if the hub watches definitions, else from the apiserver, and kept for a minute.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use parking_lot::Mutex;
use serde::Deserialize;

use super::fleet::{CacheInfo, Fleet};
use super::scope::{Clusters, Scope};
use crate::api::rights::sees_cluster;
use informer_hub_access::Reader;
use informer_hub_kubeapi::{Printer, Served};
use informer_hub_types::clock::{self, Instant};
use informer_hub_types::{ApiResource, ClusterName, Gvr, ObjectKey, View, is_built_in};

/// How long a definition is kept before it is read again.
const KEPT: Duration = Duration::from_secs(60);

/// Maximum wait for a cluster to answer with a definition. Without an answer, tables of the resource have only the
/// columns name and age.
const WAIT: Duration = Duration::from_secs(2);

const MAX_KEPT: usize = 1024;

/// Definition of one resource, cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Definition {
    pub(super) printer: Arc<Printer>,
    /// Kind of a list, such as `PodList`.
    pub(super) list_kind: String,
    /// Whether the resource is a custom resource. Each item of a list of custom resources has its `kind` and
    /// `apiVersion`.
    pub(super) is_custom: bool,
    /// Paths of the fields that a field selector may name, from `selectableFields` of the CustomResourceDefinition.
    pub(super) selectable: Arc<[String]>,
    /// Names of the resource for discovery documents.
    pub(super) served: Served,
}

#[derive(Debug, Default)]
pub(super) struct Definitions {
    known: Mutex<BTreeMap<(ClusterName, Gvr), (Instant, Definition)>>,
}

/// Fields of a CustomResourceDefinition that the hub uses.
#[derive(Deserialize, Default)]
struct CustomDefinition {
    #[serde(default)]
    spec: CustomSpec,
}

#[derive(Deserialize, Default)]
struct CustomSpec {
    #[serde(default)]
    names: CustomNames,
    #[serde(default)]
    versions: Vec<CustomVersion>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct CustomNames {
    singular: String,
    short_names: Vec<String>,
    categories: Vec<String>,
    list_kind: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CustomVersion {
    name: String,
    #[serde(default)]
    selectable_fields: Vec<SelectableField>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SelectableField {
    json_path: String,
}

impl Definitions {
    /// Returns the definition of the resource that a request addresses.
    pub(super) async fn of(&self, fleet: &dyn Fleet, scope: &Scope, reader: &Reader) -> Definition {
        self.of_resource(fleet, &scope.cache, &scope.clusters, reader).await
    }

    pub(super) async fn of_resource(
        &self,
        fleet: &dyn Fleet,
        cache: &CacheInfo,
        clusters: &Clusters,
        reader: &Reader,
    ) -> Definition {
        let gvr = &cache.resource.gvr;
        if is_of_kubernetes(&gvr.group, &gvr.resource) {
            return built(&cache.resource, None);
        }
        let snapshot = cache.published.load_full();
        let serving = || {
            let synced = snapshot.partitions().filter(|(_, it)| it.has_synced() && clusters.include(it.origin()));
            let origins = synced.map(|(_, it)| it.origin());
            origins.filter(|it| sees_cluster(reader, &it.cluster, &it.cluster_labels)).map(|it| it.cluster.clone())
        };
        let Some(first) = serving().next() else { return built(&cache.resource, None) };
        let key = (first, gvr.clone());
        if let Some((_, known)) = self.known.lock().get(&key).filter(|(until, _)| clock::now() < *until) {
            return known.clone();
        }
        let json = match cached(fleet, gvr, &key.0) {
            Some(json) => Some(json),
            None => fetched(fleet, gvr, serving().collect()).await,
        };
        let definition = built(&cache.resource, json.as_deref());
        let mut known = self.known.lock();
        if known.len() >= MAX_KEPT {
            known.clear();
        }
        known.insert(key, (clock::now() + KEPT, definition.clone()));
        definition
    }
}

/// Returns whether a resource is built into Kubernetes, and therefore has no CustomResourceDefinition.
pub(super) fn is_of_kubernetes(group: &str, resource: &str) -> bool {
    !group.contains('.') || is_built_in(group, resource)
}

fn name_of(gvr: &Gvr) -> String {
    format!("{}.{}", gvr.resource, gvr.group)
}

/// Returns the CustomResourceDefinition as JSON from the hub's own cache of definitions; `None` if it is not there.
fn cached(fleet: &dyn Fleet, gvr: &Gvr, cluster: &ClusterName) -> Option<Bytes> {
    let is_definitions = |cache: &CacheInfo| {
        let gvr = &cache.resource.gvr;
        cache.view == View::Shared && gvr.group == "apiextensions.k8s.io" && gvr.resource == "customresourcedefinitions"
    };
    let cache = fleet.caches().into_iter().find(is_definitions)?;
    let key = ObjectKey::new("", &name_of(gvr));
    let snapshot = cache.published.load();
    let mut of_cluster = snapshot.partitions().filter(|(_, partition)| partition.origin().cluster == *cluster);
    of_cluster.find_map(|(_, partition)| {
        let json = partition.get(&key)?.json().ok()?;
        Some(Bytes::copy_from_slice(&json))
    })
}

/// Fetches the CustomResourceDefinition, as JSON, from the first reachable cluster in `serving`. `None` if that cluster
/// does not send it, or none is reachable.
async fn fetched(fleet: &dyn Fleet, gvr: &Gvr, serving: Vec<ClusterName>) -> Option<Bytes> {
    let known = fleet.clusters();
    let is_reachable = |name: &ClusterName| known.iter().any(|cluster| cluster.name == *name && cluster.is_reachable);
    let first = serving.into_iter().find(is_reachable)?;
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{}", name_of(gvr));
    tokio::time::timeout(WAIT, fleet.fetch(&first, path)).await.ok()?.ok()
}

fn built(resource: &ApiResource, json: Option<&[u8]>) -> Definition {
    let custom: Option<CustomDefinition> = json.and_then(|json| serde_json::from_slice(json).ok());
    let printer = Arc::new(Printer::new(resource, json.filter(|_| custom.is_some())));
    let is_custom = !is_of_kubernetes(&resource.gvr.group, &resource.gvr.resource);
    let mut served = Served::of(resource);
    let mut list_kind = format!("{}List", resource.kind);
    let mut selectable = Vec::new();
    if let Some(CustomDefinition { spec }) = custom {
        let names = spec.names;
        if !names.singular.is_empty() {
            served.singular = names.singular.into();
        }
        served.short_names = names.short_names.into_iter().map(Into::into).collect();
        served.categories = names.categories.into_iter().map(Into::into).collect();
        if !names.list_kind.is_empty() {
            list_kind = names.list_kind;
        }
        let version = spec.versions.into_iter().find(|version| version.name == resource.gvr.version);
        selectable
            .extend(version.into_iter().flat_map(|version| version.selectable_fields).map(|field| field.json_path));
    }
    Definition { printer, list_kind, is_custom, selectable: selectable.into(), served }
}
