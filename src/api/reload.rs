//! `POST /v1/reload`: reloads the configuration file, like SIGHUP, and returns the result.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use axum::routing::post;
use futures::future::BoxFuture;
use serde_json::Value;

use super::{DEADLINE, error_answer};

/// Result of a reload: the changes, or an error text.
pub type Reloaded = Result<Value, String>;

/// Function that reloads the configuration; it returns `None` if there is no file, or the hub is shutting down.
pub type AskReload = Arc<dyn Fn() -> BoxFuture<'static, Option<Reloaded>> + Send + Sync>;

pub(super) fn routes(ask: AskReload) -> Router {
    Router::new().route("/v1/reload", post(reload)).with_state(ask)
}

async fn reload(State(ask): State<AskReload>) -> Response {
    match tokio::time::timeout(DEADLINE, ask()).await {
        Ok(Some(Ok(changes))) => Json(changes).into_response(),
        Ok(Some(Err(problem))) => error_answer::error_response(StatusCode::UNPROCESSABLE_ENTITY, problem),
        Ok(None) => {
            let problem = "cannot reload: the hub has no configuration file, or is shutting down";
            error_answer::error_response(StatusCode::CONFLICT, problem)
        }
        Err(_) => {
            let problem = format!("the reload takes longer than {DEADLINE:?} and continues; /v1/status has the result");
            error_answer::error_response(StatusCode::GATEWAY_TIMEOUT, problem)
        }
    }
}
