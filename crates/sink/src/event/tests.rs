//! Tests of the CloudEvents 1.0 encoding, and sample objects for the crate's other tests.

#![allow(missing_docs, reason = "the names and types of builders for tests say it")]
#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    clippy::wildcard_imports,
    reason = "builders for tests, which the feature `testing` shares with other crates"
)]

use std::sync::Arc;

use serde_json::{Value, json};

use super::{ApiResource, Event, EventOptions, Notification, Object, Origin};
use informer_hub_types::{Gvr, Labels, ObjectKey, ResourceVersion, Scope, StoredObject, StoredObjectParts, Uid};

pub fn origin(group: &str, resource: &str, kind: &str) -> Arc<Origin> {
    Arc::new(Origin {
        cluster: "prod-eu".parse().unwrap(),
        cluster_labels: [("tier".to_owned(), "prod".to_owned())].into(),
        resource: ApiResource { gvr: Gvr::new(group, "v1", resource), kind: kind.into(), namespaced: true },
        scope: Scope::all(),
    })
}

pub fn object(origin: Arc<Origin>, namespace: &str, name: &str, version: &str, json: &Value) -> Object {
    object_of(origin, ObjectKey::new(namespace, name), &format!("uid-of-{name}"), version, json)
}

fn object_of(origin: Arc<Origin>, key: ObjectKey, uid: &str, version: &str, json: &Value) -> Object {
    let stored = StoredObject::new(StoredObjectParts {
        key,
        uid: Uid::new(uid),
        resource_version: ResourceVersion::new(version),
        labels: Labels::default(),
        index_values: Vec::new(),
        json: json.to_string().into_bytes(),
    });
    Object::new(origin, Arc::new(stored))
}

pub fn pod(name: &str, version: &str, phase: &str) -> Object {
    let json = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "shop", "name": name, "resourceVersion": version},
        "spec": {"containers": [{"image": "web:1"}]},
        "status": {"phase": phase}
    });
    object(origin("", "pods", "Pod"), "shop", name, version, &json)
}

/// Returns a pod with this UID, for tests of successive objects with the same name.
pub fn pod_of(name: &str, uid: &str, version: &str) -> Object {
    object_of(origin("", "pods", "Pod"), ObjectKey::new("shop", name), uid, version, &json!({"kind": "Pod"}))
}

pub fn secret(version: &str) -> Object {
    let json = json!({"kind": "Secret", "metadata": {"name": "db"}, "data": {"password": "hunter2"}});
    object(origin("", "secrets", "Secret"), "shop", "db", version, &json)
}

pub fn added(object: Object, initial: bool) -> Notification {
    Notification::Added { object, initial }
}

pub fn updated(old: Object, new: Object) -> Notification {
    Notification::Updated { old, new, resync: false }
}

/// Returns an event of about `padding` bytes, for tests of queues.
pub fn event(name: &str, version: u64, padding: usize) -> Event {
    let version = version.to_string();
    let object = object(
        origin("", "pods", "Pod"),
        "shop",
        name,
        &version,
        &json!({"metadata": {"name": name}, "padding": "x".repeat(padding)}),
    );
    Event::new(&added(object, false), moment(1), &EventOptions::default()).unwrap()
}

fn moment(second: i64) -> jiff::Timestamp {
    jiff::Timestamp::from_second(1_800_000_000 + second).unwrap()
}

#[cfg(test)]
fn wire(notification: &Notification) -> Value {
    serde_json::from_str(Event::new(notification, moment(0), &EventOptions::default()).unwrap().json()).unwrap()
}

