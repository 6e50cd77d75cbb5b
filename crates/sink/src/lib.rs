//! Delivery of notifications to receivers outside the process: sinks, their queue and their transports.
//!
//! # The contract
//!
//! A [`Selection`] filters the notifications of a sink. Each accepted notification becomes one [`Event`], which is queued
//! in [`Lanes`] until a [`Transport`] has delivered it.
//!
//! - **At least once.** An event leaves the queue when the receiver has acknowledged it. It becomes a [`DeadLetter`]
//!   after [`RetryParams::give_up_after`], or [`RetryParams::refused_for`] if the receiver refuses it. With a [`Store`]
//!   on disk, pending events survive the process; without one they are lost.
//! - **Order per object.** Events of one object share a lane. A lane has one batch in flight, and a failed batch keeps
//!   its place. An event that is refused or always fails is set aside together with later events of its object; see
//!   [`Lanes`]. Successive objects with the same name count as one. Events of different objects have no order.
//! - **Bounded memory.** The queue is bounded in events and in bytes. At the bound the sink keeps its listeners waiting.
//!   A waiting listener coalesces per object, so memory stays bounded and no last state is lost.
//! - **Stable identity.** An event keeps its id over retries; see [`Event`] for restarts and replicas.
//! - **No secrets.** Values of `Secret` objects are redacted before any other part of a sink reads them. Signing keys
//!   and receiver addresses appear in no log and in no `Debug` output.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

mod event;
mod fence;
pub mod file;
#[cfg(feature = "filters")]
mod filter;
#[cfg(not(feature = "filters"))]
#[path = "filter_disabled.rs"]
mod filter;
mod health;
mod invalid_filter;
mod lanes;
mod last_delivered;
mod letters;
mod machine;
#[cfg(feature = "nats")]
pub mod nats;
mod nats_subject;
mod rate;
mod redact;
mod retry;
mod select;
mod shape;
mod store;
mod uncheckpointed;
pub mod webhook;
mod work;

#[cfg(any(test, feature = "testing"))]
pub mod contract;
#[cfg(any(test, feature = "testing"))]
pub use event::tests as test_objects;

pub use event::{Event, EventData, EventError, EventOptions, EventResource, InvalidRecord};
pub use fence::SendFence;
pub use filter::Filter;
pub use health::{AttemptOutcome, JournalStatus, SinkHealth, SinkStatus};
pub use informer_hub_types::{
    BatchParams, EventType, Initial, OnFilterError, Preset, RateLimit, RetryParams, StoreLimits,
};
pub use invalid_filter::InvalidFilter;
pub use lanes::{Bounds, Gate, LaneId, Lanes, Refusals};
pub use last_delivered::LastDelivered;
pub use letters::{DeadLetter, LetterFilter, LetterSummary, MemoryLetters};
pub use machine::{
    Action, BrokenAttempt, Coverage, IncomingBatch, Machine, MachineParams, SourceVersions, resource_key,
};
pub use nats_subject::{InvalidSubject, SubjectPattern};
pub use rate::RateLimiter;
pub use redact::{REDACTED, Redaction};
pub use retry::{Circuit, Decision};
pub use select::{Selection, SelectionResult};
pub use shape::{InvalidTemplate, Shape, Template};
pub use store::{OpenedStore, Replayed, Store};
pub use uncheckpointed::Uncheckpointed;
pub use work::{Commit, Done, Durability, JournalState, StoreError, Work};

/// Result of one attempt to deliver one batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The receiver acknowledged the batch.
    Accepted,
    /// The receiver did not acknowledge the batch. It is tried again, after the delay `after` if the receiver asked for
    /// one.
    Retry {
        /// The receiver's `Retry-After`. It delays the whole sink, not only this batch.
        after: Option<Duration>,
        /// Whether the receiver refused this content (too large, malformed). The batch is then retried in halves. An
        /// event that is refused alone is retried for [`RetryParams::refused_for`] while other events are delivered.
        content: bool,
        /// Error text, without secrets.
        error: String,
    },
    /// Nothing was sent: the batch cannot be encoded (a template fails), and a retry cannot help. A batch of several
    /// events is split into halves, and a single event is given up.
    Unsendable {
        /// Error text, without secrets.
        error: String,
    },
    /// The receiver asks for no more deliveries (410).
    Disable {
        /// Error text, without secrets.
        error: String,
    },
}

impl Outcome {
    /// Returns the outcome as a metric label.
    #[must_use]
    pub fn kind(&self) -> AttemptOutcome {
        match self {
            Self::Accepted => AttemptOutcome::Accepted,
            Self::Retry { .. } | Self::Unsendable { .. } => AttemptOutcome::Failed,
            Self::Disable { .. } => AttemptOutcome::Disabled,
        }
    }
}

/// Transport of batches to a receiver. One attempt per call; the caller retries.
pub trait Transport: Debug + Send + Sync + 'static {
    /// Tries once to deliver `batch`, whose events must reach the receiver in this order.
    ///
    /// # Cancel safety
    /// Dropping the future abandons the attempt; it is then unknown whether the receiver accepted the batch.
    fn attempt(&self, batch: Arc<[Event]>) -> BoxFuture<'static, Outcome>;
}
