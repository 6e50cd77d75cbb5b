//! Read half of the window of recent changes: what to read, from which position, and how to wait for more.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use parking_lot::RwLock;

use super::change::{ChangeCause, PartitionChange, RecordedChange};
use super::cluster::{ClusterWindow, Floor, LocateError};
use super::marks::ClusterMarks;
use super::window::{Entry, HistoryLimits, SavedVersion, Step, Window};
use informer_hub_types::clock::Instant;
use informer_hub_types::{ClusterName, ObjectKey, Origin, WatchCell, Watcher};

/// Number of recorded changes that a reader visits before it releases the lock of the window for other threads.
const VISITS: usize = 512;

/// Read half of a store's window of recent changes. Cloning it increments a reference count.
#[derive(Clone)]
pub struct HistoryReader(Arc<History>);

/// The window of recent changes, and the cells that wake its readers.
struct History {
    window: RwLock<Window>,
    /// Fleet version (last change number) of the published snapshot. Readers do not see later changes yet.
    visible: AtomicU64,
    changed: WatchCell<u64>,
    /// Time of changes recorded now, in milliseconds since `start`; see `HistoryReader::set_time`.
    now: AtomicU64,
    start: Instant,
    /// Whether the recording of changes has stopped.
    is_closed: AtomicBool,
}

/// Cells that wake waiting readers. There is one for each recorded step (a change, or an event that makes readers list
/// again): the cell of the step's cluster.
pub(crate) type Cells = Vec<Arc<WatchCell<u64>>>;

/// Scope of a reader: all clusters, one cluster, or selected informers.
#[derive(Clone)]
pub enum HistoryScope {
    /// Changes of all clusters.
    Fleet,
    /// The changes of one cluster.
    Cluster(ClusterName),
    /// The changes of the selected informers. When a changed label selects or deselects a cluster, its objects are
    /// reported as added or deleted.
    Selected(Arc<dyn Fn(&Origin) -> bool + Send + Sync>),
}

/// Position of a reader in the window of recent changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HistoryCursor {
    version: u64,
    /// Key of the last object read, if the reader stopped within a change of a whole partition (all objects of an
    /// informer).
    key: Option<ObjectKey>,
}

/// Error of a reader whose next changes have been dropped. It must list again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the changes after this version have been dropped; the oldest version is {oldest}")]
pub struct PositionExpired {
    /// Oldest fleet version (change number over all clusters) after which changes can be read.
    pub oldest: u64,
}

impl HistoryCursor {
    /// Creates a cursor that reads the changes after a fleet version (change number over all clusters).
    #[must_use]
    pub fn after(version: u64) -> Self {
        Self { version, key: None }
    }

    /// Returns the fleet version (change number over all clusters) of the last change read.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    fn advance(&mut self, version: u64) {
        (self.version, self.key) = (self.version.max(version), None);
    }
}

impl HistoryReader {
    /// Creates the window of recent changes of a store whose last change has this fleet version.
    pub(crate) fn new(limits: HistoryLimits, version: u64, now: Instant) -> Self {
        Self(Arc::new(History {
            window: RwLock::new(Window::new(limits, version)),
            visible: AtomicU64::new(version),
            changed: WatchCell::new(version),
            now: AtomicU64::new(0),
            start: now,
            is_closed: AtomicBool::new(false),
        }))
    }

    /// Returns the fleet version of the last change that can be read, which is the version of the published snapshot.
    #[must_use]
    pub fn newest(&self) -> u64 {
        self.0.visible.load(SeqCst)
    }

    /// Returns the fleet version (change number over all clusters) after which all changes are kept.
    #[must_use]
    pub fn oldest(&self) -> u64 {
        self.0.window.read().oldest()
    }

