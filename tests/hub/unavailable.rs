//! Tests of unavailable clusters and resources: silent, untrusted, forbidden, absent, overloaded.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use informer_hub::actors::{ClusterState, ClusterStatus};
use informer_hub_config::{ClusterAccess, ClusterConfig};
use informer_hub_sim::{Fault, FaultScript, RawAnswer, Rule, SimCluster, Streaming, When, World};
use informer_hub_testing::tls::{self, Ca};
use informer_hub_types::Phase;
use tokio::runtime::Handle;

use crate::fleet::{Fleet, PATIENCE, cluster_config, config, quick, small};

fn sim(seed: u64) -> SimCluster {
    SimCluster::start(small(seed, 20), &Handle::current()).unwrap()
}

/// Starts a TLS server with a certificate of a new CA, which answers 503 to all requests. Returns its port and the CA.
fn tls_server() -> (u16, String) {
    let ca = Ca::new();
    let config = ca.server_config(&[]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let (Ok(socket), config) = (socket, Arc::clone(&config)) else { continue };
            let busy = b"HTTP/1.1 503 Busy\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
            std::thread::spawn(move || tls::answer(socket, config, busy));
        }
    });
    (port, ca.pem())
}

fn behind_tls(name: &str, port: u16, ca_file: &Path) -> ClusterConfig {
    let server = format!("https://127.0.0.1:{port}");
    let mut cluster = cluster_config(name, "");
    cluster.access = ClusterAccess::server(server, Some(ca_file.to_owned()), None);
    cluster
}

/// Returns all errors in the status of a cluster.
fn errors(cluster: &ClusterStatus) -> String {
    let of_informers = cluster.informers.iter().filter_map(|informer| informer.last_error.as_deref());
    cluster.last_error.as_deref().into_iter().chain(of_informers).collect::<Vec<_>>().join("; ")
}

