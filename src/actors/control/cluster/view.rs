//! Published state of a cluster: the hub's status reads it without a message to the cluster actor.

use std::sync::Arc;

use crate::actors::control::cluster::{ClusterActor, RequestKey, RequestState};
use crate::actors::status::hub::{ClusterState, ClusterView, InformerView};

impl ClusterActor {
    /// Publishes the state of this cluster and its informers.
    pub(super) fn publish_view(&self) {
        // An informer without an address has died too often and waits before its restart; others are restarted
        // immediately.
        let degraded = self.informers.values().any(|informer| informer.address.is_none());
        let state = match (&self.connection, &self.error) {
            _ if degraded => ClusterState::Degraded,
            (Some(_), _) => ClusterState::Connected,
            (None, Some(_)) => ClusterState::Unreachable,
            (None, None) => ClusterState::Connecting,
        };
        let own = self.requests.iter().filter(|(key, _)| !self.is_elsewhere(key));
        let mut informers: Vec<_> = own.map(|(key, request)| self.informer_view(key, request)).collect();
        informers.shrink_to_fit();
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
        let listeners = informer.map_or_else(Box::default, |informer| {
            about
                .map(|subscription| {
                    (subscription.name.clone(), Arc::clone(&subscription.inbox_at(&informer.parts.origin).health))
                })
                .collect()
        });
        InformerView {
            key: Arc::clone(key),
            gvr: request.resolved.as_ref().or(request.restored.as_ref()).map(|resource| resource.gvr.clone()),
            is_resolved: request.resolved.is_some(),
            health: Arc::clone(&request.health),
            listeners,
        }
    }
}
