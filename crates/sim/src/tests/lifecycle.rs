//! Tests of stop, restart, drop and the request counters.

use super::super::Churn;
use super::*;

#[tokio::test]
async fn restarted_cluster_keeps_its_port_and_history() {
    let cluster = cluster();
    let (before, address) = (version(&cluster), cluster.address());
    let mut watch = watch_now(&cluster).await;
    for round in 1..=3 {
        cluster.stop().await;
        let refused = TcpStream::connect(address).await.unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
        assert_eq!(cluster.stats().open_connections, 0);
        touch(&cluster);
        cluster.restart().await;
        assert_eq!(cluster.address(), address);
        assert_eq!(json(&cluster, "/api/v1/pods").await.1["metadata"]["resourceVersion"], (before + round).to_string());
    }
    assert!(watch.line().await.is_err());
    let mut watch = get(&cluster, &format!("/api/v1/pods?watch=true&resourceVersion={before}")).await;
    for round in 1..=3 {
        assert_eq!(watch.event().await.2, before + round);
    }
}

#[tokio::test]
async fn dropped_cluster_closes_its_port_and_connections() {
    let cluster = cluster();
    let address = cluster.address();
    let mut watch = watch_now(&cluster).await;
    drop(cluster);
    assert!(watch.line().await.is_err());
    let closed = async {
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    within(closed).await;
}

#[tokio::test]
async fn stats_count_requests() {
    let cluster = cluster();
    json(&cluster, "/api").await;
    json(&cluster, "/api/v1/pods?limit=10").await;
    let watch = watch_now(&cluster).await;
    let stats = cluster.stats();
    assert_eq!((stats.requests, stats.lists, stats.watches, stats.open_watches, stats.connections), (3, 1, 1, 1, 3));
    assert!(stats.bytes_sent > 5000);
    drop(watch);
    eventually("no connection left", || cluster.stats().open_connections == 0).await;
    assert_eq!(cluster.stats().open_watches, 0);
}

#[tokio::test]
async fn equal_seeds_serve_equal_bytes() {
    let list = async || {
        let cluster = cluster();
        let mut churn = Churn::new(5);
        cluster.with_world(|world| {
            for _ in 0..50 {
                churn.step(world);
            }
        });
        get(&cluster, "/api/v1/pods").await.whole().await.unwrap()
    };
    assert_eq!(list().await, list().await);
}
