//! Objects and their surroundings in two clusters in memory.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use serde_json::{Value, json};

use crate::api::ReadApiOptions;
use crate::api::kubernetes::tests::{Bench, pod, pods};
use informer_hub_types::{
    ApiResource, DeltaKind, Gvr, Labels, ObjectKey, ResourceVersion, StoredObject, StoredObjectParts, Uid,
};

fn resource(group: &str, plural: &str, kind: &str, namespaced: bool) -> ApiResource {
    ApiResource { gvr: Gvr::new(group, "v1", plural), kind: kind.into(), namespaced }
}

/// Returns an object with the members of `rest`, and an owner reference if `owner` is set: the owner's API version,
/// kind, name and UID.
fn object(
    namespace: &str,
    name: &str,
    uid: &str,
    owner: Option<(&str, &str, &str, &str)>,
    rest: &Value,
) -> StoredObject {
    let mut json = rest.clone();
    json["metadata"] = json!({ "name": name, "uid": uid, "resourceVersion": "5" });
    if !namespace.is_empty() {
        json["metadata"]["namespace"] = json!(namespace);
    }
    if let Some((api_version, kind, name, uid)) = owner {
        json["metadata"]["ownerReferences"] =
            json!([{ "apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true }]);
    }
    StoredObject::new(StoredObjectParts {
        key: ObjectKey::new(namespace, name),
        uid: Uid::new(uid),
        resource_version: ResourceVersion::new("5"),
        labels: Labels::new(Vec::new()),
        index_values: Vec::new(),
        json: json.to_string().into_bytes(),
    })
}

/// Two clusters `a` and `b` with the same names: a deployment `web` with two replica sets, of which one has two pods, a
/// node, and Events about one of the pods.
fn tree() -> Bench {
    let mut bench = Bench::new(ReadApiOptions { requests: 10, watches: 10, secrets: false });
    let (deployments, sets) =
        (resource("apps", "deployments", "Deployment", true), resource("apps", "replicasets", "ReplicaSet", true));
    let (events, nodes) = (resource("", "events", "Event", true), resource("", "nodes", "Node", false));
    let none = json!({});
    let replicas = json!({ "spec": { "replicas": 2 }, "status": { "readyReplicas": 1 } });
    for cluster in ["a", "b"] {
        let id = |name: &str| format!("{cluster}-{name}");
        let (deployment, set) = (id("web"), id("web-2"));
        let of_deployment = Some(("apps/v1", "Deployment", "web", deployment.as_str()));
        let of_set = Some(("apps/v1", "ReplicaSet", "web-2", set.as_str()));
        bench.list(&deployments, cluster, vec![object("shop", "web", &deployment, None, &none)], 10);
        let two = vec![
            object("shop", "web-1", &id("web-1"), of_deployment, &none),
            object("shop", "web-2", &set, of_deployment, &replicas),
        ];
        bench.list(&sets, cluster, two, 10);
        let running = json!({ "status": { "phase": "Running" } });
        let of_pods = ["web-2-x", "web-2-y"].map(|name| object("shop", name, &id(name), of_set, &running));
        bench.list(&pods(), cluster, of_pods.into(), 10);
        bench.list(&nodes, cluster, vec![object("", "n1", &id("n1"), None, &none)], 10);
        let event = |name: &str, uid: &str, last: &str| {
            let about = json!({ "kind": "Pod", "namespace": "shop", "name": "web-2-x", "uid": uid });
            let rest = json!({
                "involvedObject": about, "type": "Warning", "reason": name, "message": "m", "count": 3,
                "lastTimestamp": last, "source": { "component": "kubelet" },
            });
            object("shop", name, &id(name), None, &rest)
        };
        let uid = id("web-2-x");
        let of_events = vec![
            event("BackOff", &uid, "2026-01-01T00:00:02Z"),
            event("Killing", &uid, "2026-01-01T00:00:01Z"),
            event("Earlier", "another", "2026-01-01T00:00:03Z"),
        ];
        bench.list(&events, cluster, of_events, 10);
    }
    bench
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn object_has_owners_children_and_events_of_its_cluster() {
    let bench = tree();
    let (code, answer) = bench.json("/v1/objects/a/pods/shop/web-2-x").await;
    assert_eq!(code, 200, "{answer}");
    assert_eq!(answer["object"]["metadata"]["uid"], "a-web-2-x");
    assert_eq!(
        ["cluster", "resource", "apiVersion", "kind", "namespace", "name", "uid"]
            .map(|name| answer[name].as_str().unwrap()),
        ["a", "pods", "v1", "Pod", "shop", "web-2-x", "a-web-2-x"]
    );
    assert_eq!(answer["freshness"], json!({ "state": "missing" }), "the informer of the test has no watch");
    assert_eq!(names(&answer["owners"]), ["web-2", "web"]);
    assert_eq!(answer["owners"][1]["object"]["metadata"]["uid"], "a-web");
    assert_eq!((&answer["ownersEnd"], &answer["children"]), (&json!(null), &json!([])));
    let reasons: Vec<_> = answer["events"].as_array().unwrap().iter().map(|event| &event["reason"]).collect();
    assert_eq!(reasons, ["BackOff", "Killing"], "newest first, none of an earlier object of this name");
    let (_, answer) = bench.json("/v1/objects/b/Deployment/shop/web").await;
    let sets = &answer["children"];
    assert_eq!((names(sets), names(&sets[1]["children"])), (vec!["web-1", "web-2"], vec!["web-2-x", "web-2-y"]));
    assert_eq!((&sets[0]["status"], &sets[1]["status"]), (&json!(null), &json!("1/2")));
    let first = &sets[1]["children"][0];
    assert_eq!(
        (&first["uid"], &first["status"], &first["resource"]),
        (&json!("b-web-2-x"), &json!("Running"), &json!("pods"))
    );
    assert_eq!(sets[1]["resource"], "replicasets.apps");
    assert_eq!((&answer["childrenMore"], &answer["events"]), (&json!(false), &json!([])));
}

#[tokio::test]
async fn parts_are_left_out_on_request() {
    let bench = tree();
    let (_, answer) = bench.json("/v1/objects/a/pods/shop/web-2-x?objects=false&events=false&children=false").await;
    assert_eq!(answer["events"], json!(null));
    assert!(names(&answer["owners"]).len() == 2 && answer["owners"][0].get("object").is_none(), "{answer}");
    let (_, answer) = bench.json("/v1/objects/a/deployments/shop/web?children=false").await;
    assert_eq!(answer["children"], json!([]));
}

#[tokio::test]
async fn last_change_has_time_and_changed_paths() {
    let bench = Bench::with_pods();
    let (_, answer) = bench.json("/v1/objects/a/pods/shop/x").await;
    assert_eq!(answer["lastChange"], json!(null), "the first list is no change of the object");
    assert_eq!(answer["events"], json!(null), "Events are not cached");
    bench.event("a", DeltaKind::Updated, pod("shop", "x", 11, "web", "n8"));
    bench.event("a", DeltaKind::Updated, pod("shop", "x", 12, "web", "n9"));
    bench.event("a", DeltaKind::Updated, pod("shop", "y", 13, "web", "n9"));
    let (_, answer) = bench.json("/v1/objects/a/pods/shop/x").await;
    let change = &answer["lastChange"];
    assert_eq!((&change["event"], &change["resourceVersion"]), (&json!("updated"), &json!("12")));
    assert_eq!(change["changed"], json!([{ "path": "spec.nodeName", "old": "n8", "new": "n9" }]));
    assert!(change["time"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok());
    let (_, answer) = bench.json("/v1/objects/b/pods/shop/x").await;
    assert_eq!(answer["lastChange"], json!(null), "another cluster's object of the same name");
}

#[tokio::test]
async fn cluster_scoped_object_has_a_shorter_path() {
    let bench = tree();
    let (code, answer) = bench.json("/v1/objects/a/nodes/n1").await;
    assert_eq!((code, &answer["namespace"], &answer["name"]), (200, &json!(null), &json!("n1")), "{answer}");
    for (path, code, error) in [
        ("a/nodes/shop/n1", 400, "nodes have no namespace; write /v1/objects/<cluster>/nodes/<name>"),
        ("a/pods/x", 400, "pods have a namespace; write /v1/objects/<cluster>/pods/<namespace>/<name>"),
        ("a/pods/shop/none", 404, "cluster a has no pods \"shop/none\""),
        ("aa/pods/shop/x", 404, "the hub has no cluster \"aa\"; did you mean \"a\"?"),
        ("A%0d%0a/pods/shop/x", 404, "the hub has no cluster"),
        ("a/podz/shop/x", 404, "the hub has no resource \"podz\"; did you mean \"pods\"?"),
        ("a/secrets/shop/x", 404, "the hub has no resource \"secrets\""),
        ("a/pods/shop/x?child=false", 400, "unknown parameter \"child\"; known: children, events, objects"),
        ("a/pods/shop/x?children=no", 400, "children is \"no\", expected true or false"),
    ] {
        let (found, answer) = bench.json(&format!("/v1/objects/{path}")).await;
        let text = answer["error"].as_str().unwrap_or_default();
        assert!(found == code && text.starts_with(error), "{path}: {found} {answer}");
    }
    let long = "x".repeat(10_000);
    let (code, answer) = bench.json(&format!("/v1/objects/{long}/{long}/{long}/{long}")).await;
    assert!(code == 404 && answer.to_string().len() < 500, "{answer}");
    let post = Request::post("/v1/objects/a/pods/shop/x").body(Body::empty()).unwrap();
    assert_eq!(bench.send(post).await.status(), StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn broken_chain_and_cycles_end() {
    let mut bench = Bench::new(ReadApiOptions { requests: 10, watches: 10, secrets: false });
    let sets = resource("apps", "replicasets", "ReplicaSet", true);
    let cycle =
        |name: &str, owner: &str| object("shop", name, name, Some(("apps/v1", "ReplicaSet", owner, owner)), &json!({}));
    bench.list(&sets, "a", vec![cycle("one", "two"), cycle("two", "one"), cycle("three", "gone")], 10);
    let (_, answer) = bench.json("/v1/objects/a/replicasets/shop/one").await;
    assert_eq!((names(&answer["owners"]), names(&answer["children"])), (vec!["two"], vec!["two"]));
    assert!(answer["ownersEnd"].as_str().unwrap().ends_with("owns itself"), "{answer}");
    let (_, answer) = bench.json("/v1/objects/a/replicasets/shop/three").await;
    assert_eq!(answer["ownersEnd"], "apps/v1 ReplicaSet \"gone\" does not exist");
}

#[tokio::test]
async fn large_tree_is_cut_and_says_so() {
    let mut bench = Bench::new(ReadApiOptions { requests: 10, watches: 10, secrets: false });
    let sets = resource("apps", "replicasets", "ReplicaSet", true);
    bench.list(&sets, "a", vec![object("shop", "web", "web", None, &json!({}))], 10);
    let owner = Some(("apps/v1", "ReplicaSet", "web", "web"));
    let children = (0..super::children::MOST + 10).map(|at| {
        let name = format!("web-{at:04}");
        object("shop", &name, &name, owner, &json!({}))
    });
    bench.list(&pods(), "a", children.collect(), 10);
    let (_, answer) = bench.json("/v1/objects/a/replicasets/shop/web").await;
    assert_eq!((names(&answer["children"]).len(), &answer["childrenMore"]), (super::children::MOST, &json!(true)));
}
