//! Tests of client-go's shared informer behaviour that no other file covers: relists, resyncs, subscribers that are
//! added and removed under load, shutdown in every phase.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use actix::prelude::*;
use informer_hub::actors::messages::Unsubscribe;
use informer_hub::actors::{Subscribe, Subscriber};
use informer_hub_sim::{Churn, Fault, FaultScript, Rule, SimCluster, SimConfig, Streaming, When, World};
use informer_hub_types::{ClusterSelector, Notification, Notifications};
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use serde_json::json;
use tokio::runtime::Handle;

use crate::fleet::{Fleet, PATIENCE, eventually, small};
use crate::subscriptions::touch;

/// Longer than any test.
const DAY: Duration = Duration::from_secs(24 * 3600);

fn one(config: SimConfig) -> BTreeMap<String, SimCluster> {
    BTreeMap::from([("c00".to_owned(), SimCluster::start(config, &Handle::current()).unwrap())])
}

pub(crate) fn to_pods(subscriber: Subscriber<()>) -> Subscribe {
    Subscribe::to_configured("pods", ClusterSelector::All, subscriber)
}

/// Log of a subscriber's events: `!a` initial addition, `+a` addition, `~a` update, `=a` resync, `-a` deletion, `†a`
/// tombstone, `synced`.
pub(crate) type EventLog = Arc<Mutex<Vec<String>>>;

pub(crate) fn event_log() -> (EventLog, Subscriber<()>) {
    let log = EventLog::default();
    let events = Arc::clone(&log);
    let subscriber = Subscriber::from_fn(move |notification: &Notification<()>| {
        let (sign, object) = match notification {
            Notification::Added { object, initial: true } => ("!", object),
            Notification::Added { object, .. } => ("+", object),
            Notification::Updated { new, resync: true, .. } => ("=", new),
            Notification::Updated { new, .. } => ("~", new),
            Notification::Deleted { object, tombstone: false } => ("-", object),
            Notification::Deleted { object, .. } => ("†", object),
            Notification::Synced(_) => return events.lock().push("synced".to_owned()),
        };
        events.lock().push(format!("{sign}{}", object.name()));
    });
    (log, subscriber)
}

// client-go: TestSharedInformerWatchDisruption, TestResetWatch. On a relist, client-go notifies every handler of every
// object, even without a resync period (kubernetes#119646).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relist_notifies_each_change_once_and_nothing_else() {
    for streaming in [Streaming::Supported, Streaming::Refused] {
        let mut fleet = Fleet::start(one(SimConfig { streaming, ..small(1, 20) }), &["pods"], Vec::new()).await;
        let (events, subscriber) = event_log();
        fleet.hub.registry().send(to_pods(subscriber)).await.unwrap();
        eventually("the initial objects", async || events.lock().len() == 21).await;
        fleet.first().stop().await;
        let pods = World::pods();
        let [changed, deleted, recreated, created] = fleet.clusters["c00"].with_world(|world| {
            let keys: Vec<_> = world.objects(&pods).map(|pod| pod.key().clone()).take(3).collect();
            world.patch(&pods, &keys[0], &json!({ "status": { "observedGeneration": 1 } })).unwrap();
            world.delete(&pods, &keys[1]).unwrap();
            world.recreate(&pods, &keys[2]).unwrap();
            let created = world.create_pod().unwrap();
            world.compact();
            [keys[0].clone(), keys[1].clone(), keys[2].clone(), created]
        });
        fleet.first().restart().await;
        fleet.converged().await;
        touch(&fleet.clusters["c00"]);
        eventually("the later events", async || events.lock().len() == 27).await;
        fleet.converged().await;
        let mut later_events = events.lock()[21..].to_vec();
        let last = later_events.pop().unwrap();
        later_events.sort();
        let mut expected = vec![
            format!("~{}", changed.name()),
            format!("†{}", deleted.name()),
            format!("†{}", recreated.name()),
            format!("+{}", recreated.name()),
            format!("+{}", created.name()),
        ];
        expected.sort();
        assert_eq!(later_events, expected);
        assert!(last.starts_with('~'), "{last}");
        fleet.end().await;
    }
}

