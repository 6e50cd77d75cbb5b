//! `/v1/sinks/{sink}/dead-letters`: lists, shows, replays and purges dead letters.
//!
//! | request | effect |
//! |---|---|
//! | `GET …/dead-letters?cluster=…&subject=…&error=…&before=…&id=…&from=0&limit=100` | lists them, oldest first |
//! | `GET …/dead-letters/{number}` | returns one with its event |
//! | `POST …/dead-letters/replay`, a filter as JSON | redelivers those that match |
//! | `POST …/dead-letters/purge`, a filter as JSON | deletes those that match |

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{DEADLINE, error_response};
use crate::actors::sinks::sink::{LetterAnswer, LetterRequest};
use informer_hub_sink::{DeadLetter, LetterFilter, StoreError};

/// Result of a request; `None` if there is no sink of that name.
pub type Asked = Option<Result<LetterAnswer, StoreError>>;

/// Sends a request to a sink.
pub type AskLetters = Arc<dyn Fn(String, LetterRequest) -> BoxFuture<'static, Asked> + Send + Sync>;

/// Default and maximum number of dead letters in one response.
const PAGE_LIMITS: (usize, usize) = (100, 1000);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Listing {
    id: Option<String>,
    cluster: Option<String>,
    subject: Option<String>,
    error: Option<String>,
    before: Option<jiff::Timestamp>,
    #[serde(default)]
    from: u64,
    limit: Option<usize>,
}

pub(super) fn routes(ask: AskLetters) -> Router {
    Router::new()
        .route("/v1/sinks/{sink}/dead-letters", get(list))
        .route("/v1/sinks/{sink}/dead-letters/{number}", get(show))
        .route("/v1/sinks/{sink}/dead-letters/replay", post(replay))
        .route("/v1/sinks/{sink}/dead-letters/purge", post(purge))
        .with_state(ask)
}

async fn list(State(ask): State<AskLetters>, Path(sink): Path<String>, Query(listing): Query<Listing>) -> Response {
    let Listing { id, cluster, subject, error, before, from, limit } = listing;
    let count = limit.unwrap_or(PAGE_LIMITS.0).clamp(1, PAGE_LIMITS.1);
    let filter = LetterFilter { ids: id.into_iter().collect(), cluster, subject, error, before };
    send_request(&ask, sink, LetterRequest::List { filter, from, most: count }, |answer| match answer {
        LetterAnswer::List(letters) => {
            let next = letters.last().filter(|_| letters.len() == count).map(|last| last.number + 1);
            Some(json!({ "letters": letters, "next": next }))
        }
        _ => None,
    })
    .await
}

async fn show(State(ask): State<AskLetters>, Path((sink, number)): Path<(String, u64)>) -> Response {
    send_request(&ask, sink, LetterRequest::Show { number }, |answer| match answer {
        LetterAnswer::One(Some(letter)) => with_body(number, letter),
        _ => None,
    })
    .await
}

fn with_body(number: u64, letter: &DeadLetter) -> Option<Value> {
    let mut shown = serde_json::to_value(letter.summary(number)).ok()?;
    let body = serde_json::from_str(letter.event.json()).unwrap_or(Value::Null);
    shown.as_object_mut()?.insert("body".to_owned(), body);
    Some(shown)
}

async fn replay(State(ask): State<AskLetters>, Path(sink): Path<String>, Json(filter): Json<LetterFilter>) -> Response {
    send_request(&ask, sink, LetterRequest::Replay { filter }, count).await
}

async fn purge(State(ask): State<AskLetters>, Path(sink): Path<String>, Json(filter): Json<LetterFilter>) -> Response {
    send_request(&ask, sink, LetterRequest::Purge { filter }, count).await
}

fn count(answer: &LetterAnswer) -> Option<Value> {
    match answer {
        LetterAnswer::Count(count) => Some(json!({ "count": count })),
        _ => None,
    }
}

async fn send_request(
    ask: &AskLetters,
    sink: String,
    request: LetterRequest,
    show: impl Fn(&LetterAnswer) -> Option<Value>,
) -> Response {
    match tokio::time::timeout(DEADLINE, ask(sink.clone(), request)).await {
        Err(_) => error_response(
            StatusCode::GATEWAY_TIMEOUT,
            format!("the sink has not answered within {DEADLINE:?}; the operation continues"),
        ),
        Ok(None) => error_response(StatusCode::NOT_FOUND, format!("there is no sink {sink:?}")),
        Ok(Some(Err(error))) => error_response(StatusCode::INSUFFICIENT_STORAGE, error.to_string()),
        Ok(Some(Ok(answer))) => match show(&answer) {
            Some(shown) => Json(shown).into_response(),
            None => error_response(StatusCode::NOT_FOUND, "there is no dead letter with this number"),
        },
    }
}
