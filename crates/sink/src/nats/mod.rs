//! The transport to NATS JetStream: one message per event, acknowledged when a stream has stored it.
//!
//! The id of the event is the id of the message (`Nats-Msg-Id`), so that a stream takes what is repeated within its
//! window once. Of one object an event is published only when the one before it is stored; events of different objects
//! go together.

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

/// Messages that wait for their acknowledgement at once.
const IN_FLIGHT: usize = 256;

/// What a transport to NATS is built from.
#[derive(Debug)]
pub struct NatsParams {
    /// The name that the servers see.
    pub name: String,
    /// Servers of one cluster, `nats://` or `tls://`.
    pub urls: Vec<String>,
    /// How subjects are made.
    pub subject: SubjectPattern,
    /// The stream that must take the events; unset: the one that listens to the subject.
    pub stream: Option<String>,
    /// Who the hub is; unset: nobody.
    pub auth: Option<NatsAuth>,
    /// PEM file with roots to trust instead of the system's. Read with each connection, as those that follow are.
    pub ca_file: Option<PathBuf>,
    /// PEM files with the certificate that the servers are shown and its key.
    pub client_cert: Option<(PathBuf, PathBuf)>,
    /// How long one attempt may take, the acknowledgements included.
    pub timeout: Duration,
    /// The form of the events.
    pub shape: Arc<Shape>,
}

/// Who the hub is to NATS. Shows no secret in `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub enum NatsAuth {
    /// A file with JWT and key, as `nsc` makes it. Read with each connection.
    CredsFile(PathBuf),
    /// A token.
    Token(String),
    /// A user and a password.
    Password {
        /// The user.
        user: String,
        /// The password.
        password: String,
    },
    /// The seed of a key.
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

/// Publishes to JetStream.
#[derive(Debug)]
pub struct NatsTransport {
    params: Arc<NatsParams>,
    links: Arc<Links>,
}

/// An event, ready to be sent.
struct Message {
    /// Of one object.
    object: String,
    subject: String,
    id: String,
    payload: Bytes,
}

impl NatsTransport {
    /// Builds the transport; connects with the first attempt. Attempts must run on a tokio runtime with I/O and time.
    #[must_use]
    pub fn new(params: NatsParams) -> Self {
        // Whoever comes first decides on the process's TLS provider; that it was somebody else is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let params = Arc::new(params);
        Self { links: Arc::new(Links::new(Arc::clone(&params))), params }
    }
}

impl Transport for NatsTransport {
    fn attempt(&self, batch: Arc<[Event]>) -> BoxFuture<'static, Outcome> {
        let (params, links) = (Arc::clone(&self.params), Arc::clone(&self.links));
        async move {
            // All of them first: of a batch that cannot be sent whole, nothing goes.
            let messages = match batch.iter().map(|event| message(&params, event)).collect::<Result<Vec<_>, _>>() {
                Ok(messages) => messages,
                Err(error) => return Outcome::Unsendable { error },
            };
            match tokio::time::timeout(params.timeout, publish(&params, &links, &messages)).await {
                Ok(Ok(())) => Outcome::Accepted,
                Ok(Err(outcome)) => outcome,
                Err(_) => retry(format!("not acknowledged within {:?}{}", params.timeout, links.heard())),
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

/// Publishes messages in order, wave by wave: no wave has two of one object.
async fn publish(params: &NatsParams, links: &Links, messages: &[Message]) -> Result<(), Outcome> {
    let link = links.link().await.map_err(retry)?;
    for wave in waves(messages) {
        let mut acks = Vec::with_capacity(wave.len());
        for message in wave {
            acks.push(send(params, &link, message).await.map_err(|error| judge(&error, message, links))?);
        }
        let acks = join_all(acks.into_iter().map(IntoFuture::into_future)).await;
        for (ack, message) in acks.into_iter().zip(wave) {
            ack.map_err(|error| judge(&error, message, links))?;
        }
    }
    Ok(())
}

/// Cuts a batch where an object comes again, and where enough is in flight.
fn waves(mut messages: &[Message]) -> impl Iterator<Item = &[Message]> {
    std::iter::from_fn(move || {
        let mut objects = HashSet::new();
        let again = |message: &Message| !objects.insert(message.object.clone());
        let end = messages.iter().take(IN_FLIGHT).position(again).unwrap_or(messages.len().min(IN_FLIGHT));
        let (wave, rest) = messages.split_at(end);
        messages = rest;
        (!wave.is_empty()).then_some(wave)
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

/// What an error means. A message that is too large is one that no repetition makes smaller.
fn judge(error: &PublishError, message: &Message, links: &Links) -> Outcome {
    let subject = &message.subject;
    let answered =
        std::error::Error::source(error).and_then(|error| error.downcast_ref::<async_nats::jetstream::Error>());
    let code = answered.map(async_nats::jetstream::Error::error_code);
    let too_large = code == Some(ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM);
    match error.kind() {
        PublishErrorKind::StreamNotFound => {
            retry(format!("no stream takes {subject}: make one that listens to it (or JetStream is not enabled)"))
        }
        PublishErrorKind::MaxPayloadExceeded => Outcome::Retry {
            after: None,
            content: true,
            error: format!("{subject}: the event has {} bytes, more than the server takes", message.payload.len()),
        },
        _ if too_large => Outcome::Retry {
            after: None,
            content: true,
            error: format!("{subject}: the event has {} bytes, more than the stream takes", message.payload.len()),
        },
        _ => {
            let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
            retry(format!("{subject}: {}{cause}{}", error.kind(), links.heard()))
        }
    }
}

#[cfg(test)]
pub(super) mod fake;
#[cfg(test)]
mod tests;
