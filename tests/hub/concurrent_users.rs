//! Storms: users of all kinds that come and go without a pause hold up neither the changes nor each other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use informer_hub::actors::messages::{InformerFor, Release, ResourceRequest, Unsubscribe, User};
use informer_hub::actors::{Subscribe, Subscriber};
use informer_hub::informers::{ResourceEventHandlerFuncs, SharedInformerFactory};
use informer_hub_reflector::InformerOptions;
use informer_hub_sim::{SimCluster, World};
use informer_hub_types::{ClusterSelector, Notification, ObjectKey, Scope};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::fleet::{Fleet, PATIENCE, pods, small};

/// As many at once as a hub of many controllers may have.
const MANY: usize = 16;

/// Changes that have to arrive one after another meanwhile.
const CHANGES: usize = 25;

/// What comes and goes until it is told to end, and how often it has.
struct Storm {
    ends: Arc<AtomicBool>,
    turns: Arc<AtomicUsize>,
    tasks: Vec<JoinHandle<()>>,
}

impl Storm {
    /// `turn` over and over, `MANY` times at once.
    fn of<F: Future<Output = ()> + Send + 'static>(turn: impl Fn(usize) -> F + Clone + Send + 'static) -> Self {
        let (ends, turns) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let one = |number| {
            let (ends, turns, turn) = (Arc::clone(&ends), Arc::clone(&turns), turn.clone());
            tokio::spawn(async move {
                while !ends.load(SeqCst) {
                    turn(number).await;
                    turns.fetch_add(1, SeqCst);
                }
            })
        };
        let tasks = (0..MANY).map(one).collect();
        Self { ends, turns, tasks }
    }

    async fn end(self) -> usize {
        self.ends.store(true, SeqCst);
        for task in self.tasks {
            tokio::time::timeout(PATIENCE, task).await.expect("a turn never ended").unwrap();
        }
        self.turns.load(SeqCst)
    }
}

async fn two_clusters() -> Fleet {
    let start = |seed| SimCluster::start(small(seed, 30), &Handle::current()).unwrap();
    let clusters = BTreeMap::from([("a".to_owned(), start(71)), ("b".to_owned(), start(72))]);
    let fleet = Fleet::start(clusters, &["pods"], Vec::new()).await;
    fleet.synced().await;
    fleet
}

/// Each change is made when the one before it is in the cache and has been told.
async fn changes_arrive(fleet: &Fleet) {
    for change in 0..CHANGES {
        for cluster in fleet.clusters.values() {
            cluster.with_world(|world| {
                let key: ObjectKey = world.objects(&World::pods()).next().unwrap().key().clone();
                world.patch(&World::pods(), &key, &json!({ "status": { "change": change } })).unwrap();
            });
        }
        fleet.converged().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_arrive_while_handlers_come_and_go_without_a_pause() {
    let fleet = two_clusters().await;
    let factory = SharedInformerFactory::new(fleet.hub.system());
    let informer = factory.informer::<Pod>().unwrap();
    factory.start().await.unwrap();
    factory.wait_for_cache_sync(PATIENCE).await.into_error().unwrap();
    let busy = informer.clone();
    let storm = Storm::of(move |number| {
        let informer = busy.clone();
        async move {
            let handler = ResourceEventHandlerFuncs::new().on_add(|_| {});
            let registration = informer.add_event_handler(handler).await.unwrap();
            if number.is_multiple_of(2) {
                informer.remove_event_handler(&registration);
            } else {
                informer.shut_down_event_handler(&registration).await.unwrap();
            }
        }
    });
    changes_arrive(&fleet).await;
    assert!(storm.end().await > MANY);
    factory.shutdown().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_arrive_while_subscriptions_come_and_nobody_waits_for_their_end() {
    let fleet = two_clusters().await;
    let registry = fleet.hub.registry().clone();
    let storm = Storm::of(move |_| {
        let registry = registry.clone();
        async move {
            let subscriber = Subscriber::<()>::from_fn(|_: &Notification<()>| {});
            let subscribe = Subscribe::to_configured("pods", ClusterSelector::All, subscriber);
            let id = registry.send(subscribe).await.unwrap();
            tokio::spawn(registry.send(Unsubscribe(id)));
        }
    });
    changes_arrive(&fleet).await;
    assert!(storm.end().await > MANY);
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_arrive_while_users_of_informers_come_and_go() {
    let fleet = two_clusters().await;
    let registry = fleet.hub.registry().clone();
    let storm = Storm::of(move |number| {
        let registry = registry.clone();
        async move {
            let user = User::Caller(format!("user-{number}"));
            let demand = InformerFor {
                user: user.clone(),
                wanted: ResourceRequest::known(&pods()),
                clusters: ClusterSelector::All,
                scopes: vec![Scope::all()],
                options: InformerOptions::default(),
                watch_errors: None,
            };
            registry.send(demand).await.unwrap();
            tokio::spawn(registry.send(Release(user)));
        }
    });
    changes_arrive(&fleet).await;
    assert!(storm.end().await > MANY);
    fleet.end().await;
}
