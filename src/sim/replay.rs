//! A server for benches: one list, then events as fast as the socket takes them or at a steady pace.
//!
//! All JSON is made once at the start; an event costs one copy of its bytes and the writing of two numbers. A list
//! and every watch show the same story: event `i` changes pod `i % pods` to version `pods + 1 + i`, and a watch from
//! a version starts with the event after it. Plain HTTP/1.1 on loopback.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper::http::header::{CONTENT_LENGTH, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::discovery::{self, Route};
use super::http::{Query, SimBody, SimResponse, Status, json_response, typed_response};
use super::object::event_line;
use super::pods;
use super::world::{World, WorldConfig};
use crate::types::clock::{self, Instant};

/// The annotation that carries an event's send time, for [`ReplayServer::since_sent`]; a decimal number as text.
pub const SENT: &str = "bench/sent";

/// Bytes written at once in a flood and in a list.
const CHUNK: usize = 64 * 1024;
/// Digits of a number's slot in a template.
const DIGITS: usize = 16;
/// Stand in a template where the version and the send time go; as long as a slot.
const VERSION_SLOT: &str = "1000000000000001";
const SENT_SLOT: &str = "1000000000000002";
/// Versions start here, so that every one fills its slot.
const BASE: u64 = 1_000_000_000_000_000;

/// What a replay server shows.
#[derive(Clone, Debug)]
pub struct ReplayConfig {
    /// Decides the pods' content.
    pub seed: u64,
    /// Pods in the list, about 9.3 KB each.
    pub pods: usize,
    /// Nodes that they are spread over.
    pub nodes: usize,
    /// Short pods (about 600 B) instead.
    pub small: bool,
}

impl Default for ReplayConfig {
    fn default() -> Self {
        Self { seed: 1, pods: 20_000, nodes: 200, small: false }
    }
}

/// One pod, in pieces between its slots: the first slot is the send time, the second the version.
#[derive(Debug)]
struct Template {
    json: Bytes,
    sent_at: usize,
    version_at: usize,
}

/// What watches have been told to send.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// Events up to here may be sent.
    total: u64,
    /// Events from here on are paced.
    from: u64,
    /// When event `from` was due.
    started: Instant,
    /// Time between two events; `None` for a flood.
    every: Option<Duration>,
}

#[derive(Debug)]
struct Story {
    templates: Vec<Template>,
    plan: watch::Sender<Plan>,
    started: Instant,
    sent: AtomicU64,
    lists: AtomicU64,
}

/// See the module's documentation. Dropping it closes the port and every connection.
#[derive(Debug)]
pub struct ReplayServer {
    story: Arc<Story>,
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl ReplayServer {
    /// Makes the pods and starts serving them on a free port, on `handle`'s runtime.
    ///
    /// Holds all pods in memory (190 MB for 20,000): where the bench measures memory, run it in another process.
    ///
    /// # Errors
    /// When no loopback port can be bound.
    pub fn start(config: &ReplayConfig, handle: &Handle) -> io::Result<Self> {
        let _guard = handle.enter();
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let listener = TcpListener::from_std(listener)?;
        let started = clock::now();
        let plan = watch::Sender::new(Plan { total: 0, from: 0, started, every: None });
        let (sent, lists) = (AtomicU64::new(0), AtomicU64::new(0));
        let story = Arc::new(Story { templates: templates(config), plan, started, sent, lists });
        let task = handle.spawn(serve(Arc::clone(&story), listener));
        Ok(Self { story, address, task })
    }

    /// `http://127.0.0.1:<port>`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Bytes of one list.
    #[must_use]
    pub fn list_size(&self) -> u64 {
        self.story.list_size()
    }

    /// Lets every watch send `events` more, as fast as its client reads. They carry send times, one per chunk.
    pub fn flood(&self, events: u64) {
        self.go_on(events, None);
    }

    /// Lets every watch send `events` more, `rate` a second, each stamped when it is sent.
    pub fn pace(&self, rate: u32, events: u64) {
        self.go_on(events, Some(Duration::from_secs(1) / rate.max(1)));
    }

    fn go_on(&self, events: u64, every: Option<Duration>) {
        let started = clock::now();
        self.story.plan.send_modify(|plan| {
            *plan = Plan { total: plan.total + events, from: plan.total, started, every };
        });
    }

    /// Events that all watches together have handed to their connections.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.story.sent.load(Relaxed)
    }

    /// Lists served so far.
    #[must_use]
    pub fn lists(&self) -> u64 {
        self.story.lists.load(Relaxed)
    }

