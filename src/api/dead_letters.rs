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
use axum::extract::{Extension, Path, Query, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};

use super::kubernetes::ReadApi;
use super::rights::reader_of;
use super::{DEADLINE, error_response};
use crate::actors::sinks::sink::{LetterAnswer, LetterRequest};
use informer_hub_access::Reader;
use informer_hub_sink::{DeadLetter, LetterFilter, LetterSummary, StoreError};
use informer_hub_types::{ApiResource, ClusterName};

/// Result of a request; `None` if there is no sink of that name.
pub type Asked = Option<Result<LetterAnswer, StoreError>>;

/// Sends a request to a sink.
pub type AskLetters = Arc<dyn Fn(String, LetterRequest) -> BoxFuture<'static, Asked> + Send + Sync>;

/// Default and maximum number of dead letters in one response.
const PAGE_LIMITS: (usize, usize) = (100, 1000);

/// Pages read for one response of a reader that sees only some of them.
const MAX_READS: usize = 10;

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

/// Dead letters, and the rights of their readers.
#[derive(Clone)]
struct Letters {
    ask: AskLetters,
    read: Option<Arc<ReadApi>>,
}

impl Letters {
    /// Returns whether a reader may see a dead letter: the object that its event is about.
    fn is_visible(&self, reader: &Reader, letter: &LetterSummary) -> bool {
        if reader.sees_everything() && (reader.may_change() || self.read.is_none()) {
            return true;
        }
        let Some(read) = &self.read else { return false };
        let Some([group, _, plural, namespace, _]) = parts_of(&letter.subject) else { return false };
        let resources = read.resources();
        let is_it = |resource: &&ApiResource| resource.gvr.group == group && resource.gvr.resource == plural;
        let known = resources.iter().find(is_it);
        let (Some(resource), Ok(cluster)) = (known, ClusterName::new(&letter.cluster)) else {
            // Of a resource or cluster that the hub does not know any more, only unrestricted readers see letters.
            return reader.sees_everything() && !(group.is_empty() && plural == "secrets");
        };
        let labels = read.cluster_labels(&letter.cluster).unwrap_or_default();
        let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
        read.rights().visibility(reader, resource).sees(&cluster, &labels, namespace)
    }
}

pub(super) fn routes(ask: AskLetters, read: Option<Arc<ReadApi>>) -> Router {
    Router::new()
        .route("/v1/sinks/{sink}/dead-letters", get(list))
        .route("/v1/sinks/{sink}/dead-letters/{number}", get(show))
        .route("/v1/sinks/{sink}/dead-letters/replay", post(replay))
        .route("/v1/sinks/{sink}/dead-letters/purge", post(purge))
        .with_state(Letters { ask, read })
}

async fn list(
    State(letters): State<Letters>,
    Path(sink): Path<String>,
    Query(listing): Query<Listing>,
    parts: Parts,
) -> Response {
    let reader = reader_of(&parts);
    let Listing { id, cluster, subject, error, before, mut from, limit } = listing;
    let count = limit.unwrap_or(PAGE_LIMITS.0).clamp(1, PAGE_LIMITS.1);
    let filter = LetterFilter { ids: id.into_iter().collect(), cluster, subject, error, before };
    let mut shown: Vec<LetterSummary> = Vec::new();
    for _ in 0..MAX_READS {
        let request = LetterRequest::List { filter: filter.clone(), from, most: count };
        let found = match ask_sink(&letters.ask, &sink, request).await {
            Ok(LetterAnswer::List(found)) => found,
            Ok(_) => return no_letter(),
            Err(failure) => return *failure,
        };
        let (is_last, last) = (found.len() < count, found.last().map(|last| last.number));
        shown.extend(found.into_iter().filter(|letter| letters.is_visible(&reader, letter)));
        if shown.len() >= count || is_last {
            shown.truncate(count);
            let next = shown.last().filter(|_| shown.len() == count).map(|last| last.number + 1);
            return Json(json!({ "letters": shown, "next": next })).into_response();
        }
        from = last.map_or(from, |last| last + 1);
    }
    // Few of very many letters are visible.
    Json(json!({ "letters": shown, "next": from })).into_response()
}

async fn show(State(letters): State<Letters>, Path((sink, number)): Path<(String, u64)>, parts: Parts) -> Response {
    let reader = reader_of(&parts);
    match ask_sink(&letters.ask, &sink, LetterRequest::Show { number }).await {
        Ok(LetterAnswer::One(Some(letter))) if letters.is_visible(&reader, &letter.summary(number)) => {
            with_body(number, &letter).map_or_else(no_letter, |shown| Json(shown).into_response())
        }
        Ok(_) => no_letter(),
        Err(failure) => *failure,
    }
}

fn with_body(number: u64, letter: &DeadLetter) -> Option<Value> {
    let mut shown = serde_json::to_value(letter.summary(number)).ok()?;
    let body = serde_json::from_str(letter.event.json()).unwrap_or(Value::Null);
    shown.as_object_mut()?.insert("body".to_owned(), body);
    Some(shown)
}

async fn replay(
    State(letters): State<Letters>,
    Path(sink): Path<String>,
    reader: Option<Extension<Reader>>,
    Json(filter): Json<LetterFilter>,
) -> Response {
    change(&letters, reader, &sink, LetterRequest::Replay { filter }).await
}

async fn purge(
    State(letters): State<Letters>,
    Path(sink): Path<String>,
    reader: Option<Extension<Reader>>,
    Json(filter): Json<LetterFilter>,
) -> Response {
    change(&letters, reader, &sink, LetterRequest::Purge { filter }).await
}

/// Changes the letters that a filter selects. It may select any, so the reader must see everything.
async fn change(letters: &Letters, reader: Option<Extension<Reader>>, sink: &str, request: LetterRequest) -> Response {
    if !reader.is_some_and(|Extension(reader)| reader.sees_everything()) {
        let problem = "this reader does not see all dead letters, so it may not replay or purge them";
        return error_response(StatusCode::FORBIDDEN, problem);
    }
    match ask_sink(&letters.ask, sink, request).await {
        Ok(LetterAnswer::Count(count)) => Json(json!({ "count": count })).into_response(),
        Ok(_) => no_letter(),
        Err(failure) => *failure,
    }
}

fn no_letter() -> Response {
    error_response(StatusCode::NOT_FOUND, "there is no dead letter with this number")
}

/// Sends a request to a sink. Returns the answer, or the response to a failure.
async fn ask_sink(ask: &AskLetters, sink: &str, request: LetterRequest) -> Result<LetterAnswer, Box<Response>> {
    match tokio::time::timeout(DEADLINE, ask(sink.to_owned(), request)).await {
        Err(_) => Err(Box::new(error_response(
            StatusCode::GATEWAY_TIMEOUT,
            format!("the sink has not answered within {DEADLINE:?}; the operation continues"),
        ))),
        Ok(None) => Err(Box::new(error_response(StatusCode::NOT_FOUND, format!("there is no sink {sink:?}")))),
        Ok(Some(Err(error))) => Err(Box::new(error_response(StatusCode::INSUFFICIENT_STORAGE, error.to_string()))),
        Ok(Some(Ok(answer))) => Ok(answer),
    }
}

/// Splits the subject of an event into group, version, resource, namespace and name.
fn parts_of(subject: &str) -> Option<[&str; 5]> {
    let mut parts = subject.splitn(5, '/');
    Some([parts.next()?, parts.next()?, parts.next()?, parts.next()?, parts.next()?])
}
