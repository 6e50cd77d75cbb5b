//! What the journal is held against: per object, which changes were accepted and which acknowledged.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use smallvec::{SmallVec, smallvec};

use crate::disk::Disk;
use crate::journal::{AppendError, Journal, JournalParams, Record, Recovery, Seq};
use crate::sim::{DiskCall, SimDisk};

pub(super) const DIR: &str = "/s/sinks/a/journal";

/// One change of an object's state; states are used once, so that a change tells when it was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) object: u64,
    pub(super) from: Option<u32>,
    pub(super) to: Option<u32>,
    pub(super) pad: usize,
}

impl Record for Change {
    type Error = &'static str;

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.object.to_le_bytes());
        for state in [self.from, self.to] {
            out.extend_from_slice(&state.map_or(u32::MAX, |state| state).to_le_bytes());
        }
        out.resize(out.len() + self.pad, b'p');
    }

    fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let numbers = bytes.get(..16).ok_or("too short")?;
        let state = |at: usize| {
            let state = u32::from_le_bytes(numbers[at..at + 4].try_into().expect("four bytes"));
            (state != u32::MAX).then_some(state)
        };
        let object = u64::from_le_bytes(numbers[..8].try_into().expect("eight bytes"));
        Ok(Self { object, from: state(8), to: state(12), pad: bytes.len() - 16 })
    }

    fn object(&self) -> u64 {
        self.object
    }

    fn merge(older: Self, newer: Self) -> SmallVec<[Self; 2]> {
        match (older.from, older.to, newer.to) {
            _ if older.object != newer.object || older.to != newer.from => smallvec![older, newer],
            // Gone and come again is two.
            (_, None, _) => smallvec![older, newer],
            (None, _, None) => smallvec![],
            (from, _, to) => smallvec![Self { from, to, ..newer }],
        }
    }
}

/// As little as says the same.
pub(super) fn canonical<'c>(changes: impl IntoIterator<Item = &'c Change>) -> Vec<(Option<u32>, Option<u32>)> {
    let mut kept: Vec<Change> = Vec::new();
    for change in changes {
        match kept.pop() {
            Some(older) => kept.extend(Change::merge(older, change.clone())),
            None => kept.push(change.clone()),
        }
    }
    kept.into_iter().map(|change| (change.from, change.to)).collect()
}

#[derive(Debug, Clone)]
struct Told {
    change: Change,
    seq: Seq,
    accepted: bool,
    acked: bool,
}

/// An object's changes since the journal was last compared with.
#[derive(Debug, Clone, Default)]
struct Object {
    base: Option<u32>,
    told: Vec<Told>,
    /// Of an append that failed: they may be there after a crash all the same.
    refused: Vec<Change>,
}

/// What may go wrong in a history.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Faults {
    pub(super) power: bool,
    pub(super) fail_rate: f64,
    pub(super) full: bool,
    pub(super) merges: bool,
    pub(super) limit: u64,
}

/// A journal, its disk, and what is known of both.
pub(super) struct World {
    pub(super) disk: SimDisk,
    pub(super) rng: StdRng,
    pub(super) faults: Faults,
    journal: Option<Journal<Change>>,
    objects: BTreeMap<u64, Object>,
    next_state: u32,
    /// Numbers of acknowledged records: none may be given again.
    highest_acked: Option<Seq>,
    pub(super) reopened: u32,
    pub(super) refused_full: u32,
    pub(super) merged: u64,
}

pub(super) fn params(limit: u64) -> JournalParams {
    JournalParams { limit_bytes: limit, segment_bytes: 4096 }
}

pub(super) fn open(disk: &SimDisk, limit: u64) -> (Journal<Change>, Recovery, Vec<(Seq, Change, bool)>) {
    let mut seen = Vec::new();
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut visit = |seq, change: &Change, acked| seen.push((seq, change.clone(), acked));
    let (journal, recovery) = Journal::open(disk, Path::new(DIR), params(limit), &mut visit).expect("it opens");
    (journal, recovery, seen)
}

impl World {
    pub(super) fn new(seed: u64, faults: Faults) -> Self {
        let disk = SimDisk::new(seed);
        let journal = Some(open(&disk, faults.limit).0);
        disk.set_fail_rate(faults.fail_rate);
        Self {
            disk,
            rng: StdRng::seed_from_u64(seed ^ 0x5eed),
            faults,
            journal,
            objects: BTreeMap::new(),
            next_state: 0,
            highest_acked: None,
            reopened: 0,
            refused_full: 0,
            merged: 0,
        }
    }

