//! Sink actor: accepts notifications, delivers batches, and applies back-pressure while its queue is full.
//!
//! It drives one [`Machine`], which decides what to send and when. The actor runs attempts on the I/O runtime and the
//! store on a blocking thread, and reports the outcomes to the machine. It has the sink's only timer.
//!
//! # Back-pressure
//! A message with notifications is answered when all of them are queued, and on disk if the sink has a journal. A
//! sender must wait for the answer before it sends again, and coalesces its notifications meanwhile. So the sink holds
//! at most one message per sender in addition to its queue.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use actix::dev::{MessageResponse, OneshotSender};
use actix::{Actor, ActorFutureExt, AsyncContext, Context, Handler, Message, SpawnHandle, WrapFuture};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::JoinError;
use tracing::{Instrument, Span};

use crate::actors::runtime::capacity::MAILBOX;
use crate::actors::runtime::supervision::ExitGuard;
use informer_hub_disk::Disk;
use informer_hub_sink::{
    Action, AttemptOutcome, BrokenAttempt, Durability, Event, IncomingBatch, LaneId, Machine, MachineParams, SendFence,
    Store, StoreLimits, Transport, Work,
};
use informer_hub_telemetry::spans;
use informer_hub_types::clock::{self, Instant};
use informer_hub_types::{Fsync, Notification, Rewinds, Threads, TraceParent, Traced, rng};

mod attempts;
mod dead_letters;
mod reconcile;
mod recoverable;
mod supervisor;

use attempts::RunningAttempts;
pub use dead_letters::{LetterAnswer, LetterRequest};
pub use reconcile::Reconcile;
use recoverable::Recoverable;
use supervisor::Reconfigure;
pub use supervisor::{OpenStore, Sink};

/// Configuration of a sink actor.
#[derive(Clone, Debug)]
pub struct SinkParams {
    /// Settings of the delivery state machine.
    pub machine: MachineParams,
    /// Transport that sends batches.
    pub transport: Arc<dyn Transport>,
    /// Threads that run delivery attempts, and that read and write the journal and the dead letters.
    pub io: Threads,
    /// Location of the journal; `None` keeps pending events in memory.
    pub place: Option<StorePlace>,
    /// Fence that permits deliveries only while this process is the leader. With a fence, the sink begins in standby,
    /// until a [`Reconcile`] finds the fence open. With `None`, the sink always sends.
    pub fence: Option<Arc<SendFence>>,
}

/// Location and limits of a sink's journal and dead letters.
#[derive(Clone, Debug)]
pub struct StorePlace {
    /// Disk that stores the journal and the dead letters.
    pub disk: Arc<dyn Disk>,
    /// Directory of the sink.
    pub directory: PathBuf,
    /// Size limits of the journal and the dead letters.
    pub limits: StoreLimits,
    /// When journal writes are synced to disk.
    pub fsync: Fsync,
}

/// Delivers pending events without waiting for full batches.
///
/// Answered at the deadline, or earlier if no events are left or the sink is in standby. A sink with a journal also
/// answers earlier if the journal has all events, and the receiver does not answer, refuses them or has asked for a
/// pause.
#[derive(Clone, Copy, Debug)]
pub struct Drain {
    /// Latest time of the answer.
    pub deadline: Instant,
}

/// Result of a [`Drain`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainReport {
    /// Events acknowledged since the request.
    pub delivered: u64,
    /// Undelivered events that are only in memory, and so are lost when the process ends.
    pub left: u64,
    /// Undelivered events in the journal, for the next start.
    pub kept: u64,
}

/// Accepts notifications. Answered when all of them are queued, and on disk if the sink has a journal.
#[derive(Debug)]
pub(in crate::actors) struct AcceptNotifications {
    /// Notifications of one informer, in order.
    pub(in crate::actors) notifications: Vec<Notification>,
    /// Traced change that may be among the notifications.
    pub(in crate::actors) traced: Option<Traced>,
}

impl Message for AcceptNotifications {
    type Result = ();
}

impl Message for Drain {
    type Result = DrainReport;
}

