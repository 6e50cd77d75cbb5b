//! NATS JetStream transport: one message per event, acknowledged once a stream has stored it.
//!
//! The event's id is the message's id (`Nats-Msg-Id`), so that a stream stores repetitions within its duplicate window
//! once. An event is published only after the previous one of its object is stored; events of different objects are
//! published together.

mod link;

use std::collections::HashSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, join_all};

pub use crate::nats_subject::{InvalidSubject, SubjectPattern};

use super::{Event, Outcome, Shape, Transport};
use link::{Link, Links};

/// Maximum number of messages without an acknowledgement.
const IN_FLIGHT: usize = 256;

/// Parameters of a [`NatsTransport`].
#[derive(Debug)]
pub struct NatsParams {
    /// Client name shown to the servers.
    pub name: String,
    /// Servers of one NATS cluster, `nats://` or `tls://`.
    pub urls: Vec<String>,
    /// Pattern of the subjects.
    pub subject: SubjectPattern,
    /// Stream that must store the messages; `None` accepts any stream that listens to the subject.
    pub stream: Option<String>,
    /// Credentials; `None` connects without credentials.
    pub auth: Option<NatsAuth>,
    /// PEM file with trusted roots, instead of the system's. All certificate files are read for each connection.
    pub ca_file: Option<PathBuf>,
    /// PEM files of the client certificate and its key.
    pub client_cert: Option<(PathBuf, PathBuf)>,
    /// Time limit of one attempt, including the acknowledgements.
    pub timeout: Duration,
    /// Format of the events.
    pub shape: Arc<Shape>,
}

/// NATS credentials. `Debug` shows no secret.
#[derive(Clone, PartialEq, Eq)]
pub enum NatsAuth {
    /// File with JWT and key, as created by `nsc`. Read for each connection.
    CredsFile(PathBuf),
    /// Token that the servers accept.
    Token(String),
    /// User and password.
    Password {
        /// User name.
        user: String,
        /// Password of the user.
        password: String,
    },
    /// Seed of an NKey.
    Nkey(String),
}

impl fmt::Debug for NatsAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CredsFile(path) => f.debug_tuple("CredsFile").field(path).finish(),
            Self::Token(_) => f.write_str("Token(hidden)"),
            Self::Password { user, .. } => write!(f, "Password({user:?}, hidden)"),
            Self::Nkey(_) => f.write_str("Nkey(hidden)"),
        }
    }
}

/// Transport that publishes to JetStream.
#[derive(Debug)]
pub struct NatsTransport {
    params: Arc<NatsParams>,
    links: Arc<Links>,
}

/// Event in the form of a NATS message.
struct Message {
    /// Cluster and subject, which identify the object.
    object: String,
    subject: String,
    id: String,
    payload: Bytes,
}

impl NatsTransport {
    /// Builds the transport. It connects with the first attempt. Attempts need a tokio runtime with I/O and time.
    #[must_use]
    pub fn new(params: NatsParams) -> Self {
        let params = Arc::new(params);
        Self { links: Arc::new(Links::new(Arc::clone(&params))), params }
    }
}

impl Transport for NatsTransport {
    fn attempt(&self, batch: Arc<[Event]>) -> BoxFuture<'static, Outcome> {
        let (params, links) = (Arc::clone(&self.params), Arc::clone(&self.links));
        async move {
            // Encode all events first: nothing of a batch is sent if one cannot be encoded.
            let messages = match batch.iter().map(|event| message(&params, event)).collect::<Result<Vec<_>, _>>() {
                Ok(messages) => messages,
                Err(error) => return Outcome::Unsendable { error },
            };
            match tokio::time::timeout(params.timeout, publish(&params, &links, &messages)).await {
                Ok(Ok(())) => Outcome::Accepted,
                Ok(Err(outcome)) => outcome,
                Err(_) => retry(format!("not acknowledged within {:?}{}", params.timeout, links.last_problem())),
            }
        }
        .boxed()
    }
}

fn message(params: &NatsParams, event: &Event) -> Result<Message, String> {
    Ok(Message {
        object: format!("{}/{}", event.cluster(), event.subject()),
        subject: params.subject.subject(event),
        id: event.id().to_owned(),
        payload: Bytes::from(params.shape.one(event)?.into_owned()),
    })
}

fn retry(error: String) -> Outcome {
    Outcome::Retry { after: None, content: false, error }
}

/// Publishes messages in order, in parts with at most one message per object. Each part is sent once the stream has
/// stored the previous one.
async fn publish(params: &NatsParams, links: &Links, messages: &[Message]) -> Result<(), Outcome> {
    let link = links.link().await.map_err(retry)?;
    for part in split_at_repeats(messages) {
        let mut acks = Vec::with_capacity(part.len());
        for message in part {
            acks.push(send(params, &link, message).await.map_err(|error| outcome_of(&error, message, links))?);
        }
        let acks = join_all(acks.into_iter().map(IntoFuture::into_future)).await;
        for (ack, message) in acks.into_iter().zip(part) {
            ack.map_err(|error| outcome_of(&error, message, links))?;
        }
    }
    Ok(())
}

/// Splits messages into parts of at most [`IN_FLIGHT`], each with at most one message per object.
fn split_at_repeats(mut messages: &[Message]) -> impl Iterator<Item = &[Message]> {
    std::iter::from_fn(move || {
        let mut objects = HashSet::new();
        let is_repeated = |message: &Message| !objects.insert(message.object.clone());
        let end = messages.iter().take(IN_FLIGHT).position(is_repeated).unwrap_or(messages.len().min(IN_FLIGHT));
        let (part, rest) = messages.split_at(end);
        messages = rest;
        (!part.is_empty()).then_some(part)
    })
}

async fn send(
    params: &NatsParams,
    link: &Link,
    message: &Message,
) -> Result<async_nats::jetstream::context::PublishAckFuture, PublishError> {
    let mut publish = PublishMessage::build().payload(message.payload.clone()).message_id(&message.id);
    if let Some(stream) = &params.stream {
        publish = publish.expected_stream(stream);
    }
    link.jetstream.send_publish(message.subject.clone(), publish).await
}

/// Maps a publish error to an outcome. A message that is too large counts as refused content, so that its batch is
/// halved.
fn outcome_of(error: &PublishError, message: &Message, links: &Links) -> Outcome {
    let subject = &message.subject;
    let response =
        std::error::Error::source(error).and_then(|error| error.downcast_ref::<async_nats::jetstream::Error>());
    let code = response.map(async_nats::jetstream::Error::error_code);
    let too_large = code == Some(ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM);
    match error.kind() {
        PublishErrorKind::StreamNotFound => {
            retry(format!("no stream listens to {subject}; create one, or enable JetStream"))
        }
        PublishErrorKind::MaxPayloadExceeded => Outcome::Retry {
            after: None,
            content: true,
            error: format!("{subject}: the event has {} bytes, more than the server accepts", message.payload.len()),
        },
        _ if too_large => Outcome::Retry {
            after: None,
            content: true,
            error: format!("{subject}: the event has {} bytes, more than the stream accepts", message.payload.len()),
        },
        _ => {
            let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
            retry(format!("{subject}: {}{cause}{}", error.kind(), links.last_problem()))
        }
    }
}

#[cfg(test)]
pub(super) mod fake;
#[cfg(test)]
mod tests;
