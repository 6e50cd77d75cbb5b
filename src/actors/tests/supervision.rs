//! Supervision tests: crashes of each kind of actor while clusters change.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::actors::control::messages::{FindSubscription, RemoveCluster};
use crate::actors::subscribe::requests::Unsubscribe;
use crate::actors::tests::fleet::{Fleet, PATIENCE, pods, quick, small};
use crate::actors::tests::{Crash, CrashIn, Victim};
use crate::actors::{ClusterState, DiscoveryState, InformerStatus, Subscribe, Subscriber, Tuning};
use informer_hub_sim::oracle::{Oracle, Replica};
use informer_hub_sim::{Churn, ResourceDef, SimCluster, World};
use informer_hub_types::{ClusterSelector, Notification, Phase, View};

const NAMES: [&str; 2] = ["left", "right"];

async fn fleet(tuning: Tuning) -> Fleet {
    let start =
        |(name, seed): (&str, u64)| (name.to_owned(), SimCluster::start(small(seed, 30), &Handle::current()).unwrap());
    let clusters: BTreeMap<_, _> = NAMES.into_iter().zip(1..).map(start).collect();
    let fleet = Fleet::start_with(clusters, &["pods"], Vec::new(), tuning).await;
    fleet.synced().await;
    fleet
}

struct Churns(Vec<Churn>);

impl Churns {
    fn new() -> Self {
        Self((1..=NAMES.len() as u64).map(Churn::new).collect())
    }

    fn step(&mut self, fleet: &Fleet, steps: usize) {
        for (cluster, churn) in fleet.clusters.values().zip(&mut self.0) {
            for _ in 0..steps {
                cluster.with_world(|world| churn.step(world));
            }
        }
    }
}

