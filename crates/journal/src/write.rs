//! The journal itself, and how records get into it.

use std::io;
use std::marker::PhantomData;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::cursor::Cursor;
use super::segment::{self, Header, Name, Segment};
use super::{AppendError, JournalParams, MAX_SEQ, Record, Seq};
use informer_hub_disk::frame::{self, Item, Reader};
use informer_hub_disk::{self as disk, Disk, DiskFile, Open};

/// More than this is not held back for a sync that somebody else asks for.
const UNSYNCED: usize = 16 << 20;
const SMALLEST_SEGMENT: u64 = 4 << 10;
const LARGEST_SEGMENT: u64 = 1 << 30;

/// A durable log for one reader; the [module](super) has the contract.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a state of its own")]
pub struct Journal<R> {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) dir: PathBuf,
    pub(super) limit: u64,
    pub(super) segment_bytes: u64,
    /// In the order of their records. The last one is appended to.
    pub(super) segments: Vec<Segment>,
    /// The frames of the last segment that are not synced.
    pub(super) unsynced: Vec<u8>,
    pub(super) next: Seq,
    pub(super) next_generation: u64,
    /// The last segment takes nothing any more: it is long enough, or cannot be trusted.
    pub(super) sealed: bool,
    /// New names are not synced.
    pub(super) dir_dirty: bool,
    /// That names are gone is not synced.
    pub(super) removals_dirty: bool,
    pub(super) cursor: Cursor,
    /// Acknowledged and not written.
    pub(super) acked: Vec<Seq>,
    pub(super) cursor_error: Option<io::Error>,
    /// Writing acknowledgements has failed so often in a row, and is not tried again for so many syncs.
    pub(super) cursor_failures: u32,
    pub(super) cursor_pause: u32,
    /// Everything below is durable.
    pub(super) accepted: Seq,
    /// The one that the cursor's file knows.
    pub(super) accepted_written: Seq,
    pub(super) keep_from: Seq,
    /// Whether what is acknowledged and not released is held at the limit too.
    pub(super) remembers: bool,
    pub(super) pending: u64,
    pub(super) lost: u64,
    /// How often its files were found to be gone, or others'.
    pub(super) replaced: u64,
    /// Whether they are now, which has been said.
    pub(super) is_away: bool,
    /// Whether its directory was not there when a segment was to be made.
    pub(super) is_missing: bool,
    /// Merged away, and not removed yet: their files and bytes.
    pub(super) orphans: Vec<(PathBuf, u64)>,
    /// Generations of merges that may be on disk though they were given up.
    pub(super) abandoned: Vec<u64>,
    /// The segment that was read last.
    pub(super) reading: Option<(u64, Box<dyn DiskFile>)>,
    pub(super) records: PhantomData<fn() -> R>,
}

impl<R> Journal<R> {
    pub(super) fn empty(disk: Arc<dyn Disk>, dir: &Path, params: JournalParams) -> Self {
        let longest = LARGEST_SEGMENT.min(params.limit_bytes / 4).max(SMALLEST_SEGMENT);
        Self {
            disk,
            dir: dir.to_owned(),
            limit: params.limit_bytes,
            segment_bytes: params.segment_bytes.clamp(SMALLEST_SEGMENT, longest),
            segments: Vec::new(),
            unsynced: Vec::new(),
            next: 0,
            next_generation: 0,
            sealed: true,
            dir_dirty: true,
            removals_dirty: false,
            cursor: Cursor::new(dir, params.limit_bytes),
            acked: Vec::new(),
            cursor_error: None,
            cursor_failures: 0,
            cursor_pause: 0,
            accepted: 0,
            accepted_written: 0,
            keep_from: 0,
            remembers: false,
            pending: 0,
            lost: 0,
            replaced: 0,
            is_away: false,
            is_missing: false,
            orphans: Vec::new(),
            abandoned: Vec::new(),
            reading: None,
            records: PhantomData,
        }
    }

    /// The number that the next record gets.
    #[must_use]
    pub fn next_seq(&self) -> Seq {
        self.next
    }

    /// The lowest number that is not acknowledged; [`Journal::next_seq`] when all are.
    #[must_use]
    pub fn first_pending(&self) -> Seq {
        let first = self.segments.iter().find_map(|segment| segment.next_pending(0).map(|at| segment.seq(at)));
        first.unwrap_or(self.next)
    }

    /// Records that are not acknowledged.
    #[must_use]
    pub fn pending(&self) -> u64 {
        self.pending
    }

