//! Signal that a cluster answers again, shared by everything that sends requests to it.
//!
//! Each informer, lookup and discovery actor of a cluster has its own backoff. After an outage, the first one that is
//! answered signals the others, which then shorten their waits. Otherwise each would recover only at the end of its own
//! wait.

use std::sync::Arc;

use informer_hub_types::{WatchCell, Watcher};

/// Signal that one cluster answers again after an outage. Cheap to clone.
#[derive(Clone)]
pub(in crate::actors) struct RecoverySignal(Arc<WatchCell<()>>);

impl RecoverySignal {
    pub(in crate::actors) fn new() -> Self {
        Self(Arc::new(WatchCell::new(())))
    }

    /// Notifies all subscribers that the cluster has answered a request, after an earlier request got no answer.
    pub(in crate::actors) fn signal(&self) {
        self.0.set(());
    }

    /// Subscribes to later signals.
    pub(in crate::actors) fn subscribe(&self) -> Watcher<()> {
        self.0.subscribe()
    }
}
