//! Durable subscribers: actors that are told from a journal, over the lives of a hub.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Addr, ArbiterHandle, Context, Handler};
use informer_hub::actors::durable::{Deliveries, Refusal};
use informer_hub::app::{DurableSubscription, Hub, StartError};
use informer_hub::cache::Query;
use informer_hub_config::Config;
use informer_hub_sim::{SimCluster, World};
use informer_hub_sink::{Event, EventType, RetryParams};
use informer_hub_types::ObjectKey;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::fleet::{config, eventually, pods, quick, small};

/// What an actor does with events.
type Attitude = Arc<dyn Fn(&Event) -> Result<(), Refusal> + Send + Sync>;

/// Keeps what it acknowledged.
struct Clerk {
    attitude: Attitude,
    book: Arc<Mutex<Vec<Event>>>,
}

impl Actor for Clerk {
    type Context = Context<Self>;
}

impl Handler<Deliveries> for Clerk {
    type Result = Result<(), Refusal>;

    fn handle(&mut self, Deliveries(events): Deliveries, _: &mut Context<Self>) -> Self::Result {
        events.iter().try_for_each(|event| (self.attitude)(event))?;
        self.book.lock().extend(events.iter().cloned());
        Ok(())
    }
}

struct House {
    clusters: BTreeMap<String, SimCluster>,
    dir: tempfile::TempDir,
    book: Arc<Mutex<Vec<Event>>>,
    /// Of a thread of its own, which goes with the test.
    arbiter: ArbiterHandle,
}

impl House {
    fn new(pods: usize) -> Self {
        let cluster = SimCluster::start(small(11, pods), &Handle::current()).unwrap();
        let (send, receive) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let system = actix::System::new();
            send.send(actix::Arbiter::current()).unwrap();
            system.run()
        });
        let arbiter = receive.recv().unwrap();
        Self {
            clusters: BTreeMap::from([("c0".to_owned(), cluster)]),
            dir: tempfile::tempdir().unwrap(),
            book: Arc::default(),
            arbiter,
        }
    }

    fn config(&self, checkpoint: Duration) -> Config {
        let mut config = config(&self.clusters, &["pods"]);
        config.hub.state_dir = Some(self.dir.path().join("state"));
        config.hub.checkpoint = checkpoint;
        config
    }

    fn clerk(&self, attitude: impl Fn(&Event) -> Result<(), Refusal> + Send + Sync + 'static) -> Addr<Clerk> {
        let (attitude, book): (Attitude, _) = (Arc::new(attitude), Arc::clone(&self.book));
        Clerk::start_in_arbiter(&self.arbiter, move |_| Clerk { attitude, book })
    }

    async fn live(&self, checkpoint: Duration, clerk: Addr<Clerk>) -> Hub {
        let retry = RetryParams {
            first: Duration::from_millis(10),
            max: Duration::from_millis(50),
            refused_for: Duration::from_secs(1),
            ..RetryParams::default()
        };
        let subscription = DurableSubscription::new("clerk", clerk.recipient()).resources(&["pods"]).retry(retry);
        Hub::builder(self.config(checkpoint)).tuning(quick()).subscribe_durably(subscription).start().await.unwrap()
    }

    fn world<T>(&self, act: impl FnOnce(&mut World) -> T) -> T {
        self.clusters["c0"].with_world(act)
    }

    fn create(&self) -> ObjectKey {
        self.world(World::create_pod).unwrap()
    }

    fn delete(&self, key: &ObjectKey) {
        self.world(|world| world.delete(&pods().gvr, key)).unwrap();
    }

    /// What the clerk makes of its book: the version of each object that lives.
    fn replica(&self) -> BTreeMap<String, String> {
        let mut replica = BTreeMap::new();
        for event in self.book.lock().iter() {
            match event.event_type() {
                EventType::Deleted => drop(replica.remove(event.subject())),
                EventType::Synced => {}
                _ => drop(replica.insert(event.subject().to_owned(), event.version().to_string())),
            }
        }
        replica
    }

    async fn converged(&self) {
        let truth = || -> BTreeMap<_, _> {
            let of = |(key, (_, version)): (ObjectKey, (_, _))| {
                (format!("/v1/pods/{}/{}", key.namespace().unwrap(), key.name()), ToString::to_string(&version))
            };
            self.clusters["c0"].truth(&pods().gvr).into_iter().map(of).collect()
        };
        eventually("the clerk has the truth", async || self.replica() == truth()).await;
        self.is_in_order();
    }

    /// For each object no version comes after a newer one.
    fn is_in_order(&self) {
        let mut last = BTreeMap::new();
        for event in self.book.lock().iter().filter(|event| event.event_type() != EventType::Deleted) {
            let version = event.version().as_number().unwrap();
            let before = last.insert((event.subject().to_owned(), event.uid().to_owned()), version);
            assert!(before.is_none_or(|before| before <= version), "{event:?}: {before:?} before {version}");
        }
    }
}

