//! The log, ownership and checkpoints on NATS JetStream.
//!
//! - [`JetStreamLog`]: one stream per fleet, one subject per partition.
//! - [`Tail`]: reads that stream in order, from any sequence.
//! - [`Owners`]: bucket with the owner and epoch of each cluster.
//! - [`Leases`]: bucket with the records of leader elections.
//! - [`Documents`]: bucket with the document about each cluster.
//! - [`RosterBucket`]: bucket with the live collectors and deliverers, and the operator's settings.
//! - [`Checkpoints`]: object store with checkpoints, and a bucket that names the newest one of each partition.
//! - [`Buckets`]: creates deleted buckets and object stores again.
//!
//! The constructors take a connected client: the caller connects and authenticates it, and sets the timeout of
//! requests.

mod bucket_watch;
mod buckets;
mod checkpoints;
mod create;
mod documents;
mod leases;
mod log;
mod owners;
mod probe;
mod roster;
mod tail;

use std::time::Duration;

use async_nats::jetstream::context::{ContextBuilder, GetStreamErrorKind};
use async_nats::jetstream::kv::{CreateErrorKind, UpdateErrorKind};
use async_nats::jetstream::{Context, ErrorCode, kv};
use bytes::Bytes;
use informer_hub_types::Shard;

pub use bucket_watch::ClusterChanges;
pub use buckets::Buckets;
pub use checkpoints::Checkpoints;
pub use documents::Documents;
pub use leases::Leases;
pub use log::{FixedLimits, JetStreamLog, LogParams};
pub use owners::Owners;
pub use probe::probe;
pub use roster::RosterBucket;
pub use tail::Tail;

use self::create::open_bucket;
use crate::partition::Subjects;

/// Error of a request to NATS. Every request may be repeated. Errors of the configuration persist until the operator
/// fixes it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NatsError {
    /// A request failed.
    #[error("NATS: cannot {action}")]
    Request {
        /// Action that failed, such as `read the log`.
        action: String,
        /// Cause.
        #[source]
        source: async_nats::Error,
    },
    /// The server, or the account, has no JetStream.
    #[error("NATS: JetStream is not enabled")]
    NoJetStream {
        /// Cause.
        #[source]
        source: async_nats::Error,
    },
    /// The stream with this name was not created by this program. Its sequences may repeat those of a deleted stream,
    /// so an append that expects an outdated sequence might succeed.
    #[error("stream {0:?} was not created by informer-hub: delete or rename it, or choose another fleet name")]
    ForeignStream(String),
    /// A stored value cannot be decoded: another program, or a newer version of this one, wrote it.
    #[error("NATS: cannot decode {what}")]
    Decode {
        /// Description of the value that cannot be decoded, such as `owner of prod-eu`.
        what: String,
        /// Cause.
        #[source]
        source: crate::DecodeError,
    },
    /// A stored object exceeds the caller's limit.
    #[error("NATS: checkpoint {object:?} has {size} bytes, more than the limit of {limit} bytes")]
    TooLarge {
        /// Name of the object.
        object: String,
        /// Size of the object in bytes.
        size: usize,
        /// Limit of the caller in bytes.
        limit: usize,
    },
}

impl NatsError {
    fn request<E: Into<async_nats::Error>>(action: impl Into<String>) -> impl FnOnce(E) -> Self {
        let action = action.into();
        move |source| Self::Request { action, source: source.into() }
    }
}

/// Returns a JetStream context with this request timeout and this maximum number of unacknowledged appends.
fn context(client: async_nats::Client, timeout: Duration, in_flight: usize) -> Context {
    ContextBuilder::new()
        .timeout(timeout)
        .ack_timeout(timeout)
        .max_ack_inflight(in_flight)
        .backpressure_on_inflight(true)
        .build(client)
}

fn shard_key(subjects: &Subjects, shard: &Shard) -> String {
    key_of(&subjects.of_shard(shard))
}

/// Writes an entry of a bucket by compare-and-set. Returns the new revision, or `None` if the comparison fails.
///
/// `seen` is the revision of the entry that the caller has read. `None` means that there must be no entry yet.
async fn write_entry(
    store: &kv::Store,
    key: String,
    value: Bytes,
    seen: Option<u64>,
    action: String,
) -> Result<Option<u64>, NatsError> {
    match seen {
        None => match store.create(key, value).await {
            Err(error) if error.kind() == CreateErrorKind::AlreadyExists => Ok(None),
            created => created.map(Some).map_err(NatsError::request(action)),
        },
        Some(revision) => match store.update(key, value, revision).await {
            Err(error) if error.kind() == UpdateErrorKind::WrongLastRevision => Ok(None),
            updated => updated.map(Some).map_err(NatsError::request(action)),
        },
    }
}

/// Opens a key-value bucket; `None` if it does not exist.
async fn find_bucket(context: &Context, bucket: &str) -> Result<Option<kv::Store>, NatsError> {
    let action = || format!("open bucket {bucket}");
    match context.get_stream(create::bucket_stream(bucket)).await {
        Ok(_) => {}
        Err(error) if log::is_missing(&error) => return Ok(None),
        Err(error) => {
            return Err(match error.kind() {
                GetStreamErrorKind::JetStream(cause) if cause.error_code() == ErrorCode::JETSTREAM_NOT_ENABLED => {
                    NatsError::NoJetStream { source: error.into() }
                }
                _ => NatsError::request(action())(error),
            });
        }
    }
    context.get_key_value(bucket).await.map(Some).map_err(NatsError::request(action()))
}

/// Converts a NATS subject to a bucket key or the name of a stored object, in which `%` is not allowed.
fn key_of(subject: &str) -> String {
    subject.replace('%', "=")
}

/// Converts a key of [`key_of`] back to its subject.
fn subject_of(key: &str) -> String {
    key.replace('=', "%")
}
