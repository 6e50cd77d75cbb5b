//! Tests of subscriptions: delivery, isolation between subscribers, shared informers, shutdown.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use actix::prelude::*;
use informer_hub::Query;
use informer_hub::actors::messages::RegistryError;
use informer_hub::actors::messages::{
    AddCluster, InformerFor, Release, RemoveCluster, ResourceRequest, Shutdown, Unsubscribe, User, WaitForCacheSync,
};
use informer_hub::actors::{ListenerStatus, Subscribe, Subscriber};
use informer_hub_sim::oracle::{Oracle, Replica};
use informer_hub_sim::{Churn, Fault, FaultScript, GroundTruth, Rule, SimCluster, SimConfig, Streaming, When, World};
use informer_hub_source::{Access, KubeConnector};
use informer_hub_types::{ClusterName, ClusterSelector, Notification, Notifications, Scope};
use k8s_openapi::api::core::v1::{Node, Pod};
use parking_lot::Mutex;
use serde_json::json;
use tokio::runtime::Handle;

use crate::fleet::{Fleet, PATIENCE, eventually, pods, quick, small};

fn sim(seed: u64, pods: usize) -> SimCluster {
    SimCluster::start(small(seed, pods), &Handle::current()).unwrap()
}

fn clusters(count: u64, pods: usize) -> BTreeMap<String, SimCluster> {
    (0..count).map(|i| (format!("c{i:02}"), sim(i, pods))).collect()
}

fn everywhere() -> ClusterSelector {
    ClusterSelector::All
}

fn replica() -> (Arc<Mutex<Replica>>, Subscriber<()>) {
    let replica = Arc::new(Mutex::new(Replica::new()));
    let events = Arc::clone(&replica);
    let subscriber = Subscriber::from_fn(move |notification: &Notification<()>| events.lock().apply(notification));
    (replica, subscriber)
}

fn subscribe(subscriber: impl Into<Subscriber<()>>) -> Subscribe {
    Subscribe::to_configured("pods", everywhere(), subscriber)
}

/// Waits until a replica equals the pods of a cluster.
async fn converges(replica: &Mutex<Replica>, cluster: &SimCluster, name: &str) {
    let is = async || Oracle::diff(&cluster.truth(&World::pods()), &replica.lock().seen_of(&format!("{name}/")));
    eventually("the expected state", async || is().await.is_empty()).await;
    assert_eq!(replica.lock().violations(), &[] as &[String]);
}

pub(crate) fn touch(cluster: &SimCluster) {
    cluster.with_world(|world| {
        let key = world.objects(&World::pods()).next().unwrap().key().clone();
        let body = json!({ "status": { "observedGeneration": world.version() } });
        world.patch(&World::pods(), &key, &body).unwrap();
    });
}

async fn listener(fleet: &Fleet, cluster: &str, name: &str) -> ListenerStatus {
    fleet.informer(cluster).await.listeners.into_iter().find(|listener| listener.name == name).unwrap()
}

/// Creates a closure that waits for its gate before each notification and then counts it.
fn gated() -> (mpsc::Sender<()>, Arc<AtomicUsize>, Subscriber<()>) {
    let (open, gate) = mpsc::channel::<()>();
    let count = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    let subscriber = Subscriber::from_fn(move |_: &Notification<()>| {
        // A dropped sender opens the gate permanently.
        let _ = gate.recv();
        counter.fetch_add(1, SeqCst);
    });
    (open, count, subscriber)
}

