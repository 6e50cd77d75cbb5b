//! Window of one cluster: its recent changes by position, and the versions that lead to positions.

use std::collections::VecDeque;
use std::sync::Arc;

use super::reader::LocateError;
use super::window::Entry;
use informer_hub_types::WatchCell;

/// Versions that lead to the start of the changes of a cluster's window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Floor {
    /// Versions up to this one have expired, except for `exact`.
    pub(super) below: u64,
    /// Version that leads to the start.
    pub(super) exact: Option<u64>,
}

/// How readers resume from a change.
#[derive(Clone, Copy, Debug)]
pub(super) enum Address {
    /// From its version.
    Version(u64),
    /// From the versions given before it, so that it may be read again. This is the floor once it is dropped.
    Before(Floor),
}

#[derive(Debug)]
struct Indexed {
    /// Fleet version, of a partition the last one.
    last: u64,
    address: Address,
    entry: Entry,
}

impl Indexed {
    fn version(&self) -> Option<u64> {
        match self.address {
            Address::Version(version) => Some(version),
            Address::Before(_) => None,
        }
    }
}

/// Recent changes of one cluster.
#[derive(Debug)]
pub(super) struct ClusterWindow {
    entries: VecDeque<Indexed>,
    /// Fleet version from which the entries can be read.
    oldest: u64,
    /// Fleet version from which versions are located; earlier entries are only read.
    start: u64,
    floor: Floor,
    /// Greatest version of an entry after the start, dropped ones included.
    newest: u64,
    /// Fleet version from which all entries have versions, each greater than those before.
    sorted_from: u64,
    /// Whether its last partition has left.
    pub(super) has_left: bool,
    /// Fleet version of the last change, for waiting readers.
    pub(super) changed: Arc<WatchCell<u64>>,
}

impl Floor {
    /// A floor from which no version leads to a position.
    pub(super) const UNKNOWN: Self = Self { below: u64::MAX, exact: None };

    /// Returns the floor of a complete version.
    pub(super) fn at(version: Option<u64>) -> Self {
        version.map_or(Self::UNKNOWN, |version| Self { below: version, exact: Some(version) })
    }

    fn raised_by(self, address: Address) -> Self {
        let next = match address {
            Address::Version(version) => Self::at(Some(version)),
            Address::Before(floor) => floor,
        };
        Self { below: self.below.max(next.below), exact: next.exact }
    }
}

impl ClusterWindow {
    /// Creates a window without changes. `oldest` is the fleet version from which it would have them.
    pub(super) fn new(oldest: u64) -> Self {
        Self {
            entries: VecDeque::new(),
            oldest,
            start: oldest,
            floor: Floor::UNKNOWN,
            newest: 0,
            sorted_from: oldest,
            has_left: false,
            changed: Arc::default(),
        }
    }

    /// Drops its entries. Readers continue to wait for the same cell.
    pub(super) fn emptied(self, oldest: u64) -> Self {
        Self { changed: self.changed, ..Self::new(oldest) }
    }

    /// Returns the fleet version from which all changes are known.
    pub(super) fn oldest(&self) -> u64 {
        self.oldest
    }

    /// Returns whether it can be dropped.
    pub(super) fn is_over(&self) -> bool {
        self.has_left && self.entries.is_empty()
    }

    pub(super) fn push(&mut self, last: u64, address: Address, entry: Entry) {
        match address {
            Address::Version(version) if version > self.newest => self.newest = version,
            Address::Version(_) | Address::Before(_) => self.sorted_from = last.saturating_add(1),
        }
        self.entries.push_back(Indexed { last, address, entry });
    }

    /// Locates versions from here on. Readers before may continue.
    pub(super) fn restart(&mut self, at: u64, floor: Floor) {
        (self.start, self.floor, self.newest, self.sorted_from) = (at, floor, 0, at);
    }

    /// As [`Self::restart`], and expires the readers before.
    pub(super) fn cut(&mut self, at: u64, floor: Floor) {
        self.restart(at, floor);
        self.oldest = at;
    }

    /// Drops the first entry if it is the one of this fleet version.
    pub(super) fn drop_first(&mut self, last: u64) {
        if self.entries.front().is_none_or(|first| first.last != last) {
            return;
        }
        let Some(first) = self.entries.pop_front() else { return };
        self.oldest = self.oldest.max(last);
        if last > self.start {
            self.floor = self.floor.raised_by(first.address);
            self.start = last;
        }
        if self.entries.is_empty() {
            self.entries.shrink_to(0);
        }
    }

    /// Returns the entries that end after a fleet version.
    pub(super) fn after(&self, version: u64) -> impl Iterator<Item = &Entry> {
        let from = self.entries.partition_point(|entry| entry.last <= version);
        self.entries.range(from..).map(|indexed| &indexed.entry)
    }

    /// Returns the versions of changes.
    pub(super) fn versions(&self) -> impl Iterator<Item = u64> {
        self.entries.iter().filter_map(Indexed::version)
    }

    /// Returns the fleet version from which a reader with this version continues. `base` is the greatest version, not
    /// of a change, that readers may have.
    pub(super) fn locate(&self, version: u64, base: u64) -> Result<u64, LocateError> {
        let from = self.entries.partition_point(|entry| entry.last <= self.start);
        let sorted = self.entries.partition_point(|entry| entry.last < self.sorted_from).max(from);
        let before = self.last_sorted(sorted, version);
        if let Some(entry) = before.filter(|entry| entry.version() == Some(version)) {
            return Ok(entry.last);
        }
        let unsorted = || self.entries.range(from..sorted);
        if let Some(entry) = unsorted().find(|entry| entry.version() == Some(version)) {
            return Ok(entry.last);
        }
        if self.floor.exact == Some(version) {
            return Ok(self.start);
        }
        if version <= self.floor.below {
            return Err(LocateError::Expired { oldest: self.floor.exact });
        }
        if version > base {
            return Err(LocateError::Future { newest: base.max(self.newest) });
        }
        if let Some(entry) = before {
            return Ok(entry.last);
        }
        // After the last one that is not greater, and before the first one that is.
        let mut at = self.start;
        for entry in unsorted() {
            match entry.version() {
                Some(greater) if greater > version => break,
                Some(_) => at = entry.last,
                None => {}
            }
        }
        Ok(at)
    }

    /// Returns the last of the sorted entries, from an index on, whose version is not greater.
    fn last_sorted(&self, sorted: usize, version: u64) -> Option<&Indexed> {
        let (mut low, mut high) = (sorted, self.entries.len());
        while low < high {
            let middle = low.midpoint(high);
            if self.entries[middle].version().is_some_and(|found| found <= version) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low.checked_sub(1).filter(|last| *last >= sorted).map(|last| &self.entries[last])
    }
}
