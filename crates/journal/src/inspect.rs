//! Inspection of a journal without modifying it.

use std::path::Path;

use super::open::{LossCounter, Scan};
use super::{DamagedRange, JournalError, Seq, cursor};
use informer_hub_disk::Disk;
use informer_hub_disk::frame::{Item, Reader};

/// Content of a journal directory.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JournalReport {
    /// Segment files, sorted by their first sequence number.
    pub files: Vec<FileReport>,
    /// Number of intact records in all files.
    pub records: u64,
    /// Number of intact records that are not acknowledged.
    pub pending: u64,
    /// Number of accepted, unacknowledged records that can no longer be read.
    pub lost: u64,
    /// Total size of all files in bytes.
    pub bytes: u64,
    /// Sequence number of the next record.
    pub next_seq: Seq,
    /// Damaged byte ranges of all files.
    pub damaged: Vec<DamagedRange>,
    /// Number of bytes of an interrupted write at the end of the last file. The next start truncates them.
    pub torn_bytes: u64,
    /// Temporary files and replaced segments, which the next start removes.
    pub leftovers: Vec<String>,
}

/// One file of a journal.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FileReport {
    /// File name.
    pub file: String,
    /// Length in bytes.
    pub bytes: u64,
    /// Number of intact records in the file.
    pub records: u64,
    /// Number of intact records in the file that are not acknowledged.
    pub pending: u64,
    /// Number of bytes in the file that are not valid records.
    pub damaged_bytes: u64,
}

impl JournalReport {
    /// Returns whether nothing is damaged or lost. An interrupted write at the end is not damage.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.damaged.is_empty() && self.lost == 0
    }
}

/// Reads all files of a journal without decoding the records.
///
/// # Errors
/// Fails if a file cannot be read, or a newer version wrote it.
pub fn inspect(disk: &dyn Disk, dir: &Path) -> Result<JournalReport, JournalError> {
    let mut scan = Scan::of(disk, dir)?;
    let mut report = JournalReport { leftovers: std::mem::take(&mut scan.leftovers), ..JournalReport::default() };
    for (from, to) in &scan.cursor.damaged {
        report.damaged.push(DamagedRange { file: cursor::NAME.to_owned(), from: *from, to: *to });
    }
    let mut losses = LossCounter::new(&mut scan.cursor);
    for (at, file) in scan.files.iter().enumerate() {
        let mut one = FileReport { file: file.name.to_string(), ..FileReport::default() };
        losses.begin(file);
        let walked = file.walk(disk, dir, |seq, _, _| {
            losses.record(seq, file.name)?;
            one.records += 1;
            one.pending += u64::from(!losses.is_acked(seq));
            Some(())
        })?;
        losses.end(file, one.records);
        let torn = walked.torn.map(|from| (from, walked.bytes));
        let at_end = at + 1 == scan.files.len();
        report.torn_bytes += torn.filter(|_| at_end).map_or(0, |(from, to)| to - from);
        let damaged_end = torn.filter(|_| !at_end && file.is_missing_its_end(&losses));
        for (from, to) in walked.damaged.iter().copied().chain(damaged_end) {
            one.damaged_bytes += to - from;
            report.damaged.push(DamagedRange { file: one.file.clone(), from, to });
        }
        one.bytes = walked.bytes;
        report.records += one.records;
        report.pending += one.pending;
        report.bytes += one.bytes;
        report.files.push(one);
    }
    report.next_seq = losses.finish();
    report.lost = losses.lost;
    Ok(report)
}

/// Decodes a segment in memory and calls `each` with its records. For fuzzing.
pub fn decode_segment(bytes: &[u8], salt: u32, mut each: impl FnMut(Seq, &[u8])) {
    let mut reader = Reader::of_slice(bytes, salt);
    while let Ok(Some(item)) = reader.next() {
        if let Item::Frame { offset, payload } = item {
            match super::segment::split_record(payload) {
                Some((seq, record)) if offset > 0 => each(seq, record),
                _ => _ = super::segment::Header::decode(payload).map(drop),
            }
        }
    }
}

/// Decodes a cursor file in memory and returns whether it has a readable frame. For fuzzing.
#[must_use]
pub fn decode_cursor(bytes: &[u8]) -> bool {
    cursor::decode(bytes)
}
