//! Tests of journal files that are removed or replaced while in use.

use std::path::Path;
use std::sync::Arc;

use super::model::{Change, params};
use crate::{Journal, Seq};
use informer_hub_disk::{Disk, RealDisk};

fn changes(range: std::ops::Range<u32>) -> Vec<Change> {
    range.map(|i| Change { object: u64::from(i % 5), from: Some(i), to: Some(i + 5), pad: 100 }).collect()
}

fn open(dir: &Path) -> Journal<Change> {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    Journal::open(disk, dir, params(1 << 20), &mut |_, _, _| {}).unwrap().0
}

fn pending(journal: &mut Journal<Change>) -> Vec<Seq> {
    let batch = journal.read(0, usize::MAX, usize::MAX).unwrap();
    assert!(batch.damaged.is_empty(), "{:?}", batch.damaged);
    for (seq, change) in &batch.records {
        assert_eq!(u64::from(change.from.unwrap()), *seq);
    }
    batch.records.into_iter().map(|(seq, _)| seq).collect()
}

/// Ways of removing or replacing a directory in use.
const HANDS: [fn(&Path); 4] = [
    |sinks| std::fs::remove_dir_all(sinks).unwrap(),
    |sinks| std::fs::rename(sinks, sinks.with_extension("moved")).unwrap(),
    |sinks| {
        std::fs::rename(sinks, sinks.with_extension("moved")).unwrap();
        std::fs::create_dir_all(sinks.join("a/journal")).unwrap();
    },
    // A copy, e.g. of a backup, contains a different file than the open one.
    |sinks| {
        let moved = sinks.with_extension("moved");
        std::fs::rename(sinks, &moved).unwrap();
        std::fs::create_dir_all(sinks.join("a/journal")).unwrap();
        for file in std::fs::read_dir(moved.join("a/journal")).unwrap().map(Result::unwrap) {
            std::fs::copy(file.path(), sinks.join("a/journal").join(file.file_name())).unwrap();
        }
    },
];

#[test]
fn current_segment_is_rewritten_and_other_records_are_counted_as_lost() {
    for (way, hand) in HANDS.into_iter().enumerate() {
        for synced in [false, true] {
            let root = tempfile::tempdir().unwrap();
            let (sinks, dir) = (root.path().join("sinks"), root.path().join("sinks/a/journal"));
            std::fs::create_dir_all(&dir).unwrap();
            let mut journal = open(&dir);
            for i in 0..10 {
                journal.append(&changes(i * 10..i * 10 + 10)).unwrap();
                journal.sync().unwrap();
            }
            journal.ack((0..100).filter(|seq| seq % 3 == 0));
            journal.append(&changes(100..103)).unwrap();
            if synced {
                journal.sync().unwrap();
            }
            let begun = Seq::from_str_radix(&latest(&dir)[..20], 10).unwrap();
            hand(&sinks);
            if synced {
                journal.check_files().unwrap();
            } else {
                journal.sync().unwrap();
            }
            assert_eq!(journal.replaced(), 1, "way {way}");
            let lost = (0..begun).filter(|seq| seq % 3 != 0).count() as u64;
            // A copy keeps the files of earlier segments, so no record is lost.
            let lost = if way == 3 { 0 } else { lost };
            assert!(way == 3 || lost > 10, "there is more than one segment");
            assert_eq!(journal.lost(), lost, "way {way}");
            let from = if way == 3 { 0 } else { begun };
            let left: Vec<_> = (from..103).filter(|seq| seq % 3 != 0 || *seq >= 100).collect();
            assert_eq!(pending(&mut journal), left, "way {way}");
            journal.append(&changes(103..105)).unwrap();
            journal.ack([101]);
            journal.sync().unwrap();
            assert_eq!((journal.replaced(), journal.pending()), (1, left.len() as u64 + 1));
            drop(journal);
            // The next process reads the records of this one.
            let mut journal = open(&dir);
            let expected: Vec<_> = left.into_iter().chain(103..105).filter(|seq| *seq != 101).collect();
            assert_eq!((pending(&mut journal), journal.next_seq()), (expected, 105), "way {way}");
        }
    }
}

/// Returns the name of the current segment.
fn latest(dir: &Path) -> String {
    let names = RealDisk.list(dir).unwrap();
    names.into_iter().rfind(|name| name.contains('-')).unwrap()
}

#[test]
fn journal_without_writes_since_opening_detects_removal() {
    for hand in &HANDS[..3] {
        let root = tempfile::tempdir().unwrap();
        let (sinks, dir) = (root.path().join("sinks"), root.path().join("sinks/a/journal"));
        std::fs::create_dir_all(&dir).unwrap();
        let mut journal = open(&dir);
        journal.append(&changes(0..5)).unwrap();
        journal.sync().unwrap();
        drop(journal);
        let mut journal = open(&dir);
        journal.check_files().unwrap();
        assert_eq!(journal.replaced(), 0);
        hand(&sinks);
        journal.check_files().unwrap();
        assert_eq!((journal.replaced(), journal.lost(), journal.pending()), (1, 0, 5));
        assert_eq!(pending(&mut journal), [0, 1, 2, 3, 4]);
        journal.append(&changes(5..7)).unwrap();
        journal.sync().unwrap();
        drop(journal);
        assert_eq!(pending(&mut open(&dir)), [0, 1, 2, 3, 4, 5, 6]);
    }
}

#[test]
fn removed_directory_of_an_empty_journal_is_recreated_once_possible() {
    let root = tempfile::tempdir().unwrap();
    let (sinks, dir) = (root.path().join("sinks"), root.path().join("sinks/a/journal"));
    std::fs::create_dir_all(&dir).unwrap();
    let mut journal = open(&dir);
    std::fs::remove_dir_all(&sinks).unwrap();
    std::fs::write(&sinks, "an obstacle").unwrap();
    for _ in 0..3 {
        assert!(journal.sync().is_err());
    }
    std::fs::remove_file(&sinks).unwrap();
    journal.append(&changes(0..1)).unwrap();
    journal.sync().unwrap();
    assert_eq!(journal.replaced(), 1, "repeated attempts count as one loss");
    std::fs::remove_dir_all(&sinks).unwrap();
    std::fs::write(&sinks, "an obstacle").unwrap();
    for _ in 0..3 {
        assert!(journal.sync().is_err());
    }
    assert_eq!(pending(&mut journal), [0], "reading continues meanwhile");
    std::fs::remove_file(&sinks).unwrap();
    journal.sync().unwrap();
    drop(journal);
    assert_eq!(pending(&mut open(&dir)), [0]);
}
