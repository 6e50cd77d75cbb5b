//! The actor of one sink: takes notifications in, lets batches out, and keeps its senders waiting while it is full.
//!
//! It drives one [`Machine`], which decides: the actor starts attempts on the I/O runtime, has the store write and read
//! on a thread that may block, hears of their outcome, and keeps the one timer.
//!
//! # Back-pressure
//! The answer to a message with notifications comes when all of them are in the queue, and on disk where the sink has a journal. A
//! sender must wait for it before it sends again; what it holds meanwhile, it coalesces. So the sink holds at most one
//! message per sender beside its queue.

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
    Action, AttemptOutcome, BrokenAttempt, Durability, Event, Intake, LaneId, Machine, MachineParams, Store,
    StoreLimits, Transport, Work,
};
use informer_hub_telemetry::spans;
use informer_hub_types::clock::{self, Instant};
use informer_hub_types::{Fsync, Notification, Threads, TraceParent, Traced, rng};

mod estate;
mod letters;
mod supervisor;

use estate::Estate;
pub use letters::{LetterAnswer, LetterRequest};
use supervisor::Reconfigure;
pub use supervisor::{OpenStore, Sink};

/// What a sink is built from.
#[derive(Clone, Debug)]
pub struct SinkParams {
    /// What the sink does.
    pub machine: MachineParams,
    /// How batches leave the process.
    pub transport: Arc<dyn Transport>,
    /// Where attempts run.
    pub io: Threads,
    /// Where its journal is; `None`: what is pending is in memory.
    pub place: Option<StorePlace>,
}

/// Where a sink's journal and dead letters are.
#[derive(Clone, Debug)]
pub struct StorePlace {
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// The sink's own directory.
    pub directory: PathBuf,
    /// How large they may grow.
    pub limits: StoreLimits,
    /// When they are synced.
    pub fsync: Fsync,
}

/// Deliver what is pending, without waiting for more. Answered when nothing is left, when the time is over, or, by a
/// sink with a journal, when everything is written and its receiver does not answer.
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
    /// Events that are still pending, or are waiting to be taken in, and are in memory alone.
    pub left: u64,
    /// Events that are pending in the journal, for the next start.
    pub kept: u64,
}

/// Takes notifications in; answered when there is room for more, and all of these are safe where the sink has a journal.
#[derive(Debug)]
pub(in crate::actors) struct TakeIn {
    /// Of one informer, in their order.
    pub(in crate::actors) notifications: Vec<Notification>,
    /// A change that has a trace, and may be one of them.
    pub(in crate::actors) traced: Option<Traced>,
}

impl Message for TakeIn {
    type Result = ();
}

impl Message for Drain {
    type Result = DrainReport;
}

/// Who waits for the answer to a message.
#[derive(Debug)]
struct Sender {
    reply: oneshot::Sender<()>,
    /// From the message to its answer.
    _span: Span,
}

/// The actor.
pub struct SinkActor {
    params: SinkParams,
    state: Estate<State>,
    store: Arc<Mutex<Store>>,
    timer: Option<(SpawnHandle, Instant)>,
    /// Counts its configurations: what comes of an attempt of an earlier one says nothing any more.
    generation: u64,
    _guard: ExitGuard,
}

/// What must not die with the actor: what is to be delivered, and who waits for an answer.
#[derive(Debug)]
pub(in crate::actors) struct State {
    machine: Machine<Sender>,
    drains: Vec<Draining>,
}

impl State {
    pub(in crate::actors) fn new(params: &SinkParams, durability: Option<Durability>) -> Self {
        let machine = Machine::new(params.machine.clone(), durability, rng::rng());
        Self { machine, drains: Vec::new() }
    }
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

impl<T> Reply<T> {
    /// What is there already, or will come.
    fn from(mut answer: oneshot::Receiver<T>) -> Self {
        answer.try_recv().map_or_else(|_| Self::Later(answer), Self::Now)
    }
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
    pub(in crate::actors) fn new(
        params: SinkParams,
        mut state: Estate<State>,
        store: Arc<Mutex<Store>>,
        guard: ExitGuard,
    ) -> Self {
        state.machine.attempt_again(clock::now());
        Self { params, state, store, timer: None, generation: 0, _guard: guard }
    }

