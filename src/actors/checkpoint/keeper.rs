//! What outlives the checkpoint's actor: the files, who reads durably, and what is shown.

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

use crate::actors::subscribe::resource_request::ResourceRequest;
use crate::actors::subscribe::subscription::Subscription;
use crate::actors::subscribe::user::SubscriptionId;
use crate::cache::{Partition, PartitionId};
use crate::state::caches::{CacheFiles, Moves};
use crate::state::short_names::{self, ShortNames};
use informer_hub_disk::Disk;
use informer_hub_types::clock::{self, Instant, SteadyClock};
use informer_hub_types::{ClusterName, Gvr, ResourceVersion, View};

/// Hears of checkpoints. What was journalled before a pass began is, once that pass is complete, covered by what the
/// caches have on disk.
pub trait CheckpointListener: fmt::Debug + Send + Sync + 'static {
    /// A pass begins: it covers what has been journalled so far.
    fn begins(&self);
    /// The pass that began last is complete: every partition is on disk as it was then, or later. Not called for a pass
    /// that left one out, nor before each of them has been heard of since the start, and has had the time of a pass to say
    /// again what readers were told before it; but for those of which the disk had all that readers were told.
    fn completed(&self);
}

/// Up to which version readers have been told of a cache's partitions what was not on disk at the start.
pub type ToldVersions = BTreeMap<(Gvr, View), BTreeMap<PartitionId, Option<ResourceVersion>>>;

/// What a hub keeps on disk, and where.
pub struct Keeping {
    pub(in crate::actors) disk: Arc<dyn Disk>,
    pub(in crate::actors) root: PathBuf,
    /// How often.
    pub(in crate::actors) every: Duration,
    /// For how long a reader that was there before the restart is waited for.
    pub(in crate::actors) grace: Duration,
    pub(in crate::actors) since: Instant,
    /// What tells how old things on disk are. A machine's clock that is set meanwhile makes nothing older.
    clock: SteadyClock,
    pub(in crate::actors) files: Mutex<BTreeMap<(Gvr, View), CacheFiles>>,
    /// What names have meant, where that is kept, and whether there is news to be written.
    names: Mutex<(ShortNames, bool)>,
    names_file: Option<PathBuf>,
    /// Partitions that are other versions' now.
    pub(in crate::actors) moves: Mutex<Moves>,
    status: Mutex<StateStatus>,
    /// Of the partitions that came from disk.
    told: Mutex<ToldVersions>,
    /// Who writes, or says what is to be written; and how many wait for that.
    pub(in crate::actors) turn: Arc<tokio::sync::Mutex<()>>,
    pub(in crate::actors) waiting: AtomicUsize,
    /// Partitions of clusters that were taken out before their readers had answered for all.
    pub(in crate::actors) left: Mutex<Vec<Left>>,
    /// Clusters of which files may have what no cache has. The files themselves cannot be asked while they are written.
    pub(in crate::actors) away: Mutex<BTreeSet<ClusterName>>,
    /// Whether at the last pass every partition had been heard of that had to be.
    heard: AtomicBool,
}

/// A partition whose cluster was taken out before its readers had answered for all.
pub(in crate::actors) struct Left {
    pub(in crate::actors) cache: (Gvr, View),
    pub(in crate::actors) id: PartitionId,
    pub(in crate::actors) partition: Partition,
    pub(in crate::actors) until: Instant,
}

/// The keeping of a hub, shared by its actors. Without a state directory there is none.
pub(in crate::actors) type SharedKeeping = Arc<Keeping>;

