//! Webhook receiver that keeps a replica of the received state.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use informer_hub_config::{BatchConfig, Initial, RetryConfig, SinkConfig, TransportConfig, WebhookConfig};
use informer_hub_sim::oracle::{ReceivedEvent, Replica};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// The receiver. Dropping it closes its port.
pub(crate) struct Receiver {
    address: SocketAddr,
    replica: Arc<Mutex<Replica>>,
    server: JoinHandle<()>,
}

impl Receiver {
    pub(crate) async fn start() -> Self {
        let replica = Arc::new(Mutex::new(Replica::at_least_once()));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/events", post(receive)).with_state(Arc::clone(&replica));
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, replica, server }
    }

    /// Returns a sink that sends all events here, with existing objects replayed.
    pub(crate) fn sink(&self, name: &str) -> SinkConfig {
        let mut sink = SinkConfig::new(name, TransportConfig::Webhook(WebhookConfig::new(self.url())));
        sink.initial = Initial::Replay;
        sink.batch = BatchConfig { max_events: 100, max_bytes: 1024 * 1024, max_wait: Duration::from_millis(50) };
        sink.retry = RetryConfig {
            first: Duration::from_millis(500),
            max: Duration::from_secs(5),
            give_up_after: Duration::from_secs(60),
            refused_for: Duration::from_secs(5),
        };
        sink
    }

    /// Returns the receiver's URL.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/events", self.address)
    }

    /// Returns the replica built from the received events.
    pub(crate) fn replica(&self) -> &Mutex<Replica> {
        &self.replica
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Applies a batch in order. Refuses an invalid one, which then shows as undelivered.
async fn receive(State(replica): State<Arc<Mutex<Replica>>>, body: Bytes) -> StatusCode {
    let Ok(events) = serde_json::from_slice::<Vec<Value>>(&body) else { return StatusCode::BAD_REQUEST };
    let Ok(received) = events.iter().map(ReceivedEvent::from_event).collect::<Result<Vec<_>, _>>() else {
        return StatusCode::BAD_REQUEST;
    };
    let mut replica = replica.lock();
    for event in &received {
        replica.record(event);
    }
    StatusCode::NO_CONTENT
}
