//! Subscriptions in use: who is told what and when, and who is not held up by whom.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use actix::prelude::*;
use informer_hub::Query;
use informer_hub::actors::messages::{
    AddCluster, InformerFor, Release, RemoveCluster, ResourceRequest, Shutdown, Unsubscribe, User, WaitForCacheSync,
};
use informer_hub::actors::{ListenerStatus, RegistryError, Subscribe, Subscriber};
use informer_hub_reflector::InformerOptions;
use informer_hub_sim::oracle::{Oracle, Replica};
use informer_hub_sim::{Churn, Fault, FaultScript, Rule, SimCluster, SimConfig, Streaming, Truth, When, World};
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
    let told = Arc::clone(&replica);
    let subscriber = Subscriber::from_fn(move |notification: &Notification<()>| told.lock().apply(notification));
    (replica, subscriber)
}

fn subscribe(subscriber: impl Into<Subscriber<()>>) -> Subscribe {
    Subscribe::to_configured("pods", everywhere(), subscriber)
}

async fn has(replica: &Mutex<Replica>, cluster: &SimCluster, name: &str) {
    let is = async || Oracle::diff(&cluster.truth(&World::pods()), &replica.lock().seen_of(&format!("{name}/")));
    eventually("the truth", async || is().await.is_empty()).await;
    assert_eq!(replica.lock().violations(), &[] as &[String]);
}

pub(crate) fn touch(cluster: &SimCluster) {
    cluster.with_world(|world| {
        let key = world.objects(&World::pods()).next().unwrap().key().clone();
        let body = json!({ "status": { "touched": world.version() } });
        world.patch(&World::pods(), &key, &body).unwrap();
    });
}

async fn listener(fleet: &Fleet, cluster: &str, name: &str) -> ListenerStatus {
    fleet.informer(cluster).await.listeners.into_iter().find(|listener| listener.name == name).unwrap()
}

/// A closure that waits for its gate before each notification, and then counts it.
fn gated() -> (mpsc::Sender<()>, Arc<AtomicUsize>, Subscriber<()>) {
    let (open, gate) = mpsc::channel::<()>();
    let count = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    let subscriber = Subscriber::from_fn(move |_: &Notification<()>| {
        // A dropped sender opens it for good.
        let _ = gate.recv();
        counter.fetch_add(1, SeqCst);
    });
    (open, count, subscriber)
}

// === late subscribers ===

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_subscribers_get_the_present_state_once_while_it_changes() {
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
            // The replica's own rules see to it that nothing is added twice, and nothing updated that was not added.
            has(replica, cluster, name).await;
            assert!(replica.lock().is_synced(&format!("{name}/pods.v1")) || !replica.lock().seen_of(name).is_empty());
        }
    }
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_present_state_is_initial_then_comes_synced_then_news() {
    let fleet = Fleet::start(clusters(1, 30), &["pods"], Vec::new()).await;
    fleet.synced().await;
    let told = Arc::new(Mutex::new(Vec::new()));
    let words = |told: &Arc<Mutex<Vec<String>>>| {
        let told = Arc::clone(told);
        Subscriber::<()>::from_fn(move |notification: &Notification<()>| {
            told.lock().push(match notification {
                Notification::Added { initial, .. } => format!("added {initial}"),
                Notification::Updated { .. } => "updated".to_owned(),
                Notification::Deleted { tombstone, .. } => format!("deleted {tombstone}"),
                Notification::Synced(_) => "synced".to_owned(),
            });
        })
    };
    fleet.hub.registry().send(subscribe(words(&told))).await.unwrap();
    let skipping = Arc::new(Mutex::new(Vec::new()));
    fleet.hub.registry().send(subscribe(words(&skipping)).skip_initial()).await.unwrap();
    eventually("both to sync", async || told.lock().len() == 31 && skipping.lock().len() == 1).await;
    let cluster = &fleet.clusters["c00"];
    touch(cluster);
    let key = cluster.with_world(|world| {
        world.create_pod().unwrap();
        world.objects(&World::pods()).last().unwrap().key().clone()
    });
    cluster.with_world(|world| world.delete(&World::pods(), &key).unwrap());
    eventually("the news", async || told.lock().len() == 34 && skipping.lock().len() == 4).await;
    let told = told.lock().clone();
    assert!(told[..30].iter().all(|word| word == "added true"), "{told:?}");
    assert_eq!(told[30], "synced");
    assert_eq!(skipping.lock()[0], "synced");
    for news in [&told[31..], &skipping.lock()[1..]] {
        let mut news = news.to_vec();
        news.sort();
        assert_eq!(news, ["added false", "deleted false", "updated"]);
    }
    fleet.end().await;
}

