//! Tests of factories and shared informers over several clusters. Most follow client-go's `shared_informer_test.go`.

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

use crate::fleet::{Fleet, PATIENCE, cluster_config, config, eventually, pods, quick, small};

/// Log of a handler's calls: `+a` added (`!a` initial), `~a` updated, `=a` same version, `-a` deleted (`†a` tombstone).
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

/// Starts a hub without configured resources over one cluster with or without streaming lists.
async fn streaming_fleet(streaming: Streaming, pods: usize) -> Fleet {
    let cluster = SimCluster::start(SimConfig { streaming, ..small(1, pods) }, &Handle::current()).unwrap();
    Fleet::start(BTreeMap::from([("c0".to_owned(), cluster)]), &[], Vec::new()).await
}

/// Starts a hub without configured resources over clusters with the given numbers of pods.
async fn fleet<const N: usize>(pods: [usize; N]) -> Fleet {
    let clusters: BTreeMap<_, _> = (0..).zip(pods).map(|(i, pods)| (format!("c{i}"), sim(i, pods))).collect();
    let fleet = Fleet::start(clusters, &[], Vec::new()).await;
    assert!(fleet.cluster("c0").await.informers.is_empty());
    fleet
}

async fn synced(factory: &SharedInformerFactory) {
    factory.wait_for_cache_sync(PATIENCE).await.into_error().unwrap();
}

/// Starts a factory with a pod informer and returns both with a handler's log.
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
    patch(cluster, &first_key(cluster), &json!({ "status": { "observedGeneration": version } }));
}

fn name(cluster: &str) -> ClusterName {
    ClusterName::new(cluster).unwrap()
}

/// Returns the pod keys of an informer's lister, by cluster.
fn listed(informer: &SharedInformer<Pod>) -> Vec<String> {
    let all = informer.lister().list(&LabelSelector::everything());
    all.iter().map(|pod| format!("{}/{}", pod.cluster(), pod.key())).collect()
}

