//! `/`, which lists the paths of the port, and the answer to unknown paths.

use axum::Router;
use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use axum::routing::get;
use serde_json::json;

use super::error_answer::{JSON, error_response, status_response};
use super::openapi;
use informer_hub_kubeapi::{Reason, Status};
use informer_hub_types::{MAX_QUOTED, shortened};

/// First segments of the paths of an apiserver, which the hub serves only below `/clusters` and `/unique`.
const OF_APISERVERS: [&str; 4] = ["api", "apis", "openapi", "version"];

/// Returns the routes of `/` and of unknown paths. `reads` is whether the port also serves objects, whose paths `/`
/// then lists.
pub(super) fn routes(reads: bool) -> Router {
    let index = Bytes::from(index(reads));
    let show = move || async move { ([(CONTENT_TYPE, JSON)], index) };
    Router::new().route("/", get(show)).fallback(move |uri: Uri| async move { unknown(uri.path(), reads) })
}

fn index(reads: bool) -> String {
    let roots = ["/clusters/*", "/clusters/<name>", "/unique/*"].into_iter().filter(|_| reads);
    let mut paths: Vec<_> = ["/livez", "/metrics", "/readyz"].into_iter().chain(roots).collect();
    paths.extend(openapi::paths(reads));
    paths.sort_unstable();
    format!("{:#}\n", json!({ "name": "informer-hub", "version": env!("CARGO_PKG_VERSION"), "paths": paths }))
}

fn unknown(path: &str, reads: bool) -> Response {
    let shown = shortened(path, MAX_QUOTED);
    let first = path.split('/').nth(1).unwrap_or_default();
    if !reads && ["clusters", "unique"].contains(&first) {
        return error_response(StatusCode::NOT_FOUND, "the hub serves no objects: hub.read_api.enabled is false");
    }
    if !reads || !OF_APISERVERS.contains(&first) {
        return error_response(StatusCode::NOT_FOUND, format!("there is no path {shown}; GET / lists the paths"));
    }
    let text = format!("there is no path {shown}: use /clusters/<name> for one cluster, /clusters/* for all");
    status_response(StatusCode::NOT_FOUND, &Status::new(404, Reason::NotFound, text))
}
