//! Tests of a hub without faults.

use std::collections::BTreeMap;

use informer_hub_sim::{Churn, SimCluster};
use tokio::runtime::Handle;

use crate::fleet::{Fleet, Wire, config, pods, quick, resource_config, small};

fn clusters(count: u64, pods: usize) -> BTreeMap<String, SimCluster> {
    (0..count).map(|i| (format!("c{i}"), SimCluster::start(small(i, pods), &Handle::current()).unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cache_and_subscriber_follow_three_clusters() {
    for wire in Wire::ALL {
        follow_three_clusters(wire).await;
    }
}

async fn follow_three_clusters(wire: Wire) {
    let clusters = clusters(3, 100);
    let mut config = config(&clusters, &["pods", "nodes"]);
    wire.apply(&mut config);
    let fleet = Fleet::start_config(clusters, config, quick()).await;
    fleet.synced().await;
    fleet.converged().await;
    for (i, cluster) in fleet.clusters.values().enumerate() {
        let mut churn = Churn::new(i as u64);
        for _ in 0..200 {
            cluster.with_world(|world| churn.step(world));
        }
    }
    fleet.converged().await;
    let report = fleet.hub.report().await.unwrap();
    assert!(report.hub.ready);
    assert_eq!(report.hub.clusters.len(), 3);
    assert!(!fleet.clusters["c0"].truth(&pods().gvr).is_empty());
    assert_eq!(fleet.clusters["c0"].stats().protobuf > 0, wire.is_protobuf());
    // An object that a cluster cannot encode, or that the hub cannot decode, would have caused another list.
    let informer = fleet.informer("c0").await;
    assert_eq!((informer.lists, informer.skipped, informer.last_error), (1, 0, None), "{wire:?}");
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_of_one_resource_share_an_informer_with_all_indexes() {
    let cluster = SimCluster::start(small(5, 20), &Handle::current()).unwrap();
    let clusters = BTreeMap::from([("c0".to_owned(), cluster)]);
    let mut config = config(&clusters, &["pods"]);
    let mut again = resource_config("pods");
    "again".clone_into(&mut again.name);
    again.indexes = BTreeMap::from([("by-phase".to_owned(), "status.phase".parse().unwrap())]);
    config.resources.insert(0, again);
    let fleet = Fleet::start_config(clusters, config, quick()).await;
    fleet.synced().await;
    let all = fleet.hub.cache_of(pods()).snapshot().await.unwrap();
    assert_eq!(
        all.index_names().iter().map(informer_hub_types::SharedStr::as_str).collect::<Vec<_>>(),
        ["by-node", "by-phase"]
    );
    let indexed: usize = all.index_values("by-phase").map(|(_, objects)| objects).sum();
    assert_eq!(indexed, fleet.clusters["c0"].truth(&pods().gvr).len());
    assert_eq!(fleet.clusters["c0"].stats().open_watches, 1);
    fleet.end().await;
}
