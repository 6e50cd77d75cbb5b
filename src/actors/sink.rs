//! The actor of one sink: takes notifications in, lets batches out, and keeps its senders waiting while it is full.
//!
//! Owns one [`Lanes`] and one [`Circuit`], which decide; the actor starts attempts on the I/O runtime, hears of their
//! outcome, and keeps the one timer.
//!
//! # Back-pressure
//! The answer to [`Notifications`] comes when all of them are in the queue. A sender must wait for it before it sends
//! again; what it holds meanwhile, it coalesces. So the sink holds at most one message per sender beside its queue.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use actix::dev::{MessageResponse, OneshotSender};
use actix::{Actor, ActorFutureExt, AsyncContext, Context, Handler, Message, SpawnHandle, WrapFuture};
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::runtime;
use tokio::sync::oneshot;
use tokio::task::JoinError;
use tracing::Instrument;

use super::capacity::MAILBOX;
use super::supervision::ExitGuard;
use crate::sink::{
    BatchParams, Bounds, Circuit, DeadLetter, Decision, Event, EventError, LaneId, Lanes, Outcome, RetryParams,
    Selection, Shape, SinkHealth, Transport, Verdict,
};
use crate::telemetry::spans;
use crate::types::clock::{self, Instant};
use crate::types::{Notification, Notifications};

mod estate;
mod supervisor;

use estate::Estate;
pub use supervisor::Sink;

/// How often a receiver must refuse the content of a single event before it is given up: it holds up the other objects
/// of its lane, and the receiver has made itself clear.
const CONTENT_TRIES: u32 = 5;

/// What a sink is built from.
#[derive(Clone, Debug)]
pub struct SinkParams {
    /// The sink's name, for logs.
    pub name: Arc<str>,
    /// How batches leave the process.
    pub transport: Arc<dyn Transport>,
    /// What the sink takes.
    pub selection: Arc<Selection>,
    /// How events are put together.
    pub batch: BatchParams,
    /// How long a failing batch is tried.
    pub retry: RetryParams,
    /// What the queue may hold.
    pub bounds: Bounds,
    /// Attempts in flight at most; as many lanes. Default 4.
    pub concurrency: NonZeroUsize,
    /// Where the sink shows what it does.
    pub health: Arc<SinkHealth>,
    /// Where attempts run.
    pub io: runtime::Handle,
}

/// Deliver what is pending, without waiting for more. Answered when nothing is left or when the time is over.
#[derive(Clone, Copy, Debug)]
pub struct Drain {
    /// When the time is over.
    pub deadline: Instant,
}

/// What came of a [`Drain`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainReport {
    /// Events acknowledged since.
    pub delivered: u64,
    /// Events that are still pending, or are waiting to be taken in.
    pub left: u64,
}

impl Message for Drain {
    type Result = DrainReport;
}

/// The actor.
pub struct SinkActor {
    params: SinkParams,
    state: Estate<State>,
    circuit: Circuit,
    timer: Option<(SpawnHandle, Instant)>,
    rng: StdRng,
    _guard: ExitGuard,
}

/// What must not die with the actor: what is to be delivered, and who waits for an answer.
#[derive(Debug)]
pub(super) struct State {
    lanes: Lanes,
    held: VecDeque<Held>,
    drains: Vec<Draining>,
}

impl State {
    pub(super) fn new(params: &SinkParams) -> Self {
        let lanes = Lanes::new(params.concurrency, params.batch, params.bounds);
        Self { lanes, held: VecDeque::new(), drains: Vec::new() }
    }
}

/// A message, or what is left of it, that waits for room.
#[derive(Debug)]
struct Held {
    rest: std::vec::IntoIter<Notification>,
    seen: jiff::Timestamp,
    reply: oneshot::Sender<()>,
}

#[derive(Debug)]
struct Draining {
    deadline: Instant,
    delivered_before: u64,
    reply: oneshot::Sender<DrainReport>,
}

/// An answer now or later. Where the actor dies first, the sender hears that instead of an answer.
#[derive(Debug)]
pub enum Reply<T> {
    /// The answer.
    Now(T),
    /// It will come here.
    Later(oneshot::Receiver<T>),
}

