//! The fleet's log, stored in a stream of NATS JetStream.
//!
//! An append names the sequence of its subject's last message. The server stores the append only if that message is
//! still the last one. So the server refuses a repeated append for as long as the stream exists.
//!
//! Message ids, JetStream's own protection against repetition, are not used. The server forgets an id after the
//! stream's duplicate window. Until then, each id takes memory.

use std::collections::VecDeque;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE;
use async_nats::jetstream::Context;
use async_nats::jetstream::context::{GetStreamErrorKind, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{Config, DiscardPolicy, Info, LastRawMessageErrorKind, StorageType, Stream};
use informer_hub_types::{clock, with_causes};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::{NatsError, Tail, context};
use crate::entry::{Entry, Sequence};
use crate::kept::Retained;
use crate::log::{Answer, Log, Request, RequestId};
use crate::page::EntryPage;
use crate::partition::{Partition, Subjects};

/// Lowest first sequence of a stream that this program has created: a time in the year 2001, in microseconds since
/// 1970. A stream with a lower first sequence is foreign.
///
/// A new stream begins at the current time in microseconds. So its sequences exceed those of a deleted stream with the
/// same name, unless that stream stored more than a million messages per second on average.
const LEAST_FIRST_SEQUENCE: u64 = 1_000_000_000_000_000;
/// Time for which the server remembers message ids. This program sends no ids, so this is the shortest time that
/// servers accept.
const DUPLICATE_WINDOW: Duration = Duration::from_millis(100);
/// Maximum number of appends that wait for the server's answer. A writer's own limit is lower.
const IN_FLIGHT: usize = 4096;
/// Read-ahead while a page is read: one entry for every 8 KiB of the page size (second number), but at most 128 entries
/// (first number).
const PREFETCH: (usize, usize) = (128, 8 << 10);

/// Which limits of [`LogParams`] are applied to an existing stream. A new stream gets all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FixedLimits {
    /// Whether [`LogParams::replicas`] is applied to an existing stream.
    pub replicas: bool,
    /// Whether [`LogParams::max_age`] is applied to an existing stream.
    pub max_age: bool,
    /// Whether [`LogParams::max_bytes`] is applied to an existing stream.
    pub max_bytes: bool,
}

/// Parameters of a [`JetStreamLog`].
#[derive(Clone, Debug)]
pub struct LogParams {
    /// NATS subjects of the fleet.
    pub subjects: Subjects,
    /// Number of copies of each message: 1, 3 or 5.
    pub replicas: usize,
    /// Age at which entries are removed.
    pub max_age: Duration,
    /// Size of the stream in bytes at which the oldest entries are removed.
    pub max_bytes: u64,
    /// Which of these limits are applied to an existing stream: `replicas`, `max_age`, `max_bytes`.
    pub fixed: FixedLimits,
    /// Time after which a request fails.
    pub timeout: Duration,
}

/// The fleet's log in a stream of JetStream, with one subject per partition.
#[derive(Debug)]
pub struct JetStreamLog {
    params: LogParams,
    context: Context,
    stream: Stream<()>,
    runtime: Handle,
    sender: mpsc::Sender<(RequestId, Answer)>,
    receiver: mpsc::Receiver<(RequestId, Answer)>,
    /// Answers that [`JetStreamLog::answered`] has received and [`Log::receive`] has not returned yet.
    received: VecDeque<(RequestId, Answer)>,
}

