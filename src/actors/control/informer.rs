//! Informer actor: supervises one pipeline (processor, fifo, reflector; `rest_for_one`) and its listeners.
//!
//! The processor starts first and the reflector last; they stop in reverse order. A listener that dies is restarted
//! alone, with its queue. The cache partition outlives the pipeline. A restarted pipeline lists and compares with the
//! partition, so events in flight are neither lost nor delivered twice.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use actix::prelude::*;
use futures::FutureExt;
use futures::future::join_all;
use litemap::LiteMap;

use crate::actors::cache::actor::CacheActor;
use crate::actors::cache::messages::{ClosePartition, OpenedPartition};
use crate::actors::cache::write_half::Lease;
use crate::actors::control::messages::{StopInformer, WatchMode};
use crate::actors::env::Env;
use crate::actors::memory::members::{Inboxes, Member, Membership};
use crate::actors::pipeline::fifo::FifoActor;
use crate::actors::pipeline::messages::{Enqueue, Stop};
use crate::actors::pipeline::processor::{CachePort, ProcessorActor, UseFifo};
use crate::actors::pipeline::reflector::{ReflectorActor, ReflectorParts, WatchOutcome};
use crate::actors::runtime::capacity::{CONTROL_MAILBOX, STOP_GRACE};
use crate::actors::runtime::recovery::RecoverySignal;
use crate::actors::runtime::supervision::{
    ChildExited, ChildSpec, Children, Decision, ExitGuard, ExitStatus, RestartIntensity, Supervision, detach, stop_with,
};
use crate::actors::runtime::yield_budget::YieldBudget;
use crate::actors::subscribe::subscription::Subscription;
use crate::actors::subscribe::user::SubscriptionId;
use crate::actors::subscribe::watch_errors::WatchErrors;
use crate::cache::{DeclaredIndex, PartitionId};
use informer_hub_reflector::ListerWatcher;
use informer_hub_types::clock::{self, Instant};
use informer_hub_types::{InformerHealth, MemoryStep, Origin, Phase, ResourceVersion};

mod listeners;
mod memory;
mod transitions;

use listeners::{ListenerChild, join_of};

const CHILDREN: &[ChildSpec] =
    &[ChildSpec { name: "processor" }, ChildSpec { name: "fifo" }, ChildSpec { name: "reflector" }];

/// Restart intensity for the pipeline and the listeners, counted together. Larger than the intensities of the
/// supervisors above: the cluster actor and the registry.
const INTENSITY: RestartIntensity = RestartIntensity { restarts: 5, within: Duration::from_secs(30) };

/// Parameters of an informer actor.
#[derive(Clone)]
pub(in crate::actors) struct InformerParts {
    pub(in crate::actors) origin: Arc<Origin>,
    pub(in crate::actors) health: Arc<InformerHealth>,
    pub(in crate::actors) source: Arc<dyn ListerWatcher>,
    pub(in crate::actors) indexes: Arc<[DeclaredIndex]>,
    /// Fingerprint of the options that decide how objects are decoded; zero if unknown.
    pub(in crate::actors) settings: u64,
    pub(in crate::actors) watch_errors: Arc<WatchErrors>,
    /// Receiver of list and watch outcomes.
    pub(in crate::actors) outcomes: Recipient<WatchOutcome>,
    /// Signal that the cluster answers again, shared with the cluster's other informers.
    pub(in crate::actors) recovery: RecoverySignal,
    /// Whether the informer lists and watches.
    pub(in crate::actors) mode: WatchMode,
    /// Previous origin (resource, API version or cluster labels), whose objects the informer takes over.
    pub(in crate::actors) moved_from: Option<Arc<Origin>>,
}

#[derive(Default)]
struct Pipeline {
    processor: Option<Addr<ProcessorActor>>,
    fifo: Option<Addr<FifoActor>>,
    reflector: Option<Addr<ReflectorActor>>,
}

