//! Memory steps of an informer: how much of its objects it keeps if memory is short.
//!
//! - Packed: the cache compresses all objects immediately; the pipeline continues.
//! - Heads: the partition drops the objects' bodies (JSON or protobuf); the pipeline continues.
//! - Paused: reflector and fifo stop. When they are restarted, a list finds the missed changes.
//! - Released: the partition is closed and replaced by an empty one. Answers then report the cluster's objects as
//!   missing, and subscribers start from scratch.

use std::sync::atomic::Ordering::Relaxed;

use actix::prelude::*;

use crate::actors::cache::messages::{ClosePartition, OpenPartition, SetMemoryStep};
use crate::actors::control::informer::{CHILDREN, InformerActor, finish_by};
use crate::actors::memory::members::MemoryStepChanged;
use crate::actors::pipeline::messages::{Process, Stop};
use crate::actors::runtime::capacity::STOP_GRACE;
use crate::actors::runtime::supervision::detach;
use informer_hub_types::{MemoryStep, Phase, clock};

pub(super) type Pending = ResponseActFuture<InformerActor, ()>;

impl InformerActor {
    fn take_step(&mut self, ctx: &mut Context<Self>) {
        let to = self.parts.health.memory.step();
        let from = std::mem::replace(&mut self.step, to);
        if self.stopping || from == to {
            return;
        }
        let work: Pending = match (from, to) {
            (_, MemoryStep::Released) => self.release(),
            // The step before may have been skipped, so the bodies may still be there.
            (_, MemoryStep::Paused) => Box::pin(self.stop_and_keep(to).map(|(), act, _| act.show_paused())),
            (MemoryStep::Released, _) => {
                return self.start_pipeline(ctx);
            }
            (MemoryStep::Paused, _) => Box::pin(self.keep(to).map(|(), act, ctx| act.start_from(1, ctx))),
            // Missing bodies are restored by a list.
            _ if to.keeps_bodies() && !from.keeps_bodies() => {
                Box::pin(self.stop_and_keep(to).map(|(), act, ctx| act.start_from(1, ctx)))
            }
            _ => self.keep(to),
        };
        // Blocks other messages until the step is applied.
        ctx.wait(work);
    }

    /// Stops reflector and fifo, then sets the partition's memory step.
    fn stop_and_keep(&mut self, step: MemoryStep) -> Pending {
        Box::pin(self.stop_intake(false).then(move |(), act, _| act.keep(step)))
    }

    /// Sets the partition's memory step (how much of the objects is kept) in the cache.
    fn keep(&mut self, step: MemoryStep) -> Pending {
        let keeping =
            self.partition.map(|(partition, lease)| self.cache.send(SetMemoryStep { partition, lease, step }));
        let processor = self.pipeline.processor.clone().filter(|_| step != MemoryStep::Full);
        let keeping = async move {
            if let Some(keeping) = keeping {
                // If the cache has died, its successor reads the step from the health when the partition is opened.
                let _ = keeping.await;
            }
            if let Some(processor) = processor {
                // Makes the processor publish the staged part of a list, which occupies memory that readers cannot use.
                detach(processor.send(Process { batch: Vec::new(), version: None, followed: None }));
            }
        };
        Box::pin(keeping.into_actor(self))
    }

    /// Stops reflector and fifo and waits for them, so that no late report of theirs overwrites the informer's phase.
    /// With `drain`, changes already read reach the store first.
    pub(super) fn stop_intake(&mut self, drain: bool) -> Pending {
        for child in 1..CHILDREN.len() {
            self.supervision.begin(child);
        }
        let (reflector, fifo) = (self.pipeline.reflector.take(), self.pipeline.fifo.take());
        let work = async move {
            let until = clock::now() + STOP_GRACE;
            if let Some(reflector) = reflector {
                finish_by(until, reflector.send(Stop { drain: false })).await;
            }
            if let Some(fifo) = fifo {
                finish_by(until, fifo.send(Stop { drain })).await;
            }
        };
        Box::pin(work.into_actor(self))
    }

    pub(super) fn show_paused(&self) {
        self.parts.health.set_phase(Phase::Paused);
    }

    fn release(&mut self) -> Pending {
        let stopping = self.stop_intake(false);
        Box::pin(stopping.then(|(), act, _| {
            act.supervision.begin(0);
            let processor = act.pipeline.processor.take().map(|processor| processor.send(Stop { drain: false }));
            let closing =
                act.partition.take().map(|(partition, lease)| act.cache.send(ClosePartition { partition, lease }));
            let open = act.open_partition();
            let opening = act.cache.send(open);
            let work = async move {
                if let Some(processor) = processor {
                    finish_by(clock::now() + STOP_GRACE, processor).await;
                }
                if let Some(closing) = closing {
                    let _ = closing.await;
                }
                opening.await.ok()
            };
            work.into_actor(act).map(|opened, act, _| {
                act.partition = opened.map(|opened| (opened.id, opened.lease));
                if act.partition.is_some() {
                    act.converted_by = None;
                }
                act.forget();
            })
        }))
    }

    /// Clears counters and sync state after the partition was released, i.e. its objects were dropped to free memory.
    fn forget(&self) {
        self.parts.source.trim();
        let health = &self.parts.health;
        health.set_unsynced();
        health.objects.store(0, Relaxed);
        health.fifo_changes.store(0, Relaxed);
        health.fifo_bytes.store(0, Relaxed);
        self.show_paused();
        self.env.sync_changed();
    }

    /// Returns the request that opens the partition. Once it has succeeded, the caller clears [`Self::converted_by`].
    pub(super) fn open_partition(&self) -> OpenPartition {
        OpenPartition {
            origin: self.parts.origin.clone(),
            health: self.parts.health.clone(),
            indexes: self.parts.indexes.clone(),
            settings: self.parts.settings,
            converted_by: self.converted_by,
        }
    }
}

impl Handler<MemoryStepChanged> for InformerActor {
    type Result = ();

    fn handle(&mut self, _: MemoryStepChanged, ctx: &mut Self::Context) {
        self.take_step(ctx);
    }
}
