//! What is true by a fresh, consistent list: what a cache must agree with in the end.

use std::collections::BTreeMap;

use informer_hub::types::{Gvr, ObjectKey, ResourceVersion, Uid};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::{Api, Client, ResourceExt};

/// Every object of a resource, by key: which one it is, and at which version.
pub(crate) type Truth = BTreeMap<ObjectKey, (Uid, ResourceVersion)>;

/// Lists all objects of a resource over all namespaces, straight from etcd (no `resourceVersion` is given), so that
/// everything that was acknowledged before the call is in the answer.
///
/// # Panics
/// When the apiserver does not answer with a list.
pub(crate) async fn truth(client: &Client, gvr: &Gvr) -> Truth {
    let resource = api_resource(gvr);
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let list = api.list_metadata(&ListParams::default()).await.unwrap_or_else(|error| panic!("list of {gvr}: {error}"));
    let entry = |object: kube::core::PartialObjectMeta<_>| {
        let key = ObjectKey::new(&object.namespace().unwrap_or_default(), &object.name_any());
        let version = object.resource_version().unwrap_or_default();
        (key, (Uid::new(&object.uid().unwrap_or_default()), ResourceVersion::new(&version)))
    };
    list.items.into_iter().map(entry).collect()
}

/// The resource as kube wants it; its kind is not used where objects are only read.
fn api_resource(gvr: &Gvr) -> ApiResource {
    ApiResource {
        group: gvr.group.to_string(),
        version: gvr.version.to_string(),
        api_version: gvr.api_version(),
        kind: String::new(),
        plural: gvr.resource.to_string(),
    }
}
