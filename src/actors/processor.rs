//! The processor: store first, then the listeners. One batch at a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use actix::AtomicResponse;
use actix::prelude::*;

use super::capacity::MAILBOX;
use super::env::Env;
use super::messages::{AppliedBatch, Apply, Enqueue, Join, Lease, Leave, Offer, Process, Stop, TakeSnapshot};
use super::subscription::SubscriptionId;
use super::supervision::{ExitGuard, ExitStatus};
use crate::cache::{Applied, ListenerQueue, Outbox, PartitionId};
use crate::types::clock::{self, Instant};
use crate::types::{Change, Delta, DeltaKind, InformerHealth};

/// The cache, as a processor sees it.
#[derive(Clone)]
pub(super) struct CachePort {
    pub(super) apply: Recipient<Apply>,
    pub(super) snapshot: Recipient<TakeSnapshot>,
    pub(super) partition: PartitionId,
    pub(super) lease: Lease,
}

struct Joined {
    recipient: Recipient<Offer>,
    resync: Option<Resync>,
}

/// A listener's resyncs, which fall on ticks of the shortest period that any listener asked for.
#[derive(Clone, Copy)]
struct Resync {
    period: Duration,
    next: Instant,
    /// Whether the repetition under way is for this listener too.
    due: bool,
}

/// See the module.
pub(super) struct ProcessorActor {
    env: Env,
    cache: CachePort,
    health: Arc<InformerHealth>,
    listeners: BTreeMap<SubscriptionId, Joined>,
    /// Where resyncs are put in line; known once the fifo has started.
    fifo: Option<Recipient<Enqueue>>,
    resync: Option<(Duration, SpawnHandle)>,
    /// A batch that was applied before this processor's predecessor died, and may not have been told.
    untold: Option<Outbox>,
    guard: ExitGuard,
}

impl ProcessorActor {
    pub(super) fn new(
        env: Env,
        cache: CachePort,
        health: Arc<InformerHealth>,
        untold: Option<Outbox>,
        guard: ExitGuard,
    ) -> Self {
        Self { env, cache, health, listeners: BTreeMap::new(), fifo: None, resync: None, untold, guard }
    }

    /// Tells every listener of a batch. Listeners only put it in their queues, so this does not wait for subscribers.
    fn tell(&self, outbox: Outbox) -> impl Future<Output = Vec<SubscriptionId>> + use<> {
        let Outbox { number, applied } = outbox;
        if !self.health.has_synced() && applied.iter().any(|applied| matches!(applied, Applied::Synced)) {
            self.health.set_synced();
            self.env.sync_changed();
        }
        let due = |joined: &Joined| joined.resync.is_some_and(|resync| resync.due);
        let listeners: Vec<_> =
            self.listeners.iter().map(|(id, joined)| (*id, joined.recipient.clone(), due(joined))).collect();
        async move {
            let mut gone = Vec::new();
            for (id, listener, resync) in listeners {
                let applied = Arc::clone(&applied);
                if listener.send(Offer { number, applied, resync }).await.is_err() {
                    gone.push(id);
                }
            }
            gone
        }
    }

    fn forget(&mut self, gone: Vec<SubscriptionId>) {
        for id in gone {
            if self.listeners.get(&id).is_some_and(|joined| !joined.recipient.connected()) {
                self.listeners.remove(&id);
            }
        }
    }

    /// client-go's minimum rule: resyncs are checked at the shortest period that any listener asked for.
    fn rearm_resync(&mut self, ctx: &mut Context<Self>) {
        let period = self.listeners.values().filter_map(|joined| Some(joined.resync?.period)).min();
        if self.resync.map(|(current, _)| current) == period {
            return;
        }
        if let Some((_, timer)) = self.resync.take() {
            ctx.cancel_future(timer);
        }
        if let Some(period) = period {
            let timer = ctx.run_interval(period, ProcessorActor::resync);
            self.resync = Some((period, timer));
        }
    }

