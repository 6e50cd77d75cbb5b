//! Disk limits of a sink or durable subscriber.

/// Maximum sizes of the files kept for one sink or durable subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreLimits {
    /// Bytes of the journal. Default 1 GiB.
    pub journal: u64,
    /// Bytes of dead letters. At the limit the oldest are deleted. Default 256 MiB.
    pub letters: u64,
}

impl Default for StoreLimits {
    fn default() -> Self {
        Self { journal: 1 << 30, letters: 256 << 20 }
    }
}
