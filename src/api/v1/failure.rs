//! Failures of requests below `/v1`, as JSON: `{"error": "…"}`, with a position if the text of the query is wrong.

use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Json, Response};
use serde::Serialize;

use crate::cache::QueryError;
use informer_hub_kubeapi::Status;
use informer_hub_query::{InvalidQuestion, ParseProblem};
use informer_hub_types::shortened;

/// Maximum length of a quoted part of a query in an error, in characters.
const MAX_FOUND: usize = 100;

/// Maximum length of an error text, in characters, because it may quote long text of the client.
const MAX_ERROR: usize = 1000;

/// Error response to a request.
#[derive(Debug)]
pub(in crate::api) struct Failure {
    code: StatusCode,
    retry_after: Option<u32>,
    body: Box<Body>,
}

/// Body of the response.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    error: String,
    /// Position of the mistake in the query's text: the number of a character, counted from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<usize>,
    /// Query tokens that are valid at the position.
    #[serde(skip_serializing_if = "Option::is_none")]
    expected: Option<&'static str>,
    /// Query token found at the position.
    #[serde(skip_serializing_if = "Option::is_none")]
    found: Option<String>,
    /// A known word or name that is spelled nearly the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    suggestion: Option<String>,
    /// The message, the affected line and a mark below the position.
    #[serde(skip_serializing_if = "Option::is_none")]
    excerpt: Option<String>,
}

impl Failure {
    fn new(code: StatusCode, error: impl Into<String>) -> Self {
        let error = shortened(&error.into(), MAX_ERROR).into_owned();
        let body = Body { error, position: None, expected: None, found: None, suggestion: None, excerpt: None };
        Self { code, retry_after: None, body: Box::new(body) }
    }

    /// Returns 400 for a mistake in the request.
    pub(in crate::api) fn invalid(error: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error)
    }

    /// Returns 400 for a mistake in the query's text.
    pub(in crate::api) fn question(error: &InvalidQuestion) -> Self {
        let mut failure = Self::invalid(error.to_string());
        failure.body.position = Some(error.position());
        failure.body.excerpt = Some(shortened(&error.annotated().to_string(), MAX_ERROR).into_owned());
        if let ParseProblem::Unexpected { expected, found, suggestion } = &error.problem {
            failure.body.expected = Some(expected);
            failure.body.found = Some(found.chars().take(MAX_FOUND).collect());
            failure.body.suggestion = suggestion.map(str::to_owned);
        }
        failure
    }

    /// Returns 404 for a resource that no cache has.
    pub(in crate::api) fn unknown_resource(resource: &str, nearest: Option<&str>, known: &str) -> Self {
        let known = match nearest {
            Some(nearest) => format!("did you mean {nearest:?}? It has: {known}"),
            None => format!("it has: {known}"),
        };
        let shown: String = resource.chars().take(MAX_FOUND).collect();
        Self::new(StatusCode::NOT_FOUND, format!("the hub has no resource {shown:?}; {known}")).suggesting(nearest)
    }

    /// Returns 404 for a name that no cluster has.
    pub(in crate::api) fn unknown_cluster(name: &str, nearest: Option<&str>) -> Self {
        let hint = nearest.map_or_else(String::new, |nearest| format!("; did you mean {nearest:?}?"));
        Self::new(StatusCode::NOT_FOUND, format!("the hub has no cluster {name:?}{hint}")).suggesting(nearest)
    }

    /// Returns 404 for an object that the cache does not have.
    pub(in crate::api) fn unknown_object(error: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, error)
    }

    /// Returns 406 for an `Accept` header without one of the offered forms.
    pub(in crate::api) fn not_acceptable(offered: &[&str]) -> Self {
        Self::new(StatusCode::NOT_ACCEPTABLE, format!("the header Accept allows none of {}", offered.join(", ")))
    }

    /// Adds a suggested name to the error; `None` adds nothing.
    pub(in crate::api) fn suggesting(mut self, name: Option<&str>) -> Self {
        self.body.suggestion = name.map(str::to_owned);
        self
    }

    /// Returns the error's text.
    #[cfg(test)]
    pub(in crate::api) fn text(&self) -> &str {
        &self.body.error
    }

    /// Returns the failure as an HTTP response.
    pub(in crate::api) fn response(self) -> Response {
        let mut response = (self.code, Json(self.body)).into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

impl From<QueryError> for Failure {
    fn from(error: QueryError) -> Self {
        let (code, retry_after) = match &error {
            QueryError::Deadline { .. } => (StatusCode::GATEWAY_TIMEOUT, None),
            QueryError::Crowded { .. } | QueryError::Busy { .. } => (StatusCode::TOO_MANY_REQUESTS, Some(1)),
            QueryError::ExpiredToken => (StatusCode::GONE, None),
            QueryError::Stopped | QueryError::Cancelled => (StatusCode::SERVICE_UNAVAILABLE, Some(1)),
            QueryError::Broken => (StatusCode::INTERNAL_SERVER_ERROR, None),
            _ => (StatusCode::BAD_REQUEST, None),
        };
        Self { retry_after, ..Self::new(code, error.to_string()) }
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self { retry_after: status.retry_after, ..Self::new(code, status.message) }
    }
}
