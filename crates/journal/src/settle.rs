//! Second part of [`Journal::open`]: makes the records durable, and prepares the last segment for appends.
//!
//! All segments but the last are durable, since each was synced before the next one was started. Of the last segment,
//! only the records below `accepted` in the cursor file are known to be synced. After a failed fsync, later records may
//! exist in the page cache only, and another fsync does not write them.
//!
//! These records are therefore written again, to a new segment. If the disk is too full for one, they are written to
//! their old place in the file.

use std::io;

use super::open::failed;
use super::segment::{Name, split_record};
use super::write::{Journal, head};
use super::{JournalError, Seq};
use informer_hub_disk::{self as disk, Open, frame};

impl<R> Journal<R> {
    /// Makes the records durable that [`Journal::open`] has found, and prepares the last segment for appends. Records
    /// below `accepted` are known to be durable. If a write fails, the next sync or append retries, and the records can
    /// be read meanwhile.
    pub(super) fn settle(&mut self, accepted: Seq) -> Result<(), JournalError> {
        self.load_unsynced(accepted)?;
        if self.unsynced.is_empty() {
            self.resume_last()?;
        }
        if self.sealed && self.begin_segment().is_err() && self.overwrite_unsynced().is_ok() {
            // If this fails, the next append starts a new segment.
            let _ = self.resume_last();
        }
        self.accepted = accepted;
        if self.sync_records().is_err() {
            self.accept_earlier_segments();
        }
        self.write_cursor(true);
        Ok(())
    }

    /// Loads the records from `accepted` on, which may not be synced, to write them again.
    fn load_unsynced(&mut self, accepted: Seq) -> Result<(), JournalError> {
        let Some(last) = self.segments.last_mut() else { return Ok(()) };
        let unknown = last.position(accepted);
        last.end = self.next;
        if last.name.merged || unknown >= last.entries.len() {
            return Ok(());
        }
        let from = last.place(unknown).0;
        let file = self.disk.open(&last.path, Open::Read).map_err(failed(&last.path, "open"))?;
        self.unsynced = vec![0; usize::try_from(last.synced - from).unwrap_or(0)];
        disk::read_exact_at(&*file, from, &mut self.unsynced).map_err(failed(&last.path, "read"))?;
        last.synced = from;
        Ok(())
    }

    /// Prepares the last segment, which must be synced, for further appends if there is space in it.
    fn resume_last(&mut self) -> Result<(), JournalError> {
        let Some(last) = self.segments.last_mut() else { return Ok(()) };
        let mut file = self.disk.open(&last.path, Open::Append).map_err(failed(&last.path, "open"))?;
        let whole = last.synced == last.bytes || file.truncate(last.synced).is_ok();
        if whole {
            last.bytes = last.synced;
        }
        let fit = whole && !last.name.merged && last.bytes < self.segment_bytes && last.bytes >= head();
        if fit && last.name.can_hold(self.next, 0) {
            last.file = Some(file);
            self.sealed = false;
        } else {
            last.drop_entries();
        }
        Ok(())
    }

    /// Writes the unsynced records again at their place in the file, and syncs them. This needs no free space on most
    /// file systems.
    fn overwrite_unsynced(&mut self) -> io::Result<()> {
        let Some(last) = self.segments.last_mut().filter(|_| !self.unsynced.is_empty()) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        // A failed attempt to start a segment may have left its file, whose name invalidates these records.
        let is_newer = |name: &String| name.parse::<Name>().is_ok_and(|name| name.generation >= self.next_generation);
        if self.disk.list(&self.dir)?.iter().any(is_newer) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        for at in last.position_of(last.synced)..last.entries.len() {
            let start = usize::try_from(last.place(at).0 - last.synced).map_err(io::Error::other)?;
            let payload = self.unsynced.get(start..).and_then(|bytes| frame::read(last.salt, bytes));
            if payload.and_then(split_record).is_none_or(|(seq, _)| seq != last.seq(at)) {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        self.disk.open(&last.path, Open::Append)?.overwrite(last.synced, &self.unsynced)?;
        last.synced += self.unsynced.len() as u64;
        self.unsynced = Vec::new();
        Ok(())
    }

    /// Marks the records of all segments except the last as accepted (durable). If no record is unsynced, also marks
    /// those of the last segment. Does nothing if the directory cannot be synced.
    fn accept_earlier_segments(&mut self) {
        let Some(last) = self.segments.last() else { return };
        if self.dir_dirty && self.disk.sync_dir(&self.dir).is_err() {
            return;
        }
        (self.dir_dirty, self.removals_dirty) = (false, false);
        self.accepted = self.accepted.max(if self.unsynced.is_empty() { self.next } else { last.name.first });
    }
}
