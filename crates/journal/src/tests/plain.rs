//! Tests of a journal without faults or with single ones, and of its error texts.

use std::path::Path;
use std::sync::Arc;

use super::model::{Change, DIR, open, params};
use crate::{AppendError, Journal, JournalError, Seq};
use informer_hub_disk::{Disk, RealDisk};
use informer_hub_sim::{DiskCall, SimDisk};

fn changes(range: std::ops::Range<u32>) -> Vec<Change> {
    range.map(|i| Change { object: u64::from(i % 5), from: Some(i), to: Some(i + 5), pad: 100 }).collect()
}

fn seqs(journal: &mut Journal<Change>) -> Vec<Seq> {
    journal.read(0, usize::MAX, usize::MAX).unwrap().records.into_iter().map(|(seq, _)| seq).collect()
}

/// Returns a journal of several segments with 200 synced records.
fn filled(disk: &SimDisk) -> Journal<Change> {
    let (mut journal, ..) = open(disk, 1 << 20);
    for i in 0..20 {
        journal.append(&changes(i * 10..i * 10 + 10)).unwrap();
        journal.sync().unwrap();
    }
    journal
}

#[test]
fn records_are_read_in_order_until_acknowledged() {
    let disk = SimDisk::new(1);
    let (mut journal, ..) = open(&disk, 1 << 20);
    assert_eq!(journal.append(&changes(0..10)).unwrap(), 0..10);
    assert!(!journal.is_synced());
    journal.sync().unwrap();
    assert_eq!(journal.ack([3, 4, 4, 99]), 2);
    let read = journal.read(2, 3, usize::MAX).unwrap().records;
    assert_eq!(read.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), [2, 5, 6]);
    assert_eq!(read[1].1, changes(5..6)[0]);
    assert_eq!((journal.pending(), journal.first_pending(), journal.next_seq()), (8, 0, 10));
    assert_eq!(journal.get(5).unwrap(), Some(changes(5..6)[0].clone()));
    assert_eq!((journal.get(4).unwrap(), journal.get(10).unwrap()), (None, None));
    journal.sync().unwrap();
    drop(journal);
    disk.kill();
    let (mut journal, recovery, seen) = open(&disk, 1 << 20);
    assert_eq!((recovery.pending, recovery.lost, recovery.damaged.len()), (8, 0, 0));
    assert_eq!(seen.iter().filter(|seen| seen.2).map(|seen| seen.0).collect::<Vec<_>>(), [3, 4]);
    assert_eq!(seqs(&mut journal), [0, 1, 2, 5, 6, 7, 8, 9]);
    assert_eq!(journal.append(&changes(10..11)).unwrap(), 10..11);
}

#[test]
fn read_with_a_small_byte_limit_returns_one_record() {
    let (mut journal, ..) = open(&SimDisk::new(1), 1 << 20);
    journal.append(&changes(0..10)).unwrap();
    assert_eq!(journal.read(0, 5, 0).unwrap().records.len(), 1);
    assert_eq!(journal.read(0, 5, 400).unwrap().records.len(), 2);
    assert_eq!(journal.read(0, 0, 400).unwrap().records.len(), 0);
}

#[test]
fn full_disk_frees_acknowledged_segments_behind_a_pending_record() {
    let disk = SimDisk::new(1);
    let mut journal = filled(&disk);
    let full = journal.bytes();
    journal.ack(1..200);
    disk.fail(DiskCall::Rename, 1);
    journal.drop_acked();
    assert!(journal.bytes() >= full, "the acknowledgements are not on disk");
    for _ in 0..2 {
        journal.drop_acked();
    }
    assert!(journal.bytes() < full / 2, "{} of {full}", journal.bytes());
    drop(journal);
    disk.crash();
    let (mut journal, recovery, _) = open(&disk, 1 << 20);
    assert_eq!((recovery.pending, recovery.lost, journal.next_seq()), (1, 0, 200));
    assert_eq!(seqs(&mut journal), [0]);
}