const OFTEN: Duration = Duration::from_millis(100);
const SELDOM: Duration = Duration::from_secs(600);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_durable_subscriber_goes_on_where_it_was_and_its_order_holds() {
    let house = House::new(20);
    let hub = house.live(OFTEN, house.clerk(|_| Ok(()))).await;
    house.converged().await;
    // From now on it takes nothing, while things happen; then the hub is gone without a word.
    drop(hub);
    let hub = house.live(OFTEN, house.clerk(|_| Err(Refusal::Later("not now".to_owned())))).await;
    let before = house.book.lock().len();
    let (gone, come) = (house.clusters["c0"].truth(&pods().gvr).into_keys().next().unwrap(), house.create());
    house.delete(&gone);
    eventually("it is in the journal", async || {
        hub.report().await.unwrap().sinks[0].status.journal.as_ref().is_some_and(|journal| journal.pending >= 2)
    })
    .await;
    drop(hub);
    assert_eq!(house.book.lock().len(), before);
    house.create();
    let _hub = house.live(OFTEN, house.clerk(|_| Ok(()))).await;
    house.converged().await;
    let book = house.book.lock();
    assert!(book[before..].iter().any(|event| event.subject().ends_with(come.name())));
    let pod = book[0].data::<Pod>().unwrap();
    assert_eq!((pod.cluster.as_str(), pod.object.unwrap().metadata.name), ("c0", pod.name));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_told_after_the_last_checkpoint_and_went_during_the_downtime_is_seen_to_be_gone() {
    let house = House::new(5);
    let hub = house.live(SELDOM, house.clerk(|_| Ok(()))).await;
    house.converged().await;
    let come = house.create();
    house.converged().await;
    drop(hub);
    house.delete(&come);
    // The watch cannot go on either: only a comparison can find it.
    house.world(World::compact);
    let _hub = house.live(SELDOM, house.clerk(|_| Ok(()))).await;
    house.converged().await;
    let book = house.book.lock();
    // An acknowledgement that was not written yet repeats its event, under its id.
    let mut of_it: Vec<_> = book.iter().filter(|event| event.subject().ends_with(come.name())).collect();
    of_it.dedup_by_key(|event| event.id().to_owned());
    let types: Vec<_> = of_it.iter().map(|event| event.event_type()).collect();
    assert_eq!(types, [EventType::Added, EventType::Deleted]);
    let last = of_it[1].data::<Pod>().unwrap();
    assert!(last.tombstone && last.object.is_some());
}

/// A journal of a reader that takes no deletions has objects that seem to have come after the checkpoint and never gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_seen_to_go_before_the_last_checkpoint_does_not_come_back() {
    let house = House::new(5);
    let live = async || {
        let clerk = house.clerk(|_| Ok(()));
        let subscription = DurableSubscription::new("clerk", clerk.recipient()).events(&[EventType::Added]);
        let builder = Hub::builder(house.config(OFTEN)).tuning(quick());
        builder.subscribe_durably(subscription).start().await.unwrap()
    };
    let hub = live().await;
    let come = house.create();
    let is_told = || house.book.lock().iter().any(|event| event.subject().ends_with(come.name()));
    eventually("it is told", async || is_told()).await;
    house.delete(&come);
    // What comes later, and is on disk, tells that the deletion is, too.
    let later = house.create();
    let version = house.clusters["c0"].truth(&pods().gvr)[&later].1.as_number();
    eventually("the checkpoint has caught up", async || {
        let report = hub.report().await.unwrap();
        let kept = report.hub.clusters[0].informers[0].checkpoint.as_ref().and_then(|kept| kept.version.clone());
        kept.and_then(|kept| kept.parse().ok()) >= version
    })
    .await;
    drop(hub);
    let hub = live().await;
    let there = async |key: &ObjectKey| {
        let found = hub.cache_of(pods()).send(Query::list().across_clusters()).await.unwrap().unwrap();
        found.items.iter().any(|object| object.key() == key)
    };
    eventually("what came later is there", async || there(&later).await).await;
    assert!(!there(&come).await, "it is gone for good");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_it_cannot_take_becomes_a_dead_letter_and_holds_up_nothing() {
    let house = House::new(10);
    let poison = house.clusters["c0"].truth(&pods().gvr).into_keys().next().unwrap();
    let name = poison.name().to_owned();
    let attitude = move |event: &Event| {
        if event.subject().ends_with(&name) { Err(Refusal::Content("a strange one".to_owned())) } else { Ok(()) }
    };
    let hub = house.live(OFTEN, house.clerk(attitude)).await;
    eventually("it is given up", async || hub.report().await.unwrap().sinks[0].status.dead_lettered == 1).await;
    eventually("the others are taken", async || house.book.lock().len() == 9).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_durable_subscription_that_cannot_be_is_refused_in_words() {
    let house = House::new(1);
    let refused = async |config: Config, name: &str, resource: &str| {
        let clerk = house.clerk(|_| Ok(()));
        let one = DurableSubscription::new(name, clerk.recipient()).resources(&[resource]);
        match Hub::builder(config).subscribe_durably(one).start().await {
            Err(error @ StartError::Subscription { .. }) => error.to_string(),
            other => panic!("{other:?}"),
        }
    };
    let good = || house.config(OFTEN);
    let without = Config { hub: informer_hub_config::HubConfig::default(), ..good() };
    assert!(refused(without, "clerk", "pods").await.contains("set hub.state_dir"));
    assert!(refused(good(), "../clerk", "pods").await.contains("a name is 1 to 63"));
    assert!(refused(good(), "clerk", "pots").await.contains("there is no [resources.pots]"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_directory_that_is_removed_under_a_running_hub_is_made_anew_and_nothing_in_memory_is_lost() {
    for part in ["", "sinks", "caches"] {
        let house = House::new(5);
        let hub = house.live(OFTEN, house.clerk(|_| Ok(()))).await;
        house.converged().await;
        drop(hub);
        let hub = house.live(OFTEN, house.clerk(|_| Err(Refusal::Later("not now".to_owned())))).await;
        let journal = async || hub.report().await.unwrap().sinks[0].status.journal.clone().unwrap_or_default();
        let state = async || hub.report().await.unwrap().hub.state_dir.unwrap();
        house.create();
        eventually("it is in the journal", async || journal().await.pending > 0).await;
        eventually("it is on disk", async || {
            let report = hub.report().await.unwrap();
            report.hub.clusters[0].informers.first().is_some_and(|informer| informer.checkpoint.is_some())
        })
        .await;
        assert_eq!((journal().await.replaced, state().await.replaced), (0, 0));
        // At once, under whatever is being written.
        let away = house.dir.path().join("away");
        std::fs::rename(house.dir.path().join("state").join(part), &away).unwrap();
        std::fs::remove_dir_all(away).unwrap();
        if part != "caches" {
            eventually("the journal's loss is seen", async || journal().await.replaced > 0).await;
        }
        if part != "sinks" {
            eventually("the caches' loss is seen", async || state().await.replaced == 1).await;
        }
        let before = journal().await.pending;
        house.create();
        eventually("the next is in the journal", async || journal().await.pending > before).await;
        assert_eq!((journal().await.lost, journal().await.trouble), (0, None));
        // Killed, not shut down: nothing is put in order at the end.
        drop(hub);
        let hub = house.live(OFTEN, house.clerk(|_| Ok(()))).await;
        house.converged().await;
        assert!(hub.report().await.unwrap().hub.state_dir.unwrap().restored >= 5, "the caches were there");
        let asked = house.clusters["c0"].stats();
        assert_eq!(asked.lists + asked.streaming, 1, "{part}: {asked:?}");
        drop(hub);
    }
}
