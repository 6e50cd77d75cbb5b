//! Objects of a partition: those of its checkpoint, updated by the later entries of the log.
//!
//! The checkpoint stays compressed in memory, and entries are read in pages. So memory grows with the number of objects
//! that changed after the checkpoint, not with the number of entries.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use informer_hub_fleet::checkpoint::{CheckpointError, CheckpointReader, CheckpointWriter};
use informer_hub_fleet::{
    DecodeError, Entry, Partition, PartitionState, ReadOutcome, Reader, Record, ResetReason, Sequence,
};
use informer_hub_types::{ObjectKey, ResourceVersion, Threads, with_causes};

use super::backend::{Backend, BackendError};

/// Size of a page of the log in bytes. The entry that brings a page to this size is its last. Pages are small in tests,
/// so that short logs have several pages.
pub(crate) const PAGE_BYTES: usize = if cfg!(test) { 1 << 10 } else { 1 << 20 };

/// Reason why a partition cannot be restored now.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RestoreError {
    /// The log or the store of checkpoints does not answer.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// An entry cannot be decoded.
    #[error("cannot decode an entry of the fleet's log")]
    Decode(#[from] DecodeError),
    /// The log ends at the first of these entries, although it had stored the second: an outdated server answered, or
    /// the log lost entries.
    #[error("the fleet's log ends at entry {0}, before entry {1}, which it had stored")]
    Short(Sequence, Sequence),
    /// The log has removed entries that no checkpoint contains.
    #[error("entries at the beginning of the log are missing, and no checkpoint has their objects")]
    Incomplete,
    /// The checkpoint cannot be written.
    #[error("cannot write a checkpoint")]
    Checkpoint(#[from] CheckpointError),
    /// The process is shutting down.
    #[error("the hub is shutting down")]
    Ended,
}

/// State of a partition after a certain entry of the log.
#[derive(Debug, Default)]
pub(crate) struct Restored {
    /// Position in the log, and version from which a watch can resume.
    pub(crate) state: PartitionState,
    /// Number of log entries that were read after the checkpoint.
    pub(crate) tail: usize,
    checkpoint: Option<Bytes>,
    /// Last change of each object since the checkpoint; `None` is a deletion.
    changes: BTreeMap<ObjectKey, Option<Record>>,
}

impl Restored {
    /// Returns the objects as [`Record::Put`].
    pub(crate) fn objects(self) -> impl Iterator<Item = Result<Record, CheckpointError>> + Send {
        let Self { checkpoint, mut changes, .. } = self;
        let (reader, failed) = match checkpoint.map(|bytes| CheckpointReader::new(std::io::Cursor::new(bytes))) {
            None => (None, None),
            Some(Ok(reader)) => (Some(reader), None),
            Some(Err(error)) => (None, Some(error)),
        };
        let mut stored = failed.into_iter().map(Err).chain(reader.into_iter().flatten());
        let mut rest = None;
        std::iter::from_fn(move || {
            loop {
                if let Some(rest) = &mut rest {
                    return next_put(rest);
                }
                match stored.next() {
                    Some(Ok(Record::Put { key, .. })) if changes.contains_key(&key) => {}
                    Some(read) => return Some(read),
                    None => rest = Some(std::mem::take(&mut changes).into_values()),
                }
            }
        })
    }

    fn into_checkpoint(self) -> Result<Bytes, CheckpointError> {
        let state = self.state.clone();
        let mut writer = CheckpointWriter::new(Vec::new(), &state).map_err(CheckpointError::Read)?;
        for object in self.objects() {
            writer.put(&object?).map_err(CheckpointError::Read)?;
        }
        Ok(writer.finish().map_err(CheckpointError::Read)?.into())
    }

    fn merge(&mut self, Newer { clears, changes }: Newer) {
        if clears {
            self.checkpoint = None;
            self.changes.clear();
        }
        for (key, change) in changes {
            if change.is_some() || self.checkpoint.is_some() {
                self.changes.insert(key, change);
            } else {
                self.changes.remove(&key);
            }
        }
    }
}

fn next_put(rest: &mut impl Iterator<Item = Option<Record>>) -> Option<Result<Record, CheckpointError>> {
    rest.flatten().next().map(Ok)
}

/// Reads the state of a partition after the log's last entry. Fails with [`RestoreError::Short`] if the log ends before
/// the entry `until`.
pub(crate) async fn restore(
    backend: &Arc<dyn Backend>,
    partition: &Partition,
    until: Sequence,
    io: &Threads,
) -> Result<Restored, RestoreError> {
    let folded = read(backend, partition, None, |_| true, io).await?;
    let last = folded.state().last;
    if last < until { Err(RestoreError::Short(last, until)) } else { Ok(folded.newest()) }
}

/// Returns the newest state of a partition that is fit for a checkpoint ([settled](PartitionState::is_settled)) and not
/// newer than the resource version `version`. `None` if the log and the checkpoints have only newer states.
pub(crate) async fn restore_at(
    backend: &Arc<dyn Backend>,
    partition: &Partition,
    version: u64,
    io: &Threads,
) -> Result<Option<Restored>, RestoreError> {
    let mut before = None;
    loop {
        let folded = read(backend, partition, before, is_not_newer(version), io).await?;
        let has_older = folded.checkpoint.filter(|applied| before.is_none_or(|before| *applied < before));
        let restored = folded.settled();
        if restored.is_some() || has_older.is_none() {
            return Ok(restored);
        }
        before = has_older;
    }
}

fn is_not_newer(version: u64) -> impl Fn(&PartitionState) -> bool + Clone + Send + 'static {
    move |state| {
        let resume = state.resume.as_ref().and_then(ResourceVersion::as_number);
        resume.is_some_and(|resume| resume <= version)
    }
}

