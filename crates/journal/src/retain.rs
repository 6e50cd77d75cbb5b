//! What goes: acknowledgements, and the files that nobody needs any more.

use std::io;

use super::ranges::Ranges;
use super::segment::Segment;
use super::write::{Journal, head};
use super::{AppendError, Seq};

/// So many accepted records may not be known to the cursor's file.
const UNKNOWN: u64 = 1000;
/// So many syncs at most go without writing acknowledgements after that has failed.
const LONGEST_PAUSE: u32 = 64;

impl<R> Journal<R> {
    /// Acknowledges records; a number that no pending record has is passed over. On disk at the next
    /// [`Journal::sync`]. Gives back how many were pending.
    pub fn ack(&mut self, seqs: impl IntoIterator<Item = Seq>) -> u64 {
        let before = self.pending;
        for seq in seqs {
            // By where they end: damage may leave one behind it that begins alike and has nothing.
            let at = self.segments.partition_point(|segment| segment.end <= seq);
            let is_last = at + 1 == self.segments.len();
            let Some(segment) = self.segments.get_mut(at) else { continue };
            if segment.ack(seq) {
                self.pending -= 1;
                self.acked.push(seq);
                if !is_last {
                    segment.forget();
                }
            }
        }
        before - self.pending
    }

    /// Lets go of what lies before a number: the oldest segments below it are removed once they are acknowledged, now or
    /// at a sync. Never takes back what an earlier call has said.
    pub fn release(&mut self, before: Seq) {
        self.keep_from = self.keep_from.max(before);
        self.remove_acked();
    }

    /// Removes the segments at the front that are acknowledged and released. What cannot be removed is tried again the
    /// next time.
    ///
    /// None behind one that has something pending: were the cursor's file damaged then, an older state of an object
    /// would come back and the newer one not.
    pub(super) fn remove_acked(&mut self) {
        self.remove_orphans();
        let sealed = &self.segments[..self.segments.len().saturating_sub(1)];
        let goes = |segment: &&Segment| segment.pending == 0 && segment.end <= self.keep_from;
        self.remove_first(sealed.iter().take_while(goes).count());
    }

    /// Removes so many segments at the front that are acknowledged; ends at one that cannot be.
    fn remove_first(&mut self, count: usize) {
        if count > 0 {
            self.write_cursor(true);
        }
        for _ in 0..count {
            if self.remove_segment(0).is_err() {
                return;
            }
        }
    }

    pub(super) fn remove_orphans(&mut self) {
        let disk = &self.disk;
        self.orphans
            .retain(|(path, _)| matches!(disk.remove(path), Err(error) if error.kind() != io::ErrorKind::NotFound));
    }

    fn remove_segment(&mut self, at: usize) -> io::Result<()> {
        // A merged one says that what it replaced is void, as long as that is there.
        if self.segments[at].name.merged && !self.orphans.is_empty() {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        // Removals reach the disk in their order: what a crash brings back is never an old record without the newer ones.
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

    /// Sees that `size` more bytes stay within the limit.
    pub(super) fn make_room(&mut self, size: u64) -> Result<(), AppendError> {
        let mut known = false;
        while self.bytes() + size + head() > self.limit {
            let Some((last, sealed)) = self.segments.split_last() else { break };
            if let Some(at) = sealed.iter().position(|segment| self.may_go(segment)) {
                if !known {
                    self.write_cursor(true);
                    known = true;
                }
                // One behind others only goes if the disk knows what is acknowledged.
                if at > 0
                    && let Some(error) = &self.cursor_error
                {
                    return Err(io::Error::new(error.kind(), "acknowledgements cannot be written").into());
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

    /// The disk is full: acknowledged segments at the front go, those too that a restart would have liked to know of; what
    /// would let them go may itself be waiting for room. The last one as well, where there is room for another's header.
    pub fn yield_acked(&mut self) {
        let is_spent = self.segments.last().is_some_and(|last| last.pending == 0 && last.bytes > head());
        if is_spent && self.sync_records().is_ok() {
            self.sealed = self.begin_segment().is_err() || self.sealed;
        }
        let sealed = &self.segments[..self.segments.len().saturating_sub(1)];
        self.remove_first(sealed.iter().take_while(|segment| self.may_go(segment)).count());
    }

    /// From now on what is acknowledged and not released goes only once [`Journal::let_go`] has said that it is written
    /// down elsewhere, even at the limit: [`AppendError::Retained`] asks for that. A merge does not ask.
    pub fn remember(&mut self) {
        self.remembers = true;
    }

    /// What [`Journal::visit_retained`] shows now is written down elsewhere.
    pub fn let_go(&mut self) {
        let sealed = self.segments.len().saturating_sub(1);
        self.segments[..sealed].iter_mut().for_each(|segment| segment.is_told |= segment.pending == 0);
    }

    /// Whether a segment that is acknowledged has nothing that is still needed after a restart.
    fn may_go(&self, segment: &Segment) -> bool {
        segment.pending == 0 && (!self.remembers || segment.is_told || segment.end <= self.keep_from)
    }

    /// Writes the acknowledgements, and syncs them where that is due.
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

    /// All numbers but those of pending records.
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