/// Supervises one informer's pipeline and listeners; see the module.
pub(in crate::actors) struct InformerActor {
    env: Env,
    parts: InformerParts,
    cache: Addr<CacheActor>,
    partition: Option<(PartitionId, Lease)>,
    /// resourceVersion from which the next reflector may resume its watch; `None` if it must list.
    resume: Option<ResourceVersion>,
    /// New `metadata.generation` of the CRD, if a change of the CRD altered objects without watch events. It is sent
    /// with the next request that opens the partition. `None` once such a request has succeeded.
    converted_by: Option<u64>,
    supervision: Supervision,
    pipeline: Pipeline,
    /// Initial subscriptions; empty once started.
    subscriptions: Vec<Arc<Subscription>>,
    listeners: LiteMap<SubscriptionId, ListenerChild>,
    next_listener: usize,
    /// Applied memory step: how much of the objects is kept.
    step: MemoryStep,
    inboxes: Arc<Inboxes>,
    /// Registration with the memory governor, which enforces the memory limit; set once started.
    membership: Option<Membership>,
    stopping: bool,
    yield_budget: YieldBudget,
    children: Children,
    guard: ExitGuard,
}

impl InformerActor {
    /// Creates an informer that delivers to `subscriptions` from its first batch on. They must include every
    /// subscription that an earlier informer of this partition served. Otherwise such a subscription misses events
    /// until it is added.
    pub(in crate::actors) fn new(
        env: Env,
        parts: InformerParts,
        subscriptions: Vec<Arc<Subscription>>,
        guard: ExitGuard,
    ) -> Self {
        let cache = env.caches.of_origin(&parts.origin);
        let step = parts.health.memory.step();
        Self {
            env,
            parts,
            cache,
            partition: None,
            resume: None,
            converted_by: None,
            supervision: Supervision::new(CHILDREN, INTENSITY),
            pipeline: Pipeline::default(),
            listeners: LiteMap::with_capacity(subscriptions.len()),
            subscriptions,
            next_listener: CHILDREN.len(),
            step,
            inboxes: Arc::default(),
            membership: None,
            stopping: false,
            yield_budget: YieldBudget::default(),
            children: Children::new(),
            guard,
        }
    }

    fn join_budget(&mut self, ctx: &mut Context<Self>) {
        self.membership = Some(self.env.budget.join(Member {
            origin: Arc::clone(&self.parts.origin),
            health: Arc::clone(&self.parts.health),
            address: ctx.address().recipient(),
            inboxes: Arc::clone(&self.inboxes),
        }));
    }

    /// Starts the listeners and the pipeline.
    fn begin(&mut self, ctx: &mut Context<Self>) {
        for subscription in std::mem::take(&mut self.subscriptions) {
            let child = self.start_listener(subscription, ctx);
            self.listeners.insert(child.subscription.id, child);
        }
        self.start_pipeline(ctx);
    }

    /// Starts the pipeline: opens the partition, starts the processor, adds the listeners to it, then starts fifo and
    /// reflector.
    fn start_pipeline(&mut self, ctx: &mut Context<Self>) {
        self.cache = self.env.caches.of_origin(&self.parts.origin);
        let open = self.open_partition();
        let opening = self.cache.send(open).into_actor(self).map(|opened, act, ctx| {
            if let Ok(opened) = opened {
                act.start_children(&opened, ctx);
            } else {
                let generation = act.supervision.begin(0);
                act.on_failure(ChildExited { child: 0, generation, status: ExitStatus::Orphaned }, ctx);
            }
        });
        ctx.wait(opening);
    }

    fn start_children(&mut self, opened: &OpenedPartition, ctx: &mut Context<Self>) {
        (self.partition, self.converted_by) = (Some((opened.id, opened.lease)), None);
        self.step = opened.step;
        self.resume.clone_from(&opened.resume);
        if self.step == MemoryStep::Released {
            return self.show_paused();
        }
        let cache = CachePort {
            apply: self.cache.clone().recipient(),
            snapshot: self.cache.clone().recipient(),
            maintain: self.cache.clone().recipient(),
            write_half: opened.write_half.clone(),
            partition: opened.id,
            lease: opened.lease,
        };
        let guard = self.guard_for(0, ctx);
        let health = Arc::clone(&self.parts.health);
        let processor = ProcessorActor::new(self.env.clone(), cache, health, opened.outbox.clone(), guard);
        let processor = self.start_child(processor);
        let joins: Vec<_> = self.listeners.values().map(|child| processor.send(join_of(child))).collect();
        self.pipeline.processor = Some(processor);
        // The listeners must join before the first batch reaches the processor.
        ctx.wait(join_all(joins).into_actor(self).map(|_, act, ctx| act.start_from(1, ctx)));
    }

