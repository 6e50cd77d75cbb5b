//! Fuzz target: a journal directory with segments, a cursor and leftover files, with valid checksums and damage.
//!
//! The input bytes are instructions that build each file. An opened journal must return the records that it counts,
//! accept new ones, and return them after the next start.

use std::path::Path;
use std::sync::Arc;

use informer_hub_disk::{Disk, Open, frame};
use informer_hub_journal::inspect::{decode_cursor, decode_segment, inspect};
use informer_hub_journal::{AppendError, Journal, JournalError, JournalParams, Record, Seq};
use informer_hub_sim::SimDisk;
use smallvec::{SmallVec, smallvec};

use super::input::Input;

const DIR: &str = "/state/journal";
const FILES: [&str; 9] = [
    "00000000000000000000-0000000000.log",
    "00000000000000000003-0000000001.log",
    "00000000000000000003-0000000002.mrg",
    "00000000000000000010-0000000003.log",
    "00000000000000000000-0000000004.mrg",
    "00000004294967296000-0000000005.log",
    "cursor",
    "00000000000000000007-0000000006.log.tmp",
    "04611686018427387900-0000000007.log",
];
const CURSOR_SALT: u32 = 0x63_75_72_73;
/// Parameters of the journal. The files of an input alone do not reach the size limit.
const PARAMS: JournalParams = JournalParams { limit_bytes: 1 << 20, segment_bytes: 8 << 10 };

/// Record of the test: an object number and a payload.
#[derive(Clone, PartialEq, Eq, Debug)]
struct TestRecord(u8, Vec<u8>);

impl Record for TestRecord {
    type Error = &'static str;

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.0);
        out.extend_from_slice(&self.1);
    }

    fn decode(bytes: &[u8]) -> Result<Self, Self::Error> {
        match bytes.split_first() {
            Some((0xff, _)) => Err("an unknown object"),
            Some((object, rest)) => Ok(Self(*object, rest.to_vec())),
            None => Err("an empty record"),
        }
    }

    fn object(&self) -> u64 {
        u64::from(self.0 % 4)
    }

    fn merge(older: Self, newer: Self) -> SmallVec<[Self; 2]> {
        match newer.1.first() {
            Some(0) => SmallVec::new(),
            Some(1) => smallvec![older, newer],
            _ => smallvec![newer],
        }
    }
}

pub(crate) fn run(data: &[u8]) {
    let mut input = Input(data);
    let disk = build_files(&mut input);
    let inspected = inspect(&disk, Path::new(DIR));
    let (mut journal, seen, undecodable) = match open(&disk) {
        Ok(opened) => opened,
        Err(JournalError::Newer { version, .. }) => {
            assert!(version > 1);
            return;
        }
        Err(error) => panic!("{error}: {:?}", std::error::Error::source(&error)),
    };
    let inspected = inspected.expect("a directory that opens can be inspected");
    // `inspect` cannot decode records, so it counts undecodable ones as pending.
    let found = (inspected.pending - undecodable, inspected.lost + undecodable);
    assert_eq!(found, (journal.pending(), journal.lost()), "inspected and opened");
    let pending: Vec<_> = seen.into_iter().filter(|(.., acked)| !acked).map(|(seq, record, _)| (seq, record)).collect();
    assert_eq!(all(&mut journal), pending, "seen and read");
    assert_eq!(journal.pending(), pending.len() as u64);
    exercise(&disk, journal, pending, input.byte());
}

/// Acknowledges, merges, appends and reopens as the input says, and verifies the records after each step.
fn exercise(disk: &SimDisk, mut journal: Journal<TestRecord>, mut pending: Vec<(Seq, TestRecord)>, steps: u8) {
    if steps & 1 != 0 && !pending.is_empty() {
        let first = pending.remove(0).0;
        assert_eq!(journal.ack([first, first]), 1, "{first} was pending");
    }
    if steps & 2 != 0 {
        journal.merge_pending(0..journal.next_seq()).expect("the simulated disk has no faults");
        pending = all(&mut journal);
    }
    let new: Vec<_> = (0..3).map(|i| TestRecord(i, vec![9; 40])).collect();
    match journal.append(&new) {
        Ok(seqs) => pending.extend(seqs.zip(new)),
        // The damage made the sequence numbers run out.
        Err(AppendError::Disk(error)) => assert!(journal.next_seq() > (1 << 62) - 4, "{error}"),
        Err(AppendError::Full { .. } | AppendError::TooLarge { .. } | AppendError::Retained) => {
            assert!(journal.bytes() > PARAMS.limit_bytes / 2);
        }
    }
    assert_eq!(all(&mut journal), pending, "appended and read");
    journal.sync().expect("the simulated disk has no faults");
    journal.sync().expect("the simulated disk has no faults");
    let next = journal.next_seq();
    drop(journal);
    if steps & 4 == 0 {
        disk.kill();
    } else {
        disk.crash();
    }
    let (mut journal, ..) = open(disk).expect("it could be opened before");
    assert_eq!(all(&mut journal), pending, "after the next start");
    assert_eq!(
        (journal.lost(), journal.next_seq()),
        (0, next),
        "damage is reported once, and sequence numbers continue"
    );
}

