//! State machine of a sink: decides which batch to send and what to store next. It has no I/O, clock or threads.
//!
//! # Driving it
//! The driver is an actor or a simulation. It reports events through [`Machine::ingest`], [`Machine::attempted`] and
//! [`Machine::work_done`]. Then it calls [`Machine::next`] until that returns `None`, and again at
//! [`Machine::wake_at`] at the latest.
//!
//! # With a journal
//! A message is answered once all of its accepted events are on disk. Written events enter the lanes while there is
//! room; otherwise they are read back from the journal later. Acknowledgements and dead letters are written with the
//! next events, or after a short delay.

mod convert;
mod durable;
mod isolate;
mod outcome;
mod standby;

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rand::rngs::StdRng;

use durable::Durable;
pub use outcome::BrokenAttempt;
use standby::HeldDeletions;
pub use standby::{Coverage, SourceVersions, resource_key};

use super::work::{Done, Durability, Work};
use super::{
    BatchParams, Bounds, Circuit, DeadLetter, Event, EventOptions, LaneId, Lanes, RateLimit, RateLimiter, RetryParams,
    Selection, SinkHealth,
};
use informer_hub_types::clock::Instant;
use informer_hub_types::{Notification, Rewinds, TraceParent, Traced};

/// Parameters of a [`Machine`].
#[derive(Clone, Debug)]
pub struct MachineParams {
    /// The sink's name, for logs.
    pub name: Arc<str>,
    /// Conditions that a notification must meet to be sent.
    pub selection: Arc<Selection>,
    /// Options for building events from notifications.
    pub options: EventOptions,
    /// Limits of a batch.
    pub batch: BatchParams,
    /// Retry delays and limits.
    pub retry: RetryParams,
    /// Queue limits.
    pub bounds: Bounds,
    /// Number of lanes (parallel queues), and so of attempts in flight. Default 4.
    pub concurrency: NonZeroUsize,
    /// Rate limit of deliveries; `None` is unlimited.
    pub rate_limit: Option<RateLimit>,
    /// Counters of the sink.
    pub health: Arc<SinkHealth>,
}

impl MachineParams {
    /// Counts and logs dead letters that were dropped because their limit was reached.
    pub fn note_forgotten(&self, count: u64) {
        if count > 0 {
            self.health.dead_letters_forgotten.fetch_add(count, Relaxed);
            tracing::warn!(sink = %self.name, count, "dead_letter_limit is reached; dropped the oldest dead letters");
        }
    }
}

/// Request of a machine to its driver. `T` identifies a sender to answer.
#[derive(Debug)]
pub enum Action<T> {
    /// Answer the sender of a message: the sink has accepted all its events, and has written them to its journal if it
    /// has one.
    Answer(T),
    /// Try to deliver a batch, and report the outcome to [`Machine::attempted`].
    Attempt {
        /// Lane (parallel queue of the sink) that the batch is from.
        lane: LaneId,
        /// Events of the batch, in order.
        batch: Arc<[Event]>,
    },
    /// Perform this work on the store, on a thread that may block, and report the result to [`Machine::work_done`]. A
    /// machine requests one work at a time.
    Work(Work),
}

/// State machine of one sink. `T` identifies a sender to answer.
pub struct Machine<T> {
    params: MachineParams,
    lanes: Lanes,
    circuit: Circuit,
    /// Rate limiter, created with the first batch; `None` without a limit.
    rate: Option<RateLimiter>,
    rng: StdRng,
    /// Messages that wait for room in the queue, oldest first.
    waiting: VecDeque<WaitingMessage<T>>,
    answers: VecDeque<T>,
    /// Journal state; `None` if events are kept in memory only.
    durable: Option<Durable<T>>,
    /// Dead letters that are not yet in the store.
    letters: Vec<DeadLetter>,
    /// Number of refusals of content since the receiver last accepted a batch.
    refused_in_a_row: u32,
    /// When the receiver last accepted a batch.
    last_accepted: Option<Instant>,
    /// Middle of the final flush, the period in which a shutdown delivers the last events; `None` before the flush
    /// begins.
    flush_middle: Option<Instant>,
    /// Whether batches are sent. If not, the machine is in standby, and another process delivers.
    is_sending: bool,
    /// Whether new attempts are held back, because attempts from before a restart or a reconfiguration may still run.
    is_held: bool,
    rewinds: Rewinds,
    held_deletions: HeldDeletions,
}