    /// The version that the last event allowed so far leads to: a client that has it has everything.
    #[must_use]
    pub fn last_version(&self) -> u64 {
        self.story.version_before(self.story.plan.borrow().total)
    }

    /// How long ago the event was sent whose [`SENT`] annotation has this value; `None` for one from the list, and
    /// for what is no such value. Valid in this process only.
    #[must_use]
    pub fn since_sent(&self, annotation: &str) -> Option<Duration> {
        let nanos = annotation.parse::<u64>().ok()?.checked_sub(BASE)?;
        if nanos == 0 {
            return None;
        }
        clock::now().checked_duration_since(self.story.started + Duration::from_nanos(nanos))
    }
}

impl Drop for ReplayServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Story {
    /// The version of the state before event `index`.
    fn version_before(&self, index: u64) -> u64 {
        BASE + self.templates.len() as u64 + index
    }

    /// The first event after `version`.
    fn event_after(&self, version: u64) -> u64 {
        version.saturating_sub(self.version_before(0))
    }

    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX - BASE) + BASE
    }

    fn list_head(&self) -> String {
        let version = self.version_before(0);
        format!(
            "{{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\"{version}\"}},\"items\":["
        )
    }

    fn list_size(&self) -> u64 {
        let items: usize = self.templates.iter().map(|template| template.json.len()).sum();
        (self.list_head().len() + items + self.templates.len().saturating_sub(1) + LIST_TAIL.len()) as u64
    }

    /// Appends event `index`, sent at `now`, as a line.
    fn write_event(&self, index: u64, now: u64, out: &mut Vec<u8>) {
        let at = usize::try_from(index % self.templates.len() as u64).unwrap_or_default();
        out.extend_from_slice(b"{\"type\":\"MODIFIED\",\"object\":{\"kind\":\"Pod\",\"apiVersion\":\"v1\",");
        let template = &self.templates[at];
        let start = out.len();
        out.extend_from_slice(&template.json[1..]);
        put(out, start + template.sent_at - 1, now);
        put(out, start + template.version_at - 1, self.version_before(index + 1));
        out.extend_from_slice(b"}\n");
    }
}

const LIST_TAIL: &str = "]}\n";

/// Writes a number over the slot at `at`. Every number has a slot's width, see [`BASE`].
fn put(out: &mut [u8], at: usize, mut number: u64) {
    for digit in out[at..at + DIGITS].iter_mut().rev() {
        *digit = b'0' + u8::try_from(number % 10).unwrap_or_default();
        number /= 10;
    }
}

/// Makes the pods. `json` is an item of a list: without its type, at its first version, never sent.
fn templates(config: &ReplayConfig) -> Vec<Template> {
    let mut rng = StdRng::seed_from_u64(config.seed);
    let world = World::new(&WorldConfig { pods: 0, nodes: 0, widgets: 0, ..WorldConfig::default() });
    let time = world.time();
    (0..config.pods.max(1))
        .map(|i| {
            let (name, mut body) = pods::pod(&mut rng, config.nodes, &time, config.small);
            let metadata = &mut body["metadata"];
            metadata["name"] = json!(format!("{name}-{i}"));
            metadata["namespace"] = json!(pods::NAMESPACES[i % pods::NAMESPACES.len()]);
            metadata["uid"] = json!(pods::uuid(&mut rng));
            metadata["creationTimestamp"] = json!(time);
            metadata["resourceVersion"] = json!(VERSION_SLOT);
            if !metadata["annotations"].is_object() {
                metadata["annotations"] = json!({});
            }
            metadata["annotations"][SENT] = json!(SENT_SLOT);
            template(&body, BASE + 1 + i as u64)
        })
        .collect()
}

fn template(body: &Value, version: u64) -> Template {
    let text = body.to_string();
    let slot = |text: &str, slot: &str| text.find(slot).expect("the slot was written into the pod just before");
    let (sent_at, version_at) = (slot(&text, SENT_SLOT), slot(&text, VERSION_SLOT));
    let mut json = text.into_bytes();
    put(&mut json, sent_at, BASE);
    put(&mut json, version_at, version);
    Template { json: json.into(), sent_at, version_at }
}

async fn serve(story: Arc<Story>, listener: TcpListener) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                // Only latency suffers if it cannot be set.
                let _ = stream.set_nodelay(true);
                let story = Arc::clone(&story);
                connections.spawn(async move {
                    let service = service_fn(|request| {
                        let answer = answer(&story, &request);
                        async move { Ok::<_, io::Error>(answer) }
                    });
                    // A connection's end is the client's business.
                    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                });
            }
        }
    }
}

