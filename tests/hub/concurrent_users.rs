//! Tests that continuously added and removed handlers, subscriptions and informer users do not delay changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use informer_hub::actors::messages::{InformerFor, Release, ResourceRequest, Unsubscribe, User};
use informer_hub::actors::{Subscribe, Subscriber};
use informer_hub::informers::{ResourceEventHandlerFuncs, SharedInformerFactory};
use informer_hub_sim::{SimCluster, World};
use informer_hub_types::{ClusterSelector, Notification, ObjectKey, Scope};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::fleet::{Fleet, PATIENCE, pods, small};

/// Concurrent tasks, as in a hub with many controllers.
const TASKS: usize = 16;

/// Changes that must arrive one after another meanwhile.
const CHANGES: usize = 25;

/// Background load: tasks that repeat a round until they are stopped, and the number of rounds.
struct Load {
    stop: Arc<AtomicBool>,
    rounds: Arc<AtomicUsize>,
    tasks: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts `TASKS` tasks that repeat `round`.
    fn start<F: Future<Output = ()> + Send + 'static>(round: impl Fn(usize) -> F + Clone + Send + 'static) -> Self {
        let (stop, rounds) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let one = |number| {
            let (stop, rounds, round) = (Arc::clone(&stop), Arc::clone(&rounds), round.clone());
            tokio::spawn(async move {
                while !stop.load(SeqCst) {
                    round(number).await;
                    rounds.fetch_add(1, SeqCst);
                }
            })
        };
        let tasks = (0..TASKS).map(one).collect();
        Self { stop, rounds, tasks }
    }

    async fn stop(self) -> usize {
        self.stop.store(true, SeqCst);
        for task in self.tasks {
            tokio::time::timeout(PATIENCE, task).await.expect("a round never ended").unwrap();
        }
        self.rounds.load(SeqCst)
    }
}

async fn two_clusters() -> Fleet {
    let start = |seed| SimCluster::start(small(seed, 30), &Handle::current()).unwrap();
    let clusters = BTreeMap::from([("a".to_owned(), start(71)), ("b".to_owned(), start(72))]);
    let fleet = Fleet::start(clusters, &["pods"], Vec::new()).await;
    fleet.synced().await;
    fleet
}

/// Makes each change when the previous one is in the cache and delivered.
async fn changes_arrive(fleet: &Fleet) {
    for change in 0..CHANGES {
        for cluster in fleet.clusters.values() {
            cluster.with_world(|world| {
                let key: ObjectKey = world.objects(&World::pods()).next().unwrap().key().clone();
                world.patch(&World::pods(), &key, &json!({ "status": { "observedGeneration": change + 1 } })).unwrap();
            });
        }
        fleet.converged().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_arrive_while_handlers_are_added_and_removed() {
    let fleet = two_clusters().await;
    let factory = SharedInformerFactory::new(fleet.hub.system());
    let informer = factory.informer::<Pod>().unwrap();
    factory.start().await.unwrap();
    factory.wait_for_cache_sync(PATIENCE).await.into_error().unwrap();
    let busy = informer.clone();
    let load = Load::start(move |number| {
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
    assert!(load.stop().await > TASKS);
    factory.shutdown().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_arrive_while_subscriptions_end_in_the_background() {
    let fleet = two_clusters().await;
    let registry = fleet.hub.registry().clone();
    let load = Load::start(move |_| {
        let registry = registry.clone();
        async move {
            let subscriber = Subscriber::<()>::from_fn(|_: &Notification<()>| {});
            let subscribe = Subscribe::to_configured("pods", ClusterSelector::All, subscriber);
            let id = registry.send(subscribe).await.unwrap();
            tokio::spawn(registry.send(Unsubscribe(id)));
        }
    });
    changes_arrive(&fleet).await;
    assert!(load.stop().await > TASKS);
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_arrive_while_informers_are_requested_and_released() {
    let fleet = two_clusters().await;
    let registry = fleet.hub.registry().clone();
    let load = Load::start(move |number| {
        let registry = registry.clone();
        async move {
            let user = User::Caller(format!("user-{number}"));
            let demand = InformerFor {
                user: user.clone(),
                wanted: ResourceRequest::known(&pods()),
                clusters: ClusterSelector::All,
                scopes: vec![Scope::all()],
                options: Arc::default(),
                watch_errors: None,
            };
            registry.send(demand).await.unwrap();
            tokio::spawn(registry.send(Release(user)));
        }
    });
    changes_arrive(&fleet).await;
    assert!(load.stop().await > TASKS);
    fleet.end().await;
}
