//! Session: the time for which a collector owns a shard of a cluster under one epoch.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};

use futures::future::join_all;
use informer_hub_fleet::writer::FenceReason;
use informer_hub_fleet::{DecodeError, Partition, Sequence};
use informer_hub_types::clock::Instant;
use informer_hub_types::{Shard, clock};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::knowledge::Knowledge;
use super::weight::Load;
use crate::appender::AppendError;

/// Maximum number of times that partitions are opened within one epoch (term of ownership) of a shard.
///
/// Each opening needs an epoch of its own, made of the shard's epoch and the number of the opening.
const OPENINGS: u64 = 1 << 20;

#[derive(Clone, Copy, Debug)]
pub(super) struct OpenPartition {
    pub(super) epoch: u64,
    /// Sequence of the entry by which this collector claimed the partition.
    pub(super) claimed: Sequence,
    /// Sequence of the partition's last stored entry.
    pub(super) stored: Sequence,
    /// Whether checkpoints can be written: the log has a complete state of the partition, or a full list has begun
    /// under this epoch.
    pub(super) has_begun: bool,
    /// When the latest append began, if it is not stored yet; `None` if all appended records are stored.
    pub(super) appending: Option<Instant>,
    /// Sequence of the last checkpoint, 0 without one; and the time of the last attempt to write one. Before the first
    /// attempt, this is the time at which the partition was opened. It is `None` after an operator has deleted the
    /// checkpoints.
    pub(super) checkpoint: (Sequence, Option<Instant>),
}

/// Ownership of a shard under one epoch (term number); see the [module documentation](self).
pub(crate) struct Session {
    pub(super) shared: Arc<Shared>,
    pub(super) shard: Shard,
    epoch: u64,
    openings: AtomicU64,
    /// Newest epoch (term number) of the shard seen in the log or its document. If it exceeds `epoch`, another
    /// collector has taken over.
    newest: AtomicU64,
    /// Whether a later version of the program has written the shard's log, so that this process cannot read it.
    unreadable: AtomicBool,
    open: Mutex<BTreeMap<Partition, OpenPartition>>,
    pub(super) knowledge: Knowledge,
    pub(super) load: Mutex<Load>,
    pub(super) began: Instant,
    /// Collector to hand the shard over to, once a move begins.
    next: OnceLock<String>,
    moving: CancellationToken,
}

