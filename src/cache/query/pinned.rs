//! Snapshots pinned for continue tokens: bounded in number, time and memory.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::error::QueryError;
use crate::snapshot::Snapshot;
use informer_hub_types::clock::Instant;

/// Pinned snapshots of one resource.
///
/// A pinned snapshot keeps the bodies in memory that were replaced after it was taken. All other data is shared with
/// the newest snapshot. At the limit of snapshots, the least recently used one is dropped; at the limit of bytes, the
/// oldest. A query that continues on a dropped snapshot must start over.
#[derive(Debug)]
pub struct PinnedSnapshots {
    /// Pinned snapshots, least recently used first.
    entries: VecDeque<Entry>,
    /// Total bytes of bodies that were replaced or deleted while any snapshot was pinned.
    replaced: usize,
    /// Whether memory pressure is high.
    tight: bool,
}

struct Entry {
    number: u64,
    snapshot: Arc<Snapshot>,
    until: Instant,
    /// Value of [`PinnedSnapshots::replaced`] when the snapshot was pinned.
    since: usize,
}

impl PinnedSnapshots {
    /// Time after its last use for which a snapshot is pinned.
    pub const LIFETIME: Duration = Duration::from_secs(5 * 60);
    /// Maximum number of pinned snapshots of a resource.
    pub const SNAPSHOTS: usize = 16;
    /// Approximate limit in bytes of bodies that only pinned snapshots hold.
    pub const BYTES: usize = 64 << 20;
    /// Value of [`Self::BYTES`] that applies under memory pressure.
    pub const TIGHT_BYTES: usize = 1 << 20;

    /// Creates an empty set.
    #[must_use]
    pub fn new() -> Self {
        Self { entries: VecDeque::new(), replaced: 0, tight: false }
    }

    /// Pins a snapshot, and returns the number under which [`Self::get`] finds it. A new snapshot gets its number from
    /// `fresh`. A snapshot that is pinned already keeps its number, and its time is extended.
    pub fn pin(&mut self, snapshot: &Arc<Snapshot>, now: Instant, fresh: impl FnOnce() -> u64) -> u64 {
        self.expire(now);
        let known = self.entries.iter().position(|entry| Arc::ptr_eq(&entry.snapshot, snapshot));
        let until = now + Self::LIFETIME;
        let entry = if let Some(entry) = known.and_then(|at| self.entries.remove(at)) {
            Entry { until, ..entry }
        } else {
            Entry { number: fresh(), snapshot: Arc::clone(snapshot), until, since: self.replaced }
        };
        let number = entry.number;
        self.entries.push_back(entry);
        if self.entries.len() > Self::SNAPSHOTS {
            self.entries.pop_front();
        }
        number
    }

    /// Returns a pinned snapshot and extends its time.
    ///
    /// # Errors
    /// [`QueryError::ExpiredToken`] if it is no longer pinned.
    pub fn get(&mut self, number: u64, now: Instant) -> Result<Arc<Snapshot>, QueryError> {
        self.expire(now);
        let at = self.entries.iter().position(|entry| entry.number == number);
        let mut entry = at.and_then(|at| self.entries.remove(at)).ok_or(QueryError::ExpiredToken)?;
        entry.until = now + Self::LIFETIME;
        let snapshot = Arc::clone(&entry.snapshot);
        self.entries.push_back(entry);
        Ok(snapshot)
    }

    /// Drops expired snapshots. Returns when the next snapshot expires, so that the caller calls again; `None` if no
    /// snapshot is left.
    pub fn expire(&mut self, now: Instant) -> Option<Instant> {
        while self.entries.front().is_some_and(|entry| entry.until <= now) {
            self.entries.pop_front();
        }
        if self.entries.is_empty() {
            self.replaced = 0;
        }
        self.entries.front().map(|entry| entry.until)
    }

    /// Sets whether memory pressure is high. If it becomes high, all pinned snapshots are dropped and the lower limit
    /// applies.
    pub fn set_tight(&mut self, tight: bool) {
        if tight && !self.tight {
            self.entries.clear();
            self.replaced = 0;
        }
        self.tight = tight;
    }

