//! Fifo actor: owns the [`DeltaFifo`] between a reflector and its processor.
//!
//! Back-pressure: `Enqueue` is answered when there is room, and a reflector has one `Enqueue` in flight. The processor
//! receives one batch at a time: hundreds of changes if there is a backlog, a single change without delay. A batch is
//! much smaller than the backlog of uncompressed objects at which a cache makes processors wait.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use actix::prelude::*;
use tracing::Span;

use crate::actors::pipeline::messages::{Enqueue, Process, Stop};
use crate::actors::runtime::capacity::{MAILBOX, PROCESS_BATCH, PROCESS_BYTES};
use crate::actors::runtime::supervision::{ExitGuard, ExitStatus};
use crate::actors::runtime::waiters::Waiters;
use crate::cache::{DeltaFifo, Popped};
use informer_hub_telemetry::spans;
use informer_hub_types::clock;
use informer_hub_types::{InformerHealth, ResourceVersion, SampledChange};

/// Queue of one informer; see the module.
pub(in crate::actors) struct FifoActor {
    fifo: DeltaFifo,
    processor: Recipient<Process>,
    health: Arc<InformerHealth>,
    /// Watermark last sent to the processor: the resourceVersion up to which all changes have left the queue.
    sent_watermark: Option<ResourceVersion>,
    /// Whether the last batch sent to the processor ended a list. Until the next batch, the store then keeps the
    /// objects that the list replaced or deleted. A restarted processor can thereby notify its listeners of them.
    ///
    /// So that the store drops these objects, the next batch is sent even if it is empty.
    ended_list: bool,
    /// Change in the queue whose latency is measured; `None` if none is measured. With it, the value of
    /// [`DeltaFifo::departed`] at which it has been popped, and the tracing span. Only one change is measured at a
    /// time, so that the cost is negligible.
    followed: Option<(u64, SampledChange, Span)>,
    busy: bool,
    waiting: Waiters,
    stopped: Waiters,
    guard: ExitGuard,
}

impl FifoActor {
    pub(in crate::actors) fn new(
        limit: usize,
        processor: Recipient<Process>,
        health: Arc<InformerHealth>,
        guard: ExitGuard,
    ) -> Self {
        let fifo = DeltaFifo::new(limit);
        let (waiting, stopped) = (Waiters::default(), Waiters::default());
        let (sent_watermark, followed, ended_list, busy) = (None, None, false, false);
        Self { fifo, processor, health, sent_watermark, ended_list, followed, busy, waiting, stopped, guard }
    }

    fn pump(&mut self, ctx: &mut Context<Self>) {
        self.health.fifo_bytes.store(self.fifo.bytes() as u64, Relaxed);
        self.health.fifo_changes.store(self.fifo.len() as u64, Relaxed);
        if !self.fifo.is_full() {
            self.waiting.release();
        }
        if self.busy {
            return;
        }
        let batch = self.fifo.pop_within(PROCESS_BATCH, PROCESS_BYTES);
        let followed = self.take_followed();
        let version = self.fifo.watermark().cloned();
        if batch.is_empty() && (version.is_none() || version == self.sent_watermark && !self.ended_list) {
            if self.fifo.is_drained() {
                ctx.stop();
            }
            return;
        }
        self.busy = true;
        self.ended_list = matches!(batch.last(), Some(Popped::ReplaceEnd { .. }));
        self.sent_watermark.clone_from(&version);
        ctx.spawn(self.processor.send(Process { batch, version, followed }).into_actor(self).map(
            |processed, act, ctx| {
                act.busy = false;
                if processed.is_err() {
                    act.guard.set(ExitStatus::Orphaned);
                    return ctx.stop();
                }
                act.pump(ctx);
            },
        ));
    }
}

impl FifoActor {
    /// Ends the measurement in the fifo and returns the measured change, once it has been popped; otherwise returns
    /// `None`.
    fn take_followed(&mut self) -> Option<SampledChange> {
        let departed = self.fifo.departed();
        self.followed.take_if(|(end, ..)| *end <= departed).map(|(_, followed, _)| followed)
    }

    /// Begins to measure the latency of the newest change in the queue. `followed` has the timestamps of the change;
    /// with `None`, its latency is measured from now.
    ///
    /// Does nothing while another change is measured. Exception: a change with a trace replaces a change without one.
    fn follow(&mut self, followed: Option<SampledChange>) {
        let others = self.followed.as_ref().map(|(_, followed, _)| followed);
        // Without a timestamp, the current time is used; the clock is read only if needed.
        let followed = followed.or_else(|| others.is_none().then(|| clock::now().into()));
        if let Some(followed) =
            followed.filter(|followed| !self.fifo.is_empty() && followed.takes_precedence_over(others))
        {
            let span = spans::stage("fifo", followed.traced.as_ref());
            self.followed = Some((self.fifo.arrived(), followed, span));
        }
    }
}

impl Actor for FifoActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX);
    }

    fn stopped(&mut self, _ctx: &mut Self::Context) {
        self.waiting.release();
        self.stopped.release();
    }
}

impl Handler<Enqueue> for FifoActor {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, Enqueue { changes, followed }: Enqueue, ctx: &mut Self::Context) -> Self::Result {
        for change in changes {
            self.fifo.push(change);
        }
        self.follow(followed);
        self.pump(ctx);
        if !self.fifo.is_full() {
            return Box::pin(std::future::ready(()));
        }
        self.waiting.wait()
    }
}

impl Handler<Stop> for FifoActor {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, stop: Stop, ctx: &mut Self::Context) -> Self::Result {
        self.fifo.close();
        if stop.drain {
            self.pump(ctx);
        } else {
            ctx.stop();
        }
        self.stopped.wait()
    }
}

#[cfg(test)]
impl Handler<crate::actors::tests::Crash> for FifoActor {
    type Result = ();

    fn handle(&mut self, crash: crate::actors::tests::Crash, _ctx: &mut Self::Context) {
        crash.strike(crate::actors::tests::Victim::Fifo);
    }
}
