//! The fifo: what waits between a reflector and its processor.
//!
//! Back-pressure: `Enqueue` is answered when there is room again, and a reflector has one `Enqueue` in flight. The
//! processor gets one batch at a time, so that a backlog travels in hundreds and a lone change at once.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use actix::prelude::*;
use tokio::sync::oneshot;

use super::capacity::{MAILBOX, PROCESS_BATCH};
use super::messages::{Enqueue, Process, Stop};
use super::supervision::{ExitGuard, ExitStatus};
use crate::cache::DeltaFifo;
use crate::types::InformerHealth;

/// See the module.
pub(super) struct FifoActor {
    fifo: DeltaFifo,
    processor: Recipient<Process>,
    health: Arc<InformerHealth>,
    busy: bool,
    stopping: bool,
    waiting: Vec<oneshot::Sender<()>>,
    stopped: Vec<oneshot::Sender<()>>,
    guard: ExitGuard,
}

impl FifoActor {
    pub(super) fn new(
        limit: usize,
        processor: Recipient<Process>,
        health: Arc<InformerHealth>,
        guard: ExitGuard,
    ) -> Self {
        let fifo = DeltaFifo::new(limit);
        Self { fifo, processor, health, busy: false, stopping: false, waiting: Vec::new(), stopped: Vec::new(), guard }
    }

    fn pump(&mut self, ctx: &mut Context<Self>) {
        self.health.fifo_bytes.store(self.fifo.bytes() as u64, Relaxed);
        self.health.fifo_keys.store(self.fifo.len() as u64, Relaxed);
        if !self.fifo.is_full() {
            self.waiting.clear();
        }
        if self.busy {
            return;
        }
        let batch = self.fifo.pop(PROCESS_BATCH);
        if batch.is_empty() {
            if self.stopping {
                ctx.stop();
            }
            return;
        }
        self.busy = true;
        ctx.spawn(self.processor.send(Process(batch)).into_actor(self).map(|processed, act, ctx| {
            act.busy = false;
            if processed.is_err() {
                act.guard.set(ExitStatus::Orphaned);
                return ctx.stop();
            }
            act.pump(ctx);
        }));
    }
}

impl Actor for FifoActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX);
    }

    fn stopped(&mut self, _ctx: &mut Self::Context) {
        self.waiting.clear();
        self.stopped.clear();
    }
}

impl Handler<Enqueue> for FifoActor {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, Enqueue(changes): Enqueue, ctx: &mut Self::Context) -> Self::Result {
        for change in changes {
            self.fifo.push(change);
        }
        self.pump(ctx);
        if !self.fifo.is_full() {
            return Box::pin(std::future::ready(()));
        }
        let (room, waiting) = oneshot::channel();
        self.waiting.push(room);
        Box::pin(async move {
            // An error means that the fifo is gone; the reflector learns that with its next message.
            let _ = waiting.await;
        })
    }
}

impl Handler<Stop> for FifoActor {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, stop: Stop, ctx: &mut Self::Context) -> Self::Result {
        let (stopped, waiting) = oneshot::channel();
        self.stopped.push(stopped);
        self.stopping = true;
        if stop.drain {
            self.pump(ctx);
        } else {
            ctx.stop();
        }
        Box::pin(async move {
            let _ = waiting.await;
        })
    }
}

#[cfg(test)]
impl Handler<super::tests::Crash> for FifoActor {
    type Result = ();

    fn handle(&mut self, crash: super::tests::Crash, _ctx: &mut Self::Context) {
        crash.strike(super::tests::Victim::Fifo);
    }
}