/// Stores a checkpoint of a partition: the last state in the log that is [settled](PartitionState::is_settled), which
/// means complete and without changes after its resume point. Returns the sequence of the entry that completes this
/// state; `None` if there is no such entry after the previous checkpoint.
///
/// Fails with [`RestoreError::Short`] if the log ends before the entry `until`, which it had stored.
pub(crate) async fn checkpoint(
    backend: &Arc<dyn Backend>,
    partition: &Partition,
    until: Sequence,
    collector: &str,
    io: &Threads,
) -> Result<Option<Sequence>, RestoreError> {
    let folded = read(backend, partition, None, |_| true, io).await?;
    let PartitionState { last, complete, .. } = *folded.state();
    if last < until {
        return Err(RestoreError::Short(last, until));
    }
    let is_new = folded.has_settled;
    let Some(restored) = folded.settled().filter(|_| is_new) else {
        return if complete { Ok(None) } else { Err(RestoreError::Incomplete) };
    };
    let sequence = restored.state.applied;
    let written = io.spawn_blocking(move || restored.into_checkpoint()).await.map_err(|_| RestoreError::Ended)??;
    backend.save_checkpoint(partition, sequence, collector, written).await?;
    Ok(Some(sequence))
}

/// Bytes of a stored checkpoint, and the partition's state from its header.
type Stored = (Bytes, PartitionState);

/// Reads a checkpoint, and page by page the log's entries after it. The checkpoint is the newest one; if `before` is
/// set, the newest one before that sequence. `may_be` decides which settled states [`Folded::settled`] may return.
async fn read(
    backend: &Arc<dyn Backend>,
    partition: &Partition,
    before: Option<Sequence>,
    may_be: impl Fn(&PartitionState) -> bool + Clone + Send + 'static,
    io: &Threads,
) -> Result<Folded, RestoreError> {
    let checkpoint = read_checkpoint(backend, partition, before).await?;
    let mut folded = Folded::new(partition, checkpoint, &may_be);
    loop {
        let after = folded.state().last;
        let Some(page) = backend.entries(partition, after, PAGE_BYTES).await? else { return Ok(folded) };
        if page.last < after && folded.checkpoint == Some(after) {
            tracing::warn!(
                %partition, checkpoint = after, last = page.last,
                "the fleet's log ends before the checkpoint; restoring objects from the log alone"
            );
            folded = Folded::new(partition, None, &may_be);
            continue;
        }
        let (has_more, may_be) = (page.has_more(), may_be.clone());
        let folding = io.spawn_blocking(move || folded.read(&page.entries, may_be).map(|()| folded));
        folded = folding.await.map_err(|_| RestoreError::Ended)??;
        if !has_more {
            return Ok(folded);
        }
    }
}

