//! Every bound between actors, in one place. What happens at each is said where it is used and in ARCHITECTURE.md.

use std::time::Duration;

use crate::actors::runtime::gauge::MemoryTuning;
use crate::cache::{DeltaFifo, ListenerQueue, Young};
use crate::discovery::Rhythm;
use informer_hub_reflector::ReflectorOptions;

/// Mailbox bound of the actors on the data path. Each edge there has one message in flight, so it is never reached.
pub const MAILBOX: usize = 64;

/// No bound, for actors that are told what to do and what to stop doing. A full mailbox would let a later message
/// overtake an earlier one, which actix sends again when there is room: a handler that was removed would be added. What
/// waits is one message for each call that is under way.
pub const CONTROL_MAILBOX: usize = 0;

/// Changes that a reflector hands over in one message, at most.
pub const ENQUEUE_BATCH: usize = 512;

/// Keys that a fifo hands over in one message, at most. client-go's `InOrderInformersBatchProcess` uses 1,000.
pub const PROCESS_BATCH: usize = 512;

/// Bytes of their deltas, over by one key at most: an eighth of what a cache has young, so that a cluster which floods
/// waits for compression before it has used up the room in which others need not wait.
pub const PROCESS_BYTES: usize = 512 * 1024;

/// Changes that a processor writes to the store itself, at most, rather than by a message to the cache: some 100 µs.
pub const DIRECT_BATCH: usize = 16;

/// Notifications that a listener hands over in one message, at most.
pub const DELIVER_BATCH: usize = 256;

/// Threads that work on one long question, at most.
pub const SCAN_THREADS: usize = 8;

/// Long questions that wait for their turn; one more is refused.
pub const SCANS_WAITING: usize = 64;

/// How long a supervisor waits for a child to stop by itself before it goes on without it.
pub const STOP_GRACE: Duration = Duration::from_secs(5);

/// Bounds and delays that an embedder or a test may want to change.
#[derive(Clone, Debug)]
pub struct Tuning {
    /// Bytes of deltas that wait in one informer's fifo before its reflector is held back. Default 32 MiB.
    pub fifo_bytes: usize,
    /// Bytes of objects per resource that lie uncompressed because they are young. Default 4 MiB.
    pub young_bytes: usize,
    /// Notifications that wait for one listener one by one before they merge. Default 1,024.
    pub merge_above: usize,
    /// Long questions that are worked on at once, in all caches together. Default 4.
    pub scans: usize,
    /// How long a degraded informer rests before it is tried again (up to half of it is added at random). Default 60 s.
    pub degraded_rest: Duration,
    /// How a memory limit is kept.
    pub memory: MemoryTuning,
    /// How often a cluster is asked what it offers.
    pub discovery: Rhythm,
    /// How reflectors list and watch.
    pub reflector: ReflectorOptions,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            fifo_bytes: DeltaFifo::DEFAULT_LIMIT,
            young_bytes: Young::DEFAULT_LIMIT,
            merge_above: ListenerQueue::DEFAULT_MERGE_ABOVE,
            scans: 4,
            degraded_rest: Duration::from_secs(60),
            memory: MemoryTuning::default(),
            discovery: Rhythm::default(),
            reflector: ReflectorOptions::default(),
        }
    }
}
