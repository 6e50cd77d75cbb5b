//! Delivery of notifications to the outside: the transport port and the delivery contract.
//!
//! # The contract
//!
//! A [`Selection`] says which notifications a sink takes; each of them becomes one [`Event`], which is queued in
//! [`Lanes`] until a [`Transport`] has delivered it.
//!
//! - **At least once.** An event leaves the queue when the receiver has acknowledged it, or as a [`DeadLetter`] when it
//!   was tried for [`RetryParams::give_up_after`], or refused for [`RetryParams::refused_for`]. Where the sink has a [`Store`] on disk, what is pending when the
//!   process dies is delivered by the next; without one it is lost.
//! - **Order per object.** Events of one object share a lane, a lane has one batch in flight, and a failed batch
//!   keeps its place. A refused event is set aside, and later events of its object behind it; see [`Lanes`]. Between objects no order is promised.
//! - **Bounded memory.** The queue has a bound in events and in bytes. At the bound the sink keeps its listeners
//!   waiting, and a waiting listener coalesces per object: memory stays bounded and no last state is lost.
//! - **Stable identity.** An event keeps its id over retries; see [`Event`] for how far beyond that.
//! - **No secrets.** Values of `Secret` objects are redacted before anything else of a sink sees them; signing keys
//!   and receiver addresses show in no log and in no `Debug` output.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

mod event;
pub mod file;
#[cfg(feature = "filters")]
mod filter;
#[cfg(not(feature = "filters"))]
#[path = "filter_disabled.rs"]
mod filter;
mod health;
mod invalid_filter;
mod lanes;
mod letters;
mod machine;
#[cfg(feature = "nats")]
pub mod nats;
mod nats_subject;
mod orphans;
mod rate;
mod redact;
mod retry;
mod select;
mod shape;
mod store;
mod told;
pub mod webhook;

#[cfg(any(test, feature = "testing"))]
pub mod contract;
#[cfg(any(test, feature = "testing"))]
pub use event::tests as test_objects;

pub use event::{Event, EventData, EventError, EventOptions, EventResource, InvalidRecord};
pub use filter::Filter;
pub use health::{AttemptOutcome, JournalStatus, SinkHealth, SinkStatus};
pub use informer_hub_types::{
    BatchParams, EventType, Initial, OnFilterError, Preset, RateLimit, RetryParams, StoreLimits,
};
pub use invalid_filter::InvalidFilter;
pub use lanes::{Bounds, Gate, LaneId, Lanes, Refusals};
pub use letters::{DeadLetter, LetterFilter, LetterSummary, MemoryLetters};
pub use machine::{Action, Broken, Durability, Intake, Machine, MachineParams};
pub use nats_subject::{InvalidSubject, SubjectPattern};
pub use orphans::Orphans;
pub use rate::RateLimiter;
pub use redact::{REDACTED, Redaction};
pub use retry::{Circuit, Decision};
pub use select::{Selection, Verdict};
pub use shape::{InvalidTemplate, Shape, Template};
pub use store::{Commit, Done, Found, JournalState, Replayed, Store, StoreError, Work};
pub use told::Told;

/// What came of one attempt to deliver one batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Acknowledged; the batch is done.
    Accepted,
    /// Not acknowledged: try again, not before `after` where the receiver said so.
    Retry {
        /// The receiver's `Retry-After`. It holds back the whole sink, not this batch alone.
        after: Option<Duration>,
        /// Whether the receiver refused this content (too large, malformed): the batch is tried again in halves, and an
        /// event that is refused alone is tried for [`RetryParams::refused_for`] while others go on.
        content: bool,
        /// What happened, without secrets.
        error: String,
    },
    /// Nothing was sent: the batch cannot be written (a template fails), and could not be at another attempt. Tried in
    /// halves; an event that is alone is given up.
    Unsendable {
        /// What happened, without secrets.
        error: String,
    },
    /// The receiver wants no more of this sink (410).
    Disable {
        /// What happened, without secrets.
        error: String,
    },
}

impl Outcome {
    /// What it is in metrics.
    #[must_use]
    pub fn kind(&self) -> AttemptOutcome {
        match self {
            Self::Accepted => AttemptOutcome::Accepted,
            Self::Retry { .. } | Self::Unsendable { .. } => AttemptOutcome::Failed,
            Self::Disable { .. } => AttemptOutcome::Disabled,
        }
    }
}

/// How batches leave the process. One attempt per call; retrying is the caller's business.
pub trait Transport: Debug + Send + Sync + 'static {
    /// Tries once to deliver `batch`, whose events are of one lane and in order.
    ///
    /// # Cancel safety
    /// Dropping the future abandons the attempt; whether the receiver took the batch is then unknown.
    fn attempt(&self, batch: Arc<[Event]>) -> BoxFuture<'static, Outcome>;
}
