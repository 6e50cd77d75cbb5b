//! The acknowledgements, on disk: a file of frames, each of which says of ranges that they are acknowledged.
//!
//! What is acknowledged is the union of all that can be read, so that order, repetition and damage cannot make a record
//! acknowledged that was not. The first frame after a rewrite says all of it, later ones what has come since. What lies
//! behind damage is not believed: an acknowledgement must not outlive one that was given before it, or an object's
//! older state would be told after its newer one.

use std::io;
use std::path::{Path, PathBuf};

use super::ranges::{Ranges, put, take};
use super::{JournalError, MAX_SEQ, Seq};
use informer_hub_disk::frame::{self, Item, Reader};
use informer_hub_disk::{self as disk, Disk, DiskFile, Open};

/// The file's name.
pub(super) const NAME: &str = "cursor";
/// The file is not written anew before it has so many bytes, or a sixteenth of what the journal may have.
const REWRITE_FROM: u64 = 64 << 10;
/// So many acknowledgements may be written and not synced.
const UNSYNCED: u64 = 1000;
const SALT: u32 = 0x63_75_72_73;
const FORMAT: u8 = 1;

/// What the file said.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    /// Whether there was anything to read.
    pub(super) any: bool,
    pub(super) acked: Ranges,
    /// Records below this had been accepted.
    pub(super) accepted: Seq,
    /// Bytes that were no frame.
    pub(super) damaged: Vec<(u64, u64)>,
}

/// The file.
#[derive(Debug)]
pub(super) struct Cursor {
    path: PathBuf,
    file: Option<Box<dyn DiskFile>>,
    bytes: u64,
    /// What it had when it was written anew.
    rewritten: u64,
    rewrite_from: u64,
    unsynced: u64,
}

// === impl Said ===

impl Said {
    /// Reads the file; one that does not exist says nothing.
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
        let mut said = Self::default();
        while let Some(item) = reader.next().map_err(&failed)? {
            let (from, to) = match item {
                Item::Frame { offset, payload } => {
                    match payload.first() {
                        Some(&FORMAT) if said.add(&payload[1..]).is_some() => continue,
                        Some(&version) if version > FORMAT => {
                            return Err(JournalError::Newer { file: path.to_owned(), version });
                        }
                        _ => {}
                    }
                    (offset, offset + (frame::HEADER + payload.len()) as u64)
                }
                Item::Damage { from, to } => (from, to),
                // The write that a crash cut off: what it said is repeated, nothing else.
                Item::Torn { .. } => break,
            };
            said.damaged.push((from, to));
            break;
        }
        Ok(said)
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

// === impl Cursor ===

impl Cursor {
    /// Nothing is done to the disk before the first write, which writes the file anew.
    pub(super) fn new(dir: &Path, limit: u64) -> Self {
        let rewrite_from = REWRITE_FROM.min(limit / 16);
        Self { path: dir.join(NAME), file: None, bytes: 0, rewritten: 0, rewrite_from, unsynced: 0 }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Its file is gone, or somebody else's.
    pub(super) fn forget(&mut self) {
        (self.file, self.bytes, self.rewritten, self.unsynced) = (None, 0, 0, 0);
    }

    /// Whether the next write wants all that is acknowledged.
    pub(super) fn wants_all(&self) -> bool {
        self.file.is_none() || self.bytes > (4 * self.rewritten).max(self.rewrite_from)
    }

    /// Puts a new file in place of the old one.
    pub(super) fn rewrite(&mut self, disk: &dyn Disk, accepted: Seq, all: &Ranges) -> io::Result<()> {
        let bytes = encoded(accepted, all)?;
        self.file = None;
        disk::replace(disk, &self.path, &bytes)?;
        self.file = Some(disk.open(&self.path, Open::Append)?);
        (self.bytes, self.rewritten, self.unsynced) = (bytes.len() as u64, bytes.len() as u64, 0);
        Ok(())
    }

    /// Adds what has been acknowledged since.
    pub(super) fn add(&mut self, accepted: Seq, ranges: &Ranges) -> io::Result<()> {
        let bytes = encoded(accepted, ranges)?;
        let Some(file) = &mut self.file else { return Err(io::ErrorKind::NotFound.into()) };
        if let Err(error) = file.append(&bytes) {
            // A part of it may be there. The next write makes a new file, with all that this one was to say.
            self.file = None;
            return Err(error);
        }
        self.bytes += bytes.len() as u64;
        self.unsynced += 1 + ranges.iter().map(|range| range.end - range.start).sum::<u64>();
        Ok(())
    }

    /// Syncs the file where that is due: when there is nothing else to be done, or much would be lost.
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

/// Reads the frames of a cursor file that is in memory; for those who feed it noise.
pub(super) fn decode(bytes: &[u8]) -> bool {
    let failed = |source| JournalError::Disk { file: PathBuf::new(), verb: "read", source };
    Said::collect(Path::new(NAME), &mut Reader::of_slice(bytes, SALT), failed).is_ok_and(|said| said.any)
}
