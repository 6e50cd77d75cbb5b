//! Tests of single cases of the reader. `simulation_tests` tests combinations of such cases.

use informer_hub_types::{ClusterName, Gvr, ObjectKey, ResourceVersion, Uid};

use crate::entry::{Entry, Header, pack};
use crate::partition::Partition;
use crate::reader::{Gap, PartitionState, ReadOutcome, Reader};
use crate::record::{Record, ResetReason};
use crate::wire::DecodeError;

fn partition() -> Partition {
    Partition { cluster: ClusterName::new("c").unwrap(), resource: Gvr::new("", "v1", "pods"), selection: 0 }
}

fn owner() -> Record {
    Record::Owner { collector: "a".into() }
}

const RESTART: Record = Record::Reset { reason: ResetReason::Restart };

fn put(version: u64) -> Record {
    let (key, version) = (ObjectKey::new("ns", "a"), ResourceVersion::new(&version.to_string()));
    Record::Put { key, uid: Uid::new("u"), version, body: "{}".into() }
}

fn progress(version: u64) -> Record {
    Record::Progress { version: ResourceVersion::new(&version.to_string()) }
}

fn entry(epoch: u64, previous: u64, sequence: u64, records: &[Record]) -> Entry {
    let mut bytes = Vec::new();
    for record in records {
        record.encode(&mut bytes);
    }
    let header = Header { epoch, number: 0, previous, continues: false };
    Entry { partition: partition(), sequence, payload: header.encode(&pack(&bytes, false)) }
}

/// Returns a reader of a complete partition with epoch 3, last entry 10 and resume point 5.
fn complete() -> Reader {
    let mut reader = Reader::new();
    let first = [owner(), RESTART, put(4), progress(5)];
    let outcome = reader.read(&entry(3, 0, 10, &first)).unwrap();
    assert_eq!(outcome, ReadOutcome::Records(first[1..].to_vec()), "the records from the full list on");
    reader
}

fn state(reader: &Reader) -> &PartitionState {
    reader.state(&partition()).unwrap()
}

#[test]
fn first_entry_without_full_list_is_incomplete() {
    let mut reader = Reader::new();
    assert_eq!(reader.read(&entry(3, 0, 10, &[owner(), put(4), progress(5)])).unwrap(), ReadOutcome::Incomplete);
    assert_eq!((state(&reader).complete, &state(&reader).resume), (false, &None));
}

#[test]
fn repeated_entries_are_ignored() {
    let mut reader = complete();
    let next = entry(3, 10, 12, &[put(6)]);
    assert_eq!(reader.read(&next).unwrap(), ReadOutcome::Records(vec![put(6)]));
    for again in [&next, &entry(3, 0, 10, &[owner()])] {
        assert_eq!(reader.read(again).unwrap(), ReadOutcome::Nothing);
    }
}

#[test]
fn missing_entry_makes_the_partition_incomplete_until_a_full_list() {
    let mut reader = complete();
    let gap = Gap { after: 10, next: 14 };
    assert_eq!(reader.read(&entry(3, 12, 14, &[put(7), progress(7)])).unwrap(), ReadOutcome::Gap(gap));
    assert_eq!(reader.incomplete().collect::<Vec<_>>(), [&partition()]);
    assert_eq!(reader.read(&entry(3, 14, 15, &[put(8)])).unwrap(), ReadOutcome::Incomplete);
    assert_eq!((state(&reader).applied, &state(&reader).resume), (10, &None));
    let healed = reader.read(&entry(3, 15, 16, &[put(9), RESTART, put(9)])).unwrap();
    assert_eq!(healed, ReadOutcome::Records(vec![RESTART, put(9)]));
    assert_eq!((state(&reader).complete, state(&reader).applied), (true, 16));
}

#[test]
fn epoch_without_its_first_entry_is_a_gap() {
    let mut reader = complete();
    let mut bytes = Vec::new();
    put(9).encode(&mut bytes);
    let header = Header { epoch: 4, number: 2, previous: 10, continues: false };
    let entry = Entry { partition: partition(), sequence: 11, payload: header.encode(&pack(&bytes, false)) };
    assert_eq!(reader.read(&entry).unwrap(), ReadOutcome::Gap(Gap { after: 10, next: 11 }));
    assert!(!state(&reader).complete);
}

