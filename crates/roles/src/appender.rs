//! Task that owns the [`Writer`] of a process: appends records, and answers when they are stored.
//!
//! # Bounds
//! Each partition has one caller, which waits for an answer before it appends again. So at most one append per
//! partition waits outside the writer's queue. The writer bounds its queue and the number of requests that are in
//! flight.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use informer_hub_fleet::writer::{FenceReason, OfferError};
use informer_hub_fleet::{Answer, Partition, Record, RequestId, Sequence, Writer, WriterEvent, WriterParams};
use informer_hub_types::Threads;
use informer_hub_types::clock::{self, Instant};
use tokio::sync::{mpsc, oneshot};

use super::backend::Backend;

/// Maximum number of queued commands for the task that appends.
const COMMANDS: usize = 64;

/// Reason why records were not stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AppendError {
    /// The log refuses the records: another collector owns the partition, the log was deleted or lost entries, or the
    /// partition's last entry is unreadable.
    #[error("the log refuses entries of this collector: {0}")]
    Fenced(FenceReason),
    /// This collector has not opened the partition under the epoch (fencing number) that the caller passed, or no
    /// longer has it open.
    #[error("this collector does not write the log of this resource")]
    NotOpen,
    /// A record is larger than an entry of the log can be.
    #[error("{0}")]
    Refused(OfferError),
    /// The task that appends records has ended.
    #[error("the hub is shutting down")]
    Ended,
}

type Reply = oneshot::Sender<Result<Sequence, AppendError>>;

enum Command {
    Open { partition: Partition, epoch: u64, reply: Reply },
    Append { partition: Partition, epoch: u64, records: Vec<Record>, reply: Reply },
    Close { partition: Partition, epoch: u64, reply: Reply },
    Abandon { partition: Partition, epoch: u64 },
}

/// Handle to the task that appends to the log. The task ends when its last handle is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Appender {
    commands: mpsc::Sender<Command>,
    queued: Arc<AtomicU64>,
}

/// Reserved place in the queue of the task that appends, so that [`Permit::append`] need not wait.
pub(crate) struct Permit<'a> {
    place: mpsc::Permit<'a, Command>,
}

impl Appender {
    pub(crate) fn start(backend: Arc<dyn Backend>, params: WriterParams, io: &Threads) -> Self {
        let (commands, receiver) = mpsc::channel(COMMANDS);
        let queued = Arc::<AtomicU64>::default();
        let task = Task {
            writer: Writer::new(params),
            backend,
            in_flight: FuturesUnordered::new(),
            open: BTreeMap::new(),
            has_freed: false,
            queued: Arc::clone(&queued),
            begun: clock::now(),
        };
        io.spawn(task.run(receiver));
        Self { commands, queued }
    }

    /// Returns the number of bytes of records that are not stored in the log yet.
    pub(crate) fn queued_bytes(&self) -> u64 {
        self.queued.load(Relaxed)
    }

    /// Claims a partition for this collector under `epoch`, a fencing number. Returns the sequence of the entry that
    /// records the claim.
    pub(crate) async fn open(&self, partition: Partition, epoch: u64) -> Result<Sequence, AppendError> {
        self.ask(|reply| Command::Open { partition, epoch, reply }).await
    }

    /// Reserves a place in the queue of the task that appends; waits until one is free.
    pub(crate) async fn reserve(&self) -> Result<Permit<'_>, AppendError> {
        let place = self.commands.reserve().await.map_err(|_| AppendError::Ended)?;
        Ok(Permit { place })
    }

    /// Closes a partition once its records are stored. Returns the sequence of its last entry.
    pub(crate) async fn close(&self, partition: Partition, epoch: u64) -> Result<Sequence, AppendError> {
        self.ask(|reply| Command::Close { partition, epoch, reply }).await
    }

    /// Waits until all records of a partition are stored.
    pub(crate) async fn flush(&self, partition: Partition, epoch: u64) -> Result<(), AppendError> {
        self.ask(|reply| Command::Append { partition, epoch, records: Vec::new(), reply }).await.map(drop)
    }

    async fn ask(&self, command: impl FnOnce(Reply) -> Command) -> Result<Sequence, AppendError> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(command(reply)).await.map_err(|_| AppendError::Ended)?;
        answer.await.unwrap_or(Err(AppendError::Ended))
    }

    /// Closes a partition immediately and drops the records that are not stored yet.
    pub(crate) async fn abandon(&self, partition: Partition, epoch: u64) {
        // Ignore the error: a task that has ended has no open partitions.
        let _ = self.commands.send(Command::Abandon { partition, epoch }).await;
    }
}