#[test]
fn acknowledged_last_segment_is_removed_from_a_disk_without_free_space() {
    let disk = SimDisk::new(1);
    let (mut journal, ..) = open(&disk, 1 << 20);
    journal.append(&changes(0..10)).unwrap();
    journal.sync().unwrap();
    disk.set_capacity(Some(disk.bytes()));
    journal.ack(0..10);
    journal.drop_acked();
    assert!(disk.bytes() < 100, "{} bytes", disk.bytes());
    assert_eq!(journal.append(&changes(10..13)).unwrap(), 10..13);
    journal.sync().unwrap();
    drop(journal);
    disk.crash();
    let (mut journal, recovery, _) = open(&disk, 1 << 20);
    assert_eq!((recovery.pending, recovery.lost, recovery.damaged.len()), (3, 0, 0));
    assert_eq!(seqs(&mut journal), [10, 11, 12]);
}

#[test]
fn segments_are_removed_when_acknowledged_and_released() {
    let disk = SimDisk::new(1);
    let mut journal = filled(&disk);
    let full = journal.bytes();
    journal.ack(0..200);
    journal.sync().unwrap();
    assert!(journal.bytes() >= full, "acknowledged but not released");
    journal.release(100);
    let half = journal.bytes();
    assert!(half < full * 2 / 3, "{half} of {full}");
    journal.release(200);
    assert!(journal.bytes() < half / 2);
    drop(journal);
    disk.kill();
    let (journal, recovery, _) = open(&disk, 1 << 20);
    assert_eq!((journal.next_seq(), recovery.lost, recovery.pending), (200, 0, 0));
}

#[test]
fn full_journal_removes_acknowledged_segments_then_rejects_until_merged() {
    let (mut journal, ..) = open(&SimDisk::new(1), 16 << 10);
    let mut appended = 0;
    let refused = loop {
        match journal.append(&changes(appended..appended + 5)) {
            Ok(_) => appended += 5,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, AppendError::Full { pending, .. } if pending == u64::from(appended)), "{refused}");
    assert_eq!(
        refused.to_string(),
        format!("the journal is full: {} of 16384 bytes, {appended} records pending", journal.bytes())
    );
    journal.ack(0..40);
    for i in 0..5 {
        journal.append(&changes(appended + i * 5..appended + i * 5 + 5)).unwrap();
    }
    let appended = appended + 25;
    while journal.append(&changes(appended..appended + 1)).is_ok() {}
    let next = journal.next_seq();
    let merged = journal.merge_pending(0..next).unwrap();
    assert_eq!(merged.records_after, 5, "one record per object: {merged:?}");
    assert!(merged.bytes_after < merged.bytes_before / 4, "{merged:?}");
    let read = journal.read(0, usize::MAX, usize::MAX).unwrap().records;
    assert_eq!(read.iter().map(|(_, change)| change.from).max(), Some(Some(44)));
    assert_eq!(journal.append(&changes(0..5)).unwrap(), next..next + 5);
}

#[test]
fn overlong_append_is_rejected_as_too_large() {
    let (mut journal, ..) = open(&SimDisk::new(1), 8 << 10);
    let large = Change { object: 1, from: None, to: None, pad: 9000 };
    assert!(matches!(journal.append(std::slice::from_ref(&large)), Err(AppendError::TooLarge { .. })));
    assert!(matches!(journal.append(&[Change { pad: 65 << 20, ..large }]), Err(AppendError::TooLarge { .. })));
    assert_eq!(journal.append(&changes(0..2)).unwrap(), 0..2);
    assert_eq!(seqs(&mut journal), [0, 1]);
}

#[test]
fn failed_append_leaves_nothing_and_can_be_retried() {
    for call in [DiskCall::Append, DiskCall::Truncate] {
        let disk = SimDisk::new(1);
        let (mut journal, ..) = open(&disk, 1 << 20);
        journal.append(&changes(0..3)).unwrap();
        disk.set_capacity(Some(disk.bytes() + 200));
        disk.fail(call, 1);
        assert!(matches!(journal.append(&changes(3..6)), Err(AppendError::Disk(_))));
        assert_eq!(seqs(&mut journal), [0, 1, 2]);
        disk.set_capacity(None);
        assert_eq!(journal.append(&changes(3..6)).unwrap(), 3..6);
        journal.sync().unwrap();
        drop(journal);
        disk.crash();
        let (mut journal, recovery, _) = open(&disk, 1 << 20);
        assert_eq!((seqs(&mut journal), recovery.lost), ((0..6).collect(), 0));
    }
}

