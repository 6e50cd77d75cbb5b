//! Tests of clusters whose protobuf is faulty in a list, a streaming list or a watch: nothing is lost, and no object is
//! deleted.

use std::collections::BTreeMap;
use std::sync::Arc;

use informer_hub::actors::Subscriber;
use informer_hub_sim::{BadProtobuf, Fault, FaultScript, Rule, SimCluster, SimConfig, Streaming, When};
use informer_hub_types::Notification;
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::fleet::{Fleet, Wire, config, quick, small};
use crate::parity::to_pods;
use crate::subscriptions::touch;

const PODS: usize = 20;

/// Answer in which a fault occurs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Struck {
    List,
    StreamingList,
    Watch,
}

impl Struck {
    /// Returns the rule, and whether the cluster streams lists.
    fn rule(self, fault: BadProtobuf) -> (Rule, Streaming) {
        let fault = Fault::BadProtobuf(fault);
        match self {
            Self::List => (Rule::new(When::List, fault).after(5), Streaming::Refused),
            Self::StreamingList => (Rule::new(When::Streaming, fault).after(5), Streaming::Supported),
            Self::Watch => (Rule::new(When::Streaming, fault).after(PODS + 1), Streaming::Supported),
        }
    }

    /// Returns the number of objects that are skipped.
    fn skips(self, fault: BadProtobuf) -> u64 {
        match fault {
            // An empty item has no name, so it is skipped. The bytes after it are not a valid list.
            BadProtobuf::Length(0) if self == Self::List => 1,
            BadProtobuf::OtherKind if self != Self::List => 3,
            BadProtobuf::Status if self != Self::List => 1,
            _ => 0,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faulty_protobuf_loses_and_deletes_no_object() {
    let (mut clusters, mut skips) = (BTreeMap::new(), BTreeMap::new());
    for struck in [Struck::List, Struck::StreamingList, Struck::Watch] {
        for (at, fault) in (0..).zip(BadProtobuf::ALL) {
            let (rule, streaming) = struck.rule(fault);
            let cluster = SimCluster::start(SimConfig { streaming, ..small(at, PODS) }, &Handle::current()).unwrap();
            cluster.set_faults(FaultScript::one(rule));
            let name = format!("{struck:?}-{at}").to_lowercase();
            skips.insert(name.clone(), (struck, fault, struck.skips(fault)));
            clusters.insert(name, cluster);
        }
    }
    let mut config = config(&clusters, &["pods"]);
    Wire::ALL[0].apply(&mut config);
    let fleet = Fleet::start_config(clusters, config, quick()).await;
    let deleted = Arc::<Mutex<Vec<String>>>::default();
    let of_subscriber = Arc::clone(&deleted);
    let subscriber = Subscriber::<()>::from_fn(move |notification: &Notification<()>| {
        if let Notification::Deleted { object, .. } = notification {
            of_subscriber.lock().push(format!("{}/{}", object.cluster(), object.key()));
        }
    });
    fleet.hub.registry().send(to_pods(subscriber)).await.unwrap();
    fleet.synced().await;
    for _ in 0..3 {
        fleet.clusters.values().for_each(touch);
        fleet.converged().await;
    }
    for (name, (struck, fault, skips)) in &skips {
        assert_eq!(fleet.clusters[name].fault_log().len(), 1, "{struck:?} {fault:?} was not struck");
        let informer = fleet.informer(name).await;
        assert_eq!((informer.restarts, informer.skipped), (0, *skips), "{struck:?} {fault:?}: {informer:?}");
    }
    assert_eq!(*deleted.lock(), Vec::<String>::new(), "objects that exist");
    fleet.end().await;
}
