//! A journal, looked at without touching it.

use std::path::Path;

use super::open::{Count, Scan};
use super::{DamagedRange, JournalError, Seq, cursor};
use informer_hub_disk::Disk;
use informer_hub_disk::frame::{Item, Reader};

/// What a journal's directory has.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JournalReport {
    /// Its files, in the order of their records.
    pub files: Vec<FileReport>,
    /// Records of all files.
    pub records: u64,
    /// Those that are not acknowledged.
    pub pending: u64,
    /// Records that had been accepted, are not acknowledged, and are not there.
    pub lost: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// The number that the next record would get.
    pub next_seq: Seq,
    /// Where files are damaged.
    pub damaged: Vec<DamagedRange>,
    /// Bytes at the end that a crash left; the next start cuts them off.
    pub torn_bytes: u64,
    /// Files that the next start removes.
    pub leftovers: Vec<String>,
}

/// One file of a journal.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FileReport {
    /// Its name.
    pub file: String,
    /// Its length.
    pub bytes: u64,
    /// Whole records.
    pub records: u64,
    /// Those that are not acknowledged.
    pub pending: u64,
    /// Bytes that are no record.
    pub damaged_bytes: u64,
}

impl JournalReport {
    /// Whether nothing is damaged or lost. What a crash left at the end is no damage.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.damaged.is_empty() && self.lost == 0
    }
}

/// Reads all files of a journal. Records are not decoded: what is in them is for others to judge.
///
/// # Errors
/// When a file cannot be read, or a newer version wrote it.
pub fn inspect(disk: &dyn Disk, dir: &Path) -> Result<JournalReport, JournalError> {
    let mut scan = Scan::of(disk, dir)?;
    let mut report = JournalReport { leftovers: std::mem::take(&mut scan.leftovers), ..JournalReport::default() };
    for (from, to) in &scan.said.damaged {
        report.damaged.push(DamagedRange { file: cursor::NAME.to_owned(), from: *from, to: *to });
    }
    let mut count = Count::new(&mut scan.said);
    for (at, file) in scan.files.iter().enumerate() {
        let mut one = FileReport { file: file.name.to_string(), ..FileReport::default() };
        count.begin(file);
        let walked = file.walk(disk, dir, |seq, _, _| {
            count.record(seq, file.name)?;
            one.records += 1;
            one.pending += u64::from(!count.is_acked(seq));
            Some(())
        })?;
        count.end(file, one.records);
        let torn = walked.torn.map(|from| (from, walked.bytes));
        let at_end = at + 1 == scan.files.len();
        report.torn_bytes += torn.filter(|_| at_end).map_or(0, |(from, to)| to - from);
        let damaged_end = torn.filter(|_| !at_end && file.has_lost_its_end(&count));
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
    report.next_seq = count.finish();
    report.lost = count.lost;
    Ok(report)
}

/// Reads the frames of a segment that is in memory as its records' bytes; for those who feed it noise.
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

/// Reads a cursor's file that is in memory; whether it said anything. For those who feed it noise.
#[must_use]
pub fn decode_cursor(bytes: &[u8]) -> bool {
    cursor::decode(bytes)
}
