//! File of acknowledgements, `cursor`: frames, each with ranges of acknowledged sequence numbers.
//!
//! The acknowledged set is the union of all frames before the first damaged one. The first frame after a rewrite
//! contains the whole set, each later frame the additions.
//!
//! Frames behind the damage are ignored. Otherwise a newer record of an object could count as acknowledged while an
//! older one does not. The older state would then be delivered again, after the newer one.

use std::io;
use std::path::{Path, PathBuf};

use super::ranges::{Ranges, put, take};
use super::{JournalError, MAX_SEQ, Seq};
use informer_hub_disk::frame::{self, Item, Reader};
use informer_hub_disk::{self as disk, Disk, DiskFile, Open};

pub(super) const NAME: &str = "cursor";
/// Size in bytes that the file of acknowledgements must exceed to be rewritten. For a small journal, the bound is a
/// sixteenth of the journal's size limit instead.
const REWRITE_FROM: u64 = 64 << 10;
/// Maximum number of acknowledgements in the file that are not synced. If there are more, the file is synced.
const UNSYNCED: u64 = 1000;
const SALT: u32 = 0x63_75_72_73;
const FORMAT: u8 = 1;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CursorState {
    /// Whether the file has a readable frame.
    pub(super) any: bool,
    pub(super) acked: Ranges,
    /// Sequence number below which all records are accepted, that is, synced to disk, according to the file.
    pub(super) accepted: Seq,
    /// Byte ranges of the file that are not valid frames.
    pub(super) damaged: Vec<(u64, u64)>,
}

#[derive(Debug)]
pub(super) struct Cursor {
    path: PathBuf,
    file: Option<Box<dyn DiskFile>>,
    bytes: u64,
    /// File size after the last rewrite.
    rewritten: u64,
    rewrite_from: u64,
    unsynced: u64,
}

impl CursorState {
    /// Reads the file of acknowledgements. A missing file gives an empty state.
    pub(super) fn read(disk: &dyn Disk, path: &Path) -> Result<Self, JournalError> {
        let failed = |source| JournalError::Disk { file: path.to_owned(), verb: "read", source };
        let file = match disk.open(path, Open::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(failed(error)),
        };
        let mut reader = Reader::of_file(&*file, SALT).map_err(failed)?;
        Self::collect(path, &mut reader, failed)
    }

    fn collect(
        path: &Path,
        reader: &mut Reader<'_>,
        failed: impl Fn(io::Error) -> JournalError,
    ) -> Result<Self, JournalError> {
        let mut state = Self::default();
        while let Some(item) = reader.next().map_err(&failed)? {
            let (from, to) = match item {
                Item::Frame { offset, payload } => {
                    match payload.first() {
                        Some(&FORMAT) if state.add(&payload[1..]).is_some() => continue,
                        Some(&version) if version > FORMAT => {
                            return Err(JournalError::Newer { file: path.to_owned(), version });
                        }
                        _ => {}
                    }
                    (offset, offset + (frame::HEADER + payload.len()) as u64)
                }
                Item::Damage { from, to } => (from, to),
                // A crash interrupted this write. Its acknowledgements are lost, so their records are read again.
                Item::Torn { .. } => break,
            };
            state.damaged.push((from, to));
            break;
        }
        Ok(state)
    }

    fn add(&mut self, mut bytes: &[u8]) -> Option<()> {
        let accepted = take(&mut bytes).filter(|accepted| *accepted <= MAX_SEQ)?;
        let ranges = Ranges::decode(&mut bytes)?;
        self.any = true;
        self.accepted = self.accepted.max(accepted);
        ranges.iter().for_each(|range| self.acked.insert(range));
        Some(())
    }
}

fn encoded(accepted: Seq, ranges: &Ranges) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    let written = frame::write_with(SALT, &mut out, |out| {
        out.push(FORMAT);
        put(out, accepted);
        ranges.encode(out);
    });
    written.map_err(io::Error::other)?;
    Ok(out)
}

impl Cursor {
    /// Creates a writer of the cursor file. Its first write creates the file or replaces an existing one; until then
    /// the disk is not touched.
    pub(super) fn new(dir: &Path, limit: u64) -> Self {
        let rewrite_from = REWRITE_FROM.min(limit / 16);
        Self { path: dir.join(NAME), file: None, bytes: 0, rewritten: 0, rewrite_from, unsynced: 0 }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Drops the handle of the file, which was removed or replaced. The next write creates a new file.
    pub(super) fn reset(&mut self) {
        (self.file, self.bytes, self.rewritten, self.unsynced) = (None, 0, 0, 0);
    }

    /// Returns whether the next write must replace the file by one with all acknowledged ranges: no file is open, or
    /// the open file has grown too much since the last rewrite.
    pub(super) fn wants_all(&self) -> bool {
        self.file.is_none() || self.bytes > (4 * self.rewritten).max(self.rewrite_from)
    }

    /// Replaces the file with one frame that contains the whole acknowledged set.
    pub(super) fn rewrite(&mut self, disk: &dyn Disk, accepted: Seq, all: &Ranges) -> io::Result<()> {
        let bytes = encoded(accepted, all)?;
        self.file = None;
        disk::replace(disk, &self.path, &bytes)?;
        self.file = Some(disk.open(&self.path, Open::Append)?);
        (self.bytes, self.rewritten, self.unsynced) = (bytes.len() as u64, bytes.len() as u64, 0);
        Ok(())
    }

    /// Appends the ranges acknowledged since the last write.
    pub(super) fn add(&mut self, accepted: Seq, ranges: &Ranges) -> io::Result<()> {
        let bytes = encoded(accepted, ranges)?;
        let Some(file) = &mut self.file else { return Err(io::ErrorKind::NotFound.into()) };
        if let Err(error) = file.append(&bytes) {
            // Some bytes may have been written. The next write replaces the file with the whole set.
            self.file = None;
            return Err(error);
        }
        self.bytes += bytes.len() as u64;
        self.unsynced += 1 + ranges.iter().map(|range| range.end - range.start).sum::<u64>();
        Ok(())
    }

    /// Syncs the file if `at_once` is set, or if more than [`UNSYNCED`] acknowledgements are not synced.
    pub(super) fn sync(&mut self, at_once: bool) -> io::Result<()> {
        let Some(file) = self.file.as_ref().filter(|_| self.unsynced > if at_once { 0 } else { UNSYNCED }) else {
            return Ok(());
        };
        if let Err(error) = file.sync() {
            self.file = None;
            return Err(error);
        }
        self.unsynced = 0;
        Ok(())
    }
}

/// Decodes a cursor file in memory and returns whether it has a readable frame. For fuzzing.
pub(super) fn decode(bytes: &[u8]) -> bool {
    let failed = |source| JournalError::Disk { file: PathBuf::new(), verb: "read", source };
    CursorState::collect(Path::new(NAME), &mut Reader::of_slice(bytes, SALT), failed).is_ok_and(|state| state.any)
}
