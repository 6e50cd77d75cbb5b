//! Tests of `get` against a running hub.

use informer_hub_sim::World;
use informer_hub_types::ObjectKey;
use informer_hub_types::printable::hostile::{TEXT, assert_harmless};
use serde_json::{Value, json};

use crate::client::{Fleet, Running, TOKEN, command, outcome, pod};
use crate::terminal::run_on_terminal;
use crate::wait::until;

fn lines(text: &str) -> Vec<String> {
    text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_of_all_clusters_are_listed_as_kubectl_lists_them() {
    let fleet = Fleet::start("").await;
    let all = fleet.run(&["get", "pods"]);
    assert_eq!((all.code, all.err.as_str()), (0, ""));
    assert_eq!(
        lines(&all.out),
        [
            "CLUSTER NAMESPACE NAME READY STATUS RESTARTS AGE",
            "dev web web-0 0/1 ImagePullBackOff 0 3d12h",
            "dev web web-10 1/1 Running 0 3d12h",
            "dev web web-9 1/1 Running 7 3d12h",
            "prod-eu checkout payments-api-7d9c5b8f64-x7q2k 1/1 Running 0 3d12h",
            "prod-eu checkout payments-api-7d9c5b8f64-zl2mw 0/1 CrashLoopBackOff 41 3d12h",
            "prod-eu kube-system coredns-6f6b679f8f-7xkqp 1/1 Running 3 3d12h",
            "prod-us web web-0 1/1 Running 1 3d12h",
        ]
    );
    let one = fleet.run(&["get", "po", "-n", "web", "--clusters", "dev", "--sort-by", "name", "--no-headers"]);
    let rows = ["web-0 0/1 ImagePullBackOff 0 3d12h", "web-9 1/1 Running 7 3d12h", "web-10 1/1 Running 0 3d12h"];
    assert_eq!(lines(&one.out), rows, "{one:?}");
    let prod = fleet.run(&["get", "pods", "--clusters", "tier=prod", "-o", "name", "-l", "app in (web, coredns)"]);
    assert_eq!(prod.out, "pod/coredns-6f6b679f8f-7xkqp\npod/web-0\n", "{prod:?}");
    let most = ["get", "pods", "-o", "csv", "--sort-by", ".status.containerStatuses[0].restartCount", "--desc"];
    let csv = fleet.run(&[&most[..], &["--limit", "1"]].concat());
    let expected = "cluster,namespace,name,ready,status,restarts,age,ip,node,nominated node,readiness gates\r\nprod-eu,\
                    checkout,payments-api-7d9c5b8f64-zl2mw,0/1,CrashLoopBackOff,41,3d12h,10.64.17.3,node-0,<none>,<none>\r\n";
    assert_eq!(csv.out, expected, "{csv:?}");
    assert_eq!(csv.err, "informer-hub: there are 6 more pods than --limit shows\n");
    let limited = fleet.run(&["get", "pods", "--limit", "2"]);
    assert_eq!((lines(&limited.out).len(), limited.err.contains("there are 5 more pods")), (3, true), "{limited:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_are_found_in_all_clusters_and_documents_have_kubectls_form() {
    let fleet = Fleet::start("").await;
    let both = fleet.run(&["get", "pod", "web-0"]);
    assert_eq!(lines(&both.out).len(), 3, "{both:?}");
    let several = fleet.run(&["get", "pods/web-9", "node/node-0", "--clusters", "dev"]);
    let found = lines(&several.out);
    assert!(found[1].starts_with("web pod/web-9 1/1") && found[2].is_empty(), "{several:?}");
    assert!(found[4].starts_with("node/node-0"), "{several:?}");
    let missing = fleet.run(&["get", "pods", "web-9", "nope", "-n", "web"]);
    assert_eq!((missing.code, lines(&missing.out).len()), (1, 2), "{missing:?}");
    assert_eq!(missing.err, "informer-hub: pods \"nope\" not found in namespace web\n");

    let one: Value = serde_json::from_str(&fleet.run(&["get", "pod/web-9", "-o", "json"]).out).unwrap();
    assert_eq!(
        (&one["kind"], &one["apiVersion"], &one["metadata"]["name"]),
        (&json!("Pod"), &json!("v1"), &json!("web-9"))
    );
    let list: Value = serde_json::from_str(&fleet.run(&["get", "pods,widgets", "-o", "json"]).out).unwrap();
    let kinds: Vec<_> = list["items"].as_array().unwrap().iter().map(|it| it["kind"].as_str().unwrap()).collect();
    assert_eq!((&list["kind"], kinds[0], kinds[7], kinds.len()), (&json!("List"), "Pod", "Widget", 22));
    let yaml = fleet.run(&["get", "pods,widgets", "-o", "yaml"]).out;
    let read: Value = serde_saphyr::from_str(&yaml).unwrap_or_else(|error| panic!("{error}\n{yaml}"));
    assert_eq!(read, list);
    let names = "jsonpath={range .items[*]}{.metadata.name}{\"\\n\"}{end}";
    let whole = "jsonpath={.items[*].metadata.name}";
    let each = fleet.run(&["get", "pods", "-n", "web", "-o", names]).out;
    assert_eq!(each, "web-0\nweb-10\nweb-9\nweb-0\n");
    assert_eq!(fleet.run(&["get", "pods", "-n", "web", "-o", whole]).out, "web-0 web-10 web-9 web-0");
    assert_eq!(fleet.run(&["get", "pod", "web-9", "-o", "jsonpath={.spec.nodeName}"]).out, "node-0");
    let none = fleet.run(&["get", "pods", "-n", "empty"]);
    assert_eq!((none.code, none.out.as_str()), (0, ""));
    assert_eq!(none.err, "informer-hub: no pods found in namespace empty\n");
    let none = fleet.run(&["get", "pods", "-n", "empty", "-o", "json"]).out;
    assert_eq!(serde_json::from_str::<Value>(&none).unwrap()["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mistakes_have_advice_and_their_exit_code() {
    let fleet = Fleet::start("").await;
    for (line, code, text) in [
        (
            "get podz",
            1,
            "the hub has no resource \"podz\"; did you mean \"pods\"? It has: nodes, pods, widgets.example.com",
        ),
        (
            "get pods --clusters prod-e",
            1,
            "the hub has no cluster \"prod-e\"; did you mean \"prod-eu\"? It has: dev, prod-eu, prod-us",
        ),
        ("get pods --clusters a=", 0, "no pods found in a="),
        ("get pods --clusters (", 2, "clusters"),
        ("get pods web-0 -l app=web", 2, "give either names or a selector (-l, --field-selector), not both"),
        ("get pods,nodes -o csv", 2, "-o csv takes one resource"),
        ("get pods,nodes -w", 2, "--watch takes one resource"),
        ("get pods --sort-by restart", 2, "did you mean restarts?"),
        ("get pods --sort-by restarts -o json", 2, "give the path of a field"),
        ("get pods -o jsn", 2, "did you mean json?"),
        ("get pods -o name --watch --url foo", 2, "--url is not an http or https address"),
        ("get pods -l a=b=c", 2, "expected a comma or the end"),
        ("get pods --field-selector spec.foo=1", 2, "spec.foo"),
    ] {
        let found = fleet.run(&line.split(' ').collect::<Vec<_>>());
        assert!(found.code == code && found.err.contains(text) && found.out.is_empty(), "{line}: {found:?}");
    }
    let down = outcome(command(&["get", "pods", "--url", "http://127.0.0.1:1"]));
    assert_eq!(down.code, 1);
    assert!(down.err.contains("nothing listens at http://127.0.0.1:1; start a hub"), "{down:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_suffices_and_a_wrong_one_is_explained() {
    let fleet = Fleet::start("auth = { read_token = { env = \"READ_TOKEN_OF_HUB\" } }\n").await;
    let with = |token: Option<&str>| {
        let mut command = fleet.command(&["get", "pods", "-o", "name"]);
        if let Some(token) = token {
            command.env("INFORMER_HUB_TOKEN", token);
        }
        outcome(command)
    };
    assert!(with(None).err.contains("requires a token; give --token-file or set INFORMER_HUB_TOKEN"));
    let wrong = with(Some("wrong"));
    assert!(wrong.code == 1 && wrong.err.contains("refuses this token"), "{wrong:?}");
    let right = with(Some(TOKEN));
    assert_eq!((right.code, right.out.lines().count()), (0, 7), "{right:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_text_is_harmless_and_a_closed_pipe_is_no_error() {
    let fleet = Fleet::start("").await;
    let hostile = |world: &mut World| {
        let body = json!({ "metadata": { "labels": { "x": TEXT } }, "status": { "phase": TEXT } });
        world.create(&World::pods(), "web", &format!("evil-{TEXT}"), body).unwrap();
        for at in 0..1200 {
            pod(world, "many", &format!("many-{at}"), "Running", 0);
        }
    };
    fleet.clusters[2].with_world(hostile);
    until("the hub has them", async || {
        (fleet.run(&["get", "pods", "-o", "name"]).out.lines().count() > 1200).then_some(())
    })
    .await;
    let few = ["get", "pods", "-n", "web", "--clusters", "dev"];
    for (format, breaks) in [("table", 5), ("wide", 5), ("name", 4)] {
        let found = fleet.run(&[&few[..], &["-o", format]].concat());
        assert_harmless(format, &found.out, breaks);
    }
    let path = [&few[..], &["-o", "jsonpath={.items[*].status.phase}"]].concat();
    let (code, screen) = run_on_terminal(fleet.command(&path), 80);
    assert_eq!(code, 0);
    assert!(!screen.contains('\x1b'), "{screen:?}");
    for format in ["table", "json", "yaml", "name", "csv"] {
        let head = fleet.run_for_head(&["get", "pods", "-o", format]);
        assert_eq!((head.code, head.err.as_str()), (0, ""), "{format}");
    }
    // Nothing changes, so the commands must notice the closed pipe without writing another line.
    let endless = ["watch pods --initial", "get pods --watch", "clusters --watch --interval 1h", "sinks -w -o json"];
    for line in endless {
        let head = fleet.run_for_head(&line.split(' ').collect::<Vec<_>>());
        assert_eq!((head.code, head.err.as_str()), (0, ""), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stale_clusters_are_warned_of_once() {
    let mut fleet = Fleet::start("").await;
    drop(fleet.clusters.remove(2));
    let warned = until("the cluster is stale", async || {
        let found = fleet.run(&["get", "pods,nodes"]);
        found.err.contains("stale: dev (since ").then_some(found)
    })
    .await;
    assert_eq!(warned.code, 0, "{warned:?}");
    assert!(warned.err.starts_with("Warning: stale: dev (since "), "{warned:?}");
    assert!(lines(&warned.out).iter().any(|line| line.starts_with("dev web pod/web-9")), "{warned:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_prints_the_list_and_then_each_change() {
    let fleet = Fleet::start("").await;
    let watch = Running::start(fleet.command(&["get", "pods", "-n", "web", "--clusters", "dev", "-w"]));
    let names = ["NAME READY STATUS RESTARTS AGE", "web-0 0/1", "web-10 1/1", "web-9 1/1"];
    for name in names {
        assert!(watch.line().starts_with(name), "{name}");
    }
    let key = ObjectKey::new("web", "web-0");
    fleet.clusters[2]
        .with_world(|world| world.patch(&World::pods(), &key, &json!({ "status": { "phase": "Failed" } })));
    assert!(watch.line().starts_with("web-0 0/1 "));
    fleet.clusters[2].with_world(|world| pod(world, "web", "web-11", "Running", 2));
    let added = "web-11 1/1 Running 2 ";
    let mut line = watch.line();
    while !line.contains("3d12h") {
        assert!(line.starts_with(added), "{line}");
        line = watch.line();
    }
    fleet.clusters[2].with_world(|world| world.delete(&World::pods(), &key));
    assert!(watch.line().starts_with("web-0 "), "the last state of a deleted object");
}
