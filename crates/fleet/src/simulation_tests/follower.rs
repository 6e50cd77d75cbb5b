//! Simulated reader: applies the log to its objects, and verifies each change.

use std::collections::{BTreeMap, BTreeSet};

use informer_hub_types::{ObjectKey, ResourceVersion};
use rand::Rng;
use rand::rngs::StdRng;

use super::Checkpoints;
use super::cluster::{Event, Objects};
use crate::checkpoint::{CheckpointReader, CheckpointWriter};
use crate::simulated_log::{SimulatedClient, SimulatedLog};
use crate::{Partition, PartitionState, ReadOutcome, Reader, Record, ResetReason, Sequence};

/// Objects of a partition as a reader knows them.
#[derive(Clone, Debug, Default)]
pub(super) struct Replica {
    pub(super) objects: Objects,
    /// Set during a full list: the earlier objects that the list has not contained yet.
    unlisted: Option<BTreeSet<ObjectKey>>,
    pub(super) deletions: usize,
}

impl Replica {
    pub(super) fn apply_all(&mut self, records: &[Record]) {
        for record in records {
            self.apply(record);
        }
    }

    /// Applies a record.
    ///
    /// # Panics
    /// If an object's version does not grow, or a deleted object does not exist: records are out of order, or repeated.
    pub(super) fn apply(&mut self, record: &Record) {
        let Some(event) = Event::of_record(record) else {
            match record {
                Record::Reset { reason: ResetReason::Restart } => {
                    self.unlisted = Some(self.objects.keys().cloned().collect());
                }
                Record::Progress { .. } => {
                    for key in self.unlisted.take().unwrap_or_default() {
                        self.objects.remove(&key);
                        self.deletions += 1;
                    }
                }
                _ => {}
            }
            return;
        };
        let present = self.objects.get(&event.key).map(|(uid, version)| (uid.clone(), *version));
        let listed = self.unlisted.as_mut().is_some_and(|unlisted| unlisted.remove(&event.key));
        if event.deleted {
            let (uid, version) = present.unwrap_or_else(|| panic!("deleted twice: {event:?}"));
            assert!(uid == event.uid && version <= event.version, "{event:?} after {version}");
            self.objects.remove(&event.key);
            self.deletions += 1;
            return;
        }
        let grows = present.as_ref().is_none_or(|(_, version)| *version < event.version);
        // A full list repeats objects, and may have older versions, since its owner may have paused after listing.
        assert!(grows || self.unlisted.is_some() || listed, "{event:?} after {present:?}");
        self.objects.insert(event.key, (event.uid, event.version));
    }
}

pub(super) struct Follower {
    client: SimulatedClient,
    checkpoints: Checkpoints,
    reader: Reader,
    position: Sequence,
    replicas: BTreeMap<Partition, Replica>,
    /// Partitions to restore again, because the log could not be read or has a gap.
    with_gap: BTreeSet<Partition>,
    pub(super) gaps: usize,
    pub(super) deletions: usize,
    pub(super) stale: u64,
}

impl Follower {
    pub(super) fn new(log: &SimulatedLog, checkpoints: &Checkpoints) -> Self {
        Self {
            client: log.connect(),
            checkpoints: checkpoints.clone(),
            reader: Reader::new(),
            position: 0,
            replicas: BTreeMap::new(),
            with_gap: BTreeSet::new(),
            gaps: 0,
            deletions: 0,
            stale: 0,
        }
    }

    /// Restarts the reader without its state.
    pub(super) fn restart(&mut self) {
        self.reader = Reader::new();
        self.position = 0;
        self.replicas.clear();
        self.with_gap.clear();
    }

    pub(super) fn objects(&self, partition: &Partition) -> &Objects {
        static NONE: Objects = Objects::new();
        self.replicas.get(partition).map_or(&NONE, |replica| &replica.objects)
    }

    pub(super) fn state(&self, partition: &Partition) -> Option<&PartitionState> {
        self.reader.state(partition)
    }

    /// Returns the highest resourceVersion that was read from a partition.
    pub(super) fn reached(&self, partition: &Partition) -> Option<u64> {
        let state = self.state(partition)?;
        state.unconfirmed.values().chain(&state.resume).filter_map(ResourceVersion::as_number).max()
    }

