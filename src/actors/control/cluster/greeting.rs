//! Server identification: asks the cluster's address and version once, for log and status.

use actix::prelude::*;

use crate::actors::control::cluster::ClusterActor;
use crate::actors::runtime::jitter::jittered;
use informer_hub_reflector::Server;

/// Delay before a server that did not answer is asked again, unless the cluster answers another request first. Jittered
/// by up to half.
const REST: std::time::Duration = std::time::Duration::from_secs(60);

/// State of the server identification.
#[derive(Default)]
pub(super) enum Greeting {
    /// Not asked yet.
    #[default]
    Due,
    /// The request is in progress.
    Asked,
    /// The server has answered.
    Done(Server),
}

impl Greeting {
    pub(super) fn server(&self) -> Option<&Server> {
        match self {
            Self::Done(server) => Some(server),
            Self::Due | Self::Asked => None,
        }
    }
}

impl ClusterActor {
    /// Asks for the server's address and version, if unknown. Called after connecting and whenever the cluster answers.
    pub(super) fn greet(&mut self, ctx: &mut Context<Self>) {
        let Some(connection) = self.connection.as_ref().filter(|_| matches!(self.greeting, Greeting::Due)) else {
            return;
        };
        self.greeting = Greeting::Asked;
        ctx.spawn(connection.server().into_actor(self).map(|answer, act, ctx| {
            // The cause is logged by the lookups and informers that fail for the same reason.
            let Ok(server) = answer else {
                act.greeting = Greeting::Due;
                ctx.run_later(jittered(REST), Self::greet);
                return;
            };
            let Server { address, version } = &server;
            let version = version.as_deref();
            tracing::info!(cluster = %act.parts.name, server = address, version, "connected to the cluster");
            act.greeting = Greeting::Done(server);
            act.show();
        }));
    }
}
