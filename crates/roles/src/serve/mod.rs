//! Serving replica: builds its caches from the log, and asks no apiserver for objects.
//!
//! # Contract
//! - A list is answered from checkpoint and log, once they have a complete state. A watch continues behind it.
//! - One tail of the whole log is distributed to the partitions of the process. Each has a bounded queue. A partition that
//!   is too slow for its queue reads the log by itself, so it delays no other.
//! - A list stored anew, a gap, and entries that retention has removed end a watch as expired. The reflector lists again.
//! - While no collector is alive, the services do not answer, or the collector reports a failure, watches fail with the
//!   reason. So the existing status of informers shows which objects are stale. Caches keep them.
//!
//! # Layout
//! - [`live`]: the tail, and its queues.
//! - [`directory`]: the owners and documents of all clusters.
//! - [`feed`]: owner of a shard, document of its collector, and what follows about staleness.
//! - [`source`]: list and watch of one resource.
//! - [`connector`]: discovery from the document.
//! - [`cursor`]: where a process that delivers begins.

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

/// Restores at once. Each has the changes of a partition since its checkpoint in memory.
const RESTORES: usize = 16;
/// Default time without a renewal after which a cluster is stale. After the death of a NATS server the others elect the
/// leader of a bucket within 4 to 9 s, and then owners and readers repeat the requests that were lost.
const STALE: Duration = Duration::from_secs(15);

/// Parameters of a [`Replica`].
#[derive(Clone, Debug)]
pub struct ReplicaParams {
    /// Name of the process.
    pub name: String,
    /// Interval in which the replica verifies that the services answer, and that its watch of owners and documents delivers.
    pub poll: Duration,
    /// Time without a renewal by a collector, or without an answer, after which a cluster is stale.
    pub stale: Duration,
    /// Time for which a list waits until the log has a complete state.
    pub patience: Duration,
    /// Where the process begins to read, if it delivers; `None` begins at the newest state.
    pub cursor: Option<Cursor>,
    /// Rules by which clusters are divided, the same in each process of the fleet.
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

/// Parts that all clusters share.
pub(crate) struct Shared {
    backend: Arc<dyn Backend>,
    params: ReplicaParams,
    live: Live,
    restores: Semaphore,
    /// Partitions that have been read from their cursor.
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
    /// Whether the services have answered a request since the start.
    pub answered: bool,
    /// Last error of the services; `None` if the last request succeeded, and owners, documents and log are followed.
    pub error: Option<String>,
    /// Shards of the clusters.
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
            begun: Mutex::default(),
            io: io.clone(),
        };
        Self { shared: Arc::new(shared), directory }
    }

    /// Returns a connector whose informers read the log. Only reviews of access rights reach the apiserver, through `inner`.
    /// The cluster is followed until the connector and its connections are dropped.
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
