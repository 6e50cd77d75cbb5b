//! Durable queue with one reader: records get sequence numbers, are read in order and acknowledged in any order.
//!
//! Synchronous: the owner of a journal calls it from a thread that may block.
//!
//! # Contract
//! - A record is *accepted* once [`Journal::sync`] has succeeded after its [`Journal::append`]. [`Journal::open`] and
//!   [`Journal::read`] return an accepted record until it is acknowledged. This holds across the end of the process,
//!   power loss, a full disk and failing calls. Only two things remove such a record: [`Journal::merge_pending`], by
//!   the rule of [`Record::merge`], and damage to the file. Damage is confined to the affected records, counted, and
//!   reported once.
//! - An append is atomic within the process. After a crash, any prefix of an append that was not accepted may exist.
//! - Sequence numbers only increase, also across restarts, and are never reused. An acknowledgement never applies to
//!   another record.
//! - A lost acknowledgement repeats a record but loses none. Each sync writes the acknowledgements. It also fsyncs them
//!   if it has no records to make durable, or if over about 1,000 acknowledgements are not fsynced. So a power loss can
//!   lose about 1,000 acknowledgements.
//!
//! # Files
//! | file | content |
//! |---|---|
//! | `<first number>-<generation>.log` | an appended segment without gaps: a missing number is a lost record |
//! | `<first number>-<generation>.mrg` | a merged segment, with gaps |
//! | `cursor` | acknowledgements |
//! | `told` (sinks) | last event of each object, from segments deleted before the caches had caught up |
//!
//! Each file is a sequence of frames with checksums. A checksum starts from a salt. The salt of a segment is the CRC-32
//! of its name, that of `cursor` is `0x63757273`, and that of `told` is `0x746f6c64`. The generation of a segment is
//! its number in the order of creation.
//!
//! - *Segment*: the first frame is a header. It has the format (one byte, `1`), the number after the last one that the
//!   segment covers, its record count, and the generations that it replaces, in eight bytes each. In a `.log`, the
//!   number and the record count are zero, and there are no generations. Each other frame has a number (eight bytes)
//!   and a record.
//! - *`told`*: each frame has a format, a number and an event.
//! - *`cursor`*: each frame has the format, the number below which all records are accepted, and the number of ranges.
//!   For each range follow the gap before it and its length. The numbers are LEB128. The union of all frames before the
//!   first damaged one is acknowledged. The file is rewritten once it exceeds two bounds: four times its length after
//!   the last rewrite, and 64 KiB (or a sixteenth of the limit, if that is less).
//!
//! From its first number on, a `.log` invalidates records of older generations. A `.mrg` invalidates the segments whose
//! generations are in its header.
//!
//! # Bounds
//! The files take at most the limit, plus the output of one merge. In memory, a record takes 8⅛ bytes if its segment is
//! the last one or has a pending record; other records take none. Memory also holds the appended bytes that are not
//! synced, and one chunk for reading.
//!
//! # At the limit
//! An append at the limit first removes segments whose records are all acknowledged, even if [`Journal::release`] has
//! not released them. On a full disk, [`Journal::drop_acked`] does the same.
//!
//! After [`Journal::retain_acked`], segments that are not released stay, and [`Journal::append`] fails with
//! [`AppendError::Retained`]. To continue, the owner saves the records of [`Journal::visit_retained`] elsewhere and
//! calls [`Journal::mark_saved`].
//!
//! If no segment is fully acknowledged, [`Journal::append`] fails with [`AppendError::Full`]. The owner can call
//! [`Journal::merge_pending`] and retry.
//!
//! If the disk is full when a journal is opened, the records below [`Journal::accepted`] are durable. Acknowledging
//! them frees space, in which the other records are written again.

use std::fmt::Display;
use std::io;
use std::path::PathBuf;

use smallvec::SmallVec;

mod cursor;
mod displaced;
pub mod inspect;
mod merge;
mod open;
mod ranges;
mod read;
mod retain;
mod segment;
mod settle;
#[cfg(test)]
mod tests;
mod write;