    pub(super) fn run(&mut self, rng: &mut StdRng) {
        let most = rng.random_range(1..20);
        // In an order that the seed decides.
        let incomplete: BTreeSet<_> = self.reader.incomplete().chain(&self.with_gap).cloned().collect();
        for partition in incomplete.iter().filter(|_| rng.random_bool(0.05)) {
            self.restore(partition);
        }
        let Some(entries) = self.client.read(self.position, None, most) else { return };
        for entry in entries {
            self.position = self.position.max(entry.sequence);
            match self.reader.read(&entry).unwrap() {
                ReadOutcome::Records(records) => {
                    let replica = self.replicas.entry(entry.partition.clone()).or_default();
                    let before = replica.deletions;
                    replica.apply_all(&records);
                    self.deletions += replica.deletions - before;
                }
                ReadOutcome::Gap(gap) => {
                    assert!(gap.after < gap.next);
                    self.gaps += 1;
                    self.restore(&entry.partition);
                }
                ReadOutcome::Stale { .. } => self.stale += 1,
                ReadOutcome::Nothing | ReadOutcome::Incomplete => {}
            }
        }
    }

    /// Restores a partition from its checkpoint, and reads the log again from there.
    fn restore(&mut self, partition: &Partition) {
        let Some(applied) = applied(&self.checkpoints, partition) else { return };
        let Some(entries) = self.client.read(applied, Some(partition), usize::MAX) else {
            self.with_gap.insert(partition.clone());
            return;
        };
        let restored = restore(&self.checkpoints, partition, &mut self.reader);
        let Some((mut replica, _)) = restored else { return };
        self.with_gap.remove(partition);
        for entry in entries.iter().filter(|entry| entry.sequence <= self.position) {
            match self.reader.read(entry) {
                Ok(ReadOutcome::Records(records)) => replica.apply_all(&records),
                Ok(ReadOutcome::Gap(_)) => _ = self.with_gap.insert(partition.clone()),
                _ => {}
            }
        }
        self.replicas.insert(partition.clone(), replica);
    }

    /// Writes a checkpoint of each partition whose state allows one ([`PartitionState::is_settled`]).
    pub(super) fn checkpoint(&self) {
        for (partition, replica) in &self.replicas {
            if let Some(state) = self.reader.state(partition).filter(|state| state.is_settled()) {
                write_checkpoint(&self.checkpoints, partition, state, &replica.objects);
            }
        }
    }
}

/// Returns the sequence of the last entry that a partition's checkpoint contains; `None` without a checkpoint.
fn applied(checkpoints: &Checkpoints, partition: &Partition) -> Option<Sequence> {
    let checkpoints = checkpoints.borrow();
    Some(CheckpointReader::new(&checkpoints.get(partition)?[..]).unwrap().state().applied)
}

pub(super) fn write_checkpoint(
    checkpoints: &Checkpoints,
    partition: &Partition,
    state: &PartitionState,
    objects: &Objects,
) {
    let mut writer = CheckpointWriter::new(Vec::new(), state).unwrap();
    for (key, (uid, version)) in objects {
        let version = ResourceVersion::new(&version.to_string());
        let (key, uid) = (key.clone(), uid.clone());
        writer.put(&Record::Put { key, uid, version, body: "{}".into() }).unwrap();
    }
    checkpoints.borrow_mut().insert(partition.clone(), writer.finish().unwrap());
}

/// Restores a reader's partition from its checkpoint. Returns the objects, and the sequence of the last entry that the
/// checkpoint contains; `None` without a checkpoint.
pub(super) fn restore(
    checkpoints: &Checkpoints,
    partition: &Partition,
    reader: &mut Reader,
) -> Option<(Replica, Sequence)> {
    let checkpoints = checkpoints.borrow();
    let checkpoint = CheckpointReader::new(&checkpoints.get(partition)?[..]).unwrap();
    let state = checkpoint.state().clone();
    reader.restore(partition.clone(), state.clone());
    let mut replica = Replica::default();
    checkpoint.for_each(|object| replica.apply(&object.unwrap()));
    Some((replica, state.applied))
}
