//! Collector: owns clusters, or shards of them, and writes their changes to the log.
//!
//! # Contract
//! - A shard of a cluster is watched by its owner. Without [rules](CollectorParams::shards), the whole cluster is one
//!   shard. The owner renews its ownership. If an ownership has not changed for [`CollectorParams::lease`], another
//!   collector takes the shard over. It measures the time by its own clock, which stops while the backend does not
//!   answer.
//! - No clock decides what the log stores: it refuses appends of an owner once a later owner, with a higher epoch (term
//!   number), has claimed the partition.
//! - A change reaches the informers of the collector after the log has stored it.
//! - The successor restores the objects from checkpoint and log, and its watch resumes from the log's version. It lists
//!   only if the log or the apiserver no longer has that version.
//! - Collectors share the shards by weight ([`balance`]): one shard moves at a time. Its owner stores what it has read,
//!   then releases the shard for the receiver.
//! - A list is stored with all its objects ([`ResetReason::Restart`](informer_hub_fleet::ResetReason)), not as
//!   differences, since the collector itself keeps no objects.

mod answer_clock;
mod balance;
mod checkpoints;
mod connector;
mod contender;
mod directory;
mod documents;
mod knowledge;
mod list;
mod log;
mod recording;
#[cfg(test)]
mod recording_tests;
mod session;
mod source;
mod status;
mod watch;
mod weight;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, join, join_all};
use informer_hub_fleet::WriterParams;
use informer_hub_reflector::Connector;
use informer_hub_types::{ClusterLabels, ClusterName, Shard, ShardRules, Threads, clock};
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::appender::Appender;
use super::backend::Backend;
use contender::Contender;
use directory::Directory;
use status::Ownerships;

pub use status::{CollectorStatus, ShardOwner};

/// Parameters of a [`Collector`].
#[derive(Clone, Debug)]
pub struct CollectorParams {
    /// Name of the collector, unique to the process: a restarted process must have another name.
    pub name: String,
    /// Time without a renewal after which a cluster is taken over.
    pub lease: Duration,
    /// Interval at which the collector renews its ownerships, and checks that it knows the current ownerships of other
    /// collectors.
    pub renewal: Duration,
    /// Interval between checkpoints of a partition that changes.
    pub checkpoint: Duration,
    /// Interval at which the resource version of an unchanged partition is written to the log again. It must be shorter
    /// than the time for which the log keeps entries, so that the log always has this version.
    pub keep_alive: Duration,
    /// Parameters of the writer of the log. Their `collector` must equal `name`.
    pub writer: WriterParams,
    /// Zone of the collector; `None` if it has none. Clusters may prefer a zone by their labels.
    pub zone: Option<Zone>,
    /// Rules that divide clusters into shards. All processes of a fleet must have the same.
    pub shards: ShardRules,
}

/// Zone: a group of collectors that some clusters prefer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Zone {
    /// Name of the zone.
    pub name: String,
    /// Clusters with these labels prefer collectors in the zone.
    pub prefer: ClusterLabels,
}

impl CollectorParams {
    /// Returns parameters for a log that keeps entries for `max_age`.
    #[must_use]
    pub fn new(name: &str, max_age: Duration) -> Self {
        Self {
            name: name.to_owned(),
            lease: Duration::from_secs(7),
            renewal: Duration::from_secs(1),
            checkpoint: Duration::from_secs(300).min(max_age / 4),
            keep_alive: max_age / 4,
            writer: WriterParams { collector: name.to_owned(), ..WriterParams::default() },
            zone: None,
            shards: ShardRules::default(),
        }
    }
}

/// Hub that watches the clusters of a collector.
pub trait Host: Send + Sync + 'static {
    /// Starts to watch a shard. For the first shard of a cluster, the hub connects through the connector that `wrap`
    /// returns. For another shard, it keeps the connection, and starts the additional informers that the connection now
    /// [watches](informer_hub_reflector::Connection::watches).
    fn start(&self, shard: &Shard, wrap: ConnectorWrap) -> BoxFuture<'static, Result<(), String>>;

    /// Stops watching a shard. Completes when no request of its informers is running.
    fn stop(&self, shard: &Shard) -> BoxFuture<'static, ()>;

    /// Returns the labels of a cluster.
    fn labels(&self, cluster: &ClusterName) -> ClusterLabels;
}

/// Function that wraps a cluster's connector, so that its informers write all they read to the log.
pub type ConnectorWrap = Box<dyn FnOnce(Arc<dyn Connector>) -> Arc<dyn Connector> + Send>;

