//! The journal on disk: appends records to its last segment, and syncs them.

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

/// Number of unsynced bytes above which an append syncs first.
const UNSYNCED: usize = 16 << 20;
const SMALLEST_SEGMENT: u64 = 4 << 10;
const LARGEST_SEGMENT: u64 = 1 << 30;

/// Durable log with one reader; see the [module](super) for its contract.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a state of its own")]
pub struct Journal<R> {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) dir: PathBuf,
    pub(super) limit: u64,
    pub(super) segment_bytes: u64,
    /// Segments in record order. Records are appended to the last one.
    pub(super) segments: Vec<Segment>,
    /// Copy of the last segment's frames that are not synced. If a sync fails, they are written again.
    pub(super) unsynced: Vec<u8>,
    pub(super) next: Seq,
    pub(super) next_generation: u64,
    /// Whether the last segment takes no more records, because it has reached its size or a write to it has failed.
    pub(super) sealed: bool,
    /// Whether names of new files are not yet durable, so that the directory must be synced.
    pub(super) dir_dirty: bool,
    /// Whether removals of files are not yet durable, so that the directory must be synced.
    pub(super) removals_dirty: bool,
    pub(super) cursor: Cursor,
    /// Sequence numbers that are acknowledged but not yet written to the cursor file.
    pub(super) acked: Vec<Seq>,
    pub(super) cursor_error: Option<io::Error>,
    /// Number of consecutive failures to write the acknowledgements. The next field, `cursor_pause`, is the number of
    /// calls of [`Journal::write_cursor`] to skip before the next attempt.
    pub(super) cursor_failures: u32,
    pub(super) cursor_pause: u32,
    /// Sequence number below which all records are durable.
    pub(super) accepted: Seq,
    /// Value of `accepted` in the cursor file.
    pub(super) accepted_written: Seq,
    pub(super) keep_from: Seq,
    /// Whether acknowledged records that a restart needs are kept even if the size limit is reached.
    pub(super) retains_acked: bool,
    pub(super) pending: u64,
    pub(super) lost: u64,
    pub(super) replaced: u64,
    /// Whether the files are known to be removed or replaced, so that this is logged once.
    pub(super) is_displaced: bool,
    /// Whether the directory was missing when a segment was to be created. If so, [`Journal::check_files`] creates it
    /// again.
    pub(super) is_missing: bool,
    /// Files replaced by a merge and not yet removed, with their sizes in bytes.
    pub(super) replaced_files: Vec<(PathBuf, u64)>,
    /// Generations of merged segments that could not be written. Their files may be on disk, so the next merged segment
    /// lists them among those that it replaces.
    pub(super) abandoned: Vec<u64>,
    /// Generation and open file of the segment that was read last.
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
            retains_acked: false,
            pending: 0,
            lost: 0,
            replaced: 0,
            is_displaced: false,
            is_missing: false,
            replaced_files: Vec::new(),
            abandoned: Vec::new(),
            reading: None,
            records: PhantomData,
        }
    }

    /// Returns the sequence number of the next record.
    #[must_use]
    pub fn next_seq(&self) -> Seq {
        self.next
    }

    /// Returns the lowest pending sequence number; [`Journal::next_seq`] if none is pending.
    #[must_use]
    pub fn first_pending(&self) -> Seq {
        let first = self.segments.iter().find_map(|segment| segment.next_pending(0).map(|at| segment.seq(at)));
        first.unwrap_or(self.next)
    }

    /// Returns the number of records that are not acknowledged.
    #[must_use]
    pub fn pending(&self) -> u64 {
        self.pending
    }

    /// Returns the size of the journal's files in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let replaced_files = self.replaced_files.iter().map(|(_, bytes)| *bytes).sum::<u64>();
        self.cursor.bytes() + self.segments.iter().map(|segment| segment.bytes).sum::<u64>() + replaced_files
    }

    /// Returns the limit of [`Journal::bytes`].
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the number of accepted records lost to damage, found when the journal was opened or since.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns the sequence number below which all records are durable.
    #[must_use]
    pub fn accepted(&self) -> Seq {
        self.accepted
    }

    /// Returns whether all appended records are durable, including those found when the journal was opened.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.unsynced.is_empty() && !self.dir_dirty
    }

    /// Returns why the last sync could not write the acknowledgements. Until they are written, a restart repeats the
    /// records.
    #[must_use]
    pub fn cursor_error(&self) -> Option<&io::Error> {
        self.cursor_error.as_ref()
    }

    /// Makes all appended records durable, which accepts them. Also writes acknowledgements and removes segments that
    /// are no longer needed. If the disk is full, it removes acknowledged segments, as [`Journal::drop_acked`] does,
    /// and tries once more.
    ///
    /// # Errors
    /// I/O errors. Records appended since the last success are not durable then. They are kept, and the next call
    /// writes them to a new segment. A failure to write acknowledgements is no error; see [`Journal::cursor_error`].
    pub fn sync(&mut self) -> io::Result<()> {
        self.check_files()?;
        let idle = self.is_synced();
        if let Err(error) = self.sync_records() {
            let segments = self.segments.len();
            if error.kind() == io::ErrorKind::StorageFull {
                self.drop_acked();
            }
            if self.segments.len() == segments {
                return Err(error);
            }
            self.sync_records()?;
        }
        self.write_cursor(idle);
        self.remove_acked();
        Ok(())
    }

    pub(super) fn sync_records(&mut self) -> io::Result<()> {
        if !self.unsynced.is_empty() && (self.sealed || !self.sync_last()) {
            // After a failed sync the system may have dropped the data, so it must be written again.
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

    /// Starts a segment and moves the unsynced records into it, durably. The previous segment keeps its synced records.
    ///
    /// After an error the state is unchanged, except for a file that the next attempt replaces.
    pub(super) fn begin_segment(&mut self) -> io::Result<()> {
        self.begin(false)
    }

    /// Starts a segment as [`Journal::begin_segment`] does. If the disk is too full for the header, starts an empty one
    /// that accepts no records, so that the previous segment can be removed. All records must be synced.
    pub(super) fn begin_on_full_disk(&mut self) -> io::Result<()> {
        self.begin(true)
    }

    fn begin(&mut self, may_be_empty: bool) -> io::Result<()> {
        let (keep, first) = match self.segments.last() {
            Some(last) => {
                let keep = last.position_of(last.synced);
                (keep, if keep < last.entries.len() { last.seq(keep) } else { self.next })
            }
            None => (0, self.next),
        };
        let mut segment = Segment::new(&self.dir, Name { first, generation: self.next_generation, merged: false });
        let mut bytes = self.moved(&mut segment)?;
        let mut made = self.make(&segment.path, &bytes);
        if may_be_empty
            && self.unsynced.is_empty()
            && matches!(&made, Err(error) if error.kind() == io::ErrorKind::StorageFull)
        {
            bytes.clear();
            made = self.create(&segment.path, &bytes);
        }
        self.is_missing |= matches!(&made, Err(error) if error.kind() == io::ErrorKind::NotFound);
        segment.file = Some(made?);
        if let Some(last) = self.segments.last_mut() {
            last.split_off(keep);
            last.end = first;
            if let Some(mut file) = last.file.take() {
                // Best effort: records behind the synced part are now invalid.
                let _ = file.truncate(last.synced);
                last.bytes = file.len().unwrap_or(last.bytes).max(last.synced);
            }
            last.drop_entries();
        }
        self.unsynced.clear();
        (segment.bytes, segment.synced) = (bytes.len() as u64, bytes.len() as u64);
        segment.end = self.next;
        self.segments.push(segment);
        self.next_generation += 1;
        // Without a header, the first record would be taken for one.
        (self.sealed, self.dir_dirty) = (bytes.is_empty(), true);
        Ok(())
    }

    /// Adds the unsynced records to `segment`, which is new, and returns the bytes of its file.
    fn moved(&self, segment: &mut Segment) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        frame::write_with(segment.salt, &mut bytes, |out| Header::default().encode(out)).map_err(io::Error::other)?;
        let Some(last) = self.segments.last() else { return Ok(bytes) };
        let mut reader = Reader::of_slice(&self.unsynced, last.salt);
        while let Some(item) = reader.next()? {
            let Item::Frame { payload, .. } = item else { continue };
            let Some((seq, _)) = segment::split_record(payload) else { continue };
            let at = last.position(seq);
            // Of several records with the same sequence number, only the first counts.
            if seq >= segment.end && at < last.entries.len() && last.seq(at) == seq {
                segment.push(seq, bytes.len() as u64, last.is_acked(at))?;
                frame::write(segment.salt, payload, &mut bytes).map_err(io::Error::other)?;
            }
        }
        Ok(bytes)
    }

    fn make(&self, path: &Path, bytes: &[u8]) -> io::Result<Box<dyn DiskFile>> {
        if self.unsynced.is_empty() {
            return self.create(path, bytes);
        }
        // The file's name invalidates records of the previous segment, so the file must be complete when it gets this
        // name.
        disk::replace(&*self.disk, path, bytes)?;
        self.disk.open(path, Open::Append)
    }

    fn create(&self, path: &Path, bytes: &[u8]) -> io::Result<Box<dyn DiskFile>> {
        let mut file = self.disk.open(path, Open::Append)?;
        file.truncate(0)?;
        if let Err(error) = file.append(bytes) {
            // Frees the space. If the removal fails, the next attempt overwrites the file.
            let _ = self.disk.remove(path);
            return Err(error);
        }
        Ok(file)
    }
}

