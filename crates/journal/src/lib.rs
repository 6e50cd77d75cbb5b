//! A durable log for one reader: records get numbers, are read in that order, and acknowledged in any.
//!
//! Pure and synchronous: whoever owns one calls it from a thread that may block. Its format is in `docs/state.md`.
//!
//! # Contract
//! - A record is *accepted* when [`Journal::sync`] has succeeded after its [`Journal::append`]. What is accepted is given
//!   back by [`Journal::open`] and [`Journal::read`] until it is acknowledged, whatever happens in between: the end of
//!   the process, of the power, a full disk, calls that fail. Two things take records away: [`Journal::merge_pending`],
//!   by the record's own rule, and damage to the file itself; damage is confined to the records it hits, counted, and
//!   reported once.
//! - An append is all or nothing for the process that does it. Of one that was not accepted before a crash, any first
//!   part may be there afterwards.
//! - Numbers only grow, also over restarts, and are used once: an acknowledgement never meets another record than the
//!   one it was meant for.
//! - Losing an acknowledgement repeats a record; it loses none. Acknowledgements are written at each sync and synced
//!   with the disk when nothing else is to be, or once there are 1,000: so many may be lost with the power.
//!
//! # Bounds
//! Files take no more than the limit, and besides that one merge's output. Memory: 8⅛ bytes for each record in a segment
//! that has one pending, none for the others; what is appended and not yet synced; one chunk for reading.
//!
//! # At the limit
//! Acknowledged segments go first, even those that [`Journal::release`] has not let go of yet; with
//! [`Journal::yield_acked`] on a full disk too. A journal that is to [`Journal::remember`] refuses instead, with
//! [`AppendError::Retained`], until its owner has written down elsewhere what [`Journal::visit_retained`] shows, and says
//! so by [`Journal::let_go`]. Where nothing is acknowledged, [`Journal::append`] refuses with [`AppendError::Full`]; the
//! owner may [`Journal::merge_pending`] and try again.

use std::fmt::Display;
use std::io;
use std::path::PathBuf;

use smallvec::SmallVec;

mod cursor;
pub mod inspect;
mod merge;
mod open;
mod place;
mod ranges;
mod read;
mod retain;
mod segment;
#[cfg(test)]
mod tests;
mod write;

pub use merge::Merged;
pub use read::Batch;
pub use write::Journal;

/// A record's number in its journal.
pub type Seq = u64;

/// Numbers beyond this are damage.
const MAX_SEQ: Seq = 1 << 62;

/// What a journal holds.
pub trait Record: Sized {
    /// Why bytes are no record.
    type Error: Display;

    /// Appends the record's bytes.
    fn encode(&self, out: &mut Vec<u8>);

    /// Reads what [`Record::encode`] wrote. The bytes are what was written, or their checksum would not be right; a
    /// record that another version wrote may be none all the same.
    fn decode(bytes: &[u8]) -> Result<Self, Self::Error>;

    /// Equal for all records of one object, and but for chance only for them. [`Record::merge`] has to stand two
    /// records of different objects: it keeps both.
    fn object(&self) -> u64;

    /// What to keep of two records of one object where there is no room for both: none, one, or both *as they were*,
    /// the older first. One that stands for both gets the newer one's number.
    fn merge(older: Self, newer: Self) -> SmallVec<[Self; 2]>;
}

/// How large a journal may get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalParams {
    /// Bytes of all its files.
    pub limit_bytes: u64,
    /// Bytes of a segment, about: what is removed at a time. Between 4 KiB and 1 GiB, a quarter of the limit at most.
    pub segment_bytes: u64,
}

/// A journal that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The disk failed.
    #[error("the journal's {file} cannot be {verb}", file = file.display())]
    Disk {
        /// Which file or directory.
        file: PathBuf,
        /// What was to be done to it.
        verb: &'static str,
        /// The disk's error.
        #[source]
        source: io::Error,
    },
    /// A newer version of the hub wrote it.
    #[error("{file} has format {version}, this version knows up to 1: run the version that wrote it", file = file.display())]
    Newer {
        /// Which file.
        file: PathBuf,
        /// Its format.
        version: u8,
    },
}

/// Records that were not taken.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The limit is reached, and nothing is acknowledged that could go.
    #[error("the journal is full: {bytes} bytes of {limit}, {pending} records pending")]
    Full {
        /// Bytes of its files.
        bytes: u64,
        /// What they may be.
        limit: u64,
        /// Records that are not acknowledged.
        pending: u64,
    },
    /// The limit is reached, and what is acknowledged is held for a restart's sake: see [`Journal::remember`].
    #[error("the journal is full of what it remembers")]
    Retained,
    /// A record or all of them together are too large to be ever taken.
    #[error("{bytes} bytes at once are too large for the journal, at most {most}")]
    TooLarge {
        /// What was to be appended.
        bytes: u64,
        /// What can be.
        most: u64,
    },
    /// The disk failed; trying again tries again.
    #[error("the journal cannot be written")]
    Disk(#[from] io::Error),
}

/// What [`Journal::open`] found.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Recovery {
    /// Records that are not acknowledged.
    pub pending: u64,
    /// Records that were accepted, are not acknowledged, and cannot be read any more.
    pub lost: u64,
    /// Bytes that are no record, file by file.
    pub damaged: Vec<DamagedRange>,
    /// Bytes at the end that a crash left, now cut off.
    pub torn_bytes: u64,
    /// Records that were there whole and could not be decoded; counted in `lost` too.
    pub undecodable: u64,
    /// Why the first of them could not.
    pub first_undecodable: Option<String>,
}

/// Where a file is damaged.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct DamagedRange {
    /// The file's name.
    pub file: String,
    /// The first byte.
    pub from: u64,
    /// The byte behind the last.
    pub to: u64,
}
