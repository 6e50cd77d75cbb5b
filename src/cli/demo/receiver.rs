//! Webhook receiver of the demo: verifies signatures, keeps a replica of all objects, and fails some requests.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::routing::post;
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::fleet::{Fleet, Times};
use informer_hub_sim::oracle::{EventContent, ReceivedEvent, Replica};
use informer_hub_sink::webhook::SigningKeys;
use informer_hub_types::clock;

/// One in this many batches is refused without being read.
const REFUSE_EVERY: u64 = 20;
/// One in this many batches is accepted but answered with an error, so that the hub sends it again.
const FAIL_EVERY: u64 = 33;
/// Maximum age of a signature in seconds, as recommended by Standard Webhooks.
const TOLERANCE: u64 = 300;
/// Highest bucket of the histogram, in milliseconds.
const MAX_MILLIS: usize = 60_000;

/// State of the receiver: a replica of the objects, and counters.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) replica: Replica,
    pub(super) requests: u64,
    pub(super) refused: u64,
    pub(super) signature_failures: u64,
    pub(super) unreadable: u64,
    pub(super) arrivals: Histogram,
    /// Whether the receiver has stopped failing requests.
    is_healed: bool,
}

/// Histogram of the times from a change to its arrival, in milliseconds.
#[derive(Debug)]
pub(super) struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; MAX_MILLIS + 1], total: 0 }
    }
}

impl Histogram {
    fn note(&mut self, time: Duration) {
        let millis = usize::try_from(time.as_millis()).unwrap_or(MAX_MILLIS).min(MAX_MILLIS);
        if let Some(count) = self.counts.get_mut(millis) {
            *count += 1;
            self.total += 1;
        }
    }

    /// Returns the milliseconds within which `percent` of all events arrived; `None` before the first event.
    pub(super) fn percentile(&self, percent: u64) -> Option<u64> {
        let target = (self.total * percent).div_ceil(100).max(1);
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += count;
            seen >= target
        })?;
        u64::try_from(found).ok()
    }
}

struct Shared {
    keys: SigningKeys,
    times: BTreeMap<String, Arc<Mutex<Times>>>,
    received: Arc<Mutex<Received>>,
}

/// A running receiver, which ends on drop.
#[derive(Debug)]
pub(super) struct Receiver {
    pub(super) url: String,
    pub(super) received: Arc<Mutex<Received>>,
    task: JoinHandle<()>,
}

impl Receiver {
    pub(super) async fn start(keys: SigningKeys, fleet: &Fleet) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("cannot open the receiver's port")?;
        let url = format!("http://{}/events", listener.local_addr()?);
        let received = Arc::new(Mutex::new(Received {
            replica: Replica::at_least_once(),
            requests: 0,
            refused: 0,
            signature_failures: 0,
            unreadable: 0,
            arrivals: Histogram::default(),
            is_healed: false,
        }));
        let times = fleet.members.iter().map(|member| (member.name.to_string(), Arc::clone(&member.times))).collect();
        let shared = Arc::new(Shared { keys, times, received: Arc::clone(&received) });
        let router = Router::new().route("/events", post(receive)).with_state(shared);
        let task = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::error!(%error, "the receiver of the demo ended");
            }
        });
        Ok(Self { url, received, task })
    }

    /// Makes the receiver accept all further requests.
    pub(super) fn heal(&self) {
        self.received.lock().is_healed = true;
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn receive(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let signed = is_signed(&shared.keys, &headers, &body);
    let mut received = shared.received.lock();
    received.requests += 1;
    if !signed {
        received.signature_failures += 1;
        return StatusCode::UNAUTHORIZED;
    }
    let fails = |every| !received.is_healed && received.requests.is_multiple_of(every);
    let (refuse, fail) = (fails(REFUSE_EVERY), fails(FAIL_EVERY));
    received.refused += u64::from(refuse || fail);
    if refuse {
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    match serde_json::from_slice::<Vec<Value>>(&body) {
        Ok(events) => events.iter().for_each(|event| apply(&shared, &mut received, event)),
        Err(_) => received.unreadable += 1,
    }
    if fail { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::NO_CONTENT }
}

fn is_signed(keys: &SigningKeys, headers: &HeaderMap, body: &[u8]) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let (Some(id), Some(timestamp), Some(signature)) =
        (text("webhook-id"), text("webhook-timestamp"), text("webhook-signature"))
    else {
        return false;
    };
    let Ok(timestamp) = timestamp.parse::<i64>() else { return false };
    let fresh = clock::wall().as_second().abs_diff(timestamp) <= TOLERANCE;
    fresh && keys.sign(id, timestamp, body) == signature
}

fn apply(shared: &Shared, received: &mut Received, event: &Value) {
    let Ok(mut event) = ReceivedEvent::from_event(event) else {
        received.unreadable += 1;
        return;
    };
    // Order holds only for each object, so an initial object may arrive after `synced`.
    if let EventContent::Added { initial, .. } = &mut event.content {
        *initial = false;
    }
    let repeats = received.replica.repeats();
    received.replica.record(&event);
    let new = received.replica.repeats() == repeats;
    if let (true, EventContent::Added { object, .. } | EventContent::Updated { object, .. }) = (new, &event.content)
        && let Ok(version) = object.version.to_string().parse()
        && let Some(times) = event.origin.split('/').next().and_then(|cluster| shared.times.get(cluster))
        && let Some(age) = times.lock().age_of(version)
    {
        received.arrivals.note(age);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_computed_from_recorded_times() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.percentile(50), None);
        (1..=100).for_each(|millis| histogram.note(Duration::from_millis(millis)));
        assert_eq!((histogram.percentile(50), histogram.percentile(99)), (Some(50), Some(99)));
    }

    #[test]
    fn a_signature_is_valid_only_for_its_body_key_and_time() {
        let keys = SigningKeys::parse("secret").unwrap();
        let signed = |timestamp: i64| {
            let mut headers = HeaderMap::new();
            headers.insert("webhook-id", "id".parse().unwrap());
            headers.insert("webhook-timestamp", timestamp.into());
            headers.insert("webhook-signature", keys.sign("id", timestamp, b"body").parse().unwrap());
            headers
        };
        let now = clock::wall().as_second();
        assert!(is_signed(&keys, &signed(now), b"body"));
        assert!(!is_signed(&keys, &signed(now), b"other"));
        assert!(!is_signed(&keys, &signed(now - 3600), b"body"));
        assert!(!is_signed(&SigningKeys::parse("other").unwrap(), &signed(now), b"body"));
        assert!(!is_signed(&keys, &HeaderMap::new(), b"body"));
    }
}