impl<A: Actor, M: Message<Result = T>, T: 'static> MessageResponse<A, M> for Reply<T> {
    fn handle(self, _: &mut A::Context, tx: Option<OneshotSender<T>>) {
        let Some(tx) = tx else { return };
        match self {
            // A sender that no longer waits is no concern of ours.
            Self::Now(answer) => drop(tx.send(answer)),
            Self::Later(answer) => drop(actix_rt::spawn(async move {
                if let Ok(answer) = answer.await {
                    let _ = tx.send(answer);
                }
            })),
        }
    }
}

impl SinkActor {
    /// A sink that goes on from `state`. Attempts of a predecessor that were in flight are made again: whether they
    /// arrived is not known.
    pub(super) fn new(params: SinkParams, mut state: Estate<State>, guard: ExitGuard) -> Self {
        state.lanes.attempt_again(clock::now());
        params.health.set_circuit_open(false);
        let (circuit, rng) = (Circuit::default(), StdRng::from_os_rng());
        Self { params, state, circuit, timer: None, rng, _guard: guard }
    }

    /// Takes in what there is room for. Tells whether that was all.
    fn admit(&mut self, rest: &mut std::vec::IntoIter<Notification>, seen: jiff::Timestamp) -> bool {
        while !self.state.lanes.is_full() {
            let Some(notification) = rest.next() else { return true };
            if let Some(event) = self.convert(&notification, seen) {
                let pushed = self.state.lanes.push(event, clock::now());
                debug_assert!(pushed.is_ok(), "there was room");
            }
        }
        rest.as_slice().is_empty()
    }

    /// The event of a notification, if it is for this sink. Whatever goes wrong costs this notification alone.
    fn convert(&self, notification: &Notification, seen: jiff::Timestamp) -> Option<Event> {
        let health = &self.params.health;
        let name = &self.params.name;
        let converted = catch_unwind(AssertUnwindSafe(|| {
            let verdict = self.params.selection.judge(notification);
            let event =
                (verdict != Verdict::Leave).then(|| Event::new(notification, seen, Shape::default())).transpose();
            (verdict, event)
        }));
        let (verdict, event) = converted.unwrap_or_else(|panic| {
            tracing::error!(sink = %name, ?notification, panic = panic_text(&*panic), "conversion panicked");
            (Verdict::Take, Ok(None))
        });
        if let Verdict::TakeUnfiltered(why) = &verdict {
            let count = health.filter_errors.fetch_add(1, Relaxed) + 1;
            // The first, then ever more rarely: a filter that does not fit fails for each event.
            if count.is_power_of_two() {
                tracing::warn!(sink = %name, ?notification, why, count, "filter failed, event let through");
            }
        }
        match (verdict, event) {
            (Verdict::Leave, _) => {
                health.filtered.fetch_add(1, Relaxed);
                None
            }
            (_, Ok(Some(event))) => Some(event),
            (_, failed) => {
                health.unreadable.fetch_add(1, Relaxed);
                let error = failed.err().as_ref().map(EventError::to_string);
                tracing::error!(sink = %name, ?notification, error, "notification lost: no event can be made of it");
                None
            }
        }
    }

    /// Lets waiting messages in, oldest first, as far as there is room.
    fn unhold(&mut self) {
        while let Some(mut held) = self.state.held.pop_front() {
            if !self.admit(&mut held.rest, held.seen) {
                self.state.held.push_front(held);
                return;
            }
            // A sender that has gone has nothing to wait for.
            let _ = held.reply.send(());
        }
    }

    /// Starts what may be started, answers who can be answered, and sets the timer for the rest.
    fn pump(&mut self, ctx: &mut Context<Self>) {
        let now = clock::now();
        while let Some((lane, batch)) = self.state.lanes.take_ready(now, self.circuit.gate(now)) {
            self.start_attempt(lane, batch, ctx);
        }
        self.answer_drains(now);
        self.show();
        self.arm(now, ctx);
    }

