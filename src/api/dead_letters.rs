//! `/v1/sinks/{sink}/dead-letters`: lists, shows, replays and purges dead letters.
//!
//! | request | effect |
//! |---|---|
//! | `GET …/dead-letters?cluster=…&subject=…&error=…&before=…&id=…&from=0&limit=100` | lists them, oldest first |
//! | `GET …/dead-letters/{number}` | returns one with its event |
//! | `POST …/dead-letters/replay`, a filter as JSON | redelivers those that match |
//! | `POST …/dead-letters/purge`, a filter as JSON | deletes those that match |

use std::collections::{BTreeMap, BTreeSet};
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
use smol_str::SmolStr;

use super::kubernetes::ReadApi;
use super::notes::Notes;
use super::rights::{Extent, Place, reader_of};
use super::{DEADLINE, error_response};
use crate::actors::sinks::sink::{LetterAnswer, LetterRequest};
use informer_hub_access::{Reader, Verb};
use informer_hub_sink::{DeadLetter, LetterFilter, LetterSummary, StoreError};
use informer_hub_types::{ApiResource, ClusterName, Gvr, MAX_QUOTED, shortened};

/// A sink's answer to a dead-letter request; `None` if there is no sink of that name.
pub type LetterResult = Option<Result<LetterAnswer, StoreError>>;

/// Function that sends a dead-letter request to the sink with the given name.
pub type AskLetters = Arc<dyn Fn(String, LetterRequest) -> BoxFuture<'static, LetterResult> + Send + Sync>;

/// Default and maximum number of dead letters in one response.
const PAGE_LIMITS: (usize, usize) = (100, 1000);

/// Maximum number of pages of dead letters that are read to fill one response, if the reader may see only some of them.
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

/// State of the handlers: access to dead letters, and the read API, which knows the rights of readers.
#[derive(Clone)]
struct Letters {
    ask: AskLetters,
    read: Option<Arc<ReadApi>>,
}

impl Letters {
    /// Removes dead letters of objects that the reader may not see. Sends access reviews if the reader's rights come from
    /// the clusters.
    async fn retain(&self, reader: &Reader, letters: &mut Vec<LetterSummary>) {
        if reader.sees_everything() && (reader.may_change() || self.read.is_none()) {
            return;
        }
        let Some(read) = &self.read else { return letters.clear() };
        let resources = read.resources();
        let mut places: BTreeMap<&Gvr, BTreeMap<ClusterName, BTreeSet<SmolStr>>> = BTreeMap::new();
        let abouts: Vec<_> = letters.iter().map(|letter| About::of(letter, &resources)).collect();
        for about in abouts.iter().flatten() {
            let of_cluster = places.entry(&about.resource.gvr).or_default().entry(about.cluster.clone()).or_default();
            of_cluster.extend(about.namespace.clone());
        }
        let labels = |cluster: &ClusterName| read.cluster_labels(cluster.as_str()).unwrap_or_default();
        let mut visible = BTreeMap::new();
        for resource in &resources {
            let Some(places) = places.remove(&resource.gvr) else { continue };
            let place = |(cluster, namespaces): (ClusterName, BTreeSet<_>)| Place {
                labels: labels(&cluster),
                cluster,
                extent: Extent::All(namespaces.into_iter().collect()),
            };
            let places = places.into_iter().map(place).collect();
            visible.insert(&resource.gvr, read.rights().reviewed(reader, Verb::Get, resource, places).await);
        }
        let mut abouts = abouts.iter();
        letters.retain(|letter| match abouts.next().and_then(Option::as_ref) {
            Some(about) => visible.get(&about.resource.gvr).is_some_and(|visibility| {
                visibility.sees(&about.cluster, &labels(&about.cluster), about.namespace.as_deref())
            }),
            // Only readers that see everything see letters of a resource that the hub no longer caches. Letters of
            // Secrets stay hidden.
            None => reader.sees_everything() && !is_of_secret(letter),
        });
    }
}

/// The object that a dead letter is about.
struct About<'r> {
    resource: &'r ApiResource,
    cluster: ClusterName,
    namespace: Option<SmolStr>,
}

impl<'r> About<'r> {
    /// Returns the object of a dead letter; `None` if the hub does not know its resource.
    fn of(letter: &LetterSummary, resources: &'r [ApiResource]) -> Option<Self> {
        let [group, _, plural, namespace, _] = parts_of(&letter.subject)?;
        let resource = resources.iter().find(|known| known.gvr.group == group && known.gvr.resource == plural)?;
        let cluster = ClusterName::new(&letter.cluster).ok()?;
        Some(Self { resource, cluster, namespace: Some(namespace.into()).filter(|name: &SmolStr| !name.is_empty()) })
    }
}

