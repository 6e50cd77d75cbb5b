//! Handler of one HTTP request: authentication, routing, and the fault that strikes it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use hyper::body::{Body, Bytes};
use hyper::header::{ACCEPT, AUTHORIZATION, ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH};
use hyper::{Method, Request, StatusCode};
use serde_json::Value;

use super::access::{self, BoxError};
use super::bad_protobuf::BadProtobuf;
use super::connection::Link;
use super::discovery::{self, Route};
use super::fault::{AssignedFault, Fault, RequestKind};
use super::http::{SimResponse, Status, full, json_response, typed_response};
use super::lease_requests;
use super::list::ListSource;
use super::media::{Media, negotiate};
use super::pump::{Pump, Source};
use super::raw_response;
use super::request::{ObjectsRequest, is_signal};
use super::shared::{Shared, Streaming};
use super::watch::WatchSource;
use super::writer::Writer;
use informer_hub_types::ObjectKey;

/// Answers one request. If this returns an error, the connection is cut.
pub(super) async fn handle<B>(shared: Arc<Shared>, link: Arc<Link>, request: Request<B>) -> io::Result<SimResponse>
where
    B: Body<Error: Into<BoxError>>,
{
    shared.counters.requests.fetch_add(1, Relaxed);
    let media = media_of_errors(&shared, request.headers());
    if let Err(status) = admit(&shared, &request) {
        return Ok(status.response(media));
    }
    if access::is_review(&request) {
        return access::review(&shared, request).await;
    }
    if lease_requests::is_lease(&request) {
        return lease_requests::answer(&shared, request).await;
    }
    let route = Route::parse(request.uri().path());
    if let Route::Objects { gvr, namespace, name } = route {
        return match ObjectsRequest::parse(&shared, &request, &gvr, namespace.as_deref()) {
            Err(status) => Ok(status.response(media)),
            Ok(request) if name.is_some() => {
                let name = name.unwrap_or_default();
                let found = get(&shared, &request, &ObjectKey::new(namespace.as_deref().unwrap_or_default(), &name));
                Ok(found.unwrap_or_else(|status| status.response(media)))
            }
            Ok(request) => objects(shared, link, request).await,
        };
    }
    let label = format!("{} {}", request.method(), request.uri());
    // No client depends on `/version`, so faults do not strike it.
    if route != Route::Version
        && let Some(armed) = shared.decide(RequestKind::Discovery, "", false).filter(strikes_head)
        && let Some(answer) = break_head(&shared, &link, &armed.fault, media, &label).await
    {
        return answer;
    }
    Ok(describe(&shared, &route, request.headers()))
}

/// Returns the encoding in which the client receives errors (`Status` objects).
fn media_of_errors(shared: &Shared, headers: &HeaderMap) -> Media {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("*/*");
    negotiate(accept, |_| shared.config.protobuf).map_or(Media::Json, |accepted| accepted.media)
}

/// Checks the token and the method. The error is the `Status` to answer.
fn admit<B>(shared: &Shared, request: &Request<B>) -> Result<(), Status> {
    if let Some(token) = &shared.config.token {
        let given = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        if given.and_then(|value| value.strip_prefix("Bearer ")) != Some(token) {
            return Err(Status::new(401, "Unauthorized", "Unauthorized"));
        }
    }
    if request.method() != Method::GET && !access::is_review(request) && !lease_requests::is_lease(request) {
        let message = "the server does not allow this method on the requested resource";
        return Err(Status::new(405, "MethodNotAllowed", message));
    }
    Ok(())
}

async fn objects(shared: Arc<Shared>, link: Arc<Link>, request: ObjectsRequest) -> io::Result<SimResponse> {
    let kind = request.kind();
    let counters = &shared.counters;
    let signals = is_signal(&request.def.api.gvr);
    match kind {
        _ if signals => &counters.signals,
        RequestKind::Check => &counters.checks,
        RequestKind::List | RequestKind::Continue | RequestKind::Discovery => &counters.lists,
        RequestKind::Watch | RequestKind::Streaming => &counters.watches,
    }
    .fetch_add(1, Relaxed);
    let mut fault = shared.decide(kind, &request.def.api.gvr.resource, signals);
    if let Some(armed) = fault.take_if(|armed| strikes_head(armed))
        && let Some(answer) = break_head(&shared, &link, &armed.fault, request.media, &request.label).await
    {
        return answer;
    }
    let answer = match kind {
        RequestKind::Watch | RequestKind::Streaming => watch(&shared, link, &request, kind, fault),
        RequestKind::Check | RequestKind::List | RequestKind::Continue | RequestKind::Discovery => {
            ListSource::open(&shared, &request, &mut fault)
                .map(|source| respond(&shared, link, &request, source, fault))
        }
    };
    Ok(answer.unwrap_or_else(|status| status.response(request.media)))
}