/// What is shown of the state directory.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StateStatus {
    /// Where it is.
    pub path: String,
    /// Bytes that caches take there.
    pub cache_bytes: u64,
    /// Objects that were there at the start.
    pub restored: u64,
    /// How long it took to have them back, in milliseconds.
    pub restored_in_millis: u64,
    /// When the last pass was complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_checkpoint: Option<jiff::Timestamp>,
    /// Objects that it wrote, and bytes.
    pub last_objects: u64,
    /// See there.
    pub last_bytes: u64,
    /// Partitions that the last pass left as they were, since readers have not answered.
    pub held: u64,
    /// Partitions of clusters that were taken out, whose readers had not answered for all; kept in memory for a minute.
    #[serde(skip_serializing_if = "is_zero")]
    pub leaving: u64,
    /// Why the last pass could not write; gone with the next that can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// How often a pass has found files removed or replaced by somebody else, and has written all anew.
    #[serde(skip_serializing_if = "is_zero")]
    pub replaced: u64,
    /// What was damaged at the start.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub damage: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Keeping {
    /// What is kept below `root` from now on, beginning with the files that were loaded.
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
        let away = Mutex::new(files.values().flat_map(CacheFiles::closed_clusters).cloned().collect());
        let files = Mutex::new(files);
        let (status, heard) = (Mutex::new(status), AtomicBool::new(false));
        let (told, turn, waiting, left) = Default::default();
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
            told,
            turn,
            waiting,
            left,
            away,
            heard,
        }
    }

    /// With what readers have been told of partitions that come from disk; `None` of those where the disk has all of it.
    #[must_use]
    pub fn told(mut self, told: ToldVersions) -> Self {
        self.told = Mutex::new(told);
        self
    }

    /// With what names have meant so far, and the file where that is kept.
    #[must_use]
    pub fn names(mut self, names: ShortNames, file: PathBuf) -> Self {
        (self.names, self.names_file) = (Mutex::new((names, false)), Some(file));
        self
    }

    /// What names have meant so far.
    pub(in crate::actors) fn meanings(&self) -> ShortNames {
        self.names.lock().0.clone()
    }

    /// A cluster has said what a name is. Where that cannot be told without asking it, it is remembered.
    pub(in crate::actors) fn note_name(&self, wanted: &ResourceRequest, gvr: &Gvr) {
        if let ResourceRequest::Written(written) = wanted {
            let mut names = self.names.lock();
            names.1 |= names.0.record(written, gvr);
        }
    }

    /// Whether a cluster has said so before.
    pub(in crate::actors) fn name_means(&self, wanted: &ResourceRequest, gvr: &Gvr) -> bool {
        matches!(wanted, ResourceRequest::Written(written) if self.names.lock().0.resolves_to(written, gvr))
    }

    /// Writes what names mean, where there is news or somebody has removed the file.
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

    /// Whether a partition has come as far as readers were told of it before the start, so that nobody has to remember
    /// what that was.
    pub(in crate::actors) fn has_caught_up(&self, cache: &(Gvr, View), id: PartitionId, partition: &Partition) -> bool {
        let health = partition.health();
        let is_heard = || health.watches.load(Relaxed) + health.lists.load(Relaxed) > 0;
        match self.told.lock().get(cache).and_then(|told| told.get(&id)) {
            None => is_heard(),
            // A cluster that does not answer has nothing to say again.
            Some(None) => true,
            Some(Some(told)) if told.as_number().is_none() => is_heard(),
            Some(Some(told)) => partition.resume_version().is_some_and(|now| !told.newer_than(now)),
        }
    }

    /// A partition has another number from now on; or is one of which the disk has all that readers were told.
    pub(in crate::actors) fn note_number(&self, cache: &(Gvr, View), before: Option<PartitionId>, now: PartitionId) {
        let mut told = self.told.lock();
        let told = told.entry(cache.clone()).or_default();
        match before {
            None => _ = told.insert(now, None),
            Some(before) => {
                let known = told.remove(&before);
                told.extend(known.map(|known| (now, known)));
            }
        }
    }

    /// A partition is gone.
    pub(in crate::actors) fn forget_number(&self, cache: &(Gvr, View), id: PartitionId) {
        if let Some(told) = self.told.lock().get_mut(cache) {
            told.remove(&id);
        }
    }

    /// Notes whether every partition has been heard of at this pass; whether it had at the last one.
    pub(in crate::actors) fn note_heard(&self, all: bool) -> bool {
        self.heard.swap(all, SeqCst)
    }

    /// How often a checkpoint is made.
    pub(in crate::actors) fn every(&self) -> Duration {
        self.every
    }

    /// Whether a reader that has not come yet is still waited for.
    pub(in crate::actors) fn waits(&self) -> bool {
        clock::now() < self.since + self.grace
    }

    /// Now, in milliseconds since the epoch, as what is written is dated.
    pub(in crate::actors) fn now(&self) -> i64 {
        self.clock.millis()
    }

    /// Shows something new.
    pub(in crate::actors) fn show(&self, change: impl FnOnce(&mut StateStatus)) {
        change(&mut self.status.lock());
    }
}

impl fmt::Debug for Keeping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeping").field("root", &self.root).finish_non_exhaustive()
    }
}

/// What the actors of a hub know of checkpoints; cheap to clone. Without a state directory there are none.
#[derive(Clone, Default)]
pub struct Checkpoints(Arc<Shared>);

#[derive(Default)]
struct Shared {
    keeping: OnceLock<SharedKeeping>,
    closing: AtomicBool,
    readers: Mutex<BTreeMap<SubscriptionId, Arc<Subscription>>>,
    listeners: Mutex<Vec<Arc<dyn CheckpointListener>>>,
    wanted: Notify,
}

impl Checkpoints {
    /// Asks for a pass soon: somebody waits for it.
    pub(in crate::actors) fn hurry(&self) {
        self.0.wanted.notify_one();
    }

    /// Returns when a pass has been asked for.
    pub(in crate::actors) async fn hurried(&self) {
        self.0.wanted.notified().await;
    }

    /// Tells a listener of every pass from now on.
    pub fn listen(&self, listener: Arc<dyn CheckpointListener>) {
        self.0.listeners.lock().push(listener);
    }

    /// What is shown of the state directory; `None` without one.
    #[must_use]
    pub fn status(&self) -> Option<StateStatus> {
        self.keeping().map(|keeping| {
            let leaving = keeping.left.lock().len() as u64;
            StateStatus { leaving, ..keeping.status.lock().clone() }
        })
    }

    pub(in crate::actors) fn keep(&self, keeping: SharedKeeping) {
        let _ = self.0.keeping.set(keeping);
    }

    pub(in crate::actors) fn keeping(&self) -> Option<&SharedKeeping> {
        self.0.keeping.get()
    }

    /// From now on the hub ends: what informers close stays as it is, for the last checkpoint.
    pub(in crate::actors) fn close(&self) {
        self.0.closing.store(true, SeqCst);
    }

    /// Whether it does, and there will be one.
    pub(in crate::actors) fn is_closing(&self) -> bool {
        self.0.closing.load(SeqCst) && self.keeping().is_some()
    }

    pub(in crate::actors) fn add_reader(&self, subscription: &Arc<Subscription>) {
        if subscription.durable {
            self.0.readers.lock().insert(subscription.id, Arc::clone(subscription));
        }
    }

    pub(in crate::actors) fn remove_reader(&self, id: SubscriptionId) {
        self.0.readers.lock().remove(&id);
    }

    /// Waits for nobody any more: what they are told by may end.
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
        f.debug_struct("Checkpoints").field("keeping", &self.keeping()).finish_non_exhaustive()
    }
}
