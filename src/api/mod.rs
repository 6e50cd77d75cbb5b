//! The HTTP port: the Kubernetes API of the cached clusters, `/v1` for queries, events and operators, probes, metrics.
//!
//! [`Guard`] authenticates requests and limits their cost; handlers run only for allowed requests.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use futures::future::BoxFuture;
use tokio::net::TcpListener;

use informer_hub_telemetry::metrics::Scraper;
use informer_hub_types::printable;

mod audit;
mod authentication;
mod connection_slots;
mod connections;
mod dead_letters;
mod error_answer;
mod events;
mod extensions;
mod guard;
mod hosts;
mod index;
mod kubernetes;
mod metrics;
mod notes;
mod objects;
mod openapi;
mod query;
mod reload;
mod rights;
#[cfg(test)]
mod tests;
mod tls;
mod usage;
mod v1;

pub use audit::Auditor;
pub use authentication::{
    Access, IdentityFrom, OidcSource, PreparedReaders, ReadSecret, ReaderEntry, ReaderSettings, TokenError, TokenFrom,
};
pub use dead_letters::{AskLetters, LetterResult};
use error_answer::error_response;
pub use guard::{Guard, GuardError, Limits, Protection};
pub use kubernetes::{
    CacheInfo, ClusterInfo, FetchError, FindFleet, Fleet, ReadApi, ReadApiOptions, ReadCounts, ReaderInUse,
};
pub use reload::{AskReload, Reloaded};
pub use rights::CurrentReader;
pub use tls::{TlsError, TlsFiles, check_tls};
pub use usage::{Limit, ReaderCounts, ReaderUse};

/// Timeout for collecting a status, for a sink's answer about dead letters, and for a reload.
const DEADLINE: Duration = Duration::from_secs(5);

/// State shown by the API, collected for each request.
#[derive(Clone, Debug)]
pub struct ReportedState {
    /// Whether the hub is ready. Every informer of a reachable cluster has synced or cannot sync at present, and each
    /// cluster source has reported or failed.
    ///
    /// In a fleet, a process that only serves must also know a present or past collector of at least one cluster. While
    /// NATS is down, this applies to every process.
    pub ready: bool,
    /// Lines of `/readyz` about cluster sources, clusters and informers that are not ready, have an error, or lack
    /// memory.
    pub waiting: Vec<String>,
    /// Complete status as JSON.
    pub status: serde_json::Value,
}

/// Function that collects the state; it returns `None` while the hub starts or shuts down.
pub type StateSource = Arc<dyn Fn() -> BoxFuture<'static, Option<ReportedState>> + Send + Sync>;

impl fmt::Debug for Services {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Services").finish_non_exhaustive()
    }
}

/// The port cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} (hub.listen): choose a free port or stop the process that uses it")]
pub struct ListenError {
    address: SocketAddr,
    #[source]
    source: std::io::Error,
}

/// Opens the port. Called before anything else starts, so that a port in use is reported at once.
///
/// # Errors
/// [`ListenError`] if the port cannot be opened.
pub async fn bind(address: SocketAddr) -> Result<TcpListener, ListenError> {
    TcpListener::bind(address).await.map_err(|source| ListenError { address, source })
}

/// Data sources and handlers of the API's paths.
pub struct Services {
    /// Source of `/v1/status` and `/readyz`.
    pub show: StateSource,
    /// Function that sends requests about dead letters to sinks.
    pub letters: AskLetters,
    /// Handler of `POST /v1/reload`.
    pub reload: AskReload,
    /// Source of `/metrics`.
    pub scraper: Scraper,
    /// Read API, which serves the Kubernetes roots and the `/v1` paths that read objects; `None` if they are not
    /// served.
    pub read: Option<Arc<ReadApi>>,
}

/// Serves all paths of `services` until `stop` completes. `guard` decides which requests are allowed.
pub async fn serve(
    listener: TcpListener,
    guard: Guard,
    services: Services,
    stop: impl Future<Output = ()> + Send + 'static,
) {
    connections::serve(listener, router(services), guard, stop).await;
}

/// Returns the routes of all services.
fn router(services: Services) -> Router {
    let Services { show, letters, reload, scraper, read } = services;
    let routes = Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/v1/status", get(status))
        .with_state(Shows { show, read: read.clone() })
        .merge(dead_letters::routes(letters, read.clone()))
        .merge(reload::routes(reload))
        .merge(metrics::routes(scraper))
        .merge(openapi::routes(read.is_some()))
        .merge(index::routes(read.is_some()));
    match read {
        Some(read) => routes.merge(read_routes(&read)).merge(kubernetes::routes(read)),
        None => routes,
    }
}

/// Returns the routes below `/v1` that read objects.
fn read_routes(read: &Arc<ReadApi>) -> Router {
    query::routes(Arc::clone(read)).merge(events::routes(Arc::clone(read))).merge(objects::routes(Arc::clone(read)))
}

async fn shown(show: &StateSource) -> Option<ReportedState> {
    tokio::time::timeout(DEADLINE, show()).await.ok().flatten()
}

/// Data for the handlers of `/readyz` and `/v1/status`. The read API knows the rights of readers.
#[derive(Clone)]
struct Shows {
    show: StateSource,
    read: Option<Arc<ReadApi>>,
}

async fn readyz(State(Shows { show, .. }): State<Shows>, parts: Parts) -> Response {
    // The details name clusters, so only readers that see everything get them.
    let may = rights::reader_of(&parts).sees_everything();
    let lines = |first, waiting: &[String]| lines(first, if may { waiting } else { &[] });
    match shown(&show).await {
        Some(shown) if shown.ready => (StatusCode::OK, lines("ready", &shown.waiting)).into_response(),
        Some(shown) => (StatusCode::SERVICE_UNAVAILABLE, lines("not ready", &shown.waiting)).into_response(),
        None => (StatusCode::SERVICE_UNAVAILABLE, "starting or shutting down\n").into_response(),
    }
}

fn lines(first: &str, rest: &[String]) -> String {
    let rest = rest.iter().map(|line| printable(line));
    let all: Vec<_> = std::iter::once(first.to_owned()).chain(rest).chain([String::new()]).collect();
    all.join("\n")
}

async fn status(State(Shows { show, read }): State<Shows>, parts: Parts) -> Response {
    let reader = rights::reader_of(&parts);
    match shown(&show).await {
        Some(shown) if reader.sees_everything() => Json(shown.status).into_response(),
        Some(shown) => {
            let status = read.map(|read| read.rights().status(&reader, shown.status, &read.resources()));
            Json(status.unwrap_or_else(|| serde_json::json!({ "ready": shown.ready }))).into_response()
        }
        None => error_response(StatusCode::SERVICE_UNAVAILABLE, "the hub is starting or shutting down"),
    }
}