#[test]
fn update_has_all_attributes_and_both_objects() {
    let value = wire(&updated(pod("web-0", "1", "Pending"), pod("web-0", "2", "Running")));
    assert_eq!(value["specversion"], "1.0");
    assert_eq!(value["source"], "/clusters/prod-eu");
    assert_eq!(value["type"], "io.informer-hub.resource.updated.v1");
    assert_eq!(value["subject"], "/v1/pods/shop/web-0");
    assert_eq!(value["time"], "2027-01-15T08:00:00Z");
    assert_eq!(value["datacontenttype"], "application/json");
    // CloudEvents attribute names are lower-case letters and digits.
    for name in value.as_object().unwrap().keys() {
        assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()), "{name}");
    }
    let data = &value["data"];
    assert_eq!(data["cluster"], "prod-eu");
    assert_eq!(data["clusterLabels"], json!({"tier": "prod"}));
    assert_eq!(data["resource"], json!({"group": "", "version": "v1", "resource": "pods", "kind": "Pod"}));
    assert_eq!((&data["namespace"], &data["name"]), (&json!("shop"), &json!("web-0")));
    assert_eq!((&data["uid"], &data["resourceVersion"]), (&json!("uid-of-web-0"), &json!("2")));
    assert_eq!((&data["initial"], &data["tombstone"]), (&json!(false), &json!(false)));
    assert_eq!(data["object"]["status"]["phase"], "Running");
    assert_eq!(data["oldObject"]["status"]["phase"], "Pending");
}

#[test]
fn all_event_types_have_the_same_members() {
    let pod = || pod("web-0", "1", "Running");
    let all = [
        added(pod(), true),
        updated(pod(), pod()),
        Notification::Deleted { object: pod(), tombstone: true },
        Notification::Synced(origin("apps", "deployments", "Deployment")),
    ];
    let members = |n: &Notification| wire(n)["data"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert!(all.iter().all(|n| members(n) == members(&all[0])));
    assert_eq!(wire(&all[0])["data"]["initial"], true);
    assert_eq!(wire(&all[2])["data"]["tombstone"], true);
    assert_eq!(wire(&all[2])["type"], "io.informer-hub.resource.deleted.v1");
    assert_eq!(wire(&all[3])["subject"], "apps/v1/deployments//");
    assert_eq!(wire(&all[3])["data"]["object"], Value::Null);
}

#[test]
fn subject_of_a_cluster_scoped_object_has_five_parts() {
    let node = object(origin("", "nodes", "Node"), "", "node-1", "1", &json!({}));
    let value = wire(&added(node, false));
    assert_eq!(value["subject"], "/v1/nodes//node-1");
    assert_eq!(value["data"]["namespace"], Value::Null);
}

#[test]
fn event_id_is_stable_and_unique() {
    let id =
        |n: &Notification, second| Event::new(n, moment(second), &EventOptions::default()).unwrap().id().to_owned();
    let add = added(pod("web-0", "1", "Running"), false);
    assert_eq!(id(&add, 0), id(&add, 99));
    assert_eq!(id(&add, 0), "UmyKtRW9K5UBqrdSMfAQuA", "receivers rely on stable ids");
    let others = [
        added(pod("web-0", "2", "Running"), false),
        added(pod("web-1", "1", "Running"), false),
        Notification::Deleted { object: pod("web-0", "1", "Running"), tombstone: false },
    ];
    for other in &others {
        assert_ne!(id(&add, 0), id(other, 0));
    }
    let synced = Notification::Synced(origin("", "pods", "Pod"));
    assert_ne!(id(&synced, 0), id(&synced, 1));
}

#[test]
fn events_of_one_object_share_a_lane() {
    assert_eq!(event("a", 1, 0).lane_hash(), event("a", 2, 0).lane_hash());
    assert_ne!(event("a", 1, 0).lane_hash(), event("b", 1, 0).lane_hash());
}

#[test]
fn secret_values_are_redacted_in_events() {
    let event = Event::new(&updated(secret("1"), secret("2")), moment(0), &EventOptions::default()).unwrap();
    assert!(!event.json().contains("hunter2"));
    let value: Value = serde_json::from_str(event.json()).unwrap();
    assert_eq!(value["data"]["oldObject"]["data"]["password"], "<redacted>");
}

#[test]
fn debug_output_shows_no_body() {
    let text = format!(
        "{:?}",
        Event::new(&added(pod("web-0", "1", "Running"), false), moment(0), &EventOptions::default()).unwrap()
    );
    assert!(text.contains("web-0") && !text.contains("Running"), "{text}");
}
