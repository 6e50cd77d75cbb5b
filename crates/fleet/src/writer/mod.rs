//! Writer of a collector: queues records per partition and appends them to the log.
//!
//! Synchronous: the caller moves requests and answers between the writer and a [`Log`], and passes the time.
//!
//! # Contract
//! - Records of a partition are stored once each, in the order of [`Writer::offer`].
//! - [`Writer::open`] claims a partition: the first entry of an epoch is [`Record::Owner`]. From then on, no entry of
//!   an earlier epoch can be stored: every append names the last entry that its writer knows, and the log compares it.
//!   This does not depend on clocks.
//! - A writer that is no longer the owner stores nothing, drops its queue and reports [`WriterEvent::Fenced`]. The new
//!   owner resumes from the last [`Record::Progress`], so its watch of the cluster repeats the dropped changes.
//! - An append whose answer was lost is repeated. If the first attempt was stored, the log refuses the second one,
//!   since the partition's last entry has changed. The writer then reads that entry and recognises its own.
//!
//! # One append in flight per partition
//! The sequence of an entry is known only once it is stored, and the next append must expect it. While an append is in
//! flight, further records form the next batch: a lone record is sent immediately, and a backlog in large batches.
//!
//! # Bounds
//! - Queued bytes over all partitions: [`WriterParams::queue_bytes`]. At this bound, [`Writer::offer`] refuses records
//!   and the caller must wait, for example while NATS is down.
//! - Requests in flight: [`WriterParams::window`].
//! - Events: at most one for each answer, and one for each [`Writer::close`].

mod partition_writer;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::mem;
use std::time::Duration;

use informer_hub_types::{exponential_backoff, rng};

use super::entry::{MAX_BODY, Sequence};
use super::log::{Answer, Log, Request, RequestId};
use super::partition::Partition;
use super::record::Record;
use partition_writer::{Outcome, PartitionWriter, Pending};

pub use partition_writer::FenceReason;

/// Parameters of a [`Writer`].
#[derive(Clone, Debug)]
pub struct WriterParams {
    /// Name of the collector in [`Record::Owner`].
    pub collector: String,
    /// Limit of queued and unacknowledged records over all partitions, in uncompressed bytes. Default 64 MiB.
    pub queue_bytes: usize,
    /// Maximum number of requests in flight over all partitions. Default 256.
    pub window: usize,
    /// Uncompressed size in bytes at which a batch is full. Default 128 KiB.
    pub batch_bytes: usize,
    /// Largest message of the log in bytes. A larger batch (always a single large object) is divided into several
    /// messages. Default 512 KiB.
    pub message_bytes: usize,
    /// Whether batches are compressed. Default true.
    pub compress: bool,
    /// Time after which a request without an answer is repeated. Default 5 s.
    pub answer_timeout: Duration,
    /// First delay before a failed request is repeated. Each further failure doubles it, with jitter.
    pub first_delay: Duration,
    /// Longest delay before a failed request is repeated.
    pub longest_delay: Duration,
}

impl Default for WriterParams {
    fn default() -> Self {
        Self {
            collector: String::new(),
            queue_bytes: 64 << 20,
            window: 256,
            batch_bytes: 128 << 10,
            message_bytes: 512 << 10,
            compress: true,
            answer_timeout: Duration::from_secs(5),
            first_delay: Duration::from_millis(50),
            longest_delay: Duration::from_secs(5),
        }
    }
}

/// Event of a [`Writer`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriterEvent {
    /// The partition is claimed. Before the first [`Writer::offer`], check that the bucket of owners still names this
    /// writer's epoch, and read the partition up to `sequence`.
    ///
    /// The check matters if the log has lost all entries of the partition, by retention or deletion. Then the log
    /// accepts this claim even if another collector has already claimed the partition under a newer epoch.
    Claimed {
        /// Claimed partition.
        partition: Partition,
        /// Sequence of the entry with [`Record::Owner`].
        sequence: Sequence,
    },
    /// The oldest queued records of a partition are stored.
    Stored {
        /// Partition of the records.
        partition: Partition,
        /// Number of records stored.
        records: usize,
        /// Sequence of the entry that contains the last of these records.
        sequence: Sequence,
    },
    /// This writer has lost the right to append to the partition. It has closed the partition and dropped the queued
    /// records.
    Fenced {
        /// Partition that this writer has closed.
        partition: Partition,
        /// Why this writer may no longer append.
        reason: FenceReason,
    },
    /// All records are stored, and the partition is closed, as [`Writer::close`] requested.
    Closed {
        /// Partition that this writer has closed.
        partition: Partition,
        /// Sequence of the partition's last entry.
        sequence: Sequence,
    },
}

