//! Checkpoint actor as a child of the registry, if there is a state directory.

use std::sync::Arc;

use actix::prelude::*;

use crate::actors::control::checkpoint::CheckpointActor;
use crate::actors::control::messages::{EnableCheckpoints, LastCheckpoint};
use crate::actors::control::registry::RegistryActor;
use crate::actors::runtime::capacity::STOP_GRACE;
use crate::actors::runtime::supervision::{ChildExited, ExitGuard, start_control, stop_with};
use informer_hub_types::clock::Instant;

/// Child number of the checkpoint actor; clusters use numbers from 1 on.
pub(super) const CHECKPOINTER: usize = usize::MAX;

impl RegistryActor {
    fn start_checkpointer(&mut self, ctx: &mut Context<Self>) {
        let Some(store) = self.env.checkpoints.store() else { return };
        let (env, every, token) = (self.env.clone(), store.every(), self.children.token());
        let guard = ExitGuard::new(CHECKPOINTER, 0, Some(&ctx.address().recipient()), &self.env.actor_count);
        self.checkpointer = Some(start_control(self.env.arbiter(), move |ctx| {
            stop_with(&token, ctx);
            CheckpointActor::new(env, every, guard)
        }));
    }

    /// Restarts the checkpoint actor. Nothing is lost: completed writes are on disk and the files belong to the
    /// checkpoint store.
    pub(super) fn on_checkpointer_exit(exited: ChildExited, ctx: &mut Context<Self>) {
        tracing::error!(
            status = %exited.status, restart_in = ?super::RESTART_DELAY,
            "the actor that writes caches to disk failed; restarting it: what is written stays valid"
        );
        ctx.run_later(super::RESTART_DELAY, Self::start_checkpointer);
    }
}

/// Runs the last checkpoint of a hub that shuts down.
pub(super) async fn last(actor: Option<Addr<CheckpointActor>>, until: Instant) {
    if let Some(actor) = actor {
        let _ = tokio::time::timeout_at(until + STOP_GRACE, actor.send(LastCheckpoint { until })).await;
    }
}

impl Handler<EnableCheckpoints> for RegistryActor {
    type Result = ();

    fn handle(&mut self, EnableCheckpoints(store): EnableCheckpoints, ctx: &mut Self::Context) {
        self.env.checkpoints.set_store(Arc::clone(&store));
        self.start_checkpointer(ctx);
    }
}