/// Sender waiting for the answer to a message.
#[derive(Debug)]
struct Sender {
    reply: oneshot::Sender<()>,
    /// Tracing span of the message; it ends with the answer.
    _span: Span,
}

/// Delivers to one receiver; see the module.
pub struct SinkActor {
    params: SinkParams,
    state: Recoverable<State>,
    store: Arc<Mutex<Store>>,
    timer: Option<(SpawnHandle, Instant)>,
    /// Number of the current configuration. Outcomes of delivery attempts under earlier configurations are ignored.
    generation: u64,
    /// Whether delivery attempts of an earlier actor or configuration may still run. Until they end, the state machine
    /// begins no new attempt.
    is_waiting: bool,
    /// Marker that exists as long as this actor. Queued work on the store holds a weak reference to it, and does not
    /// begin once the marker is dropped.
    alive: Arc<()>,
    _guard: ExitGuard,
}

/// State that outlives the actor: queued events, running attempts, and senders waiting for answers.
#[derive(Debug)]
pub(in crate::actors) struct State {
    machine: Machine<Sender>,
    attempts: RunningAttempts,
    drains: Vec<Draining>,
}

impl State {
    pub(in crate::actors) fn new(params: &SinkParams, durability: Option<Durability>, rewinds: &Rewinds) -> Self {
        let mut machine = Machine::new(params.machine.clone(), durability, rng::rng());
        machine.share_rewinds(rewinds.clone());
        machine.set_sending(params.fence.is_none());
        Self { machine, attempts: RunningAttempts::default(), drains: Vec::new() }
    }
}

#[derive(Debug)]
struct Draining {
    deadline: Instant,
    delivered_before: u64,
    reply: oneshot::Sender<DrainReport>,
}

/// Immediate or later answer. If the actor dies first, the sender receives an error.
#[derive(Debug)]
pub enum Reply<T> {
    /// Answer that is available.
    Now(T),
    /// Receiver of a later answer.
    Later(oneshot::Receiver<T>),
}

impl<T> Reply<T> {
    /// Returns [`Self::Now`] if the answer is already available, otherwise [`Self::Later`].
    fn from(mut answer: oneshot::Receiver<T>) -> Self {
        answer.try_recv().map_or_else(|_| Self::Later(answer), Self::Now)
    }
}

