//! Watch of the owners on real servers: without any one of them, and without all.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use informer_hub_reflector::{Connection, Connector, SourceError};
use informer_hub_roles::{Backend, Ownership, Replica, ReplicaParams};
use informer_hub_types::{Shard, Threads, clock};
use tokio::time::sleep;

use super::{Servers, backend};

const CLUSTERS: usize = 20;

/// Connector of a cluster that a replica must not connect to.
#[derive(Debug)]
struct Unreachable;

impl Connector for Unreachable {
    fn connect(&self) -> BoxFuture<'static, Result<Arc<dyn Connection>, SourceError>> {
        panic!("a replica connects to a cluster");
    }
}

fn stale(replica: &Replica) -> Vec<String> {
    let shards = replica.status().shards.into_values();
    shards.filter_map(|shard| shard.stale).map(|stale| stale.reason).collect()
}

/// Renews the clusters every second, as a collector does.
async fn renew(backend: impl Backend, mut owned: Vec<Ownership>) {
    loop {
        sleep(Duration::from_secs(1)).await;
        for own in &mut owned {
            match backend.renew(own).await {
                Ok(Some(renewed)) => *own = renewed,
                // The answer to an earlier renewal was lost.
                Ok(None) => _ = backend.owner(&own.shard).await.map(|found| *own = found.unwrap()),
                Err(_) => break,
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replica_follows_the_owners_without_any_one_server_and_is_stale_without_all() {
    let mut servers = Servers::start(3).await;
    let collector = backend("a", &servers);
    let mut owned = Vec::new();
    for at in 0..CLUSTERS {
        let shard: Shard = format!("c{at}").parse().unwrap();
        let claimed = super::within("the servers elect a leader, and answer", async {
            loop {
                match collector.claim(&shard, "a", None, 0).await {
                    Ok(Some(claimed)) => return claimed,
                    // An earlier claim was executed, and its answer lost.
                    Ok(None) => return collector.owner(&shard).await.unwrap().unwrap(),
                    Err(_) => sleep(Duration::from_millis(100)).await,
                }
            }
        });
        owned.push(claimed.await);
    }
    let shards: Vec<_> = owned.iter().map(|own| own.shard.clone()).collect();
    let renewing = tokio::spawn(renew(collector, owned));
    let shared: Arc<dyn Backend> = Arc::new(backend("replica", &servers));
    let replica = Replica::start(shared, ReplicaParams::new("replica"), &Threads::current());
    let _connectors: Vec<_> = shards.iter().map(|it| replica.connector(&it.cluster, Arc::new(Unreachable))).collect();
    let is_known = |replica: &Replica| replica.status().shards.values().all(|known| known.collector == "a");
    super::within("the owners are known", async {
        while !is_known(&replica) {
            sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    for at in 0..3 {
        let watching = async |seconds| {
            for _ in 0..5 * seconds {
                sleep(Duration::from_millis(200)).await;
                assert_eq!(stale(&replica), Vec::<String>::new(), "without server {at}");
            }
        };
        servers.kill(at);
        watching(12).await;
        servers.restart(at).await;
        watching(4).await;
    }
    (0..3).for_each(|at| servers.kill(at));
    let died = clock::now();
    super::within("the clusters are stale", async {
        while stale(&replica).len() < CLUSTERS {
            sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    println!("stale after {:?}: {}", died.elapsed(), stale(&replica)[0]);
    assert!(died.elapsed() < Duration::from_secs(25), "{:?}", died.elapsed());
    assert!(stale(&replica)[0].starts_with("the fleet's data about the cluster has been unreadable since"));
    for at in 0..3 {
        servers.restart(at).await;
    }
    let back = clock::now();
    super::within("the clusters are current", async {
        while !stale(&replica).is_empty() {
            sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    println!("current again after {:?}", back.elapsed());
    assert!(replica.status().shards.len() == CLUSTERS && is_known(&replica));
    renewing.abort();
}
