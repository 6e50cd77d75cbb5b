//! A signal to wait for before adding more.

use informer_hub_types::{WatchCell, Watcher};

/// Held by whoever does the work that lags; dropping it (or [`Self::release`]) lets the waiting go on.
#[derive(Debug)]
pub(in crate::actors) struct PressureSource(WatchCell<()>);

/// Waits until work that lags is done.
#[derive(Clone, Debug)]
pub struct Pressure(Watcher<()>);

impl PressureSource {
    /// A new pressure.
    #[must_use]
    pub(in crate::actors) fn new() -> Self {
        Self(WatchCell::new(()))
    }

    /// Something to wait with.
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
    /// Ends when the work is done, or its worker is gone.
    pub async fn wait(mut self) {
        // The value never changes: the sender's end is the signal, so that a worker that panics holds up nobody.
        let _ = self.0.changed().await;
    }
}
