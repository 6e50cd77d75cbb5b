//! Commands of a reader with rules, against a running hub.

use informer_hub_sim::World;
use informer_hub_types::ObjectKey;
use serde_json::{Value, json};

use crate::client::{Fleet, Outcome, Running, TOKEN, add_owners, outcome, pod};
use crate::wait::until;

/// The reader sees pods and widgets in two namespaces of production.
const READER: &str = "[readers.ann]\ntoken = { env = \"READ_TOKEN_OF_HUB\" }\n\
                      allow = [{ clusters = { tier = \"prod\" }, namespaces = [\"web\", \"shop\"], \
                      resources = [\"pods\", \"widgets\"] }]\n";

fn run(fleet: &Fleet, words: &[&str]) -> Outcome {
    let mut command = fleet.command(words);
    command.env("INFORMER_HUB_TOKEN", TOKEN);
    outcome(command)
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_show_the_visible_objects_and_say_what_is_refused() {
    let fleet = Fleet::start(READER).await;
    let all = run(&fleet, &["get", "pods"]);
    assert_eq!((all.code, all.err.as_str()), (0, ""));
    let web = "prod-us web web-0 1/1 Running 1 3d12h";
    assert_eq!(lines(&all.out), ["CLUSTER NAMESPACE NAME READY STATUS RESTARTS AGE", web]);
    let counted = run(&fleet, &["query", "count by cluster"]);
    assert_eq!((lines(&counted.out), counted.code), (vec!["CLUSTER COUNT".to_owned(), "prod-us 1".to_owned()], 0));
    for (line, code, text) in [
        ("get pods -n checkout", 0, "no pods found in namespace checkout"),
        (
            "get pods -n checkout --clusters prod-eu",
            1,
            "User \"ann\" cannot list resource \"pods\" in API group \"\" in the namespace \"checkout\"",
        ),
        ("get pods --clusters dev", 1, "the hub has no cluster \"dev\"; it has: prod-eu, prod-us"),
        ("get nodes", 1, "the hub has no resource \"nodes\""),
        ("get pods coredns-6f6b679f8f-7xkqp", 1, "pods \"coredns-6f6b679f8f-7xkqp\" not found"),
        ("get pods -w --clusters dev", 1, "the hub has no cluster \"dev\""),
        ("query -r nodes count", 1, "the hub has no resource \"nodes\"; it has: pods, widgets.example.com"),
        ("query count --clusters dev", 1, "the hub has no cluster \"dev\""),
        ("watch nodes", 1, "the hub has no resource \"nodes\""),
        ("watch pods --clusters dev", 1, "the hub has no cluster \"dev\""),
        ("tree pod/coredns-6f6b679f8f-7xkqp", 1, "not found"),
        ("tree node/node-0", 1, "the hub has no resource \"node\""),
        ("dead-letters purge audit --all", 1, "this reader may not change the hub"),
    ] {
        let found = run(&fleet, &line.split(' ').collect::<Vec<_>>());
        assert!(found.code == code && found.err.contains(text), "{line}: {found:?}");
        assert!(found.out.is_empty(), "{line}: {found:?}");
        let shown = found.err.replace(line.rsplit(' ').next().unwrap(), "");
        assert!(!shown.contains("kube-system") && !shown.contains("payments"), "{line}: {found:?}");
    }
    for line in ["get pods -o json", "query -o json name=web-0", "status -o json", "clusters", "resources"] {
        let found = run(&fleet, &line.split(' ').collect::<Vec<_>>());
        let text = found.out + &found.err;
        assert!(text.contains("prod-us") && !text.contains("dev"), "{line}: {text}");
    }
    let completed = run(&fleet, &["complete", "--", "get", "pods", "-n", ""]);
    assert_eq!(completed.out, "web\n");
    let clusters = run(&fleet, &["complete", "--", "get", "pods", "--clusters", ""]);
    assert_eq!(lines(&clusters.out), ["prod-eu", "prod-us", "tier=prod"]);
    let none = outcome(fleet.command(&["get", "pods"]));
    assert!(none.code == 1 && none.err.contains("requires a token"), "{none:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_and_tree_show_no_hidden_object() {
    let fleet = Fleet::start(READER).await;
    fleet.clusters[0].with_world(add_owners);
    let tree = until("the hub has them", async || {
        let found = run(&fleet, &["tree", "widget/middle", "-n", "shop"]);
        (lines(&found.out).len() == 5).then_some(found)
    })
    .await;
    assert_eq!(tree.code, 0);
    let mut command = fleet.command(&["watch", "pods", "--initial", "-o", "json"]);
    command.env("INFORMER_HUB_TOKEN", TOKEN);
    let watch = Running::start(command);
    let mut names = Vec::new();
    let name_of = |line: &str| {
        let event: Value = serde_json::from_str(line).unwrap();
        let data = &event["data"];
        let is_notice = event["type"].as_str().unwrap().contains(".stream.");
        (!is_notice).then(|| format!("{} {}", data["cluster"].as_str().unwrap(), data["name"].as_str().unwrap()))
    };
    while let Some(name) = name_of(&watch.line()) {
        names.push(name);
    }
    names.sort();
    assert_eq!(names, ["prod-eu leaf-1", "prod-eu leaf-2", "prod-us web-0"]);
    let change = |at: usize, namespace: &str, name: &str| {
        fleet.clusters[at].with_world(|world| {
            let patch = json!({ "status": { "phase": "Failed" } });
            world.patch(&World::pods(), &ObjectKey::new(namespace, name), &patch).unwrap();
        });
    };
    change(0, "checkout", "payments-api-7d9c5b8f64-x7q2k");
    change(2, "web", "web-0");
    fleet.clusters[0].with_world(|world| pod(world, "kube-system", "hidden", "Running", 0));
    change(1, "web", "web-0");
    let mut next = name_of(&watch.line());
    while next.is_none() {
        next = name_of(&watch.line());
    }
    assert_eq!(next.as_deref(), Some("prod-us web-0"), "the first visible change");
}
