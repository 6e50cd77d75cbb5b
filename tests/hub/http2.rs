//! Clusters over TLS and HTTP/2: few connections, faults of shared connections, and the fallback to HTTP/1.1.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use informer_hub::app::Hub;
use informer_hub_config::{ClusterAccess, Config, HttpVersions};
use informer_hub_sim::{Churn, Fault, FaultScript, Rule, SimCluster, SimConfig, Stats, Streaming, When};
use informer_hub_testing::tls::Ca;
use tempfile::NamedTempFile;
use tokio::runtime::Handle;

use crate::fleet::{Fleet, PATIENCE, cluster_config, eventually, quick, resource_config, small};

/// Streams per connection, as a kube-apiserver allows by default.
const STREAMS: u32 = 100;

/// Clusters with TLS, and a configuration that reaches them over HTTP/2.
struct Bed {
    clusters: BTreeMap<String, SimCluster>,
    config: Config,
    _ca_file: NamedTempFile,
}

impl Bed {
    fn new(clusters: Vec<SimConfig>, protocols: &[&[u8]]) -> Self {
        let (ca, ca_file) = (Ca::new(), NamedTempFile::new().unwrap());
        std::fs::write(ca_file.path(), ca.pem()).unwrap();
        let start = |(i, config): (usize, SimConfig)| {
            let config = SimConfig { tls: Some(ca.server_config(protocols)), http2: Some(STREAMS), ..config };
            (format!("c{i}"), SimCluster::start(config, &Handle::current()).unwrap())
        };
        let clusters: BTreeMap<_, _> = clusters.into_iter().enumerate().map(start).collect();
        let mut config = Config::default();
        config.clusters = clusters.iter().map(|(name, cluster)| cluster_config(name, &cluster.url())).collect();
        for (cluster, sim) in config.clusters.iter_mut().zip(clusters.values()) {
            cluster.access = ClusterAccess::server(sim.url(), Some(ca_file.path().to_owned()), None);
            cluster.http = HttpVersions::Auto;
        }
        config.resources = vec![resource_config("pods")];
        Self { clusters, config, _ca_file: ca_file }
    }

    fn stats(&self) -> Stats {
        self.clusters["c0"].stats()
    }
}

const BOTH: &[&[u8]] = &[b"h2", b"http/1.1"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_hundred_watches_need_four_connections() {
    for streaming in [Streaming::Refused, Streaming::Supported] {
        let mut bed = Bed::new(vec![SimConfig { streaming, ..small(1, 20) }], BOTH);
        bed.config.resources[0].namespaces = (0..300).map(|i| format!("namespace-{i}")).collect();
        let hub = Hub::start_with(bed.config.clone(), quick()).await.unwrap();
        hub.wait_for_cache_sync(PATIENCE).await.unwrap();
        eventually("all watches are open", async || bed.stats().open_watches == 300).await;
        // Streaming lists use connections of their own, and become watches there.
        let most = if streaming == Streaming::Supported { 6 } else { 4 };
        eventually("few connections", async || (3..=most).contains(&bed.stats().open_connections)).await;
        assert_eq!(hub.shutdown(Duration::from_secs(10)).await.actors_left, 0);
        eventually("no connection is left", async || bed.stats().open_connections == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hub_converges_after_faults_of_shared_connections() {
    for seed in 0..12 {
        eprintln!("seed {seed}");
        let streaming = |i| if i == 0 { Streaming::Supported } else { Streaming::Refused };
        let bed =
            Bed::new((0..2).map(|i| SimConfig { streaming: streaming(i), ..small(seed + i, 30) }).collect(), BOTH);
        for (i, cluster) in (0..).zip(bed.clusters.values()) {
            cluster.set_faults(FaultScript::seeded(2 * seed + i, 0.3).with_http2());
        }
        let fleet = Fleet::start_config(bed.clusters, bed.config, quick()).await;
        let mut churn = Churn::new(seed);
        for _ in 0..40 {
            for cluster in fleet.clusters.values() {
                cluster.with_world(|world| churn.step(world));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        fleet.clusters.values().for_each(|cluster| cluster.heal());
        fleet.converged().await;
        fleet.end().await;
    }
}

/// Starts a hub over one cluster whose pod watch has a fault after three events. Returns the hub once the fault has
/// occurred. The skipped request is the streaming list, which the server refuses.
async fn struck(fault: Fault) -> (Fleet, Churn) {
    let bed = Bed::new(vec![SimConfig { streaming: Streaming::Refused, ..small(7, 20) }], BOTH);
    bed.clusters["c0"].set_faults(FaultScript::one(Rule::new(When::Watch, fault).resource("pods").skip(1).after(3)));
    let fleet = Fleet::start_config(bed.clusters, bed.config, quick()).await;
    fleet.synced().await;
    let mut churn = Churn::new(7);
    eventually("the fault strikes", async || {
        fleet.clusters["c0"].with_world(|world| churn.step(world));
        !fleet.clusters["c0"].fault_log().is_empty()
    })
    .await;
    (fleet, churn)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn goaway_ends_no_watch() {
    let (fleet, mut churn) = struck(Fault::GoAway).await;
    let before = fleet.clusters["c0"].stats();
    for _ in 0..20 {
        fleet.clusters["c0"].with_world(|world| churn.step(world));
    }
    fleet.converged().await;
    let after = fleet.clusters["c0"].stats();
    assert_eq!((after.lists, after.watches), (before.lists, before.watches), "no watch was opened again");
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reset_stream_resumes_without_a_list() {
    let (fleet, mut churn) = struck(Fault::ResetStream).await;
    let before = fleet.clusters["c0"].stats();
    fleet.clusters["c0"].with_world(|world| churn.step(world));
    fleet.converged().await;
    let after = fleet.clusters["c0"].stats();
    assert_eq!((after.lists, after.connections), (before.lists, before.connections), "the connection goes on");
    assert_eq!(after.watches, before.watches + 1);
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_leave_a_dead_connection_without_a_list() {
    let (fleet, mut churn) = struck(Fault::Freeze(Duration::from_secs(600))).await;
    let (before, began) = (fleet.clusters["c0"].stats(), Instant::now());
    fleet.clusters["c0"].with_world(|world| churn.step(world));
    fleet.converged().await;
    assert!(began.elapsed() < Duration::from_secs(35), "{:?}", began.elapsed());
    assert_eq!(fleet.clusters["c0"].stats().lists, before.lists);
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_without_http2_is_watched_over_http1() {
    let mut bed = Bed::new(vec![small(3, 20)], &[b"http/1.1"]);
    bed.config.resources = vec![resource_config("pods"), resource_config("nodes")];
    let fleet = Fleet::start_config(bed.clusters, bed.config, quick()).await;
    fleet.synced().await;
    fleet.converged().await;
    let stats = fleet.clusters["c0"].stats();
    assert!(stats.open_connections >= stats.open_watches, "{stats:?}");
    fleet.end().await;
}
