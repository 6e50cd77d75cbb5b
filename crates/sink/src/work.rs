//! Work that a [`Machine`](crate::Machine) requests from its [`Store`](crate::Store), and the results.

use super::{DeadLetter, Event, LastDelivered};
use informer_hub_types::Fsync;

/// State of a sink's journal when its store was opened.
#[derive(Debug)]
pub struct Durability {
    /// Policy for syncing written events to disk.
    pub fsync: Fsync,
    /// Last state of each object in the journal, to recognize repetitions.
    pub last_delivered: LastDelivered,
    /// Journal number of the first unacknowledged event.
    pub first: u64,
    /// Size and counters of the journal when it was opened.
    pub state: JournalState,
    /// Whether all recovered events are durable. `false` if the sync at the start failed.
    pub is_settled: bool,
}

/// Request of a sink's state machine to its store (journal and dead letters).
#[derive(Debug)]
pub enum Work {
    /// Write events, acknowledgements and dead letters.
    Commit(Commit),
    /// Read unacknowledged events, starting at number `from`.
    Read {
        /// Journal number of the first event to read.
        from: u64,
        /// Maximum number of events.
        events: usize,
        /// Maximum bytes of events.
        bytes: usize,
    },
    /// Make room by merging events of the same object, starting at journal number `from`.
    Merge {
        /// Journal number of the first event that may be merged. Events before it may be in delivery.
        from: u64,
    },
}

/// Events, acknowledgements and dead letters to write to the store together.
#[derive(Debug, Default)]
pub struct Commit {
    /// Events to append to the journal.
    pub events: Vec<Event>,
    /// Journal numbers of acknowledged events.
    pub acked: Vec<u64>,
    /// Events given up, to keep as dead letters.
    pub letters: Vec<DeadLetter>,
    /// Journal numbers to acknowledge once the letters are durable: those of the letters' events, and of later events
    /// of the same objects. If the later events were acknowledged first, a crash could make the sink deliver the older
    /// event after them.
    pub acked_with_letters: Vec<u64>,
    /// Whether to wait until the write is durable (`fsync`).
    pub sync: bool,
}

/// Result of a [`Work`].
#[derive(Debug)]
pub enum Done {
    /// The commit is stored, except for `left`.
    Committed {
        /// Stored events, with their journal numbers.
        events: Vec<Event>,
        /// Number of events that are too large for the journal; they became dead letters.
        given_up: u64,
        /// Number of dead letters that were dropped to make room.
        forgotten: u64,
        /// Parts of the commit that are not stored, to be tried again, and the error; `None` if everything is stored.
        left: Option<(Commit, StoreError)>,
        /// State of the journal afterwards.
        state: JournalState,
    },
    /// Events that [`Work::Read`] requested, in order.
    Read {
        /// The events, with their journal numbers.
        events: Vec<Event>,
        /// Journal number at which the next read starts.
        next: u64,
        /// Number of events that could not be read because they are damaged.
        lost: u64,
    },
    /// The journal could not be read.
    NotRead {
        /// Cause.
        error: StoreError,
    },
    /// The journal's events could not be merged.
    NotMerged {
        /// Cause.
        error: StoreError,
    },
    /// Events were merged, as [`Work::Merge`] requested.
    Merged {
        /// Number of unacknowledged events that the merge removed.
        freed: u64,
        /// State of the journal afterwards.
        state: JournalState,
    },
}

/// Size and counters of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct JournalState {
    /// Only events with a lower journal number may be delivered. This is the number of the next event to append; after
    /// a failed sync, the number of the first event that may be lost.
    pub end: u64,
    /// Number of unacknowledged events.
    pub pending: u64,
    /// Bytes of the journal's files.
    pub bytes: u64,
    /// Maximum size of the journal in bytes.
    pub limit: u64,
    /// Number of dead letters.
    pub letters: u64,
    /// Number of times since the start that files of the journal or the dead letters were found removed or replaced.
    pub replaced: u64,
    /// Number of accepted events that have disappeared from the files since the start.
    pub lost: u64,
}

/// Failure to read or write a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The journal has reached its size limit.
    #[error(
        "the journal is full: {bytes} of {limit} bytes; it empties as the receiver accepts events, and a higher \
         `journal_limit` counts after a restart of the hub"
    )]
    Full {
        /// Size of the journal's files in bytes.
        bytes: u64,
        /// Maximum size of the journal in bytes.
        limit: u64,
        /// Whether merging events of the same objects may free room.
        mergeable: bool,
    },
    /// An event is larger than one write may be, even into an empty journal.
    #[error("{bytes} bytes are too large for the journal, which takes {most} at once; raise the sink's journal limit")]
    TooLarge {
        /// Size of the event in bytes.
        bytes: u64,
        /// Maximum bytes of one write.
        most: u64,
    },
    /// An I/O error.
    #[error("cannot write to the disk: {0}")]
    Disk(#[source] std::io::Error),
}
