//! Tests of the memory limit with a scripted gauge: each memory step, and the events during it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use informer_hub::actors::messages::SetMemoryLimit;
use informer_hub::actors::{Budget, Gauge, InformerStatus, MemoryTuning, Subscribe, Subscriber, Tuning};
use informer_hub::budget::Pace;
use informer_hub::cache::{Answer, Query};
use informer_hub_query::Question;
use informer_hub_sim::{SimCluster, SimConfig, World, WorldConfig};
use informer_hub_types::{
    ClusterSelector, DecodeError, Freshness, MemoryStep, Notification, Object, ObjectKey, Phase, SharedStr,
};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::fleet::{Fleet, PATIENCE, config, eventually, pods, quick};

/// Pods of the large cluster and of the small one.
const PODS: (usize, usize) = (1_000, 40);

/// Accounted bytes of the large cluster's heads.
const HEADS: u64 = 560 * PODS.0 as u64;
/// Memory limit that fits the heads but not the bodies.
const LIMIT: u64 = 2_000_000;

/// Memory gauge that reads the accounted bytes plus an extra that the test sets.
#[derive(Debug, Default)]
struct ScriptedGauge {
    extra: AtomicU64,
    budget: OnceLock<Budget>,
}

impl Gauge for ScriptedGauge {
    fn resident(&self) -> Option<u64> {
        let accounted = self.budget.get().map_or(0, Budget::accounted);
        Some(self.extra.load(Relaxed) + accounted)
    }
}

/// Log of a subscriber's events from the large cluster, see [`describe`].
type EventLog = Arc<Mutex<Vec<String>>>;

/// Hub over a large and a small cluster, with a memory limit.
struct Testbed {
    fleet: Fleet,
    gauge: Arc<ScriptedGauge>,
    log: EventLog,
}

/// Returns one line per event of the large cluster. `bare` marks a state without a body.
fn describe(notification: &Notification) -> Option<String> {
    let state = |object: &Object| {
        let body = if object.json().is_ok() { "" } else { " bare" };
        format!("{}{body}", object.name())
    };
    let origin = notification.origin();
    (origin.cluster.as_str() == "large").then(|| match notification {
        Notification::Added { object, initial: true } => format!("!{}", state(object)),
        Notification::Added { object, .. } => format!("+{}", state(object)),
        Notification::Updated { old, new, .. } => format!("{}>{}", state(old), state(new)),
        Notification::Deleted { object, tombstone } => {
            format!("{}{}", if *tombstone { '†' } else { '-' }, state(object))
        }
        Notification::Synced(_) => "synced".to_owned(),
    })
}

async fn subscribe(fleet: &Fleet, name: &str) -> EventLog {
    let log = EventLog::default();
    let events = Arc::clone(&log);
    let subscriber =
        Subscriber::from_fn(move |notification: &Notification| events.lock().extend(describe(notification)));
    let subscribe = Subscribe::to_configured("pods", ClusterSelector::All, subscriber).named(name);
    fleet.hub.registry().send(subscribe).await.unwrap();
    log
}

/// Adds 2 KB of incompressible text to each pod.
fn add_noise(world: &mut World, seed: u64) {
    let mut state = seed;
    let mut letter = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'0' + (state >> 58) as u8)
    };
    let keys: Vec<_> = world.truth(&pods().gvr).into_keys().collect();
    for key in keys {
        // Characters from `0` to `o`, without the backslash, which JSON escapes.
        let noise: String = (0..2_000).map(|_| letter()).filter(|letter| *letter != '\\').collect();
        world.update(&pods().gvr, &key, |pod| pod["status"]["message"] = noise.into()).unwrap();
    }
}

impl Testbed {
    async fn start(pause: Duration) -> Self {
        let cluster = |seed, pods| {
            let world = WorldConfig { seed, pods, ..WorldConfig::default() };
            let cluster = SimCluster::start(SimConfig { world, ..SimConfig::default() }, &Handle::current()).unwrap();
            cluster.with_world(|world| add_noise(world, seed));
            cluster
        };
        let clusters =
            BTreeMap::from([("large".to_owned(), cluster(1, PODS.0)), ("small".to_owned(), cluster(2, PODS.1))]);
        let gauge = Arc::new(ScriptedGauge::default());
        let wait = Duration::from_millis(100);
        let pace = Pace { wait, settle: Duration::from_secs(1), pause, ..Pace::default() };
        let memory = MemoryTuning { look: Duration::from_millis(20), pace, gauge: Arc::<ScriptedGauge>::clone(&gauge) };
        let config = config(&clusters, &["pods"]);
        let fleet = Fleet::start_config(clusters, config, Tuning { memory, ..quick() }).await;
        gauge.budget.set(fleet.hub.system().env().budget.clone()).unwrap();
        let log = subscribe(&fleet, "diary").await;
        fleet.synced().await;
        fleet.converged().await;
        let bed = Self { fleet, gauge, log };
        // The cache may be complete before the subscriber has the last initial objects.
        let has_all = async || bed.log.lock().last().is_some_and(|line| line == "synced");
        eventually("the subscriber's initial objects", has_all).await;
        bed.log.lock().clear();
        bed
    }

