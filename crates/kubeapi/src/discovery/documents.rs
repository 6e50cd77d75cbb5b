//! The JSON of discovery documents, with its members in kube-apiserver's order.

use informer_hub_types::is_built_in;
use serde::Serialize;
use smol_str::SmolStr;

use super::Served;
use super::order::Group;
use crate::encode::json;

/// Verbs of every resource: the hub only reads.
const VERBS: [&str; 3] = ["get", "list", "watch"];

/// `kind` and `apiVersion` of a document. kube-apiserver omits `apiVersion` in documents of the core group.
#[derive(Serialize)]
struct Head {
    kind: &'static str,
    #[serde(rename = "apiVersion", skip_serializing_if = "str::is_empty")]
    api_version: &'static str,
}

#[derive(Serialize)]
struct ApiVersions<'a> {
    #[serde(flatten)]
    head: Head,
    versions: Vec<&'a str>,
    /// Always empty: clients use the address that they have connected to.
    #[serde(rename = "serverAddressByClientCIDRs")]
    addresses: [(); 0],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GroupVersion<'a> {
    group_version: String,
    version: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ApiGroup<'a> {
    name: &'a str,
    versions: Vec<GroupVersion<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    preferred_version: Option<GroupVersion<'a>>,
}

#[derive(Serialize)]
struct OneGroup<'a> {
    #[serde(flatten)]
    head: Head,
    #[serde(flatten)]
    group: ApiGroup<'a>,
}

#[derive(Serialize)]
struct GroupList<'a> {
    #[serde(flatten)]
    head: Head,
    groups: Vec<ApiGroup<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceList<'a> {
    #[serde(flatten)]
    head: Head,
    group_version: String,
    resources: Vec<Resource<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Resource<'a> {
    name: &'a str,
    singular_name: &'a str,
    namespaced: bool,
    kind: &'a str,
    verbs: [&'static str; 3],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    short_names: Vec<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    categories: Vec<&'a str>,
}

#[derive(Serialize)]
struct Aggregated<'a> {
    #[serde(flatten)]
    head: Head,
    metadata: Metadata<'a>,
    items: Vec<AggregatedGroup<'a>>,
}

#[derive(Serialize)]
struct Metadata<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
}

#[derive(Serialize)]
struct AggregatedGroup<'a> {
    metadata: Metadata<'a>,
    versions: Vec<AggregatedVersion<'a>>,
}

#[derive(Serialize)]
struct AggregatedVersion<'a> {
    version: &'a str,
    resources: Vec<AggregatedResource<'a>>,
    freshness: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AggregatedResource<'a> {
    resource: &'a str,
    response_kind: ResponseKind<'a>,
    scope: &'static str,
    singular_resource: &'a str,
    verbs: [&'static str; 3],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    short_names: Vec<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    categories: Vec<&'a str>,
}

#[derive(Serialize)]
struct ResponseKind<'a> {
    group: &'a str,
    version: &'a str,
    kind: &'a str,
}

/// Returns `APIVersions`, the document of `/api`.
pub(super) fn core_versions(core: Option<&Group<'_>>) -> Vec<u8> {
    let head = Head { kind: "APIVersions", api_version: "" };
    let versions = core.iter().flat_map(|group| &group.versions).map(|(version, _)| *version).collect();
    json(&ApiVersions { head, versions, addresses: [] })
}

/// Returns `APIGroupList`, the document of `/apis`.
pub(super) fn groups<'g>(groups: impl Iterator<Item = &'g Group<'g>>) -> Vec<u8> {
    let head = Head { kind: "APIGroupList", api_version: "v1" };
    json(&GroupList { head, groups: groups.map(api_group).collect() })
}

/// Returns `APIGroup`, the document of `/apis/<group>`.
pub(super) fn group(group: &Group<'_>) -> Vec<u8> {
    json(&OneGroup { head: Head { kind: "APIGroup", api_version: "v1" }, group: api_group(group) })
}

/// Returns `APIResourceList`, the document of one group and version.
pub(super) fn resources(group: &str, version: &str, served: &[&Served]) -> Vec<u8> {
    let api_version = if group.is_empty() { "" } else { "v1" };
    json(&ResourceList {
        head: Head { kind: "APIResourceList", api_version },
        group_version: group_version(group, version).group_version,
        resources: served.iter().map(|one| resource(one)).collect(),
    })
}

/// Returns `APIGroupDiscoveryList` of `apidiscovery.k8s.io/v2`: aggregated discovery of `/api` or `/apis`.
pub(super) fn aggregated<'g>(groups: impl Iterator<Item = &'g Group<'g>>) -> Vec<u8> {
    let version = |(version, served): &'g (&'g str, Vec<&'g Served>)| AggregatedVersion {
        version,
        resources: served.iter().map(|one| aggregated_resource(one)).collect(),
        freshness: "Current",
    };
    let items = groups.map(|group| AggregatedGroup {
        metadata: Metadata { name: group.name },
        versions: group.versions.iter().map(version).collect(),
    });
    json(&Aggregated {
        head: Head { kind: "APIGroupDiscoveryList", api_version: "apidiscovery.k8s.io/v2" },
        metadata: Metadata { name: "" },
        items: items.collect(),
    })
}

fn api_group<'g>(group: &'g Group<'g>) -> ApiGroup<'g> {
    let version = |(version, _): &'g (&'g str, _)| group_version(group.name, version);
    ApiGroup {
        name: group.name,
        versions: group.versions.iter().map(version).collect(),
        preferred_version: group.versions.first().map(version),
    }
}

fn group_version<'g>(group: &str, version: &'g str) -> GroupVersion<'g> {
    let slash = if group.is_empty() { "" } else { "/" };
    GroupVersion { group_version: format!("{group}{slash}{version}"), version }
}

fn resource(served: &Served) -> Resource<'_> {
    let Served { resource, singular, short_names, categories } = served;
    Resource {
        name: &resource.gvr.resource,
        singular_name: singular,
        namespaced: resource.namespaced,
        kind: &resource.kind,
        verbs: VERBS,
        short_names: short_names.iter().map(SmolStr::as_str).collect(),
        categories: categories.iter().map(SmolStr::as_str).collect(),
    }
}

fn aggregated_resource(served: &Served) -> AggregatedResource<'_> {
    let Served { resource, singular, short_names, categories } = served;
    let gvr = &resource.gvr;
    // kube-apiserver writes group and version for custom resources only; empty means those of the enclosing entry.
    let (group, version) = if is_built_in(&gvr.group, &gvr.resource) { ("", "") } else { (&*gvr.group, &*gvr.version) };
    AggregatedResource {
        resource: &gvr.resource,
        response_kind: ResponseKind { group, version, kind: &resource.kind },
        scope: if resource.namespaced { "Namespaced" } else { "Cluster" },
        singular_resource: singular,
        verbs: VERBS,
        short_names: short_names.iter().map(SmolStr::as_str).collect(),
        categories: categories.iter().map(SmolStr::as_str).collect(),
    }
}