#[test]
fn records_of_a_failed_sync_are_rewritten_to_a_new_segment() {
    let disk = SimDisk::new(1);
    let (mut journal, ..) = open(&disk, 1 << 20);
    journal.append(&changes(0..3)).unwrap();
    journal.sync().unwrap();
    journal.append(&changes(3..6)).unwrap();
    disk.fail(DiskCall::Sync, 2);
    assert!(journal.sync().is_err());
    assert_eq!(seqs(&mut journal), [0, 1, 2, 3, 4, 5]);
    journal.append(&changes(6..7)).unwrap();
    journal.sync().unwrap();
    drop(journal);
    disk.crash();
    let (mut journal, recovery, _) = open(&disk, 1 << 20);
    assert_eq!((seqs(&mut journal), recovery.lost), ((0..7).collect(), 0));
}

#[test]
fn cursor_error_is_reported_until_a_write_succeeds() {
    let disk = SimDisk::new(1);
    let (mut journal, ..) = open(&disk, 1 << 20);
    journal.append(&changes(0..3)).unwrap();
    journal.sync().unwrap();
    journal.ack([0]);
    disk.set_capacity(Some(disk.bytes()));
    journal.sync().unwrap();
    assert!(journal.cursor_error().is_some());
    disk.set_capacity(None);
    for _ in 0..3 {
        journal.sync().unwrap();
    }
    assert!(journal.cursor_error().is_none());
    drop(journal);
    disk.crash();
    assert_eq!(open(&disk, 1 << 20).1.pending, 2);
}

#[test]
fn full_journal_keeps_a_later_segment_until_its_acknowledgements_are_on_disk() {
    let disk = SimDisk::new(1);
    let (mut journal, ..) = open(&disk, 16 << 10);
    let mut appended = 0;
    while journal.append(&changes(appended..appended + 5)).is_ok() {
        appended += 5;
    }
    journal.sync().unwrap();
    // The first segment blocks the others.
    journal.ack(1..u64::from(appended));
    disk.set_capacity(Some(disk.bytes()));
    assert!(matches!(journal.append(&changes(0..5)), Err(AppendError::Disk(_))));
    disk.set_capacity(None);
    while journal.append(&changes(0..5)).is_err() {
        journal.sync().unwrap();
    }
}

#[test]
fn dead_letters_can_be_listed_read_singly_and_purged() {
    let (mut journal, ..) = open(&SimDisk::new(1), 1 << 20);
    for i in 0..10 {
        journal.append(&changes(i * 10..i * 10 + 10)).unwrap();
    }
    journal.release(Seq::MAX);
    journal.ack((0..100).filter(|seq| seq % 50 != 49));
    journal.sync().unwrap();
    assert_eq!(seqs(&mut journal), [49, 99]);
    let before = journal.bytes();
    // An empty range merges nothing and drops acknowledged (purged) records, except in the current segment.
    journal.merge_pending(0..0).unwrap();
    assert_eq!(seqs(&mut journal), [49, 99]);
    assert!(journal.bytes() < before / 2, "{} of {before}", journal.bytes());
}

#[test]
fn journal_of_a_newer_version_is_not_modified() {
    let disk = SimDisk::new(1);
    drop(open(&disk, 1 << 20));
    let file = Path::new(DIR).join("cursor");
    let mut bytes = Vec::new();
    informer_hub_disk::frame::write(0x63_75_72_73, &[2, 0, 0], &mut bytes).unwrap();
    informer_hub_disk::replace(&disk, &file, &bytes).unwrap();
    let opened = Journal::<Change>::open(Arc::new(disk), Path::new(DIR), params(1 << 20), &mut |_, _, _| {});
    let error = opened.expect_err("the format is newer");
    assert!(matches!(error, JournalError::Newer { version: 2, .. }));
    assert_eq!(
        error.to_string(),
        format!("{} has format 2, this program reads formats up to 1: run the version that wrote it", file.display())
    );
}

#[test]
fn journal_works_on_the_real_disk() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("sinks/a/journal");
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let open = || Journal::<Change>::open(disk.clone(), &dir, params(1 << 20), &mut |_, _, _| {}).unwrap();
    let (mut journal, _) = open();
    for i in 0..20 {
        journal.append(&changes(i * 10..i * 10 + 10)).unwrap();
        journal.sync().unwrap();
    }
    journal.ack(0..150);
    journal.sync().unwrap();
    journal.merge_pending(150..190).unwrap();
    drop(journal);
    let (mut journal, recovery) = open();
    assert_eq!((recovery.lost, recovery.damaged.len()), (0, 0));
    assert_eq!(seqs(&mut journal), (185..200).collect::<Vec<_>>());
}
