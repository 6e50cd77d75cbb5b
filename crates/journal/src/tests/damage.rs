//! Tests of damaged files, and of disks that lose synced data.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::model::{Change, DIR, open};
use crate::inspect::{decode_cursor, decode_segment, inspect};
use crate::{Record, Seq};
use informer_hub_sim::SimDisk;
use informer_hub_testing::{replayed, seeds};

const LIMIT: u64 = 1 << 20;

fn change(i: u32) -> Change {
    Change { object: u64::from(i), from: None, to: Some(i), pad: 60 }
}

/// Creates a disk with a synced journal of 120 accepted records, every third of which is acknowledged.
fn filled(seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    let (mut journal, ..) = open(&disk, LIMIT);
    for i in 0..12 {
        journal.append(&(i * 10..i * 10 + 10).map(change).collect::<Vec<_>>()).unwrap();
        journal.sync().unwrap();
    }
    journal.ack((0..120).filter(|seq| seq % 3 == 0));
    journal.sync().unwrap();
    journal.sync().unwrap();
    drop(journal);
    disk.kill();
    disk
}

fn segments(disk: &SimDisk) -> Vec<(PathBuf, u64)> {
    disk.files().into_iter().filter(|(path, _)| path.starts_with(DIR) && !path.ends_with("cursor")).collect()
}

#[test]
fn flipped_bit_loses_one_record_and_is_reported_once() {
    let mut lost = 0;
    for seed in seeds(0..300) {
        let disk = filled(seed);
        let mut rng = StdRng::seed_from_u64(seed);
        let files = segments(&disk);
        assert!(files.len() > 2);
        let (file, len) = &files[rng.random_range(0..files.len())];
        disk.flip(file, rng.random_range(0..len * 8));
        let looked = inspect(&disk, Path::new(DIR)).unwrap();
        let (mut journal, recovery, _) = open(&disk, LIMIT);
        let read = journal.read(0, usize::MAX, usize::MAX).unwrap().records;
        let expected: Vec<Seq> = (0..120).filter(|seq| seq % 3 != 0).collect();
        let missing = expected.iter().filter(|seq| !read.iter().any(|(read, _)| read == *seq)).count() as u64;
        assert!(missing <= 1, "seed {seed}: {missing} are missing");
        assert_eq!(recovery.lost, missing, "seed {seed}: {recovery:?}");
        assert_eq!((looked.lost, looked.pending), (missing, recovery.pending), "seed {seed}: {looked:?}");
        assert!(recovery.damaged.len() == 1 || recovery.torn_bytes > 0, "seed {seed}: {recovery:?}");
        assert!(read.iter().all(|(seq, read)| *read == change(u32::try_from(*seq).unwrap())));
        assert_eq!(journal.append(&[change(7)]).unwrap(), 120..121, "seed {seed}");
        journal.sync().unwrap();
        drop(journal);
        disk.kill();
        assert_eq!(open(&disk, LIMIT).1.lost, 0, "seed {seed}: reported twice");
        lost += missing;
    }
    assert!(lost > 100 || replayed().is_some(), "{lost}");
}

#[test]
fn damaged_cursor_repeats_records_and_loses_none() {
    for seed in seeds(0..200) {
        let disk = filled(seed);
        let cursor = Path::new(DIR).join("cursor");
        let len = disk.files().into_iter().find(|(path, _)| *path == cursor).unwrap().1;
        disk.flip(&cursor, StdRng::seed_from_u64(seed).random_range(0..len * 8));
        let (journal, recovery, seen) = open(&disk, LIMIT);
        assert!(recovery.pending >= 80 && recovery.lost == 0, "seed {seed}: {recovery:?}");
        assert_eq!((seen.len(), journal.next_seq()), (120, 120));
    }
}

#[test]
fn no_acknowledgement_outlives_an_earlier_one() {
    let mut pending = std::collections::BTreeSet::new();
    for seed in seeds(0..200) {
        let disk = SimDisk::new(seed);
        let (mut journal, ..) = open(&disk, LIMIT);
        journal.append(&(0..10).map(change).collect::<Vec<_>>()).unwrap();
        for seq in 0..8 {
            journal.ack([seq]);
            journal.sync().unwrap();
        }
        drop(journal);
        disk.kill();
        let cursor = Path::new(DIR).join("cursor");
        let len = disk.files().into_iter().find(|(path, _)| *path == cursor).unwrap().1;
        disk.flip(&cursor, StdRng::seed_from_u64(seed).random_range(0..len * 8));
        let (mut journal, ..) = open(&disk, LIMIT);
        let read: Vec<Seq> = journal.read(0, 99, usize::MAX).unwrap().records.iter().map(|(seq, _)| *seq).collect();
        assert_eq!(read, (journal.first_pending()..10).collect::<Vec<_>>(), "seed {seed}");
        pending.insert(read.len());
    }
    assert!(pending.len() > 4 || replayed().is_some(), "{pending:?}");
}

