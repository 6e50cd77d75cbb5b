//! Checkpoints of the owned partitions, one at a time.
//!
//! A checkpoint is made of the previous one and the log's tail, so it does not depend on the caches of the process. If an
//! operator has deleted the checkpoints, they are written again; a partition that the log does not have whole is listed.

use std::sync::Arc;
use std::time::Duration;

use informer_hub_fleet::Partition;
use informer_hub_types::clock::{self, Instant};
use informer_hub_types::with_causes;

use super::Shared;
use super::session::{OpenPartition, Session};
use crate::restore::{self, RestoreError};

/// Interval of looks for partitions that need a checkpoint.
const LOOK: Duration = Duration::from_secs(1);
/// Interval of looks at the store of checkpoints.
const LOOK_AT_STORE: Duration = Duration::from_secs(3);

/// Writes checkpoints until it is aborted.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut store = Store { created: None, looked: clock::now() };
    loop {
        tokio::time::sleep(LOOK.min(shared.params.checkpoint)).await;
        let is_lost = store.is_lost(&shared).await;
        let sessions: Vec<_> = shared.sessions.lock().values().cloned().collect();
        for session in sessions {
            if is_lost {
                session.note_lost_checkpoints();
            }
            for (partition, open) in session.partitions() {
                if is_due(&open, shared.params.checkpoint) {
                    write(&shared, &session, &partition, &open).await;
                }
            }
        }
    }
}

/// Store of checkpoints as this process knows it.
struct Store {
    created: Option<u64>,
    looked: Instant,
}

impl Store {
    /// Returns whether the store was deleted since the last look, and created again.
    async fn is_lost(&mut self, shared: &Shared) -> bool {
        if self.looked.elapsed() < LOOK_AT_STORE {
            return false;
        }
        self.looked = clock::now();
        match shared.backend.checkpoints_created().await {
            Ok(created) => self.created.replace(created).is_some_and(|before| before != created),
            Err(error) => {
                tracing::debug!(%error, "cannot read the age of the checkpoints, trying again");
                false
            }
        }
    }
}

fn is_due(open: &OpenPartition, every: Duration) -> bool {
    let (sequence, at) = open.checkpoint;
    open.stored > sequence && at.is_none_or(|at| at.elapsed() >= every)
}

async fn write(shared: &Arc<Shared>, session: &Session, partition: &Partition, open: &OpenPartition) {
    let was_deleted = open.checkpoint.1.is_none();
    match restore::checkpoint(&shared.backend, partition, &shared.params.name, &shared.io).await {
        Ok(sequence) => session.note_checkpoint(partition, sequence),
        Err(RestoreError::Incomplete) if was_deleted => {
            tracing::warn!(%partition, "the log does not have the deleted checkpoint's objects, listing them");
            session.note_checkpoint(partition, None);
            // The next record is refused, and the informer begins with a list.
            shared.appender.abandon(partition.clone(), open.epoch).await;
        }
        Err(error) => {
            if !was_deleted {
                session.note_checkpoint(partition, None);
            }
            let error = with_causes(&error);
            tracing::warn!(%partition, error, "cannot write a checkpoint, trying again at the next interval");
        }
    }
}