    fn start_attempt(&mut self, lane: LaneId, batch: Arc<[Event]>, ctx: &mut Context<Self>) {
        self.circuit.started(lane);
        if self.state.lanes.failures(lane) > 0 {
            self.params.health.retries.fetch_add(1, Relaxed);
        }
        let transport = Arc::clone(&self.params.transport);
        // The call itself is inside the task too, so that a panic in it is the task's.
        let span = spans::delivery(&self.params.name, batch.len() as u64);
        let attempt = self.params.io.spawn(async move { transport.attempt(batch).await }.instrument(span));
        ctx.spawn(attempt.into_actor(self).map(move |outcome, actor, ctx| {
            actor.settle(lane, outcome);
            actor.unhold();
            actor.pump(ctx);
        }));
    }

    fn settle(&mut self, lane: LaneId, outcome: Result<Outcome, JoinError>) {
        match outcome {
            Ok(Outcome::Accepted) => self.accept(lane),
            Ok(Outcome::Retry { error, .. }) if self.params.health.is_disabled() => self.bury(lane, &error),
            Ok(Outcome::Retry { after, content, error }) => self.fail(lane, after, content, &error),
            Ok(Outcome::Disable { error }) => self.disable(lane, &error),
            Err(join) => match join.try_into_panic() {
                Ok(panic) => self.bury(lane, &format!("transport panicked: {}", panic_text(&*panic))),
                Err(_) => self.fail(lane, None, false, "the I/O runtime is shutting down"),
            },
        }
    }

    fn accept(&mut self, lane: LaneId) {
        let attempts = self.state.lanes.failures(lane);
        let events = self.state.lanes.acked(lane).len() as u64;
        self.params.health.note_delivery(events);
        if self.circuit.succeeded() {
            self.params.health.set_circuit_open(false);
            tracing::info!(sink = %self.params.name, "receiver answers again, all lanes deliver");
        } else if attempts > 0 {
            tracing::info!(sink = %self.params.name, attempts, "delivered at last");
        }
    }

    fn fail(&mut self, lane: LaneId, after: Option<Duration>, content: bool, error: &str) {
        let now = clock::now();
        let (health, name) = (&self.params.health, &self.params.name);
        health.failed_attempts.fetch_add(1, Relaxed);
        let known = health.error().is_some_and(|before| *before == error);
        health.set_error(error.to_owned());
        let (failures, since) = self.state.lanes.failed(lane, now);
        // Lanes fail together: one line for all of them.
        if failures == 1 && !known {
            tracing::warn!(sink = %name, error, "delivery failed, will be tried again");
        } else {
            tracing::debug!(sink = %name, error, failures, "delivery failed again");
        }
        if let Some(after) = after {
            self.circuit.pause(now, after);
        }
        // An answer to the content, or with a date, comes from a receiver that is well.
        if !content && after.is_none() && self.circuit.failed(lane) {
            health.set_circuit_open(true);
            tracing::warn!(sink = %name, error, "receiver keeps failing, one lane probes until it answers");
        }
        if content && failures >= CONTENT_TRIES && self.state.lanes.batch_len(lane) == 1 {
            return self.bury(lane, error);
        }
        if content {
            self.state.lanes.halve(lane, now);
        }
        match self.params.retry.decide(self.state.lanes.failures(lane), since, after, now, &mut self.rng) {
            Decision::RetryAt(at) => self.state.lanes.retry_at(lane, at),
            Decision::GiveUp => self.bury(lane, error),
        }
    }

    /// Gives the lane's batch up.
    fn bury(&mut self, lane: LaneId, error: &str) {
        let attempts = self.state.lanes.failures(lane).max(1);
        let events = self.state.lanes.give_up(lane);
        self.circuit.gave_up(lane);
        self.dead_letter(&events, attempts, error);
    }

    fn dead_letter(&self, events: &[Event], attempts: u32, error: &str) {
        let Some(first) = events.first() else { return };
        let (name, count) = (&self.params.name, events.len());
        tracing::error!(sink = %name, count, first = first.subject(), attempts, error, "events given up");
        self.params.health.set_error(error.to_owned());
        for event in events {
            let (id, subject) = (event.id().to_owned(), event.subject().to_owned());
            let letter = DeadLetter { id, subject, attempts, error: error.to_owned(), at: clock::wall() };
            self.params.health.note_dead_letter(letter);
        }
    }

