//! Writer's state of one partition of the log: the protocol of claiming, appending and verifying.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use crate::entry::{Entry, Header, MAX_BODY, MAX_HEADER, Sequence, pack};
use crate::log::{Answer, Request, RequestId};
use crate::partition::Partition;
use crate::record::Record;
use crate::wire::DecodeError;

use super::{OfferError, WriterParams};

/// Reason why a writer may no longer append to a partition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FenceReason {
    /// Another collector has claimed the partition: its last entry has this epoch, which is not older than this
    /// writer's.
    #[error("another collector watches the resource now")]
    Epoch(u64),
    /// The partition's last entry is not the one that this writer has appended, and is not by a newer owner. The stream
    /// was deleted or restored from a backup, or retention removed the entry. If this collector is still the owner, it
    /// may claim the partition again.
    #[error("the log was deleted or restored, or has removed this collector's last entry")]
    LogChanged,
    /// The partition's last entry cannot be read.
    #[error("cannot read the resource's last entry in the log: {0}")]
    Unreadable(DecodeError),
}

/// State of a partition in the writer's schedule: idle, ready, or waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pending {
    /// There is no request to send.
    Nothing,
    /// A request can be sent: the partition waits in the writer's queue of ready partitions.
    Ready,
    /// A request is in flight.
    Answer { id: RequestId, deadline: Duration },
    /// The next request waits until this time after a failure.
    Backoff { until: Duration },
}

/// Effect of the log's answer on a partition.
pub(super) enum Outcome {
    /// The next request can be sent.
    Continue,
    Claimed(Sequence),
    Stored {
        records: usize,
        bytes: usize,
        sequence: Sequence,
    },
    /// The request must be repeated after a delay.
    Failed(String),
    Fenced(FenceReason),
}

/// Next request of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Read the last entry, in order to claim the partition after it.
    Claim,
    /// Append the outgoing entry. If there is none, the next batch of the queue becomes the outgoing entry.
    Append,
    /// Read the last entry, to learn why an append was refused.
    Verify,
}

/// Queued records in encoded form, which are appended to the log together.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    records: usize,
}

/// The entry that is being appended or will be appended next, and the parts of its batch that follow it.
struct Outgoing {
    payload: Bytes,
    /// Parts of a divided batch that follow the outgoing entry.
    parts: VecDeque<Bytes>,
    /// Number of records in the batch.
    records: usize,
    bytes: usize,
}

pub(super) struct PartitionWriter {
    pub(super) closing: bool,
    pub(super) pending: Pending,
    /// Sequence of the partition's last entry, as far as this writer knows.
    pub(super) position: Sequence,
    pub(super) failures: u32,
    pub(super) problem: Option<String>,
    epoch: u64,
    claimed: bool,
    /// Number of the outgoing entry, counted from 0 at this writer's claim. If no entry is outgoing, number of the next
    /// entry.
    number: u64,
    step: Step,
    outgoing: Option<Outgoing>,
    queue: VecDeque<Batch>,
}

impl fmt::Debug for PartitionWriter {
    /// Shows no record, since an object may be a Secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("PartitionWriter");
        shown.field("epoch", &self.epoch).field("position", &self.position).field("step", &self.step);
        shown.field("pending", &self.pending).field("queued_bytes", &self.queued_bytes()).finish_non_exhaustive()
    }
}

impl PartitionWriter {
    pub(super) fn new(epoch: u64) -> Self {
        Self {
            closing: false,
            pending: Pending::Ready,
            position: 0,
            failures: 0,
            problem: None,
            epoch,
            claimed: false,
            number: 0,
            step: Step::Claim,
            outgoing: None,
            queue: VecDeque::new(),
        }
    }

    /// Queues a record and returns its encoded size. `room` is the free space of the writer's queue.
    pub(super) fn push(&mut self, record: &Record, batch_bytes: usize, room: usize) -> Result<usize, OfferError> {
        if self.queue.back().is_none_or(|batch| batch.bytes.len() >= batch_bytes) {
            self.queue.push_back(Batch::default());
        }
        let Some(batch) = self.queue.back_mut() else { return Err(OfferError::NotOpen) };
        let before = batch.bytes.len();
        record.encode(&mut batch.bytes);
        let size = batch.bytes.len() - before;
        if size <= room && size <= MAX_BODY {
            if before + size > batch_bytes.max(size) {
                // The record would exceed this batch, so it becomes the first of the next batch.
                let bytes = batch.bytes.split_off(before);
                self.queue.push_back(Batch { bytes, records: 1 });
            } else {
                batch.records += 1;
            }
            return Ok(size);
        }
        batch.bytes.truncate(before);
        if batch.records == 0 {
            self.queue.pop_back();
        }
        Err(if size > MAX_BODY { OfferError::TooLarge(size) } else { OfferError::Full })
    }

    pub(super) fn queued_bytes(&self) -> usize {
        let outgoing = self.outgoing.as_ref().map_or(0, |outgoing| outgoing.bytes);
        outgoing + self.queue.iter().map(|batch| batch.bytes.len()).sum::<usize>()
    }

    /// Returns the next request; `None` if there is nothing to do.
    pub(super) fn request(&mut self, partition: &Partition, params: &WriterParams) -> Option<Request> {
        let partition = partition.clone();
        if self.step != Step::Append {
            return Some(Request::ReadLast { partition });
        }
        if self.outgoing.is_none() {
            self.outgoing = Some(self.next_batch(params)?);
        }
        let payload = self.outgoing.as_ref()?.payload.clone();
        Some(Request::Append { partition, expected: self.position, payload })
    }

