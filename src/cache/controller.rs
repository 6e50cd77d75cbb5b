//! client-go's controller without its goroutines: takes batches out of a queue, applies them to the store, and has
//! them processed.
//!
//! The actors do the same with a message on each edge (fifo → processor → cache); this is the whole of it on one
//! thread, for tests, tools and whoever has an event loop of their own.
//!
//! - *Store first.* What a batch does is in the store, and published, before anyone is told of it.
//! - *Batches.* client-go processes key by key or, since 1.35, up to 1,000; here it is up to the caller.
//! - *What cannot be processed* is lost, and counted, as in client-go; the store has it. [`ProcessError::Requeue`]
//!   brings it once more before anything later, which client-go gave up in 1.33. It is not applied again, since the
//!   store would then say that nothing changed: what is kept is what the batch did. After a panic of the processing,
//!   for whoever catches it, the same: how much of the batch was told is not known, so it is told in full once more.

use std::error::Error;

use super::delta_fifo::DeltaFifo;
use super::posting::PartitionId;
use super::snapshot::{Outbox, Partition};
use super::store::Store;
use informer_hub_types::Change;

/// Why a batch was not processed.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// Not now: bring it again. The caller decides when, since there is no backoff here.
    #[error("the batch is to be processed again")]
    Requeue,
    /// Not ever: what the batch did is told to nobody.
    #[error("the batch cannot be processed")]
    Failed(#[source] Box<dyn Error + Send + Sync>),
}

/// What became of one call.
#[derive(Debug)]
#[must_use]
pub enum Progress {
    /// A batch was processed.
    Processed,
    /// A batch could not be processed, and is lost to whoever should have been told of it.
    Dropped(Box<dyn Error + Send + Sync>),
    /// A batch is to be processed again, by the next call.
    Requeued,
    /// Nothing was in line, or nothing was to be taken out.
    Idle,
    /// Nothing is in line, and nothing will be.
    Closed,
    /// The store has no such partition any more; what is in line stays there.
    Abandoned,
}

/// A queue, the partition of a store that it leads to, and how far they have come. Pure; single-threaded.
#[derive(Debug)]
pub struct Controller {
    store: Store,
    partition: PartitionId,
    fifo: DeltaFifo,
    /// What is in the store, and was not told.
    untold: Option<Outbox>,
    synced: bool,
    dropped: u64,
}

impl Controller {
    /// A controller of an open partition. What a predecessor did last, and may not have told, is processed first;
    /// batches are numbered, so that who has heard of it knows.
    #[must_use]
    pub fn new(store: Store, partition: PartitionId, fifo: DeltaFifo) -> Self {
        let untold = store.outbox(partition);
        Self { store, partition, fifo, untold, synced: false, dropped: 0 }
    }

    /// Puts a change in line; not after [`Self::close`].
    pub fn push(&mut self, change: Change) {
        self.fifo.push(change);
    }

    /// Applies a batch of up to `max` entries of the queue, then calls `process` with what it did; or only calls it
    /// with a batch that is to be processed again.
    pub fn process_next(
        &mut self,
        max: usize,
        process: &mut impl FnMut(&Outbox) -> Result<(), ProcessError>,
    ) -> Progress {
        let outbox = match self.untold.take() {
            Some(untold) => untold,
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
        // It is untold until `process` has returned: a panic leaves it there.
        let progress = match process(self.untold.insert(outbox)) {
            Ok(()) => Progress::Processed,
            Err(ProcessError::Requeue) => return Progress::Requeued,
            Err(ProcessError::Failed(error)) => {
                self.dropped += 1;
                Progress::Dropped(error)
            }
        };
        self.untold = None;
        self.synced = self.fifo.has_synced();
        progress
    }

    /// Processes, in batches as large as they come, until nothing is in line or something is to be processed again.
    /// What cannot be processed is dropped. Returns what ended it.
    pub fn process_all(&mut self, process: &mut impl FnMut(&Outbox) -> Result<(), ProcessError>) -> Progress {
        loop {
            match self.process_next(usize::MAX, process) {
                Progress::Processed | Progress::Dropped(_) => {}
                end => return end,
            }
        }
    }

    /// Whether the queue's first list has been processed: see [`DeltaFifo::has_synced`], but known only after the
    /// call of `process` that was told of it (client-go's `RealFIFO`; its `DeltaFIFO` knew before). Stays true.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.synced
    }

    /// Takes nothing more in; what is in line can still be processed.
    pub fn close(&mut self) {
        self.fifo.close();
    }

    /// Batches whose processing failed for good.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The queue.
    #[must_use]
    pub fn fifo(&self) -> &DeltaFifo {
        &self.fifo
    }

    /// The store, with what has been applied.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The store, to open and close partitions of, or to put another in its place that knows the same ones.
    pub fn store_mut(&mut self) -> &mut Store {
        &mut self.store
    }

    /// Which partition it fills.
    #[must_use]
    pub fn id(&self) -> PartitionId {
        self.partition
    }

    /// The partition as it is now; `None` once it is closed.
    #[must_use]
    pub fn partition(&self) -> Option<Partition> {
        self.store.published().load().partition(self.partition).cloned()
    }

    fn is_open(&self) -> bool {
        self.store.published().load().partition(self.partition).is_some()
    }
}
