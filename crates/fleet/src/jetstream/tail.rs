//! Reader of the log's stream: returns the entries in order, then waits for new ones.

use async_nats::jetstream::Context;
use async_nats::jetstream::consumer::{DeliverPolicy, pull};
use futures::StreamExt;

use super::NatsError;
use crate::entry::{Entry, Sequence};
use crate::partition::Subjects;

/// Reads entries of the log in order, and waits for new ones.
///
/// After a lost connection, the tail continues at the last entry that it has read. Entries may then be repeated, and
/// entries that the log has removed meanwhile are missing. The [`Reader`](crate::Reader) detects repetitions and gaps.
pub struct Tail {
    messages: pull::Ordered,
    subjects: Subjects,
}

impl std::fmt::Debug for Tail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tail").field("subjects", &self.subjects).finish_non_exhaustive()
    }
}

impl Tail {
    /// Opens a tail of the entries whose subjects match `filter`. `prefetch` is the maximum number of messages that the
    /// client requests ahead; `None` is its default.
    pub(super) async fn open(
        context: &Context,
        stream: &str,
        subjects: &Subjects,
        after: Sequence,
        (filter, prefetch): (String, Option<i64>),
    ) -> Result<Self, NatsError> {
        let action = || format!("read stream {stream}");
        let config = pull::OrderedConfig {
            filter_subject: filter,
            max_batch: prefetch.unwrap_or_default(),
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: after.saturating_add(1) },
            ..pull::OrderedConfig::default()
        };
        let consumer = context.create_consumer_on_stream(config, stream).await;
        let consumer = consumer.map_err(NatsError::request(action()))?;
        let messages = consumer.messages().await.map_err(NatsError::request(action()))?;
        Ok(Self { messages, subjects: subjects.clone() })
    }

    /// Returns the next entry; messages whose subject names no partition are skipped. `None` means that the consumer has
    /// ended: open a new tail.
    ///
    /// # Cancel safety
    /// No entry is lost if the future is dropped.
    pub async fn next(&mut self) -> Result<Option<Entry>, NatsError> {
        while let Some(message) = self.messages.next().await {
            let message = message.map_err(NatsError::request("read the log"))?;
            let Some(partition) = self.subjects.partition(&message.subject) else { continue };
            let sequence = message.info().map_err(NatsError::request("read the log"))?.stream_sequence;
            return Ok(Some(Entry { partition, sequence, payload: message.message.payload }));
        }
        Ok(None)
    }
}