    /// Does what the machine wants done, answers who can be answered, and sets the timer for the rest.
    fn pump(&mut self, ctx: &mut Context<Self>) {
        let now = clock::now();
        while let Some(action) = self.state.machine.next(now) {
            match action {
                // A sender that has gone has nothing to wait for.
                Action::Answer(sender) => drop(sender.reply.send(())),
                Action::Attempt { lane, batch } => self.attempt(lane, batch, ctx),
                Action::Work(work) => self.work(work, ctx),
            }
        }
        let letters = self.state.machine.take_letters();
        if !letters.is_empty() {
            let mut store = self.store.lock();
            let kept = store.push_letters(&letters);
            debug_assert!(kept.is_ok(), "memory does not refuse");
            self.params.machine.health.dead_letters_forgotten.fetch_add(store.take_forgotten(), Relaxed);
            self.params.machine.health.note_letters(store.state().letters);
        }
        self.answer_drains(now);
        self.state.machine.show();
        self.arm(now, ctx);
    }

    fn attempt(&mut self, lane: LaneId, batch: Arc<[Event]>, ctx: &mut Context<Self>) {
        let transport = Arc::clone(&self.params.transport);
        // The call itself is inside the task too, so that a panic in it is the task's.
        let span = spans::delivery(&self.params.machine.name, batch.len() as u64, || {
            batch.iter().filter_map(Event::trace_parent)
        });
        let (began, seen_in, traced) = (clock::now(), TraceParent::of(&span), span.clone());
        let attempt = self.params.io.spawn(async move { transport.attempt(batch).await }.instrument(span));
        let generation = self.generation;
        ctx.spawn(attempt.into_actor(self).map(move |outcome, actor, ctx| {
            let (outcome, now) = (outcome.map_err(broken), clock::now());
            let kind = match &outcome {
                Ok(outcome) => Some(outcome.kind()),
                Err(BrokenAttempt::Panicked(_)) => Some(AttemptOutcome::Broken),
                Err(BrokenAttempt::ShuttingDown) => None,
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

    /// Whatever is under way when this actor dies ends at the store before its successor opens it anew.
    fn work(&mut self, work: Work, ctx: &mut Context<Self>) {
        let store = Arc::clone(&self.store);
        let done = self.params.io.spawn_blocking(move || store.lock().run(work));
        ctx.spawn(done.into_actor(self).map(|done, actor, ctx| {
            match done.map_err(broken) {
                Ok(done) => actor.state.machine.work_done(done, clock::now()),
                Err(BrokenAttempt::ShuttingDown) => return,
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
        let (left, all) = (machine.at_risk(), machine.undelivered());
        let (delivered, written) = (status.delivered.load(Relaxed), !machine.is_unwritten());
        // What is in a journal need not wait for a receiver that is away.
        let is_away = status.is_circuit_open() || status.is_disabled() || machine.is_waiting_after_refusals();
        let given_up = self.params.place.is_some() && left == 0 && is_away;
        let is_over = |drain: &mut Draining| written && (all == 0 || given_up) || drain.deadline <= now;
        for drain in self.state.drains.extract_if(.., is_over) {
            if left > 0 {
                tracing::warn!(sink = %self.params.machine.name, left, "drain is over before everything was delivered");
            }
            let _ =
                drain.reply.send(DrainReport { delivered: delivered - drain.delivered_before, left, kept: all - left });
        }
    }

    /// Keeps one timer, for the earliest thing to do. One that fires too early does no harm, so it is only ever
    /// replaced by an earlier one.
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
        self.pump(ctx);
    }

    fn stopped(&mut self, _: &mut Context<Self>) {
        let left = self.state.machine.at_risk();
        if left > 0 {
            tracing::warn!(sink = %self.params.machine.name, left, "sink stopped with events pending");
        }
    }
}

impl Handler<TakeIn> for SinkActor {
    type Result = Reply<()>;

    fn handle(&mut self, TakeIn { notifications, traced }: TakeIn, ctx: &mut Context<Self>) -> Reply<()> {
        let (reply, answer) = oneshot::channel();
        let span = spans::stage("sink", traced.as_ref());
        let traced = traced.and_then(|traced| Some((traced, TraceParent::of(&span)?)));
        let sender = Sender { reply, _span: span };
        self.state.machine.ingest(Intake { notifications, traced }, clock::wall(), sender, clock::now());
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
        self.state.machine.flush(clock::now());
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
        self.pump(ctx);
    }
}

#[cfg(test)]
mod tests;
