//! What a hub does when nothing goes wrong.

use std::collections::BTreeMap;

use informer_hub::sim::{Churn, SimCluster};
use tokio::runtime::Handle;

use crate::fleet::{Fleet, pods, small};

fn clusters(count: u64, pods: usize) -> BTreeMap<String, SimCluster> {
    (0..count).map(|i| (format!("c{i}"), SimCluster::start(small(i, pods), &Handle::current()).unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cache_and_subscriber_follow_three_clusters() {
    let fleet = Fleet::start(clusters(3, 200), &["pods", "nodes"], Vec::new()).await;
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
    fleet.end().await;
}
