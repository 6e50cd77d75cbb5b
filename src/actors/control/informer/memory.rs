//! How an informer keeps less of its objects, and more again.
//!
//! Heads: the partition drops bodies; all else goes on. Paused: reflector and fifo stop, as they do when they die, and
//! what happens meanwhile is found by the next list. Released: the partition is closed and an empty one is opened in its
//! place, so that answers say that this cluster's objects are missing; subscriptions begin anew with what comes.

use std::sync::atomic::Ordering::Relaxed;

use actix::prelude::*;

use crate::actors::cache::messages::{ClosePartition, KeepStep, OpenPartition};
use crate::actors::control::informer::{CHILDREN, InformerActor, by};
use crate::actors::memory::budget::TakeStep;
use crate::actors::pipeline::messages::{Process, Stop};
use crate::actors::runtime::capacity::STOP_GRACE;
use crate::actors::runtime::supervision::detach;
use informer_hub_types::{MemoryStep, Phase, clock};

pub(super) type Waiting = ResponseActFuture<InformerActor, ()>;

impl InformerActor {
    fn take_step(&mut self, ctx: &mut Context<Self>) {
        let to = self.parts.health.memory.step();
        let from = std::mem::replace(&mut self.step, to);
        if self.stopping || from == to {
            return;
        }
        let work: Waiting = match (from, to) {
            (_, MemoryStep::Released) => self.release(),
            (_, MemoryStep::Paused) => Box::pin(self.stop_intake(false).map(|(), act, _| act.show_paused())),
            (MemoryStep::Released, _) => {
                return self.start_pipeline(ctx);
            }
            (MemoryStep::Paused, _) => Box::pin(self.keep(to).map(|(), act, ctx| act.start_from(1, ctx))),
            // The bodies that are not there come with a list.
            _ if to.keeps_bodies() && !from.keeps_bodies() => {
                let stopping = self.stop_intake(false);
                let keeping = stopping.then(move |(), act, _| act.keep(to));
                Box::pin(keeping.map(|(), act, ctx| act.start_from(1, ctx)))
            }
            _ => self.keep(to),
        };
        // Whatever else comes is done after it.
        ctx.wait(work);
    }

    /// Has the cache keep so much.
    fn keep(&mut self, step: MemoryStep) -> Waiting {
        let keeping = self.partition.map(|(partition, lease)| self.cache.send(KeepStep { partition, lease, step }));
        let processor = self.pipeline.processor.clone().filter(|_| step != MemoryStep::Full);
        let keeping = async move {
            if let Some(keeping) = keeping {
                // A cache that is gone has its successor told when the partition is opened there.
                let _ = keeping.await;
            }
            if let Some(processor) = processor {
                // Publishes what a list under way has staged, which is memory that readers have no use of.
                detach(processor.send(Process { batch: Vec::new(), version: None, followed: None }));
            }
        };
        Box::pin(keeping.into_actor(self))
    }

    /// Stops what takes objects in, and waits for that: what is late would say of itself that it watches. With `drain`, what
    /// it has read goes on to the store first.
    pub(super) fn stop_intake(&mut self, drain: bool) -> Waiting {
        for child in 1..CHILDREN.len() {
            self.supervision.begin(child);
        }
        let (reflector, fifo) = (self.pipeline.reflector.take(), self.pipeline.fifo.take());
        let work = async move {
            let until = clock::now() + STOP_GRACE;
            if let Some(reflector) = reflector {
                by(until, reflector.send(Stop { drain: false })).await;
            }
            if let Some(fifo) = fifo {
                by(until, fifo.send(Stop { drain })).await;
            }
        };
        Box::pin(work.into_actor(self))
    }

    pub(super) fn show_paused(&self) {
        self.parts.health.set_phase(Phase::Paused);
    }

    fn release(&mut self) -> Waiting {
        let stopping = self.stop_intake(false);
        Box::pin(stopping.then(|(), act, _| {
            act.supervision.begin(0);
            let processor = act.pipeline.processor.take().map(|processor| processor.send(Stop { drain: false }));
            let closing =
                act.partition.take().map(|(partition, lease)| act.cache.send(ClosePartition { partition, lease }));
            let opening = act.cache.send(act.open_partition());
            let work = async move {
                if let Some(processor) = processor {
                    by(clock::now() + STOP_GRACE, processor).await;
                }
                if let Some(closing) = closing {
                    let _ = closing.await;
                }
                opening.await.ok()
            };
            work.into_actor(act).map(|opened, act, _| {
                act.partition = opened.map(|opened| (opened.id, opened.lease));
                act.forget();
            })
        }))
    }

    /// Shows that nothing is known any more.
    fn forget(&self) {
        self.parts.source.trim();
        let health = &self.parts.health;
        health.set_unsynced();
        health.objects.store(0, Relaxed);
        health.fifo_keys.store(0, Relaxed);
        health.fifo_bytes.store(0, Relaxed);
        self.show_paused();
        self.env.sync_changed();
    }

    pub(super) fn open_partition(&self) -> OpenPartition {
        OpenPartition {
            origin: self.parts.origin.clone(),
            health: self.parts.health.clone(),
            indexes: self.parts.indexes.clone(),
            settings: self.parts.settings,
        }
    }
}

impl Handler<TakeStep> for InformerActor {
    type Result = ();

    fn handle(&mut self, _: TakeStep, ctx: &mut Self::Context) {
        self.take_step(ctx);
    }
}