    /// Sets the limit and the gauge's extra bytes, and waits until the large cluster reaches a memory step.
    async fn limit_until(&self, more: u64, step: MemoryStep) {
        self.gauge.extra.store(more, Relaxed);
        self.limit(Some(LIMIT)).await;
        self.reaches(step).await;
    }

    async fn limit(&self, limit: Option<u64>) {
        self.fleet.hub.registry().send(SetMemoryLimit(limit)).await.unwrap();
    }

    async fn reaches(&self, step: MemoryStep) {
        let at = |informer: &InformerStatus| informer.memory.as_ref().is_some_and(|memory| memory.step == step);
        self.fleet.shows("large", step.as_str(), at).await;
    }

    async fn query(&self, words: &str) -> Answer {
        let query = Query::from(words.parse::<Question>().unwrap());
        self.fleet.hub.cache_of(pods()).send(query).await.unwrap().unwrap()
    }

    /// Waits until all or none of the large cluster's bodies are cached.
    async fn bodies(&self, kept: bool) {
        let all_are = async || {
            let snapshot = self.fleet.hub.cache_of(pods()).snapshot().await.unwrap();
            let large = snapshot.partitions().find(|(_, partition)| partition.origin().cluster.as_str() == "large");
            large.is_some_and(|(_, partition)| partition.iter().all(|object| object.is_kept() == kept))
        };
        eventually("the cached bodies", all_are).await;
    }

