//! The fifo: what waits between a reflector and its processor.
//!
//! Back-pressure: `Enqueue` is answered when there is room again, and a reflector has one `Enqueue` in flight. The
//! processor gets one batch at a time, so that a backlog travels in hundreds and a lone change at once; in bytes a batch is
//! small beside what a cache takes before it has others wait.

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
use informer_hub_types::{Followed, InformerHealth, ResourceVersion};

/// See the module.
pub(in crate::actors) struct FifoActor {
    fifo: DeltaFifo,
    processor: Recipient<Process>,
    health: Arc<InformerHealth>,
    /// The watermark that the processor was told last.
    told: Option<ResourceVersion>,
    /// Whether the last batch ended a list, so that the store may hold much of what the list replaced for a processor that
    /// dies before it has notified the listeners. The next message, empty if need be, has the store release it.
    ended_list: bool,
    /// A change that is followed to its readers: how many keys are to be taken out until it is, and its time here. One at a
    /// time, so that following costs nothing that counts.
    followed: Option<(usize, Followed, Span)>,
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
        let (told, followed, ended_list, busy) = (None, None, false, false);
        Self { fifo, processor, health, told, ended_list, followed, busy, waiting, stopped, guard }
    }

    fn pump(&mut self, ctx: &mut Context<Self>) {
        self.health.fifo_bytes.store(self.fifo.bytes() as u64, Relaxed);
        self.health.fifo_keys.store(self.fifo.len() as u64, Relaxed);
        if !self.fifo.is_full() {
            self.waiting.release();
        }
        if self.busy {
            return;
        }
        let before = self.fifo.len();
        let batch = self.fifo.pop_within(PROCESS_BATCH, PROCESS_BYTES);
        let followed = self.passed(before - self.fifo.len());
        let version = self.fifo.watermark().cloned();
        if batch.is_empty() && (version.is_none() || version == self.told && !self.ended_list) {
            if self.fifo.is_drained() {
                ctx.stop();
            }
            return;
        }
        self.busy = true;
        self.ended_list = matches!(batch.last(), Some(Popped::ReplaceEnd { .. }));
        self.told.clone_from(&version);
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
    /// So many keys have been taken out; gives the change that is followed, if it is among them.
    fn passed(&mut self, keys: usize) -> Option<Followed> {
        let (ahead, ..) = self.followed.as_mut()?;
        *ahead = ahead.saturating_sub(keys);
        self.followed.take_if(|(ahead, ..)| *ahead == 0).map(|(_, followed, _)| followed)
    }

    /// Follows a change that is in the queue by now, unless another one is followed.
    fn follow(&mut self, followed: Option<Followed>) {
        let others = self.followed.as_ref().map(|(_, followed, _)| followed);
        // Where nobody says when, it is now; the time is read only where it is of use.
        let followed = followed.or_else(|| others.is_none().then(|| clock::now().into()));
        if let Some(followed) = followed.filter(|followed| !self.fifo.is_empty() && followed.is_before(others)) {
            let span = spans::stage("fifo", followed.traced.as_ref());
            self.followed = Some((self.fifo.len(), followed, span));
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
