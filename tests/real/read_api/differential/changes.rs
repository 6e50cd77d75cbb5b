//! Changes that the hub sees through its watches, so that requests can name their versions.

use http::Request;
use kube::Client;
use rand::Rng;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use super::request::Known;
use crate::bed::becomes_true;
use crate::fixture::WAIT_DEADLINE;
use crate::read_api::endpoint::Endpoint;
use crate::read_api::objects::path;
use crate::read_api::resources::{CHANGING, RESOURCES, Resource};

/// Number of changes of each resource that changes.
const CHANGES: usize = 8;

/// Changes objects of the first resources, and returns the names and versions of all objects.
pub(super) async fn make(apiserver: &Endpoint, random: &mut StdRng) -> Vec<Known> {
    let mut known = Vec::new();
    for (index, resource) in RESOURCES.iter().enumerate() {
        let mut versions = Vec::new();
        if index < CHANGING {
            let objects = list(apiserver, resource).await;
            for turn in 0..CHANGES {
                versions.extend(change(apiserver.client(), resource, &objects, turn, random).await);
            }
        }
        let objects = list(apiserver, resource).await;
        let newest = objects.iter().map(version).max().unwrap_or_default();
        known.push(Known { resource, names: objects.iter().map(identity).collect(), versions, newest });
    }
    known
}

/// Waits until the hub has seen the newest object of each resource.
pub(super) async fn await_all(hub: &Endpoint, known: &[Known]) {
    for Known { resource, newest, .. } in known {
        let target = format!("{}?resourceVersion={newest}&resourceVersionMatch=NotOlderThan", path(resource, None));
        let seen = async || hub.get(&target, None).await.status.is_success();
        let has_seen = becomes_true(WAIT_DEADLINE, seen).await;
        assert!(has_seen, "{target}: {:?}", hub.get(&target, None).await);
    }
}

async fn list(apiserver: &Endpoint, resource: &Resource) -> Vec<Value> {
    let answer = apiserver.get(&path(resource, None), None).await;
    let mut list: Value = serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{error}: {answer:?}"));
    match list["items"].take() {
        Value::Array(items) => items,
        _ => panic!("{} cannot be listed: {answer:?}", resource.plural),
    }
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).expect("a version is a number")
}

fn identity(object: &Value) -> (String, String) {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    (text("namespace"), text("name"))
}

/// Makes one change and returns its version, if the answer has one. The last change is always an update.
async fn change(
    client: &Client,
    resource: &Resource,
    objects: &[Value],
    turn: usize,
    random: &mut StdRng,
) -> Option<u64> {
    let json_type = "application/json";
    if turn % 4 == 1 {
        let (namespace, body) = (resource.is_namespaced.then_some("default"), minimal(resource, turn));
        return send(client, Request::post(path(resource, namespace)), json_type, &body).await;
    }
    // Deletions take objects from the first half, updates from the second.
    let half = objects.len() / 2;
    let deletes = turn % 4 == 2 && resource.plural != "namespaces" && half > CHANGES;
    let at = if deletes { turn } else { random.random_range(half..objects.len()) };
    let (namespace, name) = identity(&objects[at]);
    let namespace = resource.is_namespaced.then_some(&*namespace);
    let target = format!("{}/{name}", path(resource, namespace));
    if deletes {
        send(client, Request::delete(target), json_type, &json!({ "gracePeriodSeconds": 0 })).await;
        return None;
    }
    let app = ["web", "changed", "cart"][turn % 3];
    let patch = json!({ "metadata": { "labels": { "app": app }, "annotations": { "turn": turn.to_string() } } });
    send(client, Request::patch(target), "application/merge-patch+json", &patch).await
}

async fn send(client: &Client, request: http::request::Builder, content_type: &str, body: &Value) -> Option<u64> {
    let request = request.header("content-type", content_type).body(body.to_string().into_bytes()).unwrap();
    let target = format!("{} {}", request.method(), request.uri());
    let answer = client.request_text(request).await.unwrap_or_else(|error| panic!("{target}: {error}"));
    let object: Value = serde_json::from_str(&answer).unwrap();
    object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok())
}

/// Returns an object with what its kind requires.
fn minimal(resource: &Resource, turn: usize) -> Value {
    let name = format!("late-{turn}");
    let mut object = json!({
        "apiVersion": resource.api_version(), "kind": resource.kind,
        "metadata": { "name": name, "labels": { "app": "web" } },
    });
    let container = json!({ "name": "main", "image": "registry.example.com/late:1" });
    match resource.plural {
        "pods" => object["spec"] = json!({ "containers": [container] }),
        "deployments" => {
            let labels = json!({ "app": name });
            object["spec"] = json!({
                "selector": { "matchLabels": labels },
                "template": { "metadata": { "labels": labels }, "spec": { "containers": [container] } },
            });
        }
        "services" => object["spec"] = json!({ "ports": [{ "port": 80 }] }),
        "gadgets" => object["spec"] = json!({ "size": 7 }),
        "events" => object["involvedObject"] = json!({ "namespace": "default", "kind": "Pod", "name": "late" }),
        _ => {}
    }
    object
}