impl Permit<'_> {
    /// Appends records. The future completes when they are stored. They are appended even if the future is dropped.
    pub(crate) fn append(
        self,
        partition: Partition,
        epoch: u64,
        records: Vec<Record>,
    ) -> impl Future<Output = Result<Sequence, AppendError>> + Send + 'static {
        let (reply, answer) = oneshot::channel();
        self.place.send(Command::Append { partition, epoch, records, reply });
        async move { answer.await.unwrap_or(Err(AppendError::Ended)) }
    }
}

struct OpenPartition {
    epoch: u64,
    opening: Option<Reply>,
    /// Records for which the writer's queue has no room yet.
    unaccepted: VecDeque<Record>,
    /// Appends that are not stored completely, oldest first. For each: the number of its records that are not stored
    /// yet, and the sender of the answer.
    waiting: VecDeque<(usize, Reply)>,
    closing: Option<Reply>,
}

impl OpenPartition {
    fn fail(self, error: &AppendError) {
        let replies = self.opening.into_iter().chain(self.waiting.into_iter().map(|(_, reply)| reply));
        for reply in replies.chain(self.closing) {
            // The caller may be gone.
            let _ = reply.send(Err(error.clone()));
        }
    }
}

struct Task {
    writer: Writer,
    backend: Arc<dyn Backend>,
    in_flight: FuturesUnordered<BoxFuture<'static, (RequestId, Answer)>>,
    open: BTreeMap<Partition, OpenPartition>,
    /// Whether room has become free in the writer's queue and has not been offered to waiting records yet.
    has_freed: bool,
    queued: Arc<AtomicU64>,
    begun: Instant,
}

impl Task {
    async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        loop {
            self.exchange();
            let deadline = self.writer.next_deadline().map(|at| self.begun + at);
            let timer = async {
                match deadline {
                    Some(deadline) => tokio::time::sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some((id, answer)) = self.in_flight.next() => {
                    self.writer.answer(id, answer, clock::now() - self.begun);
                }
                command = commands.recv() => match command {
                    Some(command) => self.command(command),
                    None => return,
                },
                () = timer => {}
            }
        }
    }

