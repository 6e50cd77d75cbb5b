//! Published view of a cluster.

use std::sync::Arc;

use crate::actors::control::cluster::{ClusterActor, RequestKey, RequestState};
use crate::actors::status::hub::{ClusterState, ClusterView, InformerView};

impl ClusterActor {
    /// Publishes the view of this cluster.
    pub(super) fn publish_view(&self) {
        // A dead informer without an address waits out a degraded delay; others are restarted at once.
        let degraded = self.informers.values().any(|informer| informer.address.is_none());
        let state = match (&self.connection, &self.error) {
            _ if degraded => ClusterState::Degraded,
            (Some(_), _) => ClusterState::Connected,
            (None, Some(_)) => ClusterState::Unreachable,
            (None, None) => ClusterState::Connecting,
        };
        let own = self.requests.iter().filter(|(key, _)| !self.is_elsewhere(key));
        let informers = own.map(|(key, request)| self.informer_view(key, request)).collect();
        let (discovery, patterns) = (self.discovery.status(), self.discovery.shares());
        self.parts.view.store(Arc::new(ClusterView {
            state,
            error: self.error.clone(),
            informers,
            discovery,
            patterns,
            server: self.server_probe.server().cloned(),
            connection: self.connection.clone(),
        }));
    }

    fn informer_view(&self, key: &Arc<RequestKey>, request: &RequestState) -> InformerView {
        let informer_key = self.informer_key(key);
        let informer = informer_key.and_then(|key| self.informers.get(&key));
        let about = self.attached.values().filter(|subscription| self.requests_of(subscription).contains(&key));
        let listeners = informer.map_or_else(Vec::new, |informer| {
            about
                .map(|subscription| {
                    (subscription.name.clone(), Arc::clone(&subscription.inbox_at(&informer.parts.origin).health))
                })
                .collect()
        });
        InformerView {
            wanted: key.0.clone(),
            resource: request.resolved.clone(),
            restored: request.restored.clone(),
            scope: key.1.clone(),
            health: Arc::clone(&request.health),
            listeners,
        }
    }
}