    /// Returns the bytes of objects that the window may keep in memory: an upper bound, since the store shares most of
    /// them.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.window.read().bytes()
    }

    /// Appends up to `max` changes after the cursor to `changes`, and advances the cursor. Returns whether it has
    /// reached the newest version. Copies reference counts only.
    ///
    /// # Errors
    /// [`PositionExpired`] if changes after the cursor have been dropped. In the scope of one cluster, only changes of
    /// that cluster count; the cursor also expires if a partition of the cluster joins or leaves.
    pub fn read(
        &self,
        scope: &HistoryScope,
        cursor: &mut HistoryCursor,
        max: usize,
        changes: &mut Vec<Arc<RecordedChange>>,
    ) -> Result<bool, PositionExpired> {
        let full = changes.len().saturating_add(max);
        while changes.len() < full {
            match self.gather(scope, cursor, full, changes)? {
                Gathered::Some => {}
                Gathered::All => return Ok(true),
                Gathered::Partition(partition) => expand(&partition, scope, cursor, full, changes),
            }
        }
        Ok(self.newest() <= cursor.version)
    }

    /// Copies recorded changes under the lock of the window. Stops at a change of a whole partition, which the caller
    /// expands to its objects.
    fn gather(
        &self,
        scope: &HistoryScope,
        cursor: &mut HistoryCursor,
        full: usize,
        changes: &mut Vec<Arc<RecordedChange>>,
    ) -> Result<Gathered, PositionExpired> {
        let window = self.0.window.read();
        // Loaded with the lock held, so that the cursor does not pass entries that are appended later.
        let visible = self.newest();
        let cluster = match scope {
            HistoryScope::Cluster(name) => window.cluster(name),
            HistoryScope::Fleet | HistoryScope::Selected(_) => None,
        };
        let oldest = cluster.map_or_else(|| window.oldest(), ClusterWindow::oldest);
        if cursor.version < oldest {
            return Err(PositionExpired { oldest });
        }
        let mut visit = Visit { scope, cursor, visible, full, changes };
        Ok(match (scope, cluster) {
            (HistoryScope::Cluster(_), Some(cluster)) => {
                let from = visit.cursor.version;
                visit.entries(cluster.after(from).map(|change| Entry::Change(Arc::clone(change))))
            }
            (HistoryScope::Cluster(_), None) => visit.entries(std::iter::empty()),
            (HistoryScope::Fleet | HistoryScope::Selected(_), _) => {
                let from = visit.cursor.version;
                visit.entries(window.after(from).cloned())
            }
        })
    }

    /// Returns the position at which a reader of several clusters continues after the change with this fleet version.
    /// Also accepts the fleet version that the state restored from disk had in the process that saved it.
    ///
    /// # Errors
    /// [`PositionExpired`] if changes after it have been dropped.
    pub fn resume(&self, scope: &HistoryScope, version: u64) -> Result<HistoryCursor, PositionExpired> {
        let window = self.0.window.read();
        let is_usable = |saved: SavedVersion| {
            saved.version == version && (saved.has_same_labels || matches!(scope, HistoryScope::Fleet))
        };
        match window.saved().filter(|(saved, _)| is_usable(*saved)) {
            Some((_, first)) => Ok(HistoryCursor::after(first)),
            None if version < window.oldest() => Err(PositionExpired { oldest: window.oldest() }),
            None => Ok(HistoryCursor::after(version)),
        }
    }

    /// Returns the position at which a reader with this resource version of a cluster continues. `marks` are those of
    /// the cluster.
    pub(crate) fn locate(
        &self,
        cluster: &ClusterName,
        version: u64,
        marks: &ClusterMarks,
    ) -> Result<HistoryCursor, LocateError> {
        let window = self.0.window.read();
        let known = window.cluster(cluster).ok_or(LocateError::Expired { oldest: None })?;
        known.locate(version, marks.base().unwrap_or(0), marks.made_up_from()).map(HistoryCursor::after)
    }

    /// Creates a subscription to the changes of a scope. Create it before reading, so that a change recorded after the
    /// read ends the next wait.
    #[must_use]
    pub fn subscribe(&self, scope: &HistoryScope) -> HistorySubscription {
        let cluster = match scope {
            HistoryScope::Cluster(name) => Some(name.clone()),
            HistoryScope::Fleet | HistoryScope::Selected(_) => None,
        };
        let (changed, is_own) = self.cell_of(cluster.as_ref());
        HistorySubscription { history: self.clone(), cluster, is_own, changed }
    }

    /// Returns a watcher of the changes of `cluster`, and true. If `cluster` is `None` or not in the window, returns a
    /// watcher of all changes, and false.
    fn cell_of(&self, cluster: Option<&ClusterName>) -> (Watcher<u64>, bool) {
        let window = self.0.window.read();
        match cluster.and_then(|name| window.cluster(name)) {
            Some(known) => (known.changed.subscribe(), true),
            None => (self.0.changed.subscribe(), false),
        }
    }

    /// Stops recording changes. Call it before closing the partitions of a stopping hub, so that their objects are not
    /// recorded as deleted.
    pub fn close(&self) {
        self.0.is_closed.store(true, SeqCst);
    }

    /// Returns whether the recording of changes has stopped.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.is_closed.load(SeqCst)
    }

    /// Records steps: changes, and events that make readers list again. Returns the cells to pass to [`Self::publish`],
    /// which makes the changes visible and wakes waiting readers.
    pub(crate) fn append(&self, steps: Vec<(ClusterName, Step)>) -> Cells {
        if self.is_closed() {
            return Cells::new();
        }
        let now = self.now();
        let mut window = self.0.window.write();
        let cells = steps.into_iter().map(|(cluster, step)| window.apply(&cluster, step, now)).collect();
        window.trim(now);
        cells
    }

    /// Makes the changes up to a version visible, and wakes the readers that wait for them. Call it after the snapshot
    /// of this version is published.
    pub(crate) fn publish(&self, version: u64, mut cells: Cells) {
        if self.is_closed() {
            return;
        }
        self.0.visible.store(version, SeqCst);
        self.0.changed.set(version);
        cells.dedup_by(|next, cell| Arc::ptr_eq(next, cell));
        for cell in cells {
            cell.set(version);
        }
    }

    /// Drops the oldest changes beyond the limits of age and bytes. Returns whether any are left.
    pub(crate) fn trim(&self, now: Instant) -> bool {
        self.set_time(now);
        let mut window = self.0.window.write();
        window.trim(self.now());
        !window.is_empty()
    }

    /// Sets the time of the changes recorded from now on. An earlier time is ignored.
    pub(crate) fn set_time(&self, now: Instant) {
        let passed = now.saturating_duration_since(self.0.start).as_millis();
        self.0.now.fetch_max(u64::try_from(passed).unwrap_or(u64::MAX), SeqCst);
    }

    fn now(&self) -> u64 {
        self.0.now.load(SeqCst)
    }

    /// Returns the time that a change recorded now would have.
    pub(crate) fn time(&self) -> Instant {
        self.0.start + Duration::from_millis(self.now())
    }

    /// Returns the last change of an object that the window has. Changes of whole partitions do not count.
    ///
    /// Cost: visits the changes of the cluster, from the last, without delaying writers for long.
    #[must_use]
    pub fn last_change(&self, cluster: &ClusterName, key: &ObjectKey) -> Option<Arc<RecordedChange>> {
        let mut before = self.newest().saturating_add(1);
        loop {
            let window = self.0.window.read();
            let mut left = VISITS;
            for change in window.cluster(cluster)?.before(before).take(VISITS) {
                if change.object.key() == key {
                    return Some(Arc::clone(change));
                }
                (before, left) = (change.version, left - 1);
            }
            if left > 0 {
                return None;
            }
        }
    }

    /// Sets whether memory is short. If so, an eighth of the byte limit on recent changes applies.
    pub(crate) fn set_tight(&self, tight: bool) {
        let mut window = self.0.window.write();
        window.set_tight(tight);
        window.trim(self.now());
    }

    /// Continues after a write of the store has failed. `version` is the fleet version (change number over all
    /// clusters) of the published snapshot. If the window has changes that this snapshot lacks, the window is emptied.
    pub(crate) fn recover(&self, version: u64, floors: Vec<(ClusterName, Floor)>) {
        if self.0.window.read().head() != version {
            self.restart(version, floors);
        }
        self.0.visible.store(version, SeqCst);
    }

    /// Empties the window, which restarts at the version and the floors (lowest versions to resume from) of a snapshot.
    /// Readers at earlier versions must list again.
    pub(crate) fn restart(&self, version: u64, floors: Vec<(ClusterName, Floor)>) {
        self.0.window.write().restart(version, floors.into_iter());
    }

    /// Sets the version that the restored state had in an earlier process. Must be called before the first change.
    pub(crate) fn set_saved(&self, saved: Option<SavedVersion>) {
        self.0.window.write().set_saved(saved);
    }

    /// Returns whether a kept change of the cluster has this resource version, or a dropped one may have had it.
    pub(crate) fn has_used(&self, cluster: &ClusterName, version: u64) -> bool {
        self.0.window.read().cluster(cluster).is_some_and(|known| known.has_used(version))
    }

    /// Returns the resource versions of the kept changes of a cluster.
    pub(crate) fn versions_of(&self, cluster: &ClusterName) -> Vec<u64> {
        self.0.window.read().cluster(cluster).into_iter().flat_map(ClusterWindow::versions).collect()
    }
}