fn watch(
    shared: &Arc<Shared>,
    link: Arc<Link>,
    request: &ObjectsRequest,
    kind: RequestKind,
    fault: Option<AssignedFault>,
) -> Result<SimResponse, Status> {
    let armed = fault.as_ref().map(|armed| &armed.fault);
    let mode = match armed {
        Some(Fault::RefuseStreaming) => Streaming::Refused,
        Some(Fault::IgnoreStreaming) => Streaming::Ignored,
        _ => shared.config.streaming,
    };
    let lasting = [Fault::NoBookmarks, Fault::WithholdMarker, Fault::RefuseStreaming, Fault::IgnoreStreaming]
        .iter()
        .find(|f| Some(*f) == armed);
    if let Some(fault) = lasting {
        shared.record(&request.label, 0, fault);
    }
    let streaming = streaming(shared, request, kind, mode)?;
    let source = WatchSource::open(shared, request, streaming, armed)?;
    let fault = fault.filter(|_| lasting.is_none());
    Ok(respond(shared, link, request, source, fault))
}

/// Returns an answer that streams the events or items of `source`, with `fault` applied.
fn respond<S: Source>(
    shared: &Arc<Shared>,
    link: Arc<Link>,
    request: &ObjectsRequest,
    source: S,
    mut fault: Option<AssignedFault>,
) -> SimResponse {
    if request.media == Media::Protobuf {
        shared.counters.protobuf.fetch_add(1, Relaxed);
    }
    let of_answer = fault.take_if(|assigned| matches!(assigned.fault, Fault::BadProtobuf(bad) if bad.is_of_answer()));
    if let Some(assigned) = &of_answer {
        shared.record(&request.label, 0, &assigned.fault);
    }
    let bad = of_answer.map(|assigned| assigned.fault);
    let pump = Pump::new(source, request.writer(), fault, Arc::clone(shared), link, request.label.clone());
    let is_gzipped = bad == Some(Fault::BadProtobuf(BadProtobuf::Gzip));
    let pump = if is_gzipped { pump.gzipped() } else { pump };
    let is_mislabelled = bad == Some(Fault::BadProtobuf(BadProtobuf::LabelledJson));
    let media = if is_mislabelled { Media::Json } else { request.media };
    typed_response(StatusCode::OK, media.content_type(S::WATCH), pump.into_body())
}

/// Returns whether a watch starts with a streaming list. Fails if `sendInitialEvents` and `resourceVersionMatch` break
/// Kubernetes' rules.
fn streaming(shared: &Shared, request: &ObjectsRequest, kind: RequestKind, mode: Streaming) -> Result<bool, Status> {
    let matching = request.query.get("resourceVersionMatch");
    if mode == Streaming::Ignored {
        return Ok(false);
    }
    if kind == RequestKind::Watch {
        let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
        let allowed = matching.is_empty() || !request.query.get("sendInitialEvents").is_empty();
        return if allowed { Ok(false) } else { Err(Status::invalid_options("resourceVersionMatch", why)) };
    }
    if mode == Streaming::Refused {
        let why = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
        return Err(Status::invalid_options("sendInitialEvents", why));
    }
    if matching != "NotOlderThan" {
        let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        return Err(Status::invalid_options("resourceVersionMatch", why));
    }
    if !is_signal(&request.def.api.gvr) {
        shared.counters.streaming.fetch_add(1, Relaxed);
    }
    Ok(true)
}

/// Returns whether a fault strikes before the first byte of the answer.
fn strikes_head(armed: &AssignedFault) -> bool {
    match armed.fault {
        Fault::HttpGone
        | Fault::Throttle(_)
        | Fault::InternalError
        | Fault::Unavailable
        | Fault::WrongContentType
        | Fault::Answer(_)
        | Fault::Down(_) => true,
        Fault::Stall(_) | Fault::Reset => armed.after == 0,
        _ => false,
    }
}

