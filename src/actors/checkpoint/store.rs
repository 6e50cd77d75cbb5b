//! Checkpoint state that outlives the checkpoint actor: files, durable readers and status.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::actors::subscribe::resource_request::ResourceRequest;
use crate::actors::subscribe::subscription::Subscription;
use crate::actors::subscribe::user::SubscriptionId;
use crate::cache::{Partition, PartitionId};
use crate::state::caches::{CacheFiles, Moves};
use crate::state::short_names::{self, ShortNames};
use informer_hub_disk::Disk;
use informer_hub_types::clock::{self, Instant, SteadyClock};
use informer_hub_types::{ClusterName, Gvr, ResourceVersion, View};

/// Observer of checkpoint passes, each of which writes the caches to disk. Once a pass is complete, the caches on disk
/// cover everything journalled before it began.
pub trait CheckpointListener: fmt::Debug + Send + Sync + 'static {
    /// Called when a pass begins. The pass covers everything journalled so far.
    fn pass_begins(&self);
    /// Called when the last begun pass is complete: every partition is on disk in its state at the beginning of the
    /// pass, or a newer one.
    ///
    /// Not called if the pass skipped a partition, or if a partition had not caught up when this pass or the previous
    /// pass began. Caches restored from disk may lack events that were delivered before the start. A partition has
    /// caught up once it has these events, which may all have been on disk.
    fn pass_completed(&self);
}

/// For each partition of each cache: the resourceVersion up to which durable readers (sinks and subscribers) had
/// received events before the start. `None` if all of these events were on disk.
pub type DeliveredVersions = BTreeMap<(Gvr, View), BTreeMap<PartitionId, Option<ResourceVersion>>>;

/// Checkpoint state of a hub: the files in the state directory, and the partitions that must stay in them.
pub struct CheckpointStore {
    pub(in crate::actors) disk: Arc<dyn Disk>,
    pub(in crate::actors) root: PathBuf,
    /// Interval between checkpoint passes.
    pub(in crate::actors) every: Duration,
    /// Time after the start in which checkpoint passes wait for sinks and durable subscribers of the previous process
    /// to subscribe again.
    pub(in crate::actors) grace: Duration,
    pub(in crate::actors) since: Instant,
    /// Clock that dates files. It ignores changes of the system clock, which must not expire anything.
    clock: SteadyClock,
    pub(in crate::actors) files: Mutex<BTreeMap<(Gvr, View), CacheFiles>>,
    /// Resource names with the resources that clusters resolved them to, and whether there are unsaved changes.
    names: Mutex<(ShortNames, bool)>,
    names_file: Option<PathBuf>,
    /// Partitions that moved to another API version of their resource.
    pub(in crate::actors) moves: Mutex<Moves>,
    status: Mutex<StateStatus>,
    /// For each restored partition: the resourceVersion up to which sinks and durable subscribers had received events
    /// before the start.
    delivered: Mutex<DeliveredVersions>,
    /// Lock for the checkpoint files; `waiting` counts the callers that wait for it.
    pub(in crate::actors) lock: Arc<tokio::sync::Mutex<()>>,
    pub(in crate::actors) waiting: AtomicUsize,
    /// Partitions of removed clusters that could not be saved yet.
    pub(in crate::actors) unsaved: Mutex<Vec<UnsavedPartition>>,
    /// Clusters that may have partitions on disk without an informer. Kept in addition to `files`, which lacks a
    /// cache's files while they are being written.
    pub(in crate::actors) removed: Mutex<BTreeSet<ClusterName>>,
    /// Whether every partition had caught up at the last checkpoint pass: it had reached the resourceVersion in
    /// `delivered`, up to which its events had been delivered before the start.
    caught_up: AtomicBool,
}

/// Partition of a removed cluster that could not be saved yet: a sink or durable subscriber has not acknowledged its
/// events, or the disk failed.
pub(in crate::actors) struct UnsavedPartition {
    pub(in crate::actors) cache: (Gvr, View),
    pub(in crate::actors) id: PartitionId,
    pub(in crate::actors) partition: Partition,
    pub(in crate::actors) until: Instant,
}

