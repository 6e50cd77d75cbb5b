//! Error answers of the API: a Kubernetes `Status` below `/clusters/` and `/unique/` (the Kubernetes roots), else one
//! JSON object, `{"error": "…"}`.

use axum::body::to_bytes;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Json, Response};
use serde_json::json;

use informer_hub_kubeapi::{Reason, Status};
use informer_hub_types::{MAX_QUOTED, shortened};

pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Maximum bytes of an axum error text. A longer text is replaced by the name of the status; axum's texts are short.
const MAX_TEXT: usize = 4096;

/// Returns whether a path is below one of the Kubernetes roots, `/clusters/` and `/unique/`.
pub(super) fn is_kubernetes(path: &str) -> bool {
    path.starts_with("/clusters/") || path.starts_with("/unique/")
}

/// Returns an error response: a Kubernetes `Status` if `path` is below `/clusters/` or `/unique/`, else `{"error":
/// "…"}`.
pub(super) fn denial(path: &str, code: StatusCode, problem: &str) -> Response {
    if !is_kubernetes(path) {
        return error_response(code, problem);
    }
    let reason = match code {
        StatusCode::UNAUTHORIZED => Reason::Unauthorized,
        StatusCode::PAYLOAD_TOO_LARGE => Reason::RequestEntityTooLarge,
        StatusCode::REQUEST_TIMEOUT => Reason::Timeout,
        StatusCode::SERVICE_UNAVAILABLE => Reason::ServiceUnavailable,
        _ => Reason::Forbidden,
    };
    status_response(code, &Status::new(code.as_u16(), reason, problem))
}

/// Returns a response with a `Status`.
pub(super) fn status_response(code: StatusCode, status: &Status) -> Response {
    (code, [(CONTENT_TYPE, JSON)], status.json()).into_response()
}

/// Returns 429 in the form of [`denial`], with `seconds` in the header `Retry-After`.
pub(super) fn too_many_requests(path: &str, seconds: u32, problem: &str) -> Response {
    let mut response = if is_kubernetes(path) {
        status_response(StatusCode::TOO_MANY_REQUESTS, &Status::too_many_requests(problem, seconds))
    } else {
        error_response(StatusCode::TOO_MANY_REQUESTS, problem)
    };
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    response
}

pub(super) fn error_response(status: StatusCode, problem: impl Into<String>) -> Response {
    (status, Json(json!({ "error": problem.into() }))).into_response()
}

/// Converts an error response of axum to JSON, `{"error": "…"}`, and returns other responses unchanged. axum itself
/// answers errors with an empty body or, below `/v1/`, with plain text.
pub(super) async fn to_json_error(path: &str, response: Response) -> Response {
    let status = response.status();
    let is_ours = response.headers().get(CONTENT_TYPE).is_some_and(|found| found == JSON || !path.starts_with("/v1/"));
    if is_ours || !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let (head, body) = response.into_parts();
    let text =
        to_bytes(body, MAX_TEXT).await.ok().and_then(|text| String::from_utf8(text.into()).ok()).unwrap_or_default();
    let shown = shortened(path, MAX_QUOTED);
    let problem = match (text.trim(), status) {
        ("", StatusCode::METHOD_NOT_ALLOWED) => {
            format!("{shown} does not support this method; docs/http.md lists the methods")
        }
        ("", _) => status.canonical_reason().unwrap_or("the request failed").to_lowercase(),
        (text, _) => shortened(text, 2 * MAX_QUOTED).into_owned(),
    };
    let mut response = error_response(status, problem);
    for (name, value) in &head.headers {
        // Keeps axum's other headers, such as the allowed methods.
        response.headers_mut().entry(name).or_insert_with(|| value.clone());
    }
    response.headers_mut().remove(CONTENT_LENGTH);
    response
}
