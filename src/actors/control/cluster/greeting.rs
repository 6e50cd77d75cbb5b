//! Which server answers for a cluster: asked once, when the cluster is first reached, for the log and the status.

use actix::prelude::*;

use crate::actors::control::cluster::ClusterActor;
use crate::actors::runtime::jitter::jittered;
use informer_hub_reflector::Server;

/// How long until a server that did not answer is asked again, unless the cluster is seen to answer before. Up to half of
/// it is added at random.
const REST: std::time::Duration = std::time::Duration::from_secs(60);

/// What is known of the server.
#[derive(Default)]
pub(super) enum Greeting {
    /// It is yet to be asked.
    #[default]
    Due,
    /// It is being asked.
    Asked,
    /// It has answered.
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
    /// Asks which server answers, unless that is known. Call it when there is a connection, and when the cluster answers.
    pub(super) fn greet(&mut self, ctx: &mut Context<Self>) {
        let Some(connection) = self.connection.as_ref().filter(|_| matches!(self.greeting, Greeting::Due)) else {
            return;
        };
        self.greeting = Greeting::Asked;
        ctx.spawn(connection.server().into_actor(self).map(|answer, act, ctx| {
            // What keeps a server from answering is logged of what is asked for besides.
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
