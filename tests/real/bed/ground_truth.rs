//! Ground truth: the objects of a fresh, consistent list, with which caches must agree in the end.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use informer_hub_types::{Gvr, ObjectKey, ResourceVersion, Uid};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject, ListParams, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt};

/// Deadline for the apiserver to end a watch that it cannot serve.
const WATCH_ERROR: Duration = Duration::from_secs(20);

/// UID and version of every object of a resource, by key.
pub(crate) type GroundTruth = BTreeMap<ObjectKey, (Uid, ResourceVersion)>;

/// Lists all objects of a resource in all namespaces.
///
/// The list is read from etcd (no `resourceVersion` is given), so it includes every change acknowledged before the
/// call.
///
/// # Panics
/// If the apiserver does not answer with a list.
pub(crate) async fn ground_truth(client: &Client, gvr: &Gvr) -> GroundTruth {
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

/// Watches pods from `version` and returns the HTTP code of the error that ends the watch, be it a status or an event.
///
/// # Panics
/// If the watch ends in another way, or does not end.
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

/// Converts a resource to kube's type. The kind stays empty, since reads do not use it.
fn api_resource(gvr: &Gvr) -> ApiResource {
    ApiResource {
        group: gvr.group.to_string(),
        version: gvr.version.to_string(),
        api_version: gvr.api_version(),
        kind: String::new(),
        plural: gvr.resource.to_string(),
    }
}
