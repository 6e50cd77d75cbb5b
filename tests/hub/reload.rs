//! The configuration changes under a running hub: what differs is done, and nothing else is touched.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use informer_hub::app::Difference;
use informer_hub::cache::Query;
use informer_hub_config::{Config, FileConfig, Initial, SinkConfig, SinkMatch, TransportConfig};
use informer_hub_sim::{SimCluster, SimConfig, World};
use informer_hub_types::{ApiResource, ClusterSelector, Gvr};
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Handle;

use crate::fleet::{Fleet, cluster_config, config, eventually, quick, resource_config, small};

const WIDGETS: &str = "widgets.example.com";

/// Clusters whose worlds differ.
fn start_clusters(names: &[&str], config: impl Fn(u64) -> SimConfig) -> BTreeMap<String, SimCluster> {
    let start =
        |(name, i): (&&str, u64)| ((*name).to_owned(), SimCluster::start(config(i), &Handle::current()).unwrap());
    names.iter().zip(0..).map(start).collect()
}

/// Lists in whichever way.
fn lists(cluster: &SimCluster) -> u64 {
    let stats = cluster.stats();
    stats.lists + stats.streaming
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

fn file_sink(name: &str, path: &Path) -> SinkConfig {
    let file = FileConfig { path: path.to_owned(), max_size: 1 << 30, keep: 1, fsync: false };
    SinkConfig { initial: Initial::Replay, ..SinkConfig::new(name, TransportConfig::File(file)) }
}

/// What a sink has written of the objects of a kind: names and clusters.
fn written(path: &Path, kind: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let of_kind = events.filter(|event| event["data"]["resource"]["kind"] == kind);
    of_kind.map(|event| format!("{}/{}", event["data"]["cluster"], event["data"]["name"])).collect()
}

fn count(cluster: &SimCluster, gvr: &Gvr) -> usize {
    cluster.truth(gvr).len()
}

async fn cached(fleet: &Fleet, gvr: &Gvr, kind: &str) -> usize {
    let resource = ApiResource { gvr: gvr.clone(), kind: kind.into(), namespaced: true };
    fleet.hub.cache_of(resource).send(Query::list()).await.unwrap().unwrap().items.len()
}

struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_and_goes_is_begun_and_ended_and_what_stays_is_not_listed_again() {
    let clusters = start_clusters(&["a", "b", "c"], |i| small(31 + i, 12));
    let before = config(&clusters, &["pods"]);
    let mut first = before.clone();
    first.clusters.retain(|cluster| cluster.name.as_str() != "c");
    let fleet = Fleet::start_config(clusters, first, quick()).await;
    fleet.synced().await;
    let listed = lists(&fleet.clusters["a"]);
    let mut next = before.clone();
    next.clusters.retain(|cluster| cluster.name.as_str() != "b");
    next.resources.push(resource_config(WIDGETS));
    let changes = fleet.hub.reloader().reload(next.clone()).await.unwrap();
    assert_eq!(changes.clusters, Difference { added: names(&["c"]), changed: vec![], removed: names(&["b"]) });
    assert_eq!(changes.resources, Difference { added: names(&[WIDGETS]), ..Difference::default() });
    fleet.synced().await;
    assert_eq!(lists(&fleet.clusters["a"]), listed + 1, "the widgets alone");
    let both = |gvr: &Gvr| ["a", "c"].map(|name| count(&fleet.clusters[name], gvr)).iter().sum::<usize>();
    assert_eq!(cached(&fleet, &World::pods(), "Pod").await, both(&World::pods()));
    assert_eq!(cached(&fleet, &World::widgets(), "Widget").await, both(&World::widgets()));
    let report = fleet.hub.report().await.unwrap();
    assert_eq!(report.hub.clusters.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["a", "c"]);
    assert_eq!(report.configuration.reloads, 1);
    // Back again, and the same once more.
    let back = fleet.hub.reloader().reload(before.clone()).await.unwrap();
    assert_eq!(back.clusters.added, names(&["b"]));
    assert_eq!(back.resources.removed, names(&[WIDGETS]));
    fleet.synced().await;
    assert!(fleet.hub.reloader().reload(before).await.unwrap().is_empty());
    assert_eq!(lists(&fleet.clusters["a"]), listed + 1);
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sinks_come_change_and_go_and_each_pod_is_in_one_place_or_the_other() {
    let (files, clusters) = (Files::new(), start_clusters(&["a"], |_| small(32, 15)));
    let start = Config { sinks: vec![file_sink("one", &files.at("1"))], ..config(&clusters, &["pods"]) };
    let fleet = Fleet::start_config(clusters, start.clone(), quick()).await;
    let cluster = &fleet.clusters["a"];
    let all = count(cluster, &World::pods());
    eventually("all pods at the first place", async || written(&files.at("1"), "Pod").len() == all).await;
    let listed = lists(cluster);
    let moved = vec![file_sink("one", &files.at("2")), file_sink("two", &files.at("3"))];
    let changes = fleet.hub.reloader().reload(Config { sinks: moved, ..start.clone() }).await.unwrap();
    assert_eq!(changes.sinks, Difference { added: names(&["two"]), changed: names(&["one"]), removed: vec![] });
    eventually("all pods at the new sink", async || written(&files.at("3"), "Pod").len() == all).await;
    cluster.with_world(World::create_pod).unwrap();
    eventually("the new pod", async || written(&files.at("2"), "Pod").len() == 1).await;
    assert_eq!(written(&files.at("1"), "Pod").len(), all, "the first place is left");
    let changes = fleet.hub.reloader().reload(Config { sinks: vec![], ..start }).await.unwrap();
    assert_eq!(changes.sinks.removed, names(&["one", "two"]));
    assert!(fleet.hub.report().await.unwrap().sinks.is_empty());
    cluster.with_world(World::create_pod).unwrap();
    fleet.converged().await;
    assert_eq!(written(&files.at("2"), "Pod").len(), 1);
    assert_eq!(lists(cluster), listed);
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sink_follows_the_resources_that_there_are() {
    let (files, clusters) = (Files::new(), start_clusters(&["a"], |_| small(33, 10)));
    let all = file_sink("all", &files.at("all"));
    let select = SinkMatch { resources: names(&["pods"]), ..SinkMatch::default() };
    let pods = SinkConfig { select, ..file_sink("pods", &files.at("pods")) };
    let start = Config { sinks: vec![all, pods], ..config(&clusters, &["pods"]) };
    let fleet = Fleet::start_config(clusters, start.clone(), quick()).await;
    fleet.synced().await;
    let mut next = start;
    next.resources.push(resource_config(WIDGETS));
    fleet.hub.reloader().reload(next).await.unwrap();
    let widgets = count(&fleet.clusters["a"], &World::widgets());
    eventually("widgets", async || written(&files.at("all"), "Widget").len() == widgets).await;
    assert!(written(&files.at("pods"), "Widget").is_empty());
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_used_changes_nothing_and_is_shown() {
    let (files, clusters) = (Files::new(), start_clusters(&["a", "b"], |i| small(34 + i, 10)));
    let start = Config { sinks: vec![file_sink("one", &files.at("1"))], ..config(&clusters, &["pods"]) };
    let fleet = Fleet::start_config(clusters, start.clone(), quick()).await;
    fleet.synced().await;
    let broken = SinkConfig { filter: Some("object.".to_owned()), ..file_sink("two", &files.at("2")) };
    let mut next = Config { sinks: vec![broken], ..start.clone() };
    next.clusters.truncate(1);
    let error = fleet.hub.reloader().reload(next).await.unwrap_err().to_string();
    assert!(error.starts_with("sinks.two.filter: "), "{error}");
    let report = fleet.hub.report().await.unwrap();
    assert_eq!(report.configuration.last_error.as_deref(), Some(error.as_str()));
    assert_eq!((report.hub.clusters.len(), report.sinks.len(), report.configuration.reloads), (2, 1, 0));
    assert!(!files.at("2").exists());
    fleet.hub.reloader().reload(start).await.unwrap();
    assert_eq!(fleet.hub.report().await.unwrap().configuration.last_error, None);
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_at_another_address_is_compared_and_not_begun_anew() {
    let clusters = start_clusters(&["a", "other"], |i| small(35 + i, 10));
    let mut start = config(&clusters, &["pods"]);
    start.clusters.retain(|cluster| cluster.name.as_str() == "a");
    let fleet = Fleet::start_config(clusters, start.clone(), quick()).await;
    fleet.synced().await;
    let mut next = start;
    next.clusters = vec![cluster_config("a", &fleet.clusters["other"].url())];
    let changes = fleet.hub.reloader().reload(next).await.unwrap();
    assert_eq!(changes.clusters.changed, names(&["a"]));
    let truth = fleet.clusters["other"].truth(&World::pods());
    eventually("the other cluster's pods", async || fleet.cached("a").await == truth).await;
    let told = fleet.replica.lock().violations().to_vec();
    assert!(told.is_empty(), "{told:#?}");
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_has_ended_takes_no_configuration() {
    let clusters = start_clusters(&["a"], |_| small(37, 3));
    let start = config(&clusters, &["pods"]);
    let fleet = Fleet::start_config(clusters, start.clone(), quick()).await;
    let reloader = fleet.hub.reloader();
    fleet.end().await;
    assert_eq!(reloader.reload(start).await.unwrap_err().to_string(), "the hub is shutting down");
}

/// Of each event of a sink: what happened, to which object, and the cluster's label `tier`.
fn told(path: &Path) -> Vec<(String, String, String)> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let told = events.map(|event| {
        let data = &event["data"];
        (word(&event["type"]), word(&data["name"]), word(&data["clusterLabels"]["tier"]))
    });
    told.filter(|(kind, ..)| !kind.contains("synced")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_with_other_labels_goes_on_with_what_it_has_and_whoever_selects_by_them_follows() {
    let (files, clusters) = (Files::new(), start_clusters(&["a"], |_| small(47, 12)));
    let of = |tier: &str| ClusterSelector::Labels([("tier".to_owned(), tier.to_owned())].into());
    let sink = |name: &str, clusters| {
        let select = SinkMatch { clusters, ..SinkMatch::default() };
        SinkConfig { select, ..file_sink(name, &files.at(name)) }
    };
    let mut start = config(&clusters, &["pods"]);
    start.sinks = vec![sink("all", ClusterSelector::All), sink("prod", of("prod")), sink("dev", of("dev"))];
    start.clusters[0].labels = [("tier".to_owned(), "prod".to_owned())].into();
    let fleet = Fleet::start_config(clusters, start.clone(), quick()).await;
    let cluster = &fleet.clusters["a"];
    let all = count(cluster, &World::pods());
    for name in ["all", "prod"] {
        eventually("all pods", async || told(&files.at(name)).len() == all).await;
    }
    // What happens while nobody can see it.
    cluster.stop().await;
    let gone = cluster.with_world(|world| {
        let key = world.objects(&World::pods()).next().unwrap().key().clone();
        world.delete(&World::pods(), &key).unwrap();
        key
    });
    let mut next = start;
    next.clusters[0].labels = [("tier".to_owned(), "dev".to_owned())].into();
    let changes = fleet.hub.reloader().reload(next).await.unwrap();
    assert_eq!(changes.clusters.changed, names(&["a"]));
    cluster.restart().await;
    let deleted = ("io.informer-hub.resource.deleted.v1".to_owned(), gone.name().to_owned(), "dev".to_owned());
    eventually("the deletion", async || told(&files.at("all")).last() == Some(&deleted)).await;
    let new = cluster.with_world(World::create_pod).unwrap();
    eventually("the new pod", async || told(&files.at("all")).len() == all + 2).await;
    assert_eq!(told(&files.at("all")).last().unwrap().1, new.name());
    eventually("the pods that there are", async || told(&files.at("dev")).len() >= all).await;
    let dev: BTreeSet<_> = told(&files.at("dev")).into_iter().filter(|(kind, ..)| kind.contains("added")).collect();
    assert!(dev.len() >= all && dev.iter().all(|(_, _, tier)| tier == "dev"), "{dev:?}");
    assert_eq!(told(&files.at("prod")).len(), all, "it is not its cluster any more");
    fleet.converged().await;
    fleet.end().await;
}
