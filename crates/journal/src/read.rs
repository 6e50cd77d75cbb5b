//! Records come back.

use std::io;

use super::segment::{Segment, split_record};
use super::write::Journal;
use super::{Record, Seq};
use informer_hub_disk::frame;
use informer_hub_disk::{DiskFile, Open};

/// Bytes that are read at a time, if records are not longer.
const CHUNK: u64 = 256 << 10;

/// Records that were read.
#[derive(Debug)]
pub struct Batch<R> {
    /// In the order of their numbers.
    pub records: Vec<(Seq, R)>,
    /// Those that were found to be damaged on the way: they count as acknowledged and [lost](Journal::lost) now.
    pub damaged: Vec<Seq>,
}

/// What a reading may still take.
struct Room {
    records: usize,
    bytes: usize,
}

impl<R: Record> Journal<R> {
    /// The next records from a number on that are not acknowledged: at most so many, and no more bytes than that once
    /// there is one. None only where none is left. Those that are not synced are among them.
    ///
    /// # Errors
    /// The disk's; nothing has changed then.
    pub fn read(&mut self, from: Seq, max_records: usize, max_bytes: usize) -> io::Result<Batch<R>> {
        let mut batch = Batch { records: Vec::new(), damaged: Vec::new() };
        let mut room = Room { records: max_records, bytes: max_bytes };
        let first = self.segments.partition_point(|segment| segment.end <= from);
        for index in first..self.segments.len() {
            let mut at = self.segments[index].position(from);
            while let Some(pending) = self.segments[index].next_pending(at).filter(|_| room.records > 0) {
                match self.read_some(index, pending, &mut room, &mut batch)? {
                    Some(next) => at = next,
                    None => room.records = 0,
                }
            }
        }
        self.lost += self.ack(batch.damaged.iter().copied());
        Ok(batch)
    }

    /// Shows what is acknowledged and still on disk, in order; not what the segment has that is appended to, nor what
    /// [`Journal::let_go`] was told of.
    ///
    /// # Errors
    /// The disk's.
    pub fn visit_retained(&self, visit: &mut dyn FnMut(Seq, R)) -> io::Result<()> {
        let sealed = &self.segments[..self.segments.len().saturating_sub(1)];
        let has_acked = |segment: &&Segment| segment.pending == 0 || segment.pending < segment.entries.len();
        for segment in sealed.iter().filter(|segment| !segment.is_told).filter(has_acked) {
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

    /// One pending record.
    ///
    /// # Errors
    /// The disk's.
    pub fn get(&mut self, seq: Seq) -> io::Result<Option<R>> {
        let first = self.segments.partition_point(|segment| segment.end <= seq);
        let Some(segment) = self.segments.get(first) else { return Ok(None) };
        let at = segment.position(seq);
        if segment.next_pending(at) != Some(at) || segment.seq(at) != seq {
            return Ok(None);
        }
        Ok(self.read(seq, 1, 0)?.records.pop().filter(|(found, _)| *found == seq).map(|(_, record)| record))
    }

    /// Reads from a pending record on what one chunk has; `None` when there is no room for more, else where to go on.
    fn read_some(
        &mut self,
        index: usize,
        mut at: usize,
        room: &mut Room,
        batch: &mut Batch<R>,
    ) -> io::Result<Option<usize>> {
        let (start, end) = self.segments[index].place(at);
        let wanted = (end - start).max(CHUNK.min(room.bytes as u64)).min(self.segments[index].bytes - start);
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
            if room.records == 0 || (!batch.records.is_empty() && size > room.bytes) {
                return Ok(None);
            }
            let frame = usize::try_from(from - start).ok().and_then(|at| chunk.get(at..)).unwrap_or_default();
            let seq = segment.seq(pending);
            match decode(segment, seq, frame) {
                Some(record) => {
                    (room.records, room.bytes) = (room.records - 1, room.bytes.saturating_sub(size));
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

/// A record out of the bytes that its frame begins; `None` where they are not it.
pub(super) fn decode<R: Record>(segment: &Segment, seq: Seq, frame: &[u8]) -> Option<R> {
    let (found, record) = split_record(frame::read(segment.salt, frame)?)?;
    R::decode(record).ok().filter(|_| found == seq)
}

/// Reads as many bytes as there are.
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