pub use merge::Merged;
pub use read::Batch;
pub use write::Journal;

/// Sequence number of a record in its journal.
pub type Seq = u64;

/// Upper bound of sequence numbers. A higher number in a file is damage.
const MAX_SEQ: Seq = 1 << 62;

/// Type of the records in a journal.
pub trait Record: Sized {
    /// Error of decoding a record.
    type Error: Display;

    /// Appends the encoded record to `out`.
    fn encode(&self, out: &mut Vec<u8>);

    /// Decodes the output of [`Record::encode`]. The checksum of the bytes is valid, but another version may have
    /// written them.
    fn decode(bytes: &[u8]) -> Result<Self, Self::Error>;

    /// Returns a hash of the object that the record is about. If the hashes of two objects collide, [`Record::merge`]
    /// must keep both records.
    fn object(&self) -> u64;

    /// Merges two records of one object, to save space. Returns one of these results:
    ///
    /// - both records *unchanged*, the older first
    /// - one record that replaces both, and gets the sequence number of `newer`
    /// - no record, if neither is needed
    fn merge(older: Self, newer: Self) -> SmallVec<[Self; 2]>;
}

/// Size limits of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalParams {
    /// Maximum total size of all files, in bytes.
    pub limit_bytes: u64,
    /// Approximate bytes of a segment, the unit in which records are removed. Between 4 KiB and 1 GiB, and at most a
    /// quarter of the limit.
    pub segment_bytes: u64,
}

/// Error of opening a journal.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The disk failed, for a cause that the operator can remove.
    #[error("cannot {verb} the journal at {file}", file = file.display())]
    Disk {
        /// File or directory.
        file: PathBuf,
        /// Operation that failed, e.g. `read`.
        verb: &'static str,
        /// Error of the disk.
        #[source]
        source: io::Error,
    },
    /// A newer version of the hub wrote the file. The operator can run that version.
    #[error("{file} has format {version}, this program reads formats up to 1: run the version that wrote it", file = file.display())]
    Newer {
        /// File of the journal.
        file: PathBuf,
        /// Format number in the file.
        version: u8,
    },
}

/// Error of appending records. No record was appended.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The limit is reached, and no acknowledged records can be removed.
    #[error("the journal is full: {bytes} of {limit} bytes, {pending} records pending")]
    Full {
        /// Total size of the files in bytes.
        bytes: u64,
        /// Maximum total size of the files in bytes.
        limit: u64,
        /// Number of records that are not acknowledged.
        pending: u64,
    },
    /// The size limit is reached. All acknowledged records that could be removed must stay for a restart; see
    /// [`Journal::retain_acked`].
    #[error("the journal is full of acknowledged records that are retained for a restart")]
    Retained,
    /// One record, or all records of this append together, exceed the maximum size.
    #[error("append of {bytes} bytes exceeds the journal's maximum of {most} bytes")]
    TooLarge {
        /// Size in bytes of the record or of all records of the append.
        bytes: u64,
        /// Maximum size in bytes of one record or one append.
        most: u64,
    },
    /// The disk failed. A new attempt may succeed.
    #[error("cannot write the journal")]
    Disk(#[from] io::Error),
}

/// Findings of [`Journal::open`].
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Recovery {
    /// Number of records that are not acknowledged.
    pub pending: u64,
    /// Number of accepted, unacknowledged records that can no longer be read.
    pub lost: u64,
    /// Damaged byte ranges, per file.
    pub damaged: Vec<DamagedRange>,
    /// Number of bytes of an interrupted write at the end of the last file, which were truncated.
    pub torn_bytes: u64,
    /// Number of intact records that cannot be decoded. `lost` counts them too.
    pub undecodable: u64,
    /// Decoding error of the first undecodable record; `None` if there is none.
    pub first_undecodable: Option<String>,
}

/// Damaged part of a file.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct DamagedRange {
    /// File name.
    pub file: String,
    /// Offset of the first damaged byte in the file.
    pub from: u64,
    /// Offset of the first byte after the damage.
    pub to: u64,
}
