//! Test objects: pods and widgets (a custom resource), and the rights of the user `limited`.
//!
//! No controller, scheduler or kubelet runs. Therefore pods are created with a node and deleted without grace period,
//! and a deleted namespace stays in Terminating.

use std::fmt::Debug;
use std::time::Duration;

use futures::stream::{self, StreamExt};
use informer_hub_types::Gvr;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::eventually;

/// Concurrent requests of a bulk creation. With more, the server only queues.
const IN_FLIGHT: usize = 16;

/// How long the apiserver may take to act on a new CRD or role.
const SETTLE: Duration = Duration::from_secs(30);

const WIDGET_GROUP: &str = "bed.example.com";

/// Rights granted to `limited`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verbs {
    /// `get` and `list`, so that a list succeeds and a watch does not.
    List,
    /// `get`, `list` and `watch`, which suffice for an informer.
    ListAndWatch,
    /// `get`, `list` and `watch` of pods, widgets and config maps.
    ListAndWatchMore,
}

/// Returns the API of pods in one namespace.
pub(crate) fn pods(client: &Client, namespace: &str) -> Api<Pod> {
    Api::namespaced(client.clone(), namespace)
}

/// Returns the API of widgets in one namespace.
pub(crate) fn widgets(client: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &widget_resource())
}

/// Returns the custom resource that [`install_widgets`] installs.
pub(crate) fn widget_gvr() -> Gvr {
    Gvr::new(WIDGET_GROUP, "v1", "widgets")
}

/// Creates a namespace unless it exists.
pub(crate) async fn create_namespace(client: &Client, name: &str) {
    let api = Api::<Namespace>::all(client.clone());
    create_if_missing(&api, &from_json(json!({"metadata": {"name": name}}))).await;
}

/// Creates one pod and returns it as stored.
pub(crate) async fn create_pod(client: &Client, namespace: &str, name: &str) -> Pod {
    create(&pods(client, namespace), &pod(name)).await
}

/// Creates `count` pods named `<prefix>-<number>`, concurrently.
pub(crate) async fn create_pods(client: &Client, namespace: &str, prefix: &str, count: usize) {
    let api = pods(client, namespace);
    let all = (0..count).map(|i| pod(&format!("{prefix}-{i}")));
    stream::iter(all).for_each_concurrent(IN_FLIGHT, async |pod| drop(create(&api, &pod).await)).await;
}

/// Creates one widget and returns it as stored.
pub(crate) async fn create_widget(client: &Client, namespace: &str, name: &str) -> DynamicObject {
    create(&widgets(client, namespace), &widget(name)).await
}

/// Creates `count` widgets named `<prefix>-<number>`, concurrently.
pub(crate) async fn create_widgets(client: &Client, namespace: &str, prefix: &str, count: usize) {
    let api = widgets(client, namespace);
    let all = (0..count).map(|i| widget(&format!("{prefix}-{i}")));
    stream::iter(all).for_each_concurrent(IN_FLIGHT, async |widget| drop(create(&api, &widget).await)).await;
}

/// Applies a JSON merge patch and returns the patched object.
pub(crate) async fn merge<K>(api: &Api<K>, name: &str, patch: Value) -> K
where
    K: Clone + DeserializeOwned + Debug,
{
    let patched = api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
    patched.unwrap_or_else(|error| panic!("patch of {name}: {error}"))
}

/// Deletes without grace period, since no kubelet would complete a graceful deletion.
pub(crate) async fn delete_now<K>(api: &Api<K>, name: &str)
where
    K: Clone + DeserializeOwned + Debug,
{
    let deleted = api.delete(name, &DeleteParams::default().grace_period(0)).await;
    assert!(deleted.is_ok(), "delete of {name}: {deleted:?}");
}

/// Installs the widgets' CRD unless it exists, and returns once widgets are in discovery and can be listed and created.
///
/// Until then, also after a restart, the apiserver answers 404 and then 429 while it sets up the storage.
pub(crate) async fn install_widgets(client: &Client) {
    create_if_missing(&Api::<CustomResourceDefinition>::all(client.clone()), &widget_definition()).await;
    let api = widgets(client, "default");
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    eventually("discovery shows the widgets", SETTLE, async || {
        let found = client.list_api_group_resources(&format!("{WIDGET_GROUP}/v1")).await;
        found.is_ok_and(|list| list.resources.iter().any(|r| r.name == "widgets"))
            && api.list_metadata(&ListParams::default()).await.is_ok()
            && api.create(&dry_run, &widget("probe")).await.is_ok()
    })
    .await;
}