// === late subscribers ===

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_subscribers_get_the_current_state_once_while_it_changes() {
    let fleet = Fleet::start(clusters(2, 200), &["pods"], Vec::new()).await;
    fleet.synced().await;
    let mut churn = Churn::new(3);
    let mut late = Vec::new();
    for _ in 0..20 {
        let (replica, subscriber) = replica();
        fleet.hub.registry().send(subscribe(subscriber)).await.unwrap();
        late.push(replica);
        for cluster in fleet.clusters.values() {
            for _ in 0..20 {
                cluster.with_world(|world| churn.step(world));
            }
        }
    }
    fleet.converged().await;
    for replica in &late {
        for (name, cluster) in &fleet.clusters {
            // The replica records repeated additions and updates of unknown objects as violations.
            converges(replica, cluster, name).await;
            assert!(replica.lock().is_synced(&format!("{name}/pods.v1")) || !replica.lock().seen_of(name).is_empty());
        }
    }
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn initial_objects_precede_synced_and_changes() {
    let fleet = Fleet::start(clusters(1, 30), &["pods"], Vec::new()).await;
    fleet.synced().await;
    let events = Arc::new(Mutex::new(Vec::new()));
    let words = |events: &Arc<Mutex<Vec<String>>>| {
        let events = Arc::clone(events);
        Subscriber::<()>::from_fn(move |notification: &Notification<()>| {
            events.lock().push(match notification {
                Notification::Added { initial, .. } => format!("added {initial}"),
                Notification::Updated { .. } => "updated".to_owned(),
                Notification::Deleted { tombstone, .. } => format!("deleted {tombstone}"),
                Notification::Synced(_) => "synced".to_owned(),
            });
        })
    };
    fleet.hub.registry().send(subscribe(words(&events))).await.unwrap();
    let without_initial = Arc::new(Mutex::new(Vec::new()));
    fleet.hub.registry().send(subscribe(words(&without_initial)).skip_initial()).await.unwrap();
    eventually("both to sync", async || events.lock().len() == 31 && without_initial.lock().len() == 1).await;
    let cluster = &fleet.clusters["c00"];
    touch(cluster);
    let key = cluster.with_world(|world| {
        world.create_pod().unwrap();
        world.objects(&World::pods()).last().unwrap().key().clone()
    });
    cluster.with_world(|world| world.delete(&World::pods(), &key).unwrap());
    eventually("the changes", async || events.lock().len() == 34 && without_initial.lock().len() == 4).await;
    let events = events.lock().clone();
    assert!(events[..30].iter().all(|word| word == "added true"), "{events:?}");
    assert_eq!(events[30], "synced");
    assert_eq!(without_initial.lock()[0], "synced");
    for changes in [&events[31..], &without_initial.lock()[1..]] {
        let mut changes = changes.to_vec();
        changes.sort();
        assert_eq!(changes, ["added false", "deleted false", "updated"]);
    }
    fleet.end().await;
}

// === handlers that fail or are slow ===

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn panicking_handler_loses_one_notification_and_counts_it() {
    let fleet = Fleet::start(clusters(1, 50), &["pods"], Vec::new()).await;
    fleet.synced().await;
    let seen = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&seen);
    let subscriber = Subscriber::<()>::from_fn(move |_: &Notification<()>| {
        let number = counter.fetch_add(1, SeqCst);
        assert!(!(number == 7 || number == 51), "on purpose");
    });
    fleet.hub.registry().send(subscribe(subscriber).named("clumsy")).await.unwrap();
    eventually("all 51", async || seen.load(SeqCst) == 51).await;
    touch(&fleet.clusters["c00"]);
    eventually("the second failure", async || listener(&fleet, "c00", "clumsy").await.lost == 2).await;
    touch(&fleet.clusters["c00"]);
    eventually("the next event", async || seen.load(SeqCst) == 53).await;
    eventually("the count", async || listener(&fleet, "c00", "clumsy").await.delivered == 51).await;
    assert_eq!(fleet.informer("c00").await.restarts, 0);
    fleet.converged().await;
    fleet.end().await;
}