    /// Waits until the log contains these lines in this order.
    async fn logs(&self, lines: &[&str]) {
        let logs = async || {
            let log = self.log.lock();
            let mut logged = log.iter();
            lines.iter().all(|line| logged.any(|logged| logged == line))
        };
        let began = Instant::now();
        while !logs().await {
            assert!(began.elapsed() < PATIENCE, "timeout: {lines:?} in {:?}", self.log.lock());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn keys(&self) -> Vec<ObjectKey> {
        self.fleet.clusters["large"].truth(&pods().gvr).into_keys().collect()
    }

    fn relabel(&self, key: &ObjectKey) {
        let label = |world: &mut World| {
            world.update(&pods().gvr, key, |pod| pod["metadata"]["labels"]["touched"] = "yes".into())
        };
        self.fleet.clusters["large"].with_world(label).unwrap();
    }

    fn delete(&self, key: &ObjectKey) {
        self.fleet.clusters["large"].with_world(|world| world.delete(&pods().gvr, key)).unwrap();
    }

    /// Asserts that a cluster below its share keeps all objects in full.
    async fn assert_small_is_untouched(&self) {
        let memory = self.fleet.informer("small").await.memory.unwrap();
        assert_eq!((memory.step, memory.since), (MemoryStep::Full, None));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heads_only_cache_answers_selectors_and_indices_and_reports_missing_bodies() {
    let bed = Testbed::start(PATIENCE).await;
    let whole = bed.query("count by spec.nodeName").await;
    bed.limit_until(1_000_000, MemoryStep::Heads).await;
    bed.bodies(false).await;
    bed.assert_small_is_untouched().await;
    let report = bed.fleet.hub.report().await.unwrap().hub;
    let memory = report.memory.unwrap();
    assert!(report.ready && memory.limit == LIMIT && memory.short == 1 && memory.accounted > 0, "{memory:?}");
    let informer = bed.fleet.informer("large").await;
    assert_eq!((informer.state, informer.freshness), (Phase::Watching, Freshness::Synced));
    let shown = informer.memory.unwrap();
    assert!(
        shown.since.is_some() && shown.reason.unwrap().contains("its share of the memory limit is"),
        "{:?}",
        shown.since
    );

    let all = bed.query("").await;
    let steps: Vec<_> = all.coverage.iter().map(|part| (part.cluster.as_str(), part.memory)).collect();
    assert_eq!(steps, [("large", MemoryStep::Heads), ("small", MemoryStep::Full)]);
    assert_eq!((all.items.len(), all.is_complete(), all.unkept), (PODS.0 + PODS.1, true, 0));
    let bare = all.items.iter().find(|pod| pod.cluster().as_str() == "large").unwrap();
    let error = bare.json().unwrap_err();
    assert!(matches!(&error, DecodeError::NotKept { key } if *key == *bare.key()), "{error}");
    let by_node = |node: &str| Query::by_index("by-node", node).across_clusters();
    let nodes = bed.fleet.hub.cache_of(pods()).snapshot().await.unwrap();
    let nodes: Vec<SharedStr> = nodes.index_values("by-node").map(|(node, _)| node.clone()).collect();
    let mut indexed = 0_u64;
    for node in nodes {
        indexed += bed.fleet.hub.cache_of(pods()).send(by_node(&node)).await.unwrap().unwrap().items.len() as u64;
    }
    assert_eq!(indexed, whole.groups.iter().map(|group| group.count).sum::<u64>());
    let read = bed.query("spec.nodeName prefix \"n\" count").await;
    assert_eq!((read.unkept, read.is_complete()), (PODS.0 as u64, false));
    assert!(read.count.unwrap() <= PODS.1 as u64);
    bed.fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heads_only_cache_notifies_all_changes_and_restores_bodies_for_late_subscribers() {
    let bed = Testbed::start(PATIENCE).await;
    bed.limit_until(1_000_000, MemoryStep::Heads).await;
    bed.bodies(false).await;
    let keys = bed.keys();
    let (one, other) = (keys[0].name(), keys[1].name());
    bed.relabel(&keys[0]);
    bed.delete(&keys[1]);
    let new = bed.fleet.clusters["large"].with_world(World::create_pod).unwrap();
    bed.logs(&[&format!("{one} bare>{one}")]).await;
    bed.logs(&[&format!("-{other}")]).await;
    bed.logs(&[&format!("+{}", new.name())]).await;
    bed.fleet.converged().await;
    let late = subscribe(&bed.fleet, "late").await;
    eventually("the late subscriber has synced", async || late.lock().iter().any(|line| line == "synced")).await;
    assert!(late.lock().contains(&format!("!{one} bare")));

    bed.log.lock().clear();
    bed.limit(None).await;
    bed.bodies(true).await;
    bed.reaches(MemoryStep::Full).await;
    eventually("the late subscriber has bodies", async || late.lock().contains(&format!("{one} bare>{one}"))).await;
    bed.fleet.converged().await;
    assert_eq!(*bed.log.lock(), [""; 0], "earlier subscribers get no event");
    bed.fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paused_informer_is_stale_and_reports_missed_deletions_as_tombstones() {
    let bed = Testbed::start(PATIENCE).await;
    bed.limit_until(LIMIT * 95 / 100 - HEADS, MemoryStep::Paused).await;
    bed.assert_small_is_untouched().await;
    bed.fleet
        .shows("large", "paused", |informer| {
            informer.state == Phase::Paused && matches!(informer.freshness, Freshness::StaleSince { .. })
        })
        .await;
    eventually("the watch is closed", async || bed.fleet.clusters["large"].stats().open_watches == 0).await;
    assert!(bed.fleet.hub.report().await.unwrap().hub.ready, "a paused informer does not make the hub unready");
    let before = bed.log.lock().clone();
    let keys = bed.keys();
    let (one, other) = (keys[0].name(), keys[1].name());
    bed.delete(&keys[0]);
    bed.relabel(&keys[1]);
    let all = bed.query("count").await;
    assert_eq!(all.count, Some((PODS.0 + PODS.1) as u64), "the heads are unchanged");
    assert!(!all.is_complete());
    assert_eq!(*bed.log.lock(), before);

    bed.gauge.extra.store(0, Relaxed);
    bed.logs(&[&format!("†{one} bare")]).await;
    bed.logs(&[&format!("{other} bare>{other}")]).await;
    bed.fleet.converged().await;
    bed.limit(None).await;
    bed.bodies(true).await;
    bed.fleet.converged().await;
    assert_eq!(bed.log.lock().len(), before.len() + 2, "{:?}", bed.log.lock());
    bed.fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn released_partition_is_missing_without_deletion_events() {
    let bed = Testbed::start(Duration::from_millis(50)).await;
    bed.limit_until(LIMIT, MemoryStep::Released).await;
    let missing = |informer: &InformerStatus| {
        (informer.state, informer.freshness, informer.objects) == (Phase::Paused, Freshness::Missing, 0)
    };
    bed.fleet.shows("large", "released", missing).await;
    eventually("the cache is empty", async || bed.query("count").await.count <= Some(PODS.1 as u64)).await;
    let answer = bed.query("count").await;
    let large = &answer.coverage[0];
    assert_eq!(
        (large.cluster.as_str(), large.freshness, large.memory),
        ("large", Freshness::Missing, MemoryStep::Released)
    );
    assert_eq!(*bed.log.lock(), [""; 0]);

    bed.fleet.replica.lock().hub_restarted();
    bed.limit(None).await;
    bed.bodies(true).await;
    bed.logs(&["synced"]).await;
    bed.fleet.converged_on("large").await;
    let log = bed.log.lock().clone();
    let initial = log.iter().filter(|line| line.starts_with('!')).count();
    assert_eq!((initial, log.len()), (PODS.0, PODS.0 + 1), "each object once as an initial object");
    bed.fleet.end().await;
}
