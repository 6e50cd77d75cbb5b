//! Tests of `watch` and `tree` against a running hub.

use informer_hub_sim::World;
use informer_hub_types::ObjectKey;
use serde_json::{Value, json};

use crate::client::{Fleet, Running, TOKEN, add_owners, pod};
use crate::process::{Launch, cluster, sim};
use crate::wait::until;

/// Removes the time at the beginning of a line.
fn timeless(line: &str) -> String {
    let (time, rest) = line.split_once(' ').unwrap();
    assert!(time.len() == 9 && time.ends_with('Z'), "{line}");
    rest.to_owned()
}

/// Changes a pod until the command has printed its first line, since it may not have connected yet.
async fn first_line(fleet: &Fleet, watch: &Running) -> String {
    let key = ObjectKey::new("web", "web-0");
    let mut count = 0;
    until("the first line", async || {
        count += 1;
        let patch = json!({ "metadata": { "annotations": { "count": count.to_string() } } });
        fleet.clusters[2].with_world(|world| world.patch(&World::pods(), &key, &patch));
        watch.try_line()
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_prints_what_has_changed() {
    let fleet = Fleet::start("").await;
    let watch = Running::start(fleet.command(&["watch", "pods", "-n", "web", "--clusters", "tier=dev"]));
    let first = timeless(&first_line(&fleet, &watch).await);
    assert!(first.starts_with("dev updated web/web-0 metadata.annotations"), "{first}");
    let key = ObjectKey::new("web", "web-9");
    let patch = json!({ "status": { "phase": "Failed", "podIP": "10.64.17.4" } });
    fleet.clusters[0].with_world(|world| pod(world, "web", "other-cluster", "Running", 0));
    fleet.clusters[2].with_world(|world| pod(world, "shop", "other-namespace", "Running", 0));
    fleet.clusters[2].with_world(|world| world.patch(&World::pods(), &key, &patch));
    let mut line = timeless(&watch.line());
    while line.starts_with("dev updated web/web-0 ") {
        line = timeless(&watch.line());
    }
    assert_eq!(line, "dev updated web/web-9 status.phase: Running → Failed, status.podIP: 10.64.17.3 → 10.64.17.4");
    fleet.clusters[2].with_world(|world| world.delete(&World::pods(), &key));
    assert_eq!(timeless(&watch.line()), "dev deleted web/web-9");

    let events = Running::start(fleet.command(&[
        "watch",
        "po,no",
        "-o",
        "json",
        "--initial",
        "-l",
        "app=web",
        "--events",
        "added",
    ]));
    let mut names = Vec::new();
    loop {
        let line: Value = serde_json::from_str(&events.line()).unwrap();
        if line["type"] == "io.informer-hub.stream.synced.v1" {
            break;
        }
        assert_eq!(
            (&line["type"], &line["data"]["initial"]),
            (&json!("io.informer-hub.resource.added.v1"), &json!(true))
        );
        names.push(line["data"]["name"].as_str().unwrap().to_owned());
    }
    names.sort();
    assert_eq!(names, ["web-0", "web-0", "web-10"]);
    for (line, code, text) in [
        ("watch podz", 1, "did you mean \"pods\"?"),
        ("watch pod/web-0", 2, "watch takes resources"),
        ("watch pods --events changed", 2, "invalid value 'changed'"),
        ("watch pods --filter object.", 2, "filter"),
        ("watch pods --url http://127.0.0.1:1", 1, "nothing listens at"),
    ] {
        let found = fleet.run(&line.split(' ').collect::<Vec<_>>());
        assert!(found.code == code && found.err.contains(text), "{line}: {found:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_goes_on_after_a_restart_without_losing_or_repeating_changes() {
    let cluster_of = sim(7, 3);
    let state = tempfile::tempdir().unwrap();
    let toml = format!(
        "state_dir = {:?}\n[hub.auth]\nread_token = {{ env = \"READ_TOKEN_OF_HUB\" }}\n{}[resources.\"widgets.example.com\"]\n",
        state.path(),
        cluster("c", &cluster_of.url())
    );
    let (launch, url) = Launch::at_port(&toml);
    let mut hub = launch.env("READ_TOKEN_OF_HUB", TOKEN).start();
    hub.ready().await;
    let mut command = crate::client::command(&["watch", "widgets", "-o", "json", "--url", &url]);
    command.env("INFORMER_HUB_TOKEN", TOKEN);
    let watch = Running::start(command);
    let mut count = 0;
    let mut create = || {
        count += 1;
        let name = format!("new-{count}");
        cluster_of.with_world(|world| world.create_widget(&name)).unwrap();
        name
    };
    let mut seen = Vec::new();
    until("connected", async || {
        create();
        watch.try_line().map(|line| seen.push(line))
    })
    .await;
    let last = create();
    while !seen.last().unwrap().contains(&format!("\"{last}\"")) {
        seen.push(watch.line());
    }
    assert_eq!(hub.ended_by("TERM").await, 0);
    let missed = create();
    let hub = Launch::at(url.trim_start_matches("http://"), &toml).env("READ_TOKEN_OF_HUB", TOKEN).start();
    hub.ready().await;
    seen.push(watch.line());
    assert!(seen.last().unwrap().contains(&format!("\"{missed}\"")), "the change in between is the next: {seen:?}");
    let ids: std::collections::BTreeSet<String> =
        seen.iter().map(|line| serde_json::from_str::<Value>(line).unwrap()["id"].to_string()).collect();
    assert_eq!(ids.len(), seen.len(), "no event is repeated");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tree_shows_owners_and_children() {
    let fleet = Fleet::start("").await;
    fleet.clusters[0].with_world(add_owners);
    let lines = until("the hub has them", async || {
        let found = fleet.run(&["tree", "widget", "middle"]);
        let lines: Vec<String> =
            found.out.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        (lines.len() == 5).then_some(lines)
    })
    .await;
    assert_eq!(
        lines,
        [
            "CLUSTER NAMESPACE NAME STATUS",
            "prod-eu shop Widget/root",
            "prod-eu shop └─ Widget/middle *",
            "prod-eu shop ├─ Pod/leaf-1 Running",
            "prod-eu shop └─ Pod/leaf-2 Running",
        ]
    );
    let json: Value =
        serde_json::from_str(&fleet.run(&["tree", "pod/leaf-1", "--clusters", "prod-eu", "-o", "json"]).out).unwrap();
    let owners: Vec<_> =
        json["owners"].as_array().unwrap().iter().map(|owner| owner["name"].as_str().unwrap()).collect();
    assert_eq!(owners, ["middle", "root"]);
    for (line, code, text) in [
        ("tree pod nope -n web", 1, "pods \"nope\" not found in namespace web"),
        ("tree pod", 2, "write RESOURCE NAME or RESOURCE/NAME"),
        ("tree podz x", 1, "did you mean \"pods\"?"),
    ] {
        let found = fleet.run(&line.split(' ').collect::<Vec<_>>());
        assert!(found.code == code && found.err.contains(text) && found.out.is_empty(), "{line}: {found:?}");
    }
}
