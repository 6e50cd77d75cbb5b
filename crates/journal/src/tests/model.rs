//! Model of a journal: the accepted and acknowledged changes per object.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use smallvec::{SmallVec, smallvec};

use super::overwriting::OverwritingDisk;
use crate::{AppendError, Journal, JournalParams, Record, Recovery, Seq};
use informer_hub_disk::Disk;
use informer_hub_sim::SimDisk;

pub(super) const DIR: &str = "/s/sinks/a/journal";

/// One change of an object's state. Each state is used once, so that a change identifies when it was made.
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
            // Removed and added again are two changes.
            (_, None, _) => smallvec![older, newer],
            (None, _, None) => smallvec![],
            (from, _, to) => smallvec![Self { from, to, ..newer }],
        }
    }
}

/// Returns the shortest equivalent sequence of changes.
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
struct Appended {
    change: Change,
    seq: Seq,
    accepted: bool,
    acked: bool,
}

/// Changes of an object since the last comparison with the journal.
#[derive(Debug, Clone, Default)]
struct Object {
    base: Option<u32>,
    appended: Vec<Appended>,
    /// Changes of failed appends, which a crash may leave in the file.
    refused: Vec<Change>,
}

/// Faults that can occur in a history.
#[derive(Debug, Clone, Copy, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fault of its own")]
pub(super) struct Faults {
    pub(super) power: bool,
    pub(super) fail_rate: f64,
    pub(super) full: bool,
    pub(super) merges: bool,
    /// Whether the disk may be full when the journal is opened, until files are removed.
    pub(super) full_at_open: bool,
    /// Whether the disk supports [`DiskFile::overwrite`].
    pub(super) overwrites: bool,
    pub(super) limit: u64,
}

/// Situation in which the journal is compared with the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compare {
    /// Normal operation: both are equal.
    Now,
    /// After a merge: the changes of each object are equivalent.
    Merged,
    /// After a restart: unaccepted records may be missing, acknowledged ones may have returned.
    Ended,
}

/// A journal with its disk and model.
pub(super) struct World {
    pub(super) disk: SimDisk,
    pub(super) rng: StdRng,
    pub(super) faults: Faults,
    journal: Option<Journal<Change>>,
    objects: BTreeMap<u64, Object>,
    next_state: u32,
    /// Whether a read error left the numbers after a merge unknown.
    blind: bool,
    /// Highest sequence number of an acknowledged record. It must not be used again.
    highest_acked: Option<Seq>,
    pub(super) reopened: u32,
    pub(super) refused_full: u32,
    /// Number of opens after which only some of the pending records were accepted.
    pub(super) accepted_unsynced: u32,
    pub(super) merged: u64,
}

pub(super) fn params(limit: u64) -> JournalParams {
    JournalParams { limit_bytes: limit, segment_bytes: 4096 }
}

/// Records that an open visits, and whether each is acknowledged.
type Seen = Vec<(Seq, Change, bool)>;

pub(super) fn open(disk: &SimDisk, limit: u64) -> (Journal<Change>, Recovery, Seen) {
    open_on(Arc::new(disk.clone()), limit)
}

pub(super) fn open_on(disk: Arc<dyn Disk>, limit: u64) -> (Journal<Change>, Recovery, Seen) {
    let mut seen = Vec::new();
    let mut visit = |seq, change: &Change, acked| seen.push((seq, change.clone(), acked));
    let (journal, recovery) =
        Journal::open(disk, Path::new(DIR), params(limit), &mut visit).expect("the journal opens");
    (journal, recovery, seen)
}

fn opened(disk: &SimDisk, faults: Faults) -> (Journal<Change>, Recovery, Seen) {
    let limit = faults.limit;
    if faults.overwrites { open_on(Arc::new(OverwritingDisk::new(disk)), limit) } else { open(disk, limit) }
}

impl World {
    pub(super) fn new(seed: u64, faults: Faults) -> Self {
        let disk = SimDisk::new(seed);
        // In production, the state directory does this.
        informer_hub_disk::make_dir(&disk, Path::new("/s/sinks"), 2).expect("no faults yet");
        let journal = Some(opened(&disk, faults).0);
        disk.set_fail_rate(faults.fail_rate);
        Self {
            disk,
            rng: StdRng::seed_from_u64(seed ^ 0x5eed),
            faults,
            journal,
            objects: BTreeMap::new(),
            next_state: 0,
            blind: false,
            highest_acked: None,
            reopened: 0,
            refused_full: 0,
            accepted_unsynced: 0,
            merged: 0,
        }
    }

    fn journal(&mut self) -> &mut Journal<Change> {
        self.journal.as_mut().expect("the journal is open")
    }

