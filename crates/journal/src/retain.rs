//! Acknowledging records, and removing segments that no reader and no restart needs.

use std::io;

use super::ranges::Ranges;
use super::segment::Segment;
use super::write::{Journal, head};
use super::{AppendError, Seq};

/// The cursor file is written even without new acknowledgements if this many records were accepted since its last
/// write.
const UNKNOWN: u64 = 1000;
/// After failures to write the cursor file, [`Journal::write_cursor`] skips attempts. At least one of this many
/// consecutive calls makes an attempt.
const LONGEST_PAUSE: u32 = 64;

impl<R> Journal<R> {
    /// Acknowledges the given records, and returns how many of them were pending. Ignores records that were not
    /// pending. The next [`Journal::sync`] or [`Journal::write_acks`] writes the acknowledgements.
    pub fn ack(&mut self, seqs: impl IntoIterator<Item = Seq>) -> u64 {
        let before = self.pending;
        for seq in seqs {
            // Searched by the end: after damage, an empty segment with the same start may precede it.
            let at = self.segments.partition_point(|segment| segment.end <= seq);
            let is_last = at + 1 == self.segments.len();
            let Some(segment) = self.segments.get_mut(at) else { continue };
            if segment.ack(seq) {
                self.pending -= 1;
                self.acked.push(seq);
                if !is_last {
                    segment.drop_entries();
                }
            }
        }
        before - self.pending
    }

    /// States that a restart does not need records below `before`. Segments that have only such records are removed
    /// once all their records are acknowledged, now or at a later sync. A call with a lower number than an earlier call
    /// has no effect.
    pub fn release(&mut self, before: Seq) {
        self.keep_from = self.keep_from.max(before);
        self.remove_acked();
    }

    /// Removes the oldest segments, up to the first one with records that are pending or not released. The next call
    /// retries failed removals.
    ///
    /// An acknowledged segment stays while an older segment has pending records. Otherwise damage to the cursor file
    /// could make acknowledged older states of an object pending again, while its newer states are gone.
    pub(super) fn remove_acked(&mut self) {
        self.remove_replaced_files();
        let sealed = &self.segments[..self.segments.len().saturating_sub(1)];
        let is_obsolete = |segment: &&Segment| segment.pending == 0 && segment.end <= self.keep_from;
        self.remove_first(sealed.iter().take_while(is_obsolete).count());
    }

    /// Removes the first `count` segments, which must be acknowledged, up to the first failure.
    fn remove_first(&mut self, count: usize) {
        if count > 0 {
            self.write_cursor(true);
        }
        for removed in 0..count {
            if self.remove_segment(0).is_err() {
                return;
            }
            if removed == 0 && self.cursor_error.is_some() {
                // The removal has made space. Without these acknowledgements, the records would count as lost.
                self.cursor_pause = 0;
                self.write_cursor(true);
            }
        }
    }

    pub(super) fn remove_replaced_files(&mut self) {
        let disk = &self.disk;
        self.replaced_files
            .retain(|(path, _)| matches!(disk.remove(path), Err(error) if error.kind() != io::ErrorKind::NotFound));
    }