    /// Sends the writer's requests to the log, and reports the writer's events to the callers. Fills room that has
    /// become free in the writer's queue with waiting records. Returns when there are no more events.
    fn exchange(&mut self) {
        loop {
            for (id, request) in self.writer.poll(clock::now() - self.begun) {
                let execution = self.backend.execute(request);
                self.in_flight.push(Box::pin(async move { (id, execution.await) }));
            }
            let events = self.writer.take_events();
            self.has_freed |= events.iter().any(|event| !matches!(event, WriterEvent::Claimed { .. }));
            let has_freed = std::mem::take(&mut self.has_freed);
            if events.is_empty() && !has_freed {
                self.queued.store(self.writer.queued_bytes() as u64, Relaxed);
                return;
            }
            for event in events {
                self.report(event);
            }
            if has_freed {
                let blocked = self.open.iter().filter(|(_, open)| !open.unaccepted.is_empty());
                for partition in blocked.map(|(partition, _)| partition.clone()).collect::<Vec<_>>() {
                    self.offer(&partition);
                }
            }
        }
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Open { partition, epoch, reply } => {
                self.abandon(&partition, &AppendError::NotOpen);
                self.writer.open(partition.clone(), epoch);
                let (unaccepted, waiting) = Default::default();
                let open = OpenPartition { epoch, opening: Some(reply), unaccepted, waiting, closing: None };
                self.open.insert(partition, open);
            }
            Command::Append { partition, epoch, records, reply } => match self.open_under(&partition, epoch) {
                // A flush with nothing to wait for. The answer, 0, is no entry's sequence.
                Some(open) if open.closing.is_none() && records.is_empty() && open.waiting.is_empty() => {
                    drop(reply.send(Ok(0)));
                }
                Some(open) if open.closing.is_none() => {
                    open.waiting.push_back((records.len(), reply));
                    open.unaccepted.extend(records);
                    self.offer(&partition);
                }
                _ => drop(reply.send(Err(AppendError::NotOpen))),
            },
            Command::Close { partition, epoch, reply } => match self.open_under(&partition, epoch) {
                Some(open) if open.closing.is_none() => {
                    open.closing = Some(reply);
                    self.offer(&partition);
                }
                _ => drop(reply.send(Err(AppendError::NotOpen))),
            },
            Command::Abandon { partition, epoch } => {
                if self.open_under(&partition, epoch).is_some() {
                    self.abandon(&partition, &AppendError::NotOpen);
                }
            }
        }
    }

    fn open_under(&mut self, partition: &Partition, epoch: u64) -> Option<&mut OpenPartition> {
        self.open.get_mut(partition).filter(|open| open.epoch == epoch)
    }

    /// Offers the waiting records of a partition to the writer, until the writer's queue is full.
    fn offer(&mut self, partition: &Partition) {
        let Some(open) = self.open.get_mut(partition) else { return };
        while let Some(record) = open.unaccepted.front() {
            match self.writer.offer(partition, record) {
                Ok(()) => drop(open.unaccepted.pop_front()),
                Err(OfferError::Full) => return,
                Err(error) => return self.abandon(partition, &AppendError::Refused(error)),
            }
        }
        if open.closing.is_some() {
            self.writer.close(partition);
        }
    }

    fn report(&mut self, event: WriterEvent) {
        match event {
            WriterEvent::Claimed { partition, sequence } => {
                let opening = self.open.get_mut(&partition).and_then(|open| open.opening.take());
                opening.map(|reply| reply.send(Ok(sequence)));
            }
            WriterEvent::Stored { partition, mut records, sequence } => {
                let Some(open) = self.open.get_mut(&partition) else { return };
                while let Some((left, _)) = open.waiting.front_mut() {
                    let stored = records.min(*left);
                    (*left, records) = (*left - stored, records - stored);
                    if *left > 0 {
                        return;
                    }
                    open.waiting.pop_front().map(|(_, reply)| reply.send(Ok(sequence)));
                }
            }
            WriterEvent::Fenced { partition, reason } => self.fail(&partition, &AppendError::Fenced(reason)),
            WriterEvent::Closed { partition, sequence } => {
                let closing = self.open.remove(&partition).and_then(|open| open.closing);
                closing.map(|reply| reply.send(Ok(sequence)));
            }
        }
    }

    /// Closes a partition and drops its records, which frees room in the writer's queue for other partitions. Calls
    /// that wait for the partition fail with `error`.
    fn abandon(&mut self, partition: &Partition, error: &AppendError) {
        self.writer.abandon(partition);
        self.has_freed = true;
        self.fail(partition, error);
    }

    fn fail(&mut self, partition: &Partition, error: &AppendError) {
        if let Some(open) = self.open.remove(partition) {
            open.fail(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use informer_hub_fleet::simulated_log::Faults;
    use informer_hub_types::rng::SeededRng;
    use informer_hub_types::{Gvr, ObjectKey, ResourceVersion, Uid};

    use super::*;
    use crate::simulated::SimulatedFleet;

    fn partition(name: &str) -> Partition {
        Partition { cluster: "c".parse().unwrap(), resource: Gvr::new("", "v1", name), selection: 0 }
    }

    fn put() -> Record {
        let (key, uid, version) = (ObjectKey::of("n/a"), Uid::new("u"), ResourceVersion::new("1"));
        Record::Put { key, uid, version, body: Bytes::from(vec![b'x'; 1000]) }
    }

    #[tokio::test(start_paused = true)]
    async fn room_of_an_abandoned_partition_goes_to_a_waiting_one() {
        let _seeded = SeededRng::new(1);
        let fleet = SimulatedFleet::new(Faults::NONE);
        let params = WriterParams { queue_bytes: 1000, ..WriterParams::default() };
        let appender = Appender::start(Arc::new(fleet.connect()), params, &Threads::current());
        let (full, waiting) = (partition("pods"), partition("nodes"));
        for of in [&full, &waiting] {
            appender.open(of.clone(), 1).await.unwrap();
        }
        fleet.set_down(true);
        let mut appends = Vec::new();
        for of in [&full, &waiting] {
            appends.push(appender.reserve().await.unwrap().append(of.clone(), 1, vec![put()]));
        }
        appender.abandon(full, 1).await;
        let (second, first) = (appends.remove(1), appends.remove(0));
        assert_eq!(first.await, Err(AppendError::NotOpen));
        fleet.set_down(false);
        let stored = tokio::time::timeout(Duration::from_secs(60), second).await;
        assert!(stored.expect("the waiting record is stored").is_ok());
    }
}
