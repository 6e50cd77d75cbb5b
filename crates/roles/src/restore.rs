//! Objects of a partition: those of its checkpoint, updated by the later entries of the log.
//!
//! The checkpoint stays compressed in memory, so memory grows mainly with the changes after the checkpoint.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use informer_hub_fleet::checkpoint::{CheckpointError, CheckpointReader, CheckpointWriter};
use informer_hub_fleet::{
    DecodeError, Entry, Partition, PartitionState, ReadOutcome, Reader, Record, ResetReason, Sequence,
};
use informer_hub_types::{ObjectKey, ResourceVersion, Threads, with_causes};

use super::backend::{Backend, BackendError};

/// Reason why a partition cannot be restored now.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RestoreError {
    /// The log or the store of checkpoints does not answer.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// An entry cannot be decoded.
    #[error("cannot decode an entry of the fleet's log")]
    Decode(#[from] DecodeError),
    /// The log ends before an entry that it had confirmed: an outdated server answered, or the log was deleted.
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

    fn apply(&mut self, record: Record) {
        match record {
            Record::Put { ref key, .. } => _ = self.changes.insert(key.clone(), Some(record)),
            Record::Delete { key, .. } if self.checkpoint.is_some() => _ = self.changes.insert(key, None),
            Record::Delete { key, .. } => _ = self.changes.remove(&key),
            Record::Reset { reason: ResetReason::Restart | ResetReason::Gone } => self.clear(),
            Record::Reset { reason: ResetReason::Relist }
            | Record::Owner { .. }
            | Record::Progress { .. }
            | Record::Checkpoint { .. } => {}
        }
    }

    fn clear(&mut self) {
        self.checkpoint = None;
        self.changes.clear();
    }
}

fn next_put(rest: &mut impl Iterator<Item = Option<Record>>) -> Option<Result<Record, CheckpointError>> {
    rest.flatten().next().map(Ok)
}

/// Reads a partition up to the log's last entry. If that precedes `until`, fails with [`RestoreError::Short`].
pub(crate) async fn restore(
    backend: &Arc<dyn Backend>,
    partition: &Partition,
    until: Sequence,
    io: &Threads,
) -> Result<Restored, RestoreError> {
    let (checkpoint, entries) = read(backend, partition, None).await?;
    let of = partition.clone();
    let folding = io.spawn_blocking(move || fold(&of, checkpoint, &entries));
    let restored = folding.await.map_err(|_| RestoreError::Ended)??;
    let last = restored.state.last;
    if last < until { Err(RestoreError::Short(last, until)) } else { Ok(restored) }
}

/// Reads the newest state of a partition that is not newer than the resource version `version` and is
/// [settled](PartitionState::is_settled) (fit for a checkpoint). Returns `None` if no checkpoint or entry reaches back
/// that far.
pub(crate) async fn restore_at(
    backend: &Arc<dyn Backend>,
    partition: &Partition,
    version: u64,
    io: &Threads,
) -> Result<Option<Restored>, RestoreError> {
    let mut before = None;
    loop {
        let (checkpoint, entries) = read(backend, partition, before).await?;
        let applied = checkpoint.as_ref().map(|(_, state)| state.applied);
        let of = partition.clone();
        let folding = io.spawn_blocking(move || fold_at(&of, checkpoint, entries, version));
        let restored = folding.await.map_err(|_| RestoreError::Ended)??;
        let has_older = applied.filter(|applied| before.is_none_or(|before| *applied < before));
        if restored.is_some() || has_older.is_none() {
            return Ok(restored);
        }
        before = has_older;
    }
}

fn fold_at(
    partition: &Partition,
    checkpoint: Option<Stored>,
    mut entries: Vec<Entry>,
    version: u64,
) -> Result<Option<Restored>, DecodeError> {
    let is_old = |state: &PartitionState| {
        let resume = state.resume.as_ref().and_then(ResourceVersion::as_number);
        resume.is_some_and(|resume| resume <= version)
    };
    match settled(partition, checkpoint.as_ref(), &entries, is_old)? {
        Some(settled) => entries.truncate(settled),
        None if checkpoint.as_ref().is_some_and(|(_, state)| is_old(state)) => entries.clear(),
        None => return Ok(None),
    }
    fold(partition, checkpoint, &entries).map(Some)
}