/// Error of [`Writer::offer`]. The record was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OfferError {
    /// The queue is full: offer the record again after [`WriterEvent::Stored`].
    #[error("the writer's queue is full: offer the record again after others are stored")]
    Full,
    /// The partition is not open, or is closing.
    #[error("this writer has not opened the log of this resource")]
    NotOpen,
    /// The record exceeds [`MAX_BODY`].
    #[error(
        "a change has {0} bytes, but an entry of the fleet's log holds at most {MAX_BODY}: set `drop` of the resource \
         in the configuration, so that the hub keeps fewer fields"
    )]
    TooLarge(usize),
}

/// Appends the records of a collector to the fleet's log; see the [module documentation](self).
///
/// Times, such as `now` and [`Self::next_deadline`], count from a fixed moment that the caller chooses.
#[derive(Debug)]
pub struct Writer {
    params: WriterParams,
    partitions: HashMap<Partition, PartitionWriter>,
    /// Partitions of the requests in flight.
    requests: HashMap<RequestId, Partition>,
    /// Partitions that can send a request (`Pending::Ready`), first in, first out.
    ready: VecDeque<Partition>,
    /// Time at which each waiting partition continues: its backoff ends, or its request counts as unanswered.
    timers: BTreeSet<(Duration, Partition)>,
    queued_bytes: usize,
    last_id: RequestId,
    events: Vec<WriterEvent>,
}

impl Writer {
    /// Creates a writer without partitions.
    #[must_use]
    pub fn new(params: WriterParams) -> Self {
        Self {
            params,
            partitions: HashMap::new(),
            requests: HashMap::new(),
            ready: VecDeque::new(),
            timers: BTreeSet::new(),
            queued_bytes: 0,
            last_id: 0,
            events: Vec::new(),
        }
    }

    /// Begins to claim a partition under an epoch, a fencing number that must be unique to this claim and higher than
    /// all earlier ones. Returns `false` if the partition is already open.
    pub fn open(&mut self, partition: Partition, epoch: u64) -> bool {
        if self.partitions.contains_key(&partition) {
            return false;
        }
        self.partitions.insert(partition.clone(), PartitionWriter::new(epoch));
        self.ready.push_back(partition);
        true
    }

    /// Queues a record of an open partition.
    pub fn offer(&mut self, partition: &Partition, record: &Record) -> Result<(), OfferError> {
        let Some(writer) = self.partitions.get_mut(partition).filter(|writer| !writer.closing) else {
            return Err(OfferError::NotOpen);
        };
        let room = self.params.queue_bytes.saturating_sub(self.queued_bytes);
        // An empty queue accepts any record, even one larger than its limit.
        let room = if self.queued_bytes == 0 { MAX_BODY } else { room };
        self.queued_bytes += writer.push(record, self.params.batch_bytes, room)?;
        if writer.pending == Pending::Nothing {
            writer.pending = Pending::Ready;
            self.ready.push_back(partition.clone());
        }
        Ok(())
    }

    /// Closes a partition once its records are stored; see [`WriterEvent::Closed`].
    pub fn close(&mut self, partition: &Partition) {
        let Some(writer) = self.partitions.get_mut(partition) else { return };
        writer.closing = true;
        if writer.pending == Pending::Nothing {
            writer.pending = Pending::Ready;
            self.ready.push_back(partition.clone());
        }
    }

    /// Closes a partition immediately and drops its queue. An append in flight may still be stored.
    pub fn abandon(&mut self, partition: &Partition) {
        self.remove(partition);
    }

    /// Returns the bytes of queued and unacknowledged records.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// Returns why a partition's last request failed; `None` if it succeeded.
    #[must_use]
    pub fn problem(&self, partition: &Partition) -> Option<&str> {
        self.partitions.get(partition)?.problem.as_deref()
    }