impl<A: Actor, M: Message<Result = T>, T: 'static> MessageResponse<A, M> for Reply<T> {
    fn handle(self, _: &mut A::Context, tx: Option<OneshotSender<T>>) {
        let Some(tx) = tx else { return };
        match self {
            // The sender may no longer wait.
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
    /// Creates an actor that continues from `state`. Delivery attempts that were in flight are repeated, because their
    /// outcome is unknown.
    pub(in crate::actors) fn new(
        params: SinkParams,
        mut state: Recoverable<State>,
        store: Arc<Mutex<Store>>,
        guard: ExitGuard,
    ) -> Self {
        state.machine.attempt_again(clock::now());
        Self { params, state, store, timer: None, generation: 0, is_waiting: false, alive: Arc::new(()), _guard: guard }
    }

    /// Returns whether this process may send: there is no fence (permission to deliver only as leader), or it is open.
    fn may_send(&self) -> bool {
        self.params.fence.as_ref().is_none_or(|fence| fence.is_open())
    }

    /// Executes the actions of the delivery state machine, answers drain requests, and sets the timer.
    fn pump(&mut self, ctx: &mut Context<Self>) {
        let now = clock::now();
        if self.state.machine.is_sending() && !self.may_send() {
            self.state.machine.set_sending(false);
        }
        while let Some(action) = self.state.machine.next(now) {
            match action {
                // The sender may no longer wait.
                Action::Answer(sender) => drop(sender.reply.send(())),
                Action::Attempt { lane, batch } => self.attempt(lane, batch, ctx),
                Action::Work(work) => self.work(work, ctx),
            }
        }
        let letters = self.state.machine.take_letters();
        if !letters.is_empty() {
            let mut store = self.store.lock();
            let kept = store.push_letters(&letters);
            debug_assert!(kept.is_ok(), "in-memory letters always fit");
            self.params.machine.note_forgotten(store.take_forgotten());
            self.params.machine.health.note_letters(store.state().letters);
        }
        self.answer_drains(now);
        self.state.machine.show();
        self.arm(now, ctx);
    }

    fn attempt(&mut self, lane: LaneId, batch: Arc<[Event]>, ctx: &mut Context<Self>) {
        let transport = Arc::clone(&self.params.transport);
        let span = spans::delivery(&self.params.machine.name, batch.len() as u64, || {
            batch.iter().filter_map(Event::trace_parent)
        });
        let (began, seen_in, traced) = (clock::now(), TraceParent::of(&span), span.clone());
        let fence = self.params.fence.clone();
        // The transport is called inside the task, so that a panic of the transport ends only the task.
        let attempt = self.state.attempts.run(async move {
            match fence {
                None => Some(transport.attempt(batch).await),
                Some(fence) => fence.within(async { transport.attempt(batch).await }).await,
            }
        });
        let attempt = self.params.io.spawn(attempt.instrument(span));
        let generation = self.generation;
        ctx.spawn(attempt.into_actor(self).map(move |outcome, actor, ctx| {
            // Only attempts of an earlier generation are aborted, so their outcome does not matter.
            let outcome = outcome.map_err(broken).and_then(|ended| ended.flatten().ok_or(BrokenAttempt::Fenced));
            let now = clock::now();
            let kind = match &outcome {
                Ok(outcome) => Some(outcome.kind()),
                Err(BrokenAttempt::Panicked(_)) => Some(AttemptOutcome::Broken),
                Err(BrokenAttempt::ShuttingDown | BrokenAttempt::Fenced) => None,
            };
            if let Some(kind) = kind {
                actor.params.machine.health.note_attempt(kind, now.duration_since(began), seen_in);
            }
            if actor.generation != generation {
                return;
            }
            traced.in_scope(|| actor.state.machine.attempted(lane, outcome, now));
            actor.pump(ctx);
        }));
    }

    /// Holds back new delivery attempts until the attempts of an earlier actor or configuration have ended.
    fn await_earlier_attempts(&mut self, ctx: &mut Context<Self>) {
        if self.is_waiting {
            return;
        }
        self.is_waiting = self.state.attempts.any();
        self.state.machine.hold_attempts(self.is_waiting);
        if self.is_waiting {
            let ended = self.state.attempts.clone().ended();
            ctx.spawn(ended.into_actor(self).map(|(), actor, ctx| {
                actor.is_waiting = false;
                actor.state.machine.hold_attempts(false);
                actor.pump(ctx);
            }));
        }
    }

    /// Runs work on the sink's store (journal and dead letters) on a blocking thread.
    ///
    /// If this actor dies, running work completes before the next actor reopens the store. Work that has not begun is
    /// dropped. It must not run later, after newer events of the next actor. No event is lost: its sender has no answer
    /// yet and sends it again.
    fn work(&mut self, work: Work, ctx: &mut Context<Self>) {
        let (store, alive) = (Arc::clone(&self.store), Arc::downgrade(&self.alive));
        let done = self.params.io.spawn_blocking(move || {
            let mut store = store.lock();
            (alive.strong_count() > 0).then(|| store.run(work))
        });
        ctx.spawn(done.into_actor(self).map(|done, actor, ctx| {
            match done.map_err(broken) {
                Ok(Some(done)) => actor.state.machine.work_done(done, clock::now()),
                // Only the work of a dead actor is dropped.
                Ok(None) | Err(BrokenAttempt::ShuttingDown | BrokenAttempt::Fenced) => return,
                Err(BrokenAttempt::Panicked(panic)) => std::panic::resume_unwind(panic),
            }
            actor.pump(ctx);
        }));
    }

    fn answer_drains(&mut self, now: Instant) {
        if self.state.drains.is_empty() {
            return;
        }
        let machine = &self.state.machine;
        let status = &self.params.machine.health;
        let all = machine.undelivered();
        // In standby, another process delivers the events.
        let left = if machine.is_sending() { machine.at_risk() } else { 0 };
        let (delivered, written) = (status.delivered.load(Relaxed), !machine.is_unwritten());
        // Events in a journal need not wait for a receiver that does not answer, or asked for a pause.
        let is_unavailable = status.is_circuit_open()
            || status.is_disabled()
            || machine.is_waiting_after_refusals()
            || machine.is_paused(now);
        let given_up = self.params.place.is_some() && left == 0 && is_unavailable || !machine.is_sending();
        let kept = if self.params.place.is_some() { all - left } else { 0 };
        let is_over = |drain: &mut Draining| written && (all == 0 || given_up) || drain.deadline <= now;
        for drain in self.state.drains.extract_if(.., is_over) {
            if left > 0 {
                tracing::warn!(
                    sink = %self.params.machine.name, left,
                    "the time to deliver the remaining events of the sink is over; those not in a journal are lost if the process ends"
                );
            }
            let _ = drain.reply.send(DrainReport { delivered: delivered - drain.delivered_before, left, kept });
        }
    }

    /// Sets the timer to the earliest due time. A timer that already runs is replaced only if it would fire later,
    /// because a timer that fires too early is harmless.
    fn arm(&mut self, now: Instant, ctx: &mut Context<Self>) {
        let drain = self.state.drains.iter().map(|drain| drain.deadline).min();
        let Some(wake) = self.state.machine.wake_at(now).into_iter().chain(drain).min() else { return };
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
}

fn broken(join: JoinError) -> BrokenAttempt {
    join.try_into_panic().map_or(BrokenAttempt::ShuttingDown, BrokenAttempt::Panicked)
}

impl fmt::Debug for SinkActor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SinkActor").field("name", &self.params.machine.name).finish_non_exhaustive()
    }
}

