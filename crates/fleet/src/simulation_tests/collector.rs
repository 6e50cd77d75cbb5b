//! Simulated collector: claims partitions, restores their objects from the log, and appends the events of a watch.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use informer_hub_types::{ObjectKey, ResourceVersion};
use rand::Rng;
use rand::rngs::StdRng;

use super::cluster::{Event, Objects, SimulatedCluster};
use super::follower::{Replica, restore, write_checkpoint};
use super::{Checkpoints, Epochs};
use crate::reader::PartitionState;
use crate::simulated_log::{SimulatedClient, SimulatedLog};
use crate::writer::OfferError;
use crate::{Partition, ReadOutcome, Reader, Record, ResetReason, Writer, WriterEvent, WriterParams};

/// Watch of a partition.
struct Watch {
    objects: Objects,
    /// resourceVersion up to which events were read. `Err` if the collector must list, with the reason.
    version: Result<u64, ResetReason>,
    /// State of the partition in the log when this collector took the partition over.
    restored: PartitionState,
    /// Records that the writer has not accepted yet.
    waiting: VecDeque<Record>,
    /// resourceVersion of the last [`Record::Progress`].
    confirmed: u64,
    /// Sequence number of the last log entry that this collector has stored; zero if there is none.
    stored: u64,
}

enum Phase {
    /// Claims the partition under this epoch.
    Claiming(u64),
    /// Reads the log up to this sequence.
    Restoring(u64),
    Watching(Box<Watch>),
}

pub(super) struct SimulatedCollector {
    pub(super) client: SimulatedClient,
    checkpoints: Checkpoints,
    epochs: Epochs,
    writer: Writer,
    owned: BTreeMap<Partition, Phase>,
}

impl SimulatedCollector {
    pub(super) fn new(at: usize, log: &SimulatedLog, checkpoints: &Checkpoints, epochs: &Epochs) -> Self {
        let params = WriterParams {
            collector: format!("collector-{at}"),
            queue_bytes: 600,
            window: 2,
            batch_bytes: 150,
            answer_timeout: Duration::from_millis(150),
            first_delay: Duration::from_millis(10),
            longest_delay: Duration::from_millis(300),
            ..WriterParams::default()
        };
        Self {
            client: log.connect(),
            checkpoints: Checkpoints::clone(checkpoints),
            epochs: Epochs::clone(epochs),
            writer: Writer::new(params),
            owned: BTreeMap::new(),
        }
    }

    pub(super) fn take_over(&mut self, partition: &Partition, epoch: u64) {
        self.writer.abandon(partition);
        assert!(self.writer.open(partition.clone(), epoch));
        self.owned.insert(partition.clone(), Phase::Claiming(epoch));
    }

    pub(super) fn owns(&self, partition: &Partition) -> bool {
        self.owned.contains_key(partition)
    }

    /// Makes the apiserver answer 410: the collector must list.
    pub(super) fn expire_watch(&mut self, partition: &Partition) {
        if let Some(Phase::Watching(watch)) = self.owned.get_mut(partition)
            && watch.waiting.is_empty()
            && watch.version.is_ok()
        {
            watch.version = Err(ResetReason::Relist);
        }
    }

    /// Handles the writer's events, restores claimed partitions, reads watches and writes checkpoints, as far as
    /// possible at `now`. Returns the number of partitions that the writer lost to another collector or by a change of
    /// the log.
    pub(super) fn run(
        &mut self,
        now: Duration,
        clusters: &BTreeMap<Partition, SimulatedCluster>,
        checkpoints: f64,
        rng: &mut StdRng,
    ) -> usize {
        self.writer.exchange(&mut self.client, now);
        assert!(self.writer.queued_bytes() <= 600);
        let mut fenced = 0;
        for event in self.writer.take_events() {
            match event {
                WriterEvent::Claimed { partition, sequence } => {
                    let newest = self.epochs.borrow()[&partition];
                    if matches!(self.owned[&partition], Phase::Claiming(epoch) if epoch == newest) {
                        self.owned.insert(partition, Phase::Restoring(sequence));
                    } else {
                        self.writer.abandon(&partition);
                        self.owned.remove(&partition);
                    }
                }
                WriterEvent::Fenced { partition, .. } => {
                    fenced += 1;
                    self.owned.remove(&partition);
                }
                WriterEvent::Stored { partition, sequence, .. } => {
                    if let Some(Phase::Watching(watch)) = self.owned.get_mut(&partition) {
                        watch.stored = sequence;
                    }
                }
                WriterEvent::Closed { .. } => {}
            }
        }
        for (partition, phase) in &mut self.owned {
            if let Phase::Restoring(until) = phase
                && let Some(watch) = restored(&self.client, &self.checkpoints, partition, *until)
            {
                *phase = Phase::Watching(Box::new(watch));
            }
            if let Phase::Watching(watch) = phase {
                if self.writer.queued_bytes() == 0 && rng.random_bool(checkpoints) {
                    watch.checkpoint(partition, &self.checkpoints);
                }
                watch.run(partition, &clusters[partition], &mut self.writer, rng);
            }
        }
        self.writer.exchange(&mut self.client, now);
        fenced
    }
}

