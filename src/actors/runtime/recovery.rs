//! The news that a cluster answers again, shared by everything that asks this cluster.
//!
//! Each informer, lookup and discovery of a cluster has a backoff of its own. After an outage the first one that is
//! answered notifies the others, which then cut their waits short. Without it they come back one by one, each at the
//! end of its own wait.

use std::sync::Arc;

use informer_hub_types::{WatchCell, Watcher};

/// Notifies, and is subscribed to by, whatever asks one cluster.
#[derive(Clone)]
pub(in crate::actors) struct Answered(Arc<WatchCell<()>>);

impl Answered {
    pub(in crate::actors) fn new() -> Self {
        Self(Arc::new(WatchCell::new(())))
    }

    /// A request was answered by a cluster that had left the one before unanswered.
    pub(in crate::actors) fn note(&self) {
        self.0.set(());
    }

    /// Waits for the news. What was noted before is not reported.
    pub(in crate::actors) fn subscribe(&self) -> Watcher<()> {
        self.0.subscribe()
    }
}
