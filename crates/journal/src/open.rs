//! Reading the files of a journal, for opening and for inspecting it.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::cursor::{self, CursorState};
use super::segment::{Header, Name, Segment, UnknownFormat, split_record};
use super::write::Journal;
use super::{DamagedRange, JournalError, JournalParams, Record, Recovery, Seq};
use informer_hub_disk::frame::{Item, Reader};
use informer_hub_disk::{self as disk, Disk, Open};

/// Content of a journal directory, except the records.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// Segments, sorted by their first sequence number.
    pub(super) files: Vec<Scanned>,
    /// Names of unfinished files, and of segments that a merge replaced but did not remove.
    pub(super) leftovers: Vec<String>,
    pub(super) cursor: CursorState,
    pub(super) next_generation: u64,
}

/// A segment that no merge has replaced.
#[derive(Debug)]
pub(super) struct Scanned {
    pub(super) name: Name,
    pub(super) header: Option<Header>,
    /// Sequence number from which on records of this segment are invalid. A newer segment starts at this number, so
    /// they were never accepted (synced to disk). `Seq::MAX` if all are valid.
    pub(super) void_from: Seq,
}

#[derive(Debug, Default)]
pub(super) struct WalkResult {
    pub(super) bytes: u64,
    pub(super) damaged: Vec<(u64, u64)>,
    pub(super) torn: Option<u64>,
}

/// Counter of lost records: unacknowledged sequence numbers that are missing in the segments.
#[derive(Debug)]
pub(super) struct LossCounter<'s> {
    cursor: &'s mut CursorState,
    expected: Option<Seq>,
    /// Sequence number after the highest one found so far. A record with a lower number is a duplicate.
    floor: Seq,
    /// Highest first sequence number of the segments read so far, as their file names state it.
    begun: Seq,
    /// Ranges of sequence numbers that are missing in the merged segment that is being read.
    gaps: Vec<Range<Seq>>,
    pub(super) lost: u64,
}

pub(super) fn failed(file: &Path, verb: &'static str) -> impl FnOnce(io::Error) -> JournalError {
    let file = file.to_owned();
    move |source| JournalError::Disk { file, verb, source }
}

impl Scan {
    /// Reads the file names, the segments' headers and the acknowledgements.
    pub(super) fn of(disk: &dyn Disk, dir: &Path) -> Result<Self, JournalError> {
        let mut scan = Self { cursor: CursorState::read(disk, &dir.join(cursor::NAME))?, ..Self::default() };
        for text in disk.list(dir).map_err(failed(dir, "list"))? {
            if text.ends_with(disk::TEMP_SUFFIX) {
                scan.leftovers.push(text);
            } else if let Ok(name) = text.parse::<Name>() {
                let header = header(disk, &dir.join(&text), name)?;
                scan.files.push(Scanned { name, header, void_from: Seq::MAX });
            }
        }
        scan.files.sort_unstable_by_key(|file| file.name);
        scan.next_generation = scan.files.iter().map(|file| file.name.generation + 1).max().unwrap_or(0);
        scan.drop_replaced();
        scan.find_void();
        scan.end_in_order();
        Ok(scan)
    }

    fn drop_replaced(&mut self) {
        let mut replaced = Vec::new();
        for file in self.files.iter().filter(|file| file.name.merged) {
            // A merged segment can replace only older ones.
            let older = |generation: &&u64| **generation < file.name.generation;
            replaced.extend(file.header.iter().flat_map(|header| header.replaces.iter().filter(older)));
        }
        let (gone, kept) =
            std::mem::take(&mut self.files).into_iter().partition(|file| replaced.contains(&file.name.generation));
        self.files = kept;
        self.leftovers.extend(Vec::into_iter(gone).map(|file: Scanned| file.name.to_string()));
    }

    /// Limits the end of each segment, as its header states it, to the start of the next segment. Records are looked up
    /// by these ends, so the ends must be in ascending order.
    fn end_in_order(&mut self) {
        let behind: Vec<Seq> = self.files.iter().skip(1).map(|next| next.name.first).collect();
        for (file, behind) in self.files.iter_mut().zip(behind) {
            file.header.iter_mut().for_each(|header| header.end = header.end.min(behind));
        }
    }

    fn find_void(&mut self) {
        let appended: Vec<Name> = self.files.iter().map(|file| file.name).filter(|name| !name.merged).collect();
        for file in &mut self.files {
            let newer = appended.iter().filter(|name| name.generation > file.name.generation);
            file.void_from = newer.map(|name| name.first).min().unwrap_or(Seq::MAX);
        }
    }
}

