//! Test that a relist is atomic for readers and handlers, while other clusters continue.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use informer_hub::actors::{InformerStatus, Subscriber};
use informer_hub::informers::SharedInformerFactory;
use informer_hub_sim::{Fault, FaultScript, Rule, SimCluster, SimConfig, Streaming, When, World};
use informer_hub_types::{ClusterName, Notification};
use parking_lot::Mutex;
use serde_json::json;
use tokio::runtime::Handle;

use crate::fleet::{Fleet, Wire, config, eventually, pods, quick, small};
use crate::parity::to_pods;
use crate::subscriptions::touch;

/// Pods of each cluster.
const PODS: usize = 40;

/// Longer than any test.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Every pod has changed, and the list stalls in the middle until the script is healed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relist_is_atomic_for_readers_and_handlers_and_blocks_no_cluster() {
    for wire in Wire::ALL {
        for streaming in [Streaming::Supported, Streaming::Refused] {
            relist_in_one_step(streaming, wire).await;
        }
    }
}

async fn relist_in_one_step(streaming: Streaming, wire: Wire) {
    let cluster = |seed| SimCluster::start(SimConfig { streaming, ..small(seed, PODS) }, &Handle::current()).unwrap();
    let clusters = BTreeMap::from([("c00".to_owned(), cluster(1)), ("c01".to_owned(), cluster(2))]);
    let mut tuning = quick();
    (tuning.reflector.stall.list_chunk, tuning.reflector.stall.initial_events) = (DAY, DAY);
    let mut config = config(&clusters, &["pods"]);
    wire.apply(&mut config);
    let mut fleet = Fleet::start_config(clusters, config, tuning).await;
    fleet.converged().await;
    let before = fleet.cached("c00").await;
    assert_eq!(before.len(), PODS);

    // For each notification of the first cluster: the number of cached pods of this cluster that have changed.
    let seen = Arc::<Mutex<Vec<usize>>>::default();
    let reader = SharedInformerFactory::new(fleet.hub.system()).dynamic_informer(&pods()).unwrap().indexer();
    let (first, reader) = (ClusterName::new("c00").unwrap(), reader.cluster(&ClusterName::new("c00").unwrap()));
    let (to_seen, then) = (Arc::clone(&seen), before.clone());
    let subscriber = Subscriber::<()>::from_fn(move |notification: &Notification<()>| {
        let Notification::Updated { new, .. } = notification else { return };
        if new.cluster() == &first {
            let changed = |key, version| then.get(key).is_none_or(|(_, known)| known != version);
            let now = reader.list();
            to_seen.lock().push(now.iter().filter(|pod| changed(pod.key(), pod.resource_version())).count());
        }
    });
    fleet.hub.registry().send(to_pods(subscriber)).await.unwrap();
    let of_others = fleet.informer("c01").await.events;

    fleet.first().stop().await;
    let when = if streaming == Streaming::Supported { When::Streaming } else { When::List };
    let cluster = &fleet.clusters["c00"];
    cluster.with_world(|world| {
        let keys: Vec<_> = world.objects(&World::pods()).map(|pod| pod.key().clone()).collect();
        for key in keys {
            world.patch(&World::pods(), &key, &json!({ "status": { "observedGeneration": 1 } })).unwrap();
        }
        world.compact();
    });
    cluster.set_faults(FaultScript::one(Rule::new(when, Fault::Stall(DAY)).after(PODS / 2).resource("pods")));
    let begun = fleet.informer("c00").await.events;
    fleet.first().restart().await;
    let half = |informer: &InformerStatus| informer.events >= begun + PODS as u64 / 2 && informer.queued == 0;
    fleet.shows("c00", "half of the list", half).await;

    touch(&fleet.clusters["c01"]);
    fleet.shows("c01", "the event during the stall", |informer| informer.events > of_others).await;
    fleet.converged_on("c01").await;
    assert_eq!(fleet.cached("c00").await, before, "{streaming:?}: half a list is invisible to readers");
    assert_eq!(*seen.lock(), [0; 0], "{streaming:?}: half a list is not notified");

    fleet.clusters["c00"].heal();
    fleet.converged().await;
    eventually("a notification of each pod", async || seen.lock().len() >= PODS).await;
    assert_eq!(
        seen.lock().iter().collect::<BTreeSet<_>>(),
        BTreeSet::from([&PODS]),
        "{streaming:?}: all changes are visible at once"
    );
    fleet.end().await;
}