async fn read_checkpoint(
    backend: &Arc<dyn Backend>,
    partition: &Partition,
    before: Option<Sequence>,
) -> Result<Option<Stored>, BackendError> {
    let bytes = backend.checkpoint(partition, before).await?;
    Ok(bytes.and_then(|bytes| match CheckpointReader::new(&bytes[..]) {
        Ok(reader) => Some((bytes.clone(), reader.state().clone())),
        Err(error) => {
            tracing::warn!(
                %partition, error = with_causes(&error),
                "cannot read the checkpoint; restoring objects from the fleet's log alone"
            );
            None
        }
    }))
}

/// State of a partition while its entries are read: `base`, a state that is fit for a checkpoint (settled), and the
/// changes after it.
struct Folded {
    partition: Partition,
    reader: Reader,
    /// Sequence of the last entry that the checkpoint contains; `None` without a checkpoint.
    checkpoint: Option<Sequence>,
    /// Last settled state that `may_be`, the predicate passed to `read`, has accepted. Before the first one: the state
    /// of the checkpoint, or an empty state without a checkpoint.
    base: Restored,
    /// Whether `may_be`, the predicate passed to `read`, has accepted `base`.
    is_accepted: bool,
    /// Whether `base` is the state after one of the entries read; `false` while it is the state of the checkpoint.
    has_settled: bool,
    newer: Newer,
    /// Number of entries that were read after the checkpoint.
    tail: usize,
}

/// Changes of a partition after the state in `Folded::base`.
#[derive(Default)]
struct Newer {
    /// Whether all objects of `base` are dropped before `changes` apply.
    clears: bool,
    /// Last change of each object; `None` is a deletion.
    changes: BTreeMap<ObjectKey, Option<Record>>,
}

impl Folded {
    fn new(partition: &Partition, checkpoint: Option<Stored>, may_be: impl Fn(&PartitionState) -> bool) -> Self {
        let (mut reader, mut base) = (Reader::new(), Restored::default());
        let applied = checkpoint.as_ref().map(|(_, state)| state.applied);
        let is_accepted = checkpoint.as_ref().is_some_and(|(_, state)| may_be(state));
        if let Some((bytes, state)) = checkpoint {
            reader.restore(partition.clone(), state);
            base.checkpoint = Some(bytes);
            base.state = reader.state(partition).cloned().unwrap_or_default();
        }
        let (partition, newer) = (partition.clone(), Newer::default());
        Self { partition, reader, checkpoint: applied, base, is_accepted, has_settled: false, newer, tail: 0 }
    }

    fn state(&self) -> &PartitionState {
        // Without an entry, the reader has only the state of the checkpoint, if any.
        self.reader.state(&self.partition).unwrap_or(&self.base.state)
    }

    fn read(&mut self, entries: &[Entry], may_be: impl Fn(&PartitionState) -> bool) -> Result<(), DecodeError> {
        for entry in entries {
            match self.reader.read(entry)? {
                ReadOutcome::Records(records) => records.into_iter().for_each(|record| self.newer.apply(record)),
                ReadOutcome::Gap(_) | ReadOutcome::Incomplete => self.newer.clear(),
                ReadOutcome::Nothing | ReadOutcome::Stale { .. } => {}
            }
            self.tail += 1;
            let state = self.state();
            // After a part of a divided batch, the state is still that of an earlier entry.
            if state.is_settled() && state.applied == entry.sequence && may_be(state) {
                self.merge();
                (self.is_accepted, self.has_settled) = (true, true);
            }
        }
        Ok(())
    }

