//! Recent changes of one cluster, and the lookup of the position at which a reader with a resource version continues.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;

use super::change::RecordedChange;
use informer_hub_types::WatchCell;

/// Base of the resource versions that the hub makes up for clusters with one partition. It is far above every version
/// that a cluster assigns, so that made-up versions are recognizable. A made-up version is at least this base plus the
/// current fleet version (change number over all clusters). Fleet versions start at the process's start time in
/// microseconds, so no two processes make up the same version.
#[doc(hidden)]
pub const MADE_UP: u64 = 1 << 50;

/// Maximum number of gaps (ranges of versions that a list skipped) per cluster. If there are more, readers must list
/// again.
const GAPS: usize = 64;

/// Reason why a reader cannot resume from a cluster's resource version.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LocateError {
    /// The changes after the version have been dropped: the reader must list again.
    #[error("the version is too old")]
    Expired {
        /// Oldest known version from which a reader can resume; `None` if there is none.
        oldest: Option<u64>,
    },
    /// The version is newer than the cache: the reader may wait.
    #[error("the version is newer than the cache, which has {newest}")]
    Future {
        /// Newest resource version of the cluster in the cache.
        newest: u64,
    },
}

/// Lower limit of the resource versions from which readers of a cluster can resume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Floor {
    /// Greatest expired version: readers at or below it must list again, except for a reader at `exact`.
    pub(crate) below: u64,
    /// Version that has not expired although it is at or below `below`. A reader at this version continues with the
    /// first kept change. `None` if there is no such version.
    pub(crate) exact: Option<u64>,
}

/// Recent changes of one cluster. Changes of whole partitions are left out: they make the cluster's readers list again.
#[derive(Debug)]
pub(crate) struct ClusterWindow {
    entries: VecDeque<Arc<RecordedChange>>,
    /// Fleet version (change number over all clusters) after which `entries` has all changes of the cluster.
    start: u64,
    floor: Floor,
    /// Greatest resource version of an entry, including dropped entries.
    newest: u64,
    /// Fleet version (change number over all clusters) at which the sorted part of `entries` begins. Each entry of this
    /// part has a greater resource version than all entries before it.
    sorted_from: u64,
    /// Fleet versions (change numbers over all clusters) of the entries before the sorted part, by resource version.
    /// Empty while the resource versions of all entries increase.
    unsorted: HashMap<u64, u64>,
    /// Ranges of versions, ends excluded, from which readers cannot resume, because a list skipped changes in them.
    gaps: Vec<(u64, u64)>,
    /// Whether the cluster's last partition was closed. This window of changes is then dropped together with its last
    /// change.
    pub(crate) has_left: bool,
    /// Fleet version (change number over all clusters) of the cluster's last change, for waiting readers.
    pub(crate) changed: Arc<WatchCell<u64>>,
}

impl Floor {
    /// Floor if no version is known: no reader can resume.
    pub(crate) const UNKNOWN: Self = Self { below: u64::MAX, exact: None };

    /// Returns the floor (lowest version to resume from) of a window of changes. `version` is that of the state at its
    /// start; `None` if it is unknown.
    pub(crate) fn at(version: Option<u64>) -> Self {
        version.map_or(Self::UNKNOWN, |version| Self { below: version, exact: Some(version) })
    }

    /// Returns the floor after the oldest change was dropped. `version` is the resource version of that change, if it
    /// has one. Readers can still resume from this version, but not from lower ones.
    fn raised_by(self, version: Option<u64>) -> Self {
        Self { below: self.below.max(version.unwrap_or(0)), exact: version }
    }
}

impl ClusterWindow {
    /// Creates an empty window for the cluster's changes after a fleet version (change number over all clusters).
    pub(crate) fn new(start: u64, floor: Floor) -> Self {
        let (entries, unsorted, gaps, changed) = (VecDeque::new(), HashMap::new(), Vec::new(), Arc::default());
        Self { entries, start, floor, newest: 0, sorted_from: start, unsorted, gaps, has_left: false, changed }
    }

    /// Records that a list moved the state from one resource version to another. A list does not show objects that were
    /// added and deleted between the two, so readers with a version in between must list again. `at` is the fleet
    /// version of the list's end.
    pub(crate) fn skip(&mut self, from: u64, to: u64, at: u64) {
        self.gaps.retain(|(_, end)| *end > self.floor.below);
        if self.gaps.len() < GAPS {
            self.gaps.push((from, to));
        } else {
            self.cut(at, Floor::at(Some(to)));
        }
    }

    /// Returns the fleet version (change number over all clusters) after which all changes of the cluster are kept.
    pub(crate) fn oldest(&self) -> u64 {
        self.start
    }

    pub(crate) fn push(&mut self, change: Arc<RecordedChange>) {
        let is_sorted = change.cluster_version.is_some_and(|version| version > self.newest);
        self.newest = self.newest.max(change.cluster_version.unwrap_or(0));
        // A reader of this change may resume from the version in the changed object. That version must no longer lead
        // to the start of the window.
        if self.floor.exact.is_some() && change.object.resource_version().as_number() == self.floor.exact {
            self.floor.exact = None;
        }
        self.entries.push_back(change);
        if !is_sorted {
            self.unsort();
        }
    }