/// Notifications of one informer that arrive together.
#[derive(Debug)]
pub struct IncomingBatch {
    /// The notifications, in order.
    pub notifications: Vec<Notification>,
    /// The traced change among the notifications, and the parent span for its event; `None` if none is traced.
    pub traced: Option<(Traced, TraceParent)>,
}

impl From<Vec<Notification>> for IncomingBatch {
    fn from(notifications: Vec<Notification>) -> Self {
        Self { notifications, traced: None }
    }
}

/// Message that waits for room in the queue. `rest` has its notifications that were not accepted yet.
#[derive(Debug)]
struct WaitingMessage<T> {
    rest: std::vec::IntoIter<Notification>,
    traced: Option<(Traced, TraceParent)>,
    seen: jiff::Timestamp,
    reply: T,
}

impl<T> Machine<T> {
    /// Creates a machine that keeps its events in a journal, or in memory if `durability` is `None`.
    #[must_use]
    pub fn new(mut params: MachineParams, durability: Option<Durability>, rng: StdRng) -> Self {
        params.options.sequence = durability.is_some();
        let lanes = Lanes::new(params.concurrency, params.batch, params.bounds);
        Self {
            lanes,
            circuit: Circuit::default(),
            rate: None,
            rng,
            waiting: VecDeque::new(),
            answers: VecDeque::new(),
            durable: durability.map(Durable::new),
            letters: Vec::new(),
            refused_in_a_row: 0,
            last_accepted: None,
            flush_middle: None,
            is_sending: true,
            is_held: false,
            held_deletions: HeldDeletions::default(),
            rewinds: Rewinds::default(),
            params,
        }
    }

    /// Sets the shared record of resources whose resourceVersions have gone back, as after a restore of etcd. The
    /// reflectors update the record.
    pub fn share_rewinds(&mut self, rewinds: Rewinds) {
        self.rewinds = rewinds;
    }

    /// Continues after a restart of the driver: repeats the attempts that were in flight, since their outcome is
    /// unknown. Only for a machine without a journal; one with a journal is built again from the journal.
    pub fn attempt_again(&mut self, now: Instant) {
        self.lanes.attempt_again(now);
        self.circuit = Circuit::default();
        self.params.health.set_circuit_open(false);
    }

    /// Stops or allows new attempts. The driver stops them while attempts from before a restart or a
    /// [`Self::reconfigure`] still run: a new attempt could reach the receiver first. Default: allowed.
    pub fn hold_attempts(&mut self, is_held: bool) {
        self.is_held = is_held;
    }

    /// Returns whether the sink may send at all: it is not disabled, in standby or held. Pauses and limits are not
    /// checked.
    fn may_attempt(&self) -> bool {
        !self.params.health.is_disabled() && self.is_sending && !self.is_held
    }

    /// Applies new parameters and keeps the pending events. Attempts in flight are repeated; their outcomes must not be
    /// reported. A sink that its receiver has disabled is enabled again.
    pub fn reconfigure(&mut self, params: MachineParams, now: Instant) {
        self.params = params;
        self.params.options.sequence = self.durable.is_some();
        let MachineParams { concurrency, batch, bounds, health, .. } = &self.params;
        self.lanes.rebuild(*concurrency, *batch, *bounds, now);
        (self.circuit, self.rate, self.refused_in_a_row) = (Circuit::default(), None, 0);
        health.set_circuit_open(false);
        health.set_enabled();
        self.admit_waiting(now);
    }

    /// Accepts notifications observed at `seen`. A later [`Action::Answer`] with `reply` answers the sender.
    pub fn ingest(&mut self, intake: impl Into<IncomingBatch>, seen: jiff::Timestamp, reply: T, now: Instant) {
        let IncomingBatch { mut notifications, traced } = intake.into();
        if let Some(partition) = self.params.selection.partition {
            notifications.retain(|notification| partition.contains(notification));
        }
        let count = notifications.len();
        self.params.health.received.fetch_add(count as u64, Relaxed);
        if self.params.health.is_disabled() {
            self.discard(count);
            return self.answers.push_back(reply);
        }
        // Messages are queued behind waiting ones, to keep the order of each sender.
        self.waiting.push_back(WaitingMessage { rest: notifications.into_iter(), traced, seen, reply });
        self.admit_waiting(now);
    }

