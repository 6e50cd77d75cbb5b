//! A hub that watches the pods of replay servers, with two indexes and one listener.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use actix::prelude::*;
use informer_hub::actors::messages::{InformerFor, ResourceRequest, User};
use informer_hub::actors::{Subscribe, Tuning};
use informer_hub::app::{Hub, api_resource};
use informer_hub::{Clusters, Notification, Notifications};
use informer_hub_config::{ClusterAccess, ClusterConfig, Config, Encodings, FleetConfig};
use informer_hub_reflector::InformerOptions;
use informer_hub_sim::replay::{ReplayServer, SENT};
use informer_hub_types::{ClusterName, Scope};
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;

/// Timeout of each phase.
pub const TIMEOUT: Duration = Duration::from_secs(240);

/// Counters of the notifications of the listener.
#[derive(Clone, Default)]
pub struct Notified {
    /// Number of notifications.
    pub count: Arc<AtomicU64>,
    /// Newest version.
    pub version: Arc<AtomicU64>,
    /// Version of the last expected event.
    target: Arc<AtomicU64>,
    /// Number of clusters whose last expected event has arrived.
    finished: Arc<AtomicU64>,
    /// Whether latencies are recorded.
    pub timed: Arc<AtomicBool>,
    /// Times from the server's send to the notification.
    pub latencies: Arc<Mutex<Vec<Duration>>>,
}

impl Notified {
    /// Waits until there have been `count` notifications.
    pub async fn wait_for_count(&self, count: u64) {
        wait_until("the number of notifications", || self.count.load(Relaxed) >= count).await;
    }

    /// Waits for an event of this version or a later one.
    pub async fn wait_for_version(&self, version: u64) {
        wait_until("the last event", || self.version.load(Relaxed) >= version).await;
    }

    /// Sets the version of the last event that each cluster is about to send. To be called before the events are sent.
    pub fn expect(&self, version: u64) {
        self.finished.store(0, Relaxed);
        self.target.store(version, Relaxed);
    }

    /// Waits until the last expected event of `clusters` clusters has arrived.
    pub async fn wait_for_clusters(&self, clusters: u64) {
        wait_until("the last event of every cluster", || self.finished.load(Relaxed) >= clusters).await;
    }

    /// Returns the number of notifications so far.
    pub fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    /// Records an update that arrived at `called`, with its version and send time.
    pub fn update(&self, called: Instant, version: u64, sent: impl FnOnce() -> Option<String>) {
        self.version.fetch_max(version, Relaxed);
        if version == self.target.load(Relaxed) {
            self.finished.fetch_add(1, Relaxed);
        }
        self.count.fetch_add(1, Relaxed);
        if self.timed.load(Relaxed)
            && let Some(since_sent) = sent().and_then(|sent| ReplayServer::since_sent(&sent))
        {
            self.latencies.lock().push(since_sent.saturating_sub(called.elapsed()));
        }
    }

    /// Returns the latencies since the last call, sorted.
    pub fn take_latencies(&self) -> Vec<Duration> {
        let mut all = std::mem::take(&mut *self.latencies.lock());
        all.sort_unstable();
        all
    }
}

/// Subscriber that counts notifications.
pub struct Listener(pub Notified);

impl Actor for Listener {
    type Context = Context<Self>;
}

impl Handler<Notifications<Pod>> for Listener {
    type Result = ();

    fn handle(&mut self, batch: Notifications<Pod>, _: &mut Self::Context) {
        let called = Instant::now();
        for notification in &batch.0 {
            match notification {
                Notification::Updated { new, .. } => {
                    let version = new.resource_version().as_number().unwrap();
                    self.0.update(called, version, || sent(&new.json().unwrap()));
                }
                Notification::Added { .. } => drop(self.0.count.fetch_add(1, Relaxed)),
                _ => {}
            }
        }
    }
}