impl JetStreamLog {
    /// Opens the fleet's stream. Creates it if it is missing, else changes the limits that [`LogParams::fixed`]
    /// selects.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn open(client: async_nats::Client, mut params: LogParams) -> Result<Self, NatsError> {
        let context = context(client, params.timeout, IN_FLIGHT);
        let name = stream_name(&params.subjects);
        let wanted = config(&params, &name);
        let action = || format!("open stream {name}");
        let (_, found) = find_or_create(&context, &wanted).await?;
        check_origin(&found)?;
        let changed = with_fixed(&found, &wanted, params.fixed);
        if limits(&found) != limits(&changed) {
            context.update_stream(changed.clone()).await.map_err(NatsError::request(action()))?;
            let text = |(copies, age, bytes)| format!("{copies} copies, {age:?}, {bytes} bytes");
            let (before, after) = (text(limits(&found)), text(limits(&changed)));
            tracing::warn!(
                stream = name,
                before,
                after,
                "changed the copies, age or bytes of the fleet's log to the configured values"
            );
        }
        (params.replicas, params.max_age) = (changed.num_replicas, changed.max_age);
        // The server reports a negative number if there is no limit.
        params.max_bytes = u64::try_from(changed.max_bytes).unwrap_or(u64::MAX);
        let stream = context.get_stream_no_info(&name).await.map_err(NatsError::request(action()))?;
        let (sender, receiver) = mpsc::channel(IN_FLIGHT);
        let runtime = Handle::current();
        Ok(Self { params, context, stream, runtime, sender, receiver, received: VecDeque::new() })
    }

    /// Returns the number of copies of each message.
    #[must_use]
    pub fn replicas(&self) -> usize {
        self.params.replicas
    }

    /// Creates the stream again if an operator has deleted it. Returns `false` if it exists, or another process has
    /// created it at the same time.
    pub async fn restore(&self) -> Result<bool, NatsError> {
        let wanted = config(&self.params, &stream_name(&self.params.subjects));
        find_or_create(&self.context, &wanted).await.map(|(is_new, _)| is_new)
    }

    /// Waits until [`Log::receive`] has an answer.
    ///
    /// # Cancel safety
    /// No answer is lost if the future is dropped.
    pub async fn answered(&mut self) {
        if self.received.is_empty()
            && let Some(answer) = self.receiver.recv().await
        {
            self.received.push_back(answer);
        }
    }

    /// Returns a [`Tail`], which reads the entries of all partitions behind sequence `after`. If `after` is `None`, the
    /// tail starts behind the log's last entry. Also returns the sequence behind which the tail starts.
    pub async fn follow(&self, after: Option<Sequence>) -> Result<(Sequence, Tail), NatsError> {
        let after = match after {
            Some(after) => after,
            None => self.retained().await?.last,
        };
        Ok((after, self.tail(after, self.params.subjects.all()).await?))
    }

    /// Returns the first and last sequence of the log, and for how long it retains entries.
    pub async fn retained(&self) -> Result<Retained, NatsError> {
        let Info { state, config, .. } =
            self.stream.get_info().await.map_err(NatsError::request("read the state of the log"))?;
        let first = (state.first_sequence, state.first_timestamp.unix_timestamp());
        let last = (state.last_sequence, state.last_timestamp.unix_timestamp());
        // The server reports a negative number if there is no limit.
        let max_bytes = u64::try_from(config.max_bytes).unwrap_or(u64::MAX);
        Ok(Retained::new(first, last, (state.bytes, max_bytes), config.max_age))
    }

    /// Returns a [`Tail`], a reader of the entries behind sequence `after` whose subjects match `filter`. [`Subjects`]
    /// creates filters.
    pub async fn tail(&self, after: Sequence, filter: String) -> Result<Tail, NatsError> {
        self.open_tail(after, filter, None).await
    }

    async fn open_tail(&self, after: Sequence, filter: String, prefetch: Option<i64>) -> Result<Tail, NatsError> {
        let subjects = &self.params.subjects;
        Tail::open(&self.context, &stream_name(subjects), subjects, after, (filter, prefetch)).await
    }

    /// Returns a page of the log: a partition's retained entries behind sequence `after`, in order. `None` if the log
    /// retains no entry of the partition.
    ///
    /// The page ends once its entries have at least `page_bytes` bytes, or with the partition's last entry at the time
    /// of the call.
    pub async fn entries(
        &self,
        partition: &Partition,
        after: Sequence,
        page_bytes: usize,
    ) -> Result<Option<EntryPage>, NatsError> {
        let Some(last) = self.last(partition).await? else { return Ok(None) };
        let mut page = EntryPage::new(last.sequence);
        if last.sequence <= after {
            return Ok(Some(page));
        }
        let (filter, prefetch) = (self.params.subjects.of(partition), prefetch(page_bytes));
        let mut tail = self.open_tail(after, filter, Some(prefetch)).await?;
        let action = || format!("read the entries of {partition}");
        let mut bytes = 0;
        loop {
            // Limit the wait: retention may have removed the last entry meanwhile.
            let next = tokio::time::timeout(self.params.timeout, tail.next())
                .await
                .map_err(NatsError::request(action()))??;
            let Some(entry) = next else { return Err(NatsError::request(action())("the consumer has ended")) };
            bytes += entry.payload.len();
            let is_last = entry.sequence >= last.sequence;
            page.entries.push(entry);
            if is_last || bytes >= page_bytes {
                return Ok(Some(page));
            }
        }
    }

    /// Returns a future that executes one request and returns its answer directly, not through [`Log::receive`].
    pub fn execute(&self, request: Request) -> impl Future<Output = Answer> + Send + 'static {
        execute(self.context.clone(), self.stream.clone(), self.params.subjects.clone(), request)
    }

    /// Reads a partition's last entry from the stream's leader; `None` if the log retains none.
    pub async fn last(&self, partition: &Partition) -> Result<Option<Entry>, NatsError> {
        last(&self.stream, &self.params.subjects, partition.clone()).await
    }
}

