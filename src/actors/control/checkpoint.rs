//! Checkpoints: what caches have is put on disk now and then, so that a hub that starts again has it back.
//!
//! A pass takes the snapshots that the caches have published, waits until every durable reader has answered for all
//! that they gave rise to, and writes what has changed. So what is on disk is never ahead of what readers have kept:
//! after a restart, whatever a reader may not have kept is seen again. A partition whose readers do not answer in time
//! stays on disk as it was, and the others go on. Taking a pass costs no writer and no reader anything; the disk is
//! written to on a blocking thread.

use std::time::Duration;

use actix::prelude::*;

use crate::actors::control::messages::LastCheckpoint;
use crate::actors::env::Env;
use crate::actors::runtime::capacity::CONTROL_MAILBOX;
use crate::actors::runtime::supervision::ExitGuard;
use crate::actors::runtime::waiters::Waiters;
use informer_hub_types::clock::{self, Instant};

mod pass;
mod removed_clusters;

pub(in crate::actors) use removed_clusters::{PATIENCE, Reopened, bring_back, put_away};

/// The shortest wait after a pass, when somebody waits for the next.
const SHORTEST_REST: Duration = Duration::from_millis(50);

/// The longest wait after a pass that failed.
const LONGEST_REST: Duration = Duration::from_secs(60);

/// See the module.
pub(in crate::actors) struct CheckpointActor {
    env: Env,
    every: Duration,
    failures: u32,
    busy: bool,
    ended: Waiters,
    _guard: ExitGuard,
}

impl CheckpointActor {
    pub(in crate::actors) fn new(env: Env, every: Duration, guard: ExitGuard) -> Self {
        Self { env, every, failures: 0, busy: false, ended: Waiters::default(), _guard: guard }
    }

    fn rest(&self) -> Duration {
        if self.failures == 0 {
            return self.every;
        }
        self.every.saturating_mul(1 << self.failures.min(10)).min(LONGEST_REST.max(self.every))
    }

    fn wait(&mut self, ctx: &mut Context<Self>) {
        let (rest, checkpoints) = (self.rest(), self.env.checkpoints.clone());
        let hurries = self.failures == 0;
        let resting = async move {
            let asked_for = async {
                // Not for each of many that begin together.
                tokio::time::sleep(SHORTEST_REST.min(rest)).await;
                checkpoints.hurried().await;
            };
            tokio::select! {
                biased;
                () = tokio::time::sleep(rest) => {}
                () = asked_for, if hurries => {}
            }
        };
        ctx.spawn(resting.into_actor(self).map(|(), act, ctx| {
            if act.env.checkpoints.is_closing() {
                return;
            }
            act.busy = true;
            let pass = pass::run(act.env.clone(), clock::now() + act.every, false);
            ctx.spawn(pass.into_actor(act).map(|done, act, ctx| {
                act.busy = false;
                act.failures = if done { 0 } else { act.failures + 1 };
                act.ended.release();
                act.wait(ctx);
            }));
        }));
    }

    /// The last one, of what there is when nothing comes any more.
    fn last(&mut self, until: Instant) -> ResponseActFuture<Self, ()> {
        let under_way = self.busy.then(|| self.ended.wait());
        let env = self.env.clone();
        let work = async move {
            if let Some(under_way) = under_way {
                under_way.await;
            }
            pass::run(env, until, true).await;
        };
        Box::pin(work.into_actor(self).map(|(), _, ctx| ctx.stop()))
    }
}

impl Actor for CheckpointActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(CONTROL_MAILBOX);
        self.wait(ctx);
    }
}

impl Handler<LastCheckpoint> for CheckpointActor {
    type Result = ResponseActFuture<Self, ()>;

    fn handle(&mut self, LastCheckpoint { until }: LastCheckpoint, _ctx: &mut Self::Context) -> Self::Result {
        self.last(until)
    }
}

impl std::fmt::Debug for CheckpointActor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CheckpointActor").field("failures", &self.failures).finish_non_exhaustive()
    }
}
