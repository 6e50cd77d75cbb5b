//! client-go's controller without goroutines: pops batches from a queue, applies them to the store and processes the
//! effects.
//!
//! The actors do the same with a message on each edge (fifo → processor → cache). This type runs everything on one
//! thread, for tests, tools and callers with an event loop of their own.
//!
//! - *Store first.* The effects of a batch are in the published store before `process` is called.
//! - *Batches.* client-go processes single keys or, since 1.35, up to 1,000. Here the caller decides.
//! - *Failed batches* are counted and dropped, as in client-go; the store keeps their effects.
//! - *Repeated batches.* After [`ProcessError::Requeue`] or a caught panic of `process`, the batch is processed again
//!   before later ones (client-go removed requeueing in 1.33). It is not applied to the store again, because the store
//!   would report no change. Instead, `process` gets all recorded effects of the batch again, since it is unknown which
//!   of them were processed.

use std::error::Error;

use super::applied::Outbox;
use super::delta_fifo::DeltaFifo;
use super::posting::PartitionId;
use super::snapshot::Partition;
use super::store::Store;
use informer_hub_types::Change;

/// Reason why a batch was not processed.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// Temporary: process the batch again. The caller decides when, because there is no backoff here.
    #[error("cannot process the batch of changes at this time; it is kept for another attempt")]
    Requeue,
    /// Permanent: the effects of the batch are dropped without notifications.
    #[error("cannot process the batch of changes: it is dropped")]
    Failed(#[source] Box<dyn Error + Send + Sync>),
}

/// Result of [`Controller::process_next`].
#[derive(Debug)]
#[must_use]
pub enum Progress {
    /// A batch was processed.
    Processed,
    /// A batch could not be processed. Its notifications are lost.
    Dropped(Box<dyn Error + Send + Sync>),
    /// The next call processes the batch again.
    Requeued,
    /// The queue is empty, or `max` was zero.
    Idle,
    /// The queue is empty and closed.
    Closed,
    /// The controller's partition was closed in the store. The queue is unchanged.
    Abandoned,
}

/// A queue, the partition it feeds, and the unprocessed batch. Pure; single-threaded.
#[derive(Debug)]
pub struct Controller {
    store: Store,
    partition: PartitionId,
    fifo: DeltaFifo,
    /// Effects of a batch that are in the store and not yet processed by the caller.
    unprocessed: Option<Outbox>,
    synced: bool,
    dropped: u64,
}

impl Controller {
    /// Creates a controller of an open partition. It first processes the last batch of a previous controller again,
    /// because that batch may not have been processed. Receivers recognize duplicates by the batch number.
    #[must_use]
    pub fn new(store: Store, partition: PartitionId, fifo: DeltaFifo) -> Self {
        let unprocessed = store.outbox(partition);
        Self { store, partition, fifo, unprocessed, synced: false, dropped: 0 }
    }

    /// Queues a change. Has no effect after [`Self::close`].
    pub fn push(&mut self, change: Change) {
        self.fifo.push(change);
    }

    /// Applies a batch of up to `max` entries, then calls `process` with its effects. If a batch must be processed
    /// again, only calls `process` with it.
    pub fn process_next(
        &mut self,
        max: usize,
        process: &mut impl FnMut(&Outbox) -> Result<(), ProcessError>,
    ) -> Progress {
        let outbox = match self.unprocessed.take() {
            Some(unprocessed) => unprocessed,
            None if !self.is_open() => return Progress::Abandoned,
            None => {
                let batch = self.fifo.pop(max);
                if batch.is_empty() {
                    return if self.fifo.is_drained() { Progress::Closed } else { Progress::Idle };
                }
                let Some(outbox) = self.store.apply(self.partition, batch) else { return Progress::Abandoned };
                outbox
            }
        };
        // The batch stays in `unprocessed` until `process` has returned, so that a panic does not lose it.
        let progress = match process(self.unprocessed.insert(outbox)) {
            Ok(()) => Progress::Processed,
            Err(ProcessError::Requeue) => return Progress::Requeued,
            Err(ProcessError::Failed(error)) => {
                self.dropped += 1;
                Progress::Dropped(error)
            }
        };
        self.unprocessed = None;
        self.synced = self.fifo.has_synced();
        progress
    }

    /// Processes batches until the queue is empty or a batch must be processed again. Failed batches are dropped.
    /// Returns the last result.
    pub fn process_all(&mut self, process: &mut impl FnMut(&Outbox) -> Result<(), ProcessError>) -> Progress {
        loop {
            match self.process_next(usize::MAX, process) {
                Progress::Processed | Progress::Dropped(_) => {}
                end => return end,
            }
        }
    }

    /// Returns whether the queue's first list has been processed. Unlike [`DeltaFifo::has_synced`], becomes true only
    /// after `process` was called with the end of that list, as in client-go's `RealFIFO`. Stays true.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.synced
    }

    /// Rejects further changes. Queued changes can still be processed.
    pub fn close(&mut self) {
        self.fifo.close();
    }

    /// Returns the number of batches that failed permanently.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Returns the queue.
    #[must_use]
    pub fn fifo(&self) -> &DeltaFifo {
        &self.fifo
    }

    /// Returns the store.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Returns the store for writing: to open and close partitions, or to replace it by one with the same partitions.
    pub fn store_mut(&mut self) -> &mut Store {
        &mut self.store
    }

    /// Returns the ID of the partition that this controller fills.
    #[must_use]
    pub fn id(&self) -> PartitionId {
        self.partition
    }

    /// Returns the current partition, `None` once it is closed.
    #[must_use]
    pub fn partition(&self) -> Option<Partition> {
        self.store.published().load().partition(self.partition).cloned()
    }

    fn is_open(&self) -> bool {
        self.store.published().load().partition(self.partition).is_some()
    }
}