/// Checkpoint state, shared by the actors of a hub. Absent without a state directory.
pub(in crate::actors) type SharedCheckpointStore = Arc<CheckpointStore>;

/// Status of the state directory.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct StateStatus {
    /// Path of the directory.
    pub path: String,
    /// Bytes of the cache files on disk.
    pub cache_bytes: u64,
    /// Objects restored at the start.
    pub restored: u64,
    /// Duration of the restore in milliseconds.
    pub restored_in_millis: u64,
    /// Time of the last pass without errors. That pass may have skipped partitions; see `held`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_checkpoint: Option<jiff::Timestamp>,
    /// Objects written by the last checkpoint pass that wrote any.
    pub last_objects: u64,
    /// Bytes written by the checkpoint pass that wrote the `last_objects`.
    pub last_bytes: u64,
    /// Partitions that the last pass did not write because sinks or subscribers had not acknowledged their events.
    /// Includes unsaved partitions of removed clusters.
    pub held: u64,
    /// Partitions of removed clusters that are not saved yet. They stay in memory for about a minute, then they are
    /// dropped.
    #[serde(skip_serializing_if = "is_zero")]
    pub leaving: u64,
    /// Error of the last checkpoint pass; cleared by the next successful pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Number of checkpoint passes that found cache files removed or replaced externally and rewrote all of them.
    #[serde(skip_serializing_if = "is_zero")]
    pub replaced: u64,
    /// Descriptions of the damaged files found at the start.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub damage: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl CheckpointStore {
    /// Creates the checkpoint state for files below `root`, starting with the files that were loaded.
    #[must_use]
    pub fn new(
        disk: Arc<dyn Disk>,
        root: PathBuf,
        every: Duration,
        grace: Duration,
        files: impl IntoIterator<Item = CacheFiles>,
        status: StateStatus,
    ) -> Self {
        let key = |files: CacheFiles| {
            let (resource, view) = files.of();
            ((resource.gvr.clone(), view.clone()), files)
        };
        let files: BTreeMap<_, _> = files.into_iter().map(key).collect();
        let removed = Mutex::new(files.values().flat_map(CacheFiles::closed_clusters).cloned().collect());
        let files = Mutex::new(files);
        let (status, caught_up) = (Mutex::new(status), AtomicBool::new(false));
        let (delivered, lock, waiting, unsaved) = Default::default();
        let (moves, names, names_file) = (Mutex::default(), Mutex::default(), None);
        let (since, clock) = (clock::now(), SteadyClock::begin());
        Self {
            disk,
            root,
            every,
            grace,
            since,
            clock,
            files,
            names,
            names_file,
            moves,
            status,
            delivered,
            lock,
            waiting,
            unsaved,
            removed,
            caught_up,
        }
    }

    /// Sets, for each restored partition, the resourceVersion up to which sinks and durable subscribers had received
    /// events before the start. `None` stands for a partition whose delivered events are all on disk.
    #[must_use]
    pub fn delivered(mut self, delivered: DeliveredVersions) -> Self {
        self.delivered = Mutex::new(delivered);
        self
    }

    /// Sets the known resource names and the file to store them in.
    #[must_use]
    pub fn names(mut self, names: ShortNames, file: PathBuf) -> Self {
        (self.names, self.names_file) = (Mutex::new((names, false)), Some(file));
        self
    }

    /// Returns the known resource names.
    pub(in crate::actors) fn names_snapshot(&self) -> ShortNames {
        self.names.lock().0.clone()
    }

    /// Records the resource that a cluster resolved a name to, unless the name alone determines it.
    pub(in crate::actors) fn note_name(&self, requested: &ResourceRequest, gvr: &Gvr) {
        if let ResourceRequest::Written(written) = requested {
            let mut names = self.names.lock();
            names.1 |= names.0.record(written, gvr);
        }
    }

    /// Returns whether a cluster has resolved the requested name to this resource before.
    pub(in crate::actors) fn is_resolved_to(&self, requested: &ResourceRequest, gvr: &Gvr) -> bool {
        matches!(requested, ResourceRequest::Written(written) if self.names.lock().0.resolves_to(written, gvr))
    }

    /// Writes the resource names if they have changed or the file is missing.
    pub(in crate::actors) fn write_names(&self) -> io::Result<()> {
        let Some(file) = &self.names_file else { return Ok(()) };
        let news = {
            let mut names = self.names.lock();
            let is_news = std::mem::take(&mut names.1) || short_names::is_missing(&*self.disk, file, &names.0);
            is_news.then(|| names.0.clone())
        };
        let Some(news) = news else { return Ok(()) };
        short_names::write(&*self.disk, file, &news).inspect_err(|_| self.names.lock().1 = true)
    }

    /// Returns whether a partition has caught up with the events delivered before the start. From then on, journals
    /// need not keep these events.
    ///
    /// The partition must have reached the resourceVersion up to which sinks and durable subscribers had received
    /// events. If this version is unknown or not a number, the partition has caught up after its first list or watch
    /// since the start. A partition whose delivered events were all on disk has caught up from the start.
    pub(in crate::actors) fn has_caught_up(&self, cache: &(Gvr, View), id: PartitionId, partition: &Partition) -> bool {
        let health = partition.health();
        let has_answered = || health.watches.load(Relaxed) + health.lists.load(Relaxed) > 0;
        match self.delivered.lock().get(cache).and_then(|delivered| delivered.get(&id)) {
            None => has_answered(),
            // Everything delivered was on disk, so the partition need not wait for its cluster, which may be
            // unreachable.
            Some(None) => true,
            Some(Some(delivered)) if delivered.as_number().is_none() => has_answered(),
            Some(Some(delivered)) => partition.resume_version().is_some_and(|now| !delivered.newer_than(now)),
        }
    }

    /// Records the delivered version (resourceVersion up to which events had been delivered before the start) under a
    /// partition's new ID, `now`. If the partition had the ID `before`, moves the version from that ID to `now`. If
    /// `before` is `None`, records that all of its delivered events are on disk.
    pub(in crate::actors) fn note_number(&self, cache: &(Gvr, View), before: Option<PartitionId>, now: PartitionId) {
        let mut delivered = self.delivered.lock();
        let delivered = delivered.entry(cache.clone()).or_default();
        match before {
            None => _ = delivered.insert(now, None),
            Some(before) => {
                let known = delivered.remove(&before);
                delivered.extend(known.map(|known| (now, known)));
            }
        }
    }

    /// Removes the delivered version (resourceVersion up to which events had been delivered before the start) of a
    /// closed partition.
    pub(in crate::actors) fn remove_number(&self, cache: &(Gvr, View), id: PartitionId) {
        if let Some(delivered) = self.delivered.lock().get_mut(cache) {
            delivered.remove(&id);
        }
    }

    /// Stores whether, at this checkpoint pass, every partition had caught up with the events delivered before the
    /// start. Returns the value that the previous pass stored.
    pub(in crate::actors) fn note_caught_up(&self, all: bool) -> bool {
        self.caught_up.swap(all, SeqCst)
    }

    /// Returns the interval between checkpoint passes.
    pub(in crate::actors) fn every(&self) -> Duration {
        self.every
    }

    /// Returns whether checkpoint passes still wait for sinks and durable subscribers of the previous process to
    /// subscribe again.
    pub(in crate::actors) fn waits(&self) -> bool {
        clock::now() < self.since + self.grace
    }

    /// Returns the current time in milliseconds since the epoch, from the clock that dates files.
    pub(in crate::actors) fn now(&self) -> i64 {
        self.clock.millis()
    }

    pub(in crate::actors) fn update_status(&self, change: impl FnOnce(&mut StateStatus)) {
        change(&mut self.status.lock());
    }
}

