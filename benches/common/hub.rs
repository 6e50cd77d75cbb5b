//! A hub over replay servers, watching pods with two indices and one listener.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use actix::prelude::*;
use informer_hub::actors::messages::{InformerFor, ResourceRequest, User};
use informer_hub::actors::{Subscribe, Tuning};
use informer_hub::app::{Hub, api_resource};
use informer_hub::{Clusters, Notification, Notifications};
use informer_hub_config::{ClusterAccess, ClusterConfig, Config};
use informer_hub_reflector::InformerOptions;
use informer_hub_sim::replay::{ReplayServer, SENT};
use informer_hub_types::{ClusterName, Scope};
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;

/// How long a phase may take.
pub const PATIENCE: Duration = Duration::from_secs(240);

/// What the listener has been told.
#[derive(Clone, Default)]
pub struct Told {
    /// Notifications.
    pub count: Arc<AtomicU64>,
    /// The newest version.
    pub version: Arc<AtomicU64>,
    /// The version of the last event, and how many clusters have told of it.
    target: Arc<AtomicU64>,
    finished: Arc<AtomicU64>,
    /// Whether latencies are measured.
    pub timed: Arc<AtomicBool>,
    /// Times from sending to being told.
    pub latencies: Arc<Mutex<Vec<Duration>>>,
}

impl Told {
    /// Returns when there have been so many notifications.
    pub async fn reaches(&self, count: u64) {
        until("enough has been told", || self.count.load(Relaxed) >= count).await;
    }

    /// Returns when an event of this version has been told.
    pub async fn reaches_version(&self, version: u64) {
        until("the last event has been told", || self.version.load(Relaxed) >= version).await;
    }

    /// Sets the version that the next events lead to in each cluster; to be called before they are sent.
    pub fn expect(&self, version: u64) {
        self.finished.store(0, Relaxed);
        self.target.store(version, Relaxed);
    }

    /// Returns when so many clusters have told of that version.
    pub async fn finishes(&self, clusters: u64) {
        until("every cluster has told of its last event", || self.finished.load(Relaxed) >= clusters).await;
    }

    /// Notifications so far.
    pub fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    /// An update arrived at `called`, to this version and with this send time.
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

    /// The latencies since last asked, sorted.
    pub fn take_latencies(&self) -> Vec<Duration> {
        let mut all = std::mem::take(&mut *self.latencies.lock());
        all.sort_unstable();
        all
    }
}

/// The one subscriber.
pub struct Listener(pub Told);

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

/// The send time in an object's JSON, found as a text: decoding it all would be measured too.
fn sent(json: &[u8]) -> Option<String> {
    let key = format!("\"{SENT}\":\"");
    let at = memchr::memmem::find(json, key.as_bytes())? + key.len();
    let digits = json[at..].iter().take_while(|byte| byte.is_ascii_digit());
    Some(digits.map(|byte| char::from(*byte)).collect())
}

/// A hub over one cluster per URL, or per kubeconfig, that is asked for nothing yet.
pub async fn idle_hub(urls: &[String], ca_file: Option<&Path>) -> Hub {
    let access = |url: &String| {
        if url.starts_with("http") {
            ClusterAccess::Server { server: url.clone(), ca_file: ca_file.map(Path::to_owned), token: None }
        } else {
            ClusterAccess::Kubeconfig { path: url.into(), context: None }
        }
    };
    let cluster = |(i, url): (usize, &String)| ClusterConfig {
        name: ClusterName::new(format!("replay-{i}")).unwrap(),
        labels: BTreeMap::new(),
        access: access(url),
        compression: false,
    };
    let clusters = urls.iter().enumerate().map(cluster).collect();
    let mut tuning = Tuning::default();
    // The replay server has none.
    tuning.reflector.streaming_list = !urls.iter().any(|url| url.starts_with("http"));
    Hub::start_with(Config { clusters, ..Config::default() }, tuning).await.unwrap()
}

/// Has a hub watch pods, with two indices and more, and one listener.
pub async fn watch_pods(hub: &Hub, more: &[(&str, &str)]) -> (Addr<Listener>, Told) {
    let two = [("by-node", "spec.nodeName"), ("by-image", "spec.containers[*].image")];
    let indexes = two.iter().chain(more).map(|(name, path)| ((*name).into(), path.parse().unwrap()));
    let demand = InformerFor {
        user: User::Caller("bench".to_owned()),
        wanted: ResourceRequest::known(&api_resource::<Pod>()),
        clusters: Clusters::all(),
        scopes: vec![Scope::all()],
        options: InformerOptions { indexes: indexes.collect(), ..InformerOptions::default() },
        watch_errors: None,
    };
    hub.registry().send(demand).await.unwrap();
    let told = Told::default();
    let listener = Listener(told.clone());
    let address = Listener::start_in_arbiter(hub.system().env().arbiter(), |_| listener);
    let subscribe = Subscribe::to::<Pod>(Clusters::all(), address.clone().recipient::<Notifications<Pod>>());
    hub.registry().send(subscribe).await.unwrap();
    (address, told)
}

/// Ends a hub; no actor may be left.
pub async fn end(hub: Hub) {
    let left = hub.shutdown(Duration::from_secs(5)).await.actors_left;
    assert_eq!(left, 0, "actors leaked");
}

/// Looks every 2 ms whether something has come true.
pub async fn until(what: &str, done: impl Fn() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < PATIENCE, "never came true: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// The value below which so large a part of a sorted series lies.
pub fn quantile(sorted: &[Duration], part: f64) -> Duration {
    sorted.get(((sorted.len().max(1) - 1) as f64 * part) as usize).copied().unwrap_or_default()
}
