//! Receives the webhooks of informer-hub: verifies signatures, drops repeated events, prints the others.
//!
//! `WEBHOOK_SECRET=whsec_... cargo run --example receiver -- 127.0.0.1:9000`

use std::collections::{HashSet, VecDeque};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use parking_lot::Mutex;
use serde_json::Value;
use sha2::Sha256;
use tokio::net::TcpListener;

/// Maximum difference between a timestamp and the clock, in seconds.
const TOLERANCE: i64 = 300;

/// Maximum size of a body in bytes.
const LIMIT: usize = 64 << 20;

/// Number of event ids that are stored.
const REMEMBERED: usize = 100_000;

/// Error that is answered instead of 204.
type Refused = (StatusCode, &'static str);

/// Function that handles an event.
type Handle = Box<dyn Fn(&Value) -> anyhow::Result<()> + Send + Sync>;

/// Verifies requests and handles each event once.
pub(crate) struct Receiver {
    keys: Vec<Vec<u8>>,
    seen: Mutex<Seen>,
    handle: Handle,
}

/// Ids of handled events. To survive a restart, store the ids together with the effects of the events.
#[derive(Default)]
struct Seen {
    ids: HashSet<String>,
    order: VecDeque<String>,
}

impl Receiver {
    /// Parses secrets in the format of the hub: whsec_ and base64, or plain text; several are separated by white space.
    pub(crate) fn new(secret: &str, handle: Handle) -> anyhow::Result<Self> {
        let key = |one: &str| match one.strip_prefix("whsec_") {
            Some(encoded) => STANDARD.decode(encoded).context("the secret is not base64"),
            None => Ok(one.as_bytes().to_vec()),
        };
        let keys = secret.split_whitespace().map(key).collect::<Result<Vec<_>, _>>()?;
        anyhow::ensure!(!keys.is_empty(), "the secret is empty");
        Ok(Self { keys, seen: Mutex::default(), handle })
    }

    /// Checks that a request was signed recently with one of the keys.
    fn verify(&self, headers: &HeaderMap, body: &[u8], now: i64) -> Result<(), Refused> {
        let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let signed = (header("webhook-id"), header("webhook-timestamp"), header("webhook-signature"));
        let (Some(id), Some(timestamp), Some(signatures)) = signed else {
            return Err((StatusCode::UNAUTHORIZED, "not signed"));
        };
        if timestamp.parse().map_or(true, |then: i64| now.abs_diff(then) > TOLERANCE.unsigned_abs()) {
            return Err((StatusCode::UNAUTHORIZED, "timestamp is too old or in the future"));
        }
        let given = signatures.split_whitespace().filter_map(|one| STANDARD.decode(one.strip_prefix("v1,")?).ok());
        let given: Vec<_> = given.collect();
        for key in &self.keys {
            let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC accepts a key of any length");
            mac.update(format!("{id}.{timestamp}.").as_bytes());
            mac.update(body);
            if given.iter().any(|one| mac.clone().verify_slice(one).is_ok()) {
                return Ok(());
            }
        }
        Err((StatusCode::UNAUTHORIZED, "signature does not match"))
    }

    /// Handles the events of a body, except repeated ones.
    fn take(&self, body: &[u8]) -> Result<(), Refused> {
        let content: Value =
            serde_json::from_slice(body).map_err(|_| (StatusCode::BAD_REQUEST, "body is not events"))?;
        let events = if let Value::Array(batch) = content { batch } else { vec![content] };
        if events.iter().any(|event| !event["id"].is_string()) {
            return Err((StatusCode::BAD_REQUEST, "body is not events"));
        }
        let mut seen = self.seen.lock();
        for event in &events {
            let id = event["id"].as_str().unwrap_or_default();
            if seen.ids.contains(id) {
                continue;
            }
            if let Err(error) = (self.handle)(event) {
                eprintln!("{error:#}");
                return Err((StatusCode::INTERNAL_SERVER_ERROR, "try again"));
            }
            // Stored after handling: if handling fails, the event is delivered again.
            seen.ids.insert(id.to_owned());
            seen.order.push_back(id.to_owned());
            if seen.order.len() > REMEMBERED
                && let Some(oldest) = seen.order.pop_front()
            {
                seen.ids.remove(&oldest);
            }
        }
        Ok(())
    }
}

async fn receive(
    State(receiver): State<Arc<Receiver>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<StatusCode, Refused> {
    receiver.verify(&headers, &body, jiff::Timestamp::now().as_second())?;
    receiver.take(&body)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Serves until the process ends.
pub(crate) async fn serve(listener: TcpListener, receiver: Receiver) -> anyhow::Result<()> {
    let router = Router::new().fallback_service(post(receive).with_state(Arc::new(receiver)));
    Ok(axum::serve(listener, router.layer(DefaultBodyLimit::max(LIMIT))).await?)
}

fn show(event: &Value) -> anyhow::Result<()> {
    let text = |key: &str| event[key].as_str().with_context(|| format!("the event has no {key}"));
    println!("{} {} {}", text("type")?, text("source")?, text("subject")?);
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:9000".to_owned());
    let secret = std::env::var("WEBHOOK_SECRET").unwrap_or_default();
    if secret.trim().is_empty() {
        eprintln!("set WEBHOOK_SECRET to the sink's signing_secret");
        return Ok(ExitCode::from(2));
    }
    let receiver = Receiver::new(&secret, Box::new(show))?;
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    serve(listener, receiver).await?;
    Ok(ExitCode::SUCCESS)
}
