//! Task that writes checkpoints of the owned partitions, one at a time.
//!
//! A checkpoint is made of the previous checkpoint and the later entries of the log, so it does not depend on the
//! caches of the process. It is due at an interval, and earlier if the log may soon remove entries that the previous
//! checkpoint lacks. Checkpoints that an operator has deleted are written again.
//!
//! If the log has removed entries before a checkpoint had them, the informer lists the objects again from the
//! apiserver. If the log has lost its newest entries, the informer first restores its state from the log, and lists
//! only if that state is incomplete.

use std::sync::Arc;
use std::time::Duration;

use informer_hub_fleet::Partition;
use informer_hub_fleet::kept::Retained;
use informer_hub_types::clock::{self, Instant};
use informer_hub_types::with_causes;

use super::Shared;
use super::session::{OpenPartition, Session};
use crate::restore::{self, RestoreError};

/// Interval at which partitions are checked for a due checkpoint.
const LOOK: Duration = Duration::from_secs(1);
/// Interval at which the log's limits and the age of the store of checkpoints are read.
const LOOK_AT_STORE: Duration = Duration::from_secs(3);
/// Minimum time between two checkpoints of a partition when the log may soon remove entries.
const LEAST_PAUSE: Duration = Duration::from_secs(5);

/// Writes checkpoints of the owned partitions until the task is aborted.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut store = Store { created: None, retained: None, looked: clock::now() };
    loop {
        tokio::time::sleep(LOOK.min(shared.params.checkpoint)).await;
        let is_lost = store.look(&shared).await;
        let sessions: Vec<_> = shared.sessions.lock().values().cloned().collect();
        for session in sessions {
            if is_lost {
                session.note_lost_checkpoints();
            }
            for (partition, open) in session.partitions() {
                if is_due(&open, shared.params.checkpoint, store.retained) {
                    write(&shared, &session, &partition, &open).await;
                }
            }
        }
    }
}

/// Last known state of the store of checkpoints and of the log.
struct Store {
    created: Option<u64>,
    retained: Option<Retained>,
    looked: Instant,
}

impl Store {
    /// Reads the state of the log and the store, at most every 3 s. Returns whether the store was deleted and created
    /// again since the last time.
    async fn look(&mut self, shared: &Shared) -> bool {
        if self.looked.elapsed() < LOOK_AT_STORE {
            return false;
        }
        self.looked = clock::now();
        self.retained = shared.backend.retained().await.ok();
        match shared.backend.checkpoints_created().await {
            Ok(created) => self.created.replace(created).is_some_and(|before| before != created),
            Err(error) => {
                tracing::debug!(%error, "cannot read the age of the checkpoints in NATS; retrying");
                false
            }
        }
    }
}

fn is_due(open: &OpenPartition, every: Duration, log: Option<Retained>) -> bool {
    let (sequence, at) = open.checkpoint;
    let Some(at) = at else { return open.stored > sequence };
    let may_be_lost = log.is_some_and(|log| log.may_soon_pass(sequence.max(open.claimed)));
    // A maximum age of zero means no limit. Another collector may have changed the limit.
    let by_age = log.map(|log| log.max_age / 4).filter(|age| !age.is_zero()).unwrap_or(every);
    let pause = if may_be_lost { every.min(LEAST_PAUSE) } else { every.min(by_age) };
    open.has_begun && open.stored > sequence && at.elapsed() >= pause
}

async fn write(shared: &Arc<Shared>, session: &Session, partition: &Partition, open: &OpenPartition) {
    let was_deleted = open.checkpoint.1.is_none();
    match restore::checkpoint(&shared.backend, partition, open.stored, &shared.params.name, &shared.io).await {
        Ok(sequence) => session.note_checkpoint(partition, sequence),
        Err(RestoreError::Incomplete) => {
            let reason = if was_deleted {
                "the log does not have the objects of the deleted checkpoint"
            } else {
                "the log has removed changes before a checkpoint had them; raise fleet.window.bytes"
            };
            tracing::warn!(%partition, reason, "cannot write a checkpoint; listing the objects again");
            session.note_checkpoint(partition, None);
            // The informer's next record is then refused, so the informer begins with a list.
            shared.appender.abandon(partition.clone(), open.epoch).await;
        }
        Err(RestoreError::Short(last, stored)) => {
            tracing::warn!(
                %partition, last, stored,
                "the fleet's log has lost the newest entries of the resource; restoring its state again"
            );
            session.note_checkpoint(partition, None);
            // The informer's next record is then refused, so the informer claims the log and reads its state.
            shared.appender.abandon(partition.clone(), open.epoch).await;
        }
        Err(error) => {
            if !was_deleted {
                session.note_checkpoint(partition, None);
            }
            let error = with_causes(&error);
            tracing::warn!(%partition, error, "cannot write a checkpoint; retrying at the next interval");
        }
    }
}
