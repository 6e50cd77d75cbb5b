//! A memory limit, with a gauge that shows what the test wants: each step down and up, and what is told meanwhile.

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

/// Of the large cluster and of the small one.
const PODS: (usize, usize) = (1_000, 40);

/// Bytes that the large cluster's heads are taken for, and a limit that holds them and not the bodies.
const HEADS: u64 = 560 * PODS.0 as u64;
const LIMIT: u64 = 2_000_000;

/// Says what is accounted, and what the test adds to that.
#[derive(Debug, Default)]
struct Scales {
    more: AtomicU64,
    budget: OnceLock<Budget>,
}

impl Gauge for Scales {
    fn resident(&self) -> Option<u64> {
        let accounted = self.budget.get().map_or(0, Budget::accounted);
        Some(self.more.load(Relaxed) + accounted)
    }
}

/// What a subscriber was told of the large cluster, with whether the states' bodies could be read.
type Diary = Arc<Mutex<Vec<String>>>;

struct Hall {
    fleet: Fleet,
    scales: Arc<Scales>,
    diary: Diary,
}

fn entry(notification: &Notification) -> Option<String> {
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

async fn subscribe(fleet: &Fleet, name: &str) -> Diary {
    let diary = Diary::default();
    let pages = Arc::clone(&diary);
    let subscriber = Subscriber::from_fn(move |notification: &Notification| pages.lock().extend(entry(notification)));
    let subscribe = Subscribe::to_configured("pods", ClusterSelector::All, subscriber).named(name);
    fleet.hub.registry().send(subscribe).await.unwrap();
    diary
}

/// Gives each pod 2 KB that do not compress.
fn add_noise(world: &mut World, seed: u64) {
    let mut state = seed;
    let mut letter = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'0' + (state >> 58) as u8)
    };
    let keys: Vec<_> = world.truth(&pods().gvr).into_keys().collect();
    for key in keys {
        // Of letters from `0` to `o`, among which is one that JSON escapes.
        let noise: String = (0..2_000).map(|_| letter()).filter(|letter| *letter != '\\').collect();
        world.update(&pods().gvr, &key, |pod| pod["spec"]["noise"] = noise.into()).unwrap();
    }
}

impl Hall {
    async fn open(pause: Duration) -> Self {
        let cluster = |seed, pods| {
            let world = WorldConfig { seed, pods, ..WorldConfig::default() };
            let cluster = SimCluster::start(SimConfig { world, ..SimConfig::default() }, &Handle::current()).unwrap();
            cluster.with_world(|world| add_noise(world, seed));
            cluster
        };
        let clusters =
            BTreeMap::from([("large".to_owned(), cluster(1, PODS.0)), ("small".to_owned(), cluster(2, PODS.1))]);
        let scales = Arc::new(Scales::default());
        let wait = Duration::from_millis(100);
        let pace = Pace { wait, settle: Duration::from_secs(1), pause, ..Pace::default() };
        let memory = MemoryTuning { look: Duration::from_millis(20), pace, gauge: Arc::<Scales>::clone(&scales) };
        let config = config(&clusters, &["pods"]);
        let fleet = Fleet::start_config(clusters, config, Tuning { memory, ..quick() }).await;
        scales.budget.set(fleet.hub.system().env().budget.clone()).unwrap();
        let diary = subscribe(&fleet, "diary").await;
        fleet.synced().await;
        fleet.converged().await;
        let hall = Self { fleet, scales, diary };
        hall.diary.lock().clear();
        hall
    }

    /// Sets a limit at which the large cluster comes to a step, and waits for that.
    async fn press(&self, more: u64, step: MemoryStep) {
        self.scales.more.store(more, Relaxed);
        self.limit(Some(LIMIT)).await;
        self.comes_to(step).await;
    }

    async fn limit(&self, limit: Option<u64>) {
        self.fleet.hub.registry().send(SetMemoryLimit(limit)).await.unwrap();
    }

    async fn comes_to(&self, step: MemoryStep) {
        let at = |informer: &InformerStatus| informer.memory.as_ref().is_some_and(|memory| memory.step == step);
        self.fleet.shows("large", step.as_str(), at).await;
    }