// client-go: TestReflectorResyncChan, TestReflectorResync, TestListenerResyncPeriods, TestResyncCheckPeriod.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resync_repeats_to_requesting_subscribers_without_apiserver_requests() {
    let fleet = Fleet::start(one(small(1, 5)), &["pods"], Vec::new()).await;
    let periods = [Some(Duration::from_millis(1)), Some(DAY), None];
    let mut all = Vec::new();
    for period in periods {
        let (events, subscriber) = event_log();
        let subscribe = to_pods(subscriber);
        let subscribe = match period {
            Some(period) => subscribe.with_resync(period),
            None => subscribe,
        };
        fleet.hub.registry().send(subscribe).await.unwrap();
        all.push(events);
    }
    eventually("the initial objects", async || all.iter().all(|events| events.lock().len() >= 6)).await;
    let (before, begun) = (fleet.clusters["c00"].stats(), Instant::now());
    eventually("two repetitions", async || all[0].lock().len() >= 16).await;
    assert!(begun.elapsed() >= Duration::from_secs(1), "a period is at least one second");
    let repeated = all[0].lock()[6..16].to_vec();
    for round in repeated.chunks(5) {
        let mut round = round.to_vec();
        round.sort();
        let mut pods: Vec<_> = all[1].lock()[..5].iter().map(|word| word.replace('!', "=")).collect();
        pods.sort();
        assert_eq!(round, pods);
    }
    for others in &all[1..] {
        assert_eq!(others.lock().len(), 6, "no resync within a day or without a period");
    }
    let after = fleet.clusters["c00"].stats();
    assert_eq!((after.lists, after.watches, after.streaming), (before.lists, before.watches, before.streaming));
    fleet.end().await;
}

/// Actor that counts pod notifications.
struct Counter(Arc<AtomicUsize>);

impl Actor for Counter {
    type Context = Context<Self>;
}

impl Handler<Notifications<Pod>> for Counter {
    type Result = ();

    fn handle(&mut self, batch: Notifications<Pod>, _: &mut Self::Context) {
        self.0.fetch_add(batch.0.len(), SeqCst);
    }
}

// client-go: TestSharedInformerMultipleRegistration.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscribing_twice_creates_two_subscriptions() {
    let fleet = Fleet::start(one(small(1, 5)), &["pods"], Vec::new()).await;
    let count = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    let counter = Counter::start_in_arbiter(fleet.hub.system().env().arbiter(), |_| Counter(counter));
    let registry = fleet.hub.registry();
    let mut ids = Vec::new();
    for times in 1..=2 {
        let to_pods = Subscribe::to::<Pod>(ClusterSelector::All, counter.clone().recipient::<Notifications<Pod>>());
        ids.push(registry.send(to_pods).await.unwrap());
        eventually("the initial objects", async || count.load(SeqCst) == 6 * times).await;
    }
    assert_ne!(ids[0], ids[1]);
    touch(&fleet.clusters["c00"]);
    eventually("the change twice", async || count.load(SeqCst) == 14).await;
    registry.send(Unsubscribe(ids[0])).await.unwrap();
    touch(&fleet.clusters["c00"]);
    eventually("the change once", async || count.load(SeqCst) == 15).await;
    fleet.converged().await;
    assert_eq!(count.load(SeqCst), 15);
    fleet.end().await;
}