/// Each of the 40 clusters has a notification for the stuck closure.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocking_closure_delays_no_other_subscriber() {
    let fleet = Fleet::start(clusters(40, 5), &["pods"], Vec::new()).await;
    fleet.converged().await;
    let (open, count, subscriber) = gated();
    fleet.hub.registry().send(subscribe(subscriber).named("stuck")).await.unwrap();
    eventually("all its listeners", async || {
        let clusters = fleet.hub.report().await.unwrap().hub.clusters;
        clusters.iter().all(|cluster| cluster.informers[0].listeners.iter().any(|l| l.name == "stuck"))
    })
    .await;
    let begun = Instant::now();
    for _ in 0..3 {
        fleet.clusters.values().for_each(touch);
        fleet.converged().await;
    }
    let (late, subscriber) = replica();
    fleet.hub.registry().send(subscribe(subscriber)).await.unwrap();
    for (name, cluster) in &fleet.clusters {
        converges(&late, cluster, name).await;
    }
    assert!(begun.elapsed() < Duration::from_secs(30), "the other subscribers were delayed: {:?}", begun.elapsed());
    assert_eq!(count.load(SeqCst), 0);
    drop(open);
    eventually("all waiting notifications", async || count.load(SeqCst) >= 40 * 6).await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stuck_consumer_queue_is_bounded_by_merging_and_converges() {
    const UPDATES: usize = 100_000;
    let mut tuning = quick();
    tuning.merge_above = 64;
    let mut config = small(1, 50);
    config.world.history = 2 * UPDATES;
    let cluster = SimCluster::start(config, &Handle::current()).unwrap();
    let clusters = BTreeMap::from([("c00".to_owned(), cluster)]);
    let fleet = Fleet::start_with(clusters, &["pods"], Vec::new(), tuning).await;
    fleet.synced().await;
    let (open, gate) = mpsc::channel::<()>();
    let kept = Arc::new(Mutex::new(Replica::new()));
    let events = Arc::clone(&kept);
    let stuck = Subscriber::<()>::from_fn(move |notification: &Notification<()>| {
        let _ = gate.recv();
        events.lock().apply(notification);
    });
    fleet.hub.registry().send(subscribe(stuck).named("stuck")).await.unwrap();
    let cluster = &fleet.clusters["c00"];
    let keys: Vec<_> =
        cluster.with_world(|world| world.objects(&World::pods()).map(|object| object.key().clone()).collect());
    let (mut most_pending, mut most_queued) = (0, 0);
    for round in 0..UPDATES / 1000 {
        cluster.with_world(|world| {
            for i in 0..1000 {
                let body = json!({ "status": { "observedGeneration": round * 1000 + i } });
                world.patch(&World::pods(), &keys[i % keys.len()], &body).unwrap();
            }
        });
        let informer = fleet.informer("c00").await;
        most_queued = most_queued.max(informer.queued);
        let pending = informer.listeners.iter().find(|l| l.name == "stuck").map_or(0, |l| l.pending);
        most_pending = most_pending.max(pending);
    }
    fleet.converged().await;
    let status = listener(&fleet, "c00", "stuck").await;
    assert!(status.merged > 1000, "{status:?}");
    // At most two per object besides the unmerged ones, plus the initial objects not yet delivered.
    let bound = 64 + 2 * keys.len() as u64 + keys.len() as u64 + 1;
    assert!(most_pending <= bound && status.pending <= bound, "{most_pending} pending, {status:?}");
    assert!(most_queued <= keys.len() as u64, "{most_queued} keys in the fifo");
    drop(open);
    converges(&kept, cluster, "c00").await;
    let events = kept.lock().events();
    assert!(events < 2000, "{events} notifications in total");
    fleet.end().await;
}

