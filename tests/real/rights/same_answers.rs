//! The same requests to the hub and to the apiservers, with the same tokens.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};
use tokio::process::Command;

use super::client::User;
use super::fleet::Fleet;
use crate::bed::{create_pod, delete_now, kubectl, pods};

const JSON: &str = "application/json";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

const PATHS: &[&str] = &[
    "/api/v1/pods",
    "/api/v1/pods?limit=2",
    "/api/v1/namespaces/shop/pods",
    "/api/v1/namespaces/shop/pods?labelSelector=tier%3Dfront",
    "/api/v1/namespaces/shop/pods/web-0",
    "/api/v1/namespaces/shop/pods/none",
    "/api/v1/namespaces/pay/pods",
    "/api/v1/namespaces/pay/pods/bank-0",
    "/api/v1/namespaces/pay/pods/none",
    "/api/v1/namespaces/none/pods",
    "/api/v1/configmaps",
    "/api/v1/namespaces/shop/configmaps",
    "/api/v1/namespaces/shop/configmaps/settings",
    "/api/v1/namespaces/pay/configmaps/keys",
    "/api/v1/nodes",
    "/api/v1/nodes/node-1",
    "/api/v1/nodes/none",
];

/// Removes what differs between two correct answers: versions of lists, tokens of pages, ages, descriptions of columns,
/// and `managedFields`, which the hub does not keep.
fn comparable((code, mut answer): (u16, Value)) -> (u16, Value) {
    strip(&mut answer);
    let is_list = answer.get("items").is_some();
    if is_list || answer.get("rows").is_some() {
        for member in ["resourceVersion", "continue"] {
            answer["metadata"].as_object_mut().unwrap().remove(member);
        }
    }
    for column in answer.get_mut("columnDefinitions").and_then(Value::as_array_mut).into_iter().flatten() {
        column["description"].take();
    }
    for row in answer.get_mut("rows").and_then(Value::as_array_mut).into_iter().flatten() {
        row["cells"].as_array_mut().unwrap().retain(|cell| !cell.as_str().is_some_and(is_age));
    }
    (code, answer)
}

/// Removes `managedFields` at any depth.
fn strip(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.remove("managedFields");
            members.values_mut().for_each(strip);
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        _ => {}
    }
}