/// Crashes every actor of a kind `crashes` times while the clusters change, below the restart intensity.
async fn crash_repeatedly(victim: Victim, crashes: usize) -> Fleet {
    let fleet = fleet(quick()).await;
    let mut churns = Churns::new();
    for _ in 0..crashes {
        churns.step(&fleet, 20);
        fleet.hub.registry().do_send(Crash(victim));
        churns.step(&fleet, 20);
        fleet.converged_on("left").await;
        fleet.converged_on("right").await;
    }
    for name in NAMES {
        let informer = fleet.informer(name).await;
        assert!(informer.restarts >= crashes as u64, "{name}: {} restarts of the {victim:?}", informer.restarts);
    }
    fleet
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_reflector_loses_and_repeats_no_event() {
    let fleet = crash_repeatedly(Victim::Reflector, 3).await;
    fleet.converged().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_fifo_recovers_its_queue_by_listing() {
    let fleet = crash_repeatedly(Victim::Fifo, 3).await;
    fleet.converged().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_processor_delivers_every_batch_once() {
    let fleet = crash_repeatedly(Victim::Processor, 3).await;
    fleet.converged().await;
    fleet.end().await;
}

/// The listener may deliver its last batch twice, so only the final state is compared.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_listener_delivers_the_batch_of_its_predecessor() {
    crash_repeatedly(Victim::Listener, 3).await.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_informer_stops_its_children_and_continues() {
    let fleet = fleet(quick()).await;
    let mut churns = Churns::new();
    for _ in 0..2 {
        churns.step(&fleet, 20);
        fleet.hub.registry().do_send(Crash(Victim::Informer));
        churns.step(&fleet, 20);
        fleet.converged_on("left").await;
        fleet.converged_on("right").await;
    }
    wait_for_single_watches(&fleet).await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_cluster_stops_its_informers_and_continues() {
    let fleet = fleet(quick()).await;
    let mut churns = Churns::new();
    for _ in 0..2 {
        churns.step(&fleet, 20);
        fleet.hub.registry().do_send(Crash(Victim::Cluster));
        churns.step(&fleet, 20);
        fleet.converged_on("left").await;
        fleet.converged_on("right").await;
    }
    wait_for_single_watches(&fleet).await;
    for name in NAMES {
        assert!(fleet.informer(name).await.synced, "a synced informer stays synced");
    }
    fleet.end().await;
}

/// Waits until one watch per cluster is open at the server, so no earlier incarnation is still watching.
async fn wait_for_single_watches(fleet: &Fleet) {
    for (name, cluster) in &fleet.clusters {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
        while cluster.stats().open_watches != 1 {
            assert!(tokio::time::Instant::now() < deadline, "{name} has {} watches open", cluster.stats().open_watches);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_cache_keeps_its_published_snapshot() {
    let fleet = fleet(quick()).await;
    let mut churns = Churns::new();
    for _ in 0..3 {
        churns.step(&fleet, 20);
        fleet.hub.system().env().caches.of(&pods(), &View::Shared).do_send(Crash(Victim::Processor));
        churns.step(&fleet, 20);
        fleet.converged().await;
    }
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn degraded_informer_recovers_and_other_clusters_are_not_affected() {
    let fleet = fleet(Tuning { degraded_rest: Duration::from_secs(1), ..quick() }).await;
    let right_replica = Arc::new(Mutex::new(Replica::new()));
    let replica = Arc::clone(&right_replica);
    let subscriber =
        Subscriber::<()>::from_fn(move |notification: &Notification<()>| replica.lock().apply(notification));
    let right = ClusterSelector::Names(vec!["right".parse().unwrap()]);
    let subscribe = Subscribe::to_configured("pods", right, subscriber);
    fleet.hub.registry().send(subscribe).await.unwrap();
    let lists = fleet.informer("right").await.lists;
    let left = fleet.hub.registry().clone();
    let mut churns = Churns::new();
    // A restarted reflector is crashed again immediately.
    let state = async || fleet.cluster("left").await.state;
    for crash in 0.. {
        assert!(crash < 10_000, "the informer was never degraded");
        left.do_send(CrashIn("left", Crash(Victim::Reflector)));
        if state().await == ClusterState::Degraded {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    churns.step(&fleet, 50);
    fleet.converged_on("right").await;
    assert_eq!(fleet.cluster("right").await.state, ClusterState::Connected);
    assert_eq!(fleet.informer("right").await.lists, lists, "the other cluster was affected");
    fleet.converged_on("left").await;
    assert_eq!(state().await, ClusterState::Connected);
    let expected = fleet.clusters["right"].truth(&pods().gvr);
    assert!(Oracle::diff(&expected, &right_replica.lock().seen_of("right/")).is_empty());
    assert_eq!(right_replica.lock().violations(), &[] as &[String]);
    fleet.end().await;
}

/// Removes and re-adds a definition, which only discovery can detect.
async fn check_definitions_are_followed(fleet: &Fleet, name: &str, version: &str) {
    let cluster = &fleet.clusters[name];
    let widgets = World::widgets();
    cluster.with_world(|world| world.undefine(&widgets));
    wait_for_widgets(fleet, name, "absent", |it| it.state == Phase::Absent && it.objects == 0).await;
    cluster.with_world(|world| {
        world.register(ResourceDef::new(&widgets, "Widget", true, true));
        world.create_widget(version).unwrap();
    });
    wait_for_widgets(fleet, name, "watched", |it| it.state == Phase::Watching && it.objects == 1).await;
}

async fn wait_for_widgets(fleet: &Fleet, name: &str, what: &str, wanted: impl Fn(&InformerStatus) -> bool) {
    let are =
        async || fleet.cluster(name).await.informers.iter().any(|it| it.resource.starts_with("widgets") && wanted(it));
    fleet.eventually(what, are).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_discovery_continues_and_informers_are_not_affected() {
    let start =
        |(name, seed): (&str, u64)| (name.to_owned(), SimCluster::start(small(seed, 5), &Handle::current()).unwrap());
    let clusters: BTreeMap<_, _> = NAMES.into_iter().zip(1..).map(start).collect();
    let fleet = Fleet::start(clusters, &["pods", "widgets.example.com"], Vec::new()).await;
    fleet.synced().await;
    let follows = async |name: &str| {
        let state = fleet.cluster(name).await.discovery.map(|it| it.state);
        state == Some(DiscoveryState::Watching)
    };
    for name in NAMES {
        fleet.eventually("discovery", async || follows(name).await).await;
    }
    let lists = fleet.informer("left").await.lists;
    for crash in 0..3 {
        let signals = fleet.clusters["left"].stats().signals;
        fleet.hub.registry().do_send(CrashIn("left", Crash(Victim::Discovery)));
        // The successor lists and watches definitions and API services again.
        let again = async || fleet.clusters["left"].stats().signals > signals;
        fleet.eventually("another one", again).await;
        check_definitions_are_followed(&fleet, "left", &format!("after-{crash}")).await;
        assert!(follows("left").await);
    }
    let left = fleet.informer("left").await;
    assert_eq!((left.lists, left.restarts), (lists, 0), "informers were affected");
    assert_eq!(fleet.cluster("left").await.state, ClusterState::Connected);
    check_definitions_are_followed(&fleet, "right", "unharmed").await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscribe_is_answered_once_every_running_informer_has_joined() {
    let fleet = fleet(quick()).await;
    let registry = fleet.hub.registry();
    let cache = fleet.hub.system().env().caches.published(&pods().gvr, &View::Shared).unwrap();
    let partitions: Vec<_> = cache.partitions().map(|(id, it)| (id, Arc::clone(it.origin()))).collect();
    assert_eq!(partitions.len(), NAMES.len());
    for _ in 0..50 {
        let subscriber = Subscriber::<()>::from_fn(|_: &Notification<()>| {});
        let subscribe = Subscribe::to_configured("pods", ClusterSelector::All, subscriber);
        let id = registry.send(subscribe).await.unwrap();
        let subscription = registry.send(FindSubscription(id)).await.unwrap().unwrap();
        for (partition, origin) in &partitions {
            let inbox = subscription.known_inbox_at(origin);
            assert!(inbox.is_some_and(|inbox| inbox.has_joined(*partition)), "{} has not joined", origin.cluster);
        }
        registry.send(Unsubscribe(id)).await.unwrap();
    }
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn registry_death_stops_all_actors_and_completes_ended() {
    let fleet = fleet(quick()).await;
    let actor_count = fleet.hub.system().env().actor_count.clone();
    let ended = fleet.hub.system().ended();
    fleet.hub.registry().do_send(Crash(Victim::Registry));
    tokio::time::timeout(Duration::from_secs(20), ended).await.unwrap();
    assert!(fleet.hub.report().await.is_err(), "the report fails");
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    // The cache has no supervisor; it stays available for queries.
    while actor_count.running() > 1 {
        assert!(tokio::time::Instant::now() < deadline, "{} actors still run", actor_count.running());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removed_cluster_drops_objects_of_dead_informers() {
    let fleet = fleet(Tuning { degraded_rest: PATIENCE * 10, ..quick() }).await;
    let registry = fleet.hub.registry().clone();
    while fleet.cluster("left").await.state != ClusterState::Degraded {
        registry.do_send(CrashIn("left", Crash(Victim::Reflector)));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // The crashes exceed the restart intensity, so the restart is delayed.
    for _ in 0..20 {
        registry.do_send(CrashIn("right", Crash(Victim::Cluster)));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for name in NAMES {
        assert!(!fleet.cached(name).await.is_empty());
        registry.send(RemoveCluster(name.parse().unwrap())).await.unwrap().unwrap();
        assert!(fleet.cached(name).await.is_empty(), "{name} was removed and is still in answers");
    }
    fleet.end().await;
}