/// Applies a fault that strikes before the first byte, and returns the faulty answer; `None` if the fault only delays
/// the regular one.
async fn break_head(
    shared: &Arc<Shared>,
    link: &Link,
    fault: &Fault,
    media: Media,
    label: &str,
) -> Option<io::Result<SimResponse>> {
    shared.record(label, 0, fault);
    let answer = match fault {
        Fault::HttpGone => Status::expired("too old resource version").response(media),
        Fault::Throttle(seconds) => Status::throttled(*seconds).response(media),
        Fault::InternalError => Status::new(500, "InternalError", "etcdserver: leader changed").response(media),
        Fault::Unavailable => Status::new(503, "ServiceUnavailable", "apiserver not ready").response(media),
        Fault::WrongContentType => {
            let page = full("<html><body>Please sign in to continue</body></html>");
            typed_response(StatusCode::OK, "text/html", page)
        }
        Fault::Answer(answer) => raw_response::response(answer, shared),
        Fault::Stall(pause) => {
            shared.stall(*pause).await;
            return None;
        }
        Fault::Down(pause) => {
            shared.go_down(*pause);
            return Some(Err(link.reset()));
        }
        _ => return Some(Err(link.reset())),
    };
    Some(Ok(answer))
}

fn get(shared: &Shared, request: &ObjectsRequest, key: &ObjectKey) -> Result<SimResponse, Status> {
    let gvr = &request.def.api.gvr;
    let found = shared.with_world(|world| world.get(gvr, key).cloned());
    let not_found = || Status::new(404, "NotFound", format!("{} \"{}\" not found", gvr, key.name()));
    let object = found.ok_or_else(not_found)?;
    let body = match request.writer() {
        Writer::Json => object.json().clone(),
        Writer::Protobuf(mut writer) => {
            let cannot = |error| Status::new(500, "InternalError", format!("cannot encode an object: {error}"));
            Bytes::copy_from_slice(writer.object(object.json()).map_err(cannot)?)
        }
    };
    Ok(typed_response(StatusCode::OK, request.media.content_type(false), full(body)))
}

/// Answers with an aggregated document and its ETag, or with 304 if the client knows this tag.
fn aggregated(shared: &Shared, document: &Value, known: &str) -> SimResponse {
    let mut hasher = DefaultHasher::new();
    document.to_string().hash(&mut hasher);
    let tag = format!("\"{:016x}\"", hasher.finish());
    let mut response = if tag == known {
        shared.counters.unchanged.fetch_add(1, Relaxed);
        let mut response = SimResponse::new(full(""));
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        shared.counters.documents.fetch_add(1, Relaxed);
        let kind = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        typed_response(StatusCode::OK, kind, full(document.to_string()))
    };
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}

/// Answers discovery, version and health requests.
fn describe(shared: &Shared, route: &Route, headers: &HeaderMap) -> SimResponse {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if matches!(route, Route::ApiVersions | Route::Groups) && text(ACCEPT).contains("as=APIGroupDiscoveryList") {
        let served = shared.with_world(|world| world.served());
        return aggregated(shared, &discovery::aggregated(&served, *route == Route::ApiVersions), text(IF_NONE_MATCH));
    }
    // Clients request `/version` on every connection, so it does not count as discovery.
    if *route != Route::Version {
        shared.counters.documents.fetch_add(1, Relaxed);
    }
    let served = shared.with_world(|world| world.served());
    let document = match route {
        Route::Version => Some(discovery::version()),
        Route::ApiVersions => Some(discovery::api_versions()),
        Route::Groups => Some(discovery::groups(served.iter())),
        Route::Group(name) => discovery::group(name, served.iter()),
        Route::Resources { group, version } => discovery::resources(group, version, served.iter()),
        Route::Health | Route::Objects { .. } | Route::Unknown => None,
    };
    match (document, route) {
        (Some(document), _) => json_response(StatusCode::OK, &document),
        (None, Route::Health) => typed_response(StatusCode::OK, "text/plain; charset=utf-8", full("ok")),
        (None, _) => {
            Status::new(404, "NotFound", "the server could not find the requested resource").response(Media::Json)
        }
    }
}
