//! A journal's directory: segments, cursor, leftovers, with records that count, damage, and checksums that are right.
//!
//! The bytes are instructions of what each file has. What is opened then must read what it says it has, take records, and
//! have them after the next start.

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
/// Room for whatever an input makes of it.
const PARAMS: JournalParams = JournalParams { limit_bytes: 1 << 20, segment_bytes: 8 << 10 };

/// An object's number and what is said of it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Told(u8, Vec<u8>);

impl Record for Told {
    type Error = &'static str;

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.0);
        out.extend_from_slice(&self.1);
    }

    fn decode(bytes: &[u8]) -> Result<Self, Self::Error> {
        match bytes.split_first() {
            Some((0xff, _)) => Err("an object that there is not"),
            Some((object, rest)) => Ok(Self(*object, rest.to_vec())),
            None => Err("nothing"),
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
    let disk = written(&mut input);
    let looked = inspect(&disk, Path::new(DIR));
    let (mut journal, seen, undecodable) = match open(&disk) {
        Ok(opened) => opened,
        Err(JournalError::Newer { version, .. }) => {
            assert!(version > 1);
            return;
        }
        Err(error) => panic!("{error}: {:?}", std::error::Error::source(&error)),
    };
    let looked = looked.expect("what can be opened can be looked at");
    // Who only looks does not know what a record is.
    let found = (looked.pending - undecodable, looked.lost + undecodable);
    assert_eq!(found, (journal.pending(), journal.lost()), "looked at and opened");
    let pending: Vec<_> = seen.into_iter().filter(|(.., acked)| !acked).map(|(seq, told, _)| (seq, told)).collect();
    assert_eq!(all(&mut journal), pending, "seen and read");
    assert_eq!(journal.pending(), pending.len() as u64);
    go_on(&disk, journal, pending, input.byte());
}

/// Does what a journal is there for, as the input says, and looks whether it has been done.
fn go_on(disk: &SimDisk, mut journal: Journal<Told>, mut pending: Vec<(Seq, Told)>, how: u8) {
    if how & 1 != 0 && !pending.is_empty() {
        let first = pending.remove(0).0;
        assert_eq!(journal.ack([first, first]), 1, "{first} was pending");
    }
    if how & 2 != 0 {
        journal.merge_pending(0..journal.next_seq()).expect("the disk is well");
        pending = all(&mut journal);
    }
    let new: Vec<_> = (0..3).map(|i| Told(i, vec![9; 40])).collect();
    match journal.append(&new) {
        Ok(seqs) => pending.extend(seqs.zip(new)),
        // Damage has made the numbers run out.
        Err(AppendError::Disk(error)) => assert!(journal.next_seq() > (1 << 62) - 4, "{error}"),
        Err(AppendError::Full { .. } | AppendError::TooLarge { .. } | AppendError::Retained) => {
            assert!(journal.bytes() > PARAMS.limit_bytes / 2);
        }
    }
    assert_eq!(all(&mut journal), pending, "appended and read");
    journal.sync().expect("the disk is well");
    journal.sync().expect("the disk is well");
    let next = journal.next_seq();
    drop(journal);
    if how & 4 == 0 {
        disk.kill();
    } else {
        disk.crash();
    }
    let (mut journal, ..) = open(disk).expect("it could be opened before");
    assert_eq!(all(&mut journal), pending, "after the next start");
    assert_eq!((journal.lost(), journal.next_seq()), (0, next), "damage is told once, and numbers go on");
}

type Seen = Vec<(Seq, Told, bool)>;

fn open(disk: &SimDisk) -> Result<(Journal<Told>, Seen, u64), JournalError> {
    let mut seen = Vec::new();
    let mut visit = |seq, told: &Told, acked| seen.push((seq, told.clone(), acked));
    let (journal, recovery) = Journal::open(Arc::new(disk.clone()), Path::new(DIR), PARAMS, &mut visit)?;
    assert_eq!((recovery.pending, recovery.lost), (journal.pending(), journal.lost()));
    Ok((journal, seen, recovery.undecodable))
}

fn all(journal: &mut Journal<Told>) -> Vec<(Seq, Told)> {
    let (mut from, mut all) = (0, Vec::new());
    loop {
        // In strides, so that reading on is tried too.
        let batch = journal.read(from, 3, 200).expect("the disk is well");
        assert!(batch.damaged.is_empty(), "{:?} were whole when it was opened", batch.damaged);
        let Some((last, _)) = batch.records.last() else { return all };
        from = last + 1;
        all.extend(batch.records);
    }
}

/// The files as the input has them.
fn written(input: &mut Input<'_>) -> SimDisk {
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
    disk.create_dir_all(Path::new(DIR)).expect("the disk is well");
    for (name, bytes) in FILES.into_iter().zip(&files).filter(|(_, bytes)| !bytes.is_empty()) {
        let mut file = disk.open(&Path::new(DIR).join(name), Open::CreateNew).expect("the disk is well");
        file.append(bytes).and_then(|()| file.sync()).expect("the disk is well");
        decode_segment(bytes, salt(name), |_, record| drop(Told::decode(record)));
        let _ = decode_cursor(bytes);
    }
    for dir in ["/", "/state", DIR] {
        disk.sync_dir(Path::new(dir)).expect("the disk is well");
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
        // Records, from a number on.
        4 | 5 => {
            let (first, count) = (input.number(), 1 + input.pick(4) as u64);
            for seq in (0..count).map(|i| first.wrapping_add(i)) {
                put(&[&seq.to_le_bytes(), input.chunk()].concat());
            }
        }
        // The header of a segment, or what a cursor says.
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
