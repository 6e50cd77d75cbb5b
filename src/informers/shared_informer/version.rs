//! Resource version up to which an informer's store is complete. A controller can wait until the store has the version
//! of a write, and then read the written object from the store.

use std::sync::Arc;
use std::time::Duration;

use super::SharedInformer;
use crate::informers::WaitError;
use informer_hub_types::{ClusterName, InformerHealth, ResourceVersion};

/// How often [`SharedInformer::wait_until`] checks whether the informer of the cluster was replaced or stopped.
pub(super) const POLL: Duration = Duration::from_millis(100);

impl<K: 'static> SharedInformer<K> {
    /// Returns the resource version up to which the store is complete for one cluster: client-go's
    /// `LastStoreSyncResourceVersion`.
    ///
    /// Every change up to this version is in the lister and in the indexer. [`Self::last_sync_resource_version`] is the
    /// version up to which the watch has received changes. That version is ahead while received changes wait to be
    /// stored.
    ///
    /// - `None` before the first list is stored, after the stop, and for a cluster that is not watched. Also `None` if
    ///   the server's lists have no version.
    /// - During a later list the version stays unchanged until the list is stored as a whole.
    /// - After etcd was restored from a backup, the version goes back with the next list.
    /// - While a handler is called with an object, the version is at least that of the object, with two exceptions.
    ///   Objects of a list, including `initial` additions, are notified before the version reaches that of the list. An
    ///   object can also be ahead of the version if the waiting changes exceed one batch (512 objects or 512 KiB).
    ///   Changes of one object are then applied together.
    #[must_use]
    pub fn stored_version(&self, cluster: &ClusterName) -> Option<ResourceVersion> {
        self.health_in(cluster).filter(|_| !self.is_stopped())?.stored()
    }

    /// Waits until the store has every change of one cluster up to the resource version `version`, which a write
    /// returned.
    ///
    /// Versions compare as integers, as in client-go since 1.35. Versions of other resources, of other clusters, and
    /// from before a restore of etcd are not comparable.
    ///
    /// The informer learns of versions from events of its objects, and from bookmarks about once a minute. So wait for
    /// versions of objects that the informer selects, and use a timeout: a version that the server never reaches is
    /// waited for forever.
    ///
    /// # Errors
    /// [`WaitError`] if the version can never be reached. An unreachable cluster is not an error.
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
            let now = stored.read_latest().clone();
            if let Some(now) = now
                && number(&now)? >= wanted
            {
                return Ok(());
            }
            // The informer may be replaced meanwhile, or the cluster removed.
            let _ = tokio::time::timeout(POLL, stored.changed()).await;
        }
    }

    fn health_in(&self, cluster: &ClusterName) -> Option<Arc<InformerHealth>> {
        self.inner.sync.get()?.health_in(cluster, &self.inner.awaited())
    }
}