    /// Starts fifo (child 1) and reflector (child 2), or only the reflector if `first` is 2. Starts neither while the
    /// informer is idle or paused.
    fn start_from(&mut self, first: usize, ctx: &mut Context<Self>) {
        let Some(processor) = self.pipeline.processor.clone() else { return };
        if self.parts.mode != WatchMode::Active {
            return self.show_idle();
        }
        if !self.step.watches() {
            return self.show_paused();
        }
        if first <= 1 {
            let guard = self.guard_for(1, ctx);
            let health = Arc::clone(&self.parts.health);
            let fifo = FifoActor::new(self.env.tuning.fifo_bytes, processor.clone().recipient(), health, guard);
            let fifo = self.start_child(fifo);
            let use_fifo = processor.send(UseFifo(fifo.clone().recipient()));
            ctx.spawn(use_fifo.map(|_| ()).into_actor(self));
            self.pipeline.fifo = Some(fifo);
        }
        let Some(fifo) = &self.pipeline.fifo else { return };
        let parts = ReflectorParts {
            origin: Arc::clone(&self.parts.origin),
            health: Arc::clone(&self.parts.health),
            source: Arc::clone(&self.parts.source),
            fifo: fifo.clone().recipient::<Enqueue>(),
            options: self.env.tuning.reflector.clone(),
            resume: self.resume.take(),
            watch_errors: Arc::clone(&self.parts.watch_errors),
            outcomes: self.parts.outcomes.clone(),
            handlers: self.env.handlers.clone(),
            budget: self.env.budget.clone(),
            recovery: self.parts.recovery.clone(),
            rewinds: self.env.rewinds.clone(),
        };
        let reflector = ReflectorActor::new(parts, self.guard_for(2, ctx));
        self.pipeline.reflector = Some(self.start_child(reflector));
    }

    /// Starts an actor on this thread that stops with this actor.
    fn start_child<A: Actor<Context = Context<A>>>(&self, child: A) -> Addr<A> {
        let token = self.children.token();
        A::create(move |ctx| {
            // The child may set another capacity.
            ctx.set_mailbox_capacity(CONTROL_MAILBOX);
            stop_with(&token, ctx);
            child
        })
    }

    /// Returns the guard that reports the exit of a child that is about to be started. From now on, exits of earlier
    /// instances of this child are ignored.
    fn guard_for(&mut self, child: usize, ctx: &mut Context<Self>) -> ExitGuard {
        let generation = self.supervision.begin(child);
        ExitGuard::new(child, generation, Some(&ctx.address().recipient()), &self.env.actor_count)
    }

    /// Restarts a pipeline actor that has failed, with the actors that depend on it. If actors failed too often, gives
    /// up.
    fn on_failure(&mut self, exited: ChildExited, ctx: &mut Context<Self>) {
        let ChildExited { child, status, .. } = exited;
        let decision = self.supervision.on_exit(exited, clock::now());
        let Origin { cluster, resource, .. } = &*self.parts.origin;
        let name = self.supervision.name(child);
        match decision {
            Decision::Ignore => {}
            Decision::RestartFrom(first) => {
                tracing::warn!(%cluster, resource = %resource.gvr, actor = name, %status,
                    "actor of an informer failed; restarting it and its dependents");
                self.parts.health.restarts.fetch_add(1, Relaxed);
                self.parts.health.set_error(Some(format!("{name} failed ({status}) and was restarted")));
                self.stop_from(first);
                if first == 0 {
                    self.start_pipeline(ctx);
                } else {
                    self.start_from(first, ctx);
                }
            }
            Decision::GiveUp => self.give_up(name, status, ctx),
        }
    }

    /// Stops the informer. The cluster actor, which keeps the subscriptions, restarts or degrades it.
    fn give_up(&mut self, name: &str, status: ExitStatus, ctx: &mut Context<Self>) {
        let Origin { cluster, resource, .. } = &*self.parts.origin;
        tracing::error!(%cluster, resource = %resource.gvr, actor = name, %status,
            "actor of an informer failed too often; stopping the informer");
        self.parts.health.set_error(Some(format!("{name} failed too often ({status})")));
        self.stop_from(0);
        self.guard.set(ExitStatus::GaveUp);
        ctx.stop();
    }

    /// Stops the children from `first` on, last first, without waiting. Later reports of their exits are ignored.
    fn stop_from(&mut self, first: usize) {
        let stop = Stop { drain: false };
        for child in first..CHILDREN.len() {
            self.supervision.begin(child);
        }
        if let Some(reflector) = self.pipeline.reflector.take() {
            detach(reflector.send(stop));
        }
        if let Some(fifo) = self.pipeline.fifo.take_if(|_| first <= 1) {
            detach(fifo.send(stop));
        }
        if let Some(processor) = self.pipeline.processor.take_if(|_| first == 0) {
            detach(processor.send(stop));
        }
    }
}