    /// Returns when [`Self::poll`] must be called even if no answer arrives; `None` for never.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        if !self.ready.is_empty() && self.requests.len() < self.params.window {
            return Some(Duration::ZERO);
        }
        self.timers.first().map(|(at, _)| *at)
    }

    /// Returns the events since the last call.
    #[must_use]
    pub fn take_events(&mut self) -> Vec<WriterEvent> {
        mem::take(&mut self.events)
    }

    /// Passes answers from the log to the writer, and requests from the writer to the log.
    pub fn exchange(&mut self, log: &mut impl Log, now: Duration) {
        while let Some((id, answer)) = log.receive() {
            self.answer(id, answer, now);
        }
        for (id, request) in self.poll(now) {
            log.send(id, request);
        }
    }

    /// Returns the requests to send now.
    #[must_use]
    pub fn poll(&mut self, now: Duration) -> Vec<(RequestId, Request)> {
        while let Some((at, _)) = self.timers.first()
            && *at <= now
        {
            let Some((_, partition)) = self.timers.pop_first() else { break };
            self.expire(&partition, now);
        }
        let mut requests = Vec::new();
        while self.requests.len() < self.params.window
            && let Some(partition) = self.ready.pop_front()
        {
            let Some(writer) = self.partitions.get_mut(&partition) else { continue };
            let Some(request) = writer.request(&partition, &self.params) else {
                writer.pending = Pending::Nothing;
                if writer.closing {
                    let sequence = writer.position;
                    self.remove(&partition);
                    self.events.push(WriterEvent::Closed { partition, sequence });
                }
                continue;
            };
            self.last_id += 1;
            let deadline = now + self.params.answer_timeout;
            writer.pending = Pending::Answer { id: self.last_id, deadline };
            self.timers.insert((deadline, partition.clone()));
            self.requests.insert(self.last_id, partition);
            requests.push((self.last_id, request));
        }
        requests
    }

    /// Accepts an answer. Ignores answers to requests that have timed out: the repeated request finds the outcome.
    pub fn answer(&mut self, id: RequestId, answer: Answer, now: Duration) {
        let Some(partition) = self.requests.remove(&id) else { return };
        let Some(writer) = self.partitions.get_mut(&partition) else { return };
        if let Pending::Answer { deadline, .. } = writer.pending {
            self.timers.remove(&(deadline, partition.clone()));
        }
        let outcome = writer.answer(answer, &self.params);
        self.settle(partition, outcome, now);
    }

    fn settle(&mut self, partition: Partition, outcome: Outcome, now: Duration) {
        match outcome {
            Outcome::Continue => self.resume(partition),
            Outcome::Claimed(sequence) => {
                self.events.push(WriterEvent::Claimed { partition: partition.clone(), sequence });
                self.resume(partition);
            }
            Outcome::Stored { records, bytes, sequence } => {
                self.queued_bytes -= bytes;
                self.events.push(WriterEvent::Stored { partition: partition.clone(), records, sequence });
                self.resume(partition);
            }
            Outcome::Failed(problem) => self.back_off(partition, problem, now),
            Outcome::Fenced(reason) => {
                self.remove(&partition);
                self.events.push(WriterEvent::Fenced { partition, reason });
            }
        }
    }

    /// Puts a partition into the queue for its next request.
    fn resume(&mut self, partition: Partition) {
        if let Some(writer) = self.partitions.get_mut(&partition) {
            writer.pending = Pending::Ready;
            self.ready.push_back(partition);
        }
    }

    fn back_off(&mut self, partition: Partition, problem: String, now: Duration) {
        let Some(writer) = self.partitions.get_mut(&partition) else { return };
        let delay = exponential_backoff(self.params.first_delay, writer.failures, self.params.longest_delay);
        let until = now + delay.mul_f64(0.5 + 0.5 * rng::unit());
        writer.failures = writer.failures.saturating_add(1);
        writer.problem = Some(problem);
        writer.pending = Pending::Backoff { until };
        self.timers.insert((until, partition));
    }

    /// Handles the timer of a partition: its backoff has ended, or its request got no answer in time.
    fn expire(&mut self, partition: &Partition, now: Duration) {
        let Some(writer) = self.partitions.get_mut(partition) else { return };
        match writer.pending {
            Pending::Backoff { .. } => self.resume(partition.clone()),
            Pending::Answer { id, .. } => {
                self.requests.remove(&id);
                self.back_off(partition.clone(), "no answer in time".to_owned(), now);
            }
            Pending::Nothing | Pending::Ready => {}
        }
    }

    fn remove(&mut self, partition: &Partition) {
        let Some(writer) = self.partitions.remove(partition) else { return };
        self.queued_bytes -= writer.queued_bytes();
        match writer.pending {
            Pending::Answer { id, deadline } => {
                self.requests.remove(&id);
                self.timers.remove(&(deadline, partition.clone()));
            }
            Pending::Backoff { until } => {
                self.timers.remove(&(until, partition.clone()));
            }
            // Otherwise the partition would be queued twice if it is opened again before `poll`.
            Pending::Ready => self.ready.retain(|ready| ready != partition),
            Pending::Nothing => {}
        }
    }
}