#[test]
fn record_damaged_while_open_is_skipped_and_counted() {
    let disk = filled(1);
    let (mut journal, ..) = open(&disk, LIMIT);
    let (file, _) = &segments(&disk)[0];
    // In the third record, which is pending.
    disk.flip(file, 8 * (33 + 2 * 100 + 50));
    // A byte limit of 0 reads the damaged record alone. The call then continues to the next pending record, number 4.
    let first = journal.read(2, 1, 0).unwrap();
    assert_eq!((first.damaged, first.records.len(), first.records[0].0), (vec![2], 1, 4));
    let batch = journal.read(0, usize::MAX, usize::MAX).unwrap();
    assert_eq!((batch.records.len(), batch.damaged.len()), (79, 0));
    assert_eq!((journal.lost(), journal.pending()), (1, 79));
    assert_eq!(journal.read(0, usize::MAX, usize::MAX).unwrap().damaged, Vec::<Seq>::new());
}

#[test]
fn removed_segment_is_counted_as_lost() {
    use informer_hub_disk::Disk;
    let disk = filled(1);
    let files = segments(&disk);
    disk.remove(&files[1].0).unwrap();
    let (_, recovery, seen) = open(&disk, LIMIT);
    let there = seen.iter().filter(|seen| !seen.2).count() as u64;
    assert_eq!(recovery.lost, 80 - there);
    assert!(recovery.lost > 10);
}

#[test]
fn lost_syncs_are_detected_by_acknowledgements_and_numbers_are_not_reused() {
    let (mut lost, mut reported) = (0, 0);
    for seed in seeds(0..300) {
        let disk = SimDisk::new(seed);
        let mut rng = StdRng::seed_from_u64(seed);
        let (mut journal, ..) = open(&disk, LIMIT);
        disk.set_lost_sync_rate(0.4);
        let mut accepted = BTreeMap::new();
        for i in 0..40 {
            let Ok(seqs) = journal.append(&[change(i)]) else { continue };
            journal.sync().unwrap();
            accepted.insert(seqs.start, i);
            if rng.random_bool(0.3) {
                let seq = rng.random_range(0..=seqs.start);
                journal.ack([seq]);
                accepted.remove(&seq);
            }
        }
        journal.sync().unwrap();
        journal.sync().unwrap();
        drop(journal);
        disk.crash();
        let (mut journal, recovery, seen) = open(&disk, LIMIT);
        for (seq, read, _) in &seen {
            assert_eq!(*read, change(u32::try_from(*seq).unwrap()), "seed {seed}");
        }
        let gone = accepted.keys().filter(|seq| !seen.iter().any(|(seen, ..)| seen == *seq)).count() as u64;
        (lost, reported) = (lost + gone, reported + recovery.lost);
        let pending = journal.pending();
        let seqs = journal.append(&[change(1000), change(1001)]).unwrap();
        assert_eq!(journal.pending(), pending + 2, "seed {seed}: {seqs:?} was acknowledged before it was appended");
    }
    assert!((lost > 0 && reported > 0) || replayed().is_some(), "{lost} lost, {reported} reported");
}

proptest! {
    #![proptest_config(informer_hub_testing::properties(200))]

    #[test]
    fn arbitrary_bytes_in_any_file_are_reported_as_damage(
        noise in prop::collection::vec(any::<u8>(), 0..400),
        which in any::<prop::sample::Index>(),
    ) {
        let disk = filled(3);
        let mut files = segments(&disk);
        files.push((Path::new(DIR).join("cursor"), 0));
        let (file, _) = &files[which.index(files.len())];
        informer_hub_disk::replace(&disk, file, &noise).unwrap();
        let (mut journal, recovery, seen) = open(&disk, LIMIT);
        prop_assert_eq!(recovery.pending, journal.pending());
        prop_assert!(seen.len() >= 80);
        prop_assert!(journal.append(&[change(1)]).is_ok());
        let _ = decode_cursor(&noise);
        decode_segment(&noise, 0, |_, record| drop(Change::decode(record)));
    }
}