    /// Returns the next action to perform; `None` if nothing is due now.
    pub fn next(&mut self, now: Instant) -> Option<Action<T>> {
        if let Some(reply) = self.answers.pop_front() {
            return Some(Action::Answer(reply));
        }
        if let Some(batch) = self.next_attempt(now) {
            return Some(batch);
        }
        let durable = self.durable.as_mut()?;
        durable.next_work(&self.lanes, &mut self.letters, now).map(Action::Work)
    }

    fn next_attempt(&mut self, now: Instant) -> Option<Action<T>> {
        if !self.may_attempt() {
            return None;
        }
        if self.rate_at(now).is_some_and(|at| now < at) {
            return None;
        }
        let (lane, batch) = self.lanes.take_ready(now, self.circuit.gate(now))?;
        if let Some(limit) = self.params.rate_limit {
            self.rate.get_or_insert_with(|| RateLimiter::new(limit)).take(batch.len(), now);
        }
        self.circuit.started(lane);
        if self.lanes.failures(lane) > 0 {
            self.params.health.retries.fetch_add(1, Relaxed);
        }
        Some(Action::Attempt { lane, batch })
    }

    /// Returns when the rate limit allows the next batch; `None` if there is no limit or no batch is ready.
    fn rate_at(&self, now: Instant) -> Option<Instant> {
        // Without a limit, the search for the next batch is skipped, as it costs time.
        let rate = self.rate.as_ref()?;
        let next = self.lanes.ready_len(now, self.circuit.gate(now))?;
        Some(rate.ready_at(next, now))
    }

    /// Returns when [`Self::next`] may return another action if the driver reports nothing before; `None` if no action
    /// is planned.
    #[must_use]
    pub fn wake_at(&self, now: Instant) -> Option<Instant> {
        let due =
            self.lanes.next_wake(self.circuit.gate(now)).map(|due| self.rate_at(now).map_or(due, |at| due.max(at)));
        let attempt = due.filter(|_| self.may_attempt());
        let work = self.durable.as_ref().and_then(|durable| durable.wake_at(&self.lanes, &self.letters));
        attempt.into_iter().chain(work).min()
    }

    /// Applies the result of a [`Work`] that the store has done.
    pub fn work_done(&mut self, done: Done, now: Instant) {
        let Some(durable) = &mut self.durable else { return };
        durable.work_done(done, &mut self.lanes, &mut self.letters, &self.params, now);
        self.answers.extend(durable.answers());
        self.admit_waiting(now);
    }

    /// Accepts the notifications of waiting messages, oldest first, while there is room.
    fn admit_waiting(&mut self, now: Instant) {
        while let Some(mut waiting) = self.waiting.pop_front() {
            if !self.admit(&mut waiting, now) {
                self.waiting.push_front(waiting);
                return;
            }
            match &mut self.durable {
                None => self.answers.push_back(waiting.reply),
                Some(durable) => {
                    durable.answer_when_stored(waiting.reply);
                    self.answers.extend(durable.answers());
                }
            }
        }
    }

    /// Accepts the notifications of a message while there is room. Returns whether all are accepted.
    fn admit(&mut self, WaitingMessage { rest, traced, seen, .. }: &mut WaitingMessage<T>, now: Instant) -> bool {
        let seen = *seen;
        while self.has_room() {
            let Some(notification) = rest.next() else { return true };
            let is_it = |(traced, _): &&(Traced, TraceParent)| notification.object().is_some_and(|it| traced.is_of(it));
            let parent = traced.as_ref().filter(is_it).map(|(_, parent)| *parent);
            let rewind = self.rewinds.of(notification.origin());
            let Some(event) = self.event_of(&notification, rewind.as_ref(), seen, parent) else { continue };
            if let Some(durable) = &mut self.durable {
                let resync = matches!(notification, Notification::Updated { resync: true, .. });
                // After a restore of etcd, states are older than the journaled ones, but must be sent.
                if rewind.is_none() && durable.is_repeated(&event, resync) {
                    self.params.health.repeated.fetch_add(1, Relaxed);
                } else {
                    durable.write(event, now);
                }
            } else {
                let pushed = self.lanes.push(event, now);
                debug_assert!(pushed.is_ok(), "there was room");
            }
        }
        rest.as_slice().is_empty()
    }

    fn has_room(&self) -> bool {
        match &self.durable {
            None => !self.lanes.is_full(),
            Some(durable) => durable.has_room(),
        }
    }

    fn discard(&self, count: usize) {
        self.params.health.discarded.fetch_add(count as u64, Relaxed);
    }