impl Actor for SinkActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        ctx.set_mailbox_capacity(MAILBOX);
        self.await_earlier_attempts(ctx);
        self.pump(ctx);
    }

    fn stopped(&mut self, _: &mut Context<Self>) {
        let left = self.state.machine.at_risk();
        if left > 0 && self.state.machine.is_sending() {
            tracing::warn!(
                sink = %self.params.machine.name, left,
                "sink stopped; events that are neither delivered nor in a journal are lost"
            );
        }
    }
}

impl Handler<AcceptNotifications> for SinkActor {
    type Result = Reply<()>;

    fn handle(
        &mut self,
        AcceptNotifications { notifications, traced }: AcceptNotifications,
        ctx: &mut Context<Self>,
    ) -> Reply<()> {
        let (reply, answer) = oneshot::channel();
        let span = spans::stage("sink", traced.as_ref());
        let traced = traced.and_then(|traced| Some((traced, TraceParent::of(&span)?)));
        let sender = Sender { reply, _span: span };
        self.state.machine.ingest(IncomingBatch { notifications, traced }, clock::wall(), sender, clock::now());
        self.pump(ctx);
        Reply::from(answer)
    }
}

impl Handler<Drain> for SinkActor {
    type Result = Reply<DrainReport>;

    fn handle(&mut self, Drain { deadline }: Drain, ctx: &mut Context<Self>) -> Reply<DrainReport> {
        let (reply, answer) = oneshot::channel();
        let delivered_before = self.params.machine.health.delivered.load(Relaxed);
        self.state.drains.push(Draining { deadline, delivered_before, reply });
        self.state.machine.flush(deadline, clock::now());
        self.pump(ctx);
        Reply::from(answer)
    }
}

impl Handler<Reconfigure> for SinkActor {
    type Result = ();

    fn handle(&mut self, Reconfigure(params): Reconfigure, ctx: &mut Context<Self>) {
        self.generation += 1;
        self.state.machine.reconfigure(params.machine.clone(), clock::now());
        self.params = params;
        self.await_earlier_attempts(ctx);
        self.pump(ctx);
    }
}

#[cfg(test)]
mod tests;
