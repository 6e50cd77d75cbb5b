//! A server for benches: one list, then events as fast as the socket takes them or at a steady pace.
//!
//! All bytes are made once at the start; an event costs one copy of them and the writing of two numbers. A list and
//! every watch show the same story: event `i` changes pod `i % pods` to version `pods + 1 + i`, and a watch from a
//! version starts with the event after it. HTTP/1.1 and HTTP/2 on loopback, with TLS or without; JSON, Kubernetes
//! protobuf where it was given the pods so, and the metadata alone (`PartialObjectMetadata`) in both.
//!
//! Under `/shards/<i>/<n>` lies the `i`th of `n` equal parts of the pods, a cluster for itself.

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

/// The annotation that carries an event's send time, for [`ReplayServer::since_sent`]: microseconds since the Unix
/// epoch, a decimal number as text.
pub const SENT: &str = "bench/sent";

/// What a replay server shows.
#[derive(Clone, Debug)]
pub struct ReplayConfig {
    /// Decides the pods' content.
    pub seed: u64,
    /// Pods in the list.
    pub pods: usize,
    /// Nodes that they are spread over.
    pub nodes: usize,
    /// What the pods look like.
    pub shape: Shape,
    /// The same pods in Kubernetes protobuf, each after its length in four bytes (big-endian): what an encoder made of
    /// [`ReplayConfig::export`]. Without it the server speaks JSON only.
    pub protobuf: Option<PathBuf>,
    /// Speaks TLS with this certificate; its ALPN list decides whether HTTP/2 is offered. Without it there is no TLS,
    /// and HTTP/2 for who begins with it.
    pub tls: Option<Arc<ServerConfig>>,
}

impl Default for ReplayConfig {
    fn default() -> Self {
        Self { seed: 1, pods: 20_000, nodes: 200, shape: Shape::Pods, protobuf: None, tls: None }
    }
}

impl ReplayConfig {
    /// Writes the pods for an encoder to read, one line of JSON each.
    ///
    /// # Errors
    /// What `out` says.
    pub fn export(&self, out: &mut impl Write) -> io::Result<()> {
        template::export(self, out)
    }
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
    /// How often all watches have been ended.
    expired: u64,
}

#[derive(Debug)]
struct Story {
    templates: Vec<Template>,
    speaks_protobuf: bool,
    plan: watch::Sender<Plan>,
    started: Instant,
    /// The wall clock's microseconds at `started`.
    epoch: u64,
    sent: AtomicU64,
    lists: AtomicU64,
}

/// See the module's documentation. Dropping it closes the port and every connection.
#[derive(Debug)]
pub struct ReplayServer {
    story: Arc<Story>,
    address: SocketAddr,
    scheme: &'static str,
    task: JoinHandle<()>,
}

impl ReplayServer {
    /// Makes the pods and starts serving them on a free port, on `handle`'s runtime.
    ///
    /// Holds all pods in memory (190 MB for 20,000 in JSON): where the bench measures memory, run it in another process.
    ///
    /// # Errors
    /// When no loopback port can be bound, or the protobuf file cannot be read or has other pods.
    pub fn start(config: &ReplayConfig, handle: &Handle) -> io::Result<Self> {
        let _guard = handle.enter();
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let listener = TcpListener::from_std(listener)?;
        let templates = template::make(config)?;
        // Both clocks at one moment: a send time is the one's beginning and the other's progress.
        let (started, epoch) = (clock::now(), wall_micros());
        let story = Arc::new(Story {
            templates,
            speaks_protobuf: config.protobuf.is_some(),
            plan: watch::Sender::new(Plan { total: 0, from: 0, started, every: None, expired: 0 }),
            started,
            epoch,
            sent: AtomicU64::new(0),
            lists: AtomicU64::new(0),
        });
        let tls = config.tls.clone().map(TlsAcceptor::from);
        let scheme = if tls.is_some() { "https" } else { "http" };
        let task = handle.spawn(serve::serve(Arc::clone(&story), listener, tls));
        Ok(Self { story, address, scheme, task })
    }

    /// `http://127.0.0.1:<port>`, or `https`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    /// Bytes of one list in JSON.
    #[must_use]
    pub fn list_size(&self) -> u64 {
        Form::Json.list_size(&self.story.templates, self.story.version_before(0))
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
            *plan = Plan { total: plan.total + events, from: plan.total, started, every, ..*plan };
        });
    }

    /// Ends every watch as one whose version is too old: who watches has to list again. In JSON it says so; in the other
    /// forms the answer just ends.
    pub fn expire(&self) {
        self.story.plan.send_modify(|plan| plan.expired += 1);
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
    /// for what is no such value. Of use in every process of this machine.
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

impl Story {
    /// The version of the state before event `index`, in a shard too.
    fn version_before(&self, index: u64) -> u64 {
        BASE + self.templates.len() as u64 + index
    }

    /// The first event after `version`.
    fn event_after(&self, version: u64) -> u64 {
        version.saturating_sub(self.version_before(0))
    }

    /// The wall clock, as steady as the monotonic one.
    fn now(&self) -> u64 {
        self.epoch + u64::try_from(self.started.elapsed().as_micros()).unwrap_or_default()
    }
}

/// Sixteen digits until the year 2286.
fn wall_micros() -> u64 {
    u64::try_from(clock::wall().as_microsecond()).unwrap_or_default()
}
