//! Interface to the replicated log.

use std::fmt;

use bytes::Bytes;

use super::entry::{Entry, Sequence};
use super::partition::Partition;

/// Number by which an answer is matched with its request.
pub type RequestId = u64;

/// Request to the log.
///
/// `Debug` shows the size of the payload, since an object may be a Secret.
#[derive(Clone, PartialEq, Eq)]
pub enum Request {
    /// Appends an entry to a partition, if the partition's last entry is still the expected one.
    Append {
        /// Partition to append to.
        partition: Partition,
        /// Sequence that the partition's last entry must have; zero if the partition must have no entry.
        expected: Sequence,
        /// The encoded entry.
        payload: Bytes,
    },
    /// Reads a partition's last entry.
    ReadLast {
        /// Partition to read.
        partition: Partition,
    },
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Append { partition, expected, payload } => {
                write!(f, "Append({partition}, after {expected}, {} bytes)", payload.len())
            }
            Self::ReadLast { partition } => write!(f, "ReadLast({partition})"),
        }
    }
}

/// Answer of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The entry is stored durably, under this sequence.
    Stored(Sequence),
    /// The partition's last entry is not the expected one, so nothing was stored.
    Refused,
    /// The partition's last entry; `None` if the log retains none.
    Last(Option<Entry>),
    /// The request failed, or its outcome is unknown.
    Failed(String),
}

/// Replicated log, as a [`Writer`](crate::Writer) needs it.
///
/// Requests are answered in any order, late, or never. A request without an answer may have been executed, and may still
/// be executed later. An append is atomic: the log compares the last entry and stores the new one in one step.
pub trait Log {
    /// Starts a request. Never blocks.
    fn send(&mut self, id: RequestId, request: Request);

    /// Returns the next answer that has arrived; `None` if there is none yet.
    fn receive(&mut self) -> Option<(RequestId, Answer)>;
}
