//! Tests of hubs that collect for a fleet: ownership, takeover, fencing, and the contents of the log.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use informer_hub::app::{Collect, Hub};
use informer_hub::cache::Query;
use informer_hub::status::FleetStatus;
use informer_hub_fleet::simulated_log::Faults;
use informer_hub_fleet::{PartitionState, ReadOutcome, Reader, Record, ResetReason};
use informer_hub_roles::simulated::{SimulatedBackend, SimulatedFleet};
use informer_hub_roles::{Backend, CollectorParams};
use informer_hub_sim::{Churn, GroundTruth, SimCluster};
use informer_hub_types::rng::SeededRng;
use informer_hub_types::{ObjectKey, ShardRules};
use tokio::runtime::Handle;

use crate::fleet::{config, eventually, pods, quick, small};

/// Time after which the clusters of a killed collector are taken over.
const LEASE: Duration = Duration::from_millis(700);

/// Time after which a request to the log is repeated.
const ANSWER: Duration = Duration::from_millis(300);

/// Faults of the simulated NATS services in tests of processes that read the log.
pub(crate) const SOME_FAULTS: Faults = Faults {
    lost_request: 0.01,
    lost_answer: 0.02,
    doubled: 0.03,
    failed: 0.01,
    outdated: 0.02,
    delay: Duration::from_millis(4),
};

/// Collecting hub, and its connection to the services of the fleet.
pub(crate) struct Process {
    name: String,
    hub: Hub,
    backend: Arc<SimulatedBackend>,
}

impl Process {
    async fn start(name: &str, services: &SimulatedFleet, clusters: &BTreeMap<String, SimCluster>) -> Self {
        Self::start_with(name, services, clusters, &["pods"]).await
    }

    pub(crate) async fn start_with(
        name: &str,
        services: &SimulatedFleet,
        clusters: &BTreeMap<String, SimCluster>,
        resources: &[&str],
    ) -> Self {
        Self::start_divided(name, services, clusters, resources, ShardRules::default()).await
    }

    pub(crate) async fn start_divided(
        name: &str,
        services: &SimulatedFleet,
        clusters: &BTreeMap<String, SimCluster>,
        resources: &[&str],
        shards: ShardRules,
    ) -> Self {
        let backend = Arc::new(services.connect());
        let mut params = CollectorParams { shards, ..CollectorParams::new(name, Duration::from_secs(3600)) };
        (params.lease, params.renewal, params.checkpoint) = (LEASE, LEASE / 7, LEASE / 2);
        // Shorter than the deadlines of lists and watches, as in production. Otherwise lost answers end first lists.
        params.writer.answer_timeout = ANSWER;
        let shared: Arc<dyn Backend> = Arc::<SimulatedBackend>::clone(&backend);
        let collect = Collect { backend: shared, params };
        let builder = Hub::builder(config(clusters, resources)).tuning(quick()).collect(collect);
        Self { name: name.to_owned(), hub: builder.start().await.unwrap(), backend }
    }

    pub(crate) fn owns(&self, cluster: &str) -> bool {
        self.hub.collected().unwrap().iter().any(|owned| owned.as_str() == cluster)
    }

    /// Returns the cached pods, if the hub has the cache.
    async fn cached(&self) -> BTreeMap<ObjectKey, u64> {
        let Ok(Ok(answer)) = self.hub.cache_of(pods()).send(Query::list()).await else { return BTreeMap::new() };
        let version = |version: &informer_hub_types::ResourceVersion| version.as_number().unwrap();
        answer.items.iter().map(|object| (object.key().clone(), version(object.resource_version()))).collect()
    }

    pub(crate) async fn fleet(&self) -> FleetStatus {
        self.hub.report().await.unwrap().fleet.unwrap()
    }

    /// Returns the resources of the informers by name.
    pub(crate) async fn watched(&self) -> Vec<String> {
        let clusters = self.hub.report().await.unwrap().hub.clusters;
        clusters.into_iter().flat_map(|cluster| cluster.informers).map(|informer| informer.resource).collect()
    }

    pub(crate) async fn end(self) {
        let report = self.hub.shutdown(Duration::from_secs(10)).await;
        assert_eq!(report.actors_left, 0, "actors of {} leaked", self.name);
    }
}

pub(crate) fn services(seed: u64, faults: Faults) -> SimulatedFleet {
    println!("seed {seed}");
    let _seeded = SeededRng::new(seed);
    SimulatedFleet::new(faults)
}

pub(crate) fn cluster(seed: u64, pods: usize) -> BTreeMap<String, SimCluster> {
    BTreeMap::from([("c0".to_owned(), SimCluster::start(small(seed, pods), &Handle::current()).unwrap())])
}

fn versions(truth: &GroundTruth) -> BTreeMap<ObjectKey, u64> {
    truth.iter().map(|(key, (_, version))| (key.clone(), version.as_number().unwrap())).collect()
}

