//! Delivery settings of a sink, shared by the configuration and the delivery code.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::Notification;

/// Event types that a sink can subscribe to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// An object was added.
    Added,
    /// An object was changed.
    Updated,
    /// An object was deleted.
    Deleted,
    /// An informer's first list is complete.
    Synced,
}

impl EventType {
    /// Returns the type of a notification's event.
    #[must_use]
    pub fn of<K>(notification: &Notification<K>) -> Self {
        match notification {
            Notification::Added { .. } => Self::Added,
            Notification::Updated { .. } => Self::Updated,
            Notification::Deleted { .. } => Self::Deleted,
            Notification::Synced(_) => Self::Synced,
        }
    }

    /// Returns the word in the configuration and in the CloudEvents type.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Updated => "updated",
            Self::Deleted => "deleted",
            Self::Synced => "synced",
        }
    }
}

/// How a sink treats objects that existed before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Initial {
    /// Existing objects are not delivered.
    #[default]
    Skip,
    /// Existing objects are delivered as `added`, with `initial` set.
    Replay,
}

/// Handling of an event for which the sink's filter fails to evaluate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnFilterError {
    /// The event is delivered. The receiver can discard an extra event, but cannot recover a missing one.
    #[default]
    Deliver,
    /// The event is dropped.
    Drop,
}

/// Rate limit of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Sustained events per second.
    pub events_per_second: NonZeroU32,
    /// Maximum events in one burst after a pause. Default in a configuration: `events_per_second`.
    pub burst: NonZeroU32,
}

/// How events are batched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchParams {
    /// Maximum events per batch. Default 100.
    pub max_events: usize,
    /// Maximum bytes per batch; a single event that is larger is sent alone. Default 1 MiB.
    pub max_bytes: usize,
    /// Maximum time the first event of a batch waits for more. Default 250 ms.
    pub max_wait: Duration,
}

impl Default for BatchParams {
    fn default() -> Self {
        Self { max_events: 100, max_bytes: 1 << 20, max_wait: Duration::from_millis(250) }
    }
}

/// How long a failing batch is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryParams {
    /// Upper bound of the delay before the first retry, doubled with each attempt. Default 500 ms.
    pub first: Duration,
    /// Upper bound of all delays before retries. Default 5 min.
    pub max: Duration,
    /// Time from the first attempt until the batch is given up. Default 24 h.
    pub give_up_after: Duration,
    /// How long an event that the receiver refuses is retried, from the first refusal until it is given up. Default 10
    /// min.
    pub refused_for: Duration,
}

impl Default for RetryParams {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(500),
            max: Duration::from_secs(300),
            give_up_after: Duration::from_secs(24 * 3600),
            refused_for: Duration::from_secs(600),
        }
    }
}

/// Compression of request bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// `gzip`, which every receiver supports.
    Gzip,
    /// `zstd`, which is smaller and faster but not supported by every receiver.
    Zstd,
}

impl Compression {
    /// Returns the value of `Content-Encoding`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }
}

/// Chat service for which messages are formatted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// Slack incoming webhook: `text` for notifications, `blocks` for display.
    Slack,
    /// Teams workflow triggered by a webhook request: an Adaptive Card.
    Teams,
    /// Discord webhook: one embed, without mentions.
    Discord,
}
