//! Reader of the log, for a serving replica, and for a collector before it takes a partition over.
//!
//! The reader does no I/O and stores no objects. Its caller passes entries of the log to it, and applies the returned
//! records to the caller's objects.
//!
//! # Contract
//! - The records of a partition are returned in order, each once, even if entries are passed twice.
//! - A partition becomes *complete* by a checkpoint ([`Reader::restore`]), a full list ([`ResetReason::Restart`]), or
//!   the end of its resource ([`ResetReason::Gone`]). Only records of a complete partition are returned. It is not
//!   enough to read a partition from its first retained entry: the log may have removed earlier entries.
//! - Each entry names its predecessor, and each epoch begins with entry 0. So a missing entry is noticed at the
//!   partition's next entry. The partition is then incomplete again.
//! - Entries of an older epoch than the partition's newest one are ignored. The [`Writer`](crate::Writer) prevents such
//!   entries.
//! - A watch can resume from [`PartitionState::resume`], a resourceVersion. Changes of single objects do not advance
//!   it, since the log may have them in another order than the watch. A resumed watch therefore repeats some events.
//!   The new owner ignores those for which [`PartitionState::repeats`] returns true.
//! - Without a resume point, the new owner lists all objects and begins with [`ResetReason::Restart`].

use std::collections::HashMap;

use bytes::{Bytes, BytesMut};
use informer_hub_types::{ObjectKey, ResourceVersion};

use super::entry::{Entry, Header, MAX_BODY, Sequence, unpack};
use super::partition::Partition;
use super::record::{Record, ResetReason};
use super::wire::DecodeError;

/// State of a reader for one partition: the entries read, and the point from which a watch can resume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionState {
    /// Newest epoch: the number of an owner's term.
    pub epoch: u64,
    /// Name of the collector that owns the partition in its newest epoch.
    pub owner: String,
    /// Sequence of the last entry read.
    pub last: Sequence,
    /// Sequence of the last entry whose records were returned. A checkpoint of this state contains the changes up to
    /// this entry.
    pub applied: Sequence,
    /// resourceVersion from which a watch can resume; `None` if the collector must list.
    pub resume: Option<ResourceVersion>,
    /// Whether all entries since a full list or a checkpoint were read, so that the caller has all objects.
    pub complete: bool,
    /// Objects that were changed or deleted after the last [`Record::Progress`], with their resourceVersions. A watch
    /// that resumes from `resume` repeats these changes.
    pub unconfirmed: HashMap<ObjectKey, ResourceVersion>,
}

/// Entries of a partition that a reader did not see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Sequence of the last entry before the gap; zero if none was read.
    pub after: Sequence,
    /// Sequence of the first entry after the gap.
    pub next: Sequence,
}

/// Result of reading an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// Records to apply, in order.
    Records(Vec<Record>),
    /// There is nothing to apply: the entry was read before, or its batch continues in the next entry.
    Nothing,
    /// The entry has an older epoch (owner's term) than the partition, and was ignored. A [`Writer`](crate::Writer)
    /// prevents such entries by compare-and-set.
    Stale {
        /// Epoch of the entry.
        epoch: u64,
    },
    /// Earlier entries of the partition were missed. The partition is incomplete from here on.
    Gap(Gap),
    /// The reader lacks objects of the partition (it is incomplete), so the entry was ignored.
    Incomplete,
}

/// Reader of the log; see the [module documentation](self).
#[derive(Debug, Default)]
pub struct Reader {
    partitions: HashMap<Partition, PartitionState>,
    /// Batches whose encoded bytes continue in later entries: the bytes read so far, by partition.
    partial: HashMap<Partition, BytesMut>,
    position: Sequence,
    stale: u64,
}

impl Reader {
    /// Creates a reader of the whole log.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the state of a partition to that of a checkpoint. Next, pass the partition's entries after
    /// [`PartitionState::applied`], including those that were read before this call.
    pub fn restore(&mut self, partition: Partition, checkpoint: PartitionState) {
        self.partial.remove(&partition);
        self.position = self.position.max(checkpoint.applied);
        let state = PartitionState { last: checkpoint.applied, complete: true, ..checkpoint };
        self.partitions.insert(partition, state);
    }

    /// Drops the state of a partition.
    pub fn forget(&mut self, partition: &Partition) {
        self.partitions.remove(partition);
        self.partial.remove(partition);
    }

    /// Returns the state of a partition; `None` if no entry or checkpoint of it was read.
    #[must_use]
    pub fn state(&self, partition: &Partition) -> Option<&PartitionState> {
        self.partitions.get(partition)
    }

    /// Returns the partitions that are not complete: objects or changes are missing.
    pub fn incomplete(&self) -> impl Iterator<Item = &Partition> {
        self.partitions.iter().filter(|(_, state)| !state.complete).map(|(partition, _)| partition)
    }

    /// Returns the highest sequence read, over all partitions.
    #[must_use]
    pub fn position(&self) -> Sequence {
        self.position
    }

    /// Returns the number of entries that were ignored because their epoch (owner's term) was old.
    #[must_use]
    pub fn stale(&self) -> u64 {
        self.stale
    }

