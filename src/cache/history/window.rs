//! Window of recent changes of one cache: bounded by bytes and age.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;

use super::change::{PartitionChange, RecordedChange};
use super::cluster::{ClusterWindow, Floor};
use informer_hub_types::{ClusterName, WatchCell};

/// Limits of the window of recent changes. Changes beyond them are dropped, oldest first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HistoryLimits {
    /// Maximum bytes of changes. Default 16 MiB.
    pub bytes: usize,
    /// Maximum age of changes. Default 5 min.
    pub age: Duration,
}

/// Fleet version (change number over all clusters) that a restored state had in the process that saved it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SavedVersion {
    /// Fleet version (change number over all clusters) of the saved state.
    pub version: u64,
    /// Whether all clusters still have the labels that they had when the state was saved. If not, readers of selected
    /// clusters must list again.
    pub has_same_labels: bool,
}

impl Default for HistoryLimits {
    fn default() -> Self {
        Self { bytes: 16 * 1024 * 1024, age: Duration::from_secs(5 * 60) }
    }
}

/// Bytes of a recorded change besides its object: the entry, the references to it in the window, and the head
/// (metadata) of the previous object.
const OVERHEAD: usize = 224;

/// Divisor of the byte limit on recent changes while the hub's memory is short.
const TIGHT_SHARE: usize = 8;

/// Divisor of the byte limit, for changes of whole partitions. Such a change counts as at most half of the limit, so
/// that even a large one fits into the window.
const LEFT_SHARE: usize = 2;

#[derive(Clone, Debug)]
pub(crate) enum Entry {
    Change(Arc<RecordedChange>),
    Partition(Arc<PartitionChange>),
}

impl Entry {
    /// Returns the fleet version (change number over all clusters) of the entry's last change.
    pub(crate) fn last(&self) -> u64 {
        match self {
            Self::Change(change) => change.version,
            Self::Partition(partition) => partition.last,
        }
    }
}

/// Step of the window: a recorded change, or an event that makes readers of a cluster list again.
#[derive(Debug)]
pub(crate) enum Step {
    /// A change. `bytes` is the memory of its objects.
    Push { entry: Entry, bytes: usize },
    /// Readers of the cluster must list again: its window restarts at the fleet version (change number) `at`.
    /// `has_left` is set if the cluster's last partition was removed.
    Cut { at: u64, floor: Floor, has_left: bool },
    /// A list has skipped the changes between two versions of the cluster. The list's end has the fleet version (change
    /// number over all clusters) `at`.
    Skip { from: u64, to: u64, at: u64 },
}

/// Recorded steps that are not published yet, each with the name of its cluster.
#[derive(Debug, Default)]
pub(crate) struct Pending(pub(crate) Vec<(ClusterName, Step)>);

#[derive(Debug)]
struct Slot {
    last: u64,
    entry: Entry,
    cluster: ClusterName,
    /// Bytes that count against the limit, and bytes that the change may keep in memory.
    bytes: (usize, usize),
    /// Time of the change, in milliseconds since the start of the history.
    at: u64,
}

/// Window of recent changes: those of all clusters of a cache, oldest first.
#[derive(Debug)]
pub(crate) struct Window {
    slots: VecDeque<Slot>,
    clusters: HashMap<ClusterName, ClusterWindow>,
    /// Fleet version (change number over all clusters) after which all changes are kept.
    oldest: u64,
    /// Fleet version (change number over all clusters) of the last change.
    head: u64,
    /// For a state restored from disk: its fleet version in the process that saved it, and its fleet version in this
    /// process.
    saved: Option<(SavedVersion, u64)>,
    limits: HistoryLimits,
    is_tight: bool,
    /// Sums of [`Slot::bytes`]: bytes that count against the limit, and bytes that the slots may keep in memory.
    bytes: (usize, usize),
}

impl Window {
    /// Creates an empty window for the changes after a fleet version (change number over all clusters).
    pub(crate) fn new(limits: HistoryLimits, at: u64) -> Self {
        let (slots, clusters) = (VecDeque::new(), HashMap::new());
        Self { slots, clusters, oldest: at, head: at, saved: None, limits, is_tight: false, bytes: (0, 0) }
    }

    pub(crate) fn oldest(&self) -> u64 {
        self.oldest
    }

    pub(crate) fn head(&self) -> u64 {
        self.head
    }

    /// Returns the bytes of the entries' objects: an upper bound of the memory that the entries keep, since the store shares
    /// most objects.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.1
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(crate) fn cluster(&self, name: &ClusterName) -> Option<&ClusterWindow> {
        self.clusters.get(name)
    }

