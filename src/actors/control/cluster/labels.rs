//! Changed cluster labels: the informers continue under the new labels with their objects.

use std::sync::Arc;

use actix::prelude::*;
use futures::future::join_all;

use crate::actors::control::cluster::ClusterActor;
use crate::actors::control::messages::{MoveTo, SetLabels};
use informer_hub_types::Origin;

impl Handler<SetLabels> for ClusterActor {
    type Result = ResponseActFuture<Self, ()>;

    fn handle(&mut self, SetLabels(labels): SetLabels, _: &mut Self::Context) -> Self::Result {
        self.parts.labels = labels;
        let mut moving = Vec::new();
        for informer in self.informers.values_mut() {
            let parts = &informer.parts;
            let origin = Origin { cluster_labels: self.parts.labels.clone(), ..Origin::clone(&parts.origin) };
            let (source, mode) = (Arc::clone(&parts.source), parts.mode);
            moving.extend(informer.move_to(MoveTo { origin: Arc::new(origin), source, mode, renewed: false }));
        }
        Box::pin(join_all(moving).into_actor(self).map(|_, act, _| act.publish_view()))
    }
}