fn header(disk: &dyn Disk, path: &Path, name: Name) -> Result<Option<Header>, JournalError> {
    let file = disk.open(path, Open::Read).map_err(failed(path, "open"))?;
    let mut reader = Reader::of_file(&*file, name.salt()).map_err(failed(path, "read"))?;
    match reader.next().map_err(failed(path, "read"))? {
        Some(Item::Frame { offset: 0, payload }) => Header::decode(payload)
            .map_err(|UnknownFormat(version)| JournalError::Newer { file: path.to_owned(), version }),
        _ => Ok(None),
    }
}

impl Scanned {
    /// Returns whether invalid bytes at the segment's end belong to accepted records. If not, a failed append left
    /// these bytes. `count` must have read the segment's records.
    pub(super) fn is_missing_its_end(&self, count: &LossCounter<'_>) -> bool {
        self.name.merged || count.floor < self.void_from
    }

    /// Calls `each` with sequence number, offset and bytes of each valid record of the segment.
    pub(super) fn walk(
        &self,
        disk: &dyn Disk,
        dir: &Path,
        mut each: impl FnMut(Seq, u64, &[u8]) -> Option<()>,
    ) -> Result<WalkResult, JournalError> {
        let path = dir.join(self.name.to_string());
        let file = disk.open(&path, Open::Read).map_err(failed(&path, "open"))?;
        let mut reader = Reader::of_file(&*file, self.name.salt()).map_err(failed(&path, "read"))?;
        let mut walked = WalkResult { bytes: file.len().map_err(failed(&path, "read"))?, ..WalkResult::default() };
        while let Some(item) = reader.next().map_err(failed(&path, "read"))? {
            match item {
                Item::Frame { offset: 0, .. } => {}
                Item::Frame { offset, payload } => {
                    let counts = |seq| seq < self.void_from && self.name.can_hold(seq, offset);
                    let record = split_record(payload).filter(|(seq, _)| counts(*seq));
                    let _ = record.and_then(|(seq, record)| each(seq, offset, record));
                }
                Item::Damage { from, to } => walked.damaged.push((from, to)),
                Item::Torn { from, .. } => walked.torn = Some(from),
            }
        }
        Ok(walked)
    }
}

impl<'s> LossCounter<'s> {
    pub(super) fn new(cursor: &'s mut CursorState) -> Self {
        let expected = cursor.any.then(|| cursor.acked.first_missing());
        Self { cursor, expected, floor: 0, begun: 0, gaps: Vec::new(), lost: 0 }
    }

    pub(super) fn is_acked(&self, seq: Seq) -> bool {
        self.cursor.acked.contains(seq)
    }

    /// Counts the unacknowledged sequence numbers below `seq`, from the expected number on, as lost. Afterwards, the
    /// expected number is at least `next`.
    fn advance(&mut self, seq: Seq, next: Seq) {
        // Numbers below the floor were found or counted before.
        if let Some(expected) = self.expected.map(|expected| expected.max(self.floor)) {
            self.lost = self.lost.saturating_add(self.cursor.acked.missing(expected..seq));
            self.cursor.acked.insert(expected..seq);
        }
        self.expected = self.expected.max(Some(next));
    }

    /// Starts counting the lost records of a segment. Numbers missing before the segment's first number are lost.
    pub(super) fn begin(&mut self, file: &Scanned) {
        self.advance(file.name.first, file.name.first);
        self.begun = self.begun.max(file.name.first);
        if file.name.merged {
            // Gaps within a merged segment are legitimate.
            self.expected = None;
            self.gaps.clear();
        }
    }

    /// Notes that a record was found. Returns `None` if the record is a duplicate: its number was found before, or an
    /// earlier segment covers it.
    pub(super) fn record(&mut self, seq: Seq, name: Name) -> Option<()> {
        let due = self.floor.max(name.first);
        if seq < due {
            return None;
        }
        if name.merged && due < seq {
            self.gaps.push(due..seq);
        }
        if !name.merged {
            self.advance(seq, seq + 1);
        }
        self.floor = seq + 1;
        Some(())
    }

    /// Ends a segment in which `records` records were found. If it is a merged segment, counts its lost records, by the
    /// record count in its header.
    pub(super) fn end(&mut self, file: &Scanned, records: u64) {
        if file.name.merged {
            let header = file.header.as_ref();
            let missing = header.map_or(0, |header| header.records.saturating_sub(records));
            self.gaps.push(self.floor.max(file.name.first)..header.map_or(0, |header| header.end));
            // Which numbers were lost is unknown. Opening reports the loss, then acknowledges all numbers that are not
            // pending.
            let unknown = self.gaps.drain(..).map(|gap| self.cursor.acked.missing(gap)).sum();
            self.lost = self.lost.saturating_add(missing.min(unknown));
            self.expected = header.map(|header| header.end).filter(|end| *end >= self.floor);
        }
    }