    fn journal(&mut self) -> &mut Journal<Change> {
        self.journal.as_mut().expect("it is open")
    }

    pub(super) fn step(&mut self) {
        match self.rng.random_range(0..100) {
            0..45 => self.append(),
            45..62 => self.sync(),
            62..80 => self.ack(),
            80..84 => {
                let next = self.journal().next_seq();
                let before = self.rng.random_range(0..=next);
                self.journal().release(before);
            }
            84..89 if self.faults.merges => self.merge(),
            89..92 if self.faults.full => {
                let room = self.rng.random_bool(0.6).then(|| self.disk.bytes() + self.rng.random_range(0..2000));
                self.disk.set_capacity(room);
            }
            92..95 => {
                // The end comes in the middle of what follows.
                let calls = self.rng.random_range(0..12);
                self.disk.stop_after(calls);
                for _ in 0..self.rng.random_range(1..6) {
                    match self.rng.random_range(0..5) {
                        0 | 1 => self.append(),
                        2 => self.ack(),
                        3 if self.faults.merges => self.merge(),
                        _ => self.sync(),
                    }
                }
                self.end();
            }
            95..97 => self.end(),
            _ => self.check(),
        }
    }

    fn change(&mut self, planned: &BTreeMap<u64, Option<u32>>) -> Change {
        let object = self.rng.random_range(0..7);
        let known = self.objects.get(&object);
        let now = known.and_then(|known| known.told.last().map_or(known.base, |told| told.change.to));
        let from = planned.get(&object).copied().unwrap_or(now);
        self.next_state += 1;
        let to = (from.is_none() || self.rng.random_bool(0.7)).then_some(self.next_state);
        let pad =
            if self.rng.random_bool(0.1) { self.rng.random_range(0..3000) } else { self.rng.random_range(0..200) };
        Change { object, from, to, pad }
    }

    fn append(&mut self) {
        let mut planned = BTreeMap::new();
        let mut batch = Vec::new();
        for _ in 0..self.rng.random_range(1..6) {
            let change = self.change(&planned);
            planned.insert(change.object, change.to);
            batch.push(change);
        }
        let next = self.journal().next_seq();
        match self.journal().append(&batch) {
            Ok(seqs) => {
                assert_eq!(seqs, next..next + batch.len() as u64);
                assert!(self.highest_acked.is_none_or(|highest| highest < next), "a number is given again");
                self.objects.values_mut().for_each(|object| object.refused.clear());
                for (change, seq) in batch.into_iter().zip(seqs) {
                    let told = Told { change: change.clone(), seq, accepted: false, acked: false };
                    self.objects.entry(change.object).or_default().told.push(told);
                }
                let (bytes, limit) = (self.journal().bytes(), self.faults.limit);
                assert!(bytes <= limit, "{bytes} bytes of {limit}");
            }
            Err(error) => {
                if let AppendError::Full { pending, .. } = error {
                    assert!(pending > 0, "full of nothing");
                    self.refused_full += 1;
                }
                self.objects.values_mut().for_each(|object| object.refused.clear());
                for change in batch {
                    self.objects.entry(change.object).or_default().refused.push(change);
                }
            }
        }
    }

    fn sync(&mut self) {
        if self.journal().sync().is_ok() {
            assert!(self.journal().is_synced());
            self.objects.values_mut().flat_map(|object| &mut object.told).for_each(|told| told.accepted = true);
        }
    }

    /// Acknowledges in the order of each object, as lanes do.
    fn ack(&mut self) {
        for _ in 0..self.rng.random_range(1..8) {
            let object = self.rng.random_range(0..7);
            let Some(object) = self.objects.get_mut(&object) else { continue };
            let Some(told) = object.told.iter_mut().find(|told| !told.acked).filter(|told| told.accepted) else {
                continue;
            };
            told.acked = true;
            let seq = told.seq;
            self.highest_acked = self.highest_acked.max(Some(seq));
            assert_eq!(self.journal().ack([seq, seq]), 1, "record {seq} was not pending");
        }
    }