impl Session {
    pub(super) fn new(shared: Arc<Shared>, of: Shard, epoch: u64) -> Self {
        let (openings, newest, unreadable, open, knowledge) = Default::default();
        let (began, next, moving) = (clock::now(), OnceLock::new(), CancellationToken::new());
        let load = Mutex::new(Load::new(began));
        Self { shared, shard: of, epoch, openings, newest, unreadable, open, knowledge, load, began, next, moving }
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Makes this collector end the session (its ownership of the shard) and release the shard for the collector `to`.
    pub(super) fn hand_over(&self, to: &str) {
        if self.next.set(to.to_owned()).is_ok() {
            self.moving.cancel();
        }
    }

    /// Waits until [`Self::hand_over`] is called. Returns the collector that receives the shard.
    pub(super) async fn handed_over(&self) -> String {
        self.moving.cancelled().await;
        self.next.get().cloned().unwrap_or_default()
    }

    /// Claims a partition. Returns the epoch and the sequence of the claim. Returns [`AppendError::NotOpen`] if this
    /// collector no longer owns the shard.
    pub(super) async fn open(&self, partition: &Partition) -> Result<(u64, Sequence), AppendError> {
        let number = self.openings.fetch_add(1, SeqCst) % OPENINGS;
        let epoch = self.epoch.saturating_mul(OPENINGS).saturating_add(number);
        let claimed = self.shared.appender.open(partition.clone(), epoch).await;
        let sequence = claimed.inspect_err(|error| self.note_fence(error))?;
        // If the log has lost all entries of the partition, a late claim succeeds although there was a newer one.
        let owner = self.shared.backend.owner(&self.shard).await.ok().flatten();
        let is_own = owner.is_some_and(|owner| owner.collector == self.shared.params.name && owner.epoch == self.epoch);
        if !is_own {
            self.shared.appender.abandon(partition.clone(), epoch).await;
            return Err(AppendError::NotOpen);
        }
        let opened = OpenPartition {
            epoch,
            claimed: sequence,
            stored: sequence,
            has_begun: false,
            appending: None,
            checkpoint: (0, Some(clock::now())),
        };
        self.open.lock().insert(partition.clone(), opened);
        Ok((epoch, sequence))
    }

    /// Records that the log has a complete state of a partition, or that a full list of it has begun.
    pub(super) fn note_begun(&self, partition: &Partition) {
        if let Some(open) = self.open.lock().get_mut(partition) {
            open.has_begun = true;
        }
    }

    pub(super) fn note_append(&self, partition: &Partition) {
        if let Some(open) = self.open.lock().get_mut(partition) {
            open.appending = Some(clock::now());
        }
    }

    pub(super) fn note_stored(&self, partition: &Partition, sequence: Sequence) {
        if let Some(open) = self.open.lock().get_mut(partition) {
            (open.stored, open.appending) = (open.stored.max(sequence), None);
        }
    }

    /// Returns when the oldest append that is not stored yet began; `None` if all are stored.
    pub(super) fn oldest_append(&self) -> Option<Instant> {
        self.open.lock().values().filter_map(|open| open.appending).min()
    }

    /// Returns the sequence of the last stored entry of a partition; 0 if it is not open.
    pub(super) fn stored(&self, partition: &Partition) -> Sequence {
        self.open.lock().get(partition).map_or(0, |open| open.stored)
    }

    pub(super) fn note_checkpoint(&self, partition: &Partition, sequence: Option<Sequence>) {
        if let Some(open) = self.open.lock().get_mut(partition) {
            open.checkpoint = (sequence.unwrap_or(open.checkpoint.0), Some(clock::now()));
        }
    }

    /// Makes a checkpoint of a partition due now.
    pub(super) fn need_checkpoint(&self, partition: &Partition) {
        if let Some(open) = self.open.lock().get_mut(partition) {
            open.checkpoint.1 = clock::now().checked_sub(self.shared.params.checkpoint).or(open.checkpoint.1);
        }
    }

    /// Notes that the checkpoints of all partitions were deleted.
    pub(super) fn note_lost_checkpoints(&self) {
        self.open.lock().values_mut().for_each(|open| open.checkpoint = (0, None));
    }

    pub(super) fn partitions(&self) -> Vec<(Partition, OpenPartition)> {
        self.open.lock().iter().map(|(partition, open)| (partition.clone(), *open)).collect()
    }

    /// Records why a partition was closed: a newer epoch, or a log of a later program version.
    pub(super) fn note_fence(&self, error: &AppendError) {
        match error {
            AppendError::Fenced(FenceReason::Epoch(epoch)) => self.note_epoch(epoch / OPENINGS),
            AppendError::Fenced(FenceReason::Unreadable(DecodeError::Newer { .. })) => {
                self.unreadable.store(true, SeqCst);
            }
            _ => {}
        }
    }

    /// Returns whether a later version of the program has written the log of the shard.
    pub(super) fn is_unreadable(&self) -> bool {
        self.unreadable.load(SeqCst)
    }

    /// Records an epoch of the shard that some collector has used.
    pub(super) fn note_epoch(&self, epoch: u64) {
        self.newest.fetch_max(epoch, SeqCst);
    }

    /// Returns the epoch of a collector that has taken the shard over; `None` if there is none.
    pub(super) fn newer_epoch(&self) -> Option<u64> {
        Some(self.newest.load(SeqCst)).filter(|newest| *newest > self.epoch)
    }

    pub(super) fn close(&self, partition: &Partition, epoch: u64) {
        let mut open = self.open.lock();
        if open.get(partition).is_some_and(|open| open.epoch == epoch) {
            open.remove(partition);
            self.load.lock().forget(partition);
            let (appender, partition) = (self.shared.appender.clone(), partition.clone());
            self.shared.io.spawn(async move { appender.close(partition, epoch).await });
        }
    }

    /// Closes all partitions, once their records are stored.
    pub(super) async fn end(&self) {
        let open = std::mem::take(&mut *self.open.lock());
        let closing = open.into_iter().map(|(partition, open)| self.shared.appender.close(partition, open.epoch));
        join_all(closing).await;
    }

    /// Closes all partitions immediately, and drops the records that are not stored yet.
    pub(super) async fn abandon(&self) {
        let open = std::mem::take(&mut *self.open.lock());
        for (partition, open) in open {
            self.shared.appender.abandon(partition, open.epoch).await;
        }
    }
}
