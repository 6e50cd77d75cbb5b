//! Replay server for benches: one list, then events at the speed of the socket or at a steady rate.
//!
//! All objects are encoded once at the start. An event costs one copy and the writing of two numbers. Lists and watches
//! are consistent: event `i` changes pod `i % pods` to version `BASE + pods + 1 + i`. A watch from a version starts
//! with the event after it.
//!
//! The server speaks HTTP/1.1 and HTTP/2 on loopback, with or without TLS. It serves JSON, and Kubernetes protobuf if
//! it was given encoded pods, each also as `PartialObjectMetadata`.
//!
//! `/shards/<i>/<n>` serves the `i`th of `n` equal parts of the pods as a separate cluster.

mod form;
mod serve;
mod shape;
mod template;

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use form::Form;
use informer_hub_types::clock::{self, Instant};
pub use shape::Shape;
use template::{BASE, Template};

/// Annotation with an event's send time, for [`ReplayServer::since_sent`]: microseconds since the Unix epoch, as a
/// decimal number.
pub const SENT: &str = "bench/sent";

/// Configuration of a replay server.
#[derive(Clone, Debug)]
pub struct ReplayConfig {
    /// Seed of the pods' content.
    pub seed: u64,
    /// Number of pods in the list.
    pub pods: usize,
    /// Number of nodes over which the pods are spread.
    pub nodes: usize,
    /// Content of the pods.
    pub shape: Shape,
    /// File with the pods of [`ReplayConfig::export`] in Kubernetes protobuf, each after its length in four bytes
    /// (big-endian). Without it the server serves JSON only.
    pub protobuf: Option<PathBuf>,
    /// TLS configuration; its ALPN list decides whether HTTP/2 is offered. Without it the server uses plain TCP, and
    /// HTTP/2 for clients that start with its preface.
    pub tls: Option<Arc<ServerConfig>>,
}

impl Default for ReplayConfig {
    fn default() -> Self {
        Self { seed: 1, pods: 20_000, nodes: 200, shape: Shape::Pods, protobuf: None, tls: None }
    }
}

impl ReplayConfig {
    /// Writes the pods for an encoder, one line of JSON each.
    ///
    /// # Errors
    /// I/O errors of `out`.
    pub fn export(&self, out: &mut impl Write) -> io::Result<()> {
        template::export(self, out)
    }
}

/// Events that watches may send, and their pace.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// Number of events that each watch may send, counted from the first event of the server.
    total: u64,
    /// Index of the first event that is sent at the interval `every`. Earlier events are sent as fast as clients read.
    from: u64,
    /// When the event `from` is due.
    started: Instant,
    /// Interval between events; `None` to send them as fast as clients read.
    every: Option<Duration>,
    /// Number of calls of [`ReplayServer::expire`]. When it increases, open watches end.
    expired: u64,
}

#[derive(Debug)]
struct ReplayState {
    templates: Vec<Template>,
    speaks_protobuf: bool,
    plan: watch::Sender<Plan>,
    started: Instant,
    /// Wall clock at `started`, in microseconds.
    epoch: u64,
    sent: AtomicU64,
    lists: AtomicU64,
    watches: AtomicU64,
}

/// Replay server, see the [module](self). Dropping it closes the port and all connections.
#[derive(Debug)]
pub struct ReplayServer {
    state: Arc<ReplayState>,
    address: SocketAddr,
    scheme: &'static str,
    task: JoinHandle<()>,
}

