//! Fence of deliveries: sinks send only while this process holds a lease.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use informer_hub_types::clock;

/// Time until which the sinks of a process may send. Read before each attempt.
///
/// The time is that of [`clock::since_boot`], so a process that was stopped or suspended finds the fence closed when it
/// continues. An attempt that has begun is bounded by the timeout of its transport.
#[derive(Debug, Default)]
pub struct SendFence {
    /// Nanoseconds since boot; zero if closed.
    until: AtomicU64,
}

impl SendFence {
    /// Lets sinks send until a time since boot; `None` closes the fence.
    pub fn set(&self, until: Option<Duration>) {
        let nanos = until.map_or(0, |until| u64::try_from(until.as_nanos()).unwrap_or(u64::MAX));
        self.until.store(nanos, SeqCst);
    }

    /// Whether sinks may begin to send now.
    #[must_use]
    pub fn is_open(&self) -> bool {
        clock::since_boot() < Duration::from_nanos(self.until.load(SeqCst))
    }
}