    /// Bytes of its files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let orphans = self.orphans.iter().map(|(_, bytes)| *bytes).sum::<u64>();
        self.cursor.bytes() + self.segments.iter().map(|segment| segment.bytes).sum::<u64>() + orphans
    }

    /// What [`Journal::bytes`] may be.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Records that were accepted and found to be damaged, since it was opened and then.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Everything with a lower number is durable.
    #[must_use]
    pub fn accepted(&self) -> Seq {
        self.accepted
    }

    /// Whether all that was appended is durable, and what was found when it was opened.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.unsynced.is_empty() && !self.dir_dirty
    }

    /// Why acknowledgements could not be written at the last sync: until they are, a restart repeats them.
    #[must_use]
    pub fn cursor_error(&self) -> Option<&io::Error> {
        self.cursor_error.as_ref()
    }

    /// Makes everything durable that was appended; then it is accepted. Acknowledgements are written too, and segments
    /// removed that nobody needs.
    ///
    /// # Errors
    /// The disk's. What was appended since the last success is not durable then; it is kept and written anew, somewhere
    /// else, by the next call. That acknowledgements cannot be written is no error: see [`Journal::cursor_error`].
    pub fn sync(&mut self) -> io::Result<()> {
        self.tend()?;
        let idle = self.is_synced();
        self.sync_records()?;
        self.write_cursor(idle);
        self.remove_acked();
        Ok(())
    }

    pub(super) fn sync_records(&mut self) -> io::Result<()> {
        if !self.unsynced.is_empty() && (self.sealed || !self.sync_last()) {
            // What the system failed to write it may have thrown away: nothing but writing it again helps.
            self.begin_segment()?;
        }
        self.unsynced.clear();
        self.unsynced.shrink_to(UNSYNCED / 16);
        if self.dir_dirty {
            self.disk.sync_dir(&self.dir)?;
            (self.dir_dirty, self.removals_dirty) = (false, false);
        }
        self.accepted = self.next;
        Ok(())
    }

    fn sync_last(&mut self) -> bool {
        let Some(last) = self.segments.last_mut() else { return false };
        let synced = last.file.as_ref().is_some_and(|file| file.sync().is_ok());
        if synced {
            last.synced = last.bytes;
        } else {
            self.sealed = true;
        }
        synced
    }

    /// Begins a segment; with what is not synced, durably then, and the one before keeps what is.
    ///
    /// After an error all is as it was, but for a file that the next attempt puts its own in place of.
    pub(super) fn begin_segment(&mut self) -> io::Result<()> {
        let (keep, first) = match self.segments.last() {
            Some(last) => {
                let keep = last.entries.partition_point(|entry| u64::from(entry.offset) < last.synced);
                (keep, if keep < last.entries.len() { last.seq(keep) } else { self.next })
            }
            None => (0, self.next),
        };
        let mut segment = Segment::new(&self.dir, Name { first, generation: self.next_generation, merged: false });
        let bytes = self.moved(&mut segment)?;
        let made = self.make(&segment.path, &bytes);
        self.is_missing |= matches!(&made, Err(error) if error.kind() == io::ErrorKind::NotFound);
        segment.file = Some(made?);
        if let Some(last) = self.segments.last_mut() {
            last.split_off(keep);
            last.end = first;
            if let Some(mut file) = last.file.take() {
                // Best effort: what stays behind the synced part is void.
                let _ = file.truncate(last.synced);
                last.bytes = file.len().unwrap_or(last.bytes).max(last.synced);
            }
            last.forget();
        }
        self.unsynced.clear();
        (segment.bytes, segment.synced) = (bytes.len() as u64, bytes.len() as u64);
        segment.end = self.next;
        self.segments.push(segment);
        self.next_generation += 1;
        (self.sealed, self.dir_dirty) = (false, true);
        Ok(())
    }

    /// The bytes of a new segment that has what is not synced.
    fn moved(&self, segment: &mut Segment) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        frame::write_with(segment.salt, &mut bytes, |out| Header::default().encode(out)).map_err(io::Error::other)?;
        let Some(last) = self.segments.last() else { return Ok(bytes) };
        let mut reader = Reader::of_slice(&self.unsynced, last.salt);
        while let Some(item) = reader.next()? {
            let Item::Frame { payload, .. } = item else { continue };
            let Some((seq, _)) = segment::split_record(payload) else { continue };
            let at = last.position(seq);
            // Only the first of its number counts.
            if seq >= segment.end && at < last.entries.len() && last.seq(at) == seq {
                segment.push(seq, bytes.len() as u64, last.is_acked(at))?;
                frame::write(segment.salt, payload, &mut bytes).map_err(io::Error::other)?;
            }
        }
        Ok(bytes)
    }

    /// Makes a segment's file.
    fn make(&self, path: &Path, bytes: &[u8]) -> io::Result<Box<dyn DiskFile>> {
        if self.unsynced.is_empty() {
            return self.create(path, bytes);
        }
        // By its name it says that what the one before has of this is void: it must be whole when it gets it.
        disk::replace(&*self.disk, path, bytes)?;
        self.disk.open(path, Open::Append)
    }

    fn create(&self, path: &Path, bytes: &[u8]) -> io::Result<Box<dyn DiskFile>> {
        let mut file = self.disk.open(path, Open::Append)?;
        file.truncate(0)?;
        if let Err(error) = file.append(bytes) {
            // A file that stays is written over; one that is gone leaves the space to others.
            let _ = self.disk.remove(path);
            return Err(error);
        }
        Ok(file)
    }
}