fn is_age(cell: &str) -> bool {
    cell.ends_with(['s', 'm']) && cell.starts_with(|first: char| first.is_ascii_digit())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn reader_gets_from_the_hub_what_its_clusters_give_it() {
    let fleet = Fleet::start().await;
    lists_and_objects(&fleet).await;
    reviews_of_the_sender(&fleet).await;
    roots_of_all_clusters(&fleet).await;
    watches(&fleet).await;
    kubectl_prints_the_same(&fleet).await;
    let tokens = ["jane", "grafana"].map(|name| fleet.token(name));
    let is_told = |line: &String| tokens.iter().any(|token| line.contains(token.as_str()));
    assert!(!fleet.hub.lines().iter().any(is_told), "a token in the log");
}

async fn lists_and_objects(fleet: &Fleet) {
    let mut allowed = BTreeSet::new();
    for (user, clusters) in [
        ("jane", &["east", "west"][..]),
        ("ada", &["east", "west"]),
        ("eve", &["east", "west"]),
        ("grafana", &["east"]),
    ] {
        let hub = fleet.at_hub(user);
        for name in clusters {
            let direct = fleet.at(fleet.cluster(name), user);
            for path in PATHS {
                for accept in [JSON, TABLE] {
                    let expected = comparable(direct.get(path, accept).await);
                    let found = comparable(hub.get(&format!("/clusters/{name}{path}"), accept).await);
                    assert_eq!(found, expected, "{user} of {name}: {path} as {accept}");
                    if expected.0 == 200 {
                        allowed.insert((user, *name));
                    }
                }
            }
        }
    }
    assert_eq!(allowed, [("jane", "east"), ("ada", "west"), ("grafana", "east")].into(), "the test sees both outcomes");
    // The account of the same name in the other cluster is a different user, and that cluster rejects this token.
    let grafana = fleet.at_hub("grafana");
    for path in PATHS {
        let (code, answer) = grafana.read(&format!("/clusters/west{path}")).await;
        assert!(matches!(code, 403 | 404), "{path}: {answer}");
        let (code, answer) = fleet.at(&fleet.west, "grafana").read(path).await;
        assert_eq!(code, 401, "{path}: {answer}");
    }
    for wrong in [format!("{}x", fleet.token("jane")), format!("{}x", fleet.token("grafana")), "a.b.c".to_owned()] {
        assert_eq!(fleet.with_token(&wrong).read("/clusters/east/api/v1/pods").await.0, 401);
    }
}

/// Compares `kubectl auth can-i` and `kubectl auth whoami`.
async fn reviews_of_the_sender(fleet: &Fleet) {
    for (user, clusters) in [("jane", &["east", "west"][..]), ("ada", &["east", "west"]), ("grafana", &["east"])] {
        let hub = fleet.at_hub(user);
        for name in clusters {
            let (direct, root) = (fleet.at(fleet.cluster(name), user), format!("/clusters/{name}"));
            for verb in ["get", "list", "watch", "delete"] {
                for (resource, namespace) in [
                    ("pods", "shop"),
                    ("pods", "pay"),
                    ("pods", ""),
                    ("configmaps", "shop"),
                    ("secrets", "shop"),
                    ("nodes", ""),
                ] {
                    let expected = direct.may("", verb, resource, namespace).await;
                    let found = hub.may(&root, verb, resource, namespace).await;
                    assert_eq!(found, expected, "{user} of {name}: {verb} {resource} in {namespace:?}");
                }
            }
            let body = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
            let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
            let known = |(code, answer): (u16, Value)| {
                assert_eq!(code, 201, "{answer}");
                let info = &answer["status"]["userInfo"];
                (info["username"].clone(), info["groups"].clone(), info["uid"].clone())
            };
            let expected = known(direct.review("", path, &body).await);
            // The group `system:masters` in the issuer's token counts only with the prefix `oidc:`.
            assert_eq!(known(hub.review(&root, path, &body).await), expected, "{user} of {name}");
        }
    }
}

/// Verifies that answers over all clusters have exactly the objects that the user may read in each cluster.
async fn roots_of_all_clusters(fleet: &Fleet) {
    let east = ["web-0", "web-1", "web-2", "web-3", "web-4"].map(|name| format!("east/{name}"));
    let west = ["bank-0", "bank-1", "bank-2", "web-0", "web-1", "web-2", "web-3", "web-4"];
    let west = west.map(|name| format!("west/{name}"));
    let names = |items: &Value, cluster: &str, name: &str| -> BTreeSet<String> {
        let text =
            |item: &Value, pointer: &str| item.pointer(pointer).and_then(Value::as_str).unwrap_or("?").to_owned();
        items.as_array().unwrap().iter().map(|item| format!("{}/{}", text(item, cluster), text(item, name))).collect()
    };
    for (user, expected) in [
        ("jane", BTreeSet::from(east.clone())),
        ("grafana", BTreeSet::from(east.clone())),
        ("ada", BTreeSet::from(west.clone())),
        ("eve", BTreeSet::new()),
    ] {
        let hub = fleet.at_hub(user);
        let (code, list) = hub.read("/clusters/*/api/v1/pods").await;
        let cluster = "/metadata/annotations/informer-hub.io~1cluster";
        assert_eq!((code, names(&list["items"], cluster, "/metadata/name")), (200, expected.clone()), "{user}: {list}");
        let (code, answer) = hub.read("/v1/query?resource=pods&q=count").await;
        assert_eq!((code, &answer["count"]), (200, &json!(expected.len())), "{user}: {answer}");
        let (code, answer) = hub.read("/v1/query?resource=nodes&q=count").await;
        assert_eq!((code, &answer["count"]), (200, &json!(usize::from(user == "ada"))), "{user}: {answer}");
        assert_eq!(
            (&answer["complete"], &answer["coverage"]["rightsUnknown"]),
            (&json!(true), &Value::Null),
            "{answer}"
        );
        for (path, is_visible) in
            [("east/pods/shop/web-0", user == "jane" || user == "grafana"), ("west/pods/pay/bank-0", user == "ada")]
        {
            let (code, answer) = hub.read(&format!("/v1/objects/{path}")).await;
            assert_eq!(code, if is_visible { 200 } else { 404 }, "{user}: {path}: {answer}");
        }
        let mut events = hub.open("/v1/events?resource=pods&initial=replay").await;
        assert_eq!(events.replayed().await, expected, "{user}");
        let (_, status) = hub.read("/v1/status").await;
        let known: Vec<_> = status["clusters"].as_array().unwrap().iter().map(|it| it["name"].clone()).collect();
        let cluster = expected.first().map(|name| json!(name.split('/').next().unwrap()));
        assert_eq!(known, Vec::from_iter(cluster), "{user}");
    }
}

/// Compares the events of watches, in a namespace that the user sees and in one that it does not.
async fn watches(fleet: &Fleet) {
    let client = fleet.east.client().await;
    for user in ["jane", "grafana"] {
        let (direct, hub) = (fleet.at(&fleet.east, user), fleet.at_hub(user));
        let path = "/api/v1/namespaces/shop/pods";
        let version = async |user: &User, path: &str| {
            let (code, list) = user.read(path).await;
            assert_eq!(code, 200, "{path}: {list}");
            list["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
        };
        let watch = |path: &str, version: &str| format!("{path}?watch=1&resourceVersion={version}");
        let (at_hub, of_fleet) = (format!("/clusters/east{path}"), "/clusters/*/api/v1/pods".to_owned());
        let mut streams = [
            direct.open(&watch(path, &version(&direct, path).await)).await,
            hub.open(&watch(&at_hub, &version(&hub, &at_hub).await)).await,
            hub.open(&watch(&of_fleet, &version(&hub, &of_fleet).await)).await,
        ];
        create_pod(&client, "shop", "new-0").await;
        create_pod(&client, "pay", "hidden-0").await;
        delete_now(&pods(&client, "shop"), "new-0").await;
        delete_now(&pods(&client, "pay"), "hidden-0").await;
        create_pod(&client, "shop", "last-0").await;
        delete_now(&pods(&client, "shop"), "last-0").await;
        let [direct_events, of_hub @ ..] = &mut streams;
        let expected = direct_events.up_to("DELETED last-0").await;
        assert!(expected.contains(&"DELETED new-0".to_owned()), "{expected:?}");
        for stream in of_hub {
            assert_eq!(stream.up_to("DELETED last-0").await, expected, "{user}");
        }
        for path in ["/api/v1/pods?watch=1", "/api/v1/namespaces/pay/pods?watch=1", "/api/v1/nodes?watch=1"] {
            let (expected, found) = (direct.read(path).await, hub.read(&format!("/clusters/east{path}")).await);
            assert_eq!((found.0, found), (403, expected), "{user}: {path}");
        }
    }
}

async fn kubectl_prints_the_same(fleet: &Fleet) {
    let (direct, hub) = (fleet.at(&fleet.east, "jane"), fleet.at_hub("jane"));
    let root = format!("{}/clusters/east", hub.url());
    let home = tempfile::tempdir().unwrap();
    let run = async |server: &str, ca: &Path, line: &str| {
        let mut command = Command::new(kubectl());
        command.arg("--server").arg(server).arg("--token").arg(direct.token()).env_clear().env("HOME", home.path());
        command.arg("--certificate-authority").arg(ca).args(line.split(' '));
        let done = command.kill_on_drop(true).output().await.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        // The hub gives a reason for a denial, after `no - `.
        let stdout = text(&done.stdout);
        let stdout = if stdout.starts_with("no - ") { "no\n".to_owned() } else { stdout };
        (done.status.code(), stdout, text(&done.stderr))
    };
    for line in [
        "get pods -n shop -o name",
        "get pods -n shop -o custom-columns=NAME:.metadata.name,NODE:.spec.nodeName",
        "get pods -A",
        "get pods -n pay",
        "get nodes",
        "get cm -n shop -o yaml",
        "auth can-i list pods -n shop",
        "auth can-i list pods -n pay",
        "auth can-i delete pods -n shop",
        "auth whoami -o jsonpath={.status.userInfo.username}",
    ] {
        let expected = run(direct.url(), fleet.east.ca(), line).await;
        assert_eq!(run(&root, &fleet.hub_ca(), line).await, expected, "kubectl {line}");
    }
}
