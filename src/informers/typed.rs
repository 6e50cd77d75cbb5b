//! Mapping from Rust types to resources and stored objects.

use std::any::TypeId;

use kube::Resource;
use kube::core::NamespaceResourceScope;
use serde::Serialize;

use informer_hub_types::{ApiResource, Gvr, Labels, ObjectKey, ResourceVersion, StoredObject, StoredObjectParts, Uid};

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

/// Converts an object to the form that a store keeps, e.g. to fill an [`Indexer`](crate::queries::Indexer) in a test.
///
/// # Errors
/// If the object cannot be serialized as JSON.
pub fn stored_object<K: Resource + Serialize>(object: &K) -> Result<StoredObject, serde_json::Error> {
    let meta = object.meta();
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let labels = meta.labels.iter().flatten().map(|(key, value)| (key.as_str().into(), value.as_str().into()));
    Ok(StoredObject::new(StoredObjectParts {
        key: ObjectKey::new(&text(&meta.namespace), &text(&meta.name)),
        uid: Uid::new(&text(&meta.uid)),
        resource_version: ResourceVersion::new(&text(&meta.resource_version)),
        labels: Labels::new(labels.collect()),
        index_values: Vec::new(),
        json: serde_json::to_vec(object)?,
    }))
}