// === the factory ===

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn factory_has_one_informer_per_type_and_form_and_starts_each_once() {
    let fleet = fleet([3, 4]).await;
    let factory = SharedInformerFactory::new(fleet.hub.system());
    let typed = factory.informer::<Pod>().unwrap();
    let dynamic = factory.dynamic_informer(&pods()).unwrap();
    assert!(!typed.has_started() && !typed.has_synced() && !typed.is_stopped());
    assert!(!typed.has_synced_in(&name("c1")));
    assert_eq!(factory.start().await.unwrap(), 1, "typed and dynamic are one informer");
    assert_eq!(factory.start().await.unwrap(), 0);
    factory.informer::<Node>().unwrap();
    assert_eq!(factory.start().await.unwrap(), 1, "an informer created later is started by the next call");
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
async fn factory_options_narrow_the_requests() {
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
    // An informer with a wider selection does not widen the view of the first one.
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
async fn sync_wait_reports_each_unsynced_type_with_its_reason() {
    let fleet = fleet([3]).await;
    fleet.clusters["c0"].forbid(&World::nodes(), true);
    let factory = SharedInformerFactory::new(fleet.hub.system());
    let (pod_informer, node_informer) = (factory.informer::<Pod>().unwrap(), factory.informer::<Node>().unwrap());
    assert!(factory.wait_for_cache_sync(PATIENCE).await.types.is_empty(), "only started informers are waited for");
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
async fn sync_wait_names_why_a_cluster_cannot_be_reached() {
    let fleet = fleet([3]).await;
    let lost = cluster_config("lost", "no address");
    let (labels, connector) = (lost.labels.clone(), fleet.hub.connector(&lost));
    let add = AddCluster { name: lost.name, labels, connector };
    fleet.hub.registry().send(add).await.unwrap().unwrap();
    let factory = SharedInformerFactory::new(fleet.hub.system());
    let informer = factory.informer::<Pod>().unwrap();
    factory.start().await.unwrap();
    let state = || informer.sync_state().into_iter().find(|it| it.cluster.as_str() == "lost");
    eventually("the reason", async || state().is_some_and(|it| it.error.is_some())).await;
    let error = informer.wait_for_sync(Duration::from_micros(20_500)).await.unwrap_err().to_string();
    assert!(error.starts_with("not synced after 20ms: lost/pods is pending (") && error.ends_with(')'), "{error}");
    factory.shutdown().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sync_wait_fails_if_the_factory_or_the_hub_ends() {
    let fleet = fleet([3]).await;
    fleet.clusters["c0"].forbid(&World::pods(), true);
    let begin = async || {
        let factory = SharedInformerFactory::new(fleet.hub.system());
        let informer = factory.informer::<Pod>().unwrap();
        factory.start().await.unwrap();
        eventually("forbidden", async || informer.is_settled() && !informer.has_synced()).await;
        let waiting = informer.clone();
        (factory, informer, tokio::spawn(async move { waiting.wait_for_sync(PATIENCE).await }))
    };
    let (first, second) = (begin().await, begin().await);
    first.0.shutdown().await;
    let error = first.2.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("has been stopped") && !first.1.has_synced(), "{error}");
    fleet.end().await;
    let error = second.2.await.unwrap().unwrap_err().to_string();
    assert!(["has been stopped", "the hub has ended"].iter().any(|state| error.contains(state)), "{error}");
    assert!(second.1.is_stopped() && !second.1.has_synced());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handler_may_spawn_tasks_and_use_timers() {
    let fleet = fleet([3]).await;
    let factory = SharedInformerFactory::new(fleet.hub.system());
    let (sender, mut received) = tokio::sync::mpsc::unbounded_channel();
    let handler = ResourceEventHandlerFuncs::new().on_add(move |pod: &Object<Pod>| {
        let (sender, name) = (sender.clone(), pod.key().to_string());
        tokio::spawn(async move {
            let waited = tokio::time::timeout(Duration::ZERO, std::future::pending::<()>()).await;
            sender.send((name, waited.is_err())).unwrap();
        });
    });
    factory.informer::<Pod>().unwrap().add_event_handler(handler).await.unwrap();
    factory.start().await.unwrap();
    for _ in 0..3 {
        let (name, waited) = tokio::time::timeout(PATIENCE, received.recv()).await.unwrap().unwrap();
        assert!(waited, "{name}");
    }
    factory.shutdown().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn factory_shutdown_waits_for_handlers_and_prevents_new_starts() {
    for is_removed in [false, true] {
        factory_waits_for_a_handler(is_removed).await;
    }
}

/// A factory's shutdown waits for the running call of a handler, also if the handler was removed before.
async fn factory_waits_for_a_handler(is_removed: bool) {
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
    let registration = informer.add_event_handler(handler).await.unwrap();
    factory.start().await.unwrap();
    eventually("the handler", async || entered.load(SeqCst)).await;
    if is_removed {
        informer.remove_event_handler(&registration);
    }
    let ended = tokio::time::timeout(Duration::from_millis(100), factory.shutdown()).await;
    assert!(ended.is_err(), "a handler is still running");
    drop(open);
    factory.shutdown().await;
    assert!(left.load(SeqCst));
    eventually("the informer stopped", async || fleet.cluster("c0").await.informers.is_empty()).await;
    assert!(matches!(factory.start().await, Err(InformerError::Stopped)));
    assert!(matches!(factory.informer::<Node>(), Err(InformerError::Stopped)));
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn informers_without_a_transform_are_shared_until_the_last_user_leaves() {
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
async fn metadata_informers_request_only_metadata_and_have_their_own_cache() {
    // Pods of about 9 KB.
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
        // The typed informer still has whole objects.
        let namespace = object.namespace().unwrap();
        assert!(whole.lister().get(&name("c0"), namespace, object.name()).unwrap().decode().unwrap().spec.is_some());
    }
    let informers = fleet.cluster("c0").await.informers;
    // Compares bodies only: the overhead per object is the same for both.
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
async fn configuration_of_a_resource_applies_to_factory_informers() {
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
async fn second_start_waits_for_the_first_and_reports_no_early_sync() {
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
        assert!(!informer.has_synced() && !informer.is_settled(), "a stopped informer is not synced");
    }
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_of_factories_leak_nothing() {
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
        eventually("all informers stopped", async || fleet.cluster(cluster).await.informers.is_empty()).await;
    }
    let after = fleet.hub.system().env().caches.resources().len();
    assert!(after <= before + 1, "{before} caches before, {after} after");
    let (factory, informer, _) = watching(&fleet).await;
    assert!(informer.indexer().snapshot().indexers().is_empty(), "indices are removed with their users");
    factory.shutdown().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn factory_has_whole_objects_of_a_projected_resource() {
    let clusters = BTreeMap::from([("c0".to_owned(), sim(1, 5))]);
    let mut config = config(&clusters, &["pods"]);
    config.resources[0].metadata_only = true;
    config.resources[0].indexes.clear();
    let fleet = Fleet::start_config(clusters, config, quick()).await;
    fleet.synced().await;
    let (factory, informer, log) = watching(&fleet).await;
    eventually("all objects", async || log.len() == 5).await;
    for pod in informer.lister().list(&LabelSelector::everything()) {
        assert!(pod.decode().unwrap().spec.is_some());
    }
    let configured = fleet.hub.cache::<Pod>().send(informer_hub::Query::list()).await.unwrap().unwrap();
    let is_part = |pod: &Object<Pod>| pod.typed::<Value>().unwrap().get("spec").is_none();
    assert!(configured.items.iter().all(is_part), "the configured projection applies");
    factory.shutdown().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unbounded_sync_wait_ends_with_the_sync() {
    let fleet = fleet([1]).await;
    let (factory, informer, _) = watching(&fleet).await;
    informer.wait_for_sync(Duration::MAX).await.unwrap();
    fleet.hub.wait_for_cache_sync(Duration::MAX).await.unwrap();
    factory.shutdown().await;
    fleet.end().await;
}

// === handlers ===

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_of_removed_handlers_are_not_called_afterwards() {
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
    let calls_before: Vec<_> = logs.iter().map(Log::len).collect();
    for cluster in fleet.clusters.values() {
        touch(cluster);
    }
    eventually("the witness", async || witness.count('~') == 2).await;
    assert_eq!(logs.iter().map(Log::len).collect::<Vec<_>>(), calls_before);
    let listeners = fleet.cluster("c0").await.informers[0].listeners.len();
    assert_eq!(listeners, 1, "only the witness is left");
    factory.shutdown().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handler_removed_during_a_backlog_is_not_called_again() {
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
async fn forty_blocked_handlers_block_neither_another_handler_nor_the_hub() {
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
    eventually("the changes", async || log.count('~') == 1).await;
    assert!(fleet.hub.report().await.unwrap().hub.ready);
    let stopping = tokio::spawn(async move { factory.shutdown().await });
    eventually("the informer stopped", async || fleet.cluster("c0").await.informers.is_empty()).await;
    assert!(!stopping.is_finished(), "handlers are running");
    gates.clear();
    stopping.await.unwrap();
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readded_cluster_must_sync_again() {
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
    eventually("the remaining objects", async || registration.has_synced().await.unwrap()).await;
    let access = Access::Server { server: fleet.clusters["c1"].url(), ca_file: None, token: None };
    let (stall, io) = (quick().reflector.stall, fleet.hub.system().env().io.clone());
    let connector = Arc::new(KubeConnector::new(access.into(), stall, &io));
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
async fn late_handler_gets_initial_objects_then_changes() {
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
        eventually("the changes", async || log.len() == 8).await;
        assert_eq!((log.count('!'), log.count('~'), log.count('-'), log.count('+')), (5, 1, 1, 1));
        assert!(log.0.lock().contains(&format!("-c1/{key}")));
    }
    factory.shutdown().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handler_has_synced_after_handling_each_initial_object() {
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
async fn panic_on_an_initial_object_loses_one_call_and_the_handler_syncs() {
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
async fn handlers_that_panic_on_every_object_sync_and_get_later_events() {
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
    eventually("the changes", async || updates.load(SeqCst) == 2).await;
    assert_eq!((lost().await, fleet.cluster("c0").await.informers[0].restarts), (vec![5, 5], 0));
    factory.shutdown().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handler_of_an_unstarted_informer_shuts_down_at_once_without_requests() {
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
    // Adds a handler, starts the informer, shuts the handler down.
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
async fn handler_over_no_cluster_syncs_once_its_informer_has_started() {
    let fleet = fleet([3]).await;
    let none = ClusterSelector::Labels([("tier".to_owned(), "none".to_owned())].into());
    let factory = SharedInformerFactory::new(fleet.hub.system()).with_clusters(none).with_namespace("");
    let handler = factory.informer::<Pod>().unwrap().add_event_handler(Log::default().handler()).await.unwrap();
    assert!(!handler.has_synced().await.unwrap());
    factory.start().await.unwrap();
    tokio::time::timeout(PATIENCE, handler.wait_for_sync()).await.unwrap().unwrap();
    factory.shutdown().await;
    // The empty namespace selects all namespaces.
    let factory = SharedInformerFactory::new(fleet.hub.system()).with_namespace("");
    let informer = factory.informer::<Pod>().unwrap();
    factory.start().await.unwrap();
    synced(&factory).await;
    assert_eq!(listed(&informer).len(), 3);
    factory.shutdown().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn registration_of_another_hub_removes_nothing() {
    let (one, other) = (fleet([2]).await, fleet([2]).await);
    let (factory, informer, log) = watching(&one).await;
    let (other_factory, other_informer, _) = watching(&other).await;
    // Both registrations have the same ID, since both hubs did the same.
    let mine = informer.add_event_handler(log.handler()).await.unwrap();
    let foreign = other_informer.add_event_handler(Log::default().handler()).await.unwrap();
    assert_eq!(mine.id(), foreign.id());
    informer.remove_event_handler(&foreign);
    informer.shut_down_event_handler(&foreign).await.unwrap();
    tokio::time::timeout(PATIENCE, mine.wait_for_sync()).await.unwrap().unwrap();
    informer.shut_down_event_handler(&mine).await.unwrap();
    assert!(matches!(mine.wait_for_sync().await, Err(InformerError::Removed)));
    factory.shutdown().await;
    other_factory.shutdown().await;
    one.end().await;
    other.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn informer_removes_only_its_own_handlers() {
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
        eventually("the changes", async || log.count('~') == 1).await;
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
            eventually("the changes", async || log.len() == 6).await;
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
async fn informer_of_a_namespace_and_selectors_notifies_only_their_objects() {
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
    eventually("its deletion", async || log.len() == 2).await;
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
async fn filter_turns_transitions_into_additions_and_deletions() {
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
        let body =
            json!({ "metadata": { "labels": { "marked": value } }, "status": { "observedGeneration": step + 1 } });
        patch(cluster, &key, &body);
        eventually("the step", async || log.len() == step + 1).await;
        assert_eq!(log.0.lock()[step], format!("{sign}c0/{key}"));
    }
    factory.shutdown().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn adding_a_handler_twice_creates_two_independent_registrations() {
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
    // A second removal and a removal by another informer have no effect.
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
    eventually("the other handler", async || other.count('~') == 1).await;
    assert_eq!(log.len(), before);
    factory.shutdown().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handler_removal_returns_during_a_call_and_handler_shutdown_waits_for_it() {
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
            assert_eq!(calls.load(SeqCst), 1, "the call is still running");
            drop(open);
            eventually("the remaining calls", async || calls.load(SeqCst) == 11).await;
        }
    }
    factory.shutdown().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_are_added_and_removed_under_load_and_during_shutdown() {
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
    fleet.eventually("the expected state", async || !differs().await).await;
    // The store is updated before handlers run.
    fleet.eventually("the witness's events", async || witness.len() > 100).await;
    factory.shutdown().await;
    for task in abuse {
        assert!(task.await.unwrap() > 0);
    }
    assert!(fleet.cluster("c0").await.informers.is_empty());
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_informer_rejects_handlers_and_never_restarts() {
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
async fn handlers_settings_and_start_can_race() {
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
async fn resync_repeats_every_object_to_requesting_handlers_only() {
    let fleet = fleet([4]).await;
    let factory = SharedInformerFactory::new(fleet.hub.system())
        .with_default_resync(Duration::ZERO)
        .with_custom_resync::<Node>(Duration::from_secs(1));
    let informer = factory.informer::<Pod>().unwrap();
    let (quiet, repeated) = (Log::default(), Log::default());
    informer.add_event_handler(quiet.handler()).await.unwrap();
    // A period of 0.1 s is raised to 1 s.
    let period = Duration::from_millis(100);
    informer.add_event_handler_with_resync_period(repeated.handler(), period).await.unwrap();
    factory.start().await.unwrap();
    synced(&factory).await;
    let began = Instant::now();
    eventually("two resyncs", async || repeated.count('=') >= 8).await;
    assert!(began.elapsed() > Duration::from_millis(1500), "{:?}", began.elapsed());
    assert_eq!((quiet.count('!'), quiet.len()), (4, 4));
    assert_eq!(fleet.clusters["c0"].stats().lists, 0, "a resync sends no request to the apiserver");
    factory.shutdown().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_watch_resumes_with_changes_only() {
    let mut fleet = fleet([20]).await;
    let (factory, informer, log) = watching(&fleet).await;
    let lists = fleet.clusters["c0"].stats().lists + fleet.clusters["c0"].stats().watches;
    let cluster = fleet.first();
    let keys: Vec<_> = cluster.with_world(|world| world.objects(&World::pods()).map(|pod| pod.key().clone()).collect());
    cluster.set_faults(FaultScript::one(Rule::new(When::Watch, Fault::ExpireWatch).times(1)));
    cluster.with_world(|world| {
        world.patch(&World::pods(), &keys[0], &json!({ "status": { "observedGeneration": 1 } }));
        world.delete(&World::pods(), &keys[1]);
        world.recreate(&World::pods(), &keys[2]);
        world.create_pod();
        world.compact();
    });
    cluster
        .with_world(|world| world.patch(&World::pods(), &keys[3], &json!({ "status": { "observedGeneration": 2 } })));
    eventually("the expected state", async || {
        let stats = fleet.clusters["c0"].stats();
        stats.lists + stats.watches > lists
            && fleet.clusters["c0"].truth(&World::pods()).len() == listed(&informer).len()
    })
    .await;
    eventually("the changes", async || log.len() >= 26).await;
    let calls = log.0.lock().clone();
    assert_eq!((log.count('!'), log.count('=')), (20, 0), "{calls:?}");
    assert_eq!((log.count('~'), log.count('+')), (2, 2), "{calls:?}");
    assert_eq!(log.count('-') + log.count('†'), 2, "the recreated one is deleted and added: {calls:?}");
    factory.shutdown().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_error_handlers_get_failed_lists_and_watches() {
    let fleet = fleet([3]).await;
    let errors = Arc::new(Mutex::new(Vec::<String>::new()));
    let recorded = Arc::clone(&errors);
    let running = AtomicBool::new(false);
    let handler = WatchErrorHandler::new(move |origin, error| {
        assert!(!running.swap(true, SeqCst), "two calls at once");
        std::thread::yield_now();
        running.store(false, SeqCst);
        recorded.lock().push(format!("{}: {error}", origin.cluster));
        assert!(recorded.lock().len() > 2, "the first two panic on purpose");
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
async fn transform_runs_once_per_received_object_and_applies_to_all_readers() {
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
    // Informers without the transform see whole objects from a separate cache.
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

/// Returns a transform that marks each object and fails on a marked one.
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
async fn additions_updates_and_deletions_carry_transformed_objects() {
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
        eventually("all events", async || log.len() == 6).await;
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
async fn resync_does_not_transform_objects_again() {
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
async fn object_with_a_failed_transform_is_skipped_and_its_deletion_is_a_tombstone() {
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
    // An object accepted before stays unchanged until it is deleted.
    for (at, mark) in ["yes", "renamed", "panics"].into_iter().enumerate() {
        patch(cluster, &turning, &json!({ "metadata": { "labels": { "bad": mark } } }));
        eventually("the count", async || shown().await.skipped == 2 + at as u64).await;
        assert_eq!(listed(&informer).len(), 4);
    }
    cluster.with_world(|world| world.delete(&World::pods(), &turning));
    cluster.with_world(|world| world.delete(&World::pods(), &bad));
    eventually("its deletion", async || listed(&informer).len() == 3).await;
    eventually("the tombstone", async || log.0.lock().contains(&format!("†c0/{turning}"))).await;
    assert_eq!(log.len(), 5, "rejected objects are not notified: {:?}", log.0.lock());
    factory.shutdown().await;
    fleet.end().await;
}

// === the store ===

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn indexers_added_while_running_index_present_and_later_objects() {
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
    eventually("the new object", async || count("z") == 1).await;
    let error = informer.add_indexers(by_first_letter()).await.unwrap_err();
    assert!(matches!(error, InformerError::Indexer(_)), "{error}");
    assert!(informer.indexer().by_index("by-nothing", "x").unwrap_err().to_string().contains("by-letter"));
    factory.shutdown().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn last_sync_version_advances_with_each_event_of_its_cluster() {
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

// client-go: TestStoreResourceVersion, observed by a handler.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_version_covers_the_object_when_its_handler_runs() {
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
async fn version_wait_ends_when_the_store_has_the_write() {
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
    assert!(informer.lister().get(&name("c1"), "shop", "zebra").is_ok(), "the write is readable");
    assert!(!written.newer_than(&informer.stored_version(&name("c1")).unwrap()));
    informer.wait_until(&name("c1"), &written).await.unwrap();
    factory.shutdown().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_version_wait_returns_the_reason() {
    let fleet = fleet([2, 2]).await;
    let (factory, informer, _) = watching(&fleet).await;
    let (opaque, far) = (ResourceVersion::new("opaque"), ResourceVersion::new("9000000"));
    assert_eq!(informer.wait_until(&name("c0"), &opaque).await, Err(WaitError::NotAnInteger(opaque)));
    let nowhere = name("nowhere");
    assert_eq!(informer.wait_until(&nowhere, &far).await, Err(WaitError::NotWatched(nowhere.clone())));
    assert_eq!(informer.stored_version(&nowhere), None);
    let late = tokio::time::timeout(Duration::from_millis(250), informer.wait_until(&name("c0"), &far)).await;
    assert!(late.is_err(), "the wait ended without the version");
    // Removing the cluster or stopping the informer ends the wait.
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
async fn handler_has_its_configured_name_and_a_sync_future() {
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