    /// Starts the final flush, which ends at `deadline`. From now on, batches and journal writes do not wait for more
    /// events.
    ///
    /// Without a journal, events that are undelivered at the end of the flush are lost. So a pause that the receiver
    /// has asked for ends now. If the receiver asks for another pause, the sink observes it only if it ends in the
    /// first half of the flush. So each event is attempted at least once.
    pub fn flush(&mut self, deadline: Instant, now: Instant) {
        let middle = now + deadline.saturating_duration_since(now) / 2;
        self.flush_middle = self.flush_middle.max(Some(middle));
        if self.durable.is_none() {
            self.circuit.end_pause();
        }
        self.lanes.flush(now);
        self.durable.iter_mut().for_each(Durable::flush);
    }

    /// Returns the number of undelivered events, including notifications that wait for room.
    #[must_use]
    pub fn undelivered(&self) -> u64 {
        let pending = self.durable.as_ref().map_or(self.lanes.events() as u64, Durable::pending);
        pending + self.waiting_count() as u64
    }

    /// Returns the number of events that would be lost if the process ended now.
    #[must_use]
    pub fn at_risk(&self) -> u64 {
        let pending = self.durable.as_ref().map_or(self.lanes.events() as u64, Durable::unstored);
        pending + self.waiting_count() as u64
    }

    /// Returns whether all undelivered events are set aside after failures, or the receiver refuses everything. A
    /// shutdown need not wait for such events if a journal keeps them.
    #[must_use]
    pub fn is_waiting_after_refusals(&self) -> bool {
        self.undelivered() == self.lanes.set_aside_size().0 as u64 || self.is_refusing_everything()
    }

    /// Returns whether the receiver asked for a pause that has not ended. A shutdown need not wait for it if a journal
    /// keeps the events.
    #[must_use]
    pub fn is_paused(&self, now: Instant) -> bool {
        self.circuit.is_paused(now)
    }

    /// Returns whether the receiver has refused more than [`outcome::PATIENCE`] attempts in a row.
    fn is_refusing_everything(&self) -> bool {
        self.refused_in_a_row > outcome::PATIENCE
    }

    /// Returns whether events, acknowledgements or dead letters are not written yet. Always `false` without a journal.
    #[must_use]
    pub fn is_unwritten(&self) -> bool {
        self.durable.as_ref().is_some_and(|durable| durable.is_unwritten() || !self.letters.is_empty())
    }

    /// Removes and returns the dead letters since the last call. Always empty with a journal, since a [`Work::Commit`]
    /// then stores the letters.
    pub fn take_letters(&mut self) -> Vec<DeadLetter> {
        if self.durable.is_some() { Vec::new() } else { std::mem::take(&mut self.letters) }
    }

    /// Queues the events of replayed dead letters for delivery, for a machine without a journal. Returns the events for
    /// which there is no room.
    pub fn readmit(&mut self, events: Vec<Event>, now: Instant) -> Vec<Event> {
        events.into_iter().filter_map(|event| self.lanes.push(event, now).err()).collect()
    }

    /// Records the state of the journal after replayed events were appended: `end` is the number of its next event,
    /// `pending` the number of unacknowledged events.
    pub fn appended(&mut self, end: u64, pending: u64) {
        self.durable.iter_mut().for_each(|durable| durable.appended(end, pending));
    }

    fn waiting_count(&self) -> usize {
        self.waiting.iter().map(|waiting| waiting.rest.as_slice().len()).sum()
    }

    /// Updates the numbers of pending, held, retried and refused events in [`SinkHealth`].
    pub fn show(&self) {
        let health = &self.params.health;
        let (events, unwritten) = match &self.durable {
            None => (self.lanes.events() as u64, 0),
            Some(durable) => (durable.pending(), durable.unwritten_bytes()),
        };
        health.pending_events.store(events, Relaxed);
        health.retrying.store(self.lanes.retrying() as u64, Relaxed);
        health.pending_bytes.store((self.lanes.bytes() + unwritten) as u64, Relaxed);
        health.held.store(self.waiting_count() as u64, Relaxed);
        let refused = self.lanes.refused_size().0 as u64;
        health.refused_events.store(refused, Relaxed);
        if refused == 0 {
            health.set_refusal(None);
        }
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no panic message")
}

impl<T> fmt::Debug for Machine<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine").field("name", &self.params.name).field("lanes", &self.lanes).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
