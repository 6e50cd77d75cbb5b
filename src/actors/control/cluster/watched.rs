//! Division of a cluster's informers among several processes. Each process starts the informers whose resources its own
//! connection to the cluster watches.

use std::collections::BTreeMap;

use actix::prelude::*;

use crate::actors::control::cluster::{ClusterActor, RequestKey, informer_key_of};
use crate::actors::control::messages::{ReviewInformers, StopInformer};
use informer_hub_types::{ApiResource, InformerHealth};

impl ClusterActor {
    /// Returns whether another process watches the resource of a request.
    pub(super) fn is_elsewhere(&self, key: &RequestKey) -> bool {
        let resolved = self.requests.get(key).and_then(|request| request.resolved.as_ref());
        resolved.is_some_and(|resource| !self.watches(key, resource))
    }

    /// Returns whether this process watches a resource that a request was resolved to.
    pub(super) fn watches(&self, key: &RequestKey, resource: &ApiResource) -> bool {
        let (_, scope) = informer_key_of(key, resource);
        self.connection.as_ref().is_some_and(|connection| connection.watches(resource, &scope))
    }
}

impl Handler<ReviewInformers> for ClusterActor {
    type Result = ResponseActFuture<Self, ()>;

    fn handle(&mut self, _: ReviewInformers, ctx: &mut Self::Context) -> Self::Result {
        let Some(connection) = self.connection.clone() else {
            // The cluster actor starts its informers when it is connected.
            return Box::pin(actix::fut::ready(()));
        };
        let is_new = |key: &RequestKey| {
            let informer = self.informer_key(key);
            informer.is_some_and(|informer| !self.informers.contains_key(&informer)) && !self.is_elsewhere(key)
        };
        let new: Vec<_> = self.requests.keys().filter(|key| is_new(key)).cloned().collect();
        for key in new {
            if let Some(resource) = self.requests.get_mut(&key).and_then(|request| request.resolved.take()) {
                self.on_resolved(&key, resource, ctx);
            }
        }
        let (kept, elsewhere): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(&mut self.informers)
            .into_iter()
            .partition(|(key, informer)| connection.watches(&informer.parts.origin.resource, &key.1));
        self.informers = kept;
        let ended: Vec<_> = self.requests.keys().filter(|key| self.is_elsewhere(key)).cloned().collect();
        for key in ended {
            // The next informer of the request must not share its health with the one that stops.
            self.requests.entry(key).and_modify(|request| request.health = InformerHealth::new());
        }
        // The watches of discovery may now belong to this process, or to another one.
        self.restart_discovery(ctx);
        self.attach_all();
        self.publish_view();
        self.stop_all(elsewhere, StopInformer { drain_until: None, stays_open: false })
    }
}
