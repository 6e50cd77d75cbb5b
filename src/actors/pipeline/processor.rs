//! Processor actor: applies a batch to the store, then notifies the listeners. One batch at a time.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use actix::AtomicResponse;
use actix::prelude::*;
use litemap::LiteMap;
use tracing::Span;

use crate::actors::cache::messages::{AppliedBatch, Apply, Maintain, TakeSnapshot};
use crate::actors::cache::write_half::Lease;
use crate::actors::cache::write_half::{Direct, SharedWriteHalf, WrittenBatch};
use crate::actors::env::Env;
use crate::actors::pipeline::messages::{Enqueue, Join, Leave, Process, Stop, Wake};
use crate::actors::runtime::capacity::CONTROL_MAILBOX;
use crate::actors::runtime::supervision::{ExitGuard, ExitStatus};
use crate::actors::subscribe::inbox::Inbox;
use crate::actors::subscribe::user::SubscriptionId;
use crate::cache::{Applied, ListenerQueue, Outbox, PartitionId, Popped, ResyncSchedule};
use informer_hub_telemetry::spans;
use informer_hub_types::clock;
use informer_hub_types::{Change, Delta, DeltaKind, InformerHealth, ResourceVersion, SampledChange};

/// Access of a processor to its cache partition.
#[derive(Clone)]
pub(in crate::actors) struct CachePort {
    pub(in crate::actors) apply: Recipient<Apply>,
    pub(in crate::actors) snapshot: Recipient<TakeSnapshot>,
    pub(in crate::actors) maintain: Recipient<Maintain>,
    pub(in crate::actors) write_half: SharedWriteHalf,
    pub(in crate::actors) partition: PartitionId,
    pub(in crate::actors) lease: Lease,
}

struct JoinedListener {
    inbox: Arc<Inbox>,
    listener: Recipient<Wake>,
}

impl JoinedListener {
    /// Wakes the listener. A failure is ignored: a full mailbox already holds a wake-up, and the successor of a dead
    /// listener checks the inbox when it starts.
    fn wake(&self) {
        let _ = self.listener.try_send(Wake);
    }
}

/// Applies batches of one informer and notifies its listeners; see the module.
pub(in crate::actors) struct ProcessorActor {
    env: Env,
    cache: CachePort,
    health: Arc<InformerHealth>,
    listeners: LiteMap<SubscriptionId, JoinedListener>,
    /// Fifo of this informer, to which resyncs are sent; `None` until the fifo has started.
    fifo: Option<Recipient<Enqueue>>,
    resyncs: ResyncSchedule<SubscriptionId>,
    /// Resync timer and its period.
    ticker: Option<(Duration, SpawnHandle)>,
    /// Whether objects of the store are being queued again for a resync.
    resyncing: bool,
    /// Last batch that the previous processor applied before it died. Its listeners may not have been notified.
    undelivered: Option<Outbox>,
    /// Change in the current batch whose latency is measured, and its span.
    followed: Option<(SampledChange, Span)>,
    guard: ExitGuard,
}

impl ProcessorActor {
    pub(in crate::actors) fn new(
        env: Env,
        cache: CachePort,
        health: Arc<InformerHealth>,
        undelivered: Option<Outbox>,
        guard: ExitGuard,
    ) -> Self {
        Self {
            env,
            cache,
            health,
            // Most informers have one listener.
            listeners: LiteMap::with_capacity(1),
            fifo: None,
            resyncs: ResyncSchedule::new(),
            ticker: None,
            resyncing: false,
            undelivered,
            followed: None,
            guard,
        }
    }

    /// Puts a batch into every listener's inbox, without waiting for the listeners.
    fn notify_listeners(&mut self, outbox: &Outbox) {
        let followed = self.followed.take();
        if let (Some((followed, _)), Some(timings)) = (&followed, self.health.timings()) {
            timings.stored.record(clock::now().duration_since(followed.read), None);
        }
        if !self.health.has_synced() && outbox.applied.iter().any(|applied| matches!(applied, Applied::Synced)) {
            self.health.set_synced();
            self.env.sync_changed();
        }
        for (subscription, target) in &self.listeners {
            // An empty batch still advances the batch number.
            target.inbox.offer(outbox.number, &outbox.applied, self.resyncs.is_due(subscription));
            if !outbox.applied.is_empty() {
                if let Some((followed, _)) = &followed {
                    target.inbox.sample_latency(followed.clone());
                }
                target.wake();
            }
        }
    }

