//! Connections, routing and streamed answers of a replay server.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper::http::header::{ACCEPT, CONTENT_LENGTH, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use super::super::discovery::{self, Route};
use super::super::http::{Query, SimBody, SimResponse, Status, json_response, typed_response};
use super::super::media::Media;
use super::super::world::{World, WorldConfig};
use super::form::Form;
use super::template::{BASE, Template};
use super::{Plan, ReplayState};
use informer_hub_types::clock;

/// Size of a chunk of a list, or of events that are sent as fast as possible, in bytes.
const CHUNK: usize = 64 * 1024;

pub(super) async fn serve(state: Arc<ReplayState>, listener: TcpListener, tls: Option<TlsAcceptor>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                // A failure only adds latency.
                let _ = stream.set_nodelay(true);
                let (state, tls) = (Arc::clone(&state), tls.clone());
                connections.spawn(async move {
                    match tls {
                        None => serve_connection(state, Either::Left(stream)).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve_connection(state, Either::Right(stream)).await;
                            }
                        }
                    }
                });
            }
        }
    }
}

async fn serve_connection(state: Arc<ReplayState>, stream: Either<TcpStream, TlsStream<TcpStream>>) {
    let service = service_fn(|request| {
        let answer = answer(&state, &request);
        async move { Ok::<_, io::Error>(answer) }
    });
    // Connection errors are ignored: the client sees and reports them.
    let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
}

/// Pods that a request covers, in one encoding and in their state after the first `events` events.
struct View {
    state: Arc<ReplayState>,
    shard: Range<usize>,
    events: u64,
    form: Form,
}

impl View {
    fn templates(&self) -> &[Template] {
        &self.state.templates[self.shard.clone()]
    }

    fn version(&self) -> u64 {
        self.state.version_before(self.events)
    }

    /// Returns how long after the start of each interval `every` this shard sends its event. Shards (parts of the pods)
    /// send at different times.
    fn offset(&self, every: Duration) -> Duration {
        let nanos = every.as_nanos() * self.shard.start as u128 / self.state.templates.len().max(1) as u128;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Returns the version that a pod has in the list. `at` is its index in the shard (part of the pods).
    fn version_of(&self, at: usize) -> u64 {
        let (at, pods) = (at as u64, self.shard.len() as u64);
        match self.events.checked_sub(at + 1) {
            None => BASE + 1 + (self.shard.start as u64 + at),
            Some(since_first) => self.state.version_before(at + since_first / pods * pods + 1),
        }
    }
}

fn answer<B>(state: &Arc<ReplayState>, request: &Request<B>) -> SimResponse {
    let world = World::new(&WorldConfig { pods: 0, nodes: 0, widgets: 0, ..WorldConfig::default() });
    let pods = world.resources().filter(|def| def.api.gvr == World::pods());
    let (shard, path) = shard(request.uri().path(), state.templates.len());
    let document = match Route::parse(path) {
        Route::Version => Some(discovery::version()),
        Route::ApiVersions => Some(discovery::api_versions()),
        Route::Groups => Some(discovery::groups(pods)),
        Route::Resources { group, version } => discovery::resources(&group, &version, pods),
        Route::Objects { gvr, namespace: None, name: None } if gvr == World::pods() => {
            let accept = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
            let form = Form::negotiate(accept, state.speaks_protobuf);
            let events = state.plan.borrow().total;
            let view = View { state: Arc::clone(state), shard, events, form };
            return objects(view, &Query::parse(request.uri().query().unwrap_or_default()));
        }
        _ => None,
    };
    document.map_or_else(
        || Status::new(404, "NotFound", "a replay server serves only pods of all namespaces").response(Media::Json),
        |document| json_response(StatusCode::OK, &document),
    )
}

/// Strips `/shards/<i>/<n>` from a path and returns the shard; without that prefix, all pods.
fn shard(path: &str, pods: usize) -> (Range<usize>, &str) {
    let parse = || {
        let (index, rest) = path.strip_prefix("/shards/")?.split_once('/')?;
        let (count, rest) = rest.split_once('/')?;
        let (index, count) = (index.parse::<usize>().ok()?, count.parse::<usize>().ok()?);
        (index < count && count <= pods).then(|| (pods * index / count..pods * (index + 1) / count, rest))
    };
    parse().unwrap_or((0..pods, path))
}

fn objects(view: View, query: &Query) -> SimResponse {
    if !query.flag("watch") {
        view.state.lists.fetch_add(1, Relaxed);
        let size = view.form.list_size(view.templates(), view.version());
        let mut response = typed_response(StatusCode::OK, view.form.content_type(false), list_body(view));
        response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(size));
        return response;
    }
    if query.flag("sendInitialEvents") {
        let why = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
        return Status::invalid_options("sendInitialEvents", why).response(Media::Json);
    }
    let version = match query.number("resourceVersion") {
        Ok(version) => version.unwrap_or(0),
        Err(status) => return status.response(Media::Json),
    };
    view.state.watches.fetch_add(1, Relaxed);
    let next = view.state.event_after(version);
    typed_response(StatusCode::OK, view.form.content_type(true), watch_body(view, next))
}

