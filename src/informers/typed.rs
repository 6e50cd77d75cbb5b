//! Mapping from Rust types to resources.

use std::any::TypeId;

use kube::Resource;
use kube::core::NamespaceResourceScope;

use informer_hub_types::{ApiResource, Gvr};

/// Returns the resource of a Rust type: any `k8s_openapi` type or `kube::CustomResource`.
#[must_use]
pub fn api_resource<K>() -> ApiResource
where
    K: Resource<DynamicType = ()>,
    K::Scope: 'static,
{
    ApiResource {
        gvr: Gvr::new(&K::group(&()), &K::version(&()), &K::plural(&())),
        kind: K::kind(&()).as_ref().into(),
        namespaced: TypeId::of::<K::Scope>() == TypeId::of::<NamespaceResourceScope>(),
    }
}