impl fmt::Debug for CheckpointStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckpointStore").field("root", &self.root).finish_non_exhaustive()
    }
}

/// Handle to the checkpoint state of a hub; cheap to clone. Does nothing without a state directory.
#[derive(Clone, Default)]
pub struct Checkpoints(Arc<Shared>);

#[derive(Default)]
struct Shared {
    store: OnceLock<SharedCheckpointStore>,
    closing: AtomicBool,
    /// Cancelled when all informers of a stopping hub have ended.
    settled: CancellationToken,
    readers: Mutex<BTreeMap<SubscriptionId, Arc<Subscription>>>,
    listeners: Mutex<Vec<Arc<dyn CheckpointListener>>>,
    requested: Notify,
}

impl Checkpoints {
    /// Requests a checkpoint pass soon, because a durable subscriber waits until objects are on disk.
    pub(in crate::actors) fn request_pass(&self) {
        self.0.requested.notify_one();
    }

    /// Completes when a checkpoint pass has been requested.
    pub(in crate::actors) async fn pass_requested(&self) {
        self.0.requested.notified().await;
    }

    /// Adds a listener for all later passes.
    pub fn add_listener(&self, listener: Arc<dyn CheckpointListener>) {
        self.0.listeners.lock().push(listener);
    }

    /// Returns the status of the state directory; `None` without one.
    #[must_use]
    pub fn status(&self) -> Option<StateStatus> {
        self.store().map(|store| {
            let leaving = store.unsaved.lock().len() as u64;
            StateStatus { leaving, ..store.status.lock().clone() }
        })
    }

