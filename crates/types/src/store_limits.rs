//! Disk limits of a sink or durable subscriber.

/// Maximum sizes of the files kept for one sink or durable subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreLimits {
    /// Maximum bytes of the journal of undelivered events. Default 1 GiB.
    pub journal: u64,
    /// Maximum bytes of dead letters (undeliverable events). At the limit, the oldest are deleted. Default 256 MiB.
    pub letters: u64,
}

impl Default for StoreLimits {
    fn default() -> Self {
        Self { journal: 1 << 30, letters: 256 << 20 }
    }
}
