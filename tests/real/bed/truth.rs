//! What is true by a fresh, consistent list: what a cache must agree with in the end.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use informer_hub_types::{Gvr, ObjectKey, ResourceVersion, Uid};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject, ListParams, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt};

/// How long an apiserver may take to end a watch that it cannot serve.
const WATCH_ERROR: Duration = Duration::from_secs(20);

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

/// The HTTP code of the error that a watch of pods from `version` ends with, whether it comes as a status or as an event.
///
/// # Panics
/// When the watch ends in another way, or does not end.
pub(crate) async fn watch_error(client: &Client, version: &str) -> u16 {
    let api: Api<Pod> = Api::all(client.clone());
    let mut events = match api.watch(&WatchParams::default(), version).await {
        Ok(events) => pin!(events),
        Err(kube::Error::Api(status)) => return status.code,
        Err(error) => panic!("watch from {version}: {error}"),
    };
    let ended = async {
        loop {
            match events.next().await {
                Some(Ok(WatchEvent::Error(status))) => return status.code,
                Some(Ok(_)) => {}
                other => panic!("watch from {version} ended with {other:?}"),
            }
        }
    };
    tokio::time::timeout(WATCH_ERROR, ended).await.unwrap_or_else(|_| panic!("watch from {version} goes on"))
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
