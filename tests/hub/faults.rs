//! Seeded fault schedules, after which cache and subscribers must converge.

use std::collections::BTreeMap;

use informer_hub_sim::{Churn, FaultScript, SimCluster, Streaming};
use tokio::runtime::Handle;

use crate::fleet::{Fleet, Wire, config, quick, small};

/// Default seeds. `FAULT_SEEDS=a..b` runs others, `INFORMER_HUB_SEED=a` runs one.
const SEEDS: std::ops::Range<u64> = 0..200;

/// Number of concurrent schedules, which mostly wait.
const AT_ONCE: usize = 8;

const CLUSTERS: u64 = 4;

fn seeds() -> std::ops::Range<u64> {
    if let Ok(seed) = std::env::var("INFORMER_HUB_SEED") {
        let seed: u64 = seed.parse().expect("INFORMER_HUB_SEED is a number");
        return seed..seed + 1;
    }
    let Ok(text) = std::env::var("FAULT_SEEDS") else { return SEEDS };
    let (from, to) = text.split_once("..").expect("FAULT_SEEDS is written from..to");
    from.parse().unwrap()..to.parse().unwrap()
}

/// Runs one schedule: four changing clusters with faults, one of which also stops and restarts.
async fn schedule(seed: u64) {
    eprintln!("seed {seed}");
    let mut clusters = BTreeMap::new();
    for i in 0..CLUSTERS {
        let mut config = small(seed * CLUSTERS + i, 30);
        config.streaming = match (seed + i) % 3 {
            0 => Streaming::Refused,
            1 => Streaming::Ignored,
            _ => Streaming::Supported,
        };
        config.honour_limit = seed.is_multiple_of(2);
        let cluster = SimCluster::start(config, &Handle::current()).unwrap();
        cluster.set_faults(FaultScript::seeded(seed * CLUSTERS + i, 0.3).with_http2().with_protobuf());
        clusters.insert(format!("s{seed}c{i}"), cluster);
    }
    let mut config = config(&clusters, &["pods"]);
    Wire::of_seed(seed / 2).apply(&mut config);
    let mut fleet = Fleet::start_config(clusters, config, quick()).await;
    let mut churns: Vec<_> = (0..CLUSTERS).map(|i| Churn::new(seed * CLUSTERS + i)).collect();
    for round in 0..10 {
        for (cluster, churn) in fleet.clusters.values().zip(&mut churns) {
            for _ in 0..8 {
                cluster.with_world(|world| churn.step(world));
            }
        }
        if round == 3 {
            fleet.first().stop().await;
        }
        if round == 7 {
            fleet.first().restart().await;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    for cluster in fleet.clusters.values() {
        cluster.heal();
    }
    fleet.converged().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hub_converges_after_every_fault_schedule() {
    use futures::StreamExt;
    let results = futures::stream::iter(seeds().map(|seed| async move { (seed, tokio::spawn(schedule(seed)).await) }));
    let failed: Vec<_> = results
        .buffer_unordered(AT_ONCE)
        .filter_map(
            |(seed, result)| async move { result.err().map(|error| format!("INFORMER_HUB_SEED={seed}: {error}")) },
        )
        .collect()
        .await;
    assert!(failed.is_empty(), "{failed:#?}");
}