    fn limit(&self) -> usize {
        if self.is_tight { self.limits.bytes / TIGHT_SHARE } else { self.limits.bytes }
    }

    /// Applies a recorded step to the window of a cluster. Returns the cell that wakes the cluster's readers.
    pub(crate) fn apply(&mut self, name: &ClusterName, step: Step, now: u64) -> Arc<WatchCell<u64>> {
        let (oldest, unknown) = (self.oldest, Floor::UNKNOWN);
        let cluster = self.clusters.entry(name.clone()).or_insert_with(|| ClusterWindow::new(oldest, unknown));
        let changed = Arc::clone(&cluster.changed);
        match step {
            Step::Push { entry, bytes } => {
                if let Entry::Change(change) = &entry {
                    cluster.push(Arc::clone(change));
                }
                let last = entry.last();
                self.push(Slot { last, entry, cluster: name.clone(), bytes: (0, bytes + OVERHEAD), at: now });
            }
            Step::Cut { at, floor, has_left } => {
                cluster.cut(at, floor);
                cluster.has_left = has_left;
            }
            Step::Skip { from, to, at } => cluster.skip(from, to, at),
        }
        changed
    }

    fn push(&mut self, mut slot: Slot) {
        let most = match &slot.entry {
            Entry::Change(_) => usize::MAX,
            Entry::Partition(_) => self.limits.bytes / LEFT_SHARE,
        };
        slot.bytes.0 = slot.bytes.1.min(most);
        self.bytes.0 += slot.bytes.0;
        self.bytes.1 += slot.bytes.1;
        self.head = slot.last;
        self.slots.push_back(slot);
    }

    /// Drops the oldest changes beyond the limits of bytes and age. If a cluster has left, its window is dropped with
    /// its last entry. `now` is in milliseconds.
    pub(crate) fn trim(&mut self, now: u64) {
        let (limit, age) = (self.limit(), self.limits.age.as_millis());
        while let Some(slot) = self.slots.front()
            && (self.bytes.0 > limit || u128::from(now.saturating_sub(slot.at)) >= age)
        {
            self.drop_first();
        }
        if self.slots.is_empty() {
            self.slots.shrink_to(0);
        }
    }

    fn drop_first(&mut self) {
        let Some(slot) = self.slots.pop_front() else { return };
        self.bytes.0 -= slot.bytes.0;
        self.bytes.1 -= slot.bytes.1;
        self.oldest = slot.last;
        if let Some(cluster) = self.clusters.get_mut(&slot.cluster) {
            cluster.drop_first(slot.last);
            if cluster.has_left && slot.last >= cluster.oldest() {
                self.clusters.remove(&slot.cluster);
            }
        }
    }

    /// Drops all changes, and restarts at a fleet version (change number over all clusters) with these clusters.
    /// Readers at earlier versions must list again.
    pub(crate) fn restart(&mut self, at: u64, floors: impl Iterator<Item = (ClusterName, Floor)>) {
        self.slots.clear();
        self.saved = None;
        (self.bytes, self.oldest, self.head) = ((0, 0), at, at);
        let mut before = std::mem::take(&mut self.clusters);
        for (name, floor) in floors {
            let mut cluster = before.remove(&name).unwrap_or_else(|| ClusterWindow::new(at, floor));
            cluster.cut(at, floor);
            self.clusters.insert(name, cluster);
        }
    }

    /// Sets the version that the restored state had in an earlier process. Must be called before the first change.
    pub(crate) fn set_saved(&mut self, saved: Option<SavedVersion>) {
        self.saved = saved.map(|saved| (saved, self.head));
    }

    /// Returns the saved version and the fleet version of the same state in this process. `None` once a later change
    /// was dropped.
    pub(crate) fn saved(&self) -> Option<(SavedVersion, u64)> {
        self.saved.filter(|(_, first)| *first == self.oldest)
    }

    /// Sets whether memory is short. If so, an eighth of the byte limit on recent changes applies.
    pub(crate) fn set_tight(&mut self, tight: bool) {
        self.is_tight = tight;
    }

    /// Returns the entries (changes of an object or of a whole partition) after a fleet version (change number over all
    /// clusters).
    pub(crate) fn after(&self, version: u64) -> impl Iterator<Item = &Entry> {
        let from = self.slots.partition_point(|slot| slot.last <= version);
        self.slots.range(from..).map(|slot| &slot.entry)
    }
}