    /// Ends the sorted part of the entries, in which resource versions increase: adds its entries to `unsorted`, and
    /// begins an empty sorted part behind them.
    fn unsort(&mut self) {
        let sorted = self.entries.range(self.first_sorted()..);
        let found = sorted.filter_map(|entry| Some((entry.cluster_version?, entry.version)));
        self.unsorted.extend(found);
        self.sorted_from = self.entries.back().map_or(self.sorted_from, |last| last.version.saturating_add(1));
    }

    /// Returns the index of the first entry in the sorted part of the entries, in which resource versions increase.
    fn first_sorted(&self) -> usize {
        self.entries.partition_point(|entry| entry.version < self.sorted_from)
    }

    /// Drops all entries, and restarts the window at a fleet version (change number over all clusters). Readers at
    /// earlier versions expire.
    pub(crate) fn cut(&mut self, at: u64, floor: Floor) {
        let changed = Arc::clone(&self.changed);
        *self = Self { changed, ..Self::new(at, floor) };
    }

    /// Drops the oldest change if it has this fleet version (change number over all clusters).
    pub(crate) fn drop_first(&mut self, version: u64) {
        if self.entries.front().is_none_or(|first| first.version != version) {
            return;
        }
        let Some(first) = self.entries.pop_front() else { return };
        self.floor = self.floor.raised_by(first.cluster_version);
        self.start = version;
        if let Some(version) = first.cluster_version {
            self.unsorted.remove(&version);
        }
        if self.entries.is_empty() {
            self.entries.shrink_to(0);
            self.unsorted.shrink_to(0);
        }
    }

    /// Returns the changes after a fleet version (change number over all clusters).
    pub(crate) fn after(&self, version: u64) -> impl Iterator<Item = &Arc<RecordedChange>> {
        let from = self.entries.partition_point(|entry| entry.version <= version);
        self.entries.range(from..)
    }

    /// Returns the changes before a fleet version (change number over all clusters), last first.
    pub(crate) fn before(&self, version: u64) -> impl Iterator<Item = &Arc<RecordedChange>> {
        let to = self.entries.partition_point(|entry| entry.version < version);
        self.entries.range(..to).rev()
    }

    /// Returns the resource versions of the kept changes that have one.
    pub(crate) fn versions(&self) -> impl Iterator<Item = u64> {
        self.entries.iter().filter_map(|entry| entry.cluster_version)
    }

    /// Returns whether a kept change has this resource version, or a dropped change may have had it. A new change must
    /// then get another version.
    pub(crate) fn has_used(&self, version: u64) -> bool {
        version <= self.newest && (version <= self.floor.below || self.position_of(version).is_some())
    }

    /// Returns the fleet version (change number over all clusters) of the change with this resource version; `None` if
    /// there is none.
    fn position_of(&self, version: u64) -> Option<u64> {
        let sorted = self.last_sorted(version).filter(|entry| entry.cluster_version == Some(version));
        sorted.map(|entry| entry.version).or_else(|| self.unsorted.get(&version).copied())
    }

    /// Returns the position at which a reader with this resource version of the cluster continues. The position is a
    /// fleet version (change number over all clusters): the reader gets the changes after it. `base` is the greatest
    /// resource version that readers may have received other than with a change, e.g. with a list. `made_up_from` is
    /// the first of the versions that the hub makes up now; `None` if it uses the cluster's own versions.
    pub(crate) fn locate(&self, version: u64, base: u64, made_up_from: Option<u64>) -> Result<u64, LocateError> {
        if self.gaps.iter().any(|(from, to)| *from < version && version < *to) {
            return Err(LocateError::Expired { oldest: self.floor.exact });
        }
        if let Some(position) = self.position_of(version) {
            return Ok(position);
        }
        if self.floor.exact == Some(version) {
            return Ok(self.start);
        }
        if version <= self.floor.below {
            return Err(LocateError::Expired { oldest: self.floor.exact });
        }
        // Made up by an earlier process, or before the hub last used the cluster's own versions: the cluster will not
        // reach it.
        let is_obsolete = version > base || made_up_from.is_some_and(|from| version < from);
        if version >= MADE_UP && is_obsolete {
            return Err(LocateError::Expired { oldest: self.floor.exact });
        }
        if version > base {
            return Err(LocateError::Future { newest: base.max(self.newest) });
        }
        if let Some(entry) = self.last_sorted(version) {
            return Ok(entry.version);
        }
        // The position is among the unsorted entries: after those that precede the first entry with a greater version.
        let rest = self
            .entries
            .range(..self.first_sorted())
            .take_while(|entry| entry.cluster_version.is_none_or(|found| found < version));
        Ok(rest.filter(|entry| entry.cluster_version.is_some()).last().map_or(self.start, |entry| entry.version))
    }

    /// Returns the last change with at most this resource version. Searches only the part of the entries in which
    /// resource versions increase.
    fn last_sorted(&self, version: u64) -> Option<&Arc<RecordedChange>> {
        let sorted = self.first_sorted();
        let (mut low, mut high) = (sorted, self.entries.len());
        while low < high {
            let middle = low.midpoint(high);
            if self.entries[middle].cluster_version.is_some_and(|found| found <= version) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low.checked_sub(1).filter(|last| *last >= sorted).map(|last| &self.entries[last])
    }
}
