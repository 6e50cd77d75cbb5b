//! Factories and shared informers, as a controller author uses them; most tests are client-go's of the same behaviour
//! (`shared_informer_test.go`), over several clusters.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use informer_hub::actors::WatchErrorHandler;
use informer_hub::actors::messages::{AddCluster, RemoveCluster};
use informer_hub::cache::{IndexFn, Indexers};
use informer_hub::informers::{
    FilteringResourceEventHandler, HandlerOptions, InformerError, ResourceEventHandlerDetailedFuncs,
    ResourceEventHandlerFuncs, SharedInformer, SharedInformerFactory, WaitError,
};
use informer_hub_codec::Transform;
use informer_hub_sim::{Churn, Fault, FaultScript, Rule, SimCluster, SimConfig, Streaming, When, World, WorldConfig};
use informer_hub_source::{Access, KubeConnector};
use informer_hub_types::{
    ClusterName, ClusterSelector, LabelSelector, Object, ObjectKey, ResourceVersion, object_memory,
};
use k8s_openapi::api::core::v1::{Node, Pod};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::runtime::Handle;

use crate::fleet::{Fleet, PATIENCE, config, eventually, pods, quick, small};

/// What a handler was told: `+a` (`!a` initial), `~a`, `=a` (the same version again), `-a` (`†a` a tombstone).
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn note<K>(&self, sign: char, object: &Object<K>) {
        self.0.lock().push(format!("{sign}{}/{}", object.cluster(), object.key()));
    }

    fn handler(&self) -> ResourceEventHandlerDetailedFuncs<Pod> {
        self.handler_of()
    }

    fn handler_of<K: 'static>(&self) -> ResourceEventHandlerDetailedFuncs<K> {
        let (add, update, delete) = (self.clone(), self.clone(), self.clone());
        ResourceEventHandlerDetailedFuncs::new()
            .on_add(move |pod, initial| add.note(if initial { '!' } else { '+' }, pod))
            .on_update(move |old, new| {
                let same = old.resource_version() == new.resource_version();
                update.note(if same { '=' } else { '~' }, new);
            })
            .on_delete(move |pod, tombstone| delete.note(if tombstone { '†' } else { '-' }, pod))
    }

    fn count(&self, sign: char) -> usize {
        self.0.lock().iter().filter(|line| line.starts_with(sign)).count()
    }

    fn len(&self) -> usize {
        self.0.lock().len()
    }
}

fn sim(seed: u64, pods: usize) -> SimCluster {
    SimCluster::start(small(seed, pods), &Handle::current()).unwrap()
}

/// A hub that watches nothing itself, over one cluster that streams lists or does not.
async fn streaming_fleet(streaming: Streaming, pods: usize) -> Fleet {
    let cluster = SimCluster::start(SimConfig { streaming, ..small(1, pods) }, &Handle::current()).unwrap();
    Fleet::start(BTreeMap::from([("c0".to_owned(), cluster)]), &[], Vec::new()).await
}

/// A hub that watches nothing itself, over clusters of some pods each.
async fn fleet<const N: usize>(pods: [usize; N]) -> Fleet {
    let clusters: BTreeMap<_, _> = (0..).zip(pods).map(|(i, pods)| (format!("c{i}"), sim(i, pods))).collect();
    let fleet = Fleet::start(clusters, &[], Vec::new()).await;
    assert!(fleet.cluster("c0").await.informers.is_empty());
    fleet
}

async fn synced(factory: &SharedInformerFactory) {
    factory.wait_for_cache_sync(PATIENCE).await.into_error().unwrap();
}

/// A started factory's pods, and a log of them.
async fn watching(fleet: &Fleet) -> (SharedInformerFactory, SharedInformer<Pod>, Log) {
    let factory = SharedInformerFactory::new(fleet.hub.system());
    let informer = factory.informer::<Pod>().unwrap();
    let log = Log::default();
    informer.add_event_handler(log.handler()).await.unwrap();
    assert_eq!(factory.start().await.unwrap(), 1);
    synced(&factory).await;
    (factory, informer, log)
}

fn first_key(cluster: &SimCluster) -> ObjectKey {
    cluster.with_world(|world| world.objects(&World::pods()).next().unwrap().key().clone())
}

fn patch(cluster: &SimCluster, key: &ObjectKey, body: &Value) {
    cluster.with_world(|world| world.patch(&World::pods(), key, body)).unwrap();
}

fn touch(cluster: &SimCluster) {
    let version = cluster.with_world(|world| world.version());
    patch(cluster, &first_key(cluster), &json!({ "status": { "touched": version } }));
}

fn name(cluster: &str) -> ClusterName {
    ClusterName::new(cluster).unwrap()
}

/// Pod keys of an informer's lister, by cluster.
fn listed(informer: &SharedInformer<Pod>) -> Vec<String> {
    let all = informer.lister().list(&LabelSelector::everything());
    all.iter().map(|pod| format!("{}/{}", pod.cluster(), pod.key())).collect()
}

