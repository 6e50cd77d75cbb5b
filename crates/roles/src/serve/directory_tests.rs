//! Tests of a replica's watch of owners and documents: its requests, and what the replica reports if the watch fails.

use std::sync::Arc;
use std::time::Duration;

use informer_hub_fleet::simulated_log::Faults;
use informer_hub_fleet::{ClusterDocument, Ownership};
use informer_hub_reflector::Connector;
use informer_hub_types::Shard;
use tokio::time::sleep;

use super::{Replica, ReplicaParams};
use crate::backend::Backend;
use crate::simulated::{SimulatedBackend, SimulatedFleet};
use crate::simulation_tests::replica::Unreachable;
use crate::simulation_tests::{run, threads};

/// Replica of a fleet whose one collector renews all clusters every second.
struct Served {
    fleet: SimulatedFleet,
    owned: Vec<Ownership>,
    backend: Arc<SimulatedBackend>,
    replica: Replica,
    connectors: Vec<Arc<dyn Connector>>,
}

impl Served {
    async fn start(clusters: usize) -> Self {
        let fleet = SimulatedFleet::new(Faults::NONE);
        let collector = fleet.connect();
        let mut owned = Vec::new();
        for at in 0..clusters {
            let shard = format!("c{at}").parse().unwrap();
            owned.push(collector.claim(&shard, "a", None, 0).await.unwrap().unwrap());
            let document = ClusterDocument { address: format!("https://c{at}"), ..ClusterDocument::default() };
            collector.save_document(&shard, document, None).await.unwrap().unwrap();
        }
        let backend = Arc::new(fleet.connect());
        let shared: Arc<dyn Backend> = Arc::<SimulatedBackend>::clone(&backend);
        let replica = Replica::start(shared, ReplicaParams::new("replica"), &threads());
        let connector = |own: &Ownership| replica.connector(&own.shard.cluster, Arc::new(Unreachable));
        let connectors = owned.iter().map(connector).collect();
        Self { fleet, owned, backend, replica, connectors }
    }

    fn stale(&self) -> Vec<String> {
        let shards = self.replica.status().shards.into_values();
        shards.filter_map(|shard| shard.stale).map(|stale| stale.reason).collect()
    }

    /// Lets virtual time pass while the collector renews its clusters.
    async fn pass(&mut self, seconds: u64) {
        let collector = self.fleet.connect();
        for _ in 0..seconds {
            sleep(Duration::from_secs(1)).await;
            for own in &mut self.owned {
                *own = collector.renew(own).await.unwrap().unwrap();
            }
        }
    }
}

#[test]
fn requests_do_not_grow_with_the_clusters() {
    let requests = |clusters| {
        run(1, async || {
            let mut served = Served::start(clusters).await;
            served.pass(10).await;
            let before = served.backend.requests();
            served.pass(120).await;
            let status = served.replica.status();
            assert!(status.shards.values().all(|shard| shard.collector == "a" && shard.stale.is_none()));
            assert_eq!(status.shards.len(), served.connectors.len());
            served.backend.requests() - before
        })
    };
    let (few, many) = (requests(10), requests(1000));
    println!("requests in 120 s: {few} for 10 clusters, {many} for 1,000");
    assert!(few.abs_diff(many) <= few / 10, "{few} {many}");
    // Two requests every two seconds: for the last revisions of the buckets, and for the end of the silent log.
    assert!(many <= 140, "{many}");
}

#[test]
fn replica_that_is_cut_off_is_stale_in_time_with_the_reason_and_recovers() {
    run(1, async || {
        let mut served = Served::start(20).await;
        served.pass(30).await;
        assert!(served.stale().is_empty());
        served.backend.set_cut_off(true);
        served.pass(13).await;
        assert!(served.replica.status().error.is_some(), "the error is reported before the clusters are stale");
        assert!(served.stale().is_empty());
        served.pass(5).await;
        let stale = served.stale();
        assert_eq!(stale.len(), 20);
        assert!(stale[0].starts_with("the fleet's data about the cluster has been unreadable since"), "{stale:?}");
        assert!(stale[0].ends_with("the simulated services do not answer"), "{stale:?}");
        served.backend.set_cut_off(false);
        served.pass(3).await;
        assert_eq!((served.stale(), served.replica.status().error), (Vec::new(), None));
    });
}

#[test]
fn collector_without_a_sign_of_life_makes_its_clusters_stale() {
    run(1, async || {
        let mut served = Served::start(3).await;
        served.pass(5).await;
        let dead = served.owned.remove(1);
        let released = served.owned.remove(1);
        served.fleet.connect().release(&released).await.unwrap();
        served.pass(14).await;
        assert!(served.stale().is_empty());
        served.pass(4).await;
        let stale = served.stale();
        assert_eq!(stale.len(), 2);
        assert!(stale[0].starts_with("collector a has not renewed its ownership since"), "{stale:?}");
        assert!(stale[1].starts_with("no collector has watched the cluster since"), "{stale:?}");
        let collector = served.fleet.connect();
        served.owned.push(collector.claim(&dead.shard, "b", Some(&dead), 0).await.unwrap().unwrap());
        served.pass(1).await;
        assert_eq!(served.stale().len(), 1);
        assert_eq!(served.replica.status().shards[&dead.shard].collector, "b");
    });
}

#[test]
fn silent_watch_is_replaced_before_a_cluster_is_stale() {
    run(1, async || {
        let mut served = Served::start(5).await;
        served.pass(5).await;
        for _ in 0..10 {
            served.fleet.silence_watches();
            for _ in 0..12 {
                served.pass(1).await;
                assert!(served.stale().is_empty());
            }
        }
    });
}

#[test]
fn killed_server_makes_no_cluster_stale() {
    run(1, async || {
        let mut served = Served::start(5).await;
        served.pass(5).await;
        for _ in 0..20 {
            // Until another server leads the bucket, requests are lost. The watch was served by the one that was killed.
            served.fleet.silence_watches();
            served.fleet.lose_requests(true);
            sleep(Duration::from_secs(8)).await;
            served.fleet.lose_requests(false);
            for _ in 0..12 {
                assert_eq!(served.stale(), Vec::<String>::new());
                served.pass(1).await;
            }
        }
    });
}

#[test]
fn added_cluster_is_known_at_once_and_a_dropped_one_is_forgotten() {
    run(1, async || {
        let mut served = Served::start(2).await;
        served.pass(5).await;
        let shard: Shard = "late".parse().unwrap();
        served.owned.push(served.fleet.connect().claim(&shard, "a", None, 0).await.unwrap().unwrap());
        served.pass(5).await;
        let connector = served.replica.connector(&shard.cluster, Arc::new(Unreachable));
        served.pass(1).await;
        assert_eq!(served.replica.status().shards[&shard].collector, "a");
        drop(connector);
        served.connectors.pop();
        assert_eq!(served.replica.status().shards.len(), 1);
    });
}
