//! Requests and subscriptions that change or end while the hub runs. The registry sends a change to the clusters, which
//! replace the informers (`cluster/replace`).

use std::sync::Arc;

use actix::prelude::*;
use futures::FutureExt;
use futures::future::join_all;

use crate::actors::control::messages::Detach;
use crate::actors::control::registry::{Cluster, RegistryActor, wait_for_clusters};
use crate::actors::runtime::capacity::STOP_GRACE;
use crate::actors::subscribe::requests::{
    ChangeSubscription, EndSubscription, InformerFor, ReleaseInformers, ReplaceInformers, ReplaceRequests, Unsubscribe,
};
use crate::actors::subscribe::user::SubscriptionId;
use informer_hub_types::clock::{self, Instant};
use informer_hub_types::{ClusterLabels, ClusterName};

impl RegistryActor {
    /// Replaces all requests of a user by one. Returns the replaced requests.
    fn replace_demands(&mut self, demand: InformerFor) -> Vec<InformerFor> {
        let all = std::mem::take(&mut self.demands);
        let (before, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|known| known.user == demand.user);
        self.demands = others;
        self.demands.push(demand);
        self.unexpect_unrequested(&before);
        before
    }

    /// Detaches a subscription from all clusters.
    fn end_subscription(&mut self, id: SubscriptionId, drain_until: Option<Instant>) -> ResponseFuture<()> {
        self.env.checkpoints.remove_reader(id);
        if self.subscriptions.remove(&id).is_none() {
            return Box::pin(std::future::ready(()));
        }
        let detach = Detach { subscription: id, drain_until };
        let all: Vec<_> = self.clusters.values().map(|cluster| cluster.address.send(detach)).collect();
        Box::pin(join_all(all).map(|_| ()))
    }
}

impl Handler<ReplaceInformers> for RegistryActor {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, ReplaceInformers(demand): ReplaceInformers, ctx: &mut Self::Context) -> Self::Result {
        self.yield_budget.count(ctx);
        self.note_partial(&demand);
        let before = self.replace_demands(demand.clone());
        if !self.started {
            return Box::pin(std::future::ready(()));
        }
        let mut replacing = Vec::new();
        for (name, cluster) in &self.clusters {
            let is_in = |demand: &InformerFor| demand.clusters.matches(name, &cluster.labels);
            let user = demand.user.clone();
            if is_in(&demand) {
                let requests = demand.requests().collect();
                let replaced = self.send_counted(cluster.address.send(ReplaceRequests { user, requests }));
                replacing.push(replaced.map(|_| ()).boxed_local());
                demand.views().for_each(|view| self.expect(name, cluster, &demand.wanted, view));
            } else if before.iter().any(is_in) {
                let released = cluster.address.send(ReleaseInformers(user));
                replacing.push(released.map(|_| ()).boxed_local());
            }
        }
        Box::pin(join_all(replacing).map(|_| ()))
    }
}

impl Handler<Unsubscribe> for RegistryActor {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, Unsubscribe(id): Unsubscribe, ctx: &mut Self::Context) -> Self::Result {
        self.yield_budget.count(ctx);
        self.end_subscription(id, None)
    }
}

impl Handler<EndSubscription> for RegistryActor {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, end: EndSubscription, ctx: &mut Self::Context) -> Self::Result {
        self.yield_budget.count(ctx);
        self.end_subscription(end.subscription, Some(end.drain_until))
    }
}

impl Handler<ChangeSubscription> for RegistryActor {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, change: ChangeSubscription, ctx: &mut Self::Context) -> Self::Result {
        self.yield_budget.count(ctx);
        let ChangeSubscription { subscription: id, clusters, resync } = change;
        let Some(before) = self.subscriptions.get(&id).cloned() else { return Box::pin(std::future::ready(())) };
        let subscription = Arc::new(before.with(clusters, resync));
        self.env.checkpoints.add_reader(&subscription);
        self.subscriptions.insert(id, Arc::clone(&subscription));
        let is_left = |name: &ClusterName, labels: &ClusterLabels| {
            before.clusters.matches(name, labels) && !subscription.clusters.matches(name, labels)
        };
        let detach = Detach { subscription: id, drain_until: Some(clock::now() + STOP_GRACE) };
        let left = self.clusters.iter().filter(|(name, cluster)| is_left(name, &cluster.labels));
        let leave = |(name, cluster): (&ClusterName, &Cluster)| {
            subscription.forget_cluster(name, &[]);
            cluster.address.send(detach)
        };
        let leaving: Vec<_> = left.map(leave).collect();
        let clusters = self.clusters.iter().filter(|_| self.started);
        let in_flight = clusters.map(|(name, cluster)| self.send_subscription(name, cluster, &subscription)).collect();
        Box::pin(async move {
            join_all(leaving).await;
            wait_for_clusters(in_flight).await;
        })
    }
}
