//! What the tasks of one simulated cluster share: the world, the fault script, counters, the gate.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;

use super::fault::{Armed, Fault, FaultRecord, FaultScript, RequestKind};
use super::world::{World, WorldConfig};
use informer_hub_types::{Gvr, WatchCell, Watcher};

/// Faults remembered for a failing test to print.
const LOG: usize = 10_000;

/// How a server treats `sendInitialEvents`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Streaming {
    /// As Kubernetes 1.35 and later do.
    Supported,
    /// 422, as a server without the feature answers.
    Refused,
    /// As if it had not been asked for.
    Ignored,
}

/// How a simulated cluster behaves when nothing goes wrong.
#[derive(Clone)]
pub struct SimConfig {
    /// What is in it.
    pub world: WorldConfig,
    /// Streaming lists.
    pub streaming: Streaming,
    /// Time between two bookmarks of a watch that allows them.
    pub bookmark_every: Duration,
    /// Whether `limit` is honoured; a server may ignore it. As on a real one, it never is with `resourceVersion=0`.
    pub honour_limit: bool,
    /// How long a watch without `timeoutSeconds` stays open.
    pub watch_timeout: Duration,
    /// Bearer token that every request must carry; `None` lets everybody in.
    pub token: Option<String>,
    /// The user that every client is; `None`: a server that does not say, as those before Kubernetes 1.28.
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
            .field("username", &self.username)
            .finish()
    }
}

/// What a simulated cluster has been asked so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Requests of any kind.
    pub requests: u64,
    /// Discovery documents that were sent.
    pub documents: u64,
    /// Those that were as they were asked for, so that only that was said.
    pub unchanged: u64,
    /// Lists and watches of definitions and API services, which count among no others.
    pub signals: u64,
    /// Lists, each page counted.
    pub lists: u64,
    /// Watches, streaming or not.
    pub watches: u64,
    /// Streaming lists.
    pub streaming: u64,
    /// Watches open now.
    pub open_watches: u64,
    /// Connections accepted.
    pub connections: u64,
    /// Connections open now.
    pub open_connections: u64,
    /// Bytes written to sockets.
    pub bytes_sent: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) requests: AtomicU64,
    pub(super) documents: AtomicU64,
    pub(super) unchanged: AtomicU64,
    pub(super) signals: AtomicU64,
    pub(super) lists: AtomicU64,
    pub(super) watches: AtomicU64,
    pub(super) streaming: AtomicU64,
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
            lists: self.lists.load(Relaxed),
            watches: self.watches.load(Relaxed),
            streaming: self.streaming.load(Relaxed),
            open_watches: self.open_watches.load(Relaxed),
            connections: self.connections.load(Relaxed),
            open_connections: self.open_connections.load(Relaxed),
            bytes_sent: self.bytes_sent.load(Relaxed),
        }
    }
}

/// Whether the cluster takes connections.
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
    /// The world's version; wakes the watches.
    changed: WatchCell<u64>,
    faults: Mutex<FaultScript>,
    /// Counts how often the script was healed; releases what is stalled.
    healed: WatchCell<()>,
    log: Mutex<Vec<FaultRecord>>,
    forbidden: Mutex<BTreeSet<Gvr>>,
}

impl Shared {
    pub(super) fn new(config: SimConfig) -> Self {
        let world = World::new(&config.world);
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
        }
    }

    /// Works on the world, then wakes the watches if its version has moved.
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

    /// Wakes the watches although no version has moved (a resource is gone, for example).
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

    /// Waits until `pause` is over or the script is healed.
    pub(super) async fn stall(&self, pause: Duration) {
        let mut healed = self.healing();
        tokio::select! {
            biased;
            () = tokio::time::sleep(pause) => {}
            _ = healed.changed() => {}
        }
    }

    /// Ends what [`Self::go_down`] did, after a while or once the script is healed.
    pub(super) async fn come_back(&self, pause: Duration) {
        self.stall(pause).await;
        self.gate.modify(|gate| {
            let ours = matches!(gate, Gate::DownFor(_));
            if ours {
                *gate = Gate::Up;
            }
            ours
        });
    }

    /// Takes the cluster down for a while, unless it is down already.
    pub(super) fn go_down(&self, pause: Duration) {
        self.gate.modify(|gate| {
            let up = *gate == Gate::Up;
            if up {
                *gate = Gate::DownFor(pause);
            }
            up
        });
    }

    /// What goes wrong; with requests that are `signals`, only what a rule has for their resource by name.
    pub(super) fn decide(&self, kind: RequestKind, resource: &str, signals: bool) -> Option<Armed> {
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

    pub(super) fn is_forbidden(&self, gvr: &Gvr) -> bool {
        self.forbidden.lock().contains(gvr)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("config", &self.config).field("counters", &self.counters).finish_non_exhaustive()
    }
}