    /// Notifies the listeners of a batch that was written to the store directly, without a message to the cache actor.
    /// If `written` is `None`, the processor may no longer write to its partition, and stops.
    fn applied_directly(&mut self, written: Option<WrittenBatch>, ctx: &mut Context<Self>) {
        let Some(WrittenBatch { outbox, objects, maintain }) = written else { return self.orphaned(ctx) };
        self.health.objects.store(objects, Relaxed);
        self.notify_listeners(&outbox);
        if maintain {
            // If the mailbox is full, the next batch triggers the same work.
            let _ = self.cache.maintain.try_send(Maintain);
        }
    }

    /// Sends a batch to the cache actor, and completes once the batch is applied. If compression lags behind, also
    /// waits until it has caught up.
    ///
    /// Used for batches that the processor may not write to the store directly: large batches, and any batch while
    /// another write runs or compression lags.
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
                act.notify_listeners(&outbox);
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

    /// Sets the resync timer to the period that the listeners' schedule requires.
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

    /// Queues every object of the store again for the listeners whose resync is due.
    fn resync(&mut self, ctx: &mut Context<Self>) {
        // A paused informer does not resync.
        let Some(fifo) = self.fifo.clone().filter(Recipient::connected) else { return };
        let under_way = self.resyncing || self.health.fifo_changes.load(Relaxed) > 0;
        if !self.resyncs.tick(clock::now(), under_way) {
            return;
        }
        self.resyncing = true;
        let partition = self.cache.partition;
        let snapshot = self.cache.snapshot.clone();
        let resync_all = async move {
            let Ok(snapshot) = snapshot.send(TakeSnapshot).await else { return false };
            let Some(partition) = snapshot.partition(partition) else { return false };
            let sync = |object: &Arc<_>| Change::Delta(Delta { kind: DeltaKind::Sync, object: Arc::clone(object) });
            let objects: Vec<_> = partition.iter().map(sync).collect();
            for chunk in objects.chunks(crate::actors::runtime::capacity::ENQUEUE_BATCH) {
                // The informer supervises the fifo: it may have stopped it on purpose.
                if fifo.send(Enqueue { changes: chunk.to_vec(), followed: None }).await.is_err() {
                    break;
                }
            }
            true
        };
        ctx.spawn(resync_all.into_actor(self).map(|resynced, act, ctx| {
            act.resyncing = false;
            if !resynced {
                act.orphaned(ctx);
            }
        }));
    }

    /// Stops because cache, partition or fifo is gone; the informer's supervisor restarts the pipeline.
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
        if let Some(undelivered) = self.undelivered.take() {
            self.notify_listeners(&undelivered);
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
            Direct::Deferred(batch, version) => AtomicResponse::new(self.apply_by_message(batch, version)),
        }
    }
}

impl Handler<Join> for ProcessorActor {
    type Result = ();

    /// Adds a listener, which gets the objects of the published snapshot first. No batch is being applied meanwhile, so
    /// the next batch continues exactly from that snapshot. Nothing is awaited, so joining does not delay batches.
    fn handle(&mut self, join: Join, ctx: &mut Self::Context) {
        let id = self.cache.partition;
        let Join { subscription, listener, inbox, options, reader, resync } = join;
        if !inbox.has_joined(id) {
            let snapshot = self.cache.write_half.published().load_full();
            let Some(partition) = snapshot.partition(id) else { return self.orphaned(ctx) };
            let merge_above = self.env.tuning.merge_above;
            inbox.join(id, ListenerQueue::for_reader(reader.as_deref(), options, partition, merge_above));
        }
        // The previous processor may have died before it put its last batch into this inbox.
        if let Some(undelivered) = &self.undelivered {
            inbox.offer(undelivered.number, &undelivered.applied, false);
        }
        let target = JoinedListener { inbox, listener };
        target.wake();
        self.listeners.insert(subscription, target);
        self.resyncs.join(subscription, resync, clock::now());
        self.rearm_resync(ctx);
    }
}

/// Gives a processor the fifo of its informer, to which it sends resyncs.
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