    pub(super) fn answer(&mut self, answer: Answer, params: &WriterParams) -> Outcome {
        let outcome = match (self.step, answer) {
            (Step::Append, Answer::Stored(sequence)) => self.stored(sequence),
            (Step::Append, Answer::Refused) => {
                self.step = Step::Verify;
                return Outcome::Continue;
            }
            (Step::Claim, Answer::Last(last)) => self.claim(last.as_ref(), params),
            (Step::Verify, Answer::Last(last)) => self.verify(last.as_ref(), params),
            (_, Answer::Failed(problem)) => Outcome::Failed(problem),
            (step, _) => Outcome::Failed(format!("the answer does not match the request {step:?}")),
        };
        if !matches!(outcome, Outcome::Failed(_)) {
            (self.failures, self.problem) = (0, None);
        }
        outcome
    }

    /// Prepares an append of the entry that claims the partition, behind `last`. Returns [`Outcome::Fenced`] if the
    /// epoch of `last` is this writer's or newer, or `last` cannot be read.
    fn claim(&mut self, last: Option<&Entry>, params: &WriterParams) -> Outcome {
        let position = match last.map(|last| (last.sequence, Header::decode(&last.payload))) {
            None => 0,
            Some((_, Err(error))) => return Outcome::Fenced(FenceReason::Unreadable(error)),
            Some((_, Ok((header, _)))) if header.epoch >= self.epoch => {
                return Outcome::Fenced(FenceReason::Epoch(header.epoch));
            }
            Some((sequence, Ok(_))) => sequence,
        };
        self.position = position;
        let mut owner = Vec::new();
        Record::Owner { collector: params.collector.clone() }.encode(&mut owner);
        let header = Header { epoch: self.epoch, number: 0, previous: position, continues: false };
        let payload = header.encode(&pack(&owner, false));
        self.outgoing = Some(Outgoing { payload, parts: VecDeque::new(), records: 0, bytes: 0 });
        self.step = Step::Append;
        Outcome::Continue
    }

    /// Finds out from the partition's last entry why the log refused the outgoing entry. Returns the outcome: the entry
    /// was stored by an earlier attempt, must be sent again, or may no longer be appended by this writer.
    fn verify(&mut self, last: Option<&Entry>, params: &WriterParams) -> Outcome {
        let Some(last) = last else {
            return if self.claimed {
                Outcome::Fenced(FenceReason::LogChanged)
            } else {
                self.claim_after(None, params)
            };
        };
        let header = match Header::decode(&last.payload) {
            Ok((header, _)) => header,
            Err(error) => return Outcome::Fenced(FenceReason::Unreadable(error)),
        };
        if header.epoch == self.epoch && header.number == self.number {
            // An earlier attempt, whose answer was lost, was stored.
            self.step = Step::Append;
            return self.stored(last.sequence);
        }
        if header.epoch > self.epoch {
            return Outcome::Fenced(FenceReason::Epoch(header.epoch));
        }
        if !self.claimed {
            // An earlier owner has appended since the last entry was read, unless an outdated replica answered.
            return self.claim_after(Some(last), params);
        }
        if header.epoch == self.epoch && last.sequence == self.position {
            // The log is busy with an earlier attempt, or an outdated replica answered.
            self.step = Step::Append;
            return Outcome::Failed(
                "the log refused the entry, though the one before it is the expected one".to_owned(),
            );
        }
        Outcome::Fenced(FenceReason::LogChanged)
    }

    fn claim_after(&mut self, last: Option<&Entry>, params: &WriterParams) -> Outcome {
        let before = self.position;
        match self.claim(last, params) {
            Outcome::Continue if self.position == before => {
                Outcome::Failed("the log refused the entry, though the one before it is the expected one".to_owned())
            }
            outcome => outcome,
        }
    }

    /// Continues with the next part or batch after the outgoing entry was stored under `sequence`.
    fn stored(&mut self, sequence: Sequence) -> Outcome {
        self.position = sequence;
        self.number += 1;
        let Some(mut outgoing) = self.outgoing.take() else { return Outcome::Continue };
        if !self.claimed {
            self.claimed = true;
            return Outcome::Claimed(sequence);
        }
        if let Some(part) = outgoing.parts.pop_front() {
            outgoing.payload = self.part(&part, !outgoing.parts.is_empty());
            self.outgoing = Some(outgoing);
            return Outcome::Continue;
        }
        Outcome::Stored { records: outgoing.records, bytes: outgoing.bytes, sequence }
    }

    fn next_batch(&mut self, params: &WriterParams) -> Option<Outgoing> {
        let batch = self.queue.pop_front()?;
        let body = Bytes::from(pack(&batch.bytes, params.compress));
        let limit = params.message_bytes.saturating_sub(MAX_HEADER).max(1);
        let mut parts: VecDeque<_> =
            (0..body.len()).step_by(limit).map(|at| body.slice(at..body.len().min(at + limit))).collect();
        let first = parts.pop_front()?;
        let payload = self.part(&first, !parts.is_empty());
        Some(Outgoing { payload, parts, records: batch.records, bytes: batch.bytes.len() })
    }

    fn part(&self, body: &[u8], continues: bool) -> Bytes {
        Header { epoch: self.epoch, number: self.number, previous: self.position, continues }.encode(body)
    }
}