impl<R: Record> Journal<R> {
    /// Appends records and returns their sequence numbers. The next [`Journal::sync`] makes them durable.
    ///
    /// # Errors
    /// [`AppendError`]. Nothing is appended then.
    pub fn append(&mut self, records: &[R]) -> Result<Range<Seq>, AppendError> {
        if records.is_empty() {
            return Ok(self.next..self.next);
        }
        if MAX_SEQ - self.next.min(MAX_SEQ) < records.len() as u64 {
            // Only damage leads to such high numbers, and records with them could not be read back.
            return Err(io::Error::other("the journal has no sequence numbers left; remove it").into());
        }
        if self.unsynced.len() > UNSYNCED {
            self.sync_records()?;
        }
        // Only damage makes sequence numbers jump so far: a segment has fewer records than bytes.
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
            self.drop_acked();
        }
        added
    }

    /// Appends the records' frames to the unsynced bytes. Returns the offset of each frame relative to the first.
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

    /// Writes the frames in `unsynced`, from byte `mark` on, to the last segment or to a new one. Returns the sequence
    /// numbers of their records.
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

/// Returns the size in bytes of a segment without records: the length of its header frame.
pub(super) const fn head() -> u64 {
    (frame::HEADER + 1 + 2 * size_of::<u64>()) as u64
}