fn answer<B>(story: &Arc<Story>, request: &Request<B>) -> SimResponse {
    let world = World::new(&WorldConfig { pods: 0, nodes: 0, widgets: 0, ..WorldConfig::default() });
    let pods = world.resources().filter(|def| def.api.gvr == World::pods());
    let document = match Route::parse(request.uri().path()) {
        Route::Version => Some(discovery::version()),
        Route::ApiVersions => Some(discovery::api_versions()),
        Route::Groups => Some(discovery::groups(pods)),
        Route::Resources { group, version } => discovery::resources(&group, &version, pods),
        Route::Objects { gvr, namespace: None, name: None } if gvr == World::pods() => {
            return objects(story, &Query::parse(request.uri().query().unwrap_or_default()));
        }
        _ => None,
    };
    document.map_or_else(
        || Status::new(404, "NotFound", "a replay server has pods of all namespaces and nothing else").response(),
        |document| json_response(StatusCode::OK, &document),
    )
}

fn objects(story: &Arc<Story>, query: &Query) -> SimResponse {
    if !query.flag("watch") {
        story.lists.fetch_add(1, Relaxed);
        let mut response = typed_response(StatusCode::OK, "application/json", list_body(Arc::clone(story)));
        response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(story.list_size()));
        return response;
    }
    if query.flag("sendInitialEvents") {
        let why = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
        return Status::invalid_options("sendInitialEvents", why).response();
    }
    let version = match query.number("resourceVersion") {
        Ok(version) => version.unwrap_or(0),
        Err(status) => return status.response(),
    };
    let next = story.event_after(version);
    typed_response(StatusCode::OK, "application/json", watch_body(Arc::clone(story), next))
}

/// The list, in chunks; the first and the last item carry head and tail.
fn list_body(story: Arc<Story>) -> SimBody {
    let chunks = stream::unfold((story, 0), |(story, mut at)| async move {
        let count = story.templates.len();
        if at >= count {
            return None;
        }
        let mut chunk = Vec::with_capacity(CHUNK + CHUNK / 4);
        if at == 0 {
            chunk.extend_from_slice(story.list_head().as_bytes());
        }
        while at < count && chunk.len() < CHUNK {
            if at > 0 {
                chunk.push(b',');
            }
            chunk.extend_from_slice(&story.templates[at].json);
            at += 1;
        }
        if at == count {
            chunk.extend_from_slice(LIST_TAIL.as_bytes());
        }
        Some((Ok(Frame::data(Bytes::from(chunk))), (story, at)))
    });
    StreamBody::new(chunks).boxed_unsync()
}

/// Events from `next` on, as the plan allows them; one bookmark first, so that the answer's head is sent at once.
fn watch_body(story: Arc<Story>, next: u64) -> SimBody {
    let metadata = json!({ "resourceVersion": story.version_before(next).to_string() });
    let bookmark = json!({ "kind": "Pod", "apiVersion": "v1", "metadata": metadata }).to_string();
    let first = Some(event_line("BOOKMARK", bookmark.as_bytes()));
    let plans = story.plan.subscribe();
    let chunks = stream::unfold((story, plans, next, first), |(story, mut plans, mut next, first)| async move {
        let chunk = match first {
            Some(first) => first,
            None => events(&story, &mut plans, &mut next).await?,
        };
        Some((Ok(Frame::data(chunk)), (story, plans, next, None)))
    });
    StreamBody::new(chunks).boxed_unsync()
}

/// Waits until an event is due and gives all that are, up to a chunk.
async fn events(story: &Story, plans: &mut watch::Receiver<Plan>, next: &mut u64) -> Option<Bytes> {
    loop {
        let plan = *plans.borrow_and_update();
        if *next >= plan.total {
            plans.changed().await.ok()?;
            continue;
        }
        let mut until = plan.total;
        if let (Some(every), Some(ahead)) = (plan.every, next.checked_sub(plan.from)) {
            let due = plan.started + every.saturating_mul(u32::try_from(ahead).unwrap_or(u32::MAX));
            let now = clock::now();
            if now < due {
                tokio::time::sleep_until(due).await;
                continue;
            }
            let late = (now - due).as_nanos() / every.as_nanos().max(1);
            let ready = u64::try_from(late).unwrap_or(u64::MAX).saturating_add(1);
            until = until.min(next.saturating_add(ready));
        }
        let (start, now) = (*next, story.now());
        let mut chunk = Vec::with_capacity(CHUNK + CHUNK / 4);
        while *next < until && chunk.len() < CHUNK {
            story.write_event(*next, now, &mut chunk);
            *next += 1;
        }
        story.sent.fetch_add(*next - start, Relaxed);
        return Some(chunk.into());
    }
}
