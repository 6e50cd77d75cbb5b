//! What is watched of a cluster to learn that what it offers has changed.

use informer_hub_types::{ApiResource, Gvr};

/// Definitions of custom resources. Their names alone are looked at, so that any version that is served will do.
#[must_use]
pub fn definitions() -> ApiResource {
    signal("apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition")
}

/// API services, by which an aggregated API comes and goes.
#[must_use]
pub fn services() -> ApiResource {
    signal("apiregistration.k8s.io", "apiservices", "APIService")
}

fn signal(group: &str, plural: &str, kind: &str) -> ApiResource {
    ApiResource { gvr: Gvr::new(group, "v1", plural), kind: kind.into(), namespaced: false }
}
