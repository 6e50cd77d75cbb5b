//! Waiting until a shared informer has synced in every cluster.

use std::time::Duration;

use super::SharedInformer;
use super::version::POLL;
use crate::actors::NotSynced;
use informer_hub_types::clock;

impl<K: 'static> SharedInformer<K> {
    /// Waits until every cluster has synced.
    ///
    /// # Errors
    /// [`NotSynced`] after the timeout, with the missing clusters and their errors; or immediately, if the informer has
    /// not been started or is stopped.
    pub async fn wait_for_sync(&self, timeout: Duration) -> Result<(), NotSynced> {
        let not_synced = |waited, state| {
            let waiting = vec![format!("{} has {state}", self.inner.parts.name)];
            Err(NotSynced { waited, waiting })
        };
        let Some(sync) = self.inner.sync.get() else { return not_synced(Duration::ZERO, "not been started") };
        let began = clock::now();
        tokio::select! {
            result = sync.clone().wait(self.inner.awaited(), timeout) => result?,
            () = self.stopped() => {}
        }
        // A stopped informer has no cluster to wait for.
        if self.is_stopped() { not_synced(clock::now() - began, "been stopped") } else { Ok(()) }
    }

    async fn stopped(&self) {
        while !self.is_stopped() {
            tokio::time::sleep(POLL).await;
        }
    }
}
