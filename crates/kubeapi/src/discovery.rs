//! Discovery documents, plain and aggregated.

use informer_hub_types::{ApiResource, built_in_names};
use serde::Serialize;
use smol_str::SmolStr;

use crate::encode::json;
use crate::{Document, Form};

mod documents;
mod order;

/// Plural names of the built-in resources in the category `all`, by group.
const ALL: &[(&str, &[&str])] = &[
    ("", &["pods", "replicationcontrollers", "services"]),
    ("apps", &["daemonsets", "deployments", "replicasets", "statefulsets"]),
    ("autoscaling", &["horizontalpodautoscalers"]),
    ("batch", &["cronjobs", "jobs"]),
];
/// API groups whose built-in resources are all in the category `api-extensions`.
const API_EXTENSIONS: [&str; 3] = ["admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io"];

/// A resource that the read API serves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Served {
    /// Group, version, plural name, kind, scope.
    pub resource: ApiResource,
    /// Singular name, such as `pod`.
    pub singular: SmolStr,
    /// Short names, such as `po`.
    pub short_names: Vec<SmolStr>,
    /// Categories, such as `all`.
    pub categories: Vec<SmolStr>,
}

/// Kubernetes version that `/version` reports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServedVersion {
    /// Full version, such as `v1.36.3`.
    pub git_version: String,
    /// Major version, such as `1`.
    pub major: String,
    /// Minor version, such as `36`.
    pub minor: String,
}

/// Returns the JSON of a discovery document: [`Document::CoreVersions`], [`Document::Groups`], [`Document::Group`] or
/// [`Document::Resources`]. `None` if the group or version has no served resource, and for other documents.
///
/// Groups are in kube-apiserver's order: the built-in groups, then the others by name. The order matters: if two groups
/// have a resource of the same name, kubectl takes that of the first group. Versions are in Kubernetes' order of
/// priority, the preferred first. Resources are sorted by name.
#[must_use]
pub fn discovery_document(document: &Document, form: Form, served: &[Served]) -> Option<Vec<u8>> {
    let groups = order::groups(served);
    let is_aggregated = form == Form::AggregatedDiscovery;
    let is_core = |group: &&order::Group<'_>| group.name.is_empty();
    match document {
        Document::CoreVersions if is_aggregated => Some(documents::aggregated(groups.iter().filter(is_core))),
        Document::Groups if is_aggregated => Some(documents::aggregated(groups.iter().filter(|it| !is_core(it)))),
        Document::CoreVersions => Some(documents::core_versions(groups.iter().find(is_core))),
        Document::Groups => Some(documents::groups(groups.iter().filter(|it| !is_core(it)))),
        Document::Group(name) => {
            let group = groups.iter().find(|group| !is_core(group) && group.name == name)?;
            Some(documents::group(group))
        }
        Document::Resources { group, version } => {
            let group = groups.iter().find(|found| found.name == group)?;
            let (_, resources) = group.versions.iter().find(|(found, _)| found == version)?;
            Some(documents::resources(group.name, version, resources))
        }
        Document::Version | Document::Health | Document::OpenApiV2 | Document::OpenApiV3(_) => None,
    }
}

/// Returns the JSON of `/version`. The members about the build, such as the commit, are empty.
#[must_use]
pub fn version_document(version: &ServedVersion) -> Vec<u8> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Info<'a> {
        major: &'a str,
        minor: &'a str,
        git_version: &'a str,
        git_commit: &'static str,
        git_tree_state: &'static str,
        build_date: &'static str,
        go_version: &'static str,
        compiler: &'static str,
        platform: &'static str,
    }
    json(&Info {
        major: &version.major,
        minor: &version.minor,
        git_version: &version.git_version,
        git_commit: "",
        git_tree_state: "",
        build_date: "",
        go_version: "",
        compiler: "",
        platform: "",
    })
}

impl Served {
    /// Returns a resource with its singular name, short names and categories. A built-in resource gets those of
    /// Kubernetes. Any other resource gets its kind in lower case as singular name, no short names and no categories.
    #[must_use]
    pub fn of(resource: &ApiResource) -> Self {
        let (group, plural) = (resource.gvr.group.as_str(), resource.gvr.resource.as_str());
        let singular = SmolStr::new(resource.kind.to_lowercase());
        let others = built_in_names(group, plural).filter(|name| *name != singular);
        let short_names = others.map(SmolStr::new_static).collect();
        let is_in = |(known, plurals): &(&str, &[&str])| *known == group && plurals.contains(&plural);
        let category = if ALL.iter().any(is_in) {
            Some("all")
        } else {
            API_EXTENSIONS.contains(&group).then_some("api-extensions")
        };
        let categories = category.map(SmolStr::new_static).into_iter().collect();
        Self { resource: resource.clone(), singular, short_names, categories }
    }
}

#[cfg(test)]
mod tests;
