//! Durable subscribers: actors that receive events from a journal and resume after a restart.
//!
//! A durable subscriber is a sink whose receiver is an actor of this process. It receives [`Event`]s instead of object
//! handles, which do not survive a restart: see [`Event::data`](informer_hub_sink::Event::data).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use actix::{Message, Recipient};
use futures::FutureExt;
use futures::future::BoxFuture;

use informer_hub_sink::{Event, Outcome, Transport};

/// Events for a durable subscriber. Events of one object are in order, with at most one message per object in flight.
///
/// The answer `Ok` acknowledges all of them: they are not delivered again, even after a restart. After a [`Refusal`], a
/// missing answer within the timeout, or the end of the process, they are redelivered in the same order with the same
/// IDs.
#[derive(Clone, Debug)]
pub struct Deliveries(
    /// Events in order; never empty.
    pub Arc<[Event]>,
);

/// Reason why a durable subscriber does not acknowledge events.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Temporary failure. All events of the message are retried with exponential backoff.
    #[error("{0}")]
    Later(String),
    /// An event cannot be processed. The batch is halved until the refused event is alone. That event is retried for
    /// the subscription's [`refused_for`](informer_hub_types::RetryParams::refused_for), by default 10 minutes. Then it
    /// becomes a dead letter.
    #[error("{0}")]
    Content(String),
}

impl Message for Deliveries {
    type Result = Result<(), Refusal>;
}

/// Transport that delivers to an actor.
pub struct ActorTransport {
    subscriber: Recipient<Deliveries>,
    timeout: Duration,
}

impl ActorTransport {
    /// Creates a transport to `subscriber`, which must answer within `timeout`.
    #[must_use]
    pub fn new(subscriber: Recipient<Deliveries>, timeout: Duration) -> Self {
        Self { subscriber, timeout }
    }
}

impl Transport for ActorTransport {
    fn attempt(&self, batch: Arc<[Event]>) -> BoxFuture<'static, Outcome> {
        let answer = self.subscriber.send(Deliveries(batch));
        let timeout = self.timeout;
        let retry = |content, error| Outcome::Retry { after: None, content, error };
        async move {
            match tokio::time::timeout(timeout, answer).await {
                Ok(Ok(Ok(()))) => Outcome::Accepted,
                Ok(Ok(Err(Refusal::Later(error)))) => retry(false, error),
                Ok(Ok(Err(Refusal::Content(error)))) => retry(true, error),
                Ok(Err(gone)) => retry(false, format!("the subscriber does not answer: {gone}")),
                Err(_) => retry(false, format!("the subscriber has not answered within {timeout:?}")),
            }
        }
        .boxed()
    }
}

impl fmt::Debug for ActorTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActorTransport").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