    fn merge(&mut self) {
        let next = self.journal().next_seq();
        let before = self.journal().pending();
        let range = if self.rng.random_bool(0.8) { 0..next } else { self.rng.random_range(0..=next)..next };
        let merged = self.journal().merge_pending(range);
        self.merged += before - self.journal().pending();
        if merged.is_ok() {
            self.objects.values_mut().flat_map(|object| &mut object.told).for_each(|told| told.accepted = true);
        }
        self.check();
    }

    /// The process ends, perhaps with the power, and starts again.
    fn end(&mut self) {
        self.journal = None;
        if self.faults.power && self.rng.random_bool(0.7) {
            self.disk.crash();
        } else {
            self.disk.kill();
        }
        let (mut journal, recovery, seen) = open(&self.disk, self.faults.limit);
        let read = journal.read(0, usize::MAX, usize::MAX).expect("it can be read").records;
        let pending: Vec<_> = seen.into_iter().filter(|seen| !seen.2).map(|(seq, change, _)| (seq, change)).collect();
        assert_eq!(read, pending, "what is read is not what was found");
        assert_eq!(recovery.pending, journal.pending());
        self.journal = Some(journal);
        self.reopened += 1;
        self.compare(read, true);
        self.disk.set_fail_rate(self.faults.fail_rate);
    }

    /// Reads all of it and compares.
    fn check(&mut self) {
        let mut read = Vec::new();
        let mut from = 0;
        // Small batches meet their ends.
        let (most, bytes) = (self.rng.random_range(1..20), self.rng.random_range(0..4000));
        loop {
            let Ok(batch) = self.journal().read(from, most, bytes) else { return };
            assert_eq!(batch.damaged, Vec::<Seq>::new());
            let Some((last, _)) = batch.records.last() else { break };
            from = last + 1;
            read.extend(batch.records);
        }
        assert_eq!(read.len() as u64, self.journal().pending());
        assert_eq!(read.first().map_or(self.journal().next_seq(), |(seq, _)| *seq), self.journal().first_pending());
        self.compare(read, false);
    }

    /// Holds what is pending against what must be, and may be; then takes it for the truth.
    fn compare(&mut self, read: Vec<(Seq, Change)>, after_end: bool) {
        assert!(read.windows(2).all(|pair| pair[0].0 < pair[1].0), "out of order: {read:?}");
        let mut by_object: BTreeMap<u64, Vec<(Seq, Change)>> = BTreeMap::new();
        for (seq, change) in read {
            by_object.entry(change.object).or_default().push((seq, change));
        }
        assert!(by_object.keys().all(|object| self.objects.contains_key(object)), "an object nobody told of");
        for (id, object) in &mut self.objects {
            object.adopt(*id, by_object.remove(id).unwrap_or_default(), after_end);
        }
    }
}

impl Object {
    fn adopt(&mut self, id: u64, read: Vec<(Seq, Change)>, after_end: bool) {
        let mut all: Vec<&Change> = self.told.iter().map(|told| &told.change).collect();
        let accepted = self.told.iter().rposition(|told| told.accepted).map_or(0, |last| last + 1);
        let unacked = self.told.iter().position(|told| !told.acked).unwrap_or(self.told.len());
        let (firsts, lasts) = if after_end {
            all.extend(&self.refused);
            // Acknowledgements may be lost, and what was not accepted may be there up to anywhere.
            (0..=unacked, accepted..=all.len())
        } else {
            (unacked..=unacked, all.len()..=all.len())
        };
        let found = canonical(read.iter().map(|(_, change)| change));
        let mut spans = firsts.rev().flat_map(|from| lasts.clone().map(move |to| (from, to.max(from))));
        let Some((from, to)) = spans.find(|(from, to)| canonical(all[*from..*to].iter().copied()) == found) else {
            panic!("object {id}: {found:?} is pending, of {all:?}, unacked from {unacked}, accepted to {accepted}");
        };
        let now = if to == 0 { self.base } else { all[to - 1].to };
        self.base = read.first().map_or(if from == to { now } else { all[from].from }, |(_, change)| change.from);
        if read.is_empty() {
            self.base = now;
        }
        self.told =
            read.into_iter().map(|(seq, change)| Told { change, seq, accepted: after_end, acked: false }).collect();
        self.refused.clear();
    }
}

/// Keeps `DiskCall` in use where a test wants a certain call to fail.
pub(super) fn fail(disk: &SimDisk, call: DiskCall) {
    disk.fail(call, 1);
}