/// Removes the widgets' CRD with all widgets, and returns once it can be installed again.
pub(crate) async fn uninstall_widgets(client: &Client) {
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    let name = format!("widgets.{WIDGET_GROUP}");
    let deleted = api.delete(&name, &DeleteParams::default()).await;
    assert!(deleted.is_ok(), "delete of {name}: {deleted:?}");
    eventually("the widgets are gone", SETTLE, async || matches!(api.get_opt(&name).await, Ok(None))).await;
}

/// Grants `limited` rights in all namespaces, and returns once they are effective.
pub(crate) async fn grant_limited(client: &Client, limited: &Client, verbs: Verbs) {
    let resources = match verbs {
        Verbs::List | Verbs::ListAndWatch => json!(["pods"]),
        Verbs::ListAndWatchMore => json!(["pods", "configmaps", "widgets"]),
    };
    let verbs = match verbs {
        Verbs::List => json!(["get", "list"]),
        Verbs::ListAndWatch | Verbs::ListAndWatchMore => json!(["get", "list", "watch"]),
    };
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "limited"},
        "rules": [{"apiGroups": ["", WIDGET_GROUP], "resources": resources, "verbs": verbs}],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "limited"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "limited"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "limited"}],
    });
    apply(&Api::<ClusterRole>::all(client.clone()), &role).await;
    apply(&Api::<ClusterRoleBinding>::all(client.clone()), &binding).await;
    eventually("limited may list pods", SETTLE, async || may_list_pods(limited).await).await;
}

/// Revokes the rights from [`grant_limited`], and returns once that is effective.
pub(crate) async fn revoke_limited(client: &Client, limited: &Client) {
    delete_now(&Api::<ClusterRoleBinding>::all(client.clone()), "limited").await;
    eventually("limited may no longer list pods", SETTLE, async || !may_list_pods(limited).await).await;
}

async fn may_list_pods(limited: &Client) -> bool {
    match Api::<Pod>::all(limited.clone()).list_metadata(&ListParams::default().limit(1)).await {
        Ok(_) => true,
        Err(kube::Error::Api(status)) if status.is_forbidden() => false,
        Err(error) => panic!("list as limited: {error}"),
    }
}

async fn create<K>(api: &Api<K>, object: &K) -> K
where
    K: Clone + DeserializeOwned + Serialize + Debug,
{
    api.create(&PostParams::default(), object).await.unwrap_or_else(|error| panic!("create of {object:?}: {error}"))
}

async fn create_if_missing<K>(api: &Api<K>, object: &K)
where
    K: Clone + DeserializeOwned + Serialize + Debug,
{
    match api.create(&PostParams::default(), object).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        Err(error) => panic!("create of {object:?}: {error}"),
    }
}

async fn apply<K>(api: &Api<K>, object: &Value)
where
    K: Clone + DeserializeOwned + Debug + Resource,
{
    let name = object["metadata"]["name"].as_str().expect("every object here is named");
    let applied = api.patch(name, &PatchParams::apply("testbed").force(), &Patch::Apply(object)).await;
    assert!(applied.is_ok(), "apply of {name}: {applied:?}");
}

/// Builds a small pod with typical index fields: labels, a node and an image.
fn pod(name: &str) -> Pod {
    let number: usize = name.rsplit('-').next().and_then(|tail| tail.parse().ok()).unwrap_or(0);
    from_json(json!({
        "metadata": {
            "name": name,
            "labels": {"app": format!("app-{}", number % 10), "tier": if number.is_multiple_of(3) { "front" } else { "back" }},
            "annotations": {"generation": "0"},
        },
        "spec": {
            "nodeName": format!("node-{}", number % 7),
            "containers": [{
                "name": "main",
                "image": format!("registry.example.com/app:{}", number % 4),
                "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
            }],
        },
    }))
}

fn widget(name: &str) -> DynamicObject {
    let mut widget = DynamicObject::new(name, &widget_resource());
    widget.data = json!({"spec": {"size": name.len(), "parts": {"color": "red", "weight": 1.5}}});
    widget
}

fn widget_resource() -> ApiResource {
    ApiResource {
        group: WIDGET_GROUP.to_owned(),
        version: "v1".to_owned(),
        api_version: format!("{WIDGET_GROUP}/v1"),
        kind: "Widget".to_owned(),
        plural: "widgets".to_owned(),
    }
}

fn widget_definition() -> CustomResourceDefinition {
    from_json(json!({
        "metadata": {"name": format!("widgets.{WIDGET_GROUP}")},
        "spec": {
            "group": WIDGET_GROUP,
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "shortNames": ["wd"]},
            "scope": "Namespaced",
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    }))
}

fn from_json<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).expect("the literals of this file fit their types")
}
