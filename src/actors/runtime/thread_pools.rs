//! Thread pools of a hub. Queries run on threads of a lower priority than the threads that process changes.

use informer_hub_types::Threads;

/// Amount by which the nice value of threads for queries and HTTP exceeds that of the process.
///
/// A thread of nice 10 still gets about a tenth of a CPU that a thread of nice 0 also wants, so a busy host does not
/// stop queries.
#[cfg(target_os = "linux")]
pub(in crate::actors) const READER_NICE: i32 = 10;

/// Thread pools that run the work of a hub.
#[derive(Clone, Debug)]
pub struct ThreadPools {
    /// Multi-thread runtime for sockets and decoding. Its blocking threads compress, build indices and write files.
    pub io: Threads,
    /// Blocking threads of a lower priority, for scans of queries.
    pub readers: Threads,
    /// Blocking threads for closures of the embedding program. Separate, so that blocked closures do not stall the hub.
    pub handlers: Threads,
}

impl ThreadPools {
    /// Uses the threads of `threads` for all work, instead of separate pools.
    #[must_use]
    pub fn of(threads: &Threads) -> Self {
        Self { io: threads.clone(), readers: threads.clone(), handlers: threads.clone() }
    }
}

/// Lowers the priority of the calling thread. Does nothing on systems other than Linux, because their priorities apply
/// to whole processes.
pub(crate) fn lower_priority() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{getpriority_process, setpriority_process};
        let lowered = getpriority_process(None).and_then(|own| setpriority_process(None, (own + READER_NICE).min(19)));
        if let Err(error) = lowered {
            tracing::warn!(
                %error,
                "cannot lower the CPU priority of a thread that answers requests; requests may delay watches"
            );
        }
    }
}
