//! Hub status: collects the published views of all clusters.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use actix::prelude::*;
use futures::FutureExt;

use crate::actors::control::messages::GetStatus;
use crate::actors::control::registry::RegistryActor;
use crate::actors::status::hub::{ClusterStatus, HubStatus, SharedView};
use informer_hub_types::{ClusterLabels, ClusterName};

impl Handler<GetStatus> for RegistryActor {
    type Result = ResponseFuture<HubStatus>;

    /// Collects the status on a blocking thread, because counting bytes visits every object.
    fn handle(&mut self, _: GetStatus, _ctx: &mut Self::Context) -> Self::Result {
        let (views, caches, memory) = (Arc::clone(&self.views), self.env.caches.clone(), self.env.budget.status());
        let state_dir = self.env.checkpoints.status();
        let started = self.started && self.in_flight.load(SeqCst) == 0;
        let work = self.env.io.spawn_blocking(move || {
            let views = views.read().clone();
            let ready = started && views.values().all(|(_, view)| view.load().is_ready());
            let cluster = |(name, (labels, view)): (ClusterName, (ClusterLabels, SharedView))| {
                let view = view.load();
                let state = view.state();
                let informers: Vec<_> = view.informers.iter().map(|informer| informer.status(&caches)).collect();
                let last_error = view.last_error();
                let (discovery, patterns) = (view.discovery.clone(), view.patterns.clone());
                let (server, version) =
                    view.server.clone().map_or((None, None), |server| (Some(server.address), server.version));
                ClusterStatus {
                    name,
                    labels,
                    source: None,
                    source_object: None,
                    server,
                    version,
                    state,
                    traffic: view.connection.as_ref().and_then(|connection| connection.traffic()),
                    last_error,
                    credentials: Vec::new(),
                    informers,
                    discovery,
                    patterns,
                }
            };
            HubStatus { ready, memory, state_dir, clusters: views.into_iter().map(cluster).collect() }
        });
        Box::pin(work.map(|status| {
            status.unwrap_or(HubStatus { ready: false, memory: None, state_dir: None, clusters: Vec::new() })
        }))
    }
}
