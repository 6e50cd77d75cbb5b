//! Reader of the fleet's log that follows it all the time, and verifies each entry.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use informer_hub_fleet::jetstream::JetStreamLog;
use informer_hub_fleet::{Entry, Partition, Reader};
use informer_hub_sim::oracle::Oracle;
use informer_hub_types::clock::{self, Instant};
use informer_hub_types::{ApiResource, ResourceVersion};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::bed::{RealCluster, becomes_true, found, ground_truth};
use crate::fixture::{WAIT_DEADLINE, origin, pods, widgets};
use crate::fleet::{Contents, log_params};

/// Pause before a failed read of the log is repeated.
const PAUSE: Duration = Duration::from_millis(100);

pub(super) struct Observer {
    seen: Arc<Mutex<Seen>>,
    following: JoinHandle<()>,
}

/// Contents of the log, and the newest state of its partitions.
#[derive(Default)]
struct Seen {
    contents: Contents,
    /// Partitions of the resources that change.
    partitions: BTreeMap<Partition, Position>,
}

/// Newest state of a partition.
#[derive(Clone, Debug)]
pub(super) struct Position {
    pub(super) owner: String,
    /// Arrival of this owner's first entry.
    pub(super) since: Instant,
    /// Arrival of the newest entry.
    pub(super) newest: Instant,
    /// Version from which a watch of the partition can resume; 0 if there is none yet.
    pub(super) version: u64,
}

impl Observer {
    /// Starts to read the log, once there is one.
    pub(super) async fn start(client: &async_nats::Client, replicas: usize) -> Self {
        let open = async || JetStreamLog::open(client.clone(), log_params(replicas)).await.ok();
        let log = found(WAIT_DEADLINE, open).await.expect("the log can be opened");
        let seen = Arc::new(Mutex::new(Seen::default()));
        let following = tokio::spawn(follow(log, Arc::clone(&seen)));
        Self { seen, following }
    }

    /// Returns the partitions of the resources that change.
    ///
    /// # Panics
    /// If an entry was wrong.
    pub(super) fn partitions(&self) -> BTreeMap<Partition, Position> {
        assert!(!self.following.is_finished(), "the log has a wrong entry; see the panic of its reader");
        self.seen.lock().partitions.clone()
    }

    /// Returns the owner of a cluster, once it has one.
    pub(super) async fn owner(&self, cluster: &str) -> String {
        let owner = async || {
            let partitions = self.partitions();
            let mut of_cluster = partitions.iter().filter(|(partition, _)| partition.cluster.as_str() == cluster);
            of_cluster.next().map(|(_, position)| position.owner.clone())
        };
        found(WAIT_DEADLINE, owner).await.expect("the cluster has an owner")
    }

    /// Waits until the log has the objects of the cluster.
    pub(super) async fn has(&self, cluster: &RealCluster, resource: &ApiResource) {
        let truth = ground_truth(&cluster.client().await, &resource.gvr).await;
        let differences = || {
            let found = self.seen.lock().contents.objects.get(&origin(cluster.name(), resource)).cloned();
            Oracle::diff(&truth, &found.unwrap_or_default())
        };
        let agrees = becomes_true(WAIT_DEADLINE, async || differences().is_empty()).await;
        assert!(agrees, "the log's {} of {}: {:?}", resource.gvr, cluster.name(), differences());
    }

    /// Ends the reading, and returns the number of lists by origin.
    ///
    /// # Panics
    /// If an entry was wrong.
    pub(super) async fn end(self) -> BTreeMap<String, usize> {
        self.partitions();
        self.following.abort();
        let _ = self.following.await;
        std::mem::take(&mut self.seen.lock().contents.lists)
    }
}

async fn follow(log: JetStreamLog, seen: Arc<Mutex<Seen>>) {
    let mut reader = Reader::new();
    loop {
        if let Ok((_, mut tail)) = log.follow(Some(reader.position())).await {
            while let Ok(Some(entry)) = tail.next().await {
                seen.lock().apply(&mut reader, &entry);
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

impl Seen {
    fn apply(&mut self, reader: &mut Reader, entry: &Entry) {
        self.contents.apply(reader, entry);
        if ![pods().gvr, widgets().gvr].contains(&entry.partition.resource) {
            return;
        }
        let (now, state) = (clock::now(), reader.state(&entry.partition).expect("it was read"));
        let version = state.resume.as_ref().and_then(ResourceVersion::as_number).unwrap_or_default();
        let owner = state.owner.clone();
        let position = self.partitions.entry(entry.partition.clone());
        let position = position.or_insert_with(|| Position { owner: owner.clone(), since: now, newest: now, version });
        if position.owner != owner {
            (position.owner, position.since) = (owner, now);
        }
        (position.newest, position.version) = (now, version);
    }
}