/// Streams the list in chunks. The first chunk starts with the head and the last one ends with the tail.
fn list_body(view: View) -> SimBody {
    let chunks = stream::unfold((view, 0), |(view, mut at)| async move {
        let templates = view.templates();
        if at >= templates.len() {
            return None;
        }
        let mut chunk = Vec::with_capacity(CHUNK + CHUNK / 4);
        if at == 0 {
            chunk = view.form.list_head(templates, view.version());
        }
        while at < templates.len() && chunk.len() < CHUNK {
            view.form.write_item(&templates[at], view.version_of(at), at == 0, &mut chunk);
            at += 1;
        }
        if at == templates.len() {
            chunk.extend_from_slice(view.form.list_tail());
        }
        Some((Ok(Frame::data(Bytes::from(chunk))), (view, at)))
    });
    StreamBody::new(chunks).boxed_unsync()
}

/// Streams events from `next` on, in the number and at the pace that the [`Plan`] allows. A bookmark precedes them, so
/// that the HTTP head is sent immediately.
fn watch_body(view: View, next: u64) -> SimBody {
    let first = Some(Bytes::from(view.form.bookmark(view.state.version_before(next))));
    let plans = view.state.plan.subscribe();
    let expired = plans.borrow().expired;
    let chunks = stream::unfold((view, plans, Some(next), first), move |(view, mut plans, next, first)| async move {
        let mut next = next?;
        let chunk = match first {
            Some(first) => Some(first),
            None => events(&view, &mut plans, &mut next, expired).await,
        };
        match chunk {
            Some(chunk) => Some((Ok(Frame::data(chunk)), (view, plans, Some(next), None))),
            None => Some((Ok(Frame::data(view.form.expired()?)), (view, plans, None, None))),
        }
    });
    StreamBody::new(chunks).boxed_unsync()
}

/// Waits until an event is due. Returns all due events from `next` on, up to one chunk, and advances `next`. Returns
/// `None` if the watch has expired (the number of expiries is no longer `expired`), or if the server has ended.
async fn events(view: &View, plans: &mut watch::Receiver<Plan>, next: &mut u64, expired: u64) -> Option<Bytes> {
    loop {
        let plan = *plans.borrow_and_update();
        if plan.expired != expired {
            return None;
        }
        if *next >= plan.total {
            plans.changed().await.ok()?;
            continue;
        }
        let mut until = plan.total;
        if let (Some(every), Some(ahead)) = (plan.every, next.checked_sub(plan.from)) {
            let due =
                plan.started + view.offset(every) + every.saturating_mul(u32::try_from(ahead).unwrap_or(u32::MAX));
            let now = clock::now();
            if now < due {
                tokio::time::sleep_until(due).await;
                continue;
            }
            let late = (now - due).as_nanos() / every.as_nanos().max(1);
            let ready = u64::try_from(late).unwrap_or(u64::MAX).saturating_add(1);
            until = until.min(next.saturating_add(ready));
        }
        let (start, now, templates) = (*next, view.state.now(), view.templates());
        let mut chunk = Vec::with_capacity(CHUNK + CHUNK / 4);
        while *next < until && chunk.len() < CHUNK {
            let at = usize::try_from(*next % templates.len() as u64).unwrap_or_default();
            view.form.write_event(&templates[at], now, view.state.version_before(*next + 1), &mut chunk);
            *next += 1;
        }
        view.state.sent.fetch_add(*next - start, Relaxed);
        return Some(chunk.into());
    }
}
