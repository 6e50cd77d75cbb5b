//! Tests of a fleet watch over restarts of the hub with a state directory.

use std::collections::BTreeMap;
use std::path::Path;

use informer_hub_sim::{Churn, SimCluster, World};
use serde_json::Value;

use crate::process::{Launch, Process, cluster, sim};
use crate::wait::PATIENCE;

/// Objects by cluster and name, with their UIDs and phases.
type Objects = BTreeMap<(String, String), (String, String)>;

/// A reader that watches all pods below a root.
struct Reader {
    root: &'static str,
    objects: Objects,
    version: String,
}

impl Reader {
    fn new(root: &'static str) -> Self {
        Self { root, objects: Objects::new(), version: String::new() }
    }

    /// Watches until the hub ends the watch. `visit` is called when the watch has started, and after each later event.
    async fn watch(&mut self, hub: &Process, mut visit: impl FnMut(&Objects)) {
        let mut has_started = !self.version.is_empty();
        let from = match self.version.as_str() {
            "" => "sendInitialEvents=true&resourceVersionMatch=NotOlderThan".to_owned(),
            version => format!("resourceVersion={version}"),
        };
        let path = format!("/clusters/{}/api/v1/pods?watch=1&allowWatchBookmarks=true&{from}", self.root);
        let client = reqwest::Client::builder().tls_certs_only([]).read_timeout(PATIENCE).build().unwrap();
        let mut response = client.get(hub.url().await + &path).send().await.unwrap();
        assert_eq!(response.status(), 200);
        if has_started {
            visit(&self.objects);
        }
        let mut lines = Vec::new();
        while let Some(chunk) = response.chunk().await.unwrap() {
            lines.extend_from_slice(&chunk);
            while let Some(end) = lines.iter().position(|byte| *byte == b'\n') {
                let line: Vec<_> = lines.drain(..=end).collect();
                let event: Value = serde_json::from_slice(&line).unwrap();
                self.apply(&event);
                has_started |= event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true";
                if has_started {
                    visit(&self.objects);
                }
            }
        }
    }

    fn apply(&mut self, event: &Value) {
        let metadata = &event["object"]["metadata"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let full_name = format!("{}/{}", text(&metadata["namespace"]), text(&metadata["name"]));
        let key = (text(&metadata["annotations"]["informer-hub.io/cluster"]), full_name);
        let state = (text(&metadata["uid"]), text(&event["object"]["status"]["phase"]));
        let before = match event["type"].as_str().unwrap() {
            "ADDED" => self.objects.insert(key, state).is_some(),
            "MODIFIED" => self.objects.insert(key, state).is_none(),
            "DELETED" => self.objects.remove(&key).is_none(),
            "BOOKMARK" => false,
            other => panic!("{other}: {event}"),
        };
        assert!(!before, "an event that does not continue the state: {event}");
        self.version = text(&metadata["resourceVersion"]);
    }
}

fn expected(sims: &[(&str, &SimCluster)]) -> Objects {
    let mut expected = Objects::new();
    for (cluster, sim) in sims {
        sim.with_world(|world| {
            for object in world.objects(&World::pods()) {
                let key = ((*cluster).to_owned(), object.key().to_string());
                expected.insert(key, (object.uid().to_string(), object.phase().to_owned()));
            }
        });
    }
    expected
}

fn launch(sims: &[(&str, &SimCluster)], tier: &str, state: &Path) -> Process {
    let labelled = |url: &str, name: &str| cluster(name, url) + &format!("labels = {{ tier = \"{tier}\" }}\n");
    let clusters: String = sims.iter().map(|(name, sim)| labelled(&sim.url(), name)).collect();
    let state = format!("state_dir = {:?}\n", state.display().to_string());
    Launch::new(&(state + &clusters + "[resources.pods]\n")).start()
}

fn change(sim: &SimCluster, churn: &mut Churn, steps: usize) {
    for _ in 0..steps {
        sim.with_world(|world| churn.step(world));
    }
}

async fn resumes_over_restarts(root: &'static str, seed: u64) {
    let (eu, us, state) = (sim(seed, 40), sim(seed + 1, 40), tempfile::tempdir().unwrap());
    let sims = [("eu", &eu), ("us", &us)];
    let (mut reader, mut churn) = (Reader::new(root), Churn::new(seed));
    for round in 0..3 {
        let mut hub = launch(&sims, "prod", state.path());
        hub.ready().await;
        let mut is_first = true;
        // The changes go on while the hub shuts down.
        let changes = |_: &Objects| {
            if std::mem::take(&mut is_first) {
                change(&eu, &mut churn, 100);
                hub.signal("TERM");
                change(&us, &mut churn, 100);
            }
        };
        reader.watch(&hub, changes).await;
        assert_eq!(hub.ended().await, 0, "round {round}");
        change(&eu, &mut churn, 50);
    }
    let mut hub = launch(&sims, "prod", state.path());
    hub.ready().await;
    let (expected, mut is_running) = (expected(&sims), true);
    let stop_when_equal = |objects: &Objects| {
        if *objects == expected && std::mem::take(&mut is_running) {
            hub.signal("TERM");
        }
    };
    tokio::time::timeout(PATIENCE, reader.watch(&hub, stop_when_equal)).await.expect("the expected objects");
    assert_eq!(hub.ended().await, 0);
    assert_eq!(reader.objects, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fleet_watch_resumes_after_an_orderly_restart_without_a_list() {
    resumes_over_restarts("*", 81).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_of_selected_clusters_resumes_after_an_orderly_restart_without_a_list() {
    resumes_over_restarts("tier=prod", 83).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_expires_if_clusters_changed_over_the_restart() {
    let (eu, us, state) = (sim(85, 5), sim(86, 5), tempfile::tempdir().unwrap());
    let mut hub = launch(&[("eu", &eu), ("us", &us)], "prod", state.path());
    hub.ready().await;
    let mut reader = Reader::new("*");
    reader.watch(&hub, |_| hub.signal("TERM")).await;
    assert_eq!(hub.ended().await, 0);

    let first_event = async |hub: &Process, root: &str, version: &str| {
        let path = format!("/clusters/{root}/api/v1/pods?watch=1&timeoutSeconds=1&allowWatchBookmarks=1");
        let (code, body) = hub.get(&format!("{path}&resourceVersion={version}")).await;
        assert_eq!(code, 200, "{body}");
        let event: Value = serde_json::from_str(body.lines().next().unwrap()).unwrap();
        (event["type"].as_str().unwrap().to_owned(), event["object"]["code"].as_u64())
    };
    let (resumed, expired) = (("BOOKMARK".to_owned(), None), ("ERROR".to_owned(), Some(410)));
    let mut hub = launch(&[("eu", &eu), ("us", &us)], "test", state.path());
    hub.ready().await;
    // The labels of the clusters have changed, so the selector may match other clusters than at that version.
    assert_eq!(first_event(&hub, "*", &reader.version).await, resumed);
    assert_eq!(first_event(&hub, "tier=prod", &reader.version).await, expired);
    reader.watch(&hub, |_| hub.signal("TERM")).await;
    assert_eq!(hub.ended().await, 0);

    // A resumed watch would lack the deletions of the removed cluster's objects, so the version has expired.
    let hub = launch(&[("eu", &eu)], "test", state.path());
    hub.ready().await;
    assert_eq!(first_event(&hub, "*", &reader.version).await, expired);
}
