//! The processor: store first, then the listeners. One batch at a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use actix::AtomicResponse;
use actix::prelude::*;
use tracing::Span;

use crate::actors::cache::messages::{AppliedBatch, Apply, Attend, TakeSnapshot};
use crate::actors::cache::write_half::Lease;
use crate::actors::cache::write_half::{Direct, SharedWriteHalf, Written};
use crate::actors::env::Env;
use crate::actors::pipeline::messages::{Enqueue, Join, Leave, Process, Stop, Wake};
use crate::actors::runtime::capacity::CONTROL_MAILBOX;
use crate::actors::runtime::supervision::{ExitGuard, ExitStatus};
use crate::actors::subscribe::inbox::Inbox;
use crate::actors::subscribe::user::SubscriptionId;
use crate::cache::{Applied, ListenerQueue, Outbox, PartitionId, Popped, ResyncSchedule};
use informer_hub_telemetry::spans;
use informer_hub_types::clock;
use informer_hub_types::{Change, Delta, DeltaKind, Followed, InformerHealth, ResourceVersion};

/// The cache, as a processor sees it.
#[derive(Clone)]
pub(in crate::actors) struct CachePort {
    pub(in crate::actors) apply: Recipient<Apply>,
    pub(in crate::actors) snapshot: Recipient<TakeSnapshot>,
    pub(in crate::actors) attend: Recipient<Attend>,
    pub(in crate::actors) write_half: SharedWriteHalf,
    pub(in crate::actors) partition: PartitionId,
    pub(in crate::actors) lease: Lease,
}

struct Joined {
    inbox: Arc<Inbox>,
    listener: Recipient<Wake>,
}

impl Joined {
    /// Where that fails, the mailbox is full, and a wake waits in it; or the listener is dead, and its successor looks
    /// into the inbox first of all.
    fn wake(&self) {
        let _ = self.listener.try_send(Wake);
    }
}

/// See the module.
pub(in crate::actors) struct ProcessorActor {
    env: Env,
    cache: CachePort,
    health: Arc<InformerHealth>,
    listeners: BTreeMap<SubscriptionId, Joined>,
    /// Where resyncs are put in line; known once the fifo has started.
    fifo: Option<Recipient<Enqueue>>,
    resyncs: ResyncSchedule<SubscriptionId>,
    /// What ticks for them, and how often.
    ticker: Option<(Duration, SpawnHandle)>,
    /// Whether a pass of resyncs is being put in line.
    repeating: bool,
    /// A batch that was applied before this processor's predecessor died, and may not have been told.
    untold: Option<Outbox>,
    /// A change that is followed, and is in the batch that is told next; and its time here.
    followed: Option<(Followed, Span)>,
    guard: ExitGuard,
}

impl ProcessorActor {
    pub(in crate::actors) fn new(
        env: Env,
        cache: CachePort,
        health: Arc<InformerHealth>,
        untold: Option<Outbox>,
        guard: ExitGuard,
    ) -> Self {
        Self {
            env,
            cache,
            health,
            listeners: BTreeMap::new(),
            fifo: None,
            resyncs: ResyncSchedule::new(),
            ticker: None,
            repeating: false,
            untold,
            followed: None,
            guard,
        }
    }

    /// Puts a batch into every listener's inbox, whose owner may be dead or slow; this waits for nobody.
    fn tell(&mut self, outbox: &Outbox) {
        let followed = self.followed.take();
        if let (Some((followed, _)), Some(timings)) = (&followed, self.health.timings()) {
            timings.stored.record(clock::now().duration_since(followed.read), None);
        }
        if !self.health.has_synced() && outbox.applied.iter().any(|applied| matches!(applied, Applied::Synced)) {
            self.health.set_synced();
            self.env.sync_changed();
        }
        for (subscription, joined) in &self.listeners {
            // Of a batch that changed nothing it is to know that it came.
            joined.inbox.offer(outbox.number, &outbox.applied, self.resyncs.is_due(subscription));
            if !outbox.applied.is_empty() {
                if let Some((followed, _)) = &followed {
                    joined.inbox.follow(followed.clone());
                }
                joined.wake();
            }
        }
    }

    /// A small batch is in the store.
    fn applied_directly(&mut self, written: Option<Written>, ctx: &mut Context<Self>) {
        let Some(Written { outbox, objects, attend }) = written else { return self.orphaned(ctx) };
        self.health.objects.store(objects, Relaxed);
        self.tell(&outbox);
        if attend {
            // Where its mailbox is full, the next batch has it attend.
            let _ = self.cache.attend.try_send(Attend);
        }
    }

    /// The way of a batch that is large, or that finds somebody else writing.
    fn apply_by_message(
        &mut self,
        batch: Vec<Popped>,
        version: Option<ResourceVersion>,
    ) -> ResponseActFuture<Self, ()> {
        let (partition, lease) = (self.cache.partition, self.cache.lease);
        let traced = self.followed.as_ref().and_then(|(followed, _)| followed.traced.as_ref());
        let span = spans::stage("cache", traced);
        let applying = self.cache.apply.send(Apply { partition, lease, batch, version });
        let work = applying.into_actor(self).then(|applied, act, ctx| {
            drop(span);
            let pressure = if let Ok(Some(AppliedBatch { outbox, objects, pressure })) = applied {
                act.health.objects.store(objects, Relaxed);
                act.tell(&outbox);
                pressure
            } else {
                act.orphaned(ctx);
                None
            };
            async move {
                if let Some(pressure) = pressure {
                    pressure.wait().await;
                }
            }
            .into_actor(act)
        });
        Box::pin(work)
    }