enum Gathered {
    Some,
    All,
    Partition(Arc<PartitionChange>),
}

/// State of one [`HistoryReader::read`] while it visits entries under the lock of the window.
struct Visit<'r> {
    scope: &'r HistoryScope,
    cursor: &'r mut HistoryCursor,
    visible: u64,
    full: usize,
    changes: &'r mut Vec<Arc<RecordedChange>>,
}

impl Visit<'_> {
    fn entries(&mut self, entries: impl Iterator<Item = Entry>) -> Gathered {
        let seen = entries.take_while(|entry| entry.last() <= self.visible);
        for (visited, entry) in seen.enumerate() {
            if visited == VISITS || self.changes.len() == self.full {
                return Gathered::Some;
            }
            match entry {
                Entry::Change(change) => {
                    self.cursor.advance(change.version);
                    if self.scope.selects(&change.origin) {
                        self.changes.push(change);
                    }
                }
                Entry::Partition(partition) => return Gathered::Partition(partition),
            }
        }
        self.cursor.advance(self.visible);
        Gathered::All
    }
}

/// Appends one change for each object of a partition that was added, removed or got other cluster labels, until
/// `changes` has `full` entries.
fn expand(
    change: &PartitionChange,
    scope: &HistoryScope,
    cursor: &mut HistoryCursor,
    full: usize,
    changes: &mut Vec<Arc<RecordedChange>>,
) {
    if let Some((kind, origin)) = change.effect(|origin| scope.selects(origin)) {
        let (from, key) = (cursor.version, cursor.key.take());
        for (version, object) in change.after(from, key.as_ref()) {
            if changes.len() == full {
                return;
            }
            let old = (kind == super::ChangeKind::Deleted).then(|| Arc::clone(object));
            let (origin, object) = (Arc::clone(origin), Arc::clone(object));
            (cursor.version, cursor.key) = (version, Some(object.key().clone()));
            let partition = change.partition;
            changes.push(Arc::new(RecordedChange {
                version,
                partition,
                origin,
                kind,
                object,
                old,
                cluster_version: None,
                at: change.at,
                cause: ChangeCause::Partition,
            }));
        }
    }
    cursor.advance(change.last);
}

