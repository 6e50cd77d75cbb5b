//! Tests of a webhook receiver that refuses events: all of them temporarily, or some of them permanently.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use informer_hub_config::{BatchConfig, Initial, RetryConfig, SinkConfig, TransportConfig, WebhookConfig};
use informer_hub_sim::{SimCluster, World};
use informer_hub_sink::SinkStatus;
use informer_hub_types::ObjectKey;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::runtime::Handle;

use crate::fleet::{Fleet, config, eventually, pods, quick, small, with_sinks};

/// Predicate on object names whose events the receiver refuses.
type RefusePolicy = Box<dyn Fn(&str) -> bool + Send>;

/// HTTP server that records the events it accepts.
struct Receiver {
    refuses: Mutex<RefusePolicy>,
    /// Object name, version, and time of acceptance.
    accepted: Mutex<Vec<(String, u64, Instant)>>,
    refusals: Mutex<u32>,
}

impl Receiver {
    async fn start(refuses: impl Fn(&str) -> bool + Send + 'static) -> (Arc<Self>, String) {
        let receiver = Arc::new(Self {
            refuses: Mutex::new(Box::new(refuses)),
            accepted: Mutex::default(),
            refusals: Mutex::default(),
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let service = axum::Router::new().fallback(receive).with_state(Arc::clone(&receiver));
        tokio::spawn(async move { axum::serve(listener, service).await });
        (receiver, url)
    }

    fn set(&self, refuses: impl Fn(&str) -> bool + Send + 'static) {
        *self.refuses.lock() = Box::new(refuses);
    }

    /// Returns the newest version of each object. Panics if an older version arrived after a newer one.
    fn newest(&self) -> BTreeMap<String, u64> {
        let mut newest = BTreeMap::new();
        for (name, version, _) in self.accepted.lock().iter() {
            let before = newest.insert(name.clone(), *version).unwrap_or_default();
            assert!(before <= *version, "{name}: {version} after {before}");
        }
        newest
    }
}

async fn receive(State(receiver): State<Arc<Receiver>>, body: Bytes) -> StatusCode {
    let batch: Value = serde_json::from_slice(&body).unwrap();
    let events = batch.as_array().cloned().unwrap_or_else(|| vec![batch]);
    let name = |event: &Value| event["data"]["name"].as_str().unwrap_or_default().to_owned();
    if events.iter().any(|event| (receiver.refuses.lock())(&name(event))) {
        *receiver.refusals.lock() += 1;
        return StatusCode::BAD_REQUEST;
    }
    let record = |event: &Value| {
        let version = event["data"]["resourceVersion"].as_str()?.parse().ok()?;
        Some((name(event), version, Instant::now()))
    };
    receiver.accepted.lock().extend(events.iter().filter_map(record));
    StatusCode::OK
}

struct Testbed {
    fleet: Fleet,
    receiver: Arc<Receiver>,
    keys: Vec<ObjectKey>,
    _dir: tempfile::TempDir,
}

impl Testbed {
    /// Starts a hub over one cluster with a webhook. The first retry delay and `refused_for` are a tenth of their
    /// defaults, and the longest delay is 1 s.
    async fn new(is_durable: bool, refuses: impl Fn(&str) -> bool + Send + 'static) -> Self {
        let cluster = SimCluster::start(small(3, 0), &Handle::current()).unwrap();
        let keys: Vec<_> = (0..20).map(|_| cluster.with_world(World::create_pod).unwrap()).collect();
        let (receiver, url) = Receiver::start(refuses).await;
        let mut sink = SinkConfig::new("hook", TransportConfig::Webhook(WebhookConfig::new(url)));
        sink.initial = Initial::Replay;
        sink.batch = BatchConfig { max_wait: Duration::ZERO, ..BatchConfig::default() };
        sink.retry = RetryConfig {
            first: Duration::from_millis(50),
            max: Duration::from_secs(1),
            refused_for: Duration::from_secs(60),
            ..RetryConfig::default()
        };
        let clusters = BTreeMap::from([("c0".to_owned(), cluster)]);
        let dir = tempfile::tempdir().unwrap();
        let mut config = with_sinks(config(&clusters, &["pods"]), vec![sink]);
        config.hub.state_dir = is_durable.then(|| dir.path().join("state"));
        let fleet = Fleet::start_config(clusters, config, quick()).await;
        Self { fleet, receiver, keys, _dir: dir }
    }

    fn touch(&self, key: &ObjectKey) {
        let patch = serde_json::json!({ "metadata": { "annotations": { "touched": "again" } } });
        self.fleet.clusters["c0"].with_world(|world| world.patch(&pods().gvr, key, &patch)).unwrap();
    }

    async fn status(&self) -> SinkStatus {
        let report = self.fleet.hub.report().await.unwrap();
        report.sinks.into_iter().find(|sink| sink.name == "hook").unwrap().status
    }

    /// Returns the cluster's version of each object.
    fn truth(&self) -> BTreeMap<String, u64> {
        let truth = self.fleet.clusters["c0"].truth(&pods().gvr);
        truth.iter().map(|(key, (_, version))| (key.name().to_owned(), version.as_number().unwrap())).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receiver_that_refuses_everything_temporarily_gets_all_events_in_order() {
    for is_durable in [true, false] {
        let bed = Testbed::new(is_durable, |_| true).await;
        // Long enough for many attempts: five attempts of a refused event take about 0.4 s.
        let until = Instant::now() + Duration::from_secs(3);
        while Instant::now() < until {
            bed.keys.iter().step_by(3).for_each(|key| bed.touch(key));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let refusals = *bed.receiver.refusals.lock();
        let status = bed.status().await;
        assert!(refusals > 10 && bed.receiver.accepted.lock().is_empty(), "{refusals} refusals");
        assert_eq!(status.dead_lettered, 0, "{status:?}");
        assert!(status.refused_events > 0 && status.refusal.is_some_and(|why| why.contains("400")));
        bed.receiver.set(|_| false);
        let recovered = Instant::now();
        eventually("the receiver has everything", async || bed.receiver.newest() == bed.truth()).await;
        eventually("no refused event is pending", async || bed.status().await.refused_events == 0).await;
        println!("durable {is_durable}: {refusals} refusals, all delivered {:?} after", recovered.elapsed());
        let status = bed.status().await;
        assert_eq!((status.dead_lettered, status.refusal), (0, None));
        bed.fleet.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_object_blocks_no_other() {
    for is_durable in [true, false] {
        let bed = Testbed::new(is_durable, |_| false).await;
        eventually("a first delivery", async || bed.receiver.newest() == bed.truth()).await;
        let (bad, others) = bed.keys.split_first().unwrap();
        let name = bad.name().to_owned();
        bed.receiver.set(move |object| object == name);
        for _ in 0..20 {
            bed.touch(bad);
            for key in others {
                bed.touch(key);
            }
            let truth = || bed.truth().into_iter().filter(|(object, _)| object != bad.name());
            let newest = || bed.receiver.newest().into_iter().filter(|(object, _)| object != bad.name());
            eventually("the other objects are delivered", async || newest().eq(truth())).await;
        }
        let status = bed.status().await;
        assert_eq!((status.dead_lettered, bed.receiver.newest()[bad.name()] < bed.truth()[bad.name()]), (0, true));
        assert!(status.refused_events > 0, "{status:?}");
        bed.receiver.set(|_| false);
        eventually("the refused object too", async || bed.receiver.newest() == bed.truth()).await;
        bed.fleet.end().await;
    }
}
