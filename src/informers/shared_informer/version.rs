//! The version of the store: what a controller needs to read its own writes.

use std::sync::Arc;
use std::time::Duration;

use super::SharedInformer;
use crate::informers::WaitError;
use informer_hub_types::{ClusterName, InformerHealth, ResourceVersion};

/// How often a wait looks whether its informer is another one, or has been stopped.
const POLL: Duration = Duration::from_millis(100);

impl<K: 'static> SharedInformer<K> {
    /// The version up to which the store is complete for one cluster: client-go's `LastStoreSyncResourceVersion`.
    ///
    /// Every change up to this version is in the lister and in the indexer. [`Self::last_sync_resource_version`] is the
    /// reflector's version, which is ahead of the store while changes wait in the queue between them.
    ///
    /// - `None` before the first list is in the store, after the informer has been stopped, for a cluster that is not
    ///   watched, and where the server gives its lists no version.
    /// - During a later list the version stays what it was, until that list is in the store as a whole.
    /// - After etcd was restored from a backup the version goes back with the list that follows.
    /// - Inside a handler the version covers the notification's object. Two exceptions: objects of a list (`initial`
    ///   additions among them) come before the end of that list, and under a backlog of more than 512 objects an object can
    ///   be ahead of the version, since changes of one object are applied together.
    #[must_use]
    pub fn stored_version(&self, cluster: &ClusterName) -> Option<ResourceVersion> {
        self.health_in(cluster).filter(|_| !self.is_stopped())?.stored()
    }

    /// Waits until the store has every change of one cluster up to `version`, as a write returned it.
    ///
    /// Versions compare as integers, as in client-go since 1.35. A version counts for this resource only: versions of
    /// other resources, of other clusters, and of before a restore of etcd do not compare. The informer learns of versions
    /// from the events of its objects, and from bookmarks about once a minute. So wait for versions of objects that the
    /// informer selects, and always with a deadline: a version that the server never reaches is waited for forever.
    ///
    /// # Errors
    /// [`WaitError`] if waiting is in vain. A cluster that is out of reach is none of these: it may come back.
    ///
    /// # Cancel safety
    /// Cancel safe: wrap it in `tokio::time::timeout`. Needs a tokio runtime with time enabled.
    pub async fn wait_until(&self, cluster: &ClusterName, version: &ResourceVersion) -> Result<(), WaitError> {
        let number =
            |version: &ResourceVersion| version.as_number().ok_or_else(|| WaitError::NotAnInteger(version.clone()));
        let wanted = number(version)?;
        loop {
            if self.is_stopped() {
                return Err(WaitError::Stopped);
            }
            let is_starting = self.inner.sync.get().is_some_and(crate::actors::SyncView::is_starting);
            let Some(health) = self.health_in(cluster) else {
                if !is_starting {
                    return Err(WaitError::NotWatched(cluster.clone()));
                }
                tokio::time::sleep(POLL).await;
                continue;
            };
            let mut stored = health.watch_stored();
            let now = stored.see().clone();
            if let Some(now) = now
                && number(&now)? >= wanted
            {
                return Ok(());
            }
            // The informer may be set up anew meanwhile, and the cluster removed.
            let _ = tokio::time::timeout(POLL, stored.changed()).await;
        }
    }

    fn health_in(&self, cluster: &ClusterName) -> Option<Arc<InformerHealth>> {
        self.inner.sync.get()?.health_in(cluster, &self.inner.awaited())
    }
}
