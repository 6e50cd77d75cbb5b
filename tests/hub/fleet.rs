//! Test fixture: a hub over simulated clusters, with a subscriber that maintains a replica.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use informer_hub::actors::{ClusterStatus, InformerStatus, Subscribe, Subscriber, Tuning};
use informer_hub::app::Hub;
use informer_hub::cache::Query;
use informer_hub::discovery::DiscoveryIntervals;
use informer_hub_config::{
    ClusterAccess, ClusterConfig, Config, Encodings, FileConfig, HttpVersions, Initial, ResourceConfig, SinkConfig,
    TransportConfig,
};
use informer_hub_reflector::{ReflectorOptions, StallPolicy};
use informer_hub_sim::oracle::{Oracle, Replica};
use informer_hub_sim::{GroundTruth, SimCluster, SimConfig, WorldConfig};
use informer_hub_testing::choice;
use informer_hub_types::{ApiResource, ClusterName, ClusterSelector, Gvr, Notification};
use parking_lot::Mutex;
use serde_json::Value;

/// Timeout of every wait. Generous, because other tests may share the CPUs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Polls until a condition holds. Panics after [`PATIENCE`].
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < deadline, "timeout: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) fn pods() -> ApiResource {
    ApiResource { gvr: Gvr::new("", "v1", "pods"), kind: "Pod".into(), namespaced: true }
}

/// Encoding and HTTP version between hub and clusters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wire {
    encoding: Encodings,
    http: HttpVersions,
}

impl Wire {
    /// Every combination.
    pub(crate) const ALL: [Self; 4] = [
        Self { encoding: Encodings::Auto, http: HttpVersions::Http1 },
        Self { encoding: Encodings::Auto, http: HttpVersions::Http2 },
        Self { encoding: Encodings::Json, http: HttpVersions::Http1 },
        Self { encoding: Encodings::Json, http: HttpVersions::Http2 },
    ];

    /// Returns the combination of most tests: `INFORMER_HUB_ENCODING` (`auto`, `json`) and `INFORMER_HUB_HTTP` (`1`,
    /// `2`), protobuf over HTTP/1.1 by default.
    pub(crate) fn usual() -> Self {
        let encoding = choice("INFORMER_HUB_ENCODING", &[("auto", Encodings::Auto), ("json", Encodings::Json)]);
        let http = choice("INFORMER_HUB_HTTP", &[("1", HttpVersions::Http1), ("2", HttpVersions::Http2)]);
        Self { encoding: encoding.unwrap_or_default(), http: http.unwrap_or(HttpVersions::Http1) }
    }

    /// Returns one of the combinations.
    pub(crate) fn of_seed(seed: u64) -> Self {
        Self::ALL[usize::try_from(seed).unwrap() % Self::ALL.len()]
    }

    /// Applies the combination to all clusters of a configuration.
    pub(crate) fn apply(self, config: &mut Config) {
        for cluster in &mut config.clusters {
            (cluster.encoding, cluster.http) = (self.encoding, self.http);
        }
    }

    /// Returns whether the hub asks for protobuf.
    pub(crate) fn is_protobuf(self) -> bool {
        self.encoding == Encodings::Auto
    }
}

/// HTTP/2 streams of a connection, as a kube-apiserver allows by default.
const STREAMS: u32 = 100;

/// Returns the configuration of a cluster with small pods.
pub(crate) fn small(seed: u64, pods: usize) -> SimConfig {
    let world = WorldConfig { seed, pods, small: true, ..WorldConfig::default() };
    SimConfig { world, http2: Some(STREAMS), ..SimConfig::default() }
}

pub(crate) fn cluster_config(name: &str, url: &str) -> ClusterConfig {
    let mut cluster = ClusterConfig::new(ClusterName::new(name).unwrap(), ClusterAccess::server(url, None, None));
    cluster.labels = BTreeMap::from([("name".to_owned(), name.to_owned())]);
    cluster.compression = false;
    (cluster.encoding, cluster.http) = (Wire::usual().encoding, Wire::usual().http);
    cluster
}

