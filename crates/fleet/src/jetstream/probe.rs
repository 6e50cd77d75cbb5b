//! Read-only check of JetStream before a process joins a fleet.

use std::time::Duration;

use async_nats::jetstream::context::AccountErrorKind;

use super::log::{check_origin, is_missing, stream_name};
use super::{NatsError, context};
use crate::partition::Subjects;

/// Maximum number of requests of a probe that wait for the server.
const IN_FLIGHT: usize = 1;

/// Verifies that the account of a client has JetStream, and that the stream of the fleet is usable if it exists.
/// Returns whether the stream exists.
///
/// # Errors
/// [`NatsError::NoJetStream`], [`NatsError::ForeignStream`], or a failed request.
pub async fn probe(client: async_nats::Client, subjects: &Subjects, timeout: Duration) -> Result<bool, NatsError> {
    let context = context(client, timeout, IN_FLIGHT);
    context.query_account().await.map_err(|error| match error.kind() {
        AccountErrorKind::JetStreamUnavailable | AccountErrorKind::JetStream(_) => {
            NatsError::NoJetStream { source: error.into() }
        }
        _ => NatsError::request("read the limits of JetStream")(error),
    })?;
    let name = stream_name(subjects);
    match context.get_stream(&name).await {
        Ok(stream) => check_origin(&stream.cached_info().config).map(|()| true),
        Err(error) if is_missing(&error) => Ok(false),
        Err(error) => Err(NatsError::request(format!("read stream {name}"))(error)),
    }
}