impl<R: Record> Journal<R> {
    /// Adds records, which get the numbers that come back. They are accepted after the next [`Journal::sync`].
    ///
    /// # Errors
    /// Nothing is added then.
    pub fn append(&mut self, records: &[R]) -> Result<Range<Seq>, AppendError> {
        if records.is_empty() {
            return Ok(self.next..self.next);
        }
        if MAX_SEQ - self.next.min(MAX_SEQ) < records.len() as u64 {
            // Only damage comes this far, and what has such a number is not read back.
            return Err(io::Error::other("the journal has no numbers left, remove it").into());
        }
        if self.unsynced.len() > UNSYNCED {
            self.sync_records()?;
        }
        // Only damage makes numbers leap: there are never more records in a segment than bytes.
        let is_far = |last: &Segment| !last.name.can_hold(self.next + LARGEST_SEGMENT, 0);
        if self.segments.last().is_some_and(is_far) {
            self.sync_records()?;
            self.sealed = true;
        }
        if self.sealed {
            self.begin_segment()?;
        }
        let mark = self.unsynced.len();
        let added = self.encode(records).and_then(|starts| self.place(mark, &starts));
        if added.is_err() {
            self.unsynced.truncate(mark);
        }
        if matches!(&added, Err(AppendError::Disk(error)) if error.kind() == io::ErrorKind::StorageFull) {
            self.yield_acked();
        }
        added
    }

    /// Appends the frames to what is not synced; where each begins, from the first.
    fn encode(&mut self, records: &[R]) -> Result<Vec<usize>, AppendError> {
        let salt = self.segments.last().map_or(0, |last| last.salt);
        let (mark, most) = (self.unsynced.len(), LARGEST_SEGMENT.min(self.limit.saturating_sub(2 * head())));
        let mut starts = Vec::with_capacity(records.len());
        for (seq, record) in (self.next..).zip(records) {
            starts.push(self.unsynced.len() - mark);
            let framed = segment::write_record(salt, seq, &mut self.unsynced, |out| record.encode(out));
            framed.map_err(|long| AppendError::TooLarge { bytes: long.0 as u64, most: frame::MAX_PAYLOAD as u64 })?;
            let bytes = (self.unsynced.len() - mark) as u64;
            if bytes > most {
                return Err(AppendError::TooLarge { bytes, most });
            }
        }
        Ok(starts)
    }

    /// Writes the frames behind `mark` where they fit.
    fn place(&mut self, mark: usize, starts: &[usize]) -> Result<Range<Seq>, AppendError> {
        let size = (self.unsynced.len() - mark) as u64;
        let fits = |last: &Segment| last.bytes <= head() || last.bytes + size <= self.segment_bytes;
        let stays = self.segments.last().is_some_and(fits);
        if stays && self.bytes() + size + head() <= self.limit {
            return self.write(mark, starts);
        }
        let (frames, salt) = (self.unsynced.split_off(mark), self.segments.last().map_or(0, |last| last.salt));
        self.make_room(size)?;
        if !stays && self.segments.last().is_some_and(|last| last.bytes > head()) {
            self.sync_records()?;
            self.sealed = true;
            self.begin_segment()?;
        }
        let mark = self.unsynced.len();
        let new_salt = self.segments.last().map_or(0, |last| last.salt);
        let mut reader = Reader::of_slice(&frames, salt);
        while let Some(Item::Frame { payload, .. }) = reader.next()? {
            frame::write(new_salt, payload, &mut self.unsynced).map_err(io::Error::other)?;
        }
        let written = self.write(mark, starts);
        if written.is_err() {
            self.unsynced.truncate(mark);
        }
        written
    }

    fn write(&mut self, mark: usize, starts: &[usize]) -> Result<Range<Seq>, AppendError> {
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        let last = self.segments.last_mut().ok_or_else(gone)?;
        let new = &self.unsynced[mark..];
        let file = last.file.as_mut().ok_or_else(gone)?;
        if let Err(error) = file.append(new) {
            self.sealed |= file.truncate(last.bytes).is_err();
            return Err(error.into());
        }
        let (at, first) = (last.bytes, self.next);
        last.bytes += new.len() as u64;
        for (seq, start) in (first..).zip(starts) {
            last.push(seq, at + *start as u64, false)?;
        }
        self.pending += starts.len() as u64;
        self.next += starts.len() as u64;
        Ok(first..self.next)
    }
}

/// Bytes of a segment without records.
pub(super) const fn head() -> u64 {
    (frame::HEADER + 1 + 2 * size_of::<u64>()) as u64
}