// === handlers that fail or are slow ===

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_panics_loses_that_notification_alone_and_it_is_counted() {
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
    eventually("what comes after", async || seen.load(SeqCst) == 53).await;
    eventually("the count", async || listener(&fleet, "c00", "clumsy").await.delivered == 51).await;
    assert_eq!(fleet.informer("c00").await.restarts, 0);
    fleet.converged().await;
    fleet.end().await;
}

/// More clusters than the hub has threads for closures: each of them has a notification for the one that is stuck.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closure_that_blocks_holds_nobody_up_however_many_informers_it_listens_to() {
    let fleet = Fleet::start(clusters(40, 5), &["pods"], Vec::new()).await;
    fleet.converged().await;
    let (open, count, subscriber) = gated();
    fleet.hub.registry().send(subscribe(subscriber).named("stuck")).await.unwrap();
    eventually("all listeners of it", async || {
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
        has(&late, cluster, name).await;
    }
    assert!(begun.elapsed() < Duration::from_secs(30), "the others were held up: {:?}", begun.elapsed());
    assert_eq!(count.load(SeqCst), 0);
    drop(open);
    eventually("all that waited", async || count.load(SeqCst) >= 40 * 6).await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_that_takes_nothing_is_merged_for_within_bounds_and_ends_with_the_truth() {
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
    let told = Arc::clone(&kept);
    let stuck = Subscriber::<()>::from_fn(move |notification: &Notification<()>| {
        let _ = gate.recv();
        told.lock().apply(notification);
    });
    fleet.hub.registry().send(subscribe(stuck).named("stuck")).await.unwrap();
    let cluster = &fleet.clusters["c00"];
    let keys: Vec<_> =
        cluster.with_world(|world| world.objects(&World::pods()).map(|object| object.key().clone()).collect());
    let (mut most_pending, mut most_queued) = (0, 0);
    for round in 0..UPDATES / 1000 {
        cluster.with_world(|world| {
            for i in 0..1000 {
                let body = json!({ "status": { "touched": round * 1000 + i } });
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
    // Two per object beside those that wait one by one, and what the present state still has to tell.
    let bound = 64 + 2 * keys.len() as u64 + keys.len() as u64 + 1;
    assert!(most_pending <= bound && status.pending <= bound, "{most_pending} pending, {status:?}");
    assert!(most_queued <= keys.len() as u64, "{most_queued} keys in the fifo");
    drop(open);
    has(&kept, cluster, "c00").await;
    let told = kept.lock().told();
    assert!(told < 2000, "{told} notifications after all");
    fleet.end().await;
}

// === the end of a subscription ===

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unsubscribing_waits_for_the_handler_and_nothing_comes_after() {
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
    assert!(!done.load(SeqCst), "its handler is still at work");
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
fn typed_actors_are_told_in_batches_or_one_by_one() {
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
        let truth: Truth = cluster.truth(&World::pods());
        let expected: Vec<_> = truth.keys().map(|key| key.name().to_owned()).collect();
        for names in &names {
            let mut expected = expected.clone();
            expected.sort();
            eventually("all names", async || names.lock().keys().cloned().collect::<Vec<_>>() == expected).await;
        }
        assert_eq!(*names[0].lock(), *names[1].lock());
        fleet.end().await;
    });
}

/// Has a mailbox of one, into which a dozen informers send, and which it keeps full itself.
struct Crowded {
    replica: Arc<Mutex<Replica>>,
    knocks: Arc<AtomicUsize>,
}

#[derive(Message)]
#[rtype(result = "()")]
struct Knock;

impl Handler<Knock> for Crowded {
    type Result = ();

    fn handle(&mut self, _: Knock, _: &mut Self::Context) {}
}

impl Actor for Crowded {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(1);
    }
}

impl Handler<Notification> for Crowded {
    type Result = AtomicResponse<Self, ()>;

    fn handle(&mut self, notification: Notification, ctx: &mut Self::Context) -> Self::Result {
        self.replica.lock().apply(&notification);
        // Until there is no room for one more: whoever sends now has to wait.
        let itself = ctx.address();
        while itself.try_send(Knock).is_ok() {
            self.knocks.fetch_add(1, SeqCst);
        }
        AtomicResponse::new(Box::pin(tokio::task::yield_now().into_actor(self)))
    }
}

#[test]
fn a_full_mailbox_loses_nothing() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let servers = runtime.handle().clone();
    actix::System::new().block_on(async move {
        let start = |i: u64| (format!("c{i:02}"), SimCluster::start(small(i, 30), &servers).unwrap());
        let fleet = Fleet::start((0..12).map(start).collect(), &["pods"], Vec::new()).await;
        let (replica, knocks) = (Arc::new(Mutex::new(Replica::new())), Arc::new(AtomicUsize::new(0)));
        let crowded = Crowded { replica: Arc::clone(&replica), knocks: Arc::clone(&knocks) }.start();
        let to_crowded = Subscribe::to_configured("pods", everywhere(), crowded.recipient::<Notification>());
        fleet.hub.registry().send(to_crowded).await.unwrap();
        let mut churns: Vec<_> = (0..12).map(Churn::new).collect();
        for (cluster, churn) in fleet.clusters.values().zip(&mut churns) {
            for _ in 0..50 {
                cluster.with_world(|world| churn.step(world));
            }
        }
        fleet.converged().await;
        for (name, cluster) in &fleet.clusters {
            has(&replica, cluster, name).await;
        }
        assert_eq!(replica.lock().violations(), &[] as &[String]);
        assert!(knocks.load(SeqCst) > 0, "the mailbox was full from the start");
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
    // All objects are there before the watch that follows their list.
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
    assert_eq!(fleet.cluster("c00").await.informers.len(), 2, "the second one still uses it");
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
    let connector = KubeConnector::new(access, false, quick().reflector.stall, io);
    let name = ClusterName::new(name).unwrap();
    AddCluster { name, labels: BTreeMap::default().into_iter().collect(), connector: Arc::new(connector) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clusters_come_and_go_at_run_time() {
    let mut fleet = Fleet::start(clusters(2, 20), &["pods"], Vec::new()).await;
    fleet.converged().await;
    let new = sim(9, 30);
    fleet.hub.registry().send(add("new", &new, &fleet)).await.unwrap().unwrap();
    let twice = fleet.hub.registry().send(add("new", &new, &fleet)).await.unwrap().unwrap_err();
    assert!(matches!(twice, RegistryError::DuplicateCluster(_)));
    // Subscribers that were there before are told of the new cluster too.
    fleet.clusters.insert("new".to_owned(), new);
    fleet.converged().await;
    fleet.synced().await;

    let name = ClusterName::new("new").unwrap();
    fleet.hub.registry().send(RemoveCluster(name.clone())).await.unwrap().unwrap();
    let gone = fleet.clusters.remove("new").unwrap();
    assert!(fleet.cached("new").await.is_empty(), "its objects are gone when the answer is there");
    eventually("its connections to close", async || gone.stats().open_connections == 0).await;
    let again = fleet.hub.registry().send(RemoveCluster(name)).await.unwrap().unwrap_err();
    assert!(matches!(again, RegistryError::UnknownCluster(_)));
    assert_eq!(fleet.hub.report().await.unwrap().hub.clusters.len(), 2);
    assert_eq!(fleet.replica.lock().seen_of("new/").len(), 30, "nothing was deleted, so nobody is told so");
    for cluster in fleet.clusters.values() {
        touch(cluster);
    }
    fleet.converged().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_informer_that_code_asks_for_lives_until_it_is_released() {
    let fleet = Fleet::start(clusters(1, 5), &["pods"], Vec::new()).await;
    fleet.synced().await;
    let demand = |user: &str| InformerFor {
        user: User::Caller(user.to_owned()),
        wanted: ResourceRequest::Written("nodes".parse().unwrap()),
        clusters: everywhere(),
        scopes: vec![Scope::all()],
        options: InformerOptions::default(),
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
async fn a_subscriber_whose_shared_informer_is_released_gets_one_of_its_own_and_keeps_it() {
    let clusters = BTreeMap::from([("c00".to_owned(), sim(1, 20))]);
    let fleet = Fleet::start(clusters, &["nodes"], Vec::new()).await;
    let registry = fleet.hub.registry();
    let caller = |name: &str| User::Caller(name.to_owned());
    let demand = |name: &str, scope: Scope| InformerFor {
        user: caller(name),
        wanted: ResourceRequest::Written("pods".parse().unwrap()),
        clusters: everywhere(),
        scopes: vec![scope],
        options: InformerOptions::default(),
        watch_errors: None,
    };
    registry.send(demand("first", Scope::all())).await.unwrap();
    let (replica, subscriber) = replica();
    let wanted = ResourceRequest::Written("pods".parse().unwrap());
    registry.send(Subscribe::to_wanted(wanted, everywhere(), subscriber)).await.unwrap();
    let cluster = &fleet.clusters["c00"];
    has(&replica, cluster, "c00").await;
    registry.send(Release(caller("first"))).await.unwrap();
    touch(cluster);
    has(&replica, cluster, "c00").await;
    // Another's informer of a part of it does not narrow what it sees, nor tell it anything twice.
    let part = Scope { namespace: Some("team-a".into()), ..Scope::all() };
    registry.send(demand("second", part)).await.unwrap();
    eventually("the second informer", async || fleet.cluster("c00").await.informers.len() == 3).await;
    touch(cluster);
    has(&replica, cluster, "c00").await;
    registry.send(Release(caller("second"))).await.unwrap();
    touch(cluster);
    has(&replica, cluster, "c00").await;
    assert_eq!(replica.lock().violations(), &[] as &[String]);
    fleet.end().await;
}

/// Stops at the first thing that it is told.
struct Mortal;

impl Actor for Mortal {
    type Context = Context<Self>;
}

impl Handler<Notifications<Pod>> for Mortal {
    type Result = ();

    fn handle(&mut self, _: Notifications<Pod>, ctx: &mut Self::Context) {
        ctx.stop();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscriber_that_is_gone_is_unsubscribed_and_its_informer_stops() {
    let clusters = BTreeMap::from([("c00".to_owned(), sim(1, 20))]);
    let fleet = Fleet::start(clusters, &["nodes"], Vec::new()).await;
    let mortal = Mortal::start_in_arbiter(fleet.hub.system().env().arbiter(), |_| Mortal);
    let subscribe = Subscribe::to::<Pod>(everywhere(), mortal.recipient::<Notifications<Pod>>());
    fleet.hub.registry().send(subscribe).await.unwrap();
    eventually("its informer", async || fleet.clusters["c00"].stats().watches == 2).await;
    let cluster = &fleet.clusters["c00"];
    eventually("the end of its informer", async || {
        touch(cluster);
        fleet.cluster("c00").await.informers.len() == 1
    })
    .await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_passes_for_synced_before_its_first_list() {
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
async fn a_second_shutdown_and_whatever_comes_after_it_is_answered_at_once() {
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
        // An empty answer would be a wrong one.
        assert!(cache.send(Query::list()).await.is_err());
        assert!(fleet.hub.cache::<Pod>().snapshot().await.is_err());
    };
    tokio::time::timeout(Duration::from_secs(20), all).await.expect("something hung");
    for cluster in fleet.clusters.values() {
        eventually("its connections to close", async || cluster.stats().open_connections == 0).await;
    }
    fleet.end().await;
}
