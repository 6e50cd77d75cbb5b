//! Delivery of notifications to the outside: the transport port and the delivery contract.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

/// What came of one attempt to deliver one batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Acknowledged; the batch is done.
    Accepted,
    /// Not acknowledged: try again, not before `after` where the receiver said so.
    Retry {
        /// The receiver's `Retry-After`.
        after: Option<Duration>,
        /// What happened, without secrets.
        error: String,
    },
    /// The receiver wants no more of this sink (410).
    Disable {
        /// What happened, without secrets.
        error: String,
    },
}

/// How batches leave the process. One attempt per call; retrying is the caller's business.
pub trait Transport: Debug + Send + Sync + 'static {
    /// Tries once to deliver `batch`, whose events are of one lane and in order.
    fn attempt(&self, batch: Arc<[event::Event]>) -> BoxFuture<'static, Outcome>;
}

/// The event as it goes over the wire.
pub mod event {
    /// STUB: one CloudEvent.
    #[derive(Debug, Clone)]
    pub struct Event {}
}