    /// Applies the newer changes to `base`.
    fn merge(&mut self) {
        self.base.state = self.state().clone();
        self.base.tail = self.tail;
        self.base.merge(std::mem::take(&mut self.newer));
    }

    /// Returns the state after the last entry.
    fn newest(mut self) -> Restored {
        self.merge();
        self.base
    }

    /// Returns the last settled state that `may_be`, the predicate passed to `read`, has accepted; `None` if there is
    /// none.
    fn settled(self) -> Option<Restored> {
        self.is_accepted.then_some(self.base)
    }
}

impl Newer {
    fn apply(&mut self, record: Record) {
        match record {
            Record::Put { ref key, .. } => _ = self.changes.insert(key.clone(), Some(record)),
            Record::Delete { key, .. } => _ = self.changes.insert(key, None),
            Record::Reset { reason: ResetReason::Restart | ResetReason::Gone } => self.clear(),
            Record::Reset { reason: ResetReason::Relist }
            | Record::Owner { .. }
            | Record::Progress { .. }
            | Record::Checkpoint { .. } => {}
        }
    }

    fn clear(&mut self) {
        self.clears = true;
        self.changes.clear();
    }
}

#[cfg(test)]
mod tests {
    use informer_hub_fleet::simulated_log::Faults;
    use informer_hub_fleet::{Answer, Header, Request, pack};
    use informer_hub_types::rng::SeededRng;
    use informer_hub_types::{Gvr, Uid};

    use super::*;
    use crate::simulated::SimulatedFleet;

    fn partition() -> Partition {
        Partition { cluster: "c".parse().unwrap(), resource: Gvr::new("", "v1", "pods"), selection: 0 }
    }

    fn put(key: &str, version: u64) -> Record {
        let version = ResourceVersion::new(&version.to_string());
        Record::Put { key: ObjectKey::of(key), uid: Uid::new("u"), version, body: Bytes::from_static(b"{}") }
    }

    /// Returns an entry for each record. After its record, each entry states that all changes up to the given version
    /// are stored ([`Record::Progress`]).
    fn entries(contents: Vec<(u64, Record)>) -> Vec<Entry> {
        let restart = Record::Reset { reason: ResetReason::Restart };
        let entry = |(at, (version, record)): (usize, (u64, Record))| {
            let (sequence, mut body) = (at as u64 + 1, Vec::new());
            let records = if at == 0 { vec![restart.clone(), record] } else { vec![record] };
            let progress = Record::Progress { version: ResourceVersion::new(&version.to_string()) };
            records.iter().chain([&progress]).for_each(|record| record.encode(&mut body));
            let header = Header { epoch: 1, number: sequence, previous: sequence - 1, continues: false };
            Entry { partition: partition(), sequence, payload: header.encode(&pack(&body, false)) }
        };
        contents.into_iter().enumerate().map(entry).collect()
    }

    fn objects(restored: Restored) -> Vec<String> {
        let key = |record: Result<Record, CheckpointError>| match record.unwrap() {
            Record::Put { key, version, .. } => format!("{key}@{version}"),
            other => panic!("{other:?}"),
        };
        restored.objects().map(key).collect()
    }

