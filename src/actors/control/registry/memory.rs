//! Memory limit, and the governor that enforces it: a child of the registry, started when the first limit is set.

use actix::prelude::*;

use crate::actors::control::memory_governor::GovernorActor;
use crate::actors::control::messages::SetMemoryLimit;
use crate::actors::control::registry::RegistryActor;
use crate::actors::runtime::supervision::{ChildExited, ExitGuard, detach, start_control, stop_with};

/// Child number of the memory governor; clusters use numbers from 1 on.
pub(super) const GOVERNOR: usize = 0;

/// Memory limit, and the address of its governor once started.
#[derive(Default)]
pub(super) struct Memory {
    limit: Option<u64>,
    governor: Option<Addr<GovernorActor>>,
}

impl RegistryActor {
    fn start_governor(&mut self, ctx: &mut Context<Self>) {
        let (env, limit, token) = (self.env.clone(), self.memory.limit, self.children.token());
        let guard = ExitGuard::new(GOVERNOR, 0, Some(&ctx.address().recipient()), &self.env.actor_count);
        self.memory.governor = Some(start_control(self.env.arbiter(), move |ctx| {
            stop_with(&token, ctx);
            GovernorActor::new(env, limit, guard)
        }));
    }

    /// Restarts the governor after a delay, because an immediate restart would probably fail the same way. Nothing is
    /// lost: the memory steps are stored in the informers' health.
    pub(super) fn on_governor_exit(exited: ChildExited, ctx: &mut Context<Self>) {
        tracing::error!(
            status = %exited.status, restart_in = ?super::RESTART_DELAY,
            "the actor that enforces the memory limit failed; restarting it"
        );
        ctx.run_later(super::RESTART_DELAY, Self::start_governor);
    }
}

impl Handler<SetMemoryLimit> for RegistryActor {
    type Result = ();

    fn handle(&mut self, set: SetMemoryLimit, ctx: &mut Self::Context) {
        self.memory.limit = set.0;
        match &self.memory.governor {
            Some(governor) => detach(governor.send(set)),
            None if set.0.is_some() => self.start_governor(ctx),
            None => {}
        }
    }
}
