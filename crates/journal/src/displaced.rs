//! Detection and repair of journal files that are removed or replaced while the journal is open.
//!
//! An open file stays readable and writable after its removal, so no call fails, but its content is lost when the
//! process ends. Each sync therefore checks whether the current segment is still at its path. If not, its records are
//! written to a new segment. If files of other segments are gone, their records are lost.

use std::io;

use super::read::read_upto;
use super::write::{Journal, head};

impl<R> Journal<R> {
    /// Checks whether the journal's files were removed or replaced. If so, writes the readable records to new files.
    /// Costs one system call.
    ///
    /// [`Journal::sync`] includes this check. Call this method at times when there is nothing to sync.
    ///
    /// # Errors
    /// I/O errors. The next call retries. Until a call succeeds, the records are not durable.
    pub fn check_files(&mut self) -> io::Result<()> {
        if self.is_in_place() {
            self.is_displaced = false;
            return Ok(());
        }
        if !std::mem::replace(&mut self.is_displaced, true) {
            self.replaced += 1;
            tracing::error!(
                dir = %self.dir.display(),
                "journal files were removed or replaced while the hub is running; writing new ones"
            );
        }
        let lost = self.lost;
        self.rebuild()?;
        let (dir, lost) = (self.dir.display(), self.lost - lost);
        tracing::error!(
            %dir, lost, kept = self.pending,
            "rebuilt the journal in new files from the records that were readable"
        );
        self.is_displaced = false;
        Ok(())
    }

    /// Returns how often the journal's files were found removed or replaced since the journal was opened.
    #[must_use]
    pub fn replaced(&self) -> u64 {
        self.replaced
    }

    fn is_in_place(&self) -> bool {
        let Some(last) = self.segments.last().filter(|_| !self.is_missing) else { return !self.is_missing };
        match &last.file {
            Some(file) => file.is_at(&last.path),
            // An I/O error does not mean that the file is gone.
            None => self.disk.list(&self.dir).map_or(true, |names| names.contains(&last.name.to_string())),
        }
    }

    fn rebuild(&mut self) -> io::Result<()> {
        self.disk.create_dir_all(&self.dir)?;
        // Makes the names of the journal's directory and of two above durable.
        for above in self.dir.ancestors().skip(1).take(3) {
            self.disk.sync_dir(above)?;
        }
        let names = self.disk.list(&self.dir)?;
        let exists = |name: String| names.contains(&name);
        self.unsynced.clear();
        if let Some(last) = self.segments.last_mut()
            && let Some(file) = &last.file
        {
            // All records are written again, as if none were synced.
            let mut bytes = vec![0; usize::try_from(last.bytes.saturating_sub(head())).map_err(io::Error::other)?];
            let read = read_upto(&**file, head(), &mut bytes)?;
            bytes.truncate(read);
            (self.unsynced, last.synced) = (bytes, 0);
        }
        let last = self.segments.len().saturating_sub(1);
        let keeps = |(at, segment): (usize, &super::segment::Segment)| {
            at == last && segment.file.is_some() || exists(segment.name.to_string())
        };
        let kept: Vec<_> = self.segments.iter().enumerate().map(keeps).collect();
        let mut kept = kept.into_iter();
        self.segments.retain(|_| kept.next().unwrap_or(true));
        self.reset_file_state();
        self.sealed = true;
        self.begin_segment()?;
        self.is_missing = false;
        // The new segment contains all readable records of the old one.
        let old = self.segments.len().checked_sub(2).filter(|at| !exists(self.segments[*at].name.to_string()));
        old.map(|at| self.segments.remove(at));
        self.count_lost();
        self.disk.sync_dir(&self.dir)?;
        self.dir_dirty = false;
        self.accepted = self.next;
        self.write_cursor(true);
        Ok(())
    }

    /// Drops the handles of open files and the list of files to remove, since these files may be gone.
    fn reset_file_state(&mut self) {
        self.reading = None;
        self.replaced_files.clear();
        (self.removals_dirty, self.dir_dirty) = (false, true);
        (self.cursor_failures, self.cursor_pause) = (0, 0);
        self.cursor.reset();
        self.accepted_written = 0;
    }

    /// Counts the pending records that are in the remaining segments. The other pending records are added to the count
    /// of lost records.
    fn count_lost(&mut self) {
        let there = self.segments.iter().map(|segment| segment.pending as u64).sum();
        self.lost += self.pending.saturating_sub(there);
        self.pending = there;
    }
}
