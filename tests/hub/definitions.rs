//! Tests of resources that are added and removed under a running hub: definitions, versions, kinds, patterns.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use informer_hub::actors::messages::SetClusterLabels;
use informer_hub::actors::{DiscoveryState, InformerStatus, PatternStatus, Subscribe, Subscriber, Tuning};
use informer_hub::cache::Query;
use informer_hub_config::{Config, ResourceConfig};
use informer_hub_reflector::ReflectorOptions;
use informer_hub_sim::{
    Fault, FaultScript, ResourceDef, Rule, SimCluster, SimConfig, Streaming, When, World, WorldConfig,
};
use informer_hub_types::{ApiResource, ClusterSelector, Gvr, Notification, ObjectKey, Phase};
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use serde_json::json;
use tokio::runtime::Handle;

use crate::fleet::{Fleet, config, eventually, file_events, file_sink, quick, resource_config, small};

const WIDGETS: &str = "widgets.example.com";

/// Log of a subscriber's events: `+` added, `~` updated, `-` deleted, `†` tombstone, then the name. Optionally, the
/// resource's version precedes the name.
type EventLog = Arc<Mutex<Vec<String>>>;

fn sim(seed: u64) -> SimCluster {
    SimCluster::start(small(seed, 5), &Handle::current()).unwrap()
}

fn single(cluster: SimCluster) -> BTreeMap<String, SimCluster> {
    BTreeMap::from([("a".to_owned(), cluster)])
}

fn widgets(version: &str) -> Gvr {
    Gvr::new("example.com", version, "widgets")
}

fn def(version: &str, kind: &str, namespaced: bool) -> ResourceDef {
    ResourceDef::new(&widgets(version), kind, namespaced, true)
}

/// Subscribes to an entry of the configuration and returns the log.
async fn listen(fleet: &Fleet, entry: &str, versions: bool) -> EventLog {
    let events = EventLog::default();
    let log = Arc::clone(&events);
    let subscriber = Subscriber::<()>::from_fn(move |notification: &Notification<()>| {
        let mark = match notification {
            Notification::Added { .. } => '+',
            Notification::Updated { .. } => '~',
            Notification::Deleted { tombstone: false, .. } => '-',
            Notification::Deleted { tombstone: true, .. } => '†',
            Notification::Synced(_) => return,
        };
        let version = if versions { format!("{}/", notification.origin().resource.gvr.version) } else { String::new() };
        let name = notification.object().map(|object| object.name().to_owned()).unwrap_or_default();
        log.lock().push(format!("{mark}{version}{name}"));
    });
    let subscribe = Subscribe::to_configured(entry, ClusterSelector::All, subscriber);
    fleet.hub.registry().send(subscribe).await.unwrap();
    events
}

fn drain(events: &EventLog) -> BTreeSet<String> {
    events.lock().drain(..).collect()
}

fn with_mark(mark: &str, names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| format!("{mark}{name}")).collect()
}

async fn informer(fleet: &Fleet, resource: &str) -> Option<InformerStatus> {
    fleet.cluster("a").await.informers.into_iter().find(|informer| informer.resource == resource)
}

/// Waits until an informer's status meets a condition.
async fn shows(fleet: &Fleet, resource: &str, what: &str, condition: impl Fn(&InformerStatus) -> bool) {
    eventually(what, async || informer(fleet, resource).await.is_some_and(|it| condition(&it))).await;
}

/// Waits until an informer watches without an error.
async fn watches(fleet: &Fleet, resource: &str) {
    shows(fleet, resource, "watching", |it| it.state == Phase::Watching && it.synced && it.last_error.is_none()).await;
}

/// Waits until discovery reaches a state.
async fn discovery_reaches(fleet: &Fleet, state: DiscoveryState) {
    eventually("discovery state", async || {
        fleet.cluster("a").await.discovery.is_some_and(|it| it.state == state && it.resources.is_some())
    })
    .await;
}

async fn cached(fleet: &Fleet, gvr: &Gvr, kind: &str) -> BTreeSet<String> {
    let resource = ApiResource { gvr: gvr.clone(), kind: kind.into(), namespaced: true };
    let answer = fleet.hub.cache_of(resource).send(Query::list()).await.unwrap().unwrap();
    answer.items.iter().map(|object| object.name().to_owned()).collect()
}

