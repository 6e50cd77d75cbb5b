//! Limits of mailboxes, messages, threads and waits, in one place. Their effects are described where they are used and
//! in ARCHITECTURE.md.

use std::time::Duration;

use crate::actors::runtime::gauge::MemoryTuning;
use crate::cache::{DeltaFifo, ListenerQueue, Uncompressed};
use crate::discovery::DiscoveryIntervals;
use informer_hub_reflector::ReflectorOptions;

/// Mailbox limit of actors on the data path. It is rarely reached, because most senders wait for the answer to each
/// message.
pub const MAILBOX: usize = 64;

/// Capacity of an unlimited mailbox, for actors that receive commands.
///
/// With a limit, actix would hold back a message to a full mailbox, and a later message could overtake it. For example,
/// the removal of a handler could be handled before its addition. Pending messages are bounded by the number of
/// callers.
pub const CONTROL_MAILBOX: usize = 0;

/// Maximum number of changes a reflector sends in one message.
pub const ENQUEUE_BATCH: usize = 512;

/// Maximum number of entries a fifo sends in one message. client-go's `InOrderInformersBatchProcess` uses 1,000.
pub const PROCESS_BATCH: usize = 512;

/// Maximum bytes of the deltas in one message of a fifo. The last entry of a message may exceed it.
///
/// It is an eighth of the default [`Tuning::uncompressed_limit`]. If compression lags, processors wait for it. Small
/// messages ensure that a cluster with many changes waits earlier than clusters with few.
pub const PROCESS_BYTES: usize = 512 * 1024;

/// Maximum number of changes a processor writes to the store directly instead of by message. Writing that many takes
/// about 100 µs.
pub const DIRECT_BATCH: usize = 16;

/// Maximum number of notifications a listener delivers in one message.
pub const DELIVER_BATCH: usize = 256;

/// Maximum number of threads for the scan of one query.
pub const SCAN_THREADS: usize = 8;

/// Maximum number of query scans waiting for a permit to run; further scans are rejected.
pub const SCANS_WAITING: usize = 64;

/// Maximum time that a supervisor waits for a child to stop. Then the supervisor continues without waiting.
pub const STOP_GRACE: Duration = Duration::from_secs(5);

/// Limits and delays that embedders and tests may change.
#[derive(Clone, Debug)]
pub struct Tuning {
    /// Bytes of deltas in one informer's fifo above which its reflector waits. Default 32 MiB.
    pub fifo_bytes: usize,
    /// Bytes of recently changed objects per resource that stay uncompressed. Default 4 MiB.
    pub uncompressed_limit: usize,
    /// Number of pending notifications of one listener above which notifications of the same object are merged. Default
    /// 1,024.
    pub merge_above: usize,
    /// Query scans that run concurrently, in all caches together. Default 4.
    pub scans: usize,
    /// Delay before a degraded informer is restarted; up to half of it is added at random. Default 60 s.
    pub degraded_rest: Duration,
    /// Settings of the memory governor.
    pub memory: MemoryTuning,
    /// Intervals of discovery requests.
    pub discovery: DiscoveryIntervals,
    /// Settings of list and watch.
    pub reflector: ReflectorOptions,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            fifo_bytes: DeltaFifo::DEFAULT_LIMIT,
            uncompressed_limit: Uncompressed::DEFAULT_LIMIT,
            merge_above: ListenerQueue::DEFAULT_MERGE_ABOVE,
            scans: 4,
            degraded_rest: Duration::from_secs(60),
            memory: MemoryTuning::default(),
            discovery: DiscoveryIntervals::default(),
            reflector: ReflectorOptions::default(),
        }
    }
}
