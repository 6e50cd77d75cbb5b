//! Server identification: requests the server's address and Kubernetes version once, for log and status.

use actix::prelude::*;

use crate::actors::control::cluster::ClusterActor;
use crate::actors::runtime::jitter::jittered;
use informer_hub_reflector::Server;

/// Delay before a server that did not answer is asked again, unless the cluster answers another request first. Up to
/// half of the delay is added at random.
const RETRY_DELAY: std::time::Duration = std::time::Duration::from_secs(60);

/// State of the server identification.
#[derive(Default)]
pub(super) enum ServerProbe {
    /// The server has not answered, and no request is in progress.
    #[default]
    Pending,
    /// The request is in progress.
    InFlight,
    /// The server has answered.
    Known(Server),
}

impl ServerProbe {
    pub(super) fn server(&self) -> Option<&Server> {
        match self {
            Self::Known(server) => Some(server),
            Self::Pending | Self::InFlight => None,
        }
    }
}

impl ClusterActor {
    /// Asks for the server's address and version, if unknown. Called after connecting and whenever the cluster answers.
    pub(super) fn probe_server(&mut self, ctx: &mut Context<Self>) {
        let Some(connection) = self.connection.as_ref().filter(|_| matches!(self.server_probe, ServerProbe::Pending))
        else {
            return;
        };
        self.server_probe = ServerProbe::InFlight;
        ctx.spawn(connection.server().into_actor(self).map(|answer, act, ctx| {
            // The cause is logged by the lookups and informers that fail for the same reason.
            let Ok(server) = answer else {
                act.server_probe = ServerProbe::Pending;
                ctx.run_later(jittered(RETRY_DELAY), Self::probe_server);
                return;
            };
            let Server { address, version } = &server;
            let version = version.as_deref();
            tracing::info!(cluster = %act.parts.name, server = address, version, "connected to the cluster");
            act.server_probe = ServerProbe::Known(server);
            act.publish_view();
        }));
    }
}