#[test]
fn emptied_partition_is_a_gap() {
    let mut reader = complete();
    let gap = ReadOutcome::Gap(Gap { after: 10, next: 20 });
    assert_eq!(reader.read(&entry(4, 0, 20, &[owner(), put(9)])).unwrap(), gap);
}

#[test]
fn checkpoint_completes_a_partition_and_its_tail_is_read_again() {
    let mut reader = complete();
    reader.read(&entry(3, 12, 14, &[put(7)])).unwrap();
    let resume = Some(ResourceVersion::new("6"));
    reader.restore(partition(), PartitionState { epoch: 3, applied: 12, resume, ..PartitionState::default() });
    assert_eq!(reader.read(&entry(3, 12, 14, &[put(7)])).unwrap(), ReadOutcome::Records(vec![put(7)]));
    assert_eq!(state(&reader).resume, Some(ResourceVersion::new("6")));
}

#[test]
fn entry_of_an_old_epoch_is_ignored() {
    let mut reader = complete();
    assert_eq!(reader.read(&entry(2, 10, 11, &[put(7)])).unwrap(), ReadOutcome::Stale { epoch: 2 });
    assert_eq!((reader.stale(), state(&reader).epoch), (1, 3));
    assert_eq!(reader.read(&entry(3, 11, 12, &[put(8)])).unwrap(), ReadOutcome::Records(vec![put(8)]));
}

#[test]
fn only_progress_moves_the_resume_point() {
    let mut reader = complete();
    let (a, version) = (ObjectKey::new("ns", "a"), |version: &str| ResourceVersion::new(version));
    reader.read(&entry(3, 10, 11, &[put(9)])).unwrap();
    assert_eq!(state(&reader).resume, Some(version("5")));
    assert!(!state(&reader).is_settled());
    // A watch that resumes from version 5 repeats the changes up to version 9.
    assert!(state(&reader).repeats(&a, &version("8")) && state(&reader).repeats(&a, &version("9")));
    assert!(!state(&reader).repeats(&a, &version("10")));
    reader.read(&entry(4, 11, 12, &[owner(), progress(7)])).unwrap();
    assert!(state(&reader).repeats(&a, &version("9")), "the next owner has confirmed less than its predecessor wrote");
    reader.read(&entry(4, 12, 13, &[progress(9)])).unwrap();
    assert!(state(&reader).is_settled() && !state(&reader).repeats(&a, &version("9")));
}

#[test]
fn divided_body_is_joined_unless_a_new_owner_interrupts() {
    let part = |epoch, previous, sequence, continues, body: &[u8]| {
        let payload = Header { epoch, number: 0, previous, continues }.encode(body);
        Entry { partition: partition(), sequence, payload }
    };
    let mut record = Vec::new();
    put(6).encode(&mut record);
    let body = pack(&record, false);
    let (first, second) = body.split_at(7);
    let mut reader = complete();
    assert_eq!(reader.read(&part(3, 10, 11, true, first)).unwrap(), ReadOutcome::Nothing);
    assert_eq!(state(&reader).applied, 10, "a checkpoint must not end within a body");
    assert_eq!(reader.read(&part(3, 11, 12, false, second)).unwrap(), ReadOutcome::Records(vec![put(6)]));
    reader.read(&part(3, 12, 13, true, first)).unwrap();
    let next = reader.read(&entry(4, 13, 14, &[owner()])).unwrap();
    assert_eq!(next, ReadOutcome::Records(vec![owner()]));
}

#[test]
fn undecodable_entry_is_an_error_and_makes_the_partition_incomplete() {
    let mut reader = complete();
    let mut newer = entry(3, 10, 11, &[put(7)]);
    let mut bytes = newer.payload.to_vec();
    bytes[0] = 9;
    newer.payload = bytes.into();
    assert!(matches!(reader.read(&newer), Err(DecodeError::Newer { found: 9, .. })));
    assert!(!state(&reader).complete);
    let mut reader = complete();
    let damaged = Header { epoch: 3, number: 0, previous: 10, continues: false }.encode(&[0, 99]);
    let damaged = Entry { partition: partition(), sequence: 11, payload: damaged };
    assert!(reader.read(&damaged).is_err() && !state(&reader).complete);
}