impl Log for JetStreamLog {
    fn send(&mut self, id: RequestId, request: Request) {
        let (execution, sender) = (self.execute(request), self.sender.clone());
        self.runtime.spawn(async move {
            let answer = execution.await;
            // The log may have been dropped.
            let _ = sender.send((id, answer)).await;
        });
    }

    fn receive(&mut self) -> Option<(RequestId, Answer)> {
        self.received.pop_front().or_else(|| self.receiver.try_recv().ok())
    }
}

async fn execute(context: Context, stream: Stream<()>, subjects: Subjects, request: Request) -> Answer {
    match request {
        Request::Append { partition, expected, payload } => {
            let mut headers = HeaderMap::new();
            headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, expected.to_string().as_str());
            let message = PublishMessage::build().payload(payload).headers(headers);
            append(&context, subjects.of(&partition), message).await
        }
        Request::ReadLast { partition } => match last(&stream, &subjects, partition).await {
            Ok(last) => Answer::Last(last),
            Err(error) => Answer::Failed(with_causes(&error)),
        },
    }
}

async fn append(context: &Context, subject: String, message: PublishMessage) -> Answer {
    let published = match context.send_publish(subject, message).await {
        Ok(acknowledgement) => acknowledgement.await,
        Err(error) => Err(error),
    };
    match published {
        Ok(stored) => Answer::Stored(stored.sequence),
        Err(error) if error.kind() == PublishErrorKind::WrongLastSequence => Answer::Refused,
        Err(error) => Answer::Failed(with_causes(&error)),
    }
}

async fn last(stream: &Stream<()>, subjects: &Subjects, partition: Partition) -> Result<Option<Entry>, NatsError> {
    match stream.get_last_raw_message_by_subject(&subjects.of(&partition)).await {
        Ok(message) => Ok(Some(Entry { partition, sequence: message.sequence, payload: message.payload })),
        Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
        Err(error) => Err(NatsError::request(format!("read the last entry of {partition}"))(error)),
    }
}

/// Returns how many entries are requested ahead while a page of `page_bytes` is read.
fn prefetch(page_bytes: usize) -> i64 {
    let (most, each) = PREFETCH;
    i64::try_from((page_bytes / each).clamp(1, most)).unwrap_or(1)
}

