//! `POST /v1/reload`: has the configuration's file read again, as SIGHUP does, and says what came of it.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use axum::routing::post;
use futures::future::BoxFuture;
use serde_json::Value;

use super::{DEADLINE, answer};

/// What came of a reload: what was changed, or in words why nothing was.
pub type Reloaded = Result<Value, String>;

/// Has the configuration read again; `None`: there is no file to read, or the hub is shutting down.
pub type AskReload = Arc<dyn Fn() -> BoxFuture<'static, Option<Reloaded>> + Send + Sync>;

pub(super) fn routes(ask: AskReload) -> Router {
    Router::new().route("/v1/reload", post(reload)).with_state(ask)
}

async fn reload(State(ask): State<AskReload>) -> Response {
    match tokio::time::timeout(DEADLINE, ask()).await {
        Ok(Some(Ok(changes))) => Json(changes).into_response(),
        Ok(Some(Err(problem))) => answer::wrong(StatusCode::UNPROCESSABLE_ENTITY, problem),
        Ok(None) => answer::wrong(StatusCode::CONFLICT, "there is no configuration file to read again"),
        Err(_) => {
            let problem = format!("it takes longer than {DEADLINE:?}, and goes on; /v1/status says what comes of it");
            answer::wrong(StatusCode::GATEWAY_TIMEOUT, problem)
        }
    }
}