    pub(in crate::actors) fn set_store(&self, store: SharedCheckpointStore) {
        let _ = self.0.store.set(store);
    }

    pub(in crate::actors) fn store(&self) -> Option<&SharedCheckpointStore> {
        self.0.store.get()
    }

    /// Marks the hub as stopping. With a state directory, caches from now on ignore requests to close partitions,
    /// because the last checkpoint still needs the partitions.
    pub(in crate::actors) fn close(&self) {
        self.0.closing.store(true, SeqCst);
    }

    /// Returns whether the hub is stopping and will write a last checkpoint.
    pub(in crate::actors) fn is_closing(&self) -> bool {
        self.0.closing.load(SeqCst) && self.store().is_some()
    }

    /// Marks the caches of a stopping hub as final: the last checkpoint writes them as they are.
    pub(in crate::actors) fn settle(&self) {
        self.0.settled.cancel();
    }

    /// Returns a future that completes when the hub stops and its caches no longer change, so that the last checkpoint
    /// has all partitions. `None` without a state directory: partitions then close without waiting.
    pub(in crate::actors) fn settled(&self) -> Option<WaitForCancellationFutureOwned> {
        self.store().map(|_| self.0.settled.clone().cancelled_owned())
    }

    pub(in crate::actors) fn add_reader(&self, subscription: &Arc<Subscription>) {
        if subscription.durable {
            self.0.readers.lock().insert(subscription.id, Arc::clone(subscription));
        }
    }

    pub(in crate::actors) fn remove_reader(&self, id: SubscriptionId) {
        self.0.readers.lock().remove(&id);
    }

    /// Removes all readers (sinks and durable subscribers), so that checkpoint passes wait for none of them.
    pub(in crate::actors) fn remove_readers(&self) {
        self.0.readers.lock().clear();
    }

    pub(in crate::actors) fn readers(&self) -> Vec<Arc<Subscription>> {
        self.0.readers.lock().values().cloned().collect()
    }

    pub(in crate::actors) fn listeners(&self) -> Vec<Arc<dyn CheckpointListener>> {
        self.0.listeners.lock().clone()
    }
}

impl fmt::Debug for Checkpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpoints").field("store", &self.store()).finish_non_exhaustive()
    }
}
