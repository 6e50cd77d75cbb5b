//! Discovery documents, and the routing of request paths to documents and resources.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::collection::ResourceDef;
use informer_hub_types::Gvr;

/// Document or resource that a path addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Route {
    Version,
    Health,
    ApiVersions,
    Groups,
    Group(String),
    Resources { group: String, version: String },
    Objects { gvr: Gvr, namespace: Option<String>, name: Option<String> },
    Unknown,
}

impl Route {
    pub(super) fn parse(path: &str) -> Self {
        let parts: Vec<_> = path.split('/').filter(|part| !part.is_empty()).collect();
        match parts.as_slice() {
            ["version"] => Self::Version,
            ["readyz" | "livez" | "healthz"] => Self::Health,
            ["api"] => Self::ApiVersions,
            ["apis"] => Self::Groups,
            ["apis", group] => Self::Group((*group).to_owned()),
            ["api", version] => Self::Resources { group: String::new(), version: (*version).to_owned() },
            ["apis", group, version] => Self::Resources { group: (*group).to_owned(), version: (*version).to_owned() },
            ["api", version, rest @ ..] => Self::objects("", version, rest),
            ["apis", group, version, rest @ ..] => Self::objects(group, version, rest),
            _ => Self::Unknown,
        }
    }

    fn objects(group: &str, version: &str, rest: &[&str]) -> Self {
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some((*namespace).to_owned()), rest),
            _ => (None, rest),
        };
        let (resource, name) = match rest {
            [resource] => (resource, None),
            [resource, name] => (resource, Some((*name).to_owned())),
            _ => return Self::Unknown,
        };
        Self::Objects { gvr: Gvr::new(group, version, resource), namespace, name }
    }
}

/// Returns the document at `/version`.
pub(super) fn version() -> Value {
    json!({ "major": "1", "minor": "36", "gitVersion": "v1.36.3-sim", "platform": "linux/amd64" })
}

/// Returns the document at `/api`.
pub(super) fn api_versions() -> Value {
    json!({ "kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [] })
}

/// Returns the document at `/apis`.
pub(super) fn groups<'d>(defs: impl Iterator<Item = &'d ResourceDef>) -> Value {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for gvr in defs.map(|def| &def.api.gvr).filter(|gvr| !gvr.group.is_empty()) {
        versions.entry(&gvr.group).or_default().insert(&gvr.version);
    }
    let groups: Vec<_> = versions.iter().map(|(name, versions)| group_entry(name, versions)).collect();
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
}

/// Returns the document at `/apis/<group>`; `None` if the group does not exist.
pub(super) fn group<'d>(name: &str, defs: impl Iterator<Item = &'d ResourceDef>) -> Option<Value> {
    let of_group = defs.map(|def| &def.api.gvr).filter(|gvr| gvr.group == name && !name.is_empty());
    let versions: BTreeSet<&str> = of_group.map(|gvr| gvr.version.as_str()).collect();
    if versions.is_empty() {
        return None;
    }
    let mut entry = group_entry(name, &versions);
    entry["kind"] = json!("APIGroup");
    entry["apiVersion"] = json!("v1");
    Some(entry)
}

fn group_entry(name: &str, versions: &BTreeSet<&str>) -> Value {
    let entry = |version: &&str| json!({ "groupVersion": format!("{name}/{version}"), "version": version });
    let entries: Vec<_> = versions.iter().map(entry).collect();
    json!({ "name": name, "versions": entries, "preferredVersion": entries.first() })
}

/// Returns the document at `/api/<version>` or `/apis/<group>/<version>`; `None` if the version does not exist.
pub(super) fn resources<'d>(group: &str, version: &str, defs: impl Iterator<Item = &'d ResourceDef>) -> Option<Value> {
    let here = defs.filter(|def| def.api.gvr.group == group && def.api.gvr.version == version);
    let resources: Vec<_> = here.map(resource_entry).collect();
    let group_version = Gvr::new(group, version, "").api_version();
    let core = group.is_empty() && version == "v1";
    (core || !resources.is_empty()).then(|| {
        json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources })
    })
}

/// Returns the aggregated document at `/api` or `/apis`: each version with its resources, the preferred version first.
pub(super) fn aggregated(defs: &[ResourceDef], core: bool) -> Value {
    let mut groups: BTreeMap<&str, BTreeMap<&str, Vec<Value>>> = BTreeMap::new();
    for def in defs.iter().filter(|def| def.api.gvr.group.is_empty() == core) {
        let gvr = &def.api.gvr;
        let scope = if def.api.namespaced { "Namespaced" } else { "Cluster" };
        let resource = json!({
            "resource": gvr.resource.as_str(), "singularResource": def.singular, "scope": scope,
            "responseKind": { "group": gvr.group.as_str(), "version": gvr.version.as_str(), "kind": def.api.kind.as_str() },
            "verbs": ["get", "list", "watch"], "shortNames": def.short_names,
        });
        groups.entry(&gvr.group).or_default().entry(&gvr.version).or_default().push(resource);
    }
    let version = |(name, resources): (&&str, &Vec<Value>)| json!({ "version": name, "freshness": "Current", "resources": resources });
    let group = |(name, versions): (&&str, &BTreeMap<&str, Vec<Value>>)| json!({ "metadata": { "name": name }, "versions": versions.iter().map(version).collect::<Vec<_>>() });
    let items: Vec<_> = groups.iter().map(group).collect();
    json!({ "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items })
}

fn resource_entry(def: &ResourceDef) -> Value {
    json!({
        "name": def.api.gvr.resource.as_str(), "singularName": def.singular, "namespaced": def.api.namespaced,
        "kind": def.api.kind.as_str(), "verbs": ["get", "list", "watch"], "shortNames": def.short_names,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn route_parses_kubernetes_paths() {
        let objects = |gvr: Gvr, namespace: Option<&str>, name: Option<&str>| Route::Objects {
            gvr,
            namespace: namespace.map(str::to_owned),
            name: name.map(str::to_owned),
        };
        let pods = Gvr::new("", "v1", "pods");
        let widgets = Gvr::new("example.com", "v1", "widgets");
        assert_eq!(Route::parse("/api/v1/pods"), objects(pods.clone(), None, None));
        assert_eq!(Route::parse("/api/v1/namespaces/shop/pods/web-0"), objects(pods, Some("shop"), Some("web-0")));
        assert_eq!(Route::parse("/apis/example.com/v1/namespaces/a/widgets"), objects(widgets, Some("a"), None));
        assert_eq!(
            Route::parse("/api/v1/namespaces/shop"),
            objects(Gvr::new("", "v1", "namespaces"), None, Some("shop"))
        );
        assert_eq!(Route::parse("/apis/example.com"), Route::Group("example.com".into()));
        assert_eq!(Route::parse("/api/v1/a/b/c/d"), Route::Unknown);
        assert_eq!(Route::parse("/"), Route::Unknown);
    }
}
