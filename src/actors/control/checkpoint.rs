//! Checkpoint actor: writes the caches to disk at intervals, so that a restarted hub restores them.
//!
//! A pass takes the published snapshots, waits until every durable reader (sink or subscriber) has acknowledged their
//! events, and writes the changed partitions. So after a restart, every event that a reader may have missed is
//! repeated. If a reader does not acknowledge in time, the previous state of the partition stays on disk, while other
//! partitions are written. A pass blocks neither writes nor queries. The disk is written on a blocking thread.

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

pub(in crate::actors) use removed_clusters::{Reopened, SAVE_TIMEOUT, restore_removed, save_removed};

/// Minimum time between checkpoint passes when a subscriber requests one.
const MIN_PAUSE: Duration = Duration::from_millis(50);

/// Maximum backoff after failed checkpoint passes, unless the interval between passes is longer.
const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// Runs checkpoint passes; see the module.
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

    fn pause(&self) -> Duration {
        if self.failures == 0 {
            return self.every;
        }
        self.every.saturating_mul(1 << self.failures.min(10)).min(MAX_BACKOFF.max(self.every))
    }

    fn wait(&mut self, ctx: &mut Context<Self>) {
        let (pause, checkpoints) = (self.pause(), self.env.checkpoints.clone());
        let may_be_early = self.failures == 0;
        let pausing = async move {
            let asked_for = async {
                // Combines requests that arrive close together.
                tokio::time::sleep(MIN_PAUSE.min(pause)).await;
                checkpoints.pass_requested().await;
            };
            tokio::select! {
                biased;
                () = tokio::time::sleep(pause) => {}
                () = asked_for, if may_be_early => {}
            }
        };
        ctx.spawn(pausing.into_actor(self).map(|(), act, ctx| {
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

    /// Runs the last checkpoint pass, after a pass in progress has ended.
    fn last(&mut self, until: Instant) -> ResponseActFuture<Self, ()> {
        let running = self.busy.then(|| self.ended.wait());
        let env = self.env.clone();
        let work = async move {
            if let Some(running) = running {
                running.await;
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
