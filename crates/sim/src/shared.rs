//! State shared by the tasks of one simulated cluster: world, fault script, counters, and whether it accepts
//! connections.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio_rustls::rustls::ServerConfig;

use super::fault::{AssignedFault, Fault, FaultRecord, FaultScript, RequestKind};
use super::leases::Leases;
use super::users::Users;
use super::world::{World, WorldConfig};
use informer_hub_types::{Gvr, WatchCell, Watcher};

/// Number of fault records kept for the output of a failing test.
const LOG: usize = 10_000;

/// How a simulated server treats `sendInitialEvents`, the request for a streaming list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Streaming {
    /// Answers with a streaming list, like Kubernetes 1.35 and later.
    Supported,
    /// Answers HTTP 422, like a server without the feature.
    Refused,
    /// Ignores the parameter and sends a plain watch.
    Ignored,
}

/// Configuration of a simulated cluster.
#[derive(Clone)]
pub struct SimConfig {
    /// Initial content of the cluster.
    pub world: WorldConfig,
    /// How the server treats requests for streaming lists.
    pub streaming: Streaming,
    /// Interval between bookmarks of a watch that allows them.
    pub bookmark_every: Duration,
    /// Whether `limit` is honoured. Like a real server, this one always ignores it with `resourceVersion=0`.
    pub honour_limit: bool,
    /// Lifetime of a watch without `timeoutSeconds`.
    pub watch_timeout: Duration,
    /// Bearer token that every request must carry; `None` disables authentication.
    pub token: Option<String>,
    /// Maximum number of HTTP/2 streams of a connection; `None` serves HTTP/1.1 only. Without TLS, HTTP/2 is for
    /// clients that start with its preface.
    pub http2: Option<u32>,
    /// TLS of a cluster on a port; its ALPN list decides whether HTTP/2 is offered.
    pub tls: Option<Arc<ServerConfig>>,
    /// Whether protobuf is served to clients that prefer it: for objects of built-in types, and for the metadata of all
    /// objects. If true, which is the default, the world is [typed](World::typed): objects have the members that Go
    /// writes for empty values.
    pub protobuf: bool,
    /// User name that `SelfSubjectReview` returns; `None` answers 404, like Kubernetes before 1.28.
    pub username: Option<String>,
}

impl Default for SimConfig {
    fn default() -> Self {
        Self {
            world: WorldConfig::default(),
            streaming: Streaming::Supported,
            bookmark_every: Duration::from_secs(1),
            honour_limit: true,
            watch_timeout: Duration::from_secs(300),
            token: None,
            http2: None,
            tls: None,
            protobuf: true,
            username: Some("simulated-user".to_owned()),
        }
    }
}

impl fmt::Debug for SimConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimConfig")
            .field("world", &self.world)
            .field("streaming", &self.streaming)
            .field("bookmark_every", &self.bookmark_every)
            .field("honour_limit", &self.honour_limit)
            .field("watch_timeout", &self.watch_timeout)
            .field("token", &self.token.as_ref().map(|_| "…"))
            .field("http2", &self.http2)
            .field("tls", &self.tls.is_some())
            .field("protobuf", &self.protobuf)
            .field("username", &self.username)
            .finish()
    }
}

/// Request and connection counters of a simulated cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Number of requests of any kind.
    pub requests: u64,
    /// Number of discovery documents sent.
    pub documents: u64,
    /// Number of discovery requests answered with 304 Not Modified.
    pub unchanged: u64,
    /// Number of lists and watches of CustomResourceDefinitions and APIServices. The counters `lists` and `watches` do
    /// not include them.
    pub signals: u64,
    /// Number of lists of one object, by which clients read the current version.
    pub checks: u64,
    /// Number of list pages, except those counted by `checks` and `signals`.
    pub lists: u64,
    /// Number of watches, with or without a streaming list, except those counted by `signals`.
    pub watches: u64,
    /// Number of streaming lists.
    pub streaming: u64,
    /// Number of lists and watches answered in protobuf.
    pub protobuf: u64,
    /// Number of requests for leases.
    pub leases: u64,
    /// Number of watches that are open now.
    pub open_watches: u64,
    /// Number of connections accepted.
    pub connections: u64,
    /// Number of connections that are open now.
    pub open_connections: u64,
    /// Number of bytes written to sockets.
    pub bytes_sent: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) requests: AtomicU64,
    pub(super) documents: AtomicU64,
    pub(super) unchanged: AtomicU64,
    pub(super) signals: AtomicU64,
    pub(super) checks: AtomicU64,
    pub(super) lists: AtomicU64,
    pub(super) watches: AtomicU64,
    pub(super) streaming: AtomicU64,
    pub(super) protobuf: AtomicU64,
    pub(super) leases: AtomicU64,
    pub(super) open_watches: AtomicU64,
    pub(super) connections: AtomicU64,
    pub(super) open_connections: AtomicU64,
    pub(super) bytes_sent: AtomicU64,
}