/// Returns the number of lists, plain and streaming.
fn lists(cluster: &SimCluster) -> u64 {
    let stats = cluster.stats();
    stats.lists + stats.streaming
}

/// Defines widgets again and asserts that a new widget is notified.
async fn assert_recreated(fleet: &Fleet, events: &EventLog) {
    fleet.clusters["a"].with_world(|world| {
        world.register(def("v1", "Widget", true));
        world.create_widget("again").unwrap();
    });
    watches(fleet, WIDGETS).await;
    eventually("the new widget", async || events.lock().len() == 1).await;
    assert_eq!(drain(events), with_mark("+", &["again"]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_definition_is_watched_at_once_and_waiting_sends_no_requests() {
    let cluster = sim(41);
    let widget = def("v1", "Widget", true);
    cluster.unregister(&World::widgets());
    let fleet = Fleet::start(single(cluster), &["pods", WIDGETS], Vec::new()).await;
    let cluster = &fleet.clusters["a"];
    shows(&fleet, WIDGETS, "absent", |it| it.state == Phase::Absent && it.last_error.is_some()).await;
    discovery_reaches(&fleet, DiscoveryState::Watching).await;
    fleet.ready().await;
    // Discovery requests two documents, lists and watches the two resources that signal changes (CRDs and APIServices),
    // and then requests the documents again. After that, a quiet cluster gets no requests.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (quiet, begun) = (cluster.stats(), Instant::now());
    assert!(quiet.signals <= 4 && quiet.documents <= 6, "{quiet:?}");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(
        cluster.stats().requests,
        quiet.requests,
        "{} requests in {:?}",
        cluster.stats().requests,
        begun.elapsed()
    );
    cluster.with_world(|world| {
        world.register(widget);
        world.create_widget("first").unwrap();
    });
    let defined = Instant::now();
    watches(&fleet, WIDGETS).await;
    // A periodic discovery would start after 20 s at the earliest.
    assert!(defined.elapsed() < Duration::from_secs(10), "{:?}", defined.elapsed());
    eventually("the widget", async || cached(&fleet, &World::widgets(), "Widget").await.len() == 1).await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_definition_notifies_each_object_and_stops_requests() {
    for seen in [true, false] {
        let fleet = Fleet::start(single(sim(42)), &["pods", WIDGETS], Vec::new()).await;
        let (cluster, events) = (&fleet.clusters["a"], listen(&fleet, WIDGETS, false).await);
        watches(&fleet, WIDGETS).await;
        discovery_reaches(&fleet, DiscoveryState::Watching).await;
        eventually("five widgets", async || events.lock().len() == 5).await;
        let names = ["widget-0", "widget-1", "widget-2", "widget-3", "widget-4"];
        assert_eq!(drain(&events), with_mark("+", &names));
        if seen {
            cluster.with_world(|world| world.undefine(&World::widgets()));
        } else {
            cluster.unregister(&World::widgets());
        }
        shows(&fleet, WIDGETS, "absent and empty", |it| it.state == Phase::Absent && it.objects == 0).await;
        eventually("five deletions", async || events.lock().len() == 5).await;
        assert_eq!(drain(&events), with_mark(if seen { "-" } else { "†" }, &names));
        assert!(cached(&fleet, &World::widgets(), "Widget").await.is_empty(), "no stale objects");
        shows(&fleet, WIDGETS, "the reason", |it| {
            let error = it.last_error.as_deref().unwrap_or_default();
            error.contains("widgets.example.com") && error.contains("its definition was deleted")
        })
        .await;
        fleet.ready().await;
        // The last discovery that the change causes starts five seconds after it.
        tokio::time::sleep(Duration::from_secs(6)).await;
        let requests = cluster.stats();
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(cluster.stats().requests, requests.requests, "no requests for an absent resource");
        assert_recreated(&fleet, &events).await;
        fleet.converged().await;
        fleet.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relabelled_cluster_sends_no_requests_for_an_absent_resource() {
    let fleet = Fleet::start(single(sim(48)), &["pods", WIDGETS], Vec::new()).await;
    let (cluster, events) = (&fleet.clusters["a"], listen(&fleet, WIDGETS, false).await);
    watches(&fleet, WIDGETS).await;
    discovery_reaches(&fleet, DiscoveryState::Watching).await;
    eventually("five widgets", async || events.lock().len() == 5).await;
    cluster.with_world(|world| world.undefine(&World::widgets()));
    shows(&fleet, WIDGETS, "absent and empty", |it| it.state == Phase::Absent && it.objects == 0).await;
    eventually("five deletions", async || events.lock().len() == 10).await;
    let labels = [("tier".to_owned(), "dev".to_owned())].into();
    fleet.hub.registry().send(SetClusterLabels { name: "a".parse().unwrap(), labels }).await.unwrap().unwrap();
    // The last discovery that the change causes starts five seconds after it.
    tokio::time::sleep(Duration::from_secs(6)).await;
    let requests = lists(cluster);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(lists(cluster), requests);
    shows(&fleet, WIDGETS, "absent and empty", |it| it.state == Phase::Absent && it.objects == 0).await;
    drain(&events);
    assert_recreated(&fleet, &events).await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definition_deleted_during_a_list_leaves_no_objects() {
    for streaming in [Streaming::Refused, Streaming::Supported] {
        let world = WorldConfig { seed: 43, pods: 3, widgets: 12, small: true, ..WorldConfig::default() };
        let cluster =
            SimCluster::start(SimConfig { world, streaming, ..SimConfig::default() }, &Handle::current()).unwrap();
        // A list at any version is answered in one page; here it gets 410. The next list, at the most recent version,
        // is paged, and its second page stalls.
        let stall = |when| Rule::new(when, Fault::Stall(Duration::from_secs(60))).resource("widgets");
        let (script, faults) = match streaming {
            Streaming::Supported => (FaultScript::one(stall(When::Streaming).after(5)), 1),
            Streaming::Refused | Streaming::Ignored => {
                let expired = Rule::new(When::List, Fault::HttpGone).resource("widgets");
                (FaultScript::one(expired).with(stall(When::Continue)), 2)
            }
        };
        cluster.set_faults(script);
        let tuning = Tuning { reflector: ReflectorOptions { page_size: Some(4), ..quick().reflector }, ..quick() };
        let fleet = Fleet::start_with(single(cluster), &["pods", WIDGETS], Vec::new(), tuning).await;
        let (cluster, events) = (&fleet.clusters["a"], listen(&fleet, WIDGETS, false).await);
        discovery_reaches(&fleet, DiscoveryState::Watching).await;
        eventually("a stalled list", async || cluster.fault_log().len() == faults).await;
        cluster.unregister(&World::widgets());
        cluster.heal();
        shows(&fleet, WIDGETS, "absent and empty", |it| it.state == Phase::Absent && it.objects == 0).await;
        fleet.ready().await;
        let ends = || {
            let events = events.lock();
            let count = |mark: char| events.iter().filter(|events| events.starts_with(mark)).count();
            (count('+'), count('†') + count('-'))
        };
        eventually("one deletion per addition", async || ends().0 == ends().1).await;
        let requests = lists(cluster);
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(lists(cluster), requests);
        drain(&events);
        cluster.with_world(|world| {
            world.register(def("v1", "Widget", true));
            world.create_widget("again").unwrap();
        });
        watches(&fleet, WIDGETS).await;
        eventually("the new widget", async || !events.lock().is_empty()).await;
        assert_eq!(drain(&events), with_mark("+", &["again"]));
        fleet.end().await;
    }
}

/// Starts a cluster that serves three widgets as v1beta1 only.
fn beta(seed: u64) -> SimCluster {
    let cluster = sim(seed);
    cluster.unregister(&World::widgets());
    cluster.with_world(|world| {
        world.register(def("v1beta1", "Widget", true));
        for i in 0..3 {
            world.create(&widgets("v1beta1"), "shop", &format!("w-{i}"), json!({ "spec": { "i": i } })).unwrap();
        }
    });
    cluster
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entry_without_a_version_follows_the_preferred_version_without_deletions() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("events");
    let fleet = Fleet::start(single(beta(44)), &["pods", WIDGETS], vec![file_sink("log", &file)]).await;
    let (cluster, events) = (&fleet.clusters["a"], listen(&fleet, WIDGETS, true).await);
    watches(&fleet, WIDGETS).await;
    discovery_reaches(&fleet, DiscoveryState::Watching).await;
    eventually("three widgets", async || events.lock().len() == 3).await;
    assert_eq!(drain(&events), with_mark("+v1beta1/", &["w-0", "w-1", "w-2"]));
    let listed = lists(cluster);
    cluster.with_world(|world| world.serve("v1", &widgets("v1beta1")));
    eventually("three conversions", async || events.lock().len() == 3).await;
    assert_eq!(drain(&events), with_mark("~v1/", &["w-0", "w-1", "w-2"]));
    watches(&fleet, WIDGETS).await;
    assert_eq!(lists(cluster), listed + 1, "one list for the comparison");
    let names: BTreeSet<_> = ["w-0", "w-1", "w-2"].map(str::to_owned).into();
    assert_eq!(cached(&fleet, &widgets("v1"), "Widget").await, names);
    assert!(cached(&fleet, &widgets("v1beta1"), "Widget").await.is_empty());
    // Later changes are notified once, in the new version.
    cluster.with_world(|world| {
        world.patch(&widgets("v1"), &ObjectKey::new("shop", "w-0"), &json!({ "spec": { "i": 9 } })).unwrap();
        world.delete(&widgets("v1"), &ObjectKey::new("shop", "w-1")).unwrap();
        world.create(&widgets("v1"), "shop", "w-9", json!({})).unwrap();
    });
    eventually("three changes", async || events.lock().len() == 3).await;
    assert_eq!(drain(&events), ["~v1/w-0", "-v1/w-1", "+v1/w-9"].map(str::to_owned).into());
    // Removing the old version has no effect.
    let requests = lists(cluster);
    cluster.with_world(|world| world.unserve("v1beta1", &widgets("v1beta1")));
    tokio::time::sleep(Duration::from_secs(2)).await;
    watches(&fleet, WIDGETS).await;
    assert_eq!((lists(cluster), drain(&events)), (requests, BTreeSet::new()));
    eventually("all events at the sink", async || subjects(&file).len() >= 13).await;
    let subjects = subjects(&file);
    assert_eq!(subjects.iter().filter(|it| it.contains("updated example.com/v1/widgets")).count(), 3, "{subjects:?}");
    assert!(!subjects.iter().any(|it| it.contains("deleted example.com/v1beta1")), "{subjects:?}");
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn default_that_is_added_to_a_definition_reaches_cached_objects() {
    let state = tempfile::tempdir().unwrap();
    let clusters = single(sim(46));
    let mut start = config(&clusters, &["pods", WIDGETS]);
    start.hub.state_dir = Some(state.path().to_owned());
    let fleet = Fleet::start_config(clusters, start.clone(), quick()).await;
    let (cluster, events) = (&fleet.clusters["a"], listen(&fleet, WIDGETS, false).await);
    watches(&fleet, WIDGETS).await;
    discovery_reaches(&fleet, DiscoveryState::Watching).await;
    eventually("five widgets", async || events.lock().len() == 5).await;
    drain(&events);
    let sizes = async |fleet: &Fleet| {
        let resource = ApiResource { gvr: World::widgets(), kind: "Widget".into(), namespaced: true };
        let answer = fleet.hub.cache_of(resource).send(Query::list()).await.unwrap().unwrap();
        answer
            .items
            .iter()
            .map(|it| it.path(&"spec.size".parse().unwrap()).unwrap().pop().unwrap_or_default())
            .collect::<Vec<_>>()
    };
    let listed = lists(cluster);
    let size = |size: u64| move |body: &mut serde_json::Value| body["spec"]["size"] = json!(size);
    // Two changes in a row cause one list.
    cluster.with_world(|world| {
        world.add_default(&World::widgets(), size(1));
        world.add_default(&World::widgets(), size(2));
    });
    eventually("the default", async || sizes(&fleet).await == vec![json!(2); 5]).await;
    watches(&fleet, WIDGETS).await;
    assert_eq!(lists(cluster), listed + 1);
    let names = ["widget-0", "widget-1", "widget-2", "widget-3", "widget-4"];
    eventually("five updates", async || events.lock().len() == 5).await;
    assert_eq!(drain(&events), with_mark("~", &names));
    // New labels during the wait for the apiservers do not cancel the list.
    cluster.with_world(|world| world.add_default(&World::widgets(), size(4)));
    let mut polls = 0;
    eventually("the default, under new labels", async || {
        if polls % 50 == 0 && polls < 500 {
            let labels = [("tier".to_owned(), polls.to_string())].into();
            fleet.hub.registry().send(SetClusterLabels { name: "a".parse().unwrap(), labels }).await.unwrap().unwrap();
        }
        polls += 1;
        sizes(&fleet).await == vec![json!(4); 5]
    })
    .await;
    // A change while the hub is down is found at the next start, which would not list otherwise.
    let Fleet { clusters, hub, .. } = fleet;
    assert_eq!(hub.shutdown(Duration::from_secs(10)).await.actors_left, 0, "actors leaked");
    clusters["a"].with_world(|world| world.add_default(&World::widgets(), size(3)));
    let fleet = Fleet::start_config(clusters, start, quick()).await;
    eventually("the new default", async || sizes(&fleet).await == vec![json!(3); 5]).await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn named_version_is_kept_and_its_removal_reports_the_served_versions() {
    let entry = "widgets.v1beta1.example.com";
    let fleet = Fleet::start(single(beta(45)), &["pods", entry], Vec::new()).await;
    let (cluster, events) = (&fleet.clusters["a"], listen(&fleet, entry, true).await);
    watches(&fleet, WIDGETS).await;
    discovery_reaches(&fleet, DiscoveryState::Watching).await;
    eventually("three widgets", async || events.lock().len() == 3).await;
    drain(&events);
    cluster.with_world(|world| world.serve("v1", &widgets("v1beta1")));
    tokio::time::sleep(Duration::from_secs(2)).await;
    watches(&fleet, WIDGETS).await;
    assert!(events.lock().is_empty(), "{events:?}");
    cluster.with_world(|world| world.unserve("v1beta1", &widgets("v1beta1")));
    shows(&fleet, WIDGETS, "absent, with what is served", |it| {
        it.state == Phase::Absent
            && it.last_error.as_deref().is_some_and(|error| error.contains("in v1beta1; it serves v1"))
    })
    .await;
    let status = informer(&fleet, WIDGETS).await.unwrap();
    assert_eq!((status.objects, events.lock().len()), (3, 0), "the cache keeps the last known objects");
    cluster.with_world(|world| world.serve("v1beta1", &widgets("v1beta1")));
    watches(&fleet, WIDGETS).await;
    assert!(events.lock().is_empty(), "{events:?}");
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resource_redefined_with_another_kind_or_scope_has_the_new_objects() {
    for (kind, namespaced) in [("Gadget", true), ("Widget", false), ("Gadget", false)] {
        let clusters = single(sim(46));
        let mut start = config(&clusters, &["pods"]);
        let mut widgets_in_shop = resource_config(WIDGETS);
        widgets_in_shop.namespaces = vec!["shop".to_owned()];
        start.resources.push(widgets_in_shop);
        let fleet = Fleet::start_config(clusters, start, quick()).await;
        let (cluster, events) = (&fleet.clusters["a"], listen(&fleet, WIDGETS, false).await);
        watches(&fleet, WIDGETS).await;
        discovery_reaches(&fleet, DiscoveryState::Watching).await;
        eventually("five widgets", async || events.lock().len() == 5).await;
        drain(&events);
        let namespace = if namespaced { "shop" } else { "" };
        cluster.with_world(|world| {
            world.undefine(&World::widgets());
            world.register(def("v1", kind, namespaced));
            world.create(&World::widgets(), namespace, "other", json!({ "spec": {} })).unwrap();
        });
        eventually("five deletions and one addition", async || events.lock().len() == 6).await;
        let all = drain(&events);
        assert!(all.contains("+other") && all.iter().filter(|it| !it.starts_with('+')).count() == 5, "{all:?}");
        watches(&fleet, WIDGETS).await;
        let expected: BTreeSet<_> = ["other".to_owned()].into();
        eventually("only the new object", async || cached(&fleet, &World::widgets(), kind).await == expected).await;
        assert_eq!(informer(&fleet, WIDGETS).await.unwrap().skipped, 0, "{kind} {namespaced}");
        fleet.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_with_forbidden_definitions_is_polled_and_keeps_objects() {
    let cluster = sim(47);
    cluster.forbid(&World::definitions(), true);
    let fleet = Fleet::start(single(cluster), &["pods", WIDGETS], Vec::new()).await;
    let (cluster, events) = (&fleet.clusters["a"], listen(&fleet, WIDGETS, false).await);
    watches(&fleet, WIDGETS).await;
    discovery_reaches(&fleet, DiscoveryState::Polling).await;
    let error = fleet.cluster("a").await.discovery.unwrap().last_error.unwrap();
    assert!(error.contains("403") && error.contains("customresourcedefinitions"), "{error}");
    eventually("five widgets", async || events.lock().len() == 5).await;
    drain(&events);
    cluster.unregister(&World::widgets());
    shows(&fleet, WIDGETS, "absent", |it| {
        it.state == Phase::Absent && it.last_error.as_deref().is_some_and(|error| error.contains("cannot be confirmed"))
    })
    .await;
    assert_eq!((informer(&fleet, WIDGETS).await.unwrap().objects, events.lock().len()), (5, 0));
    fleet.ready().await;
    // When the resource is back, a list finds the changes.
    cluster.with_world(|world| {
        world.register(def("v1", "Widget", true));
        world.create_widget("again").unwrap();
    });
    watches(&fleet, WIDGETS).await;
    eventually("all changes", async || events.lock().len() == 6).await;
    assert_eq!(cached(&fleet, &World::widgets(), "Widget").await.len(), 1);
    fleet.end().await;
}

// === patterns ===

/// Returns the event types and subjects that a sink has written, without cluster names.
fn subjects(path: &Path) -> BTreeSet<String> {
    file_events(path)
        .into_iter()
        .map(|event| {
            let kind = event["type"].as_str().unwrap().trim_start_matches("io.informer-hub.resource.");
            format!("{} {}", kind.trim_end_matches(".v1"), event["subject"].as_str().unwrap())
        })
        .collect()
}

fn custom_resource(group: &str, plural: &str) -> ResourceDef {
    ResourceDef::new(&Gvr::new(group, "v1", plural), &format!("K{plural}"), true, true).short_name(&plural[..2])
}

/// Starts a cluster with custom resources of three groups besides its widgets, one object each.
fn cluster_with_custom_resources(seed: u64) -> SimCluster {
    let cluster = sim(seed);
    cluster.with_world(|world| {
        for (group, plural) in [
            ("example.com", "gears"),
            ("example.com", "levers"),
            ("a.example.com", "bolts"),
            ("a.example.com", "nuts"),
            ("other.com", "cogs"),
        ] {
            world.register(custom_resource(group, plural));
            world.create(&Gvr::new(group, "v1", plural), "shop", &format!("one-{plural}"), json!({})).unwrap();
        }
    });
    cluster
}

fn pattern(entry: &str, text: &str, exclude: &[&str], limit: usize) -> ResourceConfig {
    let toml = format!(
        "[clusters.a]\nserver = \"http://127.0.0.1:1\"\n[resources.\"{entry}\"]\nresource = \"{text}\"\nexclude = {exclude:?}\nlimit = {limit}\n"
    );
    Config::from_toml(&toml).unwrap_or_else(|mistakes| panic!("{mistakes}")).resources.remove(0)
}

async fn shares(fleet: &Fleet) -> Vec<PatternStatus> {
    fleet.cluster("a").await.patterns
}

/// Waits until patterns watch exactly these resources.
async fn matches(fleet: &Fleet, expected: &[&str]) {
    let all = expected.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    eventually(&format!("{expected:?} matched"), async || {
        let shares = shares(fleet).await;
        shares.iter().flat_map(|share| share.watched.clone()).collect::<Vec<_>>() == all
    })
    .await;
    for name in expected {
        watches(fleet, name).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pattern_watches_all_matches_and_its_sink_gets_their_events() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("events");
    let clusters = single(cluster_with_custom_resources(48));
    let mut start = config(&clusters, &["pods", "levers.example.com"]);
    start.resources.push(pattern("ours", "*.example.com", &["wd"], 50));
    let mut sink = file_sink("ours", &file);
    sink.select.resources = vec!["ours".to_owned()];
    start.sinks = vec![sink];
    let fleet = Fleet::start_config(clusters, start, quick()).await;
    let cluster = &fleet.clusters["a"];
    // Widgets are excluded by their short name. Levers have their own entry.
    matches(&fleet, &["gears.example.com"]).await;
    watches(&fleet, "levers.example.com").await;
    assert_eq!(informer(&fleet, WIDGETS).await.map(|it| it.resource), None);
    eventually("the gear", async || subjects(&file).len() == 1).await;
    assert_eq!(subjects(&file), ["added example.com/v1/gears/shop/one-gears".to_owned()].into());
    // One resource is added and one is removed.
    cluster.with_world(|world| {
        world.register(custom_resource("example.com", "springs"));
        world.create(&Gvr::new("example.com", "v1", "springs"), "shop", "s", json!({})).unwrap();
    });
    matches(&fleet, &["gears.example.com", "springs.example.com"]).await;
    cluster.with_world(|world| world.undefine(&Gvr::new("example.com", "v1", "gears")));
    matches(&fleet, &["springs.example.com"]).await;
    eventually("the deletion of the gear", async || {
        subjects(&file).contains("deleted example.com/v1/gears/shop/one-gears")
    })
    .await;
    eventually("the informer stopped", async || informer(&fleet, "gears.example.com").await.is_none()).await;
    assert_eq!(subjects(&file).len(), 3, "{:?}", subjects(&file));
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pattern_at_its_limit_watches_the_first_by_name_and_reports_the_rest() {
    let clusters = single(cluster_with_custom_resources(49));
    let mut start = config(&clusters, &["pods"]);
    start.resources.push(pattern("ours", "*.example.com", &[], 2));
    start.resources.push(pattern("below", "*.*.example.com", &[], 1));
    let fleet = Fleet::start_config(clusters, start, quick()).await;
    matches(&fleet, &["bolts.a.example.com", "gears.example.com", "levers.example.com"]).await;
    let left_out: Vec<_> = shares(&fleet).await.into_iter().flat_map(|share| share.left_out).collect();
    assert_eq!(left_out, ["nuts.a.example.com", "widgets.example.com"]);
    // When the second resource is removed, the next one is watched.
    fleet.clusters["a"].with_world(|world| world.undefine(&Gvr::new("example.com", "v1", "gears")));
    matches(&fleet, &["bolts.a.example.com", "levers.example.com", "widgets.example.com"]).await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_exclude_list_relists_only_the_affected_resources() {
    let clusters = single(cluster_with_custom_resources(50));
    let mut start = config(&clusters, &["pods"]);
    start.resources.push(pattern("ours", "*.example.com", &["gears"], 50));
    let fleet = Fleet::start_config(clusters, start.clone(), quick()).await;
    let cluster = &fleet.clusters["a"];
    matches(&fleet, &["levers.example.com", WIDGETS]).await;
    let events = listen(&fleet, "ours", false).await;
    eventually("the initial objects", async || events.lock().len() == 6).await;
    drain(&events);
    let listed = lists(cluster);
    let mut next = start.clone();
    next.resources[1] = pattern("ours", "*.example.com", &["widgets"], 50);
    let changes = fleet.hub.reloader().reload(next.clone()).await.unwrap();
    assert_eq!(changes.resources.changed, ["ours".to_owned()]);
    matches(&fleet, &["gears.example.com", "levers.example.com"]).await;
    eventually("the widgets informer stopped", async || informer(&fleet, WIDGETS).await.is_none()).await;
    assert_eq!(lists(cluster), listed + 1, "only the gears are listed");
    // Objects of an excluded resource are not notified as deleted.
    eventually("the gear", async || events.lock().len() == 1).await;
    assert_eq!(drain(&events), with_mark("+", &["one-gears"]));
    // A separate entry with equal options takes the resource over without a list.
    let mut levers = next.resources[1].clone();
    levers.name = "levers.example.com".to_owned();
    levers.resource = "levers.example.com".parse().unwrap();
    next.resources.push(levers);
    fleet.hub.reloader().reload(next.clone()).await.unwrap();
    matches(&fleet, &["gears.example.com"]).await;
    watches(&fleet, "levers.example.com").await;
    assert_eq!(lists(cluster), listed + 1, "taken over without a list");
    next.resources.pop();
    fleet.hub.reloader().reload(next).await.unwrap();
    matches(&fleet, &["gears.example.com", "levers.example.com"]).await;
    assert_eq!(lists(cluster), listed + 1, "returned without a list");
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn short_name_shares_the_informer_of_its_resource() {
    let clusters = single(sim(51));
    let mut start = config(&clusters, &["pods", "wd"]);
    start.resources[0] = resource_config("po");
    start.resources[0].name = "pods".to_owned();
    let fleet = Fleet::start_config(clusters, start, quick()).await;
    fleet.converged().await;
    watches(&fleet, WIDGETS).await;
    let listed = lists(&fleet.clusters["a"]);
    let events = EventLog::default();
    let log = Arc::clone(&events);
    let subscriber = Subscriber::<Pod>::from_fn(move |notification: &Notification<Pod>| {
        log.lock().extend(notification.object().map(|object| object.name().to_owned()));
    });
    fleet.hub.registry().send(Subscribe::to::<Pod>(ClusterSelector::All, subscriber)).await.unwrap();
    eventually("all pods", async || events.lock().len() == 5).await;
    let subscriber = Subscriber::from_fn({
        let log = EventLog::clone(&events);
        move |notification: &Notification<informer_hub_types::Dynamic>| {
            log.lock().extend(notification.object().map(|object| object.name().to_owned()));
        }
    });
    let subscribe = Subscribe::to_resource("widgets.example.com", ClusterSelector::All, subscriber).unwrap();
    fleet.hub.registry().send(subscribe).await.unwrap();
    eventually("widgets too", async || events.lock().len() == 10).await;
    assert_eq!(lists(&fleet.clusters["a"]), listed, "both share the running informers");
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn version_change_during_downtime_sends_no_deletions() {
    let (folder, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = folder.path().join("events");
    let clusters = single(beta(52));
    let mut start = config(&clusters, &["pods", WIDGETS]);
    start.hub.state_dir = Some(state.path().to_owned());
    start.hub.checkpoint = Duration::from_millis(200);
    start.sinks = vec![file_sink("log", &file)];
    let fleet = Fleet::start_config(clusters, start.clone(), quick()).await;
    watches(&fleet, WIDGETS).await;
    eventually("eight events", async || subjects(&file).len() == 8).await;
    let Fleet { clusters, hub, .. } = fleet;
    hub.shutdown(Duration::from_secs(10)).await;
    clusters["a"].with_world(|world| {
        world.serve("v1", &widgets("v1beta1"));
        world.unserve("v1beta1", &widgets("v1beta1"));
        world.delete(&widgets("v1"), &ObjectKey::new("shop", "w-1")).unwrap();
    });
    let fleet = Fleet::start_config(clusters, start, quick()).await;
    watches(&fleet, WIDGETS).await;
    eventually("the changes", async || subjects(&file).len() == 11).await;
    let events: BTreeSet<_> = subjects(&file).into_iter().filter(|it| it.contains("example.com/v1/")).collect();
    let expected = [
        "updated example.com/v1/widgets/shop/w-0",
        "deleted example.com/v1/widgets/shop/w-1",
        "updated example.com/v1/widgets/shop/w-2",
    ];
    assert_eq!(events, expected.map(str::to_owned).into());
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definition_deleted_during_downtime_deletes_its_objects_once() {
    for by_pattern in [false, true] {
        let (folder, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let file = folder.path().join("events");
        let clusters = single(cluster_with_custom_resources(53));
        let mut start = config(&clusters, if by_pattern { &["pods"] } else { &["pods", "gears.example.com"] });
        if by_pattern {
            start.resources.push(pattern("ours", "*.example.com", &["wd", "levers"], 50));
        }
        start.hub.state_dir = Some(state.path().to_owned());
        start.hub.checkpoint = Duration::from_millis(200);
        start.sinks = vec![file_sink("log", &file)];
        let gears = Gvr::new("example.com", "v1", "gears");
        let added = "added example.com/v1/gears/shop/one-gears".to_owned();
        let deleted = "deleted example.com/v1/gears/shop/one-gears".to_owned();

        let fleet = Fleet::start_config(clusters, start.clone(), quick()).await;
        watches(&fleet, "gears.example.com").await;
        discovery_reaches(&fleet, DiscoveryState::Watching).await;
        eventually("the gear", async || subjects(&file).contains(&added)).await;
        let Fleet { mut clusters, hub, .. } = fleet;
        hub.shutdown(Duration::from_secs(10)).await;
        clusters["a"].unregister(&gears);

        for _ in 0..2 {
            let fleet = Fleet::start_config(clusters, start.clone(), quick()).await;
            eventually("the deletion", async || subjects(&file).contains(&deleted)).await;
            eventually("an empty cache", async || cached(&fleet, &gears, "Kgears").await.is_empty()).await;
            if by_pattern {
                eventually("the informer stopped", async || informer(&fleet, "gears.example.com").await.is_none())
                    .await;
            }
            fleet.ready().await;
            let report = fleet.hub.shutdown(Duration::from_secs(10)).await;
            assert_eq!(report.actors_left, 0, "actors leaked");
            clusters = fleet.clusters;
        }
        assert_eq!(file_events(&file).iter().filter(|it| it["type"].as_str().unwrap().contains("deleted")).count(), 1);
    }
}