// === the factory ===

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_factory_has_one_informer_per_type_and_form_and_starts_each_once() {
    let fleet = fleet([3, 4]).await;
    let factory = SharedInformerFactory::new(fleet.hub.system());
    let typed = factory.informer::<Pod>().unwrap();
    let dynamic = factory.dynamic_informer(&pods()).unwrap();
    assert!(!typed.has_started() && !typed.has_synced() && !typed.is_stopped());
    assert!(!typed.has_synced_in(&name("c1")));
    assert_eq!(factory.start().await.unwrap(), 1, "typed and dynamic are one informer");
    assert_eq!(factory.start().await.unwrap(), 0);
    factory.informer::<Node>().unwrap();
    assert_eq!(factory.start().await.unwrap(), 1, "one that was made later is started then");
    synced(&factory).await;
    assert!(dynamic.has_started() && dynamic.has_synced() && dynamic.is_settled());
    assert!(dynamic.has_synced_in(&name("c1")) && !dynamic.has_synced_in(&name("nowhere")));
    assert_eq!((listed(&typed).len(), dynamic.indexer().list().len()), (7, 7));
    for cluster in fleet.clusters.values() {
        assert_eq!((cluster.stats().watches, cluster.stats().lists), (2, 0), "one streaming list per type");
    }
    factory.shutdown().await;
    assert!(typed.is_stopped() && dynamic.is_stopped());
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn namespace_list_options_and_clusters_narrow_what_is_asked_for() {
    let fleet = fleet([60, 60]).await;
    let key = first_key(&fleet.clusters["c1"]);
    patch(&fleet.clusters["c1"], &key, &json!({ "metadata": { "labels": { "chosen": "yes" } } }));
    let factory = SharedInformerFactory::new(fleet.hub.system())
        .with_clusters(ClusterSelector::Names(vec![name("c1")]))
        .with_namespace(key.namespace().unwrap())
        .with_tweak_list_options(|options| {
            options.label_selector = Some("chosen=yes".parse().unwrap());
            options.field_selector = Some("metadata.name!=nothing".to_owned());
        });
    let informer = factory.informer::<Pod>().unwrap();
    factory.start().await.unwrap();
    synced(&factory).await;
    assert_eq!(listed(&informer), [format!("c1/{key}")]);
    // Others who watch more do not widen what it sees.
    let all = SharedInformerFactory::new(fleet.hub.system());
    let everything = all.informer::<Pod>().unwrap();
    all.start().await.unwrap();
    synced(&all).await;
    assert_eq!(listed(&everything).len(), 120);
    assert_eq!(listed(&informer), [format!("c1/{key}")]);
    let other =
        listed(&everything).into_iter().find(|pod| pod.starts_with("c1/") && !pod.ends_with(key.as_str())).unwrap();
    let other: ObjectKey = other["c1/".len()..].parse().unwrap();
    assert!(
        informer.indexer().get(&name("c1"), &other).is_none()
            && everything.indexer().get(&name("c1"), &other).is_some()
    );
    all.shutdown().await;
    assert!(fleet.cluster("c0").await.informers.is_empty());
    let scope = &fleet.cluster("c1").await.informers[0].scope;
    assert!(scope.contains("chosen=yes") && scope.contains("metadata.name!=nothing"), "{scope}");
    factory.shutdown().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_names_each_type_that_has_not_synced_and_why() {
    let fleet = fleet([3]).await;
    fleet.clusters["c0"].forbid(&World::nodes(), true);
    let factory = SharedInformerFactory::new(fleet.hub.system());
    let (pod_informer, node_informer) = (factory.informer::<Pod>().unwrap(), factory.informer::<Node>().unwrap());
    assert!(factory.wait_for_cache_sync(PATIENCE).await.types.is_empty(), "only what was started is waited for");
    let error = pod_informer.wait_for_sync(PATIENCE).await.unwrap_err().to_string();
    assert!(error.contains("has not been started"), "{error}");
    factory.start().await.unwrap();
    eventually("forbidden", async || node_informer.is_settled() && pod_informer.has_synced()).await;
    let result = factory.wait_for_cache_sync(Duration::from_millis(20)).await;
    assert!(result.types[&World::pods()].is_ok());
    let error = result.into_error().unwrap_err().to_string();
    assert!(error.contains("c0/nodes is forbidden") && !error.contains("pods"), "{error}");
    assert!(!node_informer.has_synced());
    fleet.clusters["c0"].forbid(&World::nodes(), false);
    synced(&factory).await;
    factory.shutdown().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_waits_for_running_handlers_and_nothing_starts_afterwards() {
    let fleet = fleet([5]).await;
    let factory = SharedInformerFactory::new(fleet.hub.system());
    let informer = factory.informer::<Pod>().unwrap();
    let (entered, left) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (open, gate) = std::sync::mpsc::channel::<()>();
    let marks = (Arc::clone(&entered), Arc::clone(&left));
    let handler = ResourceEventHandlerFuncs::new().on_add(move |_| {
        marks.0.store(true, SeqCst);
        let _ = gate.recv();
        marks.1.store(true, SeqCst);
    });
    informer.add_event_handler(handler).await.unwrap();
    factory.start().await.unwrap();
    eventually("the handler", async || entered.load(SeqCst)).await;
    let ended = tokio::time::timeout(Duration::from_millis(100), factory.shutdown()).await;
    assert!(ended.is_err(), "a handler is still running");
    drop(open);
    factory.shutdown().await;
    assert!(left.load(SeqCst));
    eventually("the end of the watch", async || fleet.cluster("c0").await.informers.is_empty()).await;
    assert!(matches!(factory.start().await, Err(InformerError::Stopped)));
    assert!(matches!(factory.informer::<Node>(), Err(InformerError::Stopped)));
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn informers_without_a_transform_are_shared_and_live_as_long_as_anyone_uses_them() {
    let fleet = fleet([5]).await;
    let (first, informer, _) = watching(&fleet).await;
    let (second, other, _) = watching(&fleet).await;
    assert_eq!(fleet.clusters["c0"].stats().watches, 1);
    first.shutdown().await;
    assert!(informer.is_stopped() && !other.is_stopped());
    touch(&fleet.clusters["c0"]);
    assert_eq!(fleet.cluster("c0").await.informers.len(), 1);
    second.shutdown().await;
    assert!(fleet.cluster("c0").await.informers.is_empty());
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metadata_informers_ask_for_metadata_alone_and_keep_it_apart() {
    // Pods of the usual 9 KB.
    let world = WorldConfig { pods: 40, small: false, ..WorldConfig::default() };
    let cluster = SimCluster::start(SimConfig { world, ..SimConfig::default() }, &Handle::current()).unwrap();
    let fleet = Fleet::start(BTreeMap::from([("c0".to_owned(), cluster)]), &[], Vec::new()).await;
    let factory = SharedInformerFactory::new(fleet.hub.system());
    let (whole, metadata) = (factory.informer::<Pod>().unwrap(), factory.metadata_informer::<Pod>().unwrap());
    assert_eq!(factory.start().await.unwrap(), 2);
    synced(&factory).await;
    let objects = metadata.lister().list(&LabelSelector::everything());
    assert_eq!(objects.len(), 40);
    for object in &objects {
        let decoded = object.decode().unwrap();
        assert_eq!(decoded.metadata.name.as_deref(), Some(object.name()));
        let json: Value = object.typed().unwrap();
        assert_eq!((&json["kind"], json.get("spec")), (&json!("PartialObjectMetadata"), None));
        // The whole one is whole still.
        let namespace = object.namespace().unwrap();
        assert!(whole.lister().get(&name("c0"), namespace, object.name()).unwrap().decode().unwrap().spec.is_some());
    }
    let informers = fleet.cluster("c0").await.informers;
    // Bodies alone: what an object takes besides its body is the same for both.
    let beside = object_memory(40, 0);
    let bytes = |scope: &str| informers.iter().find(|informer| informer.scope == scope).unwrap().bytes - beside;
    assert!(bytes("* (metadata)") * 5 < bytes("*"), "{} of {}", bytes("* (metadata)"), bytes("*"));
    let key = first_key(&fleet.clusters["c0"]);
    patch(&fleet.clusters["c0"], &key, &json!({ "metadata": { "labels": { "new": "yes" } } }));
    let labelled = "new=yes".parse().unwrap();
    eventually("the change", async || metadata.lister().list(&labelled).len() == 1).await;
    factory.shutdown().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_informer_that_is_configured_too_is_as_it_is_configured_whoever_comes_first() {
    for _ in 0..10 {
        let clusters = BTreeMap::from([("c0".to_owned(), sim(1, 3))]);
        let fleet = Fleet::start(clusters, &["pods"], Vec::new()).await;
        let factory = SharedInformerFactory::new(fleet.hub.system());
        let informer = factory.informer::<Pod>().unwrap();
        factory.start().await.unwrap();
        synced(&factory).await;
        fleet.synced().await;
        assert_eq!(fleet.clusters["c0"].stats().watches, 1);
        assert!(!informer.indexer().list_index_func_values("by-node").unwrap().is_empty());
        factory.shutdown().await;
        assert_eq!(fleet.cluster("c0").await.informers.len(), 1);
        fleet.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_starts_it_second_waits_for_the_first_and_nothing_passes_for_synced() {
    let fleet = fleet([3]).await;
    fleet.clusters["c0"].forbid(&World::pods(), true);
    for _ in 0..10 {
        let factory = SharedInformerFactory::new(fleet.hub.system());
        let informer = factory.informer::<Pod>().unwrap();
        let (first, second) = tokio::join!(factory.start(), factory.start());
        assert_eq!(first.unwrap() + second.unwrap(), 1);
        assert!(informer.has_started());
        let waited = factory.wait_for_cache_sync(Duration::from_millis(5)).await;
        assert!(waited.into_error().is_err());
        factory.shutdown().await;
        assert!(!informer.has_synced() && !informer.is_settled(), "there is nothing to be synced any more");
    }
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn factories_that_come_and_go_by_the_hundred_leave_nothing_behind() {
    let fleet = fleet([1, 1]).await;
    let before = fleet.hub.system().env().caches.resources().len();
    let one = |number: usize| {
        let factory = SharedInformerFactory::new(fleet.hub.system());
        let transform = Transform::json(|_| Ok::<_, String>(()));
        let factory = if number.is_multiple_of(2) { factory } else { factory.with_transform(transform) };
        async move {
            let informer = factory.informer::<Pod>().unwrap();
            informer.add_event_handler(Log::default().handler()).await.unwrap();
            factory.start().await.unwrap();
            informer
                .add_indexers(Indexers::new().with(format!("index-{number}"), IndexFn::new(|_| Ok(vec![]))))
                .await
                .unwrap();
            factory.shutdown().await;
        }
    };
    futures::future::join_all((0..80).map(one)).await;
    for cluster in ["c0", "c1"] {
        eventually("the end of all", async || fleet.cluster(cluster).await.informers.is_empty()).await;
    }
    let after = fleet.hub.system().env().caches.resources().len();
    assert!(after <= before + 1, "{before} caches before, {after} after");
    let (factory, informer, _) = watching(&fleet).await;
    assert!(informer.indexer().snapshot().indexers().is_empty(), "indices ended with who added them");
    factory.shutdown().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_factory_has_whole_objects_where_the_configuration_keeps_only_parts() {
    let clusters = BTreeMap::from([("c0".to_owned(), sim(1, 5))]);
    let mut config = config(&clusters, &["pods"]);
    config.resources[0].metadata_only = true;
    config.resources[0].indexes.clear();
    let fleet = Fleet::start_config(clusters, config, quick()).await;
    fleet.synced().await;
    let (factory, informer, log) = watching(&fleet).await;
    eventually("all of it", async || log.len() == 5).await;
    for pod in informer.lister().list(&LabelSelector::everything()) {
        assert!(pod.decode().unwrap().spec.is_some());
    }
    let configured = fleet.hub.cache::<Pod>().send(informer_hub::Query::list()).await.unwrap().unwrap();
    let is_part = |pod: &Object<Pod>| pod.typed::<Value>().unwrap().get("spec").is_none();
    assert!(configured.items.iter().all(is_part), "it is as it is configured");
    factory.shutdown().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_without_end_ends_with_the_sync() {
    let fleet = fleet([1]).await;
    let (factory, informer, _) = watching(&fleet).await;
    informer.wait_for_sync(Duration::MAX).await.unwrap();
    fleet.hub.wait_for_cache_sync(Duration::MAX).await.unwrap();
    factory.shutdown().await;
    fleet.end().await;
}

// === handlers ===

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_that_come_and_go_by_the_hundred_at_once_are_not_called_afterwards() {
    let fleet = fleet([3, 3]).await;
    let (factory, informer, witness) = watching(&fleet).await;
    let logs: Vec<_> = (0..150).map(|_| Log::default()).collect();
    let come_and_go = |log: &Log| {
        let (informer, handler) = (informer.clone(), log.handler());
        async move {
            let registration = informer.add_event_handler(handler).await.unwrap();
            informer.shut_down_event_handler(&registration).await.unwrap();
        }
    };
    futures::future::join_all(logs.iter().map(come_and_go)).await;
    let told: Vec<_> = logs.iter().map(Log::len).collect();
    for cluster in fleet.clusters.values() {
        touch(cluster);
    }
    eventually("the witness", async || witness.count('~') == 2).await;
    assert_eq!(logs.iter().map(Log::len).collect::<Vec<_>>(), told);
    let listeners = fleet.cluster("c0").await.informers[0].listeners.len();
    assert_eq!(listeners, 1, "only the witness is left");
    factory.shutdown().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_is_removed_in_the_middle_of_a_backlog_is_not_called_again() {
    let fleet = fleet([200, 200]).await;
    let (factory, informer, _) = watching(&fleet).await;
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let (open, gate) = std::sync::mpsc::channel::<()>();
    let handler = ResourceEventHandlerFuncs::new().on_add(move |_| {
        counted.fetch_add(1, SeqCst);
        let _ = gate.recv();
    });
    let registration = informer.add_event_handler(handler).await.unwrap();
    eventually("the first call", async || calls.load(SeqCst) == 1).await;
    informer.remove_event_handler(&registration);
    drop(open);
    informer.stop().await;
    assert_eq!(calls.load(SeqCst), 1);
    factory.shutdown().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forty_handlers_that_never_return_hold_up_neither_another_one_nor_the_hub_nor_the_end_of_the_watch() {
    let fleet = fleet([2]).await;
    let (factory, informer, log) = watching(&fleet).await;
    let mut gates = Vec::new();
    for _ in 0..40 {
        let (open, gate) = std::sync::mpsc::channel::<()>();
        gates.push(open);
        let handler = ResourceEventHandlerFuncs::new().on_add(move |_| {
            let _ = gate.recv();
        });
        informer.add_event_handler(handler).await.unwrap();
    }
    touch(&fleet.clusters["c0"]);
    eventually("the news", async || log.count('~') == 1).await;
    assert!(fleet.hub.report().await.unwrap().hub.ready);
    let stopping = tokio::spawn(async move { factory.shutdown().await });
    eventually("the end of the watch", async || fleet.cluster("c0").await.informers.is_empty()).await;
    assert!(!stopping.is_finished(), "handlers are running");
    gates.clear();
    stopping.await.unwrap();
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_comes_back_has_to_be_told_of_again() {
    let fleet = fleet([3, 3]).await;
    let (factory, informer, _) = watching(&fleet).await;
    let (open, gate) = std::sync::mpsc::channel::<()>();
    let handler = ResourceEventHandlerFuncs::new().on_add(move |_| {
        let _ = gate.recv();
    });
    let registration = informer.add_event_handler(handler).await.unwrap();
    (0..6).for_each(|_| open.send(()).unwrap());
    eventually("all initial objects", async || registration.has_synced().await.unwrap()).await;
    let registry = fleet.hub.registry();
    registry.send(RemoveCluster(name("c1"))).await.unwrap().unwrap();
    eventually("what is left", async || registration.has_synced().await.unwrap()).await;
    let access = Access::Server { server: fleet.clusters["c1"].url(), ca_file: None, token: None };
    let (stall, io) = (quick().reflector.stall, fleet.hub.system().env().io.clone());
    let connector = Arc::new(KubeConnector::new(access, false, stall, &io));
    registry.send(AddCluster { name: name("c1"), labels: BTreeMap::new(), connector }).await.unwrap().unwrap();
    synced(&factory).await;
    for _ in 0..2 {
        open.send(()).unwrap();
        assert!(!registration.has_synced().await.unwrap());
    }
    drop(open);
    eventually("all of them again", async || registration.has_synced().await.unwrap()).await;
    factory.shutdown().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_are_told_of_what_is_there_as_initial_and_then_of_news() {
    let fleet = fleet([3, 2]).await;
    let (factory, informer, log) = watching(&fleet).await;
    let late = Log::default();
    let registration = informer.add_event_handler(late.handler()).await.unwrap();
    eventually("its initial objects", async || registration.has_synced().await.unwrap()).await;
    assert_eq!((late.count('!'), late.len()), (5, 5));
    let cluster = &fleet.clusters["c1"];
    let key = first_key(cluster);
    touch(cluster);
    cluster.with_world(|world| world.delete(&World::pods(), &key));
    cluster.with_world(World::create_pod);
    for log in [&log, &late] {
        eventually("the news", async || log.len() == 8).await;
        assert_eq!((log.count('!'), log.count('~'), log.count('-'), log.count('+')), (5, 1, 1, 1));
        assert!(log.0.lock().contains(&format!("-c1/{key}")));
    }
    factory.shutdown().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_has_synced_when_it_has_returned_from_each_initial_object() {
    let fleet = fleet([3]).await;
    let factory = SharedInformerFactory::new(fleet.hub.system());
    let informer = factory.informer::<Pod>().unwrap();
    let (open, gate) = std::sync::mpsc::channel::<()>();
    let handler = ResourceEventHandlerFuncs::new().on_add(move |_| {
        let _ = gate.recv();
    });
    let registration = informer.add_event_handler(handler).await.unwrap();
    assert!(!registration.has_synced().await.unwrap(), "it has not been started");
    factory.start().await.unwrap();
    synced(&factory).await;
    for _ in 0..2 {
        open.send(()).unwrap();
        assert!(!registration.has_synced().await.unwrap());
    }
    drop(open);
    eventually("the last one", async || registration.has_synced().await.unwrap()).await;
    factory.shutdown().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_loses_one_call_and_a_handler_that_panicked_on_an_initial_object_syncs() {
    let fleet = fleet([4]).await;
    let factory = SharedInformerFactory::new(fleet.hub.system());
    let informer = factory.informer::<Pod>().unwrap();
    let log = Log::default();
    let (noted, unlucky) = (log.clone(), first_key(&fleet.clusters["c0"]));
    let handler = ResourceEventHandlerFuncs::<Pod>::new().on_add(move |pod| {
        assert_ne!(pod.key(), &unlucky, "on purpose");
        noted.note('+', pod);
    });
    let registration = informer.add_event_handler(handler).await.unwrap();
    factory.start().await.unwrap();
    eventually("its sync", async || registration.has_synced().await.unwrap()).await;
    assert_eq!(log.len(), 3);
    let lost: u64 = fleet.cluster("c0").await.informers[0].listeners.iter().map(|listener| listener.lost).sum();
    assert_eq!(lost, 1);
    factory.shutdown().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_that_panic_on_every_object_lose_each_call_and_sync_and_get_what_comes_next() {
    let fleet = fleet([5]).await;
    let factory = SharedInformerFactory::new(fleet.hub.system());
    let informer = factory.informer::<Pod>().unwrap();
    let updates = Arc::new(AtomicUsize::new(0));
    let mut registrations = Vec::new();
    for _ in 0..2 {
        let counted = Arc::clone(&updates);
        let handler =
            ResourceEventHandlerFuncs::<Pod>::new().on_add(|_| panic!("on purpose")).on_update(move |_, _| {
                counted.fetch_add(1, SeqCst);
            });
        registrations.push(informer.add_event_handler(handler).await.unwrap());
    }
    factory.start().await.unwrap();
    synced(&factory).await;
    for registration in &registrations {
        eventually("a sync", async || registration.has_synced().await.unwrap()).await;
    }
    let lost = async || -> Vec<u64> {
        let informers = fleet.cluster("c0").await.informers;
        informers[0].listeners.iter().map(|listener| listener.lost).collect()
    };
    assert_eq!(lost().await, [5, 5]);
    touch(&fleet.clusters["c0"]);
    eventually("the news", async || updates.load(SeqCst) == 2).await;
    assert_eq!((lost().await, fleet.cluster("c0").await.informers[0].restarts), (vec![5, 5], 0));
    factory.shutdown().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handler_of_an_informer_that_never_starts_is_shut_down_at_once_and_nothing_is_asked() {
    let fleet = fleet([3]).await;
    let factory = SharedInformerFactory::new(fleet.hub.system());
    let informer = factory.informer::<Pod>().unwrap();
    let log = Log::default();
    let registration = informer.add_event_handler(log.handler()).await.unwrap();
    let left_behind = informer.add_event_handler(log.handler()).await.unwrap();
    let ending = informer.shut_down_event_handler(&registration);
    tokio::time::timeout(PATIENCE, ending).await.expect("nothing to wait for").unwrap();
    assert!(!registration.has_synced().await.unwrap() && !left_behind.has_synced().await.unwrap());
    factory.shutdown().await;
    assert!(matches!(factory.start().await, Err(InformerError::Stopped)));
    let stats = fleet.clusters["c0"].stats();
    assert_eq!((stats.lists, stats.watches, log.len()), (0, 0, 0));
    // Added, then started, then shut down.
    let factory = SharedInformerFactory::new(fleet.hub.system());
    let informer = factory.informer::<Pod>().unwrap();
    let registration = informer.add_event_handler(log.handler()).await.unwrap();
    factory.start().await.unwrap();
    synced(&factory).await;
    let ending = informer.shut_down_event_handler(&registration);
    tokio::time::timeout(PATIENCE, ending).await.expect("no call is running").unwrap();
    assert!(fleet.cluster("c0").await.informers[0].listeners.is_empty());
    factory.shutdown().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn informer_removes_its_own_handlers_and_not_those_of_another_informer_of_the_type() {
    let fleet = fleet([2]).await;
    let factory = SharedInformerFactory::new(fleet.hub.system());
    let informer = factory.informer::<Pod>().unwrap();
    let logs = [Log::default(), Log::default()];
    let first = informer.add_event_handler(logs[0].handler()).await.unwrap();
    let second = informer.add_event_handler(logs[1].handler()).await.unwrap();
    factory.start().await.unwrap();
    synced(&factory).await;
    let elsewhere = SharedInformerFactory::new(fleet.hub.system());
    let foreign = elsewhere.informer::<Pod>().unwrap();
    elsewhere.start().await.unwrap();
    synced(&elsewhere).await;
    let listeners = async || fleet.cluster("c0").await.informers[0].listeners.len();
    foreign.remove_event_handler(&first);
    foreign.shut_down_event_handler(&second).await.unwrap();
    touch(&fleet.clusters["c0"]);
    for log in &logs {
        eventually("the news", async || log.count('~') == 1).await;
    }
    assert_eq!(listeners().await, 2);
    for (registration, left) in [(&second, 1), (&first, 0)] {
        informer.shut_down_event_handler(registration).await.unwrap();
        assert_eq!(listeners().await, left);
    }
    elsewhere.shutdown().await;
    factory.shutdown().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dynamic_and_metadata_informers_are_notified_with_and_without_streaming_lists() {
    for streaming in [Streaming::Supported, Streaming::Refused] {
        let fleet = streaming_fleet(streaming, 3).await;
        let factory = SharedInformerFactory::new(fleet.hub.system());
        let informers =
            [factory.dynamic_informer(&pods()).unwrap(), factory.dynamic_metadata_informer(&pods()).unwrap()];
        let logs = [Log::default(), Log::default()];
        for (informer, log) in informers.iter().zip(&logs) {
            informer.add_event_handler(log.handler_of()).await.unwrap();
        }
        assert_eq!(factory.start().await.unwrap(), 2);
        synced(&factory).await;
        let cluster = &fleet.clusters["c0"];
        let key = first_key(cluster);
        touch(cluster);
        cluster.with_world(|world| world.delete(&World::pods(), &key));
        cluster.with_world(World::create_pod);
        for (informer, log) in informers.iter().zip(&logs) {
            eventually("the news", async || log.len() == 6).await;
            assert_eq!((log.count('!'), log.count('~'), log.count('-'), log.count('+')), (3, 1, 1, 1));
            assert!(log.0.lock().contains(&format!("-c0/{key}")));
            assert_eq!(informer.indexer().list().len(), 3);
        }
        let stats = cluster.stats();
        let lists = if streaming == Streaming::Supported { 0 } else { 2 };
        assert_eq!((stats.lists, stats.open_watches), (lists, 2), "{streaming:?}");
        factory.shutdown().await;
        fleet.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn informer_of_a_namespace_and_selectors_is_notified_of_nothing_else() {
    let fleet = fleet([0]).await;
    let factory =
        SharedInformerFactory::new(fleet.hub.system()).with_namespace("ns-foo").with_tweak_list_options(|options| {
            options.label_selector = Some("environment=test".parse().unwrap());
            options.field_selector = Some("metadata.name!=hidden".to_owned());
        });
    let informer = factory.dynamic_informer(&pods()).unwrap();
    let log = Log::default();
    informer.add_event_handler(log.handler_of()).await.unwrap();
    factory.start().await.unwrap();
    synced(&factory).await;
    for (namespace, name, environment) in [
        ("ns-bar", "elsewhere", "test"),
        ("ns-foo", "wrong-label", "production"),
        ("ns-foo", "hidden", "test"),
        ("ns-foo", "seen", "test"),
    ] {
        let body = json!({ "metadata": { "labels": { "environment": environment } }, "spec": {} });
        fleet.clusters["c0"].with_world(|world| world.create(&World::pods(), namespace, name, body)).unwrap();
    }
    eventually("the one that passes", async || log.len() == 1).await;
    let key = "ns-foo/seen".parse().unwrap();
    patch(&fleet.clusters["c0"], &key, &json!({ "metadata": { "labels": { "environment": "production" } } }));
    eventually("its end", async || log.len() == 2).await;
    assert_eq!(*log.0.lock(), ["+c0/ns-foo/seen", "-c0/ns-foo/seen"]);
    factory.shutdown().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handler_that_was_added_before_the_transform_was_set_syncs() {
    let fleet = fleet([3]).await;
    let factory = SharedInformerFactory::new(fleet.hub.system());
    let informer = factory.informer::<Pod>().unwrap();
    let log = Log::default();
    let registration = informer.add_event_handler(log.handler()).await.unwrap();
    informer.set_transform(Transform::json(|_| Ok::<_, String>(()))).unwrap();
    factory.start().await.unwrap();
    eventually("its sync", async || registration.has_synced().await.unwrap()).await;
    assert_eq!((log.count('!'), log.len()), (3, 3));
    factory.shutdown().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_filters_transitions_are_additions_and_deletions() {
    let fleet = fleet([3]).await;
    let factory = SharedInformerFactory::new(fleet.hub.system());
    let informer = factory.informer::<Pod>().unwrap();
    let log = Log::default();
    let marked = |pod: &Object<Pod>| pod.labels().get("marked") == Some("yes");
    let handler = FilteringResourceEventHandler::new(marked, log.handler());
    informer.add_event_handler(handler).await.unwrap();
    factory.start().await.unwrap();
    synced(&factory).await;
    let (cluster, key) = (&fleet.clusters["c0"], first_key(&fleet.clusters["c0"]));
    let expect = [("yes", '+'), ("yes", '~'), ("no", '-'), ("yes", '+')];
    for (step, (value, sign)) in expect.into_iter().enumerate() {
        let body = json!({ "metadata": { "labels": { "marked": value } }, "status": { "step": step } });
        patch(cluster, &key, &body);
        eventually("the step", async || log.len() == step + 1).await;
        assert_eq!(log.0.lock()[step], format!("{sign}c0/{key}"));
    }
    factory.shutdown().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_handler_added_twice_is_two_registrations_and_removing_one_removes_one() {
    let fleet = fleet([2]).await;
    let (factory, informer, _) = watching(&fleet).await;
    let log = Log::default();
    let first = informer.add_event_handler(log.handler()).await.unwrap();
    let second = informer.add_event_handler(log.handler()).await.unwrap();
    assert_ne!(first.id(), second.id());
    eventually("both", async || log.len() == 4).await;
    informer.shut_down_event_handler(&first).await.unwrap();
    touch(&fleet.clusters["c0"]);
    eventually("one", async || log.count('~') == 1).await;
    // A second removal, and one by a stranger, change nothing.
    informer.remove_event_handler(&first);
    informer.shut_down_event_handler(&first).await.unwrap();
    let stranger = factory.informer::<Node>().unwrap();
    stranger.remove_event_handler(&second);
    stranger.shut_down_event_handler(&second).await.unwrap();
    touch(&fleet.clusters["c0"]);
    eventually("one still", async || log.count('~') == 2).await;
    assert!(!first.has_synced().await.unwrap() && second.has_synced().await.unwrap());
    informer.shut_down_event_handler(&second).await.unwrap();
    let before = log.len();
    let other = Log::default();
    let third = informer.add_event_handler(other.handler()).await.unwrap();
    eventually("its initial objects", async || third.has_synced().await.unwrap()).await;
    touch(&fleet.clusters["c0"]);
    eventually("somebody else", async || other.count('~') == 1).await;
    assert_eq!(log.len(), before);
    factory.shutdown().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removal_returns_while_a_call_is_running_and_shutting_down_waits_for_it() {
    let fleet = fleet([1]).await;
    let (factory, informer, _) = watching(&fleet).await;
    for waits in [false, true] {
        let (open, gate) = std::sync::mpsc::channel::<()>();
        let calls = Arc::new(AtomicUsize::new(0));
        let (entered, left) = (Arc::clone(&calls), Arc::clone(&calls));
        let handler = ResourceEventHandlerFuncs::new().on_add(move |_| {
            entered.fetch_add(1, SeqCst);
            let _ = gate.recv();
            left.fetch_add(10, SeqCst);
        });
        let registration = informer.add_event_handler(handler).await.unwrap();
        eventually("the call", async || calls.load(SeqCst) == 1).await;
        if waits {
            let removing = informer.shut_down_event_handler(&registration);
            tokio::pin!(removing);
            assert!(tokio::time::timeout(Duration::from_millis(50), &mut removing).await.is_err());
            open.send(()).unwrap();
            removing.await.unwrap();
            assert_eq!(calls.load(SeqCst), 11);
        } else {
            informer.remove_event_handler(&registration);
            assert_eq!(calls.load(SeqCst), 1, "it is still in the call");
            drop(open);
            eventually("its end", async || calls.load(SeqCst) == 11).await;
        }
    }
    factory.shutdown().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_may_come_and_go_under_load_and_while_everything_stops() {
    let fleet = fleet([50, 50]).await;
    let (factory, informer, witness) = watching(&fleet).await;
    let mut churn = Churn::new(7);
    let abuse: Vec<_> = (0..8)
        .map(|i| {
            let informer = informer.clone();
            tokio::spawn(async move {
                let mut rounds = 0;
                loop {
                    let Ok(registration) = informer.add_event_handler(Log::default().handler()).await else { break };
                    if i % 2 == 0 {
                        informer.remove_event_handler(&registration);
                    } else {
                        informer.shut_down_event_handler(&registration).await.unwrap();
                    }
                    rounds += 1;
                }
                rounds
            })
        })
        .collect();
    for _ in 0..200 {
        for cluster in fleet.clusters.values() {
            cluster.with_world(|world| churn.step(world));
        }
        tokio::task::yield_now().await;
    }
    let differs = async || {
        fleet.clusters.iter().any(|(cluster, sim)| {
            let lister = informer.lister().cluster(&name(cluster));
            let known: BTreeMap<_, _> = lister
                .list(&LabelSelector::everything())
                .iter()
                .map(|pod| (pod.key().clone(), (pod.uid().clone(), pod.resource_version().clone())))
                .collect();
            known != sim.truth(&World::pods())
        })
    };
    fleet.eventually("the truth", async || !differs().await).await;
    // The store has it first.
    fleet.eventually("what the witness was told", async || witness.len() > 100).await;
    factory.shutdown().await;
    for task in abuse {
        assert!(task.await.unwrap() > 0);
    }
    assert!(fleet.cluster("c0").await.informers.is_empty());
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_informer_takes_no_handlers_and_never_starts_again() {
    let fleet = fleet([2]).await;
    let (factory, informer, log) = watching(&fleet).await;
    let registration = informer.add_event_handler(Log::default().handler()).await.unwrap();
    informer.stop().await;
    informer.stop().await;
    assert!(informer.is_stopped() && informer.has_started());
    assert!(matches!(informer.add_event_handler(log.handler()).await, Err(InformerError::Stopped)));
    assert!(matches!(informer.add_indexers(Indexers::new()).await, Err(InformerError::Stopped)));
    let nothing = Transform::json(|_| Ok::<_, String>(()));
    assert!(matches!(informer.set_transform(nothing), Err(InformerError::Stopped)));
    informer.remove_event_handler(&registration);
    informer.shut_down_event_handler(&registration).await.unwrap();
    assert!(matches!(factory.start().await, Err(InformerError::Stopped)));
    touch(&fleet.clusters["c0"]);
    assert_eq!(log.count('~'), 0);
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_settings_and_the_start_may_race() {
    let fleet = fleet([3]).await;
    for _ in 0..20 {
        let factory = SharedInformerFactory::new(fleet.hub.system());
        let informer = factory.informer::<Pod>().unwrap();
        let log = Log::default();
        let handler = WatchErrorHandler::new(|_, _| {});
        let transform = Transform::json(|_| Ok::<_, String>(()));
        let setting = informer.clone();
        let settings = tokio::spawn(async move {
            for _ in 0..20 {
                let watch_errors = setting.set_watch_error_handler(handler.clone());
                for set in [watch_errors, setting.set_transform(transform.clone())] {
                    assert!(matches!(set, Ok(()) | Err(InformerError::Started(_))), "{set:?}");
                }
                tokio::task::yield_now().await;
            }
        });
        let (added, started) = tokio::join!(informer.add_event_handler(log.handler()), factory.start());
        assert_eq!(started.unwrap(), 1);
        settings.await.unwrap();
        let registration = added.unwrap();
        eventually("sync", async || registration.has_synced().await.unwrap()).await;
        assert_eq!((log.count('!'), log.len()), (3, 3));
        factory.shutdown().await;
    }
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resync_repeats_every_object_to_who_asked_for_it_and_to_nobody_else() {
    let fleet = fleet([4]).await;
    let factory = SharedInformerFactory::new(fleet.hub.system())
        .with_default_resync(Duration::ZERO)
        .with_custom_resync::<Node>(Duration::from_secs(1));
    let informer = factory.informer::<Pod>().unwrap();
    let (quiet, repeated) = (Log::default(), Log::default());
    informer.add_event_handler(quiet.handler()).await.unwrap();
    // A tenth of a second is raised to a second.
    let period = Duration::from_millis(100);
    informer.add_event_handler_with_resync_period(repeated.handler(), period).await.unwrap();
    factory.start().await.unwrap();
    synced(&factory).await;
    let began = Instant::now();
    eventually("two resyncs", async || repeated.count('=') >= 8).await;
    assert!(began.elapsed() > Duration::from_millis(1500), "{:?}", began.elapsed());
    assert_eq!((quiet.count('!'), quiet.len()), (4, 4));
    assert_eq!(fleet.clusters["c0"].stats().lists, 0, "a resync asks the apiserver for nothing");
    factory.shutdown().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_broken_watch_only_what_changed_is_told() {
    let mut fleet = fleet([20]).await;
    let (factory, informer, log) = watching(&fleet).await;
    let lists = fleet.clusters["c0"].stats().lists + fleet.clusters["c0"].stats().watches;
    let cluster = fleet.first();
    let keys: Vec<_> = cluster.with_world(|world| world.objects(&World::pods()).map(|pod| pod.key().clone()).collect());
    cluster.set_faults(FaultScript::one(Rule::new(When::Watch, Fault::ExpireWatch).times(1)));
    cluster.with_world(|world| {
        world.patch(&World::pods(), &keys[0], &json!({ "status": { "a": 1 } }));
        world.delete(&World::pods(), &keys[1]);
        world.recreate(&World::pods(), &keys[2]);
        world.create_pod();
        world.compact();
    });
    cluster.with_world(|world| world.patch(&World::pods(), &keys[3], &json!({ "status": { "a": 2 } })));
    eventually("the truth", async || {
        let stats = fleet.clusters["c0"].stats();
        stats.lists + stats.watches > lists
            && fleet.clusters["c0"].truth(&World::pods()).len() == listed(&informer).len()
    })
    .await;
    eventually("the news", async || log.len() >= 26).await;
    let told = log.0.lock().clone();
    assert_eq!((log.count('!'), log.count('=')), (20, 0), "{told:?}");
    assert_eq!((log.count('~'), log.count('+')), (2, 2), "{told:?}");
    assert_eq!(log.count('-') + log.count('†'), 2, "the recreated one is deleted and added: {told:?}");
    factory.shutdown().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_lists_and_watches_are_told_to_whoever_asked_and_a_bad_listener_to_that_harms_nobody() {
    let fleet = fleet([3]).await;
    let errors = Arc::new(Mutex::new(Vec::<String>::new()));
    let told = Arc::clone(&errors);
    let running = AtomicBool::new(false);
    let handler = WatchErrorHandler::new(move |origin, error| {
        assert!(!running.swap(true, SeqCst), "two calls at once");
        std::thread::yield_now();
        running.store(false, SeqCst);
        told.lock().push(format!("{}: {error}", origin.cluster));
        assert!(told.lock().len() > 2, "the first two panic on purpose");
    });
    fleet.clusters["c0"].forbid(&World::pods(), true);
    let factory = SharedInformerFactory::new(fleet.hub.system());
    let informer = factory.informer::<Pod>().unwrap();
    informer.set_watch_error_handler(handler.clone()).unwrap();
    factory.start().await.unwrap();
    assert!(matches!(informer.set_watch_error_handler(handler), Err(InformerError::Started(_))));
    eventually("three errors", async || errors.lock().len() >= 3).await;
    assert!(errors.lock()[0].starts_with("c0: ") && errors.lock()[0].contains("403"), "{errors:?}");
    fleet.clusters["c0"].forbid(&World::pods(), false);
    synced(&factory).await;
    factory.shutdown().await;
    fleet.end().await;
}

// === transforms ===

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transform_is_what_everybody_sees_and_is_called_once_for_each_object_sent() {
    let fleet = fleet([10]).await;
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let transform = Transform::typed(move |pod: &mut Pod| {
        counted.fetch_add(1, SeqCst);
        pod.spec = None;
        pod.metadata.labels.get_or_insert_default().insert("seen".to_owned(), "yes".to_owned());
        Ok::<_, String>(())
    });
    let factory = SharedInformerFactory::new(fleet.hub.system()).with_transform(transform.clone());
    let informer = factory.informer::<Pod>().unwrap();
    let log = Log::default();
    let noted = log.clone();
    let handler = ResourceEventHandlerFuncs::<Pod>::new()
        .on_add(move |pod| assert!(pod.decode().unwrap().spec.is_none()))
        .on_update(move |old, new| {
            assert!(old.decode().unwrap().spec.is_none() && new.decode().unwrap().spec.is_none());
            noted.note('~', new);
        });
    informer.add_event_handler(handler).await.unwrap();
    factory.start().await.unwrap();
    synced(&factory).await;
    assert_eq!(informer.lister().list(&"seen=yes".parse().unwrap()).len(), 10);
    assert_eq!(calls.load(SeqCst), 10);
    touch(&fleet.clusters["c0"]);
    eventually("the change", async || log.len() == 1).await;
    assert_eq!(calls.load(SeqCst), 11);
    let lost: u64 = fleet.cluster("c0").await.informers[0].listeners.iter().map(|listener| listener.lost).sum();
    assert_eq!(lost, 0, "a handler met an object that was not transformed");
    // Others see whole objects, and a cache of their own.
    let (other, whole, _) = watching(&fleet).await;
    assert!(whole.lister().list(&LabelSelector::everything())[0].decode().unwrap().spec.is_some());
    assert!(matches!(informer.set_transform(transform.clone()), Err(InformerError::Started(_))));
    let node_informer = other.informer::<Node>().unwrap();
    node_informer.set_transform(transform.clone()).unwrap();
    let _lister = node_informer.lister();
    assert!(matches!(node_informer.set_transform(transform), Err(InformerError::InUse)));
    factory.shutdown().await;
    other.shutdown().await;
    fleet.end().await;
}

/// Marks each object, and fails on one that has the mark already.
fn marking(calls: &Arc<AtomicUsize>) -> Transform {
    let calls = Arc::clone(calls);
    Transform::json(move |pod: &mut Value| {
        calls.fetch_add(1, SeqCst);
        if pod["marked"] == json!(true) {
            return Err("it was transformed before");
        }
        pod["marked"] = json!(true);
        Ok(())
    })
}

fn is_marked(pod: &Object<Pod>) -> bool {
    pod.typed::<Value>().unwrap()["marked"] == json!(true)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn additions_updates_and_deletions_carry_what_the_transform_returned() {
    for streaming in [Streaming::Supported, Streaming::Refused] {
        let fleet = streaming_fleet(streaming, 2).await;
        let (calls, plain) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let factory = SharedInformerFactory::new(fleet.hub.system()).with_transform(marking(&calls));
        let informer = factory.informer::<Pod>().unwrap();
        let log = Log::default();
        let check = |sign: char| {
            let (log, plain) = (log.clone(), Arc::clone(&plain));
            move |pod: &Object<Pod>| {
                plain.fetch_add(usize::from(!is_marked(pod)), SeqCst);
                log.note(sign, pod);
            }
        };
        let (added, updated, old, deleted) = (check('+'), check('~'), check('o'), check('-'));
        let handler = ResourceEventHandlerFuncs::<Pod>::new()
            .on_add(added)
            .on_update(move |from, to| {
                old(from);
                updated(to);
            })
            .on_delete(deleted);
        informer.add_event_handler(handler).await.unwrap();
        factory.start().await.unwrap();
        synced(&factory).await;
        let (cluster, key) = (&fleet.clusters["c0"], first_key(&fleet.clusters["c0"]));
        touch(cluster);
        cluster.with_world(World::create_pod);
        cluster.with_world(|world| world.delete(&World::pods(), &key));
        eventually("all of it", async || log.len() == 6).await;
        assert_eq!((log.count('+'), log.count('o'), log.count('~'), log.count('-')), (3, 1, 1, 1));
        assert!(log.0.lock().contains(&format!("-c0/{key}")));
        let stored = informer.lister().list(&LabelSelector::everything());
        assert!(stored.len() == 2 && stored.iter().all(is_marked), "{streaming:?}");
        let skipped = fleet.cluster("c0").await.informers[0].skipped;
        assert_eq!((plain.load(SeqCst), calls.load(SeqCst), skipped), (0, 5, 0), "{streaming:?}");
        factory.shutdown().await;
        fleet.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resyncs_transform_nothing_again_and_readers_find_transformed_objects_meanwhile() {
    let fleet = fleet([5]).await;
    let calls = Arc::<AtomicUsize>::default();
    let factory = SharedInformerFactory::new(fleet.hub.system())
        .with_transform(marking(&calls))
        .with_default_resync(Duration::from_secs(1));
    let informer = factory.informer::<Pod>().unwrap();
    let log = Log::default();
    informer.add_event_handler(log.handler()).await.unwrap();
    factory.start().await.unwrap();
    synced(&factory).await;
    let over = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let (informer, over) = (informer.clone(), Arc::clone(&over));
            tokio::spawn(async move {
                let mut reads = 0;
                while !over.load(SeqCst) {
                    let stored = informer.lister().list(&LabelSelector::everything());
                    assert!(stored.len() == 5 && stored.iter().all(is_marked), "after {reads} reads");
                    reads += 1;
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                reads
            })
        })
        .collect();
    eventually("two resyncs", async || log.count('=') >= 10).await;
    over.store(true, SeqCst);
    for reader in readers {
        assert!(reader.await.unwrap() > 0);
    }
    assert_eq!((calls.load(SeqCst), fleet.cluster("c0").await.informers[0].skipped), (5, 0));
    factory.shutdown().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_whose_transform_fails_is_kept_out_counted_and_shown_and_its_deletion_is_a_tombstone() {
    let fleet = fleet([5]).await;
    let cluster = &fleet.clusters["c0"];
    let (bad, turning) = {
        let keys: Vec<_> =
            cluster.with_world(|world| world.objects(&World::pods()).map(|pod| pod.key().clone()).collect());
        (keys[0].clone(), keys[1].clone())
    };
    patch(cluster, &bad, &json!({ "metadata": { "labels": { "bad": "yes" } } }));
    let transform = Transform::json(|pod: &mut Value| match pod["metadata"]["labels"]["bad"].as_str() {
        Some("yes") => Err("it is bad"),
        Some("renamed") => {
            pod["metadata"]["name"] = json!("another");
            Ok(())
        }
        Some("panics") => panic!("on purpose"),
        _ => Ok(()),
    });
    let factory = SharedInformerFactory::new(fleet.hub.system()).with_transform(transform);
    let informer = factory.informer::<Pod>().unwrap();
    let log = Log::default();
    informer.add_event_handler(log.handler()).await.unwrap();
    factory.start().await.unwrap();
    synced(&factory).await;
    let shown = async || fleet.cluster("c0").await.informers.remove(0);
    assert_eq!((listed(&informer).len(), shown().await.skipped), (4, 1));
    let error = shown().await.last_error.unwrap();
    assert!(error.contains(bad.as_str()) && error.contains("transform failed: it is bad"), "{error}");
    // One that was taken in before stays as it was, until it is gone.
    for (at, illness) in ["yes", "renamed", "panics"].into_iter().enumerate() {
        patch(cluster, &turning, &json!({ "metadata": { "labels": { "bad": illness } } }));
        eventually("the count", async || shown().await.skipped == 2 + at as u64).await;
        assert_eq!(listed(&informer).len(), 4);
    }
    cluster.with_world(|world| world.delete(&World::pods(), &turning));
    cluster.with_world(|world| world.delete(&World::pods(), &bad));
    eventually("its deletion", async || listed(&informer).len() == 3).await;
    eventually("the tombstone", async || log.0.lock().contains(&format!("†c0/{turning}"))).await;
    assert_eq!(log.len(), 5, "nothing is told of what was kept out: {:?}", log.0.lock());
    factory.shutdown().await;
    fleet.end().await;
}

// === the store ===

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn indexers_may_be_added_while_it_runs_and_index_what_is_there_and_what_comes() {
    let fleet = fleet([6]).await;
    let (factory, informer, _) = watching(&fleet).await;
    let by_first_letter = || {
        let first = |pod: &Pod| vec![pod.metadata.name.as_deref().unwrap_or_default()[..1].into()];
        Indexers::new().with("by-letter", IndexFn::typed::<Pod>(first))
    };
    informer.add_indexers(by_first_letter()).await.unwrap();
    let count = |letter: &str| informer.indexer().by_index("by-letter", letter).unwrap().len();
    let names = || informer.indexer().list().iter().map(|pod| pod.name()[..1].to_owned()).collect::<Vec<_>>();
    for letter in names() {
        assert_eq!(count(&letter), names().iter().filter(|name| **name == letter).count());
    }
    fleet.clusters["c0"].with_world(|world| {
        world.create(&World::pods(), "shop", "zebra", json!({ "spec": {} })).unwrap();
    });
    eventually("the newcomer", async || count("z") == 1).await;
    let error = informer.add_indexers(by_first_letter()).await.unwrap_err();
    assert!(matches!(error, InformerError::Indexer(_)), "{error}");
    assert!(informer.indexer().by_index("by-nothing", "x").unwrap_err().to_string().contains("by-letter"));
    factory.shutdown().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_version_goes_on_with_each_event_of_its_cluster() {
    let fleet = fleet([2, 2]).await;
    let (factory, informer, _) = watching(&fleet).await;
    let version = || informer.last_sync_resource_version(&name("c1"));
    let before = version().unwrap();
    touch(&fleet.clusters["c1"]);
    eventually("a newer version", async || version().is_some_and(|version| version.newer_than(&before))).await;
    assert_eq!(informer.last_sync_resource_version(&name("nowhere")), None);
    factory.shutdown().await;
    fleet.end().await;
}

// client-go: TestStoreResourceVersion, by what a handler sees.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_a_handler_runs_the_version_of_the_store_covers_its_object() {
    let fleet = fleet([5, 5]).await;
    let (factory, informer, _) = watching(&fleet).await;
    let (judged, behind) = (Arc::new(AtomicUsize::new(0)), Arc::<Mutex<Vec<String>>>::default());
    let judge = {
        let (informer, judged, behind) = (informer.clone(), Arc::clone(&judged), Arc::clone(&behind));
        move |pod: &Object<Pod>| {
            let stored = informer.stored_version(pod.cluster()).and_then(|version| version.as_number());
            if stored < pod.resource_version().as_number() {
                behind.lock().push(format!("{}: {stored:?} < {}", pod.key(), pod.resource_version()));
            }
            judged.fetch_add(1, SeqCst);
        }
    };
    let (added, updated, deleted) = (judge.clone(), judge.clone(), judge);
    let handler =
        ResourceEventHandlerFuncs::<Pod>::new().on_add(added).on_update(move |_, new| updated(new)).on_delete(deleted);
    let registration = informer.add_event_handler(handler).await.unwrap();
    tokio::time::timeout(PATIENCE, registration.wait_for_sync()).await.unwrap().unwrap();
    let mut churn = Churn::new(7);
    let mut before = judged.load(SeqCst);
    for _ in 0..30 {
        fleet.clusters["c0"].with_world(|world| churn.step(world));
        touch(&fleet.clusters["c1"]);
        eventually("a call of the handler", async || judged.load(SeqCst) > before).await;
        before = judged.load(SeqCst);
    }
    assert_eq!(*behind.lock(), Vec::<String>::new());
    factory.shutdown().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_for_a_version_ends_when_the_store_has_what_was_written() {
    let fleet = fleet([2, 2]).await;
    let (factory, informer, _) = watching(&fleet).await;
    let written = fleet.clusters["c1"].with_world(|world| {
        let body = json!({ "spec": { "containers": [] } });
        world.create(&World::pods(), "shop", "zebra", body).unwrap();
        ResourceVersion::new(&world.version().to_string())
    });
    let c1 = name("c1");
    let waiting = informer.wait_until(&c1, &written);
    tokio::time::timeout(PATIENCE, waiting).await.expect("the store gets there").unwrap();
    assert!(informer.lister().get(&name("c1"), "shop", "zebra").is_ok(), "what was written is read");
    assert!(!written.newer_than(&informer.stored_version(&name("c1")).unwrap()));
    informer.wait_until(&name("c1"), &written).await.unwrap();
    factory.shutdown().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_for_a_version_that_is_in_vain_says_why() {
    let fleet = fleet([2, 2]).await;
    let (factory, informer, _) = watching(&fleet).await;
    let (opaque, far) = (ResourceVersion::new("opaque"), ResourceVersion::new("9000000"));
    assert_eq!(informer.wait_until(&name("c0"), &opaque).await, Err(WaitError::NotAnInteger(opaque)));
    let nowhere = name("nowhere");
    assert_eq!(informer.wait_until(&nowhere, &far).await, Err(WaitError::NotWatched(nowhere.clone())));
    assert_eq!(informer.stored_version(&nowhere), None);
    let late = tokio::time::timeout(Duration::from_millis(250), informer.wait_until(&name("c0"), &far)).await;
    assert!(late.is_err(), "a version that never comes is waited for");
    // A cluster that is removed, and an informer that is stopped, end the wait.
    let removed = {
        let informer = informer.clone();
        let far = far.clone();
        tokio::spawn(async move { informer.wait_until(&name("c0"), &far).await })
    };
    fleet.hub.registry().send(RemoveCluster(name("c0"))).await.unwrap().unwrap();
    let removed = tokio::time::timeout(PATIENCE, removed).await.unwrap().unwrap();
    assert_eq!(removed, Err(WaitError::NotWatched(name("c0"))));
    factory.shutdown().await;
    assert_eq!(informer.wait_until(&name("c1"), &far).await, Err(WaitError::Stopped));
    assert_eq!(informer.stored_version(&name("c1")), None);
    fleet.end().await;
}

// client-go: TestNameForHandler, HandlerOptions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_has_the_name_that_its_options_say_and_a_future_of_its_sync() {
    let fleet = fleet([2]).await;
    let (factory, informer, _) = watching(&fleet).await;
    let log = Log::default();
    let options = HandlerOptions::named("cost-reporter");
    let registration = informer.add_event_handler_with_options(log.handler(), options).await.unwrap();
    tokio::time::timeout(PATIENCE, registration.wait_for_sync()).await.unwrap().unwrap();
    assert_eq!((log.count('!'), registration.has_synced().await.unwrap()), (2, true));
    let pods = fleet.informer("c0").await;
    let names: Vec<_> = pods.listeners.iter().map(|listener| listener.name.as_str()).collect();
    assert!(names.contains(&"cost-reporter"), "{names:?}");
    informer.remove_event_handler(&registration);
    assert!(matches!(registration.wait_for_sync().await, Err(InformerError::Removed)));
    factory.shutdown().await;
    fleet.end().await;
}