/// Opens the stream named in `wanted`, or creates it. Returns whether this call created the stream, and the stream's
/// configuration.
pub(super) async fn find_or_create(context: &Context, wanted: &Config) -> Result<(bool, Config), NatsError> {
    let name = &wanted.name;
    let action = || format!("open stream {name}");
    match context.get_stream(name).await {
        Ok(stream) => Ok((false, stream.cached_info().config.clone())),
        Err(error) if is_missing(&error) => match context.create_stream(wanted).await {
            Ok(stream) => Ok((true, stream.cached_info().config.clone())),
            // Another process may have created it at this moment, with another first sequence.
            Err(error) => match context.get_stream(name).await {
                Ok(stream) => Ok((false, stream.cached_info().config.clone())),
                Err(_) => Err(NatsError::request(action())(error)),
            },
        },
        Err(error) => Err(NatsError::request(action())(error)),
    }
}

/// Fails with [`NatsError::ForeignStream`] if this program did not create the stream. The configuration of such a
/// stream has no first sequence, or one below [`LEAST_FIRST_SEQUENCE`].
pub(super) fn check_origin(found: &Config) -> Result<(), NatsError> {
    let is_own = found.first_sequence.is_some_and(|first| first >= LEAST_FIRST_SEQUENCE);
    if is_own { Ok(()) } else { Err(NatsError::ForeignStream(found.name.clone())) }
}

pub(super) fn stream_name(subjects: &Subjects) -> String {
    format!("{}-log", subjects.fleet())
}

/// Returns the limits of a stream: copies, age and bytes.
fn limits(config: &Config) -> (usize, Duration, i64) {
    (config.num_replicas, config.max_age, config.max_bytes)
}

/// Returns the configuration `found`, with the limits that `fixed` selects replaced by those of `wanted`.
fn with_fixed(found: &Config, wanted: &Config, fixed: FixedLimits) -> Config {
    let of = |fixed: bool| if fixed { wanted } else { found };
    Config {
        num_replicas: of(fixed.replicas).num_replicas,
        max_age: of(fixed.max_age).max_age,
        max_bytes: of(fixed.max_bytes).max_bytes,
        ..found.clone()
    }
}

fn config(params: &LogParams, name: &str) -> Config {
    Config {
        name: name.to_owned(),
        description: Some("Changes of Kubernetes objects, written by informer-hub".to_owned()),
        subjects: vec![params.subjects.all()],
        storage: StorageType::File,
        num_replicas: params.replicas,
        max_age: params.max_age,
        max_bytes: i64::try_from(params.max_bytes).unwrap_or(i64::MAX),
        discard: DiscardPolicy::Old,
        duplicate_window: DUPLICATE_WINDOW,
        first_sequence: Some(u64::try_from(clock::wall().as_microsecond()).unwrap_or(0)),
        ..Config::default()
    }
}

pub(super) fn is_missing(error: &async_nats::jetstream::context::GetStreamError) -> bool {
    let missing = async_nats::jetstream::ErrorCode::STREAM_NOT_FOUND;
    matches!(error.kind(), GetStreamErrorKind::JetStream(cause) if cause.error_code() == missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fixed_limits_of_an_existing_log_change() {
        let of = |num_replicas, seconds, max_bytes| Config {
            name: "prod-log".to_owned(),
            num_replicas,
            max_age: Duration::from_secs(seconds),
            max_bytes,
            ..Config::default()
        };
        let (found, wanted) = (Config { max_messages: 7, ..of(3, 60, 100) }, of(1, 3600, 200));
        let with = |fixed| {
            let changed = with_fixed(&found, &wanted, fixed);
            assert_eq!(changed.max_messages, 7);
            limits(&changed)
        };
        assert_eq!(with(FixedLimits::default()), (3, Duration::from_secs(60), 100));
        assert_eq!(with(FixedLimits { max_age: true, ..FixedLimits::default() }), (3, Duration::from_secs(3600), 100));
        let all = FixedLimits { replicas: true, max_age: true, max_bytes: true };
        assert_eq!(with(all), limits(&wanted));
    }
}