/// Collector of a process: contends for shards and watches those that it owns.
pub struct Collector {
    shared: Arc<Shared>,
    host: Arc<dyn Host>,
    contenders: Mutex<BTreeMap<Shard, Running>>,
    /// Tasks that write checkpoints and documents.
    writing: [JoinHandle<()>; 2],
    balance: JoinHandle<()>,
}

/// State that the tasks of a collector share.
pub(crate) struct Shared {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) params: CollectorParams,
    pub(crate) appender: Appender,
    directory: Directory,
    pub(crate) io: Threads,
    /// The owned shards, each with its session: the present term of ownership.
    pub(crate) sessions: Mutex<BTreeMap<Shard, Arc<session::Session>>>,
    ownerships: Ownerships,
    /// For each shard without an owner, the collector that should claim it. All other collectors wait longer before
    /// they claim the shard.
    orphans: Mutex<BTreeMap<Shard, String>>,
}

struct Running {
    end: CancellationToken,
    task: JoinHandle<()>,
}

impl Collector {
    /// Starts a collector without clusters.
    #[must_use]
    pub fn start(backend: Arc<dyn Backend>, params: CollectorParams, host: Arc<dyn Host>, io: &Threads) -> Self {
        let appender = Appender::start(Arc::clone(&backend), params.writer.clone(), io);
        let directory = Directory::start(Arc::clone(&backend), &params, io);
        let (io_threads, (sessions, ownerships, orphans)) = (io.clone(), Default::default());
        let shared = Shared { backend, params, appender, directory, io: io_threads, sessions, ownerships, orphans };
        let shared = Arc::new(shared);
        let writing = [io.spawn(checkpoints::run(Arc::clone(&shared))), io.spawn(documents::run(Arc::clone(&shared)))];
        let balance = io.spawn(balance::run(Arc::clone(&shared), Arc::clone(&host)));
        Self { shared, host, contenders: Mutex::default(), writing, balance }
    }

    /// Contends for the shards of a cluster, and watches those that this collector owns.
    pub fn add(&self, cluster: &ClusterName) {
        let mut contenders = self.contenders.lock();
        for shard in self.shared.params.shards.shards_of(cluster) {
            if contenders.contains_key(&shard) {
                continue;
            }
            self.shared.ownerships.add(&shard);
            let end = CancellationToken::new();
            let contender =
                Contender::new(Arc::clone(&self.shared), Arc::clone(&self.host), shard.clone(), end.clone());
            let task = self.shared.io.spawn(contender.run());
            contenders.insert(shard, Running { end, task });
        }
    }

    /// Stops watching a cluster and releases it.
    pub async fn remove(&self, cluster: &ClusterName) {
        let removed: BTreeMap<Shard, Running> = {
            let mut contenders = self.contenders.lock();
            let (removed, kept) =
                std::mem::take(&mut *contenders).into_iter().partition(|(shard, _)| shard.cluster == *cluster);
            *contenders = kept;
            removed
        };
        for running in removed.values() {
            running.end.cancel();
        }
        for (shard, running) in removed {
            let _ = running.task.await;
            self.shared.ownerships.forget(&shard);
        }
    }

    /// Returns the shards that this collector owns.
    #[must_use]
    pub fn owned(&self) -> Vec<Shard> {
        self.shared.sessions.lock().keys().cloned().collect()
    }

    /// Returns the status.
    #[must_use]
    pub fn status(&self) -> CollectorStatus {
        let shared = &self.shared;
        let oldest = shared.sessions.lock().values().filter_map(|session| session.oldest_append()).min();
        CollectorStatus {
            queued_bytes: shared.appender.queued_bytes(),
            oldest_append: oldest.map_or(Duration::ZERO, |oldest| clock::now().duration_since(oldest)),
            ..shared.ownerships.status(&shared.params.name)
        }
    }

    /// Stops watching all clusters, stores the remaining changes in the log, and releases the clusters.
    ///
    /// # Cancel safety
    /// If the future is dropped, clusters that are not released yet are given up when their leases expire.
    pub async fn shutdown(&self) {
        self.balance.abort();
        let running = std::mem::take(&mut *self.contenders.lock());
        for running in running.values() {
            running.end.cancel();
        }
        let mut ending = Ending(running.into_values().map(|running| running.task).collect());
        join(balance::leave(&self.shared), join_all(ending.0.iter_mut())).await;
    }
}

/// Tasks that are shutting down. Dropping this aborts them.
struct Ending(Vec<JoinHandle<()>>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.contenders.lock().values().for_each(|running| running.task.abort());
        self.writing.iter().for_each(JoinHandle::abort);
        self.balance.abort();
    }
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collector")
            .field("name", &self.shared.params.name)
            .field("owned", &self.owned())
            .finish_non_exhaustive()
    }
}