// === the end of a subscription ===

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unsubscribe_waits_for_the_handler_and_ends_delivery() {
    let fleet = Fleet::start(clusters(3, 30), &["pods"], Vec::new()).await;
    fleet.synced().await;
    let (open, count, subscriber) = gated();
    let id = fleet.hub.registry().send(subscribe(subscriber)).await.unwrap();
    for _ in 0..5 {
        open.send(()).unwrap();
    }
    eventually("five", async || count.load(SeqCst) == 5).await;
    let registry = fleet.hub.registry().clone();
    let done = Arc::new(AtomicBool::new(false));
    let leaving = tokio::spawn({
        let done = Arc::clone(&done);
        async move {
            registry.send(Unsubscribe(id)).await.unwrap();
            done.store(true, SeqCst);
        }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!done.load(SeqCst), "the handler is still running");
    drop(open);
    tokio::time::timeout(PATIENCE, leaving).await.unwrap().unwrap();
    let after = count.load(SeqCst);
    fleet.clusters.values().for_each(touch);
    fleet.converged().await;
    assert_eq!(count.load(SeqCst), after);
    fleet.hub.registry().send(Unsubscribe(id)).await.unwrap();
    fleet.end().await;
}

// === typed actors ===

#[derive(Default)]
struct Typed {
    names: Arc<Mutex<BTreeMap<String, String>>>,
}

impl Actor for Typed {
    type Context = Context<Self>;
}

impl Typed {
    fn take(&self, notification: &Notification<Pod>) {
        let mut names = self.names.lock();
        if let Notification::Deleted { object, .. } = notification {
            names.remove(object.name());
        } else if let Some(object) = notification.object() {
            let pod = object.decode().unwrap();
            let phase = pod.status.and_then(|status| status.phase).unwrap_or_default();
            names.insert(pod.metadata.name.unwrap(), phase);
        }
    }
}

impl Handler<Notifications<Pod>> for Typed {
    type Result = ();

    fn handle(&mut self, batch: Notifications<Pod>, _: &mut Self::Context) {
        batch.0.iter().for_each(|notification| self.take(notification));
    }
}

impl Handler<Notification<Pod>> for Typed {
    type Result = ();

    fn handle(&mut self, notification: Notification<Pod>, _: &mut Self::Context) {
        self.take(&notification);
    }
}

#[test]
fn typed_actors_receive_batches_or_single_notifications() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let servers = runtime.handle().clone();
    actix::System::new().block_on(async move {
        let cluster = SimCluster::start(small(1, 40), &servers).unwrap();
        let fleet = Fleet::start(BTreeMap::from([("c00".to_owned(), cluster)]), &["pods"], Vec::new()).await;
        let (batches, singles) = (Typed::default(), Typed::default());
        let names = [Arc::clone(&batches.names), Arc::clone(&singles.names)];
        let (batches, singles) = (batches.start(), singles.start());
        let registry = fleet.hub.registry();
        registry.send(Subscribe::to::<Pod>(everywhere(), batches.recipient::<Notifications<Pod>>())).await.unwrap();
        registry.send(Subscribe::to::<Pod>(everywhere(), singles.recipient::<Notification<Pod>>())).await.unwrap();
        let cluster = &fleet.clusters["c00"];
        let mut churn = Churn::new(5);
        for _ in 0..100 {
            cluster.with_world(|world| churn.step(world));
        }
        fleet.converged().await;
        let truth: GroundTruth = cluster.truth(&World::pods());
        let expected: Vec<_> = truth.keys().map(|key| key.name().to_owned()).collect();
        for names in &names {
            let mut expected = expected.clone();
            expected.sort();
            eventually("all names", async || names.lock().keys().cloned().collect::<Vec<_>>() == expected).await;
        }
        // The last updates may still be on their way.
        eventually("equal phases", async || *names[0].lock() == *names[1].lock()).await;
        fleet.end().await;
    });
}

/// Actor with a mailbox of capacity one, which it keeps full. Twelve informers send to it.
struct FullMailbox {
    replica: Arc<Mutex<Replica>>,
    knocks: Arc<AtomicUsize>,
}

#[derive(Message)]
#[rtype(result = "()")]
struct Knock;

impl Handler<Knock> for FullMailbox {
    type Result = ();

    fn handle(&mut self, _: Knock, _: &mut Self::Context) {}
}

impl Actor for FullMailbox {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(1);
    }
}

impl Handler<Notification> for FullMailbox {
    type Result = AtomicResponse<Self, ()>;

    fn handle(&mut self, notification: Notification, ctx: &mut Self::Context) -> Self::Result {
        self.replica.lock().apply(&notification);
        // Fills the mailbox, so that every sender has to wait.
        let itself = ctx.address();
        while itself.try_send(Knock).is_ok() {
            self.knocks.fetch_add(1, SeqCst);
        }
        AtomicResponse::new(Box::pin(tokio::task::yield_now().into_actor(self)))
    }
}