impl Counters {
    pub(super) fn read(&self) -> Stats {
        Stats {
            requests: self.requests.load(Relaxed),
            documents: self.documents.load(Relaxed),
            unchanged: self.unchanged.load(Relaxed),
            signals: self.signals.load(Relaxed),
            checks: self.checks.load(Relaxed),
            lists: self.lists.load(Relaxed),
            watches: self.watches.load(Relaxed),
            streaming: self.streaming.load(Relaxed),
            protobuf: self.protobuf.load(Relaxed),
            leases: self.leases.load(Relaxed),
            open_watches: self.open_watches.load(Relaxed),
            connections: self.connections.load(Relaxed),
            open_connections: self.open_connections.load(Relaxed),
            bytes_sent: self.bytes_sent.load(Relaxed),
        }
    }
}

/// Whether the cluster accepts connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Gate {
    Up,
    Down,
    DownFor(Duration),
}

pub(super) struct Shared {
    pub(super) config: SimConfig,
    pub(super) counters: Counters,
    pub(super) gate: WatchCell<Gate>,
    world: Mutex<World>,
    /// Version of the cluster's state; a change wakes the watches.
    changed: WatchCell<u64>,
    faults: Mutex<FaultScript>,
    /// Notified when the test ends all faults; releases stalled answers.
    healed: WatchCell<()>,
    log: Mutex<Vec<FaultRecord>>,
    forbidden: Mutex<BTreeSet<Gvr>>,
    users: Mutex<Users>,
    leases: Mutex<Leases>,
}

impl Shared {
    pub(super) fn new(config: SimConfig) -> Self {
        let world = if config.protobuf { World::typed(&config.world) } else { World::new(&config.world) };
        Self {
            config,
            counters: Counters::default(),
            gate: WatchCell::new(Gate::Up),
            changed: WatchCell::new(world.version()),
            world: Mutex::new(world),
            faults: Mutex::new(FaultScript::none()),
            healed: WatchCell::new(()),
            log: Mutex::new(Vec::new()),
            forbidden: Mutex::new(BTreeSet::new()),
            users: Mutex::default(),
            leases: Mutex::default(),
        }
    }

    /// Reads or changes the cluster's state, then wakes the watches if its version has changed.
    pub(super) fn with_world<R>(&self, work: impl FnOnce(&mut World) -> R) -> R {
        let mut world = self.world.lock();
        let answer = work(&mut world);
        let version = world.version();
        drop(world);
        self.changed.modify(|seen| std::mem::replace(seen, version) != version);
        answer
    }

    pub(super) fn changes(&self) -> Watcher<u64> {
        self.changed.subscribe()
    }

    /// Wakes the watches without a change of the version, for example after a resource was removed.
    pub(super) fn wake(&self) {
        self.changed.modify(|_| true);
    }

    pub(super) fn set_faults(&self, script: FaultScript) {
        *self.faults.lock() = script;
    }

    pub(super) fn faults_over(&self) -> bool {
        self.faults.lock().is_over()
    }

    pub(super) fn heal(&self) {
        *self.faults.lock() = FaultScript::none();
        self.healed.set(());
    }

    pub(super) fn healing(&self) -> Watcher<()> {
        self.healed.subscribe()
    }

    /// Waits until `pause` is over or the test ends all faults.
    pub(super) async fn stall(&self, pause: Duration) {
        let mut healed = self.healing();
        tokio::select! {
            biased;
            () = tokio::time::sleep(pause) => {}
            _ = healed.changed() => {}
        }
    }

    /// Waits for `pause`, or until the test ends all faults. Then brings the cluster up again, if [`Self::go_down`] has
    /// taken it down.
    pub(super) async fn accept_after(&self, pause: Duration) {
        self.stall(pause).await;
        self.gate.modify(|gate| {
            let was_fault = matches!(gate, Gate::DownFor(_));
            if was_fault {
                *gate = Gate::Up;
            }
            was_fault
        });
    }

    /// Takes the cluster down for `pause`, unless it is down already.
    pub(super) fn go_down(&self, pause: Duration) {
        self.gate.modify(|gate| {
            let up = *gate == Gate::Up;
            if up {
                *gate = Gate::DownFor(pause);
            }
            up
        });
    }

    /// Returns the fault for a request; `None` if it is answered correctly. If `signals` (a request for CRDs or
    /// APIServices), only rules that name the requested resource apply, and no random faults.
    pub(super) fn decide(&self, kind: RequestKind, resource: &str, signals: bool) -> Option<AssignedFault> {
        self.faults.lock().decide(kind, resource, signals)
    }

    pub(super) fn record(&self, request: &str, sent: usize, fault: &Fault) {
        let mut log = self.log.lock();
        if log.len() < LOG {
            log.push(FaultRecord { request: request.to_owned(), sent, fault: fault.clone() });
        }
    }

    pub(super) fn log(&self) -> Vec<FaultRecord> {
        self.log.lock().clone()
    }

    pub(super) fn forbid(&self, gvr: &Gvr, forbidden: bool) {
        let mut set = self.forbidden.lock();
        if forbidden {
            set.insert(gvr.clone());
        } else {
            set.remove(gvr);
        }
    }

    /// Locks the users and tokens. The caller must release the lock soon.
    pub(super) fn users(&self) -> MutexGuard<'_, Users> {
        self.users.lock()
    }

    /// Locks the leases. The caller must release the lock soon.
    pub(super) fn leases(&self) -> MutexGuard<'_, Leases> {
        self.leases.lock()
    }

    pub(super) fn is_forbidden(&self, gvr: &Gvr) -> bool {
        self.forbidden.lock().contains(gvr)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("config", &self.config).field("counters", &self.counters).finish_non_exhaustive()
    }
}