/// Returns whether a dead letter is about a Secret, or its subject cannot be read.
fn is_of_secret(letter: &LetterSummary) -> bool {
    parts_of(&letter.subject).is_none_or(|[group, _, plural, ..]| group.is_empty() && plural == "secrets")
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
        let mut found = match ask_sink(&letters.ask, &sink, request).await {
            Ok(LetterAnswer::List(found)) => found,
            Ok(_) => return no_letter(),
            Err(failure) => return *failure,
        };
        let (is_last, last) = (found.len() < count, found.last().map(|last| last.number));
        letters.retain(&reader, &mut found).await;
        shown.extend(found);
        if shown.len() >= count || is_last {
            shown.truncate(count);
            Notes::of(&parts).served(shown.len() as u64);
            let next = shown.last().filter(|_| shown.len() == count).map(|last| last.number + 1);
            return Json(json!({ "letters": shown, "next": next })).into_response();
        }
        from = last.map_or(from, |last| last + 1);
    }
    // The reader may see too few letters of these pages to fill the response. The client continues at `next`.
    Json(json!({ "letters": shown, "next": from })).into_response()
}

async fn show(State(letters): State<Letters>, Path((sink, number)): Path<(String, u64)>, parts: Parts) -> Response {
    let reader = reader_of(&parts);
    let letter = match ask_sink(&letters.ask, &sink, LetterRequest::Show { number }).await {
        Ok(LetterAnswer::One(Some(letter))) => letter,
        Ok(_) => return no_letter(),
        Err(failure) => return *failure,
    };
    let mut visible = vec![letter.summary(number)];
    letters.retain(&reader, &mut visible).await;
    if visible.is_empty() {
        Notes::of(&parts).withhold();
        return no_letter();
    }
    let shown = with_body(number, &letter);
    shown.map_or_else(no_letter, |shown| Json(shown).into_response())
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

/// Replays or purges the dead letters that a filter selects. A filter may select any dead letter, so the reader must
/// see everything.
async fn change(letters: &Letters, reader: Option<Extension<Reader>>, sink: &str, request: LetterRequest) -> Response {
    if !reader.is_some_and(|Extension(reader)| reader.sees_everything()) {
        let problem = "only a reader that sees everything may replay or purge dead letters";
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
        Ok(None) => {
            let problem = format!("there is no sink {:?}", shortened(sink, MAX_QUOTED));
            Err(Box::new(error_response(StatusCode::NOT_FOUND, problem)))
        }
        Ok(Some(Err(error))) => Err(Box::new(error_response(StatusCode::INSUFFICIENT_STORAGE, error.to_string()))),
        Ok(Some(Ok(answer))) => Ok(answer),
    }
}

/// Splits the subject of an event into group, version, resource, namespace and name; `None` for other texts.
fn parts_of(subject: &str) -> Option<[&str; 5]> {
    let mut parts = subject.splitn(5, '/');
    Some([parts.next()?, parts.next()?, parts.next()?, parts.next()?, parts.next()?])
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;
    use crate::api::kubernetes::tests::rights::{ann, reviewed_bench, rule};

    #[tokio::test(start_paused = true)]
    async fn dead_letters_are_those_of_visible_objects() {
        let (bench, rbac) = reviewed_bench();
        let ask: AskLetters = Arc::new(|_, _| Box::pin(async { None }));
        let letters = Letters { ask, read: Some(bench.api()) };
        let letter = |(number, (cluster, subject)): (u64, (&str, &str))| LetterSummary {
            number,
            id: number.to_string(),
            cluster: cluster.to_owned(),
            subject: subject.to_owned(),
            event: "added",
            attempts: 1,
            error: String::new(),
            at: jiff::Timestamp::UNIX_EPOCH,
            bytes: 1,
        };
        let places = [
            ("a", "/v1/pods/shop/x"),
            ("a", "/v1/pods/pay/x"),
            ("b", "/v1/pods/pay/x"),
            ("b", "/v1/nodes//n1"),
            ("b", "/v1/secrets/shop/key"),
            ("b", "apps/v1/deployments/shop/web"),
            ("removed", "/v1/pods/shop/x"),
            ("b", "not a subject"),
        ];
        let seen = async |reader: &Reader| {
            let mut all: Vec<_> = (0..).zip(places).map(letter).collect();
            letters.retain(reader, &mut all).await;
            all.into_iter().map(|letter| letter.number).collect::<Vec<_>>()
        };
        // The access reviews of the test clusters ignore the resource, so the reader sees Secrets of `b`.
        assert_eq!(seen(&bench.reader).await, [0, 2, 3, 4]);
        assert_eq!(seen(&ann(vec![rule(None, &["shop"], &["*"], &[])])).await, [0, 6]);
        assert_eq!(seen(&Reader::unknown()).await, [] as [u64; 0]);
        assert_eq!(seen(&Reader::read_token()).await, [0, 1, 2, 3, 5, 6]);
        assert_eq!(seen(&Reader::administrator()).await.len(), places.len());
        rbac.is_down.store(true, Relaxed);
        tokio::time::advance(std::time::Duration::from_secs(6)).await;
        assert_eq!(seen(&bench.reader).await, [] as [u64; 0]);
    }
}