#[test]
fn full_mailbox_loses_no_notification() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let servers = runtime.handle().clone();
    actix::System::new().block_on(async move {
        let start = |i: u64| (format!("c{i:02}"), SimCluster::start(small(i, 30), &servers).unwrap());
        let fleet = Fleet::start((0..12).map(start).collect(), &["pods"], Vec::new()).await;
        let (replica, knocks) = (Arc::new(Mutex::new(Replica::new())), Arc::new(AtomicUsize::new(0)));
        let full = FullMailbox { replica: Arc::clone(&replica), knocks: Arc::clone(&knocks) }.start();
        let to_full = Subscribe::to_configured("pods", everywhere(), full.recipient::<Notification>());
        fleet.hub.registry().send(to_full).await.unwrap();
        let mut churns: Vec<_> = (0..12).map(Churn::new).collect();
        for (cluster, churn) in fleet.clusters.values().zip(&mut churns) {
            for _ in 0..50 {
                cluster.with_world(|world| churn.step(world));
            }
        }
        fleet.converged().await;
        for (name, cluster) in &fleet.clusters {
            converges(&replica, cluster, name).await;
        }
        assert_eq!(replica.lock().violations(), &[] as &[String]);
        assert!(knocks.load(SeqCst) > 0, "the mailbox was never filled");
        fleet.end().await;
    });
}

// === sharing ===

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscribers_share_one_list_and_the_last_one_closes_the_watch() {
    let config = SimConfig { streaming: Streaming::Refused, ..small(1, 20) };
    let cluster = SimCluster::start(config, &Handle::current()).unwrap();
    let clusters = BTreeMap::from([("c00".to_owned(), cluster)]);
    let fleet = Fleet::start(clusters, &["pods"], Vec::new()).await;
    fleet.converged().await;
    let cluster = &fleet.clusters["c00"];
    // The objects are cached before the watch after their list is open.
    eventually("the watch of pods", async || cluster.stats().open_watches == 1).await;
    let before = cluster.stats();
    let registry = fleet.hub.registry();
    let counting = || {
        let count = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&count);
        let subscriber = Subscriber::<Node>::from_fn(move |_: &Notification<Node>| {
            counter.fetch_add(1, SeqCst);
        });
        (count, subscriber)
    };
    let (first, subscriber) = counting();
    let one = registry.send(Subscribe::to::<Node>(everywhere(), subscriber)).await.unwrap();
    eventually("three nodes", async || first.load(SeqCst) == 4).await;
    let (second, subscriber) = counting();
    let two = registry.send(Subscribe::to::<Node>(everywhere(), subscriber)).await.unwrap();
    eventually("three nodes again", async || second.load(SeqCst) == 4).await;
    let after = cluster.stats();
    assert_eq!(after.lists, before.lists + 1, "one list for both");
    eventually("one more watch", async || cluster.stats().open_watches == before.open_watches + 1).await;
    registry.send(Unsubscribe(one)).await.unwrap();
    assert_eq!(fleet.cluster("c00").await.informers.len(), 2, "the second subscriber still uses it");
    assert_eq!(cluster.stats().open_watches, before.open_watches + 1);
    registry.send(Unsubscribe(two)).await.unwrap();
    eventually("the watch to close", async || cluster.stats().open_watches == before.open_watches).await;
    assert_eq!(fleet.cluster("c00").await.informers.len(), 1);
    assert_eq!(cluster.stats().lists, before.lists + 1);
    fleet.end().await;
}

// === clusters and informers at run time ===

