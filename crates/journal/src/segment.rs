//! One file of a journal: its records, their positions, and which are acknowledged.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::{MAX_SEQ, Seq};
use informer_hub_disk::DiskFile;
use informer_hub_disk::frame;

const FORMAT: u8 = 1;
const APPENDED: &str = "log";
const MERGED: &str = "mrg";

/// Name of a segment's file. The name suffices to read the segment even if its header is damaged.
///
/// Each new segment has a higher generation. A `.log` segment, which appends write, starts at the first record that was
/// not accepted (synced to disk). From this sequence number on, it invalidates the records of older generations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name {
    pub(super) first: Seq,
    pub(super) generation: u64,
    /// Whether a merge wrote the segment (`.mrg`) instead of appends (`.log`).
    pub(super) merged: bool,
}

/// First frame of a segment. In a segment that was written by appends, all fields are zero or empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Header {
    /// Sequence number after the last one that the segment covers.
    pub(super) end: Seq,
    /// Number of records in the segment.
    pub(super) records: u64,
    /// Generations of the segments that this merged segment replaces.
    pub(super) replaces: Vec<u64>,
}

/// Error for a header of a newer format, with the format's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UnknownFormat(pub(super) u8);

/// Sequence number and file offset of a record in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    /// Sequence number minus the first sequence number of the segment.
    delta: u32,
    pub(super) offset: u32,
}

#[derive(Debug)]
pub(super) struct Segment {
    pub(super) name: Name,
    pub(super) path: PathBuf,
    pub(super) salt: u32,
    /// Open file of the segment that is appended to; `None` for others.
    pub(super) file: Option<Box<dyn DiskFile>>,
    pub(super) bytes: u64,
    /// Length in bytes of the file's durable part.
    pub(super) synced: u64,
    /// First sequence number after the segment's records.
    pub(super) end: Seq,
    /// Sequence number and offset of each record, in order. Emptied to save memory once all records are acknowledged
    /// and no more are appended.
    pub(super) entries: Vec<Entry>,
    /// One bit per entry, set if the record is acknowledged.
    acked: Vec<u64>,
    pub(super) pending: usize,
    /// Whether the segment's acknowledged records are saved elsewhere and need no longer be retained.
    pub(super) is_saved_elsewhere: bool,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.merged { MERGED } else { APPENDED };
        write!(f, "{:020}-{:010}.{kind}", self.first, self.generation)
    }
}

impl FromStr for Name {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (numbers, kind) = text.split_once('.').ok_or(())?;
        let (first, generation) = numbers.split_once('-').ok_or(())?;
        let number = |text: &str| text.parse().ok().filter(|number| *number <= MAX_SEQ).ok_or(());
        let merged = match kind {
            APPENDED => false,
            MERGED => true,
            _ => return Err(()),
        };
        let name = Self { first: number(first)?, generation: number(generation)?, merged };
        // Only names in canonical form are segments.
        if name.to_string() == text { Ok(name) } else { Err(()) }
    }
}

impl Name {
    /// Returns the initial value of the checksums in this segment, so that frames of other segments are invalid in it.
    pub(super) fn salt(self) -> u32 {
        crc32fast::hash(self.to_string().as_bytes())
    }

    /// Returns whether the segment can store this sequence number and file offset in an [`Entry`], which has 32 bits
    /// for each.
    pub(super) fn can_hold(self, seq: Seq, offset: u64) -> bool {
        let delta = seq.checked_sub(self.first);
        delta.is_some_and(|delta| u32::try_from(delta).is_ok()) && u32::try_from(offset).is_ok()
    }
}

impl Header {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.push(FORMAT);
        for number in [self.end, self.records].iter().chain(&self.replaces) {
            out.extend_from_slice(&number.to_le_bytes());
        }
    }

    /// Decodes a header. Returns `Ok(None)` for bytes that are not a header.
    pub(super) fn decode(payload: &[u8]) -> Result<Option<Self>, UnknownFormat> {
        match payload.split_first() {
            Some((&FORMAT, numbers)) => Ok(Self::numbers(numbers)),
            Some((&version, _)) if version > FORMAT => Err(UnknownFormat(version)),
            _ => Ok(None),
        }
    }

    fn numbers(bytes: &[u8]) -> Option<Self> {
        let (numbers, rest) = bytes.as_chunks::<8>();
        let mut numbers = numbers.iter().map(|number| u64::from_le_bytes(*number));
        let (end, records) = (numbers.next()?, numbers.next()?);
        (rest.is_empty() && end <= MAX_SEQ).then(|| Self { end, records, replaces: numbers.collect() })
    }
}

/// Appends the frame of a record to `out`.
pub(super) fn write_record(
    salt: u32,
    seq: Seq,
    out: &mut Vec<u8>,
    fill: impl FnOnce(&mut Vec<u8>),
) -> Result<(), frame::TooLong> {
    frame::write_with(salt, out, |out| {
        out.extend_from_slice(&seq.to_le_bytes());
        fill(out);
    })
}

