//! What happens to a journal whose files somebody removes or replaces under it.
//!
//! A file that is open can be read and appended to after that, so nothing fails; but it is gone with the process. So at
//! each sync it is looked whether the segment that is appended to is still where it was put. If it is not, what it has is
//! written anew; what was only in other files is lost.

use std::io;

use super::read::read_upto;
use super::write::{Journal, head};

impl<R> Journal<R> {
    /// Sees whether its files are where they were put, and writes anew what can be had of them where they are not. As
    /// [`Journal::sync`] does, for when there is nothing to sync. Costs a call of the system.
    ///
    /// # Errors
    /// The disk's; the next call tries again. What has been appended counts as not synced until then.
    pub fn tend(&mut self) -> io::Result<()> {
        if self.is_in_place() {
            self.is_away = false;
            return Ok(());
        }
        if !std::mem::replace(&mut self.is_away, true) {
            self.replaced += 1;
            tracing::error!(dir = %self.dir.display(), "the files of a journal were removed or replaced under the running hub");
        }
        let lost = self.lost;
        self.begin_again()?;
        let (dir, lost) = (self.dir.display(), self.lost - lost);
        tracing::error!(%dir, lost, kept = self.pending, "the journal goes on in new files, with what could be had of the old ones");
        self.is_away = false;
        Ok(())
    }

    /// How often its files were found to be gone or replaced, since it was opened.
    #[must_use]
    pub fn replaced(&self) -> u64 {
        self.replaced
    }

    fn is_in_place(&self) -> bool {
        let Some(last) = self.segments.last().filter(|_| !self.is_missing) else { return !self.is_missing };
        match &last.file {
            Some(file) => file.is_at(&last.path),
            // A disk that does not answer is another matter.
            None => self.disk.list(&self.dir).map_or(true, |names| names.contains(&last.name.to_string())),
        }
    }

    fn begin_again(&mut self) -> io::Result<()> {
        self.disk.create_dir_all(&self.dir)?;
        // The journal's name, its sink's, that of all sinks.
        for above in self.dir.ancestors().skip(1).take(3) {
            self.disk.sync_dir(above)?;
        }
        let names = self.disk.list(&self.dir)?;
        let is_there = |name: String| names.contains(&name);
        self.unsynced.clear();
        if let Some(last) = self.segments.last_mut()
            && let Some(file) = &last.file
        {
            // All of it, as if none were synced.
            let mut bytes = vec![0; usize::try_from(last.bytes.saturating_sub(head())).map_err(io::Error::other)?];
            let read = read_upto(&**file, head(), &mut bytes)?;
            bytes.truncate(read);
            (self.unsynced, last.synced) = (bytes, 0);
        }
        let last = self.segments.len().saturating_sub(1);
        let keeps = |(at, segment): (usize, &super::segment::Segment)| {
            at == last && segment.file.is_some() || is_there(segment.name.to_string())
        };
        let kept: Vec<_> = self.segments.iter().enumerate().map(keeps).collect();
        let mut kept = kept.into_iter();
        self.segments.retain(|_| kept.next().unwrap_or(true));
        self.forget_place();
        self.sealed = true;
        self.begin_segment()?;
        self.is_missing = false;
        // Of what it had all that could be had is in the one behind it.
        let old = self.segments.len().checked_sub(2).filter(|at| !is_there(self.segments[*at].name.to_string()));
        old.map(|at| self.segments.remove(at));
        self.count_lost();
        self.disk.sync_dir(&self.dir)?;
        self.dir_dirty = false;
        self.accepted = self.next;
        self.write_cursor(true);
        Ok(())
    }

    /// What was known of files that are gone.
    fn forget_place(&mut self) {
        self.reading = None;
        self.orphans.clear();
        (self.removals_dirty, self.dir_dirty) = (false, true);
        (self.cursor_failures, self.cursor_pause) = (0, 0);
        self.cursor.forget();
        self.accepted_written = 0;
    }

    /// What is pending is what segments have.
    fn count_lost(&mut self) {
        let there = self.segments.iter().map(|segment| segment.pending as u64).sum();
        self.lost += self.pending.saturating_sub(there);
        self.pending = there;
    }
}
