//! Collectors and elections on real NATS servers, as three processes of a fleet with one that is killed.
//!
//! Run it with `cargo test --package informer-hub-roles --features nats --test nats`. It needs Go, and builds the servers
//! when out of date.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../src/simulation_tests/cluster.rs"]
#[allow(dead_code, reason = "the simulation uses more of it")]
mod cluster;
mod credentials;
mod deletions;
mod election;
#[path = "../../src/simulation_tests/process.rs"]
#[allow(dead_code, reason = "the simulation uses more of it")]
mod process;
mod replica;
#[path = "../../../fleet/tests/nats/server.rs"]
#[allow(dead_code, reason = "the tests of the log use more of it")]
mod server;
mod steering;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use informer_hub_roles::{
    Backend, Collector, CollectorParams, ConnectorWrap, FixedLimits, Host, NatsBackend, NatsParams,
};
use informer_hub_types::{Shard, Threads, clock};
use rand::SeedableRng;
use rand::rngs::StdRng;

use cluster::SimulatedCluster;
use process::Process;
use server::{Servers, within};

const CLUSTERS: usize = 4;

type Clusters = BTreeMap<Shard, Arc<SimulatedCluster>>;

/// Returns the spawner of a process.
fn threads() -> Threads {
    Threads::current()
}

fn backend(name: &str, servers: &Servers) -> NatsBackend {
    NatsBackend::new(params(name, servers, 3))
}

fn params(name: &str, servers: &Servers, replicas: usize) -> NatsParams {
    NatsParams {
        servers: servers.urls(),
        credentials: None,
        name: name.to_owned(),
        fleet: "test".to_owned(),
        replicas,
        max_age: Duration::from_secs(3600),
        max_bytes: 1 << 30,
        fixed: FixedLimits::default(),
        timeout: Duration::from_secs(2),
    }
}

fn start(name: &str, servers: &Servers, clusters: &Clusters) -> Process {
    let mut params = CollectorParams::new(name, Duration::from_secs(3600));
    params.checkpoint = Duration::from_secs(1);
    Process::start(params, Arc::new(backend(name, servers)), clusters)
}

fn clusters() -> Clusters {
    let cluster = |at| (format!("c{at}").parse().unwrap(), Arc::new(SimulatedCluster::new(0.0)));
    (0..CLUSTERS).map(cluster).collect()
}

/// Returns how often each cluster was listed.
fn lists(clusters: &Clusters) -> Vec<usize> {
    clusters.values().map(|cluster| cluster.lists()).collect()
}

/// Changes the clusters, and waits until the owners' caches equal them.
async fn follow(processes: &[Process], clusters: &Clusters, rng: &mut StdRng) {
    for _ in 0..50 {
        for cluster in clusters.values() {
            cluster.churn(rng);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    within("the caches of the owners equal the clusters", async {
        let is_cached = |(name, cluster): (&Shard, &Arc<SimulatedCluster>)| {
            let owners = processes.iter().filter(|process| process.collector.owned().contains(name));
            let caches: Vec<_> = owners.map(|process| process.cached(name)).collect();
            caches == [Some(cluster.objects())]
        };
        while !clusters.iter().all(is_cached) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clusters_of_a_killed_collector_are_taken_over_without_a_list() {
    let seed = 11;
    println!("seed {seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let mut servers = Servers::start(3).await;
    let clusters = clusters();
    let mut processes: Vec<_> = ["a", "b", "c"].map(|name| start(name, &servers, &clusters)).into();
    follow(&processes, &clusters, &mut rng).await;
    let listed = lists(&clusters);
    let owned: Vec<_> = processes.iter().map(|process| process.collector.owned().len()).collect();
    println!("owned: {owned:?}");
    // Time for checkpoints, so that the takeovers use them.
    tokio::time::sleep(Duration::from_secs(3)).await;
    servers.kill(0);
    follow(&processes, &clusters, &mut rng).await;
    let busiest = (0..processes.len()).max_by_key(|at| owned[*at]).unwrap();
    let killed = clock::now();
    let taken = processes.swap_remove(busiest).collector.owned();
    follow(&processes, &clusters, &mut rng).await;
    println!("{} clusters were taken over in {:?}", taken.len(), killed.elapsed());
    assert!(!taken.is_empty());
    servers.restart(0).await;
    let released = processes.swap_remove(0);
    let released_at = clock::now();
    released.collector.shutdown().await;
    drop(released);
    follow(&processes, &clusters, &mut rng).await;
    println!("the rest was handed over in {:?}", released_at.elapsed());
    assert_eq!(lists(&clusters), listed, "a takeover lists nothing");
}
