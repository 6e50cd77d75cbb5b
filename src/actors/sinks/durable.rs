//! Durable subscribers: actors that are told from a journal, and go on where they were after a restart.
//!
//! A durable subscriber is a sink whose receiver is an actor of this process. What it is told are events, since after a
//! restart there is nothing else: see [`Event::data`](informer_hub_sink::Event::data).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use actix::{Message, Recipient};
use futures::FutureExt;
use futures::future::BoxFuture;

use informer_hub_sink::{Event, Outcome, Transport};

/// Events of a durable subscriber: those of one object in order, and at most one message of an object under way.
///
/// Answering `Ok` acknowledges all of them: they are not told again, also not after a restart. Anything else, no answer
/// within the time, and the end of the process before that, has them told again, in the same order and with the same ids.
#[derive(Clone, Debug)]
pub struct Deliveries(
    /// Never empty.
    pub Arc<[Event]>,
);

/// Why a durable subscriber does not acknowledge.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Not now: try all of them again, later each time.
    #[error("{0}")]
    Later(String),
    /// There is something among them that cannot be handled: try again in halves, and give up what is refused by itself
    /// five times. It becomes a dead letter.
    #[error("{0}")]
    Content(String),
}

impl Message for Deliveries {
    type Result = Result<(), Refusal>;
}

/// A subscriber's actor as a transport.
pub struct ActorTransport {
    subscriber: Recipient<Deliveries>,
    timeout: Duration,
}

impl ActorTransport {
    /// Delivers to `subscriber`, which has so long to answer.
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
