//! `/v1/events`: changes as they happen, as Server-Sent Events or lines of JSON.
//!
//! A stream has no queue. When the client has taken all events sent so far, the stream reads the next changes from the
//! windows of recent changes (`feed`). A client that falls behind a window is notified of the gap, and the stream
//! starts anew. `request` parses the request, `change_filter` selects changes, `position` encodes what a client has
//! received, `frames` writes events, and `stream` drives them. `docs/query-api.md` describes the path for users.

mod change_filter;
mod feed;
mod frames;
mod position;
mod request;
mod stream;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use axum::routing::get;
use futures::future::join_all;

use super::extensions::Streaming;
use super::kubernetes::{CacheInfo, Fleet, ReadApi, Warnings, reader_id};
use super::notes::Notes;
use super::rights::reader_of;
use super::v1::{
    Answer, Failure, Form, Kind, Media, Method, Operation, Parameter, Route, Sight, accepted, find, find_all,
};
use change_filter::ChangeFilter;
use feed::Feed;
use frames::Frames;
use informer_hub_types::clock;
use position::Position;
use request::EventsRequest;
use stream::{Gate, Stream};

pub(super) const PATH: &str = "/v1/events";

/// Maximum number of resources of one stream. The client's position grows with each resource.
const MAX_RESOURCES: usize = 64;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Header that makes nginx forward events immediately instead of buffering them.
const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

pub(super) const ROUTE: Route = Route {
    path: PATH,
    operations: &[Operation {
        method: Method::Get,
        id: "events",
        summary: "Streams changes of objects as they happen",
        parameters: &[request::PARAMETERS, HEADERS],
        body: None,
        answers: &[Answer {
            code: 200,
            text: "The stream, until the client closes it, the hub stops or `timeout` has passed",
            media: &[
                Media { name: "text/event-stream", schema: None },
                Media { name: "application/x-ndjson", schema: Some("CloudEvent") },
            ],
        }],
    }],
};

const HEADERS: &[Parameter] = &[Parameter::of_header(
    "Last-Event-ID",
    "Position from which the stream continues: the last `id:` of Server-Sent Events, or the last `position` of a line",
)];

/// Values of the parameter `events`.
const EVENTS: Kind = Kind::SomeOf(&["added", "updated", "deleted"]);

pub(super) fn routes(api: Arc<ReadApi>) -> Router {
    Router::new().route(PATH, get(handle)).with_state(api)
}

async fn handle(State(api): State<Arc<ReadApi>>, parts: Parts) -> Response {
    let began = clock::now();
    let mut resource = String::new();
    let response = begin(&api, &parts, &mut resource).await.unwrap_or_else(Failure::response);
    api.count("events", &resource, &parts, response.status().as_u16(), began);
    response
}

/// Begins a stream. Sets `resource` to the resource label for metrics.
async fn begin(api: &Arc<ReadApi>, parts: &Parts, resource: &mut String) -> Result<Response, Failure> {
    let form = accepted(parts, &[Form::Events, Form::Lines])?;
    let asked = EventsRequest::of(&parts.uri)?;
    let fleet = api.complete_fleet()?;
    let sight = Sight::of(api, parts);
    asked.clusters.check(&*fleet, &sight)?;
    let caches = caches_of(&*fleet, &asked, &sight)?;
    *resource = match caches.as_slice() {
        [cache] => cache.resource.gvr.to_string(),
        _ => "several".to_owned(),
    };
    let notes = Notes::of(parts);
    for cache in &caches {
        notes.resource(&cache.resource.gvr);
    }
    let all = fleet.clusters().into_iter().map(|cluster| cluster.name).collect();
    notes.clusters(&asked.clusters.names(&*fleet, &sight).unwrap_or(all));
    let reader = reader_id(parts);
    let admission = api.admit_watch(&reader, &reader_of(parts))?;
    let until = asked.timeout.map(|timeout| clock::now() + timeout);
    let wanted = ChangeFilter::of(asked, sight).await?;
    let known = parts.headers.get(LAST_EVENT_ID).map(|value| Position::parse(value.as_bytes()));
    let feeds = caches.into_iter().map(|cache| Feed::begin(cache, &wanted, known.as_ref()));
    let feeds = join_all(feeds).await;
    let mut warnings = Warnings::default();
    for feed in &feeds {
        feed.warn(&wanted, &mut warnings);
    }
    let open = api.watch_began(resource, parts);
    let gate = Gate { api: Arc::clone(api), reader, notes };
    let stream = Stream::new(gate, wanted, feeds, Frames::new(form), until);
    let held = (admission, open);
    let body = Body::from_stream(futures::stream::unfold((stream, held), |(mut stream, held)| async {
        let chunk = stream.next().await?;
        Some((Ok::<_, Infallible>(chunk), (stream, held)))
    }));
    let mut response = Response::new(body);
    response.extensions_mut().insert(Streaming);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(form.content_type()));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    headers.insert(BUFFERING, HeaderValue::from_static("no"));
    warnings.warn(headers);
    Ok(response)
}

/// Returns the caches of the resources of a request.
fn caches_of(fleet: &dyn Fleet, asked: &EventsRequest, sight: &Sight) -> Result<Vec<CacheInfo>, Failure> {
    let mut caches = if asked.resources.iter().any(|name| name == "*") {
        find_all(fleet, sight)
    } else {
        asked.resources.iter().map(|name| find(fleet, name, sight)).collect::<Result<Vec<_>, _>>()?
    };
    if caches.is_empty() {
        return Err(Failure::unknown_object("the hub has no resources"));
    }
    caches.sort_by(|one, other| one.resource.gvr.cmp(&other.resource.gvr));
    caches.dedup_by(|one, other| one.resource.gvr == other.resource.gvr);
    if caches.len() > MAX_RESOURCES {
        let text = format!("{} resources are too many for one stream: {MAX_RESOURCES} at most", caches.len());
        return Err(Failure::invalid(text));
    }
    Ok(caches)
}
