//! Bounds of a sink's queue.

/// Limits of a sink's queue, which includes events in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Maximum number of events. Default 10,000.
    pub events: usize,
    /// Maximum bytes; exceeded by at most one event. Default 64 MiB.
    pub bytes: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { events: 10_000, bytes: 64 * 1024 * 1024 }
    }
}