/// Returns the objects of the log's only partition, the partition's state, and the number of lists that the log
/// contains.
fn log(services: &SimulatedFleet) -> (BTreeMap<ObjectKey, u64>, PartitionState, usize) {
    let (mut reader, mut objects, mut lists) = (Reader::new(), BTreeMap::new(), 0);
    let mut partition = None;
    for entry in services.log().history() {
        let partition = partition.get_or_insert_with(|| entry.partition.clone());
        assert_eq!(entry.partition, *partition);
        let ReadOutcome::Records(records) = reader.read(&entry).unwrap() else { continue };
        for record in records {
            match record {
                Record::Put { key, version, body, .. } => {
                    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
                    assert_eq!(body["metadata"]["name"], key.name());
                    let version = version.as_number().unwrap();
                    let before = objects.insert(key.clone(), version);
                    assert!(before.is_none_or(|before| before < version), "{key}: {version} after {before:?}");
                }
                Record::Delete { key, .. } => assert!(objects.remove(&key).is_some(), "{key} is deleted twice"),
                Record::Reset { reason } => {
                    assert_eq!(reason, ResetReason::Restart);
                    objects.clear();
                    lists += 1;
                }
                _ => {}
            }
        }
    }
    let state = partition.and_then(|partition| reader.state(&partition).cloned()).unwrap_or_default();
    (objects, state, lists)
}

async fn follows(services: &SimulatedFleet, clusters: &BTreeMap<String, SimCluster>, process: &Process) {
    eventually(&format!("log and cache of {} equal the cluster", process.name), async || {
        let truth = versions(&clusters["c0"].truth(&pods().gvr));
        process.cached().await == truth && log(services).0 == truth
    })
    .await;
}

pub(crate) fn churn(clusters: &BTreeMap<String, SimCluster>, churn: &mut Churn, steps: usize) {
    clusters["c0"].with_world(|world| {
        for _ in 0..steps {
            churn.step(world);
        }
    });
}

/// Returns the number of lists that the cluster has answered, streaming or not.
pub(crate) fn lists(clusters: &BTreeMap<String, SimCluster>) -> u64 {
    let stats = clusters["c0"].stats();
    stats.lists + stats.streaming
}