    async fn ask(&self, words: &str) -> Answer {
        let query = Query::from(words.parse::<Question>().unwrap());
        self.fleet.hub.cache_of(pods()).send(query).await.unwrap().unwrap()
    }

    /// Waits until all or none of the large cluster's bodies are in the cache.
    async fn bodies(&self, kept: bool) {
        let all_are = async || {
            let snapshot = self.fleet.hub.cache_of(pods()).snapshot().await.unwrap();
            let large = snapshot.partitions().find(|(_, partition)| partition.origin().cluster.as_str() == "large");
            large.is_some_and(|(_, partition)| partition.iter().all(|object| object.is_kept() == kept))
        };
        eventually("the bodies are as they should be", all_are).await;
    }

    /// Waits until the diary has these lines, in this order.
    async fn tells(&self, lines: &[&str]) {
        let tells = async || {
            let diary = self.diary.lock();
            let mut told = diary.iter();
            lines.iter().all(|line| told.any(|told| told == line))
        };
        let began = Instant::now();
        while !tells().await {
            assert!(began.elapsed() < PATIENCE, "never told {lines:?}, but {:?}", self.diary.lock());
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

    /// Who uses less than its share is left alone.
    async fn small_is_untouched(&self) {
        let memory = self.fleet.informer("small").await.memory.unwrap();
        assert_eq!((memory.step, memory.since), (MemoryStep::Full, None));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_heads_alone_selectors_and_indices_work_and_what_needs_a_body_says_that_it_is_not_kept() {
    let hall = Hall::open(PATIENCE).await;
    let whole = hall.ask("count by spec.nodeName").await;
    hall.press(1_000_000, MemoryStep::Heads).await;
    hall.bodies(false).await;
    hall.small_is_untouched().await;
    let report = hall.fleet.hub.report().await.unwrap().hub;
    let memory = report.memory.unwrap();
    assert!(report.ready && memory.limit == LIMIT && memory.short == 1 && memory.accounted > 0, "{memory:?}");
    let informer = hall.fleet.informer("large").await;
    assert_eq!((informer.state, informer.freshness), (Phase::Watching, Freshness::Synced));
    let shown = informer.memory.unwrap();
    assert!(shown.since.is_some() && shown.reason.unwrap().contains("with a share of"), "{:?}", shown.since);

    let all = hall.ask("").await;
    let steps: Vec<_> = all.coverage.iter().map(|part| (part.cluster.as_str(), part.memory)).collect();
    assert_eq!(steps, [("large", MemoryStep::Heads), ("small", MemoryStep::Full)]);
    assert_eq!((all.items.len(), all.is_complete(), all.unkept), (PODS.0 + PODS.1, true, 0));
    let bare = all.items.iter().find(|pod| pod.cluster().as_str() == "large").unwrap();
    let error = bare.json().unwrap_err();
    assert!(matches!(&error, DecodeError::NotKept { key } if *key == *bare.key()), "{error}");
    let by_node = |node: &str| Query::by_index("by-node", node).across_clusters();
    let nodes = hall.fleet.hub.cache_of(pods()).snapshot().await.unwrap();
    let nodes: Vec<SharedStr> = nodes.index_values("by-node").map(|(node, _)| node.clone()).collect();
    let mut indexed = 0_u64;
    for node in nodes {
        indexed += hall.fleet.hub.cache_of(pods()).send(by_node(&node)).await.unwrap().unwrap().items.len() as u64;
    }
    assert_eq!(indexed, whole.groups.iter().map(|group| group.count).sum::<u64>());
    let read = hall.ask("spec.nodeName prefix \"n\" count").await;
    assert_eq!((read.unkept, read.is_complete()), (PODS.0 as u64, false));
    assert!(read.count.unwrap() <= PODS.1 as u64);
    hall.fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_heads_alone_listeners_are_told_everything_and_bodies_come_back_to_who_came_late() {
    let hall = Hall::open(PATIENCE).await;
    hall.press(1_000_000, MemoryStep::Heads).await;
    hall.bodies(false).await;
    let keys = hall.keys();
    let (one, other) = (keys[0].name(), keys[1].name());
    hall.relabel(&keys[0]);
    hall.delete(&keys[1]);
    let new = hall.fleet.clusters["large"].with_world(World::create_pod).unwrap();
    hall.tells(&[&format!("{one} bare>{one}")]).await;
    hall.tells(&[&format!("-{other}")]).await;
    hall.tells(&[&format!("+{}", new.name())]).await;
    hall.fleet.converged().await;
    let late = subscribe(&hall.fleet, "late").await;
    eventually("the late one has synced", async || late.lock().iter().any(|line| line == "synced")).await;
    assert!(late.lock().contains(&format!("!{one} bare")));

    hall.diary.lock().clear();
    hall.limit(None).await;
    hall.bodies(true).await;
    hall.comes_to(MemoryStep::Full).await;
    eventually("the late one has bodies", async || late.lock().contains(&format!("{one} bare>{one}"))).await;
    hall.fleet.converged().await;
    assert_eq!(*hall.diary.lock(), [""; 0], "for who has been there, nothing has changed");
    hall.fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_paused_it_is_stale_and_what_was_deleted_meanwhile_is_a_tombstone_afterwards() {
    let hall = Hall::open(PATIENCE).await;
    hall.press(LIMIT * 95 / 100 - HEADS, MemoryStep::Paused).await;
    hall.small_is_untouched().await;
    hall.fleet
        .shows("large", "that it does not watch", |informer| {
            informer.state == Phase::Paused && matches!(informer.freshness, Freshness::StaleSince { .. })
        })
        .await;
    eventually("the watch is closed", async || hall.fleet.clusters["large"].stats().open_watches == 0).await;
    assert!(hall.fleet.hub.report().await.unwrap().hub.ready, "what waiting does not mend is not waited for");
    let before = hall.diary.lock().clone();
    let keys = hall.keys();
    let (one, other) = (keys[0].name(), keys[1].name());
    hall.delete(&keys[0]);
    hall.relabel(&keys[1]);
    let all = hall.ask("count").await;
    assert_eq!(all.count, Some((PODS.0 + PODS.1) as u64), "heads are there as they were");
    assert!(!all.is_complete());
    assert_eq!(*hall.diary.lock(), before);

    hall.scales.more.store(0, Relaxed);
    hall.tells(&[&format!("†{one} bare")]).await;
    hall.tells(&[&format!("{other} bare>{other}")]).await;
    hall.fleet.converged().await;
    hall.limit(None).await;
    hall.bodies(true).await;
    hall.fleet.converged().await;
    assert_eq!(hall.diary.lock().len(), before.len() + 2, "{:?}", hall.diary.lock());
    hall.fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_released_is_missing_and_nobody_is_told_that_it_was_deleted() {
    let hall = Hall::open(Duration::from_millis(50)).await;
    hall.press(LIMIT, MemoryStep::Released).await;
    let gone = |informer: &InformerStatus| {
        (informer.state, informer.freshness, informer.objects) == (Phase::Paused, Freshness::Missing, 0)
    };
    hall.fleet.shows("large", "that nothing is there", gone).await;
    eventually("the cache is empty", async || hall.ask("count").await.count <= Some(PODS.1 as u64)).await;
    let answer = hall.ask("count").await;
    let large = &answer.coverage[0];
    assert_eq!(
        (large.cluster.as_str(), large.freshness, large.memory),
        ("large", Freshness::Missing, MemoryStep::Released)
    );
    assert_eq!(*hall.diary.lock(), [""; 0]);

    hall.fleet.replica.lock().hub_restarted();
    hall.limit(None).await;
    hall.bodies(true).await;
    hall.tells(&["synced"]).await;
    hall.fleet.converged_on("large").await;
    let diary = hall.diary.lock().clone();
    let initial = diary.iter().filter(|line| line.starts_with('!')).count();
    assert_eq!((initial, diary.len()), (PODS.0, PODS.0 + 1), "each once more as an initial object");
    hall.fleet.end().await;
}
