//! Recent changes of all caches, kept so that clients can list and watch the hub.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::actors::cache::actor::{CacheDirectory, Store};
use crate::cache::{HistoryLimits, HistoryReader, Snapshot};
use informer_hub_types::{ApiResource, View, clock};

/// Read access to one cache, for clients that list and watch the hub.
#[derive(Clone, Debug)]
pub struct CacheReader {
    /// Resource of the cached objects.
    pub resource: ApiResource,
    /// Form in which the objects are stored.
    pub view: View,
    /// Newest snapshot. The handle stays valid if the cache is recovered.
    pub snapshots: Arc<ArcSwap<Snapshot>>,
    /// Recent changes, from which watches are served.
    pub history: HistoryReader,
}

impl CacheDirectory {
    /// Keeps recent changes from now on, in all present and future caches. Call it before the caches are restored, so
    /// that no reader misses a change.
    pub fn keep_history(&self, limits: HistoryLimits) {
        *self.history.lock() = Some(limits);
        for entry in self.caches.lock().values() {
            entry.write_half.write(|half| start_history(&mut half.store, limits));
        }
    }

    /// Returns the store, which records its changes if [`Self::keep_history`] was called.
    pub(super) fn with_history(&self, mut store: Store) -> Store {
        let limits = *self.history.lock();
        if let Some(limits) = limits {
            start_history(&mut store, limits);
        }
        store
    }

    /// Returns read access to each cache whose changes are recorded.
    #[must_use]
    pub fn readers(&self) -> Vec<CacheReader> {
        let caches = self.caches.lock();
        let reader = |(view, snapshots): (&View, &Arc<ArcSwap<Snapshot>>)| {
            let snapshot = snapshots.load();
            let (resource, history) = (snapshot.resource().clone(), snapshot.history()?.clone());
            Some(CacheReader { resource, view: view.clone(), snapshots: Arc::clone(snapshots), history })
        };
        caches.iter().filter_map(|((_, view), entry)| reader((view, entry.write_half.published()))).collect()
    }

    /// Returns a future that completes at shutdown, when no informer writes any more but before the last checkpoint is
    /// written.
    ///
    /// Returns `None` if the hub has no state directory. When such a hub stops, it removes its objects informer by
    /// informer, so the caller must end the clients' watches before any informer stops.
    #[must_use]
    pub fn settled(&self) -> Option<WaitForCancellationFutureOwned> {
        self.checkpoints.settled()
    }

    /// Stops recording changes at shutdown, so that objects of closing partitions are not recorded as deleted.
    pub fn close_history(&self) {
        self.readers().iter().for_each(|reader| reader.history.close());
    }

    /// Returns the size in bytes of the objects in all caches' windows of recent changes. The memory that the windows
    /// add is less, because the store shares most of these objects.
    #[must_use]
    pub fn history_bytes(&self) -> u64 {
        self.readers().iter().map(|reader| reader.history.bytes() as u64).sum()
    }
}

/// Starts to record changes. Their version numbers start at the present time in microseconds, so that they exceed those
/// of earlier processes.
fn start_history(store: &mut Store, limits: HistoryLimits) {
    if store.history().is_none() {
        let base = u64::try_from(clock::wall().as_microsecond()).unwrap_or(0);
        store.keep_history(limits, base, clock::now());
    }
}
