//! Checkpoints of the owned partitions, one at a time.
//!
//! A checkpoint is made of the previous one and the log's tail, so it does not depend on the caches of the process.

use std::sync::Arc;
use std::time::Duration;

use informer_hub_fleet::Partition;
use informer_hub_types::{clock, with_causes};

use super::Shared;
use super::session::{OpenPartition, Session};
use crate::restore;

/// Interval of looks for partitions that need a checkpoint.
const LOOK: Duration = Duration::from_secs(1);

/// Writes checkpoints until it is aborted.
pub(super) async fn run(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(LOOK.min(shared.params.checkpoint)).await;
        let sessions: Vec<_> = shared.sessions.lock().values().cloned().collect();
        for session in sessions {
            for (partition, open) in session.partitions() {
                if is_due(&open, shared.params.checkpoint) {
                    write(&shared, &session, &partition).await;
                }
            }
        }
    }
}

fn is_due(open: &OpenPartition, every: Duration) -> bool {
    let (sequence, at) = open.checkpoint;
    open.stored > sequence && clock::now().duration_since(at) >= every
}

async fn write(shared: &Arc<Shared>, session: &Session, partition: &Partition) {
    match restore::checkpoint(&shared.backend, partition, &shared.params.name, &shared.io).await {
        Ok(sequence) => session.note_checkpoint(partition, sequence),
        Err(error) => {
            session.note_checkpoint(partition, None);
            let error = with_causes(&error);
            tracing::warn!(%partition, error, "cannot write a checkpoint, trying again at the next interval");
        }
    }
}