impl HistoryScope {
    fn selects(&self, origin: &Origin) -> bool {
        match self {
            Self::Fleet => true,
            Self::Cluster(name) => origin.cluster == *name,
            Self::Selected(selects) => selects(origin),
        }
    }
}

/// Wakes a reader on changes of its scope. Other clusters' changes do not wake a reader of one cluster, unless that
/// cluster has no partition yet.
#[derive(Debug)]
pub struct HistorySubscription {
    history: HistoryReader,
    cluster: Option<ClusterName>,
    /// Whether `changed` watches only the changes of `cluster`, rather than those of all clusters.
    is_own: bool,
    changed: Watcher<u64>,
}

impl HistorySubscription {
    /// Waits until a change is recorded that this function has not reported yet. May also return without a change.
    ///
    /// # Cancel safety
    /// Cancel safe: a change that was not reported is reported by the next call.
    pub async fn changed(&mut self) {
        let is_closed = self.changed.changed().await.is_err();
        if is_closed || (self.cluster.is_some() && !self.is_own) {
            (self.changed, self.is_own) = self.history.cell_of(self.cluster.as_ref());
        }
    }
}

impl fmt::Debug for HistoryReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HistoryReader").field("newest", &self.newest()).finish_non_exhaustive()
    }
}

impl fmt::Debug for HistoryScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fleet => f.write_str("Fleet"),
            Self::Cluster(name) => f.debug_tuple("Cluster").field(name).finish(),
            Self::Selected(_) => f.write_str("Selected"),
        }
    }
}
