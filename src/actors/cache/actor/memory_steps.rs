//! Memory steps (how much of the objects is kept) of partitions: drops object bodies if memory is short.

use std::time::Duration;

use actix::prelude::*;

use crate::actors::cache::actor::CacheActor;
use crate::actors::cache::messages::SetMemoryStep;
use crate::cache::PartitionId;
use informer_hub_types::{MemoryStep, ObjectKey};

/// Number of objects whose bodies (JSON or protobuf) are dropped in one slice, which takes about a millisecond.
const STRIP_SLICE: usize = 1024;

/// Pause between two slices of dropping bodies, in which writers run.
const STRIP_PAUSE: Duration = Duration::from_millis(1);

impl CacheActor {
    /// Drops the bodies (JSON or protobuf) of a partition's objects slice by slice, as long as the partition's memory
    /// step keeps no bodies.
    pub(super) fn strip(&mut self, partition: PartitionId, after: Option<&ObjectKey>, ctx: &mut Context<Self>) {
        if let Some(next) = self.write_half.write(|half| half.strip(partition, after, STRIP_SLICE)) {
            ctx.run_later(STRIP_PAUSE, move |act, ctx| act.strip(partition, Some(&next), ctx));
            return;
        }
        // Uncompressed objects still hold bodies, and chunks may be mostly unused.
        self.pack(ctx);
        self.watch_for_idle(ctx);
        self.sweep(ctx);
    }

    /// Applies a new memory step (how much of the objects is kept) to the objects a partition already has.
    pub(super) fn apply_step(&mut self, partition: PartitionId, step: MemoryStep, ctx: &mut Context<Self>) {
        if !step.keeps_bodies() {
            self.strip(partition, None, ctx);
        } else if step != MemoryStep::Full {
            self.pack(ctx);
        }
    }
}

impl Handler<SetMemoryStep> for CacheActor {
    type Result = ();

    fn handle(&mut self, SetMemoryStep { partition, lease, step }: SetMemoryStep, ctx: &mut Self::Context) {
        if self.write_half.write(|half| half.keep(partition, lease, step)) {
            self.apply_step(partition, step, ctx);
        }
    }
}
