//! Tests of configuration reloads: differences are applied, and nothing else is touched.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use informer_hub::actors::messages::AddCluster;
use informer_hub::app::Difference;
use informer_hub::cache::Query;
use informer_hub::informers::{ResourceEventHandlerFuncs, SharedInformerFactory};
use informer_hub_config::{Config, Initial, Projection, SinkConfig, TransportConfig, WebhookConfig};
use informer_hub_sim::{SimCluster, SimConfig, World};
use informer_hub_types::{ApiResource, ClusterName, ClusterSelector, Gvr};
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Handle;

use crate::fleet::{
    Fleet, cluster_config, config, eventually, file_events, file_sink, quick, resource_config, small, with_sinks,
};

const WIDGETS: &str = "widgets.example.com";

/// Starts clusters with different content.
fn start_clusters(names: &[&str], config: impl Fn(u64) -> SimConfig) -> BTreeMap<String, SimCluster> {
    let start =
        |(name, i): (&&str, u64)| ((*name).to_owned(), SimCluster::start(config(i), &Handle::current()).unwrap());
    names.iter().zip(0..).map(start).collect()
}

/// Returns the number of lists, plain and streaming.
fn lists(cluster: &SimCluster) -> u64 {
    let stats = cluster.stats();
    stats.lists + stats.streaming
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

/// Returns cluster and name of all objects of a kind that a sink has written.
fn written(path: &Path, kind: &str) -> BTreeSet<String> {
    let of_kind = file_events(path).into_iter().filter(|event| event["data"]["resource"]["kind"] == kind);
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
async fn reload_starts_and_stops_what_changed_and_lists_nothing_else() {
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
    assert_eq!(lists(&fleet.clusters["a"]), listed + 1, "only the widgets are listed");
    let both = |gvr: &Gvr| ["a", "c"].map(|name| count(&fleet.clusters[name], gvr)).iter().sum::<usize>();
    assert_eq!(cached(&fleet, &World::pods(), "Pod").await, both(&World::pods()));
    assert_eq!(cached(&fleet, &World::widgets(), "Widget").await, both(&World::widgets()));
    let report = fleet.hub.report().await.unwrap();
    assert_eq!(report.hub.clusters.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["a", "c"]);
    assert_eq!(report.configuration.reloads, 1);
    // Reloads the first configuration, twice.
    let back = fleet.hub.reloader().reload(before.clone()).await.unwrap();
    assert_eq!(back.clusters.added, names(&["b"]));
    assert_eq!(back.resources.removed, names(&[WIDGETS]));
    fleet.synced().await;
    assert!(fleet.hub.reloader().reload(before).await.unwrap().is_empty());
    assert_eq!(lists(&fleet.clusters["a"]), listed + 1);
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reload_adds_changes_and_removes_sinks_without_losing_events() {
    let (files, clusters) = (Files::new(), start_clusters(&["a"], |_| small(32, 15)));
    let start = with_sinks(config(&clusters, &["pods"]), vec![file_sink("one", &files.at("1"))]);
    let fleet = Fleet::start_config(clusters, start.clone(), quick()).await;
    let cluster = &fleet.clusters["a"];
    let all = count(cluster, &World::pods());
    eventually("all pods in the first file", async || written(&files.at("1"), "Pod").len() == all).await;
    // A batch whose result the sink has not handled yet would be written again, to the new file.
    let pending = async || fleet.hub.report().await.unwrap().sinks[0].status.pending_events;
    eventually("all results handled", async || pending().await == 0).await;
    let listed = lists(cluster);
    let moved = vec![file_sink("one", &files.at("2")), file_sink("two", &files.at("3"))];
    let changes = fleet.hub.reloader().reload(with_sinks(start.clone(), moved)).await.unwrap();
    assert_eq!(changes.sinks, Difference { added: names(&["two"]), changed: names(&["one"]), removed: vec![] });
    eventually("all pods at the new sink", async || written(&files.at("3"), "Pod").len() == all).await;
    cluster.with_world(World::create_pod).unwrap();
    eventually("the new pod", async || written(&files.at("2"), "Pod").len() == 1).await;
    assert_eq!(written(&files.at("1"), "Pod").len(), all, "the first place is left");
    let changes = fleet.hub.reloader().reload(with_sinks(start, vec![])).await.unwrap();
    assert_eq!(changes.sinks.removed, names(&["one", "two"]));
    assert!(fleet.hub.report().await.unwrap().sinks.is_empty());
    cluster.with_world(World::create_pod).unwrap();
    fleet.converged().await;
    assert_eq!(written(&files.at("2"), "Pod").len(), 1);
    assert_eq!(lists(cluster), listed);
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sink_without_a_resource_list_receives_added_resources() {
    let (files, clusters) = (Files::new(), start_clusters(&["a"], |_| small(33, 10)));
    let all = file_sink("all", &files.at("all"));
    let mut pods = file_sink("pods", &files.at("pods"));
    pods.select.resources = names(&["pods"]);
    let start = with_sinks(config(&clusters, &["pods"]), vec![all, pods]);
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
async fn invalid_reload_changes_nothing_and_is_reported() {
    let (files, clusters) = (Files::new(), start_clusters(&["a", "b"], |i| small(34 + i, 10)));
    let start = with_sinks(config(&clusters, &["pods"]), vec![file_sink("one", &files.at("1"))]);
    let fleet = Fleet::start_config(clusters, start.clone(), quick()).await;
    fleet.synced().await;
    let mut broken = file_sink("two", &files.at("2"));
    broken.filter = Some("object.".to_owned());
    let mut next = with_sinks(start.clone(), vec![broken]);
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
async fn cluster_with_a_new_address_is_compared_with_the_cache() {
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
    let violations = fleet.replica.lock().violations().to_vec();
    assert!(violations.is_empty(), "{violations:#?}");
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reload_after_shutdown_is_an_error() {
    let clusters = start_clusters(&["a"], |_| small(37, 3));
    let start = config(&clusters, &["pods"]);
    let fleet = Fleet::start_config(clusters, start.clone(), quick()).await;
    let reloader = fleet.hub.reloader();
    fleet.end().await;
    assert_eq!(reloader.reload(start).await.unwrap_err().to_string(), "the hub is shutting down");
}

/// Returns type, object name and cluster label `tier` of each event of a sink.
fn events(path: &Path) -> Vec<(String, String, String)> {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let events = file_events(path).into_iter().map(|event| {
        let data = &event["data"];
        (word(&event["type"]), word(&data["name"]), word(&data["clusterLabels"]["tier"]))
    });
    events.filter(|(kind, ..)| !kind.contains("synced")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relabelled_cluster_keeps_its_cache_and_moves_between_label_selectors() {
    let (files, clusters) = (Files::new(), start_clusters(&["a"], |_| small(47, 12)));
    let of = |tier: &str| ClusterSelector::Labels([("tier".to_owned(), tier.to_owned())].into());
    let sink = |name: &str, clusters| {
        let mut sink = file_sink(name, &files.at(name));
        sink.select.clusters = clusters;
        sink
    };
    let mut start = config(&clusters, &["pods"]);
    start.sinks = vec![sink("all", ClusterSelector::All), sink("prod", of("prod")), sink("dev", of("dev"))];
    start.clusters[0].labels = [("tier".to_owned(), "prod".to_owned())].into();
    let fleet = Fleet::start_config(clusters, start.clone(), quick()).await;
    let cluster = &fleet.clusters["a"];
    let all = count(cluster, &World::pods());
    for name in ["all", "prod"] {
        eventually("all pods", async || events(&files.at(name)).len() == all).await;
    }
    // Deletes a pod while the cluster is down.
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
    eventually("the deletion", async || events(&files.at("all")).last() == Some(&deleted)).await;
    let new = cluster.with_world(World::create_pod).unwrap();
    eventually("the new pod", async || events(&files.at("all")).len() == all + 2).await;
    assert_eq!(events(&files.at("all")).last().unwrap().1, new.name());
    eventually("the existing pods", async || events(&files.at("dev")).len() >= all).await;
    let dev: BTreeSet<_> = events(&files.at("dev")).into_iter().filter(|(kind, ..)| kind.contains("added")).collect();
    assert!(dev.len() >= all && dev.iter().all(|(_, _, tier)| tier == "dev"), "{dev:?}");
    assert_eq!(events(&files.at("prod")).len(), all, "the sink no longer selects the cluster");
    fleet.converged().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn index_is_added_to_a_resource_that_code_watches_too() {
    let clusters = start_clusters(&["a"], |_| small(48, 10));
    let start = config(&clusters, &["pods"]);
    let fleet = Fleet::start_config(clusters, start.clone(), quick()).await;
    let factory = SharedInformerFactory::new(fleet.hub.system());
    let pods = factory.informer::<Pod>().unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let handler = ResourceEventHandlerFuncs::new().on_add(move |_| _ = counted.fetch_add(1, Relaxed));
    let handler = pods.add_event_handler(handler).await.unwrap();
    factory.start().await.unwrap();
    handler.wait_for_sync().await.unwrap();
    let all = count(&fleet.clusters["a"], &World::pods());
    let mut next = start;
    next.resources[0].indexes = [("by-spot".to_owned(), "spec.nodeName".parse().unwrap())].into();
    let changes = fleet.hub.reloader().reload(next).await.unwrap();
    assert_eq!(changes.resources.changed, names(&["pods"]));
    let pod = fleet.clusters["a"].with_world(|world| world.objects(&World::pods()).next().unwrap().value());
    let node = pod["spec"]["nodeName"].as_str().unwrap().to_owned();
    let of_node = || pods.indexer().by_index("by-spot", &node).map(|found| found.len());
    eventually("the index", async || of_node().is_ok_and(|found| found > 0)).await;
    assert_eq!((pods.lister().list(&"".parse().unwrap()).len(), calls.load(Relaxed)), (all, all));
    factory.shutdown().await;
    fleet.end().await;
}

/// Returns the names of the objects whose deletion a sink has written.
fn deletions(path: &Path) -> BTreeSet<String> {
    let deleted = events(path).into_iter().filter(|(kind, ..)| kind.contains("deleted"));
    deleted.map(|(_, name, _)| name).collect()
}

/// Deletes the first pod of a cluster and returns its name.
fn delete_pod(cluster: &SimCluster) -> String {
    cluster.with_world(|world| {
        let key = world.objects(&World::pods()).next().unwrap().key().clone();
        world.delete(&World::pods(), &key).unwrap();
        key.name().to_owned()
    })
}

fn keep(paths: &[&str]) -> Projection {
    Projection::Keep(paths.iter().map(|path| path.parse().unwrap()).collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletion_during_a_change_of_resource_settings_is_delivered() {
    let (files, clusters) = (Files::new(), start_clusters(&["a"], |_| small(61, 12)));
    let start = with_sinks(config(&clusters, &["pods"]), vec![file_sink("all", &files.at("all"))]);
    let fleet = Fleet::start_config(clusters, start.clone(), quick()).await;
    let cluster = &fleet.clusters["a"];
    let all = count(cluster, &World::pods());
    eventually("all pods", async || written(&files.at("all"), "Pod").len() == all).await;
    let mut gone = BTreeSet::new();
    let changes: [fn(&mut Config); 3] = [
        |config| config.resources[0].indexes = [("by-spot".to_owned(), "spec.nodeName".parse().unwrap())].into(),
        |config| config.resources[0].projection = keep(&["spec.nodeName"]),
        |config| config.resources[0].name = "renamed".to_owned(),
    ];
    let mut next = start;
    for change in changes {
        cluster.stop().await;
        gone.insert(delete_pod(cluster));
        change(&mut next);
        fleet.hub.reloader().reload(next.clone()).await.unwrap();
        cluster.restart().await;
        eventually("the deletion", async || deletions(&files.at("all")) == gone).await;
    }
    fleet.converged().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_resync_or_clusters_of_a_sink_repeat_no_event() {
    let (files, clusters) = (Files::new(), start_clusters(&["a", "b"], |i| small(62 + i, 10)));
    let mut start = with_sinks(config(&clusters, &["pods"]), vec![file_sink("one", &files.at("1"))]);
    let of_a = ClusterSelector::Names(vec![ClusterName::new("a").unwrap()]);
    start.sinks[0].select.clusters = of_a.clone();
    let fleet = Fleet::start_config(clusters, start.clone(), quick()).await;
    let [a, b] = ["a", "b"].map(|name| count(&fleet.clusters[name], &World::pods()));
    let total = || events(&files.at("1")).len();
    eventually("the pods of a", async || total() == a).await;
    let listed = ["a", "b"].map(|name| lists(&fleet.clusters[name]));
    let mut next = start;
    next.resources[0].resync = Some(Duration::from_secs(3600));
    fleet.hub.reloader().reload(next.clone()).await.unwrap();
    next.sinks[0].select.clusters = ClusterSelector::All;
    fleet.hub.reloader().reload(next.clone()).await.unwrap();
    eventually("the pods of b", async || total() >= a + b).await;
    fleet.clusters["a"].with_world(World::create_pod).unwrap();
    eventually("the new pod", async || total() > a + b).await;
    next.sinks[0].select.clusters = of_a;
    fleet.hub.reloader().reload(next).await.unwrap();
    fleet.clusters["b"].with_world(World::create_pod).unwrap();
    fleet.converged().await;
    fleet.clusters["a"].with_world(World::create_pod).unwrap();
    eventually("another pod", async || total() >= a + b + 2).await;
    assert_eq!(total(), a + b + 2, "{:#?}", events(&files.at("1")));
    assert_eq!(["a", "b"].map(|name| lists(&fleet.clusters[name])), listed);
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn added_entry_takes_a_resource_over_from_a_pattern_without_losing_a_deletion() {
    let (files, clusters) = (Files::new(), start_clusters(&["a"], |_| small(64, 10)));
    let mut start = with_sinks(config(&clusters, &["pods"]), vec![file_sink("all", &files.at("all"))]);
    start.resources.push(resource_config("*.example.com"));
    start.resources[1].indexes.clear();
    let fleet = Fleet::start_config(clusters, start.clone(), quick()).await;
    let cluster = &fleet.clusters["a"];
    let widgets = || written(&files.at("all"), "Widget").len();
    eventually("all widgets", async || widgets() == count(cluster, &World::widgets())).await;
    cluster.stop().await;
    let gone = cluster.with_world(|world| {
        let key = world.objects(&World::widgets()).next().unwrap().key().clone();
        world.delete(&World::widgets(), &key).unwrap();
        key.name().to_owned()
    });
    let mut next = start;
    next.resources.push(resource_config(WIDGETS));
    fleet.hub.reloader().reload(next).await.unwrap();
    cluster.restart().await;
    eventually("the deletion", async || deletions(&files.at("all")).contains(&gone)).await;
    // Only one subscription of the sink still selects the resource.
    let named = |name: &str| file_events(&files.at("all")).into_iter().filter(|it| it["data"]["name"] == name).count();
    cluster.with_world(|world| world.create_widget("after")).unwrap();
    cluster.with_world(|world| world.create_widget("last")).unwrap();
    eventually("new widgets", async || named("after") > 0 && named("last") > 0).await;
    assert_eq!(named("after"), 1);
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sink_with_a_full_queue_is_removed_at_the_deadline() {
    let clusters = start_clusters(&["a"], |_| small(65, 12_000));
    // Accepts connections, but never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    let mut sink = SinkConfig::new("stuck", TransportConfig::Webhook(WebhookConfig::new(url)));
    sink.initial = Initial::Replay;
    let mut start = with_sinks(config(&clusters, &["pods"]), vec![sink]);
    start.hub.shutdown_deadline = Duration::from_millis(500);
    let fleet = Fleet::start_config(clusters, start.clone(), quick()).await;
    let pending = async || fleet.hub.report().await.unwrap().sinks[0].status.pending_events;
    eventually("a full queue", async || pending().await >= 10_000).await;
    let reloading = fleet.hub.reloader();
    let reloaded = tokio::time::timeout(Duration::from_secs(60), reloading.reload(with_sinks(start, vec![]))).await;
    assert_eq!(reloaded.expect("the reload ends").unwrap().sinks.removed, names(&["stuck"]));
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_cluster_of_a_reload_repeats_nothing_else() {
    let (files, clusters) = (Files::new(), start_clusters(&["a", "b", "taken"], |i| small(66 + i, 5)));
    let all = config(&clusters, &["pods"]);
    let mut start = all.clone();
    start.clusters.truncate(1);
    let fleet = Fleet::start_config(clusters, start, quick()).await;
    let taken = all.clusters[2].clone();
    let connector = fleet.hub.connector(&taken);
    let add = AddCluster { name: taken.name, labels: taken.labels, connector };
    fleet.hub.registry().send(add).await.unwrap().unwrap();
    let next = with_sinks(all, vec![file_sink("one", &files.at("1"))]);
    let refused = fleet.hub.reloader().reload(next.clone()).await.unwrap_err().to_string();
    assert!(refused.contains("taken"), "{refused}");
    let mut other = next;
    other.clusters.truncate(2);
    assert!(fleet.hub.reloader().reload(other).await.unwrap().is_empty(), "the rest is in force already");
    let pods = || ["a", "b", "taken"].map(|name| count(&fleet.clusters[name], &World::pods())).iter().sum::<usize>();
    let written = || events(&files.at("1")).len();
    eventually("all pods once", async || written() == pods()).await;
    fleet.clusters["a"].with_world(World::create_pod).unwrap();
    fleet.clusters["b"].with_world(World::create_pod).unwrap();
    eventually("the new pods once", async || written() == pods()).await;
    assert_eq!(fleet.hub.report().await.unwrap().sinks.len(), 1);
    fleet.end().await;
}