async fn until(fleet: &Fleet, cluster: &str, what: &str, condition: impl Fn(&ClusterStatus) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let status = fleet.cluster(cluster).await;
        if condition(&status) {
            return;
        }
        assert!(Instant::now() < deadline, "timeout: {cluster} {what}: {status:#?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_and_untrusted_clusters_are_reported_and_block_no_other() {
    // Connections are never accepted: the kernel completes the handshake, and no answer follows.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, right) = tls_server();
    let (_, wrong) = tls_server();
    let (right_file, wrong_file) = (tempfile::NamedTempFile::new().unwrap(), tempfile::NamedTempFile::new().unwrap());
    std::fs::write(right_file.path(), right).unwrap();
    std::fs::write(wrong_file.path(), wrong).unwrap();
    let clusters = BTreeMap::from([("healthy".to_owned(), sim(1))]);
    let mut config = config(&clusters, &["pods", "nodes"]);
    config.clusters.push(cluster_config("silent", &format!("http://{}", silent.local_addr().unwrap())));
    config.clusters.push(behind_tls("untrusted", port, wrong_file.path()));
    config.clusters.push(behind_tls("trusted", port, right_file.path()));
    let begun = Instant::now();
    let fleet = Fleet::start_config(clusters, config, quick()).await;
    fleet.converged_on("healthy").await;
    assert!(begun.elapsed() < Duration::from_secs(10), "delayed by the other clusters: {:?}", begun.elapsed());
    let missing = fleet.hub.wait_for_cache_sync(Duration::from_millis(200)).await.unwrap_err().to_string();
    assert!(missing.contains("silent") && missing.contains("pods") && !missing.contains("healthy"), "{missing}");

    until(&fleet, "untrusted", "refused for its certificate", |status| errors(status).contains("certificate")).await;
    until(&fleet, "trusted", "past the handshake", |status| errors(status).contains("503")).await;
    assert!(!errors(&fleet.cluster("trusted").await).contains("certificate"));
    until(&fleet, "silent", "named as silent", |status| {
        status.state == ClusterState::Unreachable && errors(status).contains("within")
    })
    .await;
    // Unreachable clusters do not make the hub unready.
    fleet.ready().await;
    fleet.converged().await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forbidden_resource_is_watched_once_it_is_permitted() {
    for streaming in [Streaming::Supported, Streaming::Refused] {
        let sim_config = informer_hub_sim::SimConfig { streaming, ..small(2, 20) };
        let shut = SimCluster::start(sim_config, &Handle::current()).unwrap();
        shut.forbid(&World::pods(), true);
        let clusters = BTreeMap::from([("healthy".to_owned(), sim(1)), ("shut".to_owned(), shut)]);
        let fleet = Fleet::start(clusters, &["pods", "nodes"], Vec::new()).await;
        fleet.shows("shut", "forbidden", |pods| pods.state == Phase::Forbidden && !pods.synced).await;
        let error = fleet.informer("shut").await.last_error.unwrap();
        assert!(error.contains("403") && error.contains("pods"), "{error}");
        until(&fleet, "shut", "synced with its nodes", |status| status.informers.iter().any(|i| i.synced)).await;
        fleet.ready().await;
        let requests = fleet.clusters["shut"].stats().requests;
        fleet.clusters["shut"].forbid(&World::pods(), false);
        fleet.converged().await;
        fleet.shows("shut", "no error", |pods| pods.state == Phase::Watching && pods.last_error.is_none()).await;
        assert!(requests < 30, "{requests} requests: a forbidden resource is retried slowly");

        // Forbids it again under an open watch, and cuts that watch.
        fleet.clusters["shut"].forbid(&World::pods(), true);
        fleet.clusters["shut"].stop().await;
        fleet.clusters["shut"].restart().await;
        fleet.shows("shut", "forbidden again", |pods| pods.state == Phase::Forbidden && pods.synced).await;
        assert_eq!(fleet.cached("shut").await.len(), 20, "cached objects stay readable");
        fleet.clusters["shut"].forbid(&World::pods(), false);
        fleet.clusters["shut"].with_world(|world| world.create_pod().unwrap());
        fleet.converged().await;
        fleet.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn absent_resource_is_watched_once_it_is_defined() {
    let widgets = World::widgets();
    let late = sim(2);
    let def = late.with_world(|world| world.resources().find(|def| def.api.gvr == widgets).unwrap().clone());
    late.unregister(&widgets);
    let clusters = BTreeMap::from([("late".to_owned(), late)]);
    let fleet = Fleet::start(clusters, &["pods", "widgets.example.com"], Vec::new()).await;
    let widgets_informer =
        |status: &ClusterStatus| status.informers.iter().find(|i| i.resource.contains("widgets")).cloned();
    until(&fleet, "late", "without widgets", |status| {
        widgets_informer(status).is_some_and(|w| w.state == Phase::Absent && w.last_error.unwrap().contains("widgets"))
    })
    .await;
    fleet.ready().await;
    fleet.converged().await;
    fleet.clusters["late"].with_world(|world| {
        world.register(def);
        world.create_widget("first").unwrap();
    });
    until(&fleet, "late", "with a widget", |status| {
        widgets_informer(status).is_some_and(|w| w.state == Phase::Watching && w.objects == 1 && w.last_error.is_none())
    })
    .await;
    // Removes the resource under its watch and restores it.
    let def = fleet.clusters["late"]
        .with_world(|world| world.resources().find(|def| def.api.gvr == widgets).unwrap().clone());
    fleet.clusters["late"].unregister(&widgets);
    until(&fleet, "late", "without widgets again", |status| {
        widgets_informer(status).is_some_and(|w| w.state == Phase::Absent)
    })
    .await;
    fleet.clusters["late"].with_world(|world| {
        world.register(def);
        world.create_widget("second").unwrap();
        world.create_widget("third").unwrap();
    });
    until(&fleet, "late", "with two widgets", |status| {
        widgets_informer(status).is_some_and(|w| w.state == Phase::Watching && w.objects == 2)
    })
    .await;
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_retry_after_is_reported_and_does_not_block_shutdown() {
    let busy = sim(2);
    let never = u64::MAX.to_string();
    let answer = RawAnswer::new(429, "").header("retry-after", &never);
    busy.set_faults(FaultScript::one(Rule::new(When::Watch, Fault::Answer(answer)).times(usize::MAX)));
    let clusters = BTreeMap::from([("busy".to_owned(), busy), ("healthy".to_owned(), sim(1))]);
    let fleet = Fleet::start(clusters, &["pods"], Vec::new()).await;
    fleet.shows("busy", "429", |pods| pods.last_error.as_deref().is_some_and(|error| error.contains("429"))).await;
    fleet.converged_on("healthy").await;
    let missing = fleet.hub.wait_for_cache_sync(Duration::from_millis(100)).await.unwrap_err().to_string();
    assert!(missing.contains("busy") && missing.contains("pods") && missing.contains("429"), "{missing}");
    assert_eq!(fleet.informer("busy").await.restarts, 0);
    let begun = Instant::now();
    fleet.end().await;
    assert!(begun.elapsed() < Duration::from_secs(5), "shutdown was delayed: {:?}", begun.elapsed());
}