type Seen = Vec<(Seq, TestRecord, bool)>;

fn open(disk: &SimDisk) -> Result<(Journal<TestRecord>, Seen, u64), JournalError> {
    let mut seen = Vec::new();
    let mut visit = |seq, record: &TestRecord, acked| seen.push((seq, record.clone(), acked));
    let (journal, recovery) = Journal::open(Arc::new(disk.clone()), Path::new(DIR), PARAMS, &mut visit)?;
    assert_eq!((recovery.pending, recovery.lost), (journal.pending(), journal.lost()));
    Ok((journal, seen, recovery.undecodable))
}

fn all(journal: &mut Journal<TestRecord>) -> Vec<(Seq, TestRecord)> {
    let (mut from, mut all) = (0, Vec::new());
    loop {
        // In small batches, so that continuing a read is tested too.
        let batch = journal.read(from, 3, 200).expect("the simulated disk has no faults");
        assert!(batch.damaged.is_empty(), "{:?} were intact when it was opened", batch.damaged);
        let Some((last, _)) = batch.records.last() else { return all };
        from = last + 1;
        all.extend(batch.records);
    }
}

/// Builds the files that the input describes, on a simulated disk.
fn build_files(input: &mut Input<'_>) -> SimDisk {
    let mut files = [const { Vec::new() }; FILES.len()];
    let mut at = 0;
    while !input.is_empty() && files.iter().map(Vec::len).sum::<usize>() < 200_000 {
        match input.pick(8) {
            0 => at = input.pick(FILES.len()),
            1 => break,
            instruction => change(&mut files[at], FILES[at], instruction, input),
        }
    }
    let disk = SimDisk::new(1);
    disk.create_dir_all(Path::new(DIR)).expect("the simulated disk has no faults");
    for (name, bytes) in FILES.into_iter().zip(&files).filter(|(_, bytes)| !bytes.is_empty()) {
        let mut file =
            disk.open(&Path::new(DIR).join(name), Open::CreateNew).expect("the simulated disk has no faults");
        file.append(bytes).and_then(|()| file.sync()).expect("the simulated disk has no faults");
        decode_segment(bytes, salt(name), |_, record| drop(TestRecord::decode(record)));
        let _ = decode_cursor(bytes);
    }
    for dir in ["/", "/state", DIR] {
        disk.sync_dir(Path::new(dir)).expect("the simulated disk has no faults");
    }
    disk
}

fn salt(name: &str) -> u32 {
    if name == "cursor" { CURSOR_SALT } else { crc32fast::hash(name.as_bytes()) }
}

fn change(file: &mut Vec<u8>, name: &str, instruction: usize, input: &mut Input<'_>) {
    let mut put = |payload: &[u8]| frame::write(salt(name), payload, file).expect("short enough");
    match instruction {
        2 => file.extend_from_slice(input.chunk()),
        3 => put(input.chunk()),
        // Records with consecutive sequence numbers.
        4 | 5 => {
            let (first, count) = (input.number(), 1 + input.pick(4) as u64);
            for seq in (0..count).map(|i| first.wrapping_add(i)) {
                put(&[&seq.to_le_bytes(), input.chunk()].concat());
            }
        }
        // A cursor's content, or a segment header.
        6 if name == "cursor" => {
            let mut payload = vec![1];
            for _ in 0..=input.pick(6) {
                leb128(input.number(), &mut payload);
            }
            put(&payload);
        }
        6 => {
            let mut payload = vec![1];
            (0..2 + input.pick(4)).for_each(|_| payload.extend_from_slice(&input.number().to_le_bytes()));
            put(&payload);
        }
        _ => {
            let at = usize::try_from(input.number()).unwrap_or_default() % file.len().max(1);
            match input.byte() {
                0 => file.truncate(at),
                mask => file.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= mask),
            }
        }
    }
}

fn leb128(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}