    fn remove_segment(&mut self, at: usize) -> io::Result<()> {
        // While files of replaced segments exist, the merged segment that invalidates them must exist too.
        if self.segments[at].name.merged && !self.replaced_files.is_empty() {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        // Removals reach the disk in order, so a crash never brings back an old record without the newer ones.
        self.sync_names()?;
        match self.disk.remove(&self.segments[at].path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let gone = self.segments.remove(at);
        self.reading.take_if(|(generation, _)| *generation == gone.name.generation);
        self.removals_dirty = true;
        self.sync_names()
    }

    fn sync_names(&mut self) -> io::Result<()> {
        if self.dir_dirty || self.removals_dirty {
            self.disk.sync_dir(&self.dir)?;
            (self.dir_dirty, self.removals_dirty) = (false, false);
        }
        Ok(())
    }

    /// Frees space so that `size` more bytes stay within the limit.
    pub(super) fn make_room(&mut self, size: u64) -> Result<(), AppendError> {
        let mut known = false;
        while self.bytes() + size + head() > self.limit {
            let Some((last, sealed)) = self.segments.split_last() else { break };
            if let Some(at) = sealed.iter().position(|segment| self.is_removable(segment)) {
                if !known {
                    self.write_cursor(true);
                    known = true;
                }
                // A segment behind others is removed only if its acknowledgements are on disk.
                if at > 0
                    && let Some(error) = &self.cursor_error
                {
                    return Err(io::Error::new(error.kind(), format!("cannot write acknowledgements: {error}")).into());
                }
                self.remove_segment(at)?;
            } else if sealed.iter().any(|segment| segment.pending == 0) {
                return Err(AppendError::Retained);
            } else if last.pending == 0 && last.bytes > head() {
                self.sync_records()?;
                self.sealed = true;
                self.begin_segment()?;
            } else {
                return Err(AppendError::Full { bytes: self.bytes(), limit: self.limit, pending: self.pending });
            }
        }
        Ok(())
    }

    /// Frees space on a full disk: removes segments whose records are all acknowledged, the oldest first.
    ///
    /// - Segments behind one with pending records are removed only if the acknowledgements can be written.
    /// - Segments that a restart would use are removed too, unless [`Journal::retain_acked`] was called.
    /// - The last segment is removed too if a new segment can be started.
    pub fn drop_acked(&mut self) {
        let is_spent = self.segments.last().is_some_and(|last| last.pending == 0 && last.bytes > head());
        if is_spent && self.sync_records().is_ok() {
            self.sealed = self.begin_on_full_disk().is_err() || self.sealed;
        }
        let sealed = &self.segments[..self.segments.len().saturating_sub(1)];
        self.remove_first(sealed.iter().take_while(|segment| self.is_removable(segment)).count());
        self.remove_behind_pending();
    }

    /// Writes the acknowledgements. If that succeeds, removes all removable segments, including those behind a segment
    /// with pending records.
    fn remove_behind_pending(&mut self) {
        let removable = |journal: &Self| {
            let sealed = &journal.segments[..journal.segments.len().saturating_sub(1)];
            sealed.iter().position(|segment| journal.is_removable(segment))
        };
        if removable(self).is_some() {
            self.write_cursor(true);
        }
        while self.cursor_error.is_none()
            && let Some(at) = removable(self)
            && self.remove_segment(at).is_ok()
        {}
    }

    /// Keeps acknowledged records that a restart needs ([`Journal::release`]) even at the size limit, until
    /// [`Journal::mark_saved`]. Appends then fail with [`AppendError::Retained`]. Merges still drop these records.
    pub fn retain_acked(&mut self) {
        self.retains_acked = true;
    }

    /// Allows removing the records of [`Journal::visit_retained`], which the caller has saved elsewhere.
    pub fn mark_saved(&mut self) {
        let sealed = self.segments.len().saturating_sub(1);
        self.segments[..sealed].iter_mut().for_each(|segment| segment.is_saved_elsewhere |= segment.pending == 0);
    }

    /// Returns whether all records of a segment are acknowledged and need not be kept for a restart.
    fn is_removable(&self, segment: &Segment) -> bool {
        segment.pending == 0 && (!self.retains_acked || segment.is_saved_elsewhere || segment.end <= self.keep_from)
    }

    /// Writes the acknowledgements, usually without an fsync: they survive the end of the process, but perhaps not a
    /// power loss. Then removes segments that are no longer needed. [`Journal::sync`] includes both steps.
    pub fn write_acks(&mut self) {
        self.write_cursor(false);
        self.remove_acked();
    }

    /// Writes the acknowledgements to the cursor file. Syncs it if `at_once` is set or many are unsynced.
    pub(super) fn write_cursor(&mut self, at_once: bool) {
        if self.cursor_pause > 0 {
            self.cursor_pause -= 1;
            return;
        }
        let written = self.try_write_cursor(at_once);
        self.cursor_failures = if written.is_ok() { 0 } else { self.cursor_failures + 1 };
        self.cursor_pause = (1 << self.cursor_failures.min(30)).min(LONGEST_PAUSE) - 1;
        self.cursor_error = written.err();
    }

    fn try_write_cursor(&mut self, at_once: bool) -> io::Result<()> {
        let news = !self.acked.is_empty() || self.accepted - self.accepted_written >= UNKNOWN;
        let late = at_once && self.accepted > self.accepted_written;
        if self.cursor.wants_all() && (news || late || self.cursor_failures > 0) {
            let all = self.all_acked();
            self.cursor.rewrite(&*self.disk, self.accepted, &all)?;
        } else if news || late {
            self.acked.sort_unstable();
            self.cursor.add(self.accepted, &self.acked.iter().copied().collect())?;
        }
        self.acked.clear();
        self.accepted_written = self.accepted;
        self.cursor.sync(at_once)
    }

    /// Returns all used sequence numbers except those of pending records.
    pub(super) fn all_acked(&self) -> Ranges {
        let (mut all, mut from) = (Ranges::default(), 0);
        for segment in &self.segments {
            let mut at = 0;
            while let Some(pending) = segment.next_pending(at) {
                let seq = segment.seq(pending);
                all.insert(from..seq);
                (from, at) = (seq + 1, pending + 1);
            }
        }
        all.insert(from..self.next);
        all
    }
}