    /// Ticks as often as the schedule wants it.
    fn rearm_resync(&mut self, ctx: &mut Context<Self>) {
        let period = self.resyncs.tick_period();
        if self.ticker.map(|(current, _)| current) == period {
            return;
        }
        if let Some((_, timer)) = self.ticker.take() {
            ctx.cancel_future(timer);
        }
        if let Some(period) = period {
            let timer = ctx.run_interval(period, ProcessorActor::resync);
            self.ticker = Some((period, timer));
        }
    }

    /// Puts every object of the store in line once more, for the listeners whose time it is.
    fn resync(&mut self, ctx: &mut Context<Self>) {
        // Nothing is put in line while nothing is taken in.
        let Some(fifo) = self.fifo.clone().filter(Recipient::connected) else { return };
        let under_way = self.repeating || self.health.fifo_keys.load(Relaxed) > 0;
        if !self.resyncs.tick(clock::now(), under_way) {
            return;
        }
        self.repeating = true;
        let partition = self.cache.partition;
        let snapshot = self.cache.snapshot.clone();
        let repeat = async move {
            let Ok(snapshot) = snapshot.send(TakeSnapshot).await else { return false };
            let Some(partition) = snapshot.partition(partition) else { return false };
            let sync = |object: &Arc<_>| Change::Delta(Delta { kind: DeltaKind::Sync, object: Arc::clone(object) });
            let objects: Vec<_> = partition.iter().map(sync).collect();
            for chunk in objects.chunks(crate::actors::runtime::capacity::ENQUEUE_BATCH) {
                if fifo.send(Enqueue { changes: chunk.to_vec(), followed: None }).await.is_err() {
                    return false;
                }
            }
            true
        };
        ctx.spawn(repeat.into_actor(self).map(|repeated, act, ctx| {
            act.repeating = false;
            if !repeated {
                act.orphaned(ctx);
            }
        }));
    }

    /// The cache, the partition or the fifo is gone: this informer's supervisor sets the pipeline up again.
    fn orphaned(&mut self, ctx: &mut Context<Self>) {
        self.guard.set(ExitStatus::Orphaned);
        ctx.stop();
    }
}

impl Actor for ProcessorActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(CONTROL_MAILBOX);
    }
}

impl Handler<Process> for ProcessorActor {
    type Result = AtomicResponse<Self, ()>;

    fn handle(&mut self, process: Process, ctx: &mut Self::Context) -> Self::Result {
        let Process { batch, version, followed } = process;
        if let Some(untold) = self.untold.take() {
            self.tell(&untold);
        }
        self.followed = followed.map(|followed| {
            let span = spans::stage("processor", followed.traced.as_ref());
            (followed, span)
        });
        match self.cache.write_half.apply(self.cache.partition, self.cache.lease, batch, version) {
            Direct::Applied(written) => {
                self.applied_directly(written, ctx);
                AtomicResponse::new(Box::pin(actix::fut::ready(())))
            }
            Direct::NotNow(batch, version) => AtomicResponse::new(self.apply_by_message(batch, version)),
        }
    }
}

impl Handler<Join> for ProcessorActor {
    type Result = ();

    /// No batch is under way here, so what is published is exactly what later offers go on from: no gap, no double. Nor is
    /// anybody waited for, so that listeners that come and go hold up the batches in line behind them as little as can be.
    fn handle(&mut self, join: Join, ctx: &mut Self::Context) {
        let id = self.cache.partition;
        let Join { subscription, listener, inbox, options, reader, resync } = join;
        if !inbox.has_joined(id) {
            let snapshot = self.cache.write_half.published().load_full();
            let Some(partition) = snapshot.partition(id) else { return self.orphaned(ctx) };
            let merge_above = self.env.tuning.merge_above;
            inbox.join(id, ListenerQueue::for_reader(reader.as_deref(), options, partition, merge_above));
        }
        // A batch that a dead processor may not have told of.
        if let Some(untold) = &self.untold {
            inbox.offer(untold.number, &untold.applied, false);
        }
        let joined = Joined { inbox, listener };
        joined.wake();
        self.listeners.insert(subscription, joined);
        self.resyncs.join(subscription, resync, clock::now());
        self.rearm_resync(ctx);
    }
}

/// Tells the processor where resyncs are put in line.
#[derive(Message)]
#[rtype(result = "()")]
pub(in crate::actors) struct UseFifo(pub(in crate::actors) Recipient<Enqueue>);

impl Handler<UseFifo> for ProcessorActor {
    type Result = ();

    fn handle(&mut self, UseFifo(fifo): UseFifo, _ctx: &mut Self::Context) {
        self.fifo = Some(fifo);
    }
}

impl Handler<Leave> for ProcessorActor {
    type Result = ();

    fn handle(&mut self, Leave(subscription): Leave, ctx: &mut Self::Context) {
        self.listeners.remove(&subscription);
        self.resyncs.leave(&subscription);
        self.rearm_resync(ctx);
    }
}

impl Handler<Stop> for ProcessorActor {
    type Result = ();

    fn handle(&mut self, _stop: Stop, ctx: &mut Self::Context) {
        ctx.stop();
    }
}

#[cfg(test)]
impl Handler<crate::actors::tests::Crash> for ProcessorActor {
    type Result = ();

    fn handle(&mut self, crash: crate::actors::tests::Crash, _ctx: &mut Self::Context) {
        crash.strike(crate::actors::tests::Victim::Processor);
    }
}