async fn owned_by<'p>(processes: &[&'p Process]) -> &'p Process {
    let mut owner = None;
    eventually("a collector owns the cluster", async || {
        owner = processes.iter().copied().find(|process| process.owns("c0"));
        owner.is_some()
    })
    .await;
    owner.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_is_watched_by_one_collector_and_handed_over_without_a_list() {
    let (services, clusters, mut changes) = (services(1, Faults::NONE), cluster(1, 60), Churn::new(1));
    let first = Process::start("first", &services, &clusters).await;
    eventually("the first owns the cluster", async || first.owns("c0")).await;
    let second = Process::start("second", &services, &clusters).await;
    churn(&clusters, &mut changes, 50);
    follows(&services, &clusters, &first).await;
    let listed = lists(&clusters);
    assert!(!second.owns("c0") && second.hub.report().await.unwrap().hub.clusters.is_empty());
    assert_eq!(clusters["c0"].stats().open_watches, 1);
    first.end().await;
    churn(&clusters, &mut changes, 50);
    eventually("the second owns the cluster", async || second.owns("c0")).await;
    follows(&services, &clusters, &second).await;
    churn(&clusters, &mut changes, 50);
    follows(&services, &clusters, &second).await;
    assert_eq!(lists(&clusters), listed, "the takeover lists nothing");
    assert_eq!(log(&services).2, 1);
    second.end().await;
    let owner = services.owner(&"c0".parse().unwrap()).unwrap();
    assert!(owner.collector.is_empty(), "released: {owner:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_collectors_lose_and_double_nothing() {
    let seed = 7;
    let faults = Faults {
        lost_request: 0.01,
        lost_answer: 0.03,
        doubled: 0.03,
        failed: 0.02,
        outdated: 0.02,
        delay: Duration::from_millis(4),
    };
    let (services, clusters, mut changes) = (services(seed, faults), cluster(seed, 80), Churn::new(seed));
    let mut standby = Process::start("collector-0", &services, &clusters).await;
    let mut listed = None;
    for number in 1..=4 {
        let active = standby;
        eventually("the standby owns the cluster", async || active.owns("c0")).await;
        standby = Process::start(&format!("collector-{number}"), &services, &clusters).await;
        churn(&clusters, &mut changes, 60);
        follows(&services, &clusters, &active).await;
        let expected = *listed.get_or_insert_with(|| lists(&clusters));
        assert_eq!(lists(&clusters), expected, "a takeover lists nothing");
        // Kills the collector amid changes. Records already sent to the log may still arrive.
        churn(&clusters, &mut changes, 40);
        active.backend.set_cut_off(number % 2 == 0);
        let killed = Instant::now();
        drop(active);
        eventually("the standby takes over", async || standby.owns("c0")).await;
        assert!(killed.elapsed() >= LEASE / 2, "a lease is respected");
    }
    churn(&clusters, &mut changes, 60);
    follows(&services, &clusters, &standby).await;
    let (_, state, restarts) = log(&services);
    assert_eq!(restarts, 1);
    assert!(state.complete && state.owner == "collector-4", "{state:?}");
    eventually("a checkpoint is written", async || !services.checkpoints().is_empty()).await;
    standby.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_restored_from_a_backup_between_two_collectors_is_listed() {
    let (services, clusters) = (services(25, Faults::NONE), cluster(25, 20));
    let backup = clusters["c0"].with_world(|world| world.clone());
    let mut changes = Churn::new(25);
    let first = Process::start("first", &services, &clusters).await;
    owned_by(&[&first]).await;
    follows(&services, &clusters, &first).await;
    churn(&clusters, &mut changes, 30);
    follows(&services, &clusters, &first).await;
    first.end().await;
    clusters["c0"].with_world(|world| *world = backup);
    let second = Process::start("second", &services, &clusters).await;
    follows(&services, &clusters, &second).await;
    assert_eq!(log(&services).2, 2, "both collectors have listed");
    second.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn collector_that_is_cut_off_gives_the_cluster_up() {
    let (services, clusters, mut changes) = (services(3, Faults::NONE), cluster(3, 40), Churn::new(3));
    let first = Process::start("first", &services, &clusters).await;
    eventually("the first owns the cluster", async || first.owns("c0")).await;
    follows(&services, &clusters, &first).await;
    let second = Process::start("second", &services, &clusters).await;
    first.backend.set_cut_off(true);
    churn(&clusters, &mut changes, 30);
    let new = owned_by(&[&second]).await;
    follows(&services, &clusters, new).await;
    first.backend.set_cut_off(false);
    eventually("the first gives the cluster up", async || !first.owns("c0")).await;
    churn(&clusters, &mut changes, 30);
    follows(&services, &clusters, &second).await;
    eventually("one watch is left", async || clusters["c0"].stats().open_watches == 1).await;
    assert_eq!(log(&services).2, 1);
    first.end().await;
    second.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_shows_owners_and_whether_the_services_answer() {
    let (services, clusters, mut changes) = (services(5, Faults::NONE), cluster(5, 30), Churn::new(5));
    services.set_down(true);
    let first = Process::start("first", &services, &clusters).await;
    eventually("the failure is shown", async || first.fleet().await.last_error.is_some()).await;
    let fleet = first.fleet().await;
    assert_eq!((fleet.connected, fleet.owned, fleet.acquired), (false, 0, 0), "{fleet:?}");
    assert!(!first.hub.report().await.unwrap().hub.ready, "owners are unknown");
    services.set_down(false);
    eventually("the first owns the cluster", async || first.owns("c0")).await;
    follows(&services, &clusters, &first).await;
    let second = Process::start("second", &services, &clusters).await;
    eventually("the second knows the owner", async || second.fleet().await.clusters[0].owner.is_some()).await;
    let (own, others) = (first.fleet().await, second.fleet().await);
    let shown = |fleet: &FleetStatus| (fleet.process.clone(), fleet.connected, fleet.owned, fleet.clusters[0].own);
    assert_eq!(shown(&own), ("first".to_owned(), true, 1, true));
    assert_eq!(shown(&others), ("second".to_owned(), true, 0, false));
    let owner = |fleet: &FleetStatus| (fleet.clusters[0].owner.clone(), fleet.clusters[0].epoch);
    assert_eq!((owner(&own), owner(&others)), ((Some("first".to_owned()), 1), (Some("first".to_owned()), 1)));
    assert!(second.hub.report().await.unwrap().hub.ready);
    first.backend.set_cut_off(true);
    churn(&clusters, &mut changes, 30);
    eventually("changes wait for the log", async || {
        let fleet = first.fleet().await;
        fleet.queued_bytes > 0 && fleet.oldest_append_seconds > 0.1 && !fleet.connected
    })
    .await;
    eventually("the second owns the cluster", async || second.owns("c0")).await;
    assert_eq!(owner(&second.fleet().await), (Some("second".to_owned()), 2));
    first.backend.set_cut_off(false);
    eventually("the loss is counted, and nothing waits", async || {
        let fleet = first.fleet().await;
        (fleet.owned, fleet.acquired, fleet.lost, fleet.queued_bytes) == (0, 1, 1, 0)
    })
    .await;
    // Without the services, nothing can be released.
    services.set_down(true);
    first.end().await;
    second.end().await;
}