/// Returns a record's sequence number and bytes.
pub(super) fn split_record(payload: &[u8]) -> Option<(Seq, &[u8])> {
    let (seq, record) = payload.split_first_chunk()?;
    Some((u64::from_le_bytes(*seq), record)).filter(|(seq, _)| *seq < MAX_SEQ)
}

impl Segment {
    pub(super) fn new(dir: &Path, name: Name) -> Self {
        Self {
            name,
            path: dir.join(name.to_string()),
            salt: name.salt(),
            file: None,
            bytes: 0,
            synced: 0,
            end: name.first,
            entries: Vec::new(),
            acked: Vec::new(),
            pending: 0,
            is_saved_elsewhere: false,
        }
    }

    /// Adds a record (its sequence number and file offset) behind all others.
    pub(super) fn push(&mut self, seq: Seq, offset: u64, acked: bool) -> io::Result<()> {
        let beyond = || io::Error::other("record position exceeds the range of a segment");
        let delta = seq.checked_sub(self.name.first).and_then(|delta| u32::try_from(delta).ok()).ok_or_else(beyond)?;
        let offset = u32::try_from(offset).map_err(|_| beyond())?;
        let at = self.entries.len();
        self.entries.push(Entry { delta, offset });
        if at.is_multiple_of(64) {
            self.acked.push(0);
        }
        if acked {
            self.acked[at / 64] |= 1 << (at % 64);
        } else {
            self.pending += 1;
        }
        self.end = self.end.max(seq + 1);
        Ok(())
    }

    pub(super) fn seq(&self, at: usize) -> Seq {
        self.name.first + u64::from(self.entries[at].delta)
    }

    /// Returns the file offsets of the start and the end of record `at`. The end is the start of the next record, or
    /// else the end of the file. Invalid bytes may lie in between.
    pub(super) fn place(&self, at: usize) -> (u64, u64) {
        let end = self.entries.get(at + 1).map_or(self.bytes, |next| u64::from(next.offset));
        (u64::from(self.entries[at].offset), end)
    }

    /// Returns the index of the first entry at or after a file offset.
    pub(super) fn position_of(&self, offset: u64) -> usize {
        self.entries.partition_point(|entry| u64::from(entry.offset) < offset)
    }

    pub(super) fn is_acked(&self, at: usize) -> bool {
        self.acked[at / 64] & (1 << (at % 64)) != 0
    }

    /// Returns whether the segment has a pending record with this sequence number.
    pub(super) fn has_pending(&self, seq: Seq) -> bool {
        let at = self.position(seq);
        self.pending > 0 && at < self.entries.len() && self.seq(at) == seq && !self.is_acked(at)
    }

    /// Returns the index of the first entry with this sequence number or a higher one.
    pub(super) fn position(&self, seq: Seq) -> usize {
        let Some(delta) = seq.checked_sub(self.name.first) else { return 0 };
        // Usually no sequence number is missing, so the index equals the difference.
        match usize::try_from(delta).ok().and_then(|at| Some((at, self.entries.get(at)?))) {
            Some((at, entry)) if u64::from(entry.delta) == delta => at,
            _ => self.entries.partition_point(|entry| u64::from(entry.delta) < delta),
        }
    }

    /// Acknowledges a record and returns whether it was pending.
    pub(super) fn ack(&mut self, seq: Seq) -> bool {
        let at = self.position(seq);
        if at >= self.entries.len() || self.seq(at) != seq || self.is_acked(at) {
            return false;
        }
        self.acked[at / 64] |= 1 << (at % 64);
        self.pending -= 1;
        true
    }

    /// Returns the index of the first pending entry from `at` on; `None` if there is none.
    pub(super) fn next_pending(&self, at: usize) -> Option<usize> {
        let mut word = at / 64;
        let mut bits = !self.acked.get(word)? & (u64::MAX << (at % 64));
        loop {
            if bits != 0 {
                let found = word * 64 + bits.trailing_zeros() as usize;
                return (found < self.entries.len()).then_some(found);
            }
            word += 1;
            bits = !*self.acked.get(word)?;
        }
    }

    /// Drops the entries if none is pending.
    pub(super) fn drop_entries(&mut self) {
        if self.pending == 0 {
            (self.entries, self.acked) = (Vec::new(), Vec::new());
        }
    }

    /// Removes the entries from `at` on. Returns the sequence number of each, and whether it was acknowledged.
    pub(super) fn split_off(&mut self, at: usize) -> Vec<(Seq, bool)> {
        let taken: Vec<_> = (at..self.entries.len()).map(|at| (self.seq(at), self.is_acked(at))).collect();
        let kept: Vec<_> = (0..at).map(|at| (self.seq(at), self.entries[at].offset, self.is_acked(at))).collect();
        (self.entries, self.acked, self.pending, self.end) = (Vec::new(), Vec::new(), 0, self.name.first);
        for (seq, offset, acked) in kept {
            // Cannot fail, as these entries were in the segment before.
            let _ = self.push(seq, u64::from(offset), acked);
        }
        taken
    }
}
