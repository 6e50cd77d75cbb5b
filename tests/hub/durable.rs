//! Tests of durable subscribers: actors that receive events from a journal, across restarts of the hub.

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

use crate::fleet::{config, eventually, file_sink, pods, quick, small};

/// Response of an actor to an event.
type Respond = Arc<dyn Fn(&Event) -> Result<(), Refusal> + Send + Sync>;

/// Actor that records the events it acknowledges.
struct Recorder {
    respond: Respond,
    acknowledged: Arc<Mutex<Vec<Event>>>,
}

impl Actor for Recorder {
    type Context = Context<Self>;
}

impl Handler<Deliveries> for Recorder {
    type Result = Result<(), Refusal>;

    fn handle(&mut self, Deliveries(events): Deliveries, _: &mut Context<Self>) -> Self::Result {
        events.iter().try_for_each(|event| (self.respond)(event))?;
        self.acknowledged.lock().extend(events.iter().cloned());
        Ok(())
    }
}

/// Simulated cluster, state directory and recorded events, which outlive hubs.
struct Testbed {
    clusters: BTreeMap<String, SimCluster>,
    dir: tempfile::TempDir,
    acknowledged: Arc<Mutex<Vec<Event>>>,
    /// Arbiter on a separate thread.
    arbiter: ArbiterHandle,
}

