//! Resources that the hub watches to notice changes of a cluster's API.

use informer_hub_types::{ApiResource, Gvr};

/// Returns the resource of CRDs, in the version v1. Only names and generations are read.
#[must_use]
pub fn definitions() -> ApiResource {
    signal("apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition")
}

/// Returns the resource of API services, which add and remove aggregated APIs.
#[must_use]
pub fn services() -> ApiResource {
    signal("apiregistration.k8s.io", "apiservices", "APIService")
}

fn signal(group: &str, plural: &str, kind: &str) -> ApiResource {
    ApiResource { gvr: Gvr::new(group, "v1", plural), kind: kind.into(), namespaced: false }
}