// client-go: TestSharedInformerHandlerAbuse, TestSharedInformerInitializationRace, TestHammerController.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscribers_added_and_removed_under_load_disturb_no_other() {
    let clusters: BTreeMap<_, _> =
        (0..3).map(|i| (format!("c{i:02}"), SimCluster::start(small(i, 30), &Handle::current()).unwrap())).collect();
    let fleet = Fleet::start(clusters, &["pods"], Vec::new()).await;
    let begun = Instant::now();
    // Starts before anything has synced.
    let users: Vec<_> = (0..8_usize)
        .map(|user| {
            let registry = fleet.hub.registry().clone();
            tokio::spawn(async move {
                for round in 0..20_usize {
                    let events = Arc::new(AtomicUsize::new(0));
                    let counter = Arc::clone(&events);
                    let subscriber = Subscriber::from_fn(move |_: &Notification<()>| {
                        let number = counter.fetch_add(1, SeqCst);
                        assert!(!(user == 0 && number == 3), "on purpose");
                    });
                    let id = registry.send(to_pods(subscriber)).await.unwrap();
                    if (user + round).is_multiple_of(2) {
                        while events.load(SeqCst) <= 30 {
                            assert!(begun.elapsed() < PATIENCE, "timeout: the initial objects");
                            tokio::time::sleep(Duration::from_millis(2)).await;
                        }
                    }
                    registry.send(Unsubscribe(id)).await.unwrap();
                    let after = events.load(SeqCst);
                    tokio::task::yield_now().await;
                    assert_eq!(events.load(SeqCst), after, "no event after the unsubscription is answered");
                }
            })
        })
        .collect();
    let mut churn = Churn::new(5);
    while users.iter().any(|user| !user.is_finished()) {
        for cluster in fleet.clusters.values() {
            cluster.with_world(|world| churn.step(world));
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    for user in users {
        user.await.unwrap();
    }
    fleet.converged().await;
    for name in fleet.clusters.keys() {
        let informer = fleet.informer(name).await;
        assert_eq!((informer.restarts, informer.listeners.len()), (0, 1), "{name}");
    }
    // Also subscribes during the shutdown: a late subscription fails.
    let registry = fleet.hub.registry().clone();
    let late = tokio::spawn(async move {
        while let Ok(id) = registry.send(to_pods(event_log().1)).await {
            if registry.send(Unsubscribe(id)).await.is_err() {
                break;
            }
        }
    });
    fleet.end().await;
    late.await.unwrap();
}

async fn ends_in_time(fleet: Fleet, when: &str) {
    let Fleet { hub, clusters, .. } = fleet;
    let begun = Instant::now();
    let report = hub.shutdown(Duration::from_secs(5)).await;
    assert!(begun.elapsed() < Duration::from_secs(10), "{when}: {:?}", begun.elapsed());
    assert_eq!(report.actors_left, 0, "{when}");
    for cluster in clusters.values() {
        eventually(when, async || cluster.stats().open_connections == 0).await;
    }
}

// client-go: TestShutdown, TestReflectorStopWatch, TestReflectorWatchStoppedBefore,
// TestReflectorHandleWatchStoppedAfter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hub_shuts_down_in_time_in_every_phase() {
    let fleet = Fleet::start(one(small(1, 20)), &["pods"], Vec::new()).await;
    ends_in_time(fleet, "at once").await;
    for (when, after, streaming) in [
        (When::Discovery, 0, Streaming::Supported),
        (When::List, 0, Streaming::Refused),
        (When::List, 10, Streaming::Refused),
        (When::Watch, 0, Streaming::Supported),
        (When::Streaming, 10, Streaming::Supported),
        (When::Watch, 0, Streaming::Refused),
    ] {
        let clusters = one(SimConfig { streaming, ..small(1, 20) });
        let stall = Rule::new(when, Fault::Stall(DAY)).after(after).times(usize::MAX);
        clusters["c00"].set_faults(FaultScript::one(stall));
        let fleet = Fleet::start(clusters, &["pods"], Vec::new()).await;
        eventually("the stall", async || !fleet.clusters["c00"].fault_log().is_empty()).await;
        ends_in_time(fleet, &format!("{when:?} silent after {after}")).await;
    }
    let fleet = Fleet::start(one(small(1, 20)), &["pods"], Vec::new()).await;
    fleet.converged().await;
    let mut churn = Churn::new(1);
    fleet.clusters["c00"].with_world(|world| {
        for _ in 0..500 {
            churn.step(world);
        }
    });
    ends_in_time(fleet, "amid events").await;
}

// A blocked thread cannot be ended, but everything that waits for it can.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sleeping_handler_blocks_neither_others_nor_shutdown() {
    let fleet = Fleet::start(one(small(1, 20)), &["pods"], Vec::new()).await;
    fleet.converged().await;
    let (wake, sleep) = mpsc::channel::<()>();
    let asleep = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asleep);
    let sleeper = Subscriber::from_fn(move |_: &Notification<()>| {
        counter.fetch_add(1, SeqCst);
        let _ = sleep.recv_timeout(Duration::from_secs(3600));
    });
    fleet.hub.registry().send(to_pods(sleeper).named("sleeper")).await.unwrap();
    eventually("it to sleep", async || asleep.load(SeqCst) == 1).await;
    for _ in 0..3 {
        touch(&fleet.clusters["c00"]);
        fleet.converged().await;
    }
    let (events, subscriber) = event_log();
    fleet.hub.registry().send(to_pods(subscriber)).await.unwrap();
    eventually("the state of a late subscriber", async || events.lock().len() == 21).await;
    let begun = Instant::now();
    let Fleet { hub, .. } = fleet;
    let report = hub.shutdown(Duration::from_secs(2)).await;
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    assert_eq!((report.actors_left, asleep.load(SeqCst)), (0, 1));
    drop(wake);
}