impl Drop for InformerActor {
    /// Marks a synced informer as stale if it ended without being stopped.
    fn drop(&mut self) {
        if !self.stopping && self.parts.health.has_synced() {
            self.parts.health.set_phase(Phase::Stale);
        }
    }
}

impl Actor for InformerActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(CONTROL_MAILBOX);
        self.join_budget(ctx);
        let moving = self.take_over();
        ctx.wait(moving.map(|(), act, ctx| act.begin(ctx)));
    }

    fn stopping(&mut self, _ctx: &mut Self::Context) -> Running {
        self.stop_from(0);
        for (_, child) in std::mem::take(&mut self.listeners) {
            detach(child.address.send(Stop { drain: false }));
        }
        Running::Stop
    }
}

impl Handler<ChildExited> for InformerActor {
    type Result = ();

    fn handle(&mut self, exited: ChildExited, ctx: &mut Self::Context) {
        if self.stopping {
            return;
        }
        if exited.child >= CHILDREN.len() {
            return self.on_listener_exit(exited, ctx);
        }
        self.on_failure(exited, ctx);
    }
}

impl Handler<StopInformer> for InformerActor {
    type Result = ResponseActFuture<Self, ()>;

    /// Stops the reflector first, so that no more changes are read. Then stops the other children, after delivering
    /// pending events if there is a deadline for that (`drain_until`).
    fn handle(&mut self, stop: StopInformer, _ctx: &mut Self::Context) -> Self::Result {
        self.stopping = true;
        let pipeline = std::mem::take(&mut self.pipeline);
        let drain = stop.drain_until.is_some();
        let drains = |child: &&ListenerChild| drain && (child.subscription.durable || !stop.stays_open);
        let (drained, dropped): (Vec<_>, Vec<_>) = self.listeners.values().partition(drains);
        let address = |child: &ListenerChild| child.address.clone();
        let drained: Vec<_> = drained.into_iter().map(address).collect();
        let dropped: Vec<_> = dropped.into_iter().map(address).collect();
        let work = async move {
            let until = stop.drain_until.unwrap_or_else(|| clock::now() + STOP_GRACE);
            if let Some(reflector) = pipeline.reflector {
                finish_by(until, reflector.send(Stop { drain: false })).await;
            }
            if let Some(fifo) = pipeline.fifo {
                finish_by(until, fifo.send(Stop { drain })).await;
            }
            for listener in dropped {
                detach(listener.send(Stop { drain: false }));
            }
            finish_by(until, join_all(drained.iter().map(|listener| listener.send(Stop { drain: true })))).await;
            if let Some(processor) = pipeline.processor {
                finish_by(until, processor.send(Stop { drain: false })).await;
            }
        };
        let closing = move |act: &Self| {
            let (partition, lease) = act.partition.filter(|_| !stop.stays_open)?;
            Some(act.cache.send(ClosePartition { partition, lease }))
        };
        Box::pin(work.into_actor(self).then(move |(), act, _| {
            let closing = closing(act);
            async move {
                if let Some(closing) = closing {
                    let _ = closing.await;
                }
            }
            .into_actor(act)
            .map(|(), act, ctx| {
                act.parts.health.set_phase(Phase::Stopped);
                ctx.stop();
            })
        }))
    }
}

/// Waits until `work` completes or the deadline passes.
async fn finish_by<T>(until: Instant, work: impl Future<Output = T>) {
    // Late children are stopped when their supervisor is dropped.
    let _ = tokio::time::timeout_at(until, work).await;
}

#[cfg(test)]
impl Handler<crate::actors::tests::Crash> for InformerActor {
    type Result = ();

    fn handle(&mut self, crash: crate::actors::tests::Crash, _ctx: &mut Self::Context) {
        crash.strike(crate::actors::tests::Victim::Informer);
        let Pipeline { processor, fifo, reflector } = &self.pipeline;
        let send = |victim: Option<Recipient<crate::actors::tests::Crash>>| {
            if let Some(victim) = victim {
                detach(victim.send(crash));
            }
        };
        send(processor.clone().map(Addr::recipient));
        send(fifo.clone().map(Addr::recipient));
        send(reflector.clone().map(Addr::recipient));
        self.listeners.values().for_each(|child| detach(child.address.send(crash)));
    }
}
