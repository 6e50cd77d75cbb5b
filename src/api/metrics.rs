//! `GET /metrics`: metrics in Prometheus' text format or OpenMetrics, as negotiated.

use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::authentication::MayRead;
use super::error_answer::error_response;
use super::rights::reader_of;
use informer_hub_telemetry::metrics::{Format, Scraper};

/// Timeout of a scrape; less than Prometheus' default of ten seconds.
const DEADLINE: Duration = Duration::from_secs(9);

pub(super) fn routes(scraper: Scraper) -> Router {
    Router::new().route("/metrics", get(metrics)).with_state(scraper)
}

async fn metrics(State(scraper): State<Scraper>, parts: Parts) -> Response {
    let is_public = matches!(parts.extensions.get::<MayRead>(), Some(MayRead(false)));
    if !is_public && !reader_of(&parts).sees_everything() {
        let problem = "the metrics cover all clusters: use the credential of a reader that sees everything";
        return error_response(StatusCode::FORBIDDEN, problem);
    }
    let headers = &parts.headers;
    let accept: Vec<_> = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    let format = Format::accepted(&accept.join(","));
    match tokio::time::timeout(DEADLINE, scraper.scrape(format)).await {
        Ok(Some(text)) => ([(CONTENT_TYPE, format.content_type())], text).into_response(),
        Ok(None) | Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "cannot collect the metrics\n").into_response(),
    }
}