impl ReplayServer {
    /// Creates the pods and serves them on a free port, on `handle`'s runtime.
    ///
    /// Holds all pods in memory (190 MB for 20,000 in JSON). A bench that measures memory must run it in another
    /// process.
    ///
    /// # Errors
    /// I/O errors of binding a loopback port or reading the protobuf file, and `InvalidData` if that file does not have
    /// pods of [`ReplayConfig::export`].
    pub fn start(config: &ReplayConfig, handle: &Handle) -> io::Result<Self> {
        let _guard = handle.enter();
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let listener = TcpListener::from_std(listener)?;
        let templates = template::make(config)?;
        // Reads both clocks at the same time: a send time is the wall clock here plus the monotonic time since.
        let (started, epoch) = (clock::now(), wall_micros());
        let state = Arc::new(ReplayState {
            templates,
            speaks_protobuf: config.protobuf.is_some(),
            plan: watch::Sender::new(Plan { total: 0, from: 0, started, every: None, expired: 0 }),
            started,
            epoch,
            sent: AtomicU64::new(0),
            lists: AtomicU64::new(0),
            watches: AtomicU64::new(0),
        });
        let tls = config.tls.clone().map(TlsAcceptor::from);
        let scheme = if tls.is_some() { "https" } else { "http" };
        let task = handle.spawn(serve::serve(Arc::clone(&state), listener, tls));
        Ok(Self { state, address, scheme, task })
    }

    /// `http://127.0.0.1:<port>`, or `https` with TLS.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    /// Returns the size of one list in JSON, in bytes.
    #[must_use]
    pub fn list_size(&self) -> u64 {
        Form::Json.list_size(&self.state.templates, self.state.version_before(0))
    }

    /// Lets every watch send this many more events, as fast as its client reads. All events of a chunk carry the same
    /// send time.
    pub fn flood(&self, events: u64) {
        self.extend(events, None);
    }

    /// Lets every watch send this many more events, at `rate` per second. Each event carries its own send time.
    pub fn pace(&self, rate: u32, events: u64) {
        self.extend(events, Some(Duration::from_secs(1) / rate.max(1)));
    }

    fn extend(&self, events: u64, every: Option<Duration>) {
        let started = clock::now();
        self.state.plan.send_modify(|plan| {
            *plan = Plan { total: plan.total + events, from: plan.total, started, every, ..*plan };
        });
    }

    /// Ends every watch as expired, so that clients must list again. A JSON watch ends with an ERROR event; in other
    /// encodings the answer just ends.
    pub fn expire(&self) {
        self.state.plan.send_modify(|plan| plan.expired += 1);
    }

    /// Returns the number of events that all watches together have handed to their connections.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.state.sent.load(Relaxed)
    }

    /// Returns the number of lists served.
    #[must_use]
    pub fn lists(&self) -> u64 {
        self.state.lists.load(Relaxed)
    }

    /// Returns the number of watches served.
    #[must_use]
    pub fn watches(&self) -> u64 {
        self.state.watches.load(Relaxed)
    }

    /// Returns the version of the last allowed event. A client at this version has received everything.
    #[must_use]
    pub fn last_version(&self) -> u64 {
        self.state.version_before(self.state.plan.borrow().total)
    }

    /// Returns the time since the event with this [`SENT`] annotation was sent. Returns `None` for an object from the
    /// list and for an invalid value. Works in every process of the same machine.
    #[must_use]
    pub fn since_sent(annotation: &str) -> Option<Duration> {
        let sent = annotation.parse::<u64>().ok().filter(|sent| *sent > BASE)?;
        Some(Duration::from_micros(wall_micros().saturating_sub(sent)))
    }
}

impl Drop for ReplayServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ReplayState {
    /// Returns the version of the state before event `index`. Shards (parts of the pods) use the same versions.
    fn version_before(&self, index: u64) -> u64 {
        BASE + self.templates.len() as u64 + index
    }

    /// Returns the index of the first event after `version`.
    fn event_after(&self, version: u64) -> u64 {
        version.saturating_sub(self.version_before(0))
    }

    /// Returns the wall clock in microseconds, which never goes back.
    fn now(&self) -> u64 {
        self.epoch + u64::try_from(self.started.elapsed().as_micros()).unwrap_or_default()
    }
}

/// Returns the wall clock in microseconds: sixteen digits until the year 2286.
fn wall_micros() -> u64 {
    u64::try_from(clock::wall().as_microsecond()).unwrap_or_default()
}