    #[test]
    fn state_at_a_version_is_the_last_one_that_is_not_newer() {
        let (key, uid, version) = (ObjectKey::of("n/a"), Uid::new("u"), ResourceVersion::new("9"));
        let delete = Record::Delete { key, uid, version, last_state: Bytes::new(), tombstone: false };
        let all = entries(vec![(5, put("n/a", 3)), (7, put("n/b", 7)), (9, delete), (20, put("n/b", 20))]);
        let at = |checkpoint: Option<Stored>, from: usize, version| {
            let mut folded = Folded::new(&partition(), checkpoint, is_not_newer(version));
            folded.read(&all[from..], is_not_newer(version)).unwrap();
            let restored = folded.settled()?;
            let resume = restored.state.resume.as_ref().and_then(ResourceVersion::as_number).unwrap();
            Some((resume, objects(restored)))
        };
        let state =
            |version: u64, objects: &[&str]| Some((version, objects.iter().map(|it| (*it).to_owned()).collect()));
        assert_eq!(at(None, 0, 4), None);
        assert_eq!(at(None, 0, 6), state(5, &["n/a@3"]));
        assert_eq!(at(None, 0, 8), state(7, &["n/a@3", "n/b@7"]));
        assert_eq!(at(None, 0, 19), state(9, &["n/b@7"]));
        assert_eq!(at(None, 0, u64::MAX), state(20, &["n/b@20"]));
        let saved = || {
            let mut folded = Folded::new(&partition(), None, |_| true);
            folded.read(&all[..2], |_| true).unwrap();
            folded.settled().unwrap()
        };
        let checkpoint = || Some((saved().into_checkpoint().unwrap(), saved().state));
        assert_eq!(at(checkpoint(), 2, 6), None, "the checkpoint is newer");
        assert_eq!(at(checkpoint(), 2, 8), state(7, &["n/a@3", "n/b@7"]));
        assert_eq!(at(checkpoint(), 2, 10), state(9, &["n/b@7"]));
    }

    /// Appends entries to a simulated log, and returns the backend.
    async fn backend(fleet: &SimulatedFleet, entries: &[Entry]) -> Arc<dyn Backend> {
        let backend: Arc<dyn Backend> = Arc::new(fleet.connect());
        for Entry { partition, sequence, payload } in entries {
            let (partition, payload) = (partition.clone(), payload.clone());
            let append = Request::Append { partition, expected: sequence - 1, payload };
            assert_eq!(backend.execute(append).await, Answer::Stored(*sequence));
        }
        backend
    }

    #[tokio::test(start_paused = true)]
    async fn checkpoint_fails_if_the_log_lost_the_newest_entries() {
        let _seeded = SeededRng::new(1);
        let (fleet, io, of) = (SimulatedFleet::new(Faults::NONE), Threads::current(), partition());
        let all = entries(vec![(5, put("n/a", 3)), (7, put("n/b", 7)), (9, put("n/c", 9)), (10, put("n/d", 10))]);
        let backend = backend(&fleet, &all[..3]).await;
        assert_eq!(checkpoint(&backend, &of, 3, "a", &io).await.unwrap(), Some(3));
        let append = Request::Append { partition: of.clone(), expected: 3, payload: all[3].payload.clone() };
        assert_eq!(backend.execute(append).await, Answer::Stored(4));
        fleet.log().roll_back(3);
        assert!(matches!(checkpoint(&backend, &of, 4, "a", &io).await, Err(RestoreError::Short(3, 4))));
        fleet.log().recreate();
        assert!(matches!(checkpoint(&backend, &of, 4, "a", &io).await, Err(RestoreError::Short(3, 4))));
    }

    #[tokio::test(start_paused = true)]
    async fn checkpoint_that_is_newer_than_the_log_does_not_count() {
        let _seeded = SeededRng::new(1);
        let (fleet, io, of) = (SimulatedFleet::new(Faults::NONE), Threads::current(), partition());
        let all = entries(vec![(5, put("n/a", 3)), (7, put("n/b", 7)), (9, put("n/c", 9))]);
        let backend = backend(&fleet, &all).await;
        checkpoint(&backend, &of, 3, "a", &io).await.unwrap();
        fleet.log().roll_back(2);
        let restored = restore(&backend, &of, 2, &io).await.unwrap();
        assert_eq!((restored.state.last, objects(restored)), (2, vec!["n/a@3".to_owned(), "n/b@7".to_owned()]));
    }
}