fn add(name: &str, cluster: &SimCluster, fleet: &Fleet) -> AddCluster {
    let access = Access::Server { server: cluster.url(), ca_file: None, token: None };
    let io = &fleet.hub.system().env().io;
    let connector = KubeConnector::new(access.into(), quick().reflector.stall, io);
    let name = ClusterName::new(name).unwrap();
    AddCluster { name, labels: BTreeMap::default().into_iter().collect(), connector: Arc::new(connector) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clusters_are_added_and_removed_at_run_time() {
    let mut fleet = Fleet::start(clusters(2, 20), &["pods"], Vec::new()).await;
    fleet.converged().await;
    let new = sim(9, 30);
    fleet.hub.registry().send(add("new", &new, &fleet)).await.unwrap().unwrap();
    let twice = fleet.hub.registry().send(add("new", &new, &fleet)).await.unwrap().unwrap_err();
    assert!(matches!(twice, RegistryError::DuplicateCluster(_)));
    // Existing subscribers are notified of the new cluster's objects too.
    fleet.clusters.insert("new".to_owned(), new);
    fleet.converged().await;
    fleet.synced().await;

    let name = ClusterName::new("new").unwrap();
    fleet.hub.registry().send(RemoveCluster(name.clone())).await.unwrap().unwrap();
    let removed = fleet.clusters.remove("new").unwrap();
    assert!(fleet.cached("new").await.is_empty(), "its objects are dropped before the request is answered");
    eventually("its connections to close", async || removed.stats().open_connections == 0).await;
    let again = fleet.hub.registry().send(RemoveCluster(name)).await.unwrap().unwrap_err();
    assert!(matches!(again, RegistryError::UnknownCluster(_)));
    assert_eq!(fleet.hub.report().await.unwrap().hub.clusters.len(), 2);
    assert_eq!(fleet.replica.lock().seen_of("new/").len(), 30, "removing a cluster notifies no deletions");
    for cluster in fleet.clusters.values() {
        touch(cluster);
    }
    fleet.converged().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requested_informer_runs_until_all_its_users_release_it() {
    let fleet = Fleet::start(clusters(1, 5), &["pods"], Vec::new()).await;
    fleet.synced().await;
    let demand = |user: &str| InformerFor {
        user: User::Caller(user.to_owned()),
        wanted: ResourceRequest::Written("nodes".parse().unwrap()),
        clusters: everywhere(),
        scopes: vec![Scope::all()],
        options: Arc::default(),
        watch_errors: None,
    };
    let registry = fleet.hub.registry();
    registry.send(demand("a")).await.unwrap();
    registry.send(demand("b")).await.unwrap();
    fleet.synced().await;
    let nodes = async || {
        let informers = fleet.cluster("c00").await.informers;
        informers.into_iter().find(|informer| informer.resource.starts_with("nodes"))
    };
    assert_eq!(nodes().await.unwrap().objects, 3);
    assert_eq!(nodes().await.unwrap().lists, 1);
    registry.send(Release(User::Caller("a".to_owned()))).await.unwrap();
    assert!(nodes().await.is_some());
    registry.send(Release(User::Caller("b".to_owned()))).await.unwrap();
    assert!(nodes().await.is_none());
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscriber_keeps_an_informer_after_the_shared_one_is_released() {
    let clusters = BTreeMap::from([("c00".to_owned(), sim(1, 20))]);
    let fleet = Fleet::start(clusters, &["nodes"], Vec::new()).await;
    let registry = fleet.hub.registry();
    let caller = |name: &str| User::Caller(name.to_owned());
    let demand = |name: &str, scope: Scope| InformerFor {
        user: caller(name),
        wanted: ResourceRequest::Written("pods".parse().unwrap()),
        clusters: everywhere(),
        scopes: vec![scope],
        options: Arc::default(),
        watch_errors: None,
    };
    registry.send(demand("first", Scope::all())).await.unwrap();
    let (replica, subscriber) = replica();
    let resource = ResourceRequest::Written("pods".parse().unwrap());
    registry.send(Subscribe::to_wanted(resource, everywhere(), subscriber)).await.unwrap();
    let cluster = &fleet.clusters["c00"];
    converges(&replica, cluster, "c00").await;
    registry.send(Release(caller("first"))).await.unwrap();
    touch(cluster);
    converges(&replica, cluster, "c00").await;
    // An informer with a narrower scope neither narrows the selection of the subscription nor repeats events.
    let part = Scope { namespace: Some("team-a".into()), ..Scope::all() };
    registry.send(demand("second", part)).await.unwrap();
    eventually("the second informer", async || fleet.cluster("c00").await.informers.len() == 3).await;
    touch(cluster);
    converges(&replica, cluster, "c00").await;
    registry.send(Release(caller("second"))).await.unwrap();
    touch(cluster);
    converges(&replica, cluster, "c00").await;
    assert_eq!(replica.lock().violations(), &[] as &[String]);
    fleet.end().await;
}

/// Actor that stops at its first batch.
struct StopsAtFirst;

impl Actor for StopsAtFirst {
    type Context = Context<Self>;
}

impl Handler<Notifications<Pod>> for StopsAtFirst {
    type Result = ();

    fn handle(&mut self, _: Notifications<Pod>, ctx: &mut Self::Context) {
        ctx.stop();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_subscriber_is_unsubscribed_and_its_informer_stops() {
    let clusters = BTreeMap::from([("c00".to_owned(), sim(1, 20))]);
    let fleet = Fleet::start(clusters, &["nodes"], Vec::new()).await;
    let stopping = StopsAtFirst::start_in_arbiter(fleet.hub.system().env().arbiter(), |_| StopsAtFirst);
    let subscribe = Subscribe::to::<Pod>(everywhere(), stopping.recipient::<Notifications<Pod>>());
    fleet.hub.registry().send(subscribe).await.unwrap();
    eventually("its informer", async || fleet.clusters["c00"].stats().watches == 2).await;
    let cluster = &fleet.clusters["c00"];
    eventually("its informer stopped", async || {
        touch(cluster);
        fleet.cluster("c00").await.informers.len() == 1
    })
    .await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn informer_is_not_synced_before_its_first_list() {
    for round in 0..10 {
        let clusters = clusters(8, 1);
        let day = Duration::from_secs(24 * 3600);
        for cluster in clusters.values() {
            cluster.set_faults(FaultScript::one(Rule::new(When::Any, Fault::Stall(day)).times(usize::MAX)));
        }
        let fleet = Fleet::start(clusters, &["pods"], Vec::new()).await;
        let at_once = fleet.hub.wait_for_cache_sync(Duration::ZERO).await;
        assert!(at_once.is_err(), "round {round}");
        assert!(!fleet.hub.report().await.unwrap().hub.ready, "round {round}");
        let missing = fleet.hub.wait_for_cache_sync(Duration::from_millis(50)).await.unwrap_err();
        for name in fleet.clusters.keys() {
            assert!(missing.waiting.iter().any(|line| line.starts_with(&format!("{name}/pods"))), "{missing}");
        }
        fleet.end().await;
    }
}

// === the end of the hub ===

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_after_shutdown_are_answered_at_once() {
    let fleet = Fleet::start(clusters(2, 20), &["pods"], Vec::new()).await;
    fleet.converged().await;
    let (registry, cache) = (fleet.hub.registry().clone(), fleet.hub.cache_of(pods()));
    let shutdown = Shutdown { deadline: informer_hub_types::clock::now() + Duration::from_secs(5) };
    let all = async {
        let (first, second) = tokio::join!(registry.send(shutdown), registry.send(shutdown));
        assert!(first.is_ok() || second.is_ok());
        assert!(registry.send(shutdown).await.is_err());
        assert!(registry.send(WaitForCacheSync { timeout: PATIENCE }).await.is_err());
        let (_, subscriber) = replica();
        assert!(registry.send(subscribe(subscriber)).await.is_err());
        assert!(registry.send(RemoveCluster(ClusterName::new("c00").unwrap())).await.is_err());
        let error = fleet.hub.wait_for_cache_sync(PATIENCE).await.unwrap_err().to_string();
        assert!(error.contains("shutting down"), "{error}");
        assert!(fleet.hub.report().await.is_err());
        // An empty answer would be wrong, so the query fails.
        assert!(cache.send(Query::list()).await.is_err());
        assert!(fleet.hub.cache::<Pod>().snapshot().await.is_err());
    };
    tokio::time::timeout(Duration::from_secs(20), all).await.expect("a request hung");
    for cluster in fleet.clusters.values() {
        eventually("its connections to close", async || cluster.stats().open_connections == 0).await;
    }
    fleet.end().await;
}