pub(crate) fn resource_config(resource: &str) -> ResourceConfig {
    let mut config = ResourceConfig::new(resource, resource.parse().unwrap());
    config.indexes = BTreeMap::from([("by-node".to_owned(), "spec.nodeName".parse().unwrap())]);
    config
}

/// Returns a tuning with short delays.
pub(crate) fn quick() -> Tuning {
    let stall = StallPolicy {
        watch_head: Duration::from_secs(3),
        list_head: Duration::from_secs(3),
        list_chunk: Duration::from_secs(3),
        watch_slack: Duration::from_secs(2),
        initial_events: Duration::from_secs(3),
    };
    let slow_retry = Duration::from_secs(1);
    let discovery = DiscoveryIntervals { poll: Duration::from_secs(1), ..DiscoveryIntervals::default() };
    let reflector = ReflectorOptions { slow_retry, stall, ..ReflectorOptions::default() };
    Tuning { discovery, reflector, ..Tuning::default() }
}

/// Returns the configuration of a hub over these clusters and resources.
pub(crate) fn config(clusters: &BTreeMap<String, SimCluster>, resources: &[&str]) -> Config {
    let mut config = Config::default();
    config.clusters = clusters.iter().map(|(name, cluster)| cluster_config(name, &cluster.url())).collect();
    config.resources = resources.iter().map(|resource| resource_config(resource)).collect();
    config
}

/// Returns a configuration with these sinks.
pub(crate) fn with_sinks(mut config: Config, sinks: Vec<SinkConfig>) -> Config {
    config.sinks = sinks;
    config
}

/// Returns a sink to a file that is never rotated, which gets existing objects too.
pub(crate) fn file_sink(name: &str, path: &Path) -> SinkConfig {
    let mut file = FileConfig::new(path);
    (file.max_size, file.fsync) = (1 << 30, false);
    let mut sink = SinkConfig::new(name, TransportConfig::File(file));
    sink.initial = Initial::Replay;
    sink
}

