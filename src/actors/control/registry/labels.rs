//! Changed cluster labels: updates the requests and subscriptions that select by labels.

use std::sync::Arc;

use actix::prelude::*;
use futures::future::join_all;

use crate::actors::control::messages::{Detach, RegistryError, SetClusterLabels, SetLabels};
use crate::actors::control::registry::RegistryActor;
use crate::actors::runtime::capacity::STOP_GRACE;
use crate::actors::runtime::supervision::detach;
use crate::actors::subscribe::requests::ReleaseInformers;
use crate::actors::subscribe::subscription::Subscription;
use informer_hub_types::{ClusterSelector, clock};

impl Handler<SetClusterLabels> for RegistryActor {
    type Result = ResponseActFuture<Self, Result<(), RegistryError>>;

    fn handle(&mut self, SetClusterLabels { name, labels }: SetClusterLabels, _: &mut Context<Self>) -> Self::Result {
        let Some(cluster) = self.clusters.get_mut(&name) else {
            return Box::pin(actix::fut::ready(Err(RegistryError::UnknownCluster(name))));
        };
        let before = std::mem::replace(&mut cluster.labels, labels.clone());
        if let Some((shown, _)) = self.views.write().get_mut(&name) {
            shown.clone_from(&labels);
        }
        let cluster = &self.clusters[&name];
        let change = |selector: &ClusterSelector| (selector.matches(&name, &before), selector.matches(&name, &labels));
        let of_user = |user| self.demands.iter().filter(move |demand| demand.user == user);
        let released: Vec<_> = self
            .demands
            .iter()
            .filter(|demand| {
                change(&demand.clusters).0 && !of_user(demand.user.clone()).any(|it| change(&it.clusters).1)
            })
            .map(|demand| cluster.address.send(ReleaseInformers(demand.user.clone())))
            .collect();
        let (removed, added): (Vec<_>, Vec<_>) = self
            .subscriptions
            .values()
            .filter(|it| change(&it.clusters).0 != change(&it.clusters).1)
            .cloned()
            .partition(|subscription| change(&subscription.clusters).0);
        let drain_until = Some(clock::now() + STOP_GRACE);
        let detach_from_cluster = |removed: &Arc<Subscription>| Detach { subscription: removed.id, drain_until };
        let detached: Vec<_> = removed.iter().map(|one| cluster.address.send(detach_from_cluster(one))).collect();
        // Sent after the removals and before the additions.
        let relabelled = cluster.address.send(SetLabels(labels.clone()));
        if self.started {
            for demand in self.demands.iter().filter(|demand| change(&demand.clusters) == (false, true)) {
                detach(self.send_request(&name, cluster, demand));
            }
            for subscription in &added {
                detach(self.send_subscription(&name, cluster, subscription));
            }
        }
        let work = async move {
            join_all(released).await;
            join_all(detached).await;
            // If the cluster actor dies, it is restarted with the new labels.
            let _ = relabelled.await;
        };
        Box::pin(work.into_actor(self).map(move |(), _, _| {
            for subscription in removed {
                subscription.forget_cluster(&name, &[]);
            }
            Ok(())
        }))
    }
}