    /// Records that a body of this size is no longer in the newest snapshot.
    pub fn note_replaced(&mut self, bytes: usize) {
        self.replaced += bytes;
        let most = if self.tight { Self::TIGHT_BYTES } else { Self::BYTES };
        // The oldest snapshots hold the most replaced bodies.
        while self.oldest().is_some_and(|since| self.replaced - since > most) {
            let Some(since) = self.oldest() else { break };
            self.entries.retain(|entry| entry.since != since);
        }
    }

    fn oldest(&self) -> Option<usize> {
        self.entries.iter().map(|entry| entry.since).min()
    }

    /// Returns whether no snapshot is pinned. If so, replaced bodies need not be reported to [`Self::note_replaced`].
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the number of pinned snapshots.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }
}

impl Default for PinnedSnapshots {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry").field("number", &self.number).field("until", &self.until).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;
    use crate::testing::pods;
    use informer_hub_types::clock;

    fn snapshot() -> Arc<Snapshot> {
        Store::new(pods()).published().load_full()
    }

    fn pin(pinned: &mut PinnedSnapshots, number: u64, now: Instant) -> Arc<Snapshot> {
        let snapshot = snapshot();
        assert_eq!(pinned.pin(&snapshot, now, || number), number);
        snapshot
    }

    #[test]
    fn snapshot_is_pinned_for_five_minutes_after_its_last_use() {
        let (mut pinned, start) = (PinnedSnapshots::new(), clock::now());
        let first = pin(&mut pinned, 1, start);
        let almost = start + PinnedSnapshots::LIFETIME - Duration::from_millis(1);
        assert!(Arc::ptr_eq(&pinned.get(1, almost).unwrap(), &first));
        assert!(pinned.get(1, almost + PinnedSnapshots::LIFETIME - Duration::from_millis(1)).is_ok());
        assert_eq!(pinned.get(1, almost + 3 * PinnedSnapshots::LIFETIME).unwrap_err(), QueryError::ExpiredToken);
        assert!(pinned.is_empty());
    }

    #[test]
    fn full_set_drops_the_least_recently_used_snapshot() {
        let (mut pinned, now) = (PinnedSnapshots::new(), clock::now());
        let first = pin(&mut pinned, 1, now);
        assert_eq!(pinned.pin(&first, now, || unreachable!()), 1);
        for number in 2..=PinnedSnapshots::SNAPSHOTS as u64 {
            pin(&mut pinned, number, now);
        }
        pinned.get(1, now).unwrap();
        pin(&mut pinned, 100, now);
        assert_eq!(pinned.len(), PinnedSnapshots::SNAPSHOTS);
        assert!(pinned.get(1, now).is_ok() && pinned.get(100, now).is_ok() && pinned.get(3, now).is_ok());
        assert_eq!(pinned.get(2, now).unwrap_err(), QueryError::ExpiredToken);
    }

    #[test]
    fn memory_pressure_drops_all_snapshots_and_lowers_the_limit() {
        let (mut pinned, now) = (PinnedSnapshots::new(), clock::now());
        pin(&mut pinned, 1, now);
        pinned.set_tight(true);
        assert_eq!(pinned.get(1, now).unwrap_err(), QueryError::ExpiredToken);
        pin(&mut pinned, 2, now);
        pinned.set_tight(true);
        pinned.note_replaced(PinnedSnapshots::TIGHT_BYTES);
        assert!(pinned.get(2, now).is_ok());
        pinned.note_replaced(1);
        assert!(pinned.is_empty());
        pinned.set_tight(false);
        pin(&mut pinned, 3, now);
        pinned.note_replaced(PinnedSnapshots::TIGHT_BYTES + 1);
        assert!(pinned.get(3, now).is_ok());
    }

    #[test]
    fn replaced_bodies_drop_older_snapshots() {
        let (mut pinned, now) = (PinnedSnapshots::new(), clock::now());
        pin(&mut pinned, 1, now);
        pinned.note_replaced(PinnedSnapshots::BYTES / 2);
        pin(&mut pinned, 2, now);
        pinned.note_replaced(PinnedSnapshots::BYTES / 2);
        assert_eq!(pinned.len(), 2);
        pinned.note_replaced(1);
        assert_eq!(pinned.get(1, now).unwrap_err(), QueryError::ExpiredToken);
        assert!(pinned.get(2, now).is_ok());
        pinned.note_replaced(usize::MAX / 2);
        assert!(pinned.is_empty());
        assert_eq!(pinned.expire(now), None);
        assert_eq!(pinned.replaced, 0);
    }
}