/// Returns the send time in the JSON of an object. Searches the text, because decoding would distort the measurement.
fn sent(json: &[u8]) -> Option<String> {
    let key = format!("\"{SENT}\":\"");
    let at = memchr::memmem::find(json, key.as_bytes())? + key.len();
    let digits = json[at..].iter().take_while(|byte| byte.is_ascii_digit());
    Some(digits.map(|byte| char::from(*byte)).collect())
}

/// Starts a hub with one cluster for each URL or kubeconfig, without informers.
pub async fn idle_hub(urls: &[String], ca_file: Option<&Path>) -> Hub {
    hub_with(Encodings::Auto, urls, ca_file, None).await
}

/// Starts a hub as [`idle_hub`] does, but requests `encoding` from the clusters.
pub async fn idle_hub_asking_for(encoding: Encodings, urls: &[String], ca_file: Option<&Path>) -> Hub {
    hub_with(encoding, urls, ca_file, None).await
}

/// Starts a hub as [`idle_hub`] does. With `fleet`, it is a process of that fleet.
pub async fn hub_of_fleet(urls: &[String], fleet: Option<FleetConfig>) -> Hub {
    hub_with(Encodings::Auto, urls, None, fleet).await
}

async fn hub_with(encoding: Encodings, urls: &[String], ca_file: Option<&Path>, fleet: Option<FleetConfig>) -> Hub {
    let access = |url: &String| {
        if url.starts_with("http") {
            ClusterAccess::server(url, ca_file.map(Path::to_owned), None)
        } else {
            ClusterAccess::kubeconfig(url, None)
        }
    };
    let cluster = |(i, url): (usize, &String)| {
        let mut cluster = ClusterConfig::new(ClusterName::new(format!("replay-{i}")).unwrap(), access(url));
        (cluster.compression, cluster.encoding) = (false, encoding);
        cluster
    };
    let mut config = Config::default();
    config.clusters = urls.iter().enumerate().map(cluster).collect();
    config.fleet = fleet;
    let mut tuning = Tuning::default();
    // The replay server does not support streaming lists.
    tuning.reflector.streaming_list = !urls.iter().any(|url| url.starts_with("http"));
    Hub::start_with(config, tuning).await.unwrap()
}

/// Makes a hub watch pods with two indexes and the indexes `more` (name and path), and subscribes a listener.
pub async fn watch_pods(hub: &Hub, more: &[(&str, &str)]) -> (Addr<Listener>, Notified) {
    let two = [("by-node", "spec.nodeName"), ("by-image", "spec.containers[*].image")];
    let indexes = two.iter().chain(more).map(|(name, path)| ((*name).into(), path.parse().unwrap()));
    let demand = InformerFor {
        user: User::Caller("bench".to_owned()),
        wanted: ResourceRequest::known(&api_resource::<Pod>()),
        clusters: Clusters::all(),
        scopes: vec![Scope::all()],
        options: Arc::new(InformerOptions { indexes: indexes.collect(), ..InformerOptions::default() }),
        watch_errors: None,
    };
    hub.registry().send(demand).await.unwrap();
    let notified = Notified::default();
    let listener = Listener(notified.clone());
    let address = Listener::start_in_arbiter(hub.system().env().arbiter(), |_| listener);
    let subscribe = Subscribe::to::<Pod>(Clusters::all(), address.clone().recipient::<Notifications<Pod>>());
    hub.registry().send(subscribe).await.unwrap();
    (address, notified)
}

/// Shuts a hub down and asserts that no actor is left.
pub async fn end(hub: Hub) {
    let left = hub.shutdown(Duration::from_secs(5)).await.actors_left;
    assert_eq!(left, 0, "actors leaked");
}

/// Waits until `done` returns true, polling every 2 ms. Panics after [`TIMEOUT`].
pub async fn wait_until(what: &str, done: impl Fn() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < TIMEOUT, "timed out waiting for {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Returns the quantile `part` of a sorted series.
pub fn quantile(sorted: &[Duration], part: f64) -> Duration {
    sorted.get(((sorted.len().max(1) - 1) as f64 * part) as usize).copied().unwrap_or_default()
}