    pub(super) fn step(&mut self) {
        match self.rng.random_range(0..100) {
            0..45 => self.append(),
            45..62 => _ = self.sync(),
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
                // The process ends in the middle of the following steps.
                let calls = self.rng.random_range(0..12);
                self.disk.stop_after(calls);
                for _ in 0..self.rng.random_range(1..6) {
                    match self.rng.random_range(0..5) {
                        0 | 1 => self.append(),
                        2 => self.ack(),
                        3 if self.faults.merges => self.merge(),
                        _ => _ = self.sync(),
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
        let now = known.and_then(|known| known.appended.last().map_or(known.base, |appended| appended.change.to));
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
                assert!(self.highest_acked.is_none_or(|highest| highest < next), "a number was reused");
                for (change, seq) in batch.into_iter().zip(seqs) {
                    let appended = Appended { change: change.clone(), seq, accepted: false, acked: false };
                    self.objects.entry(change.object).or_default().appended.push(appended);
                }
                let (bytes, limit) = (self.journal().bytes(), self.faults.limit);
                // Bytes that cannot be truncated count as well.
                let spare = if self.faults.fail_rate > 0.0 { 4096 } else { 0 };
                assert!(bytes <= limit + spare, "{bytes} bytes of {limit}");
            }
            Err(error) => {
                // Records of an earlier append may still exist.
                if let AppendError::Full { pending, .. } = error {
                    assert!(pending > 0, "full without pending records");
                    self.refused_full += 1;
                }
                for change in batch {
                    self.objects.entry(change.object).or_default().refused.push(change);
                }
            }
        }
    }

    fn sync(&mut self) -> bool {
        let synced = self.journal().sync().is_ok();
        if synced {
            assert!(self.journal().is_synced());
            if !self.journal().sealed {
                self.objects.values_mut().for_each(|object| object.refused.clear());
            }
            self.objects
                .values_mut()
                .flat_map(|object| &mut object.appended)
                .for_each(|appended| appended.accepted = true);
        }
        synced
    }

    /// Acknowledges records in order per object, as lanes do.
    fn ack(&mut self) {
        for _ in 0..self.rng.random_range(1..8) {
            if self.blind {
                return;
            }
            let object = self.rng.random_range(0..7);
            let Some(object) = self.objects.get_mut(&object) else { continue };
            let Some(appended) =
                object.appended.iter_mut().find(|appended| !appended.acked).filter(|appended| appended.accepted)
            else {
                continue;
            };
            appended.acked = true;
            let seq = appended.seq;
            self.highest_acked = self.highest_acked.max(Some(seq));
            assert_eq!(self.journal().ack([seq, seq]), 1, "record {seq} was not pending");
        }
    }

    fn merge(&mut self) {
        // Records acknowledged before must not return in the middle of a merge.
        // The second sync has nothing else to do, so it syncs the acknowledgements.
        let synced = self.sync() && self.sync();
        if self.blind || !synced || self.journal().cursor_error().is_some() {
            return;
        }
        let next = self.journal().next_seq();
        let before = self.journal().pending();
        let range = if self.rng.random_bool(0.8) { 0..next } else { self.rng.random_range(0..=next)..next };
        let _ = self.journal().merge_pending(range);
        self.merged += before - self.journal().pending();
        if let Some(read) = self.read_all() {
            self.compare(read, Compare::Merged);
        } else {
            self.blind = true;
        }
    }

    /// Ends the process, perhaps with a power loss, and restarts it.
    fn end(&mut self) {
        self.journal = None;
        self.blind = false;
        if self.faults.power && self.rng.random_bool(0.7) {
            self.disk.crash();
        } else {
            self.disk.kill();
        }
        if self.faults.full_at_open {
            // Files that return after a crash may not exceed the capacity of a disk that overwrites.
            let room = self.rng.random_bool(0.5).then(|| self.disk.bytes() + self.rng.random_range(0..300));
            self.disk.set_capacity(room);
        }
        let (mut journal, recovery, seen) = opened(&self.disk, self.faults);
        let read = journal.read(0, usize::MAX, usize::MAX).expect("the records can be read").records;
        let pending: Vec<_> = seen.into_iter().filter(|seen| !seen.2).map(|(seq, change, _)| (seq, change)).collect();
        assert_eq!(read, pending, "read and found records differ");
        assert_eq!(recovery.pending, journal.pending());
        self.journal = Some(journal);
        self.reopened += 1;
        self.compare(read, Compare::Ended);
        let (accepted, is_synced) = (self.journal().accepted(), self.journal().is_synced());
        self.accepted_unsynced += u32::from(!is_synced && accepted > self.journal().first_pending());
        let appended = self.objects.values_mut().flat_map(|object| &mut object.appended);
        appended.filter(|appended| appended.seq < accepted).for_each(|appended| appended.accepted = true);
        self.disk.set_fail_rate(self.faults.fail_rate);
    }

    fn check(&mut self) {
        if self.blind {
            return;
        }
        if let Some(read) = self.read_all() {
            self.compare(read, Compare::Now);
        }
    }

    /// Returns all pending records, read in small batches; `None` if the disk has stopped.
    fn read_all(&mut self) -> Option<Vec<(Seq, Change)>> {
        let mut read = Vec::new();
        let mut from = 0;
        // Small batches exercise their boundaries.
        let (most, bytes) = (self.rng.random_range(1..20), self.rng.random_range(0..4000));
        loop {
            let batch = self.journal().read(from, most, bytes).ok()?;
            assert_eq!(batch.damaged, Vec::<Seq>::new());
            let Some((last, _)) = batch.records.last() else { break };
            from = last + 1;
            read.extend(batch.records);
        }
        assert_eq!(read.len() as u64, self.journal().pending());
        assert_eq!(read.first().map_or(self.journal().next_seq(), |(seq, _)| *seq), self.journal().first_pending());
        Some(read)
    }

    /// Compares the pending records with the model.
    fn compare(&mut self, read: Vec<(Seq, Change)>, when: Compare) {
        assert!(read.windows(2).all(|pair| pair[0].0 < pair[1].0), "out of order: {read:?}");
        let mut by_object: BTreeMap<u64, Vec<(Seq, Change)>> = BTreeMap::new();
        for (seq, change) in read {
            by_object.entry(change.object).or_default().push((seq, change));
        }
        assert!(by_object.keys().all(|object| self.objects.contains_key(object)), "an unknown object");
        let synced = self.journal().is_synced();
        // The file of a failed merge may still exist after a crash, with records that were acknowledged after the
        // merge.
        let given_up = !self.journal().abandoned.is_empty();
        for (id, object) in &mut self.objects {
            object.compare(*id, by_object.remove(id).unwrap_or_default(), when, synced, given_up);
        }
    }
}

impl Object {
    /// Compares, and adopts the pending records as the expected state where that may have changed.
    fn compare(&mut self, id: u64, read: Vec<(Seq, Change)>, when: Compare, synced: bool, given_up: bool) {
        let unacked = self.appended.iter().position(|appended| !appended.acked).unwrap_or(self.appended.len());
        if when == Compare::Now {
            let expected: Vec<_> =
                self.appended[unacked..].iter().map(|appended| (appended.seq, appended.change.clone())).collect();
            assert_eq!(read, expected, "object {id}");
            return;
        }
        let accepted = self.appended.iter().rposition(|appended| appended.accepted).map_or(0, |last| last + 1);
        let all: Vec<&Change> = self.appended.iter().map(|appended| &appended.change).chain(&self.refused).collect();
        let found = canonical(read.iter().map(|(_, change)| change));
        // Any unaccepted change may exist, unmerged.
        let mut rest: Vec<&Change> = Vec::new();
        for change in &all[accepted..] {
            // A rejected change may have been retried unchanged.
            if read.iter().any(|(_, read)| read == *change) && !rest.contains(change) {
                rest.push(change);
            }
        }
        // A power loss can revert an acknowledgement together with all later ones.
        let from = (0..=unacked.min(accepted))
            .rev()
            .find(|from| canonical(all[*from..accepted].iter().copied().chain(rest.iter().copied())) == found);
        let Some(from) = from else {
            panic!("object {id}: {found:?} is pending, of {all:?}, unacked from {unacked}, accepted to {accepted}");
        };
        assert!(when == Compare::Ended || from == unacked, "object {id}: acknowledged records returned");
        let last = all[..accepted].iter().chain(&rest).next_back().map_or(self.base, |change| change.to);
        let were: Vec<Change> = all[..accepted].iter().map(|change| (*change).clone()).collect();
        let appended = |(seq, change)| {
            let accepted = synced || when == Compare::Merged || were.contains(&change);
            Appended { change, seq, accepted, acked: false }
        };
        if when == Compare::Merged && !given_up {
            self.base = read.first().map_or(last, |(_, change)| change.from);
            self.appended.clear();
        } else {
            // These acknowledgements may not be on disk yet.
            self.appended.truncate(from);
            self.appended.iter_mut().for_each(|appended| (appended.acked, appended.accepted) = (true, true));
        }
        self.appended.extend(read.into_iter().map(appended));
        if when == Compare::Ended {
            self.refused.clear();
        }
    }
}