    /// The receiver wants no more: everything pending is given up, everything to come is thrown away, counted.
    fn disable(&mut self, lane: LaneId, error: &str) {
        tracing::error!(sink = %self.params.name, error, "sink disabled by its receiver until the next start");
        self.params.health.failed_attempts.fetch_add(1, Relaxed);
        self.params.health.set_disabled();
        self.bury(lane, error);
        let rest = self.state.lanes.clear();
        self.dead_letter(&rest, 0, error);
        for held in std::mem::take(&mut self.state.held) {
            self.discard(held.rest.as_slice().len());
            let _ = held.reply.send(());
        }
    }

    fn discard(&self, count: usize) {
        self.params.health.discarded.fetch_add(count as u64, Relaxed);
    }

    fn answer_drains(&mut self, now: Instant) {
        if self.state.drains.is_empty() {
            return;
        }
        let left = (self.state.lanes.events() + self.held_count()) as u64;
        let delivered = self.params.health.delivered.load(Relaxed);
        let over = |drain: &mut Draining| left == 0 || drain.deadline <= now;
        for drain in self.state.drains.extract_if(.., over) {
            if left > 0 {
                tracing::warn!(sink = %self.params.name, left, "drain is over before everything was delivered");
            }
            let _ = drain.reply.send(DrainReport { delivered: delivered - drain.delivered_before, left });
        }
    }

    /// Keeps one timer, for the earliest thing to do. One that fires too early does no harm, so it is only ever
    /// replaced by an earlier one.
    fn arm(&mut self, now: Instant, ctx: &mut Context<Self>) {
        let drain = self.state.drains.iter().map(|drain| drain.deadline).min();
        let wake = self.state.lanes.next_wake(self.circuit.gate(now)).into_iter().chain(drain).min();
        let Some(wake) = wake else { return };
        if let Some((timer, at)) = self.timer {
            if at <= wake {
                return;
            }
            ctx.cancel_future(timer);
        }
        let timer = ctx.run_later(wake.saturating_duration_since(now), |actor, ctx| {
            actor.timer = None;
            actor.pump(ctx);
        });
        self.timer = Some((timer, wake));
    }

    fn held_count(&self) -> usize {
        self.state.held.iter().map(|held| held.rest.as_slice().len()).sum()
    }

    fn show(&self) {
        let health = &self.params.health;
        health.pending_events.store(self.state.lanes.events() as u64, Relaxed);
        health.pending_bytes.store(self.state.lanes.bytes() as u64, Relaxed);
        health.held.store(self.held_count() as u64, Relaxed);
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}

impl fmt::Debug for SinkActor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SinkActor").field("name", &self.params.name).finish_non_exhaustive()
    }
}

impl Actor for SinkActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        ctx.set_mailbox_capacity(MAILBOX);
        self.unhold();
        self.pump(ctx);
    }

    fn stopped(&mut self, _: &mut Context<Self>) {
        let left = self.state.lanes.events() + self.held_count();
        if left > 0 {
            tracing::warn!(sink = %self.params.name, left, "sink stopped with events pending");
        }
    }
}

impl Handler<Notifications> for SinkActor {
    type Result = Reply<()>;

    fn handle(&mut self, message: Notifications, ctx: &mut Context<Self>) -> Reply<()> {
        let count = message.0.len();
        self.params.health.received.fetch_add(count as u64, Relaxed);
        if self.params.health.is_disabled() {
            self.discard(count);
            return Reply::Now(());
        }
        let (mut rest, seen) = (message.0.into_iter(), clock::wall());
        // Behind those who wait already, for the order of a sender's messages.
        let reply = if self.state.held.is_empty() && self.admit(&mut rest, seen) {
            Reply::Now(())
        } else {
            let (reply, answer) = oneshot::channel();
            self.state.held.push_back(Held { rest, seen, reply });
            Reply::Later(answer)
        };
        self.pump(ctx);
        reply
    }
}

impl Handler<Drain> for SinkActor {
    type Result = Reply<DrainReport>;

    fn handle(&mut self, Drain { deadline }: Drain, ctx: &mut Context<Self>) -> Reply<DrainReport> {
        let (reply, answer) = oneshot::channel();
        let delivered_before = self.params.health.delivered.load(Relaxed);
        self.state.drains.push(Draining { deadline, delivered_before, reply });
        self.state.lanes.flush(clock::now());
        self.pump(ctx);
        Reply::Later(answer)
    }
}

#[cfg(test)]
mod tests;
