//! Reading records: pending ones, and acknowledged ones still on disk.

use std::io;

use super::segment::{Segment, split_record};
use super::write::Journal;
use super::{Record, Seq};
use informer_hub_disk::frame;
use informer_hub_disk::{DiskFile, Open};

/// Bytes read at a time, unless a record is longer.
const CHUNK: u64 = 256 << 10;

/// Result of a read.
#[derive(Debug)]
pub struct Batch<R> {
    /// Records, in order of their sequence numbers.
    pub records: Vec<(Seq, R)>,
    /// Records found damaged. They count as acknowledged and [lost](Journal::lost) from now on.
    pub damaged: Vec<Seq>,
}

/// Records and bytes that a read may still return.
struct Budget {
    records: usize,
    bytes: usize,
}

impl<R: Record> Journal<R> {
    /// Returns the next pending records from a sequence number on, including those not yet synced.
    ///
    /// Returns at most `max_records` records and at most `max_bytes` bytes, but at least one record if any is pending.
    ///
    /// # Errors
    /// I/O errors of the disk. The state is unchanged then.
    pub fn read(&mut self, from: Seq, max_records: usize, max_bytes: usize) -> io::Result<Batch<R>> {
        let mut batch = Batch { records: Vec::new(), damaged: Vec::new() };
        let mut budget = Budget { records: max_records, bytes: max_bytes };
        let first = self.segments.partition_point(|segment| segment.end <= from);
        for index in first..self.segments.len() {
            let mut at = self.segments[index].position(from);
            while let Some(pending) = self.segments[index].next_pending(at).filter(|_| budget.records > 0) {
                match self.read_some(index, pending, &mut budget, &mut batch)? {
                    Some(next) => at = next,
                    None => budget.records = 0,
                }
            }
        }
        self.lost += self.ack(batch.damaged.iter().copied());
        Ok(batch)
    }

    /// Calls `visit` with the acknowledged records still on disk, in order. Skips the segment that is appended to, and
    /// segments whose records the caller has saved elsewhere ([`Journal::mark_saved`]).
    ///
    /// # Errors
    /// I/O errors of the disk.
    pub fn visit_retained(&self, visit: &mut dyn FnMut(Seq, R)) -> io::Result<()> {
        let sealed = &self.segments[..self.segments.len().saturating_sub(1)];
        let has_acked = |segment: &&Segment| segment.pending == 0 || segment.pending < segment.entries.len();
        for segment in sealed.iter().filter(|segment| !segment.is_saved_elsewhere).filter(has_acked) {
            let file = self.disk.open(&segment.path, Open::Read)?;
            let mut reader = frame::Reader::of_file(&*file, segment.salt)?;
            while let Some(item) = reader.next()? {
                let frame::Item::Frame { offset: 1.., payload } = item else { continue };
                let Some((seq, record)) = split_record(payload) else { continue };
                let is_ours = (segment.name.first..segment.end).contains(&seq) && !segment.has_pending(seq);
                if let Some(record) = R::decode(record).ok().filter(|_| is_ours) {
                    visit(seq, record);
                }
            }
        }
        Ok(())
    }

    /// Returns a pending record; `None` if the record is damaged, or is not pending.
    ///
    /// # Errors
    /// I/O errors of the disk.
    pub fn get(&mut self, seq: Seq) -> io::Result<Option<R>> {
        let first = self.segments.partition_point(|segment| segment.end <= seq);
        let Some(segment) = self.segments.get(first) else { return Ok(None) };
        let at = segment.position(seq);
        if segment.next_pending(at) != Some(at) || segment.seq(at) != seq {
            return Ok(None);
        }
        Ok(self.read(seq, 1, 0)?.records.pop().filter(|(found, _)| *found == seq).map(|(_, record)| record))
    }

    /// Reads one chunk of segment `index`, from record `at` on. Adds the pending records to `batch` and deducts them
    /// from `budget`. Returns the index of the next record to read; `None` if the budget is used up.
    fn read_some(
        &mut self,
        index: usize,
        mut at: usize,
        budget: &mut Budget,
        batch: &mut Batch<R>,
    ) -> io::Result<Option<usize>> {
        let (start, end) = self.segments[index].place(at);
        let wanted = (end - start).max(CHUNK.min(budget.bytes as u64)).min(self.segments[index].bytes - start);
        let mut chunk = vec![0; usize::try_from(wanted).map_err(io::Error::other)?];
        let read = read_upto(self.file(index)?, start, &mut chunk)?;
        chunk.truncate(read);
        let segment = &self.segments[index];
        let chunk_end = start + wanted;
        while let Some(pending) = segment.next_pending(at) {
            let (from, to) = segment.place(pending);
            if to > chunk_end {
                return Ok(Some(pending));
            }
            let size = usize::try_from(to - from).unwrap_or(usize::MAX);
            if budget.records == 0 || (!batch.records.is_empty() && size > budget.bytes) {
                return Ok(None);
            }
            let frame = usize::try_from(from - start).ok().and_then(|at| chunk.get(at..)).unwrap_or_default();
            let seq = segment.seq(pending);
            match decode(segment, seq, frame) {
                Some(record) => {
                    (budget.records, budget.bytes) = (budget.records - 1, budget.bytes.saturating_sub(size));
                    batch.records.push((seq, record));
                }
                None => batch.damaged.push(seq),
            }
            at = pending + 1;
        }
        Ok(Some(at))
    }

    fn file(&mut self, index: usize) -> io::Result<&dyn DiskFile> {
        let segment = &self.segments[index];
        if let Some(file) = &segment.file {
            return Ok(&**file);
        }
        let generation = segment.name.generation;
        let file = match self.reading.take().filter(|(open, _)| *open == generation) {
            Some((_, file)) => file,
            None => self.disk.open(&segment.path, Open::Read)?,
        };
        Ok(&*self.reading.insert((generation, file)).1)
    }
}

/// Decodes the record in the frame at the start of `frame`; `None` if it is invalid or not record `seq`.
pub(super) fn decode<R: Record>(segment: &Segment, seq: Seq, frame: &[u8]) -> Option<R> {
    let (found, record) = split_record(frame::read(segment.salt, frame)?)?;
    R::decode(record).ok().filter(|_| found == seq)
}

/// Fills `buf` as far as the file reaches, and returns the number of bytes read.
pub(super) fn read_upto(file: &dyn DiskFile, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match file.read_at(offset + done as u64, &mut buf[done..]) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
