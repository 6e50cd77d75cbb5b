//! Back-pressure signal: lets writers wait for lagging work.

use informer_hub_types::{WatchCell, Watcher};

/// Sending half of the signal, which the lagging worker owns. Dropping it releases all waiting writers.
#[derive(Debug)]
pub(in crate::actors) struct PressureSource(WatchCell<()>);

/// Handle with which a writer waits until the lagging work is done.
#[derive(Clone, Debug)]
pub struct Pressure(Watcher<()>);

impl PressureSource {
    /// Creates a source without waiters.
    #[must_use]
    pub(in crate::actors) fn new() -> Self {
        Self(WatchCell::new(()))
    }

    /// Returns a handle that waits for the worker.
    #[must_use]
    pub(in crate::actors) fn pressure(&self) -> Pressure {
        Pressure(self.0.subscribe())
    }
}

impl Default for PressureSource {
    fn default() -> Self {
        Self::new()
    }
}

impl Pressure {
    /// Completes when the lagging worker has finished its work or has died.
    pub async fn wait(mut self) {
        // The value never changes. The end of the sender is the signal, so a worker that panics releases the waiters.
        let _ = self.0.changed().await;
    }
}
