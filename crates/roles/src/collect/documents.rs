//! Task that stores the documents about the owned clusters.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt};

use super::Shared;
use super::knowledge;
use super::session::Session;

/// Interval at which changed documents are stored.
const EVERY: Duration = Duration::from_secs(1);
/// Maximum number of documents that are stored at the same time.
const AT_ONCE: usize = 16;

/// Stores changed documents about the owned clusters until the task is aborted.
pub(super) async fn run(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(EVERY).await;
        let sessions: Vec<_> = shared.sessions.lock().values().cloned().collect();
        let saving = sessions.iter().map(|session| save(&shared, session));
        stream::iter(saving).for_each_concurrent(AT_ONCE, |saving| saving).await;
    }
}

async fn save(shared: &Shared, session: &Session) {
    let (of, latest) = (&session.shard, shared.directory.document(&session.shard));
    match knowledge::save_changes(&*shared.backend, of, session.epoch(), &session.knowledge, latest).await {
        Ok(newest) => session.note_epoch(newest),
        Err(error) => {
            tracing::debug!(
                cluster = %session.shard, %error,
                "cannot store the version and resources of the cluster for replicas; retrying"
            );
        }
    }
}