    /// Puts every object of the store in line once more.
    fn resync(&mut self, ctx: &mut Context<Self>) {
        let Some(fifo) = self.fifo.clone() else { return };
        let now = clock::now();
        for resync in self.listeners.values_mut().filter_map(|joined| joined.resync.as_mut()) {
            resync.due = now >= resync.next;
            if resync.due {
                resync.next = now + resync.period;
            }
        }
        let partition = self.cache.partition;
        let snapshot = self.cache.snapshot.clone();
        let repeat = async move {
            let Ok(snapshot) = snapshot.send(TakeSnapshot).await else { return };
            let Some(partition) = snapshot.partition(partition) else { return };
            let sync = |object: &Arc<_>| Change::Delta(Delta { kind: DeltaKind::Sync, object: Arc::clone(object) });
            let objects: Vec<_> = partition.iter().map(sync).collect();
            for chunk in objects.chunks(super::capacity::ENQUEUE_BATCH) {
                if fifo.send(Enqueue(chunk.to_vec())).await.is_err() {
                    return;
                }
            }
        };
        ctx.spawn(repeat.into_actor(self));
    }
}

impl Actor for ProcessorActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX);
    }
}

impl Handler<Process> for ProcessorActor {
    type Result = AtomicResponse<Self, ()>;

    fn handle(&mut self, Process(batch): Process, _ctx: &mut Self::Context) -> Self::Result {
        let untold = self.untold.take().map(|outbox| self.tell(outbox));
        let applying = self.cache.apply.send(Apply { partition: self.cache.partition, lease: self.cache.lease, batch });
        let work = async move {
            if let Some(untold) = untold {
                untold.await;
            }
            applying.await
        };
        let work = work.into_actor(self).then(|applied, act, ctx| {
            let (telling, pressure) = if let Ok(Some(AppliedBatch { outbox, objects, pressure })) = applied {
                act.health.objects.store(objects, Relaxed);
                (Some(act.tell(outbox)), pressure)
            } else {
                // The partition or the cache is gone: this informer's supervisor sets it up again.
                act.guard.set(ExitStatus::Orphaned);
                ctx.stop();
                (None, None)
            };
            async move {
                let gone = match telling {
                    Some(telling) => telling.await,
                    None => Vec::new(),
                };
                if let Some(pressure) = pressure {
                    pressure.wait().await;
                }
                gone
            }
            .into_actor(act)
            .map(|gone, act, _| act.forget(gone))
        });
        AtomicResponse::new(Box::pin(work))
    }
}

impl Handler<Join> for ProcessorActor {
    type Result = AtomicResponse<Self, ()>;

    /// No batch is under way here, so the snapshot is exactly what later offers go on from: no gap, no double.
    fn handle(&mut self, join: Join, _ctx: &mut Self::Context) -> Self::Result {
        let partition = self.cache.partition;
        let snapshot = self.cache.snapshot.send(TakeSnapshot);
        let merge_above = self.env.tuning.merge_above;
        let untold = self.untold.clone();
        let Join { subscription, listener, inbox, options, resync } = join;
        let resync = resync.map(|period| Resync { period, next: clock::now() + period, due: false });
        let joined = Joined { recipient: listener.clone(), resync };
        let work = async move {
            if !inbox.has_joined() {
                let Ok(snapshot) = snapshot.await else { return };
                let Some(partition) = snapshot.partition(partition) else { return };
                inbox.join(ListenerQueue::new(options, partition, merge_above));
            }
            // An offer of nothing wakes it; a batch that a dead processor may not have told of comes along.
            let outbox = untold.unwrap_or(Outbox { number: 0, applied: Arc::new([]) });
            // A listener that is gone is dropped at the next batch.
            let _ = listener.send(Offer { number: outbox.number, applied: outbox.applied, resync: false }).await;
        };
        AtomicResponse::new(Box::pin(work.into_actor(self).map(move |(), act: &mut Self, ctx| {
            act.listeners.insert(subscription, joined);
            act.rearm_resync(ctx);
        })))
    }
}

/// Tells the processor where resyncs are put in line.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct UseFifo(pub(super) Recipient<Enqueue>);

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
impl Handler<super::tests::Crash> for ProcessorActor {
    type Result = ();

    fn handle(&mut self, crash: super::tests::Crash, _ctx: &mut Self::Context) {
        crash.strike(super::tests::Victim::Processor);
    }
}
