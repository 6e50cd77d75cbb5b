//! The limit of the hub's memory, and the actor that keeps it: a child of the registry, made with the first limit.

use actix::prelude::*;

use crate::actors::control::governor::GovernorActor;
use crate::actors::control::messages::SetMemoryLimit;
use crate::actors::control::registry::RegistryActor;
use crate::actors::runtime::supervision::{ChildExited, ExitGuard, detach, start_control, stop_with};

/// The governor's number; clusters have numbers from 1 on.
pub(super) const GOVERNOR: usize = 0;

/// What a registry knows of it.
#[derive(Default)]
pub(super) struct Memory {
    limit: Option<u64>,
    governor: Option<Addr<GovernorActor>>,
}

impl RegistryActor {
    fn start_governor(&mut self, ctx: &mut Context<Self>) {
        let (env, limit, token) = (self.env.clone(), self.memory.limit, self.children.token());
        let guard = ExitGuard::new(GOVERNOR, 0, Some(&ctx.address().recipient()), &self.env.census);
        self.memory.governor = Some(start_control(self.env.arbiter(), move |ctx| {
            stop_with(&token, ctx);
            GovernorActor::new(env, limit, guard)
        }));
    }

    /// It has nothing to lose: steps are in the informers' healths. It would only die of the same again at its next look,
    /// so it is made anew after a while.
    pub(super) fn on_governor_exit(exited: ChildExited, ctx: &mut Context<Self>) {
        tracing::error!(
            "the memory's governor {}; starting it again in {:?}",
            exited.status,
            crate::actors::control::registry::REST
        );
        ctx.run_later(super::REST, Self::start_governor);
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