impl Testbed {
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
            acknowledged: Arc::default(),
            arbiter,
        }
    }

    fn config(&self, checkpoint: Duration) -> Config {
        let mut config = config(&self.clusters, &["pods"]);
        config.hub.state_dir = Some(self.dir.path().join("state"));
        config.hub.checkpoint = checkpoint;
        config
    }

    fn recorder(&self, respond: impl Fn(&Event) -> Result<(), Refusal> + Send + Sync + 'static) -> Addr<Recorder> {
        let (respond, acknowledged): (Respond, _) = (Arc::new(respond), Arc::clone(&self.acknowledged));
        Recorder::start_in_arbiter(&self.arbiter, move |_| Recorder { respond, acknowledged })
    }

    async fn start_hub(&self, checkpoint: Duration, recorder: Addr<Recorder>) -> Hub {
        let retry = RetryParams {
            first: Duration::from_millis(10),
            max: Duration::from_millis(50),
            refused_for: Duration::from_secs(1),
            ..RetryParams::default()
        };
        let subscription = DurableSubscription::new("clerk", recorder.recipient()).resources(&["pods"]).retry(retry);
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

    /// Returns the version of each live object according to the acknowledged events.
    fn replica(&self) -> BTreeMap<String, String> {
        let mut replica = BTreeMap::new();
        for event in self.acknowledged.lock().iter() {
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
        eventually("the acknowledged events equal the cluster's state", async || self.replica() == truth()).await;
        self.assert_in_order();
    }

    /// Asserts that the versions of each object never decrease.
    fn assert_in_order(&self) {
        let mut last = BTreeMap::new();
        for event in self.acknowledged.lock().iter().filter(|event| event.event_type() != EventType::Deleted) {
            let version = event.version().as_number().unwrap();
            let before = last.insert((event.subject().to_owned(), event.uid().to_owned()), version);
            assert!(before.is_none_or(|before| before <= version), "{event:?}: {before:?} before {version}");
        }
    }
}

const FREQUENT: Duration = Duration::from_millis(100);
const RARE: Duration = Duration::from_secs(600);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn durable_subscriber_resumes_in_order_after_restarts() {
    let bed = Testbed::new(20);
    let hub = bed.start_hub(FREQUENT, bed.recorder(|_| Ok(()))).await;
    bed.converged().await;
    // Drops the hub without a shutdown and starts another one, whose subscriber refuses all events while objects
    // change.
    drop(hub);
    let hub = bed.start_hub(FREQUENT, bed.recorder(|_| Err(Refusal::Later("not now".to_owned())))).await;
    let before = bed.acknowledged.lock().len();
    let (deleted, added) = (bed.clusters["c0"].truth(&pods().gvr).into_keys().next().unwrap(), bed.create());
    bed.delete(&deleted);
    eventually("it is in the journal", async || {
        hub.report().await.unwrap().sinks[0].status.journal.as_ref().is_some_and(|journal| journal.pending >= 2)
    })
    .await;
    drop(hub);
    assert_eq!(bed.acknowledged.lock().len(), before);
    bed.create();
    let _hub = bed.start_hub(FREQUENT, bed.recorder(|_| Ok(()))).await;
    bed.converged().await;
    let acknowledged = bed.acknowledged.lock();
    assert!(acknowledged[before..].iter().any(|event| event.subject().ends_with(added.name())));
    let pod = acknowledged[0].data::<Pod>().unwrap();
    assert_eq!((pod.cluster.as_str(), pod.object.unwrap().metadata.name), ("c0", pod.name));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn object_added_after_the_checkpoint_and_deleted_during_downtime_is_notified_as_deleted() {
    let bed = Testbed::new(5);
    let hub = bed.start_hub(RARE, bed.recorder(|_| Ok(()))).await;
    bed.converged().await;
    let added = bed.create();
    bed.converged().await;
    drop(hub);
    bed.delete(&added);
    // The watch cannot resume, so only a comparison finds the deletion.
    bed.world(World::compact);
    let _hub = bed.start_hub(RARE, bed.recorder(|_| Ok(()))).await;
    bed.converged().await;
    let acknowledged = bed.acknowledged.lock();
    // An event whose acknowledgement was not written is delivered again with the same id.
    let mut its_events: Vec<_> = acknowledged.iter().filter(|event| event.subject().ends_with(added.name())).collect();
    its_events.dedup_by_key(|event| event.id().to_owned());
    let types: Vec<_> = its_events.iter().map(|event| event.event_type()).collect();
    assert_eq!(types, [EventType::Added, EventType::Deleted]);
    let last = its_events[1].data::<Pod>().unwrap();
    assert!(last.tombstone && last.object.is_some());
}

/// The subscriber selects additions only, so its journal has an object that was added and apparently never deleted. A
/// restart must not restore this object from the journal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn object_deleted_before_the_checkpoint_is_not_restored() {
    let bed = Testbed::new(5);
    let start = async || {
        let recorder = bed.recorder(|_| Ok(()));
        let subscription = DurableSubscription::new("clerk", recorder.recipient()).events(&[EventType::Added]);
        let builder = Hub::builder(bed.config(FREQUENT)).tuning(quick());
        builder.subscribe_durably(subscription).start().await.unwrap()
    };
    let hub = start().await;
    let added = bed.create();
    let is_delivered = || bed.acknowledged.lock().iter().any(|event| event.subject().ends_with(added.name()));
    eventually("the addition is delivered", async || is_delivered()).await;
    bed.delete(&added);
    // A checkpoint with a later object includes the deletion.
    let later = bed.create();
    let version = bed.clusters["c0"].truth(&pods().gvr)[&later].1.as_number();
    eventually("the checkpoint has caught up", async || {
        let report = hub.report().await.unwrap();
        let kept = report.hub.clusters[0].informers[0].checkpoint.as_ref().and_then(|kept| kept.version.clone());
        kept.and_then(|kept| kept.parse().ok()) >= version
    })
    .await;
    drop(hub);
    let hub = start().await;
    let there = async |key: &ObjectKey| {
        let found = hub.cache_of(pods()).send(Query::list().across_clusters()).await.unwrap().unwrap();
        found.items.iter().any(|object| object.key() == key)
    };
    eventually("the later object is restored", async || there(&later).await).await;
    assert!(!there(&added).await, "the deleted object is restored");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_event_becomes_a_dead_letter_and_blocks_no_other() {
    let bed = Testbed::new(10);
    let poison = bed.clusters["c0"].truth(&pods().gvr).into_keys().next().unwrap();
    let name = poison.name().to_owned();
    let respond = move |event: &Event| {
        if event.subject().ends_with(&name) { Err(Refusal::Content("invalid content".to_owned())) } else { Ok(()) }
    };
    let hub = bed.start_hub(FREQUENT, bed.recorder(respond)).await;
    eventually("one dead letter", async || hub.report().await.unwrap().sinks[0].status.dead_lettered == 1).await;
    eventually("the other events are acknowledged", async || bed.acknowledged.lock().len() == 9).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_durable_subscription_is_refused_with_an_explanation() {
    let bed = Testbed::new(1);
    let refused = async |config: Config, name: &str, resource: &str| {
        let recorder = bed.recorder(|_| Ok(()));
        let one = DurableSubscription::new(name, recorder.recipient()).resources(&[resource]);
        match Hub::builder(config).subscribe_durably(one).start().await {
            Err(error @ StartError::Subscription { .. }) => error.to_string(),
            other => panic!("{other:?}"),
        }
    };
    let good = || bed.config(FREQUENT);
    let mut without = good();
    without.hub.state_dir = None;
    assert!(refused(without, "clerk", "pods").await.contains("set hub.state_dir"));
    assert!(refused(good(), "../clerk", "pods").await.contains("the name must be 1 to 63"));
    assert!(refused(good(), "clerk", "pots").await.contains("there is no [resources.pots]"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reload_that_breaks_a_durable_subscription_changes_nothing() {
    let bed = Testbed::new(3);
    let one = DurableSubscription::new("clerk", bed.recorder(|_| Ok(())).recipient()).resources(&["pods"]);
    let hub = Hub::builder(bed.config(FREQUENT)).subscribe_durably(one).start().await.unwrap();
    let mut same_name = bed.config(FREQUENT);
    same_name.sinks.push(file_sink("clerk", &bed.dir.path().join("events")));
    let mut no_pods = bed.config(FREQUENT);
    no_pods.resources.clear();
    let mut twice = bed.config(FREQUENT);
    twice.resources.extend(twice.resources.clone());
    let refused = async |config: Config| hub.reloader().reload(config).await.unwrap_err().to_string();
    assert_eq!(refused(same_name).await, r#"durable subscription "clerk": another subscription or sink has this name"#);
    assert_eq!(refused(no_pods).await, r#"durable subscription "clerk": there is no [resources.pods]"#);
    assert_eq!(refused(twice.clone()).await, "resources.pods: another entry has this name");
    assert!(matches!(Hub::start(twice).await, Err(StartError::Duplicate { .. })));
    bed.create();
    bed.converged().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removed_state_directory_is_recreated_without_data_loss() {
    for part in ["", "sinks", "caches"] {
        let bed = Testbed::new(5);
        let hub = bed.start_hub(FREQUENT, bed.recorder(|_| Ok(()))).await;
        bed.converged().await;
        drop(hub);
        let hub = bed.start_hub(FREQUENT, bed.recorder(|_| Err(Refusal::Later("not now".to_owned())))).await;
        let journal = async || hub.report().await.unwrap().sinks[0].status.journal.clone().unwrap_or_default();
        let state = async || hub.report().await.unwrap().hub.state_dir.unwrap();
        bed.create();
        eventually("it is in the journal", async || journal().await.pending > 0).await;
        eventually("it is on disk", async || {
            let report = hub.report().await.unwrap();
            report.hub.clusters[0].informers.first().is_some_and(|informer| informer.checkpoint.is_some())
        })
        .await;
        assert_eq!((journal().await.replaced, state().await.replaced), (0, 0));
        // Removes the directory while files are being written.
        let moved = bed.dir.path().join("away");
        std::fs::rename(bed.dir.path().join("state").join(part), &moved).unwrap();
        std::fs::remove_dir_all(moved).unwrap();
        if part != "caches" {
            eventually("the journal is replaced", async || journal().await.replaced > 0).await;
        }
        if part != "sinks" {
            eventually("the caches are replaced", async || state().await.replaced == 1).await;
        }
        let before = journal().await.pending;
        bed.create();
        eventually("the next is in the journal", async || journal().await.pending > before).await;
        assert_eq!((journal().await.lost, journal().await.trouble), (0, None));
        // Dropped without a shutdown, so nothing is flushed.
        drop(hub);
        let hub = bed.start_hub(FREQUENT, bed.recorder(|_| Ok(()))).await;
        bed.converged().await;
        assert!(hub.report().await.unwrap().hub.state_dir.unwrap().restored >= 5, "the caches are restored");
        let requests = bed.clusters["c0"].stats();
        assert_eq!(requests.lists + requests.streaming, 1, "{part}: {requests:?}");
        drop(hub);
    }
}