/// Stores a checkpoint of a partition at the last entry after which its state is [settled](PartitionState::is_settled):
/// complete, and without changes after its resume point. Returns the entry's sequence; `None` if there is none yet.
pub(crate) async fn checkpoint(
    backend: &Arc<dyn Backend>,
    partition: &Partition,
    collector: &str,
    io: &Threads,
) -> Result<Option<Sequence>, RestoreError> {
    let (checkpoint, mut entries) = read(backend, partition, None).await?;
    let of = partition.clone();
    let writing = io.spawn_blocking(move || {
        let Some(settled) = settled(&of, checkpoint.as_ref(), &entries, |_| true)? else {
            let is_complete = fold(&of, checkpoint, &entries)?.state.complete;
            return if is_complete { Ok(None) } else { Err(RestoreError::Incomplete) };
        };
        entries.truncate(settled);
        let restored = fold(&of, checkpoint, &entries)?;
        let sequence = restored.state.applied;
        let written = restored.into_checkpoint()?;
        Ok(Some((sequence, written)))
    });
    let Some((sequence, written)) = writing.await.map_err(|_| RestoreError::Ended)?? else { return Ok(None) };
    backend.save_checkpoint(partition, sequence, collector, written).await?;
    Ok(Some(sequence))
}

/// Bytes of a stored checkpoint, and the partition's state from its header.
type Stored = (Bytes, PartitionState);

/// Reads the newest checkpoint, or with `before` the newest one before that sequence, and the entries after the
/// checkpoint.
async fn read(
    backend: &Arc<dyn Backend>,
    partition: &Partition,
    before: Option<Sequence>,
) -> Result<(Option<Stored>, Vec<Entry>), BackendError> {
    let bytes = backend.checkpoint(partition, before).await?;
    let checkpoint = bytes.and_then(|bytes| match CheckpointReader::new(&bytes[..]) {
        Ok(reader) => Some((bytes.clone(), reader.state().clone())),
        Err(error) => {
            tracing::warn!(
                %partition, error = with_causes(&error),
                "cannot read the checkpoint; restoring objects from the fleet's log alone"
            );
            None
        }
    });
    let after = checkpoint.as_ref().map_or(0, |(_, state)| state.applied);
    let entries = backend.entries(partition, after).await?.unwrap_or_default();
    Ok((checkpoint, entries))
}

fn reader(partition: &Partition, checkpoint: Option<&Stored>) -> Reader {
    let mut reader = Reader::new();
    if let Some((_, state)) = checkpoint {
        reader.restore(partition.clone(), state.clone());
    }
    reader
}

fn fold(partition: &Partition, checkpoint: Option<Stored>, entries: &[Entry]) -> Result<Restored, DecodeError> {
    let mut reader = reader(partition, checkpoint.as_ref());
    let checkpoint = checkpoint.map(|(bytes, _)| bytes);
    let mut restored = Restored { checkpoint, tail: entries.len(), ..Restored::default() };
    for entry in entries {
        match reader.read(entry)? {
            ReadOutcome::Records(records) => records.into_iter().for_each(|record| restored.apply(record)),
            ReadOutcome::Gap(_) | ReadOutcome::Incomplete => restored.clear(),
            ReadOutcome::Nothing | ReadOutcome::Stale { .. } => {}
        }
    }
    restored.state = reader.state(partition).cloned().unwrap_or_default();
    Ok(restored)
}

/// Returns how many of the entries to apply to reach the last state that is [settled](PartitionState::is_settled) (fit
/// for a checkpoint) and that `may_be` accepts; `None` if there is none.
fn settled(
    partition: &Partition,
    checkpoint: Option<&Stored>,
    entries: &[Entry],
    may_be: impl Fn(&PartitionState) -> bool,
) -> Result<Option<usize>, DecodeError> {
    let mut reader = reader(partition, checkpoint);
    let mut settled = None;
    for (at, entry) in entries.iter().enumerate() {
        reader.read(entry)?;
        let state = reader.state(partition);
        // After a part of a divided batch, the state is still that of an earlier entry.
        if state.is_some_and(|state| state.is_settled() && state.applied == entry.sequence && may_be(state)) {
            settled = Some(at + 1);
        }
    }
    Ok(settled)
}

#[cfg(test)]
mod tests {
    use informer_hub_fleet::{Header, pack};
    use informer_hub_types::{Gvr, Uid};

    use super::*;

    fn partition() -> Partition {
        Partition { cluster: "c".parse().unwrap(), resource: Gvr::new("", "v1", "pods"), selection: 0 }
    }

    fn put(key: &str, version: u64) -> Record {
        let version = ResourceVersion::new(&version.to_string());
        Record::Put { key: ObjectKey::of(key), uid: Uid::new("u"), version, body: Bytes::from_static(b"{}") }
    }

    /// Returns entries that each end with a [`Record::Progress`] of the version given with the record.
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
            let restored = fold_at(&partition(), checkpoint, all[from..].to_vec(), version).unwrap()?;
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
        let saved = || fold_at(&partition(), None, all[..2].to_vec(), 8).unwrap().unwrap();
        let checkpoint = || Some((saved().into_checkpoint().unwrap(), saved().state));
        assert_eq!(at(checkpoint(), 2, 6), None, "the checkpoint is newer");
        assert_eq!(at(checkpoint(), 2, 8), state(7, &["n/a@3", "n/b@7"]));
        assert_eq!(at(checkpoint(), 2, 10), state(9, &["n/b@7"]));
    }
}