/// Returns the events that a file sink has written so far, without a line that is still being written.
pub(crate) fn file_events(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    complete.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Simulated clusters and a hub over them.
pub(crate) struct Fleet {
    pub clusters: BTreeMap<String, SimCluster>,
    pub hub: Hub,
    /// Objects that a subscriber to all pods has received.
    pub replica: Arc<Mutex<Replica>>,
}

impl Fleet {
    pub(crate) async fn start(
        clusters: BTreeMap<String, SimCluster>,
        resources: &[&str],
        sinks: Vec<SinkConfig>,
    ) -> Self {
        Self::start_with(clusters, resources, sinks, quick()).await
    }

    pub(crate) async fn start_with(
        clusters: BTreeMap<String, SimCluster>,
        resources: &[&str],
        sinks: Vec<SinkConfig>,
        tuning: Tuning,
    ) -> Self {
        let config = with_sinks(config(&clusters, resources), sinks);
        Self::start_config(clusters, config, tuning).await
    }

    pub(crate) async fn start_config(clusters: BTreeMap<String, SimCluster>, config: Config, tuning: Tuning) -> Self {
        let hub = Hub::start_with(config, tuning).await.unwrap();
        Self::over(clusters, hub).await
    }

    /// Subscribes to the pods of a running hub.
    pub(crate) async fn over(clusters: BTreeMap<String, SimCluster>, hub: Hub) -> Self {
        let replica = Arc::new(Mutex::new(Replica::new()));
        let notified = Arc::clone(&replica);
        let subscriber = Subscriber::<()>::from_fn(move |notification: &Notification<()>| {
            notified.lock().apply(notification);
        });
        let subscribe = Subscribe::to_configured("pods", ClusterSelector::All, subscriber).named("replica");
        hub.registry().send(subscribe).await.unwrap();
        Self { clusters, hub, replica }
    }

    pub(crate) async fn synced(&self) {
        if let Err(error) = self.hub.wait_for_cache_sync(PATIENCE).await {
            panic!("{error}\n{}", self.fault_logs());
        }
    }

    /// Returns the cached pods of one cluster.
    pub(crate) async fn cached(&self, cluster: &str) -> GroundTruth {
        let only = ClusterSelector::Names(vec![ClusterName::new(cluster).unwrap()]);
        let query = Query::list().in_clusters(only);
        let answer = self.hub.cache_of(pods()).send(query).await.unwrap().unwrap();
        answer
            .items
            .iter()
            .map(|object| (object.key().clone(), (object.uid().clone(), object.resource_version().clone())))
            .collect()
    }

    /// Waits until the cache and the replica equal every cluster's state. Then asserts that the replica has no
    /// violations.
    pub(crate) async fn converged(&self) {
        for name in self.clusters.keys() {
            self.converged_on(name).await;
        }
        let violations = self.replica.lock().violations().to_vec();
        assert!(violations.is_empty(), "{violations:#?}\n{}", self.fault_logs());
    }

    /// Waits until the cache and the replica equal one cluster's state.
    pub(crate) async fn converged_on(&self, name: &str) {
        let deadline = Instant::now() + PATIENCE;
        let cluster = &self.clusters[name];
        loop {
            let truth = cluster.truth(&pods().gvr);
            let cached = Oracle::diff(&truth, &self.cached(name).await);
            let notified = Oracle::diff(&truth, &self.replica.lock().seen_of(&format!("{name}/")));
            if cached.is_empty() && notified.is_empty() {
                return;
            }
            if Instant::now() > deadline {
                let report = serde_json::to_string_pretty(&self.cluster(name).await).unwrap();
                panic!("{name}: cache {cached:?}\nreplica {notified:?}\n{report}\n{:#?}", cluster.fault_log());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Returns the status of one cluster.
    pub(crate) async fn cluster(&self, name: &str) -> ClusterStatus {
        let report = self.hub.report().await.unwrap();
        report.hub.clusters.into_iter().find(|cluster| cluster.name.as_str() == name).unwrap()
    }

    /// Returns the status of one cluster's pod informer.
    pub(crate) async fn informer(&self, name: &str) -> InformerStatus {
        self.find_informer(name).await.unwrap()
    }

    async fn find_informer(&self, name: &str) -> Option<InformerStatus> {
        self.cluster(name).await.informers.into_iter().find(|informer| informer.resource.starts_with("pods"))
    }

    /// Waits until the status of one cluster's pod informer meets a condition.
    pub(crate) async fn shows(&self, name: &str, what: &str, condition: impl Fn(&InformerStatus) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let informer = self.find_informer(name).await;
            if informer.as_ref().is_some_and(&condition) {
                return;
            }
            assert!(Instant::now() < deadline, "timeout: {name}: {what}: {informer:#?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Polls until a condition holds. On a timeout, panics with the status of all clusters.
    pub(crate) async fn eventually(&self, what: &str, mut holds: impl AsyncFnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds().await {
            let why = if Instant::now() > deadline { Some(self.diagnostics().await) } else { None };
            assert!(why.is_none(), "timeout: {what}\n{}", why.unwrap_or_default());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until the hub is ready. A hub is ready although resources are forbidden or clusters unreachable.
    pub(crate) async fn ready(&self) {
        self.eventually("ready", async || self.hub.report().await.unwrap().hub.ready).await;
    }

    /// Returns the status, request counters, faults and current version of each cluster.
    async fn diagnostics(&self) -> String {
        let mut lines = Vec::new();
        for (name, sim) in &self.clusters {
            let status = serde_json::to_string_pretty(&self.cluster(name).await).unwrap();
            let version = sim.with_world(|world| world.version());
            lines.push(format!("{name} is at {version}, {:?}\n{:?}\n{status}", sim.stats(), sim.fault_log()));
        }
        lines.join("\n")
    }

    /// Returns the first cluster by name.
    pub(crate) fn first(&mut self) -> &mut SimCluster {
        self.clusters.values_mut().next().unwrap()
    }

    pub(crate) fn fault_logs(&self) -> String {
        let log = |(name, cluster): (&String, &SimCluster)| format!("{name}: {:#?}", cluster.fault_log());
        self.clusters.iter().map(log).collect::<Vec<_>>().join("\n")
    }

    /// Shuts the hub down and asserts that no actor is left.
    pub(crate) async fn end(self) {
        let report = self.hub.shutdown(Duration::from_secs(10)).await;
        assert_eq!(report.actors_left, 0, "actors leaked");
    }
}
