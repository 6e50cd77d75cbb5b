//! Serving replica: builds its caches from the log, and asks no apiserver for objects.
//!
//! # Contract
//! - A list is answered from checkpoint and log, once they have a complete state. A watch continues from that state.
//! - One tail of the whole log is distributed to the partitions of the process. Each partition has a bounded queue. A
//!   partition that is too slow for its queue reads the log by itself, page by page, so it delays no other partition.
//!   The memory of all pages together is bounded.
//! - A watch ends as expired if the collector stores a full list, or if the log has removed entries that the watch has
//!   not read. The reflector then lists again.
//! - While no collector is alive, the backend does not answer, or the collector reports a failure, watches fail with
//!   this reason. So the existing status of informers shows which objects are stale. Caches keep these objects.
//!
//! # Layout
//! - [`live`]: the tail, and its queues.
//! - [`directory`]: the owners and documents of all clusters.
//! - [`feed`]: owner of a shard, document of its collector, and whether the shard is stale.
//! - [`source`]: list and watch of one resource.
//! - [`connector`]: discovery from the document.
//! - [`cursor`]: where a process that delivers to sinks begins to read.

mod connector;
mod cursor;
mod directory;
#[cfg(test)]
mod directory_tests;
mod feed;
mod live;
mod source;

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use informer_hub_fleet::Partition;
use informer_hub_reflector::Connector;
use informer_hub_types::{ClusterName, Shard, ShardRules, Threads};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::backend::Backend;
use connector::ServingConnector;
use directory::Directory;
use live::Live;

pub use cursor::Cursor;
pub use feed::{ServedShard, Stale};

/// Maximum number of partitions restored at the same time. Each holds the changes since its checkpoint in memory.
const RESTORES: usize = 16;
/// Maximum number of partitions that read a page of the log at the same time.
const READS: usize = 16;
/// Maximum number of pages of [`PAGE_BYTES`](crate::restore::PAGE_BYTES) in memory, over all partitions. While all are
/// in use, a partition reads one entry at a time.
const PAGES: usize = 64;
/// Default time without a renewal after which a cluster is stale. After a NATS server dies, the others elect a bucket's
/// leader within 4 to 9 s; then lost requests are repeated.
const STALE: Duration = Duration::from_secs(15);

/// Parameters of a [`Replica`].
#[derive(Clone, Debug)]
pub struct ReplicaParams {
    /// Name of the process.
    pub name: String,
    /// Interval at which the replica checks that the backend answers and its watch of owners and documents works.
    pub poll: Duration,
    /// Time without a renewal by a collector, or without an answer of the backend, after which a cluster is stale.
    pub stale: Duration,
    /// How long a list waits until the log has a complete state. Default 20 s.
    pub patience: Duration,
    /// Where a process that delivers to sinks begins to read each partition; `None` begins at the newest state.
    pub cursor: Option<Cursor>,
    /// Rules that divide clusters into shards. All processes of a fleet must have the same.
    pub shards: ShardRules,
}

impl ReplicaParams {
    /// Returns the default parameters.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let seconds = Duration::from_secs;
        Self {
            name: name.to_owned(),
            poll: seconds(2),
            stale: STALE,
            patience: seconds(20),
            cursor: None,
            shards: ShardRules::default(),
        }
    }
}

/// State that all clusters of a replica share.
pub(crate) struct Shared {
    backend: Arc<dyn Backend>,
    params: ReplicaParams,
    live: Live,
    restores: Semaphore,
    /// Bounds the number of pages that are read from the log at the same time.
    reads: Semaphore,
    /// Bounds the number of pages in memory that are read but not processed.
    pages: Arc<Semaphore>,
    /// Partitions whose first list is complete. Only the first list begins at the cursor, the version that an earlier
    /// process has delivered.
    begun: Mutex<HashSet<Partition>>,
    io: Threads,
}

/// Serving replica of a process.
pub struct Replica {
    shared: Arc<Shared>,
    directory: Directory,
}

/// Status of a [`Replica`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicaStatus {
    /// Name of the process.
    pub name: String,
    /// Whether the backend has answered a request since the start.
    pub answered: bool,
    /// Error of the backend or of an entry in it; `None` if owners, documents and log can be read.
    pub error: Option<String>,
    /// Served shards, with their owners and staleness.
    pub shards: BTreeMap<Shard, ServedShard>,
}

impl Replica {
    /// Starts a replica without clusters.
    #[must_use]
    pub fn start(backend: Arc<dyn Backend>, params: ReplicaParams, io: &Threads) -> Self {
        let live = Live::start(Arc::clone(&backend), io);
        let directory = Directory::start(Arc::clone(&backend), &params, io);
        let shared = Shared {
            backend,
            params,
            live,
            restores: Semaphore::new(RESTORES),
            reads: Semaphore::new(READS),
            pages: Arc::new(Semaphore::new(PAGES)),
            begun: Mutex::default(),
            io: io.clone(),
        };
        Self { shared: Arc::new(shared), directory }
    }

    /// Returns a connector whose informers read the log. Only reviews of access rights reach the apiserver, through
    /// `inner`. The cluster is followed until the connector and its connections are dropped.
    #[must_use]
    pub fn connector(&self, cluster: &ClusterName, inner: Arc<dyn Connector>) -> Arc<dyn Connector> {
        let shards = self.shared.params.shards.shards_of(cluster);
        let feeds = shards.iter().map(|shard| self.directory.feed(shard)).collect();
        Arc::new(ServingConnector::new(Arc::clone(&self.shared), cluster.clone(), feeds, inner))
    }

    /// Returns the status.
    #[must_use]
    pub fn status(&self) -> ReplicaStatus {
        let feeds = self.directory.feeds();
        let known: BTreeMap<_, _> = feeds.iter().map(|feed| (feed.shard.clone(), feed.known())).collect();
        ReplicaStatus {
            name: self.shared.params.name.clone(),
            answered: known.values().any(|known| known.answered),
            error: known.values().find_map(|known| known.error.clone()).or_else(|| self.shared.live.error()),
            shards: known.iter().map(|(shard, known)| (shard.clone(), known.served())).collect(),
        }
    }
}

impl fmt::Debug for Replica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replica").field("name", &self.shared.params.name).finish_non_exhaustive()
    }
}