    /// Counts the losses at the end of the journal. Returns the sequence number for the next record, higher than any
    /// that was used.
    pub(super) fn finish(&mut self) -> Seq {
        let accepted = self.cursor.accepted;
        if self.expected.is_some_and(|expected| expected < accepted) {
            self.advance(accepted, accepted);
        }
        [self.begun, accepted, self.cursor.acked.end(), self.expected.unwrap_or(0)]
            .into_iter()
            .fold(self.floor, Seq::max)
    }
}

impl<R: Record> Journal<R> {
    /// Opens the journal in a directory, creating it if needed. For each record on disk, in order, calls `visit` with
    /// its sequence number, the record, and whether it is acknowledged.
    ///
    /// Afterwards, the records found are durable, unless the disk fails or is full. Until [`Journal::is_synced`]
    /// returns `true`, a crash may lose records that `visit` received, but none below [`Journal::accepted`].
    ///
    /// Costs one pass over the files. Only one process may open it at a time, which the lock of the state directory
    /// ensures.
    ///
    /// # Errors
    /// Fails if the directory cannot be created, a file cannot be opened or read, or a newer version wrote a file.
    /// Damage is not an error, but reported in the [`Recovery`].
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        params: JournalParams,
        visit: &mut dyn FnMut(Seq, &R, bool),
    ) -> Result<(Self, Recovery), JournalError> {
        disk::make_dir(&*disk, dir, 2).map_err(failed(dir, "create"))?;
        let mut scan = Scan::of(&*disk, dir)?;
        for leftover in &scan.leftovers {
            // A leftover that cannot be removed is ignored again next time.
            let _ = disk.remove(&dir.join(leftover));
        }
        let mut journal = Self::empty(disk, dir, params);
        let mut recovery = Recovery::default();
        for (from, to) in &scan.cursor.damaged {
            recovery.damaged.push(DamagedRange { file: cursor::NAME.to_owned(), from: *from, to: *to });
        }
        let (files, accepted) = (scan.files.len(), scan.cursor.accepted);
        let mut count = LossCounter::new(&mut scan.cursor);
        for (at, file) in scan.files.iter().enumerate() {
            journal.load(file, at + 1 == files, &mut count, &mut recovery, visit)?;
        }
        journal.next = count.finish();
        journal.lost = count.lost.saturating_add(recovery.undecodable);
        journal.next_generation = scan.next_generation;
        journal.pending = journal.segments.iter().map(|segment| segment.pending as u64).sum();
        (recovery.pending, recovery.lost) = (journal.pending, journal.lost);
        journal.settle(accepted)?;
        Ok((journal, recovery))
    }

    fn load(
        &mut self,
        file: &Scanned,
        is_last: bool,
        count: &mut LossCounter<'_>,
        recovery: &mut Recovery,
        visit: &mut dyn FnMut(Seq, &R, bool),
    ) -> Result<(), JournalError> {
        let mut segment = Segment::new(&self.dir, file.name);
        let mut records = 0;
        count.begin(file);
        let walked = file.walk(&*self.disk, &self.dir, |seq, offset, bytes| {
            count.record(seq, file.name)?;
            records += 1;
            let acked = count.is_acked(seq);
            match R::decode(bytes) {
                Ok(record) => {
                    visit(seq, &record, acked);
                    segment.push(seq, offset, acked).ok()
                }
                Err(error) => {
                    recovery.undecodable += u64::from(!acked);
                    recovery.first_undecodable.get_or_insert_with(|| error.to_string());
                    None
                }
            }
        })?;
        count.end(file, records);
        segment.end = segment.end.max(count.floor).max(file.header.as_ref().map_or(0, |header| header.end));
        segment.bytes = walked.bytes;
        let mut report = |from, to| recovery.damaged.push(DamagedRange { file: file.name.to_string(), from, to });
        walked.damaged.iter().for_each(|(from, to)| report(*from, *to));
        if let Some(from) = walked.torn {
            if is_last {
                recovery.torn_bytes += walked.bytes - from;
                segment.synced = from;
            } else if file.is_missing_its_end(count) {
                report(from, walked.bytes);
            }
        } else {
            segment.synced = walked.bytes;
        }
        if !is_last {
            segment.drop_entries();
        }
        self.segments.push(segment);
        Ok(())
    }

    /// Returns the directory of the files.
    #[must_use]
    pub fn dir(&self) -> PathBuf {
        self.dir.clone()
    }
}
