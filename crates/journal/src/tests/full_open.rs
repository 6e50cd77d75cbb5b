//! Tests of opening a journal on a full disk.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::model::{Change, open, open_on};
use super::overwriting::OverwritingDisk;
use crate::{Journal, Seq};
use informer_hub_sim::{DiskCall, SimDisk};
use informer_hub_testing::seeds;

const LIMIT: u64 = 1 << 20;

fn changes(range: std::ops::Range<u32>) -> Vec<Change> {
    range.map(|i| Change { object: u64::from(i), from: None, to: Some(i), pad: 100 }).collect()
}

/// Returns a disk without free space and with a journal of `records` records, of which the first is acknowledged.
fn filled(seed: u64, records: u32) -> SimDisk {
    let disk = SimDisk::new(seed);
    informer_hub_disk::make_dir(&disk, Path::new("/s/sinks"), 2).unwrap();
    let (mut journal, ..) = open(&disk, LIMIT);
    for i in 0..records / 10 {
        journal.append(&changes(i * 10..i * 10 + 10)).unwrap();
        journal.sync().unwrap();
        if i == 0 {
            // Leaves a cursor file, which is outdated afterwards.
            journal.ack([0]);
            journal.sync().unwrap();
        }
    }
    drop(journal);
    disk.kill();
    disk.set_capacity(Some(disk.bytes()));
    disk
}

fn seqs(journal: &mut Journal<Change>) -> Vec<Seq> {
    journal.read(0, usize::MAX, usize::MAX).unwrap().records.into_iter().map(|(seq, _)| seq).collect()
}

#[test]
fn earlier_segments_are_accepted_and_acknowledging_them_makes_space_for_the_last() {
    for seed in seeds(0..20) {
        let disk = filled(seed, 300);
        let (mut journal, ..) = open(&disk, LIMIT);
        let accepted = journal.accepted();
        assert!((200..300).contains(&accepted) && !journal.is_synced(), "{accepted}");
        assert_eq!(seqs(&mut journal), (1..300).collect::<Vec<_>>());
        assert!(journal.sync().is_err(), "nothing is acknowledged");
        // A power loss keeps the accepted records, and a restart does not count others as lost.
        disk.crash();
        let (mut journal, recovery, _) = open(&disk, LIMIT);
        assert_eq!((journal.accepted(), recovery.lost), (accepted, 0));
        journal.ack(0..accepted);
        journal.sync().unwrap();
        assert!(journal.is_synced() && journal.accepted() == 300);
        drop(journal);
        disk.crash();
        let (mut journal, recovery, _) = open(&disk, LIMIT);
        assert_eq!((seqs(&mut journal), recovery.lost), ((accepted..300).collect(), 0));
    }
}

#[test]
fn records_removed_to_make_space_do_not_count_as_lost() {
    let disk = filled(1, 300);
    let (mut journal, ..) = open(&disk, LIMIT);
    journal.ack(0..journal.accepted());
    journal.drop_acked();
    drop(journal);
    disk.kill();
    let (_, recovery, seen) = open(&disk, LIMIT);
    assert!(seen.len() < 150 && recovery.lost == 0, "{recovery:?}");
}

#[test]
fn release_makes_space_for_the_last_segment() {
    let disk = filled(1, 300);
    let (mut journal, ..) = open(&disk, LIMIT);
    journal.retain_acked();
    let accepted = journal.accepted();
    journal.ack(0..accepted);
    assert!(journal.sync().is_err(), "the acknowledged records are retained");
    journal.release(accepted);
    journal.sync().unwrap();
    assert_eq!(journal.accepted(), 300);
}

#[test]
fn only_segment_is_overwritten_and_accepts_appends() {
    for seed in seeds(0..20) {
        let disk = filled(seed, 20);
        let on = Arc::new(OverwritingDisk::new(&disk));
        assert!(open(&disk, LIMIT).0.accepted() == 10);
        let (mut journal, ..) = open_on(on.clone(), LIMIT);
        assert!(journal.is_synced() && journal.accepted() == 20);
        disk.set_capacity(Some(disk.bytes() + 500));
        assert_eq!(journal.append(&changes(20..22)).unwrap(), 20..22);
        journal.sync().unwrap();
        drop(journal);
        disk.crash();
        assert_eq!(seqs(&mut open_on(on, LIMIT).0), (1..22).collect::<Vec<_>>());
    }
}

#[test]
fn records_of_a_failed_sync_are_durable_after_the_overwrite() {
    for seed in seeds(0..50) {
        let disk = filled(seed, 20);
        disk.set_capacity(None);
        let on = Arc::new(OverwritingDisk::new(&disk));
        let (mut journal, ..) = open_on(on.clone(), LIMIT);
        journal.append(&changes(20..30)).unwrap();
        disk.fail(DiskCall::Sync, u32::MAX);
        assert!(journal.sync().is_err());
        drop(journal);
        disk.kill();
        disk.set_capacity(Some(disk.bytes()));
        let (journal, ..) = open_on(on.clone(), LIMIT);
        assert_eq!(journal.accepted(), 30);
        drop(journal);
        disk.crash();
        assert_eq!(seqs(&mut open_on(on, LIMIT).0), (1..30).collect::<Vec<_>>());
    }
}

/// A failed attempt to start a segment may leave its file, which invalidates the records that were to be moved into it.
#[test]
fn nothing_is_overwritten_beside_a_newer_segment() {
    for seed in seeds(0..50) {
        let disk = filled(seed, 20);
        disk.set_capacity(None);
        let on = Arc::new(OverwritingDisk::new(&disk));
        on.fails_after_rename.store(true, Relaxed);
        let (mut journal, ..) = open_on(on.clone(), LIMIT);
        assert!(!on.fails_after_rename.load(Relaxed), "no segment was started");
        journal.append(&changes(20..21)).unwrap();
        journal.sync().unwrap();
        drop(journal);
        disk.crash();
        assert_eq!(seqs(&mut open_on(on, LIMIT).0), (1..21).collect::<Vec<_>>(), "seed {seed}");
    }
}