    /// Reads an entry. Entries of one partition must be passed in order.
    ///
    /// # Errors
    /// The entry cannot be decoded: its partition is incomplete from here on. [`DecodeError::Newer`] means that a newer
    /// version of the program writes the log.
    pub fn read(&mut self, entry: &Entry) -> Result<ReadOutcome, DecodeError> {
        self.position = self.position.max(entry.sequence);
        let state = self.partitions.entry(entry.partition.clone()).or_default();
        if entry.sequence <= state.last {
            return Ok(ReadOutcome::Nothing);
        }
        let after = state.last;
        let decoded = Header::decode(&entry.payload);
        state.last = entry.sequence;
        let (header, body) = decoded.inspect_err(|_| state.lose())?;
        // A new epoch begins with entry 0. Without it, the log had other entries up to `after`: it was restored from an
        // older backup.
        let gap = header.previous != after || header.epoch > state.epoch && header.number > 0;
        if gap {
            state.lose();
            self.partial.remove(&entry.partition);
        }
        if header.epoch < state.epoch {
            self.stale += 1;
            return Ok(ReadOutcome::Stale { epoch: header.epoch });
        }
        if header.epoch > state.epoch {
            state.epoch = header.epoch;
            self.partial.remove(&entry.partition);
        }
        let records = match self.assemble(&entry.partition, header, body) {
            Ok(None) => None,
            Ok(Some(body)) => Some(unpack(&body)),
            Err(error) => Some(Err(error)),
        };
        let Some(state) = self.partitions.get_mut(&entry.partition) else { return Ok(ReadOutcome::Nothing) };
        let records = match records {
            None if gap => return Ok(ReadOutcome::Gap(Gap { after, next: entry.sequence })),
            None => return Ok(ReadOutcome::Nothing),
            Some(Err(_)) if !state.complete => Vec::new(),
            Some(records) => records.inspect_err(|_| state.lose())?,
        };
        Ok(match state.apply(entry.sequence, records) {
            Some(records) => ReadOutcome::Records(records),
            None if gap => ReadOutcome::Gap(Gap { after, next: entry.sequence }),
            None => ReadOutcome::Incomplete,
        })
    }

    /// Adds the part of an encoded batch that an entry contains to the parts of earlier entries. Returns the whole
    /// batch; `None` if the next entry continues it.
    fn assemble(&mut self, partition: &Partition, header: Header, body: Bytes) -> Result<Option<Bytes>, DecodeError> {
        if !header.continues && !self.partial.contains_key(partition) {
            return Ok(Some(body));
        }
        let mut partial = self.partial.remove(partition).unwrap_or_default();
        if partial.len() + body.len() > MAX_BODY {
            return Err(DecodeError::TooLarge("body", MAX_BODY));
        }
        partial.extend_from_slice(&body);
        if header.continues {
            self.partial.insert(partition.clone(), partial);
            return Ok(None);
        }
        Ok(Some(partial.freeze()))
    }
}

impl PartitionState {
    /// Returns whether a checkpoint of this state may be taken: the partition is complete, and no object has changed
    /// after its resume point.
    ///
    /// A checkpoint does not list deletions. If an object was deleted after the resume point, a collector that starts
    /// with the checkpoint could not recognise the same deletion in its resumed watch.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.complete && self.resume.is_some() && self.unconfirmed.is_empty()
    }

    /// Returns whether the log already contains this event of a resumed watch, so that the new owner must ignore it.
    #[must_use]
    pub fn repeats(&self, key: &ObjectKey, version: &ResourceVersion) -> bool {
        self.unconfirmed.get(key).is_some_and(|seen| seen == version || seen.newer_than(version))
    }

    /// Marks the partition as incomplete, because an entry is missing or cannot be decoded.
    fn lose(&mut self) {
        (self.complete, self.resume) = (false, None);
        self.unconfirmed.clear();
    }

    /// Applies records to the state and returns those that the caller must apply; `None` if the partition is
    /// incomplete.
    fn apply(&mut self, sequence: Sequence, mut records: Vec<Record>) -> Option<Vec<Record>> {
        let mut first = if self.complete { Some(0) } else { None };
        for (at, record) in records.iter().enumerate() {
            match record {
                Record::Owner { collector } => self.owner.clone_from(collector),
                Record::Progress { version } if self.complete => {
                    self.resume = Some(version.clone());
                    // Keep changes beyond this version: an earlier owner wrote them, and the resumed watch will repeat
                    // them.
                    self.unconfirmed.retain(|_, seen| seen.newer_than(version));
                }
                Record::Put { key, version, .. } | Record::Delete { key, version, .. } if self.resume.is_some() => {
                    self.unconfirmed.insert(key.clone(), version.clone());
                }
                Record::Reset { reason } => {
                    self.resume = None;
                    self.unconfirmed.clear();
                    if *reason != ResetReason::Relist && !self.complete {
                        self.complete = true;
                        first = Some(at);
                    }
                }
                _ => {}
            }
        }
        self.applied = if self.complete { sequence } else { self.applied };
        first.map(|first| records.split_off(first))
    }
}