/// Reads the objects and the state of a partition from checkpoint and log. `None` if the log is unreachable.
///
/// `until` is the sequence of the collector's claim. If the last entry read precedes it, the collector must list.
fn restored(client: &SimulatedClient, checkpoints: &Checkpoints, partition: &Partition, until: u64) -> Option<Watch> {
    let mut reader = Reader::new();
    let (mut replica, after) = restore(checkpoints, partition, &mut reader).unwrap_or((Replica::default(), 0));
    let entries = client.read(after, Some(partition), usize::MAX)?;
    for entry in entries {
        if let ReadOutcome::Records(records) = reader.read(&entry).unwrap() {
            replica.apply_all(&records);
        }
    }
    let state = reader.state(partition).filter(|state| state.last >= until).cloned();
    // Retention may have removed even the claim.
    let state = state.unwrap_or_default();
    let version = match &state.resume {
        Some(version) if state.complete => Ok(version.as_number().unwrap()),
        _ => Err(ResetReason::Restart),
    };
    let objects = if version.is_ok() { replica.objects } else { Objects::new() };
    Some(Watch { objects, version, restored: state, waiting: VecDeque::new(), confirmed: 0, stored: 0 })
}

impl Watch {
    fn run(&mut self, partition: &Partition, cluster: &SimulatedCluster, writer: &mut Writer, rng: &mut StdRng) {
        if self.waiting.is_empty() {
            match self.version {
                Ok(version) => self.read(version, cluster, rng),
                Err(reason) => self.list(reason, cluster),
            }
        }
        while let Some(record) = self.waiting.front() {
            match writer.offer(partition, record) {
                Ok(()) => drop(self.waiting.pop_front()),
                Err(OfferError::Full) => return,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Reads some events of the watch.
    fn read(&mut self, from: u64, cluster: &SimulatedCluster, rng: &mut StdRng) {
        let events = cluster.events.iter().filter(|event| event.version > from);
        let mut read = from;
        for event in events.take(rng.random_range(1..8)) {
            read = event.version;
            if self.restored.repeats(&event.key, &ResourceVersion::new(&event.version.to_string())) {
                continue;
            }
            self.apply(event);
            self.waiting.push_back(event.record());
        }
        if read > from && (rng.random_bool(0.5) || read == cluster.version()) {
            self.confirm(read);
        }
        self.version = Ok(read);
    }

    /// Writes a checkpoint if it would be consistent with the last [`Record::Progress`]. The writer must have accepted
    /// all records, and the `Progress` must cover all events read and all changes restored from the log.
    fn checkpoint(&self, partition: &Partition, checkpoints: &Checkpoints) {
        let confirmed = ResourceVersion::new(&self.confirmed.to_string());
        let ahead = self.restored.unconfirmed.values().any(|seen| seen.newer_than(&confirmed));
        if self.stored > 0 && self.waiting.is_empty() && self.version == Ok(self.confirmed) && !ahead {
            let resume = Some(confirmed);
            let state = PartitionState { resume, applied: self.stored, complete: true, ..self.restored.clone() };
            write_checkpoint(checkpoints, partition, &state, &self.objects);
        }
    }

    /// Lists the cluster. Queues the differences from the objects known so far, then a [`Record::Progress`].
    fn list(&mut self, reason: ResetReason, cluster: &SimulatedCluster) {
        self.waiting.push_back(Record::Reset { reason });
        let gone: Vec<_> = self.objects.keys().filter(|key| !cluster.objects().contains_key(*key)).cloned().collect();
        for key in gone {
            self.delete(&key);
        }
        for (key, (uid, version)) in cluster.objects() {
            match self.objects.get(key) {
                Some((_, known)) if known == version => continue,
                // Another object under the same name.
                Some((known, _)) if known != uid => self.delete(key),
                _ => {}
            }
            let event = Event { key: key.clone(), uid: uid.clone(), version: *version, deleted: false };
            self.apply(&event);
            self.waiting.push_back(event.record());
        }
        self.confirm(cluster.version());
        self.version = Ok(cluster.version());
        self.restored.unconfirmed.clear();
    }

    fn confirm(&mut self, version: u64) {
        self.waiting.push_back(Record::Progress { version: ResourceVersion::new(&version.to_string()) });
        self.confirmed = version;
    }

    fn delete(&mut self, key: &ObjectKey) {
        let Some((uid, version)) = self.objects.remove(key) else { return };
        let (key, version) = (key.clone(), ResourceVersion::new(&version.to_string()));
        self.waiting.push_back(Record::Delete { key, uid, version, last_state: "{}".into(), tombstone: true });
    }

    fn apply(&mut self, event: &Event) {
        if event.deleted {
            assert!(self.objects.remove(&event.key).is_some(), "the objects are those of the log: {event:?}");
        } else {
            self.objects.insert(event.key.clone(), (event.uid.clone(), event.version));
        }
    }
}
