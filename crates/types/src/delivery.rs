//! What a sink is told of its work, in the same words by its configuration and by who does it.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::Notification;

/// The types of event a sink can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// An object appeared.
    Added,
    /// An object changed.
    Updated,
    /// An object is gone.
    Deleted,
    /// A first list is complete.
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

/// What a sink does with objects that were there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Initial {
    /// They are not delivered.
    #[default]
    Skip,
    /// They are delivered as `added`, with `initial` set.
    Replay,
}

/// What becomes of an event whose filter could not be evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnFilterError {
    /// It is delivered: an event too many can be thrown away, and one too few cannot be had back.
    #[default]
    Deliver,
    /// It is not.
    Drop,
}

/// What a receiver wants to be spared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Events per second in the long run.
    pub events_per_second: NonZeroU32,
    /// Events at once after a pause. Default in a configuration: those of one second.
    pub burst: NonZeroU32,
}

/// How events are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchParams {
    /// Events per batch at most. Default 100.
    pub max_events: usize,
    /// Bytes per batch at most (a larger single event goes alone). Default 1 MiB.
    pub max_bytes: usize,
    /// How long the first event of a batch waits for more. Default 250 ms.
    pub max_wait: Duration,
}

impl Default for BatchParams {
    fn default() -> Self {
        Self { max_events: 100, max_bytes: 1 << 20, max_wait: Duration::from_millis(250) }
    }
}

/// How long a failing batch is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryParams {
    /// Upper end of the first delay; it doubles with each attempt. Default 500 ms.
    pub first: Duration,
    /// Upper end of every delay. Default 5 min.
    pub max: Duration,
    /// From the first attempt until the batch is given up. Default 24 h.
    pub give_up_after: Duration,
    /// From the first refusal of a single event until it is given up. Default 10 min.
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

/// How bodies are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// `gzip`: understood everywhere.
    Gzip,
    /// `zstd`: smaller and faster, where the receiver knows it.
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

/// A chat that messages are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// An incoming webhook of Slack: `text` for notifications, `blocks` for what is shown.
    Slack,
    /// A workflow of Teams that waits for webhook requests: an Adaptive Card.
    Teams,
    /// A webhook of Discord: one embed, which mentions nobody.
    Discord,
}
