//! Adding and removing clusters, or a part of their informers, at run time. With a state directory, a re-added cluster
//! continues from its saved partitions.

use actix::prelude::*;
use futures::future::join_all;

use crate::actors::checkpoint::restore_plan::RestorePlan;
use crate::actors::checkpoint::store::SharedCheckpointStore;
use crate::actors::control::checkpoint::{self, Reopened};
use crate::actors::control::messages::{
    AddCluster, RegistryError, RemoveCluster, ReviewClusterInformers, ReviewInformers, StopCluster, StopInformer,
};
use crate::actors::control::registry::{INTENSITY, RegistryActor};
use crate::actors::runtime::capacity::STOP_GRACE;
use crate::actors::runtime::supervision::Supervision;
use crate::actors::runtime::waiters::Waiters;
use crate::actors::subscribe::resource_request::ResourceRequest;
use informer_hub_types::{ClusterName, clock};

type Outcome = ResponseActFuture<RegistryActor, Result<(), RegistryError>>;

impl RegistryActor {
    fn check_new(&self, name: &ClusterName) -> Result<(), RegistryError> {
        if self.stopping {
            return Err(RegistryError::ShuttingDown);
        }
        if self.clusters.contains_key(name) || self.restoring.contains_key(name) {
            return Err(RegistryError::DuplicateCluster(name.clone()));
        }
        if self.removing.contains(name) {
            return Err(RegistryError::BeingRemoved(name.clone()));
        }
        Ok(())
    }

    fn start_cluster(&mut self, add: AddCluster, ctx: &mut Context<Self>) {
        self.launch(&add.name, add.labels, add.connector, Supervision::new(&[], INTENSITY), ctx);
    }

    /// Restores the saved partitions of a cluster, then starts it.
    fn restore_then_start(&mut self, add: AddCluster, store: SharedCheckpointStore) -> Outcome {
        self.restoring.insert(add.name.clone(), Waiters::default());
        let mut demands = self.demands.clone();
        // Patterns come last, so that a resource with its own entry takes its options from that entry.
        demands.sort_by_key(|demand| matches!(demand.wanted, ResourceRequest::Matching(_)));
        let cluster = (add.name.clone(), add.labels.clone());
        let plan = RestorePlan::new(vec![cluster.clone()], demands, store.names_snapshot());
        let env = self.env.clone();
        let work = async move { checkpoint::restore_removed(&env, &store, cluster, plan).await };
        Box::pin(work.into_actor(self).map(move |reopened, act, ctx| {
            for Reopened { from, to, id } in &reopened {
                let durable = act.subscriptions.values().filter(|subscription| subscription.durable);
                durable.for_each(|subscription| subscription.move_inbox(from, to, *id));
            }
            // Wakes the callers that wait for the restore.
            act.restoring.remove(&add.name);
            if act.stopping {
                return Err(RegistryError::ShuttingDown);
            }
            act.start_cluster(add, ctx);
            Ok(())
        }))
    }

    /// Starts a timer of `checkpoint::SAVE_TIMEOUT`. When it fires, drops the partitions of removed clusters that could
    /// not be saved by their deadline.
    fn drop_unsaved_later(ctx: &mut Context<Self>) {
        ctx.run_later(checkpoint::SAVE_TIMEOUT, |act, _| {
            let dropped = act.env.checkpoints.store().map(|store| store.drop_expired()).unwrap_or_default();
            for origin in dropped {
                act.subscriptions.values().for_each(|subscription| subscription.forget(&origin));
            }
        });
    }
}

impl Handler<AddCluster> for RegistryActor {
    type Result = Outcome;

    fn handle(&mut self, add: AddCluster, ctx: &mut Self::Context) -> Self::Result {
        if let Err(error) = self.check_new(&add.name) {
            return Box::pin(actix::fut::ready(Err(error)));
        }
        // Before the start, all saved partitions are in the caches.
        let store = self.env.checkpoints.store().filter(|store| self.started && store.has_removed(&add.name));
        if let Some(store) = store.cloned() {
            return self.restore_then_start(add, store);
        }
        self.start_cluster(add, ctx);
        Box::pin(actix::fut::ready(Ok(())))
    }
}

impl Handler<ReviewClusterInformers> for RegistryActor {
    type Result = Outcome;

    fn handle(&mut self, ReviewClusterInformers(name): ReviewClusterInformers, _: &mut Self::Context) -> Self::Result {
        let Some(cluster) = self.clusters.get(&name) else {
            return Box::pin(actix::fut::ready(Err(RegistryError::UnknownCluster(name))));
        };
        let reviewing = cluster.address.send(ReviewInformers);
        let work = async move {
            // If the cluster actor dies, its successor starts the informers whose resources the connection then
            // watches.
            let _ = reviewing.await;
            Ok(())
        };
        Box::pin(work.into_actor(self))
    }
}

impl Handler<RemoveCluster> for RegistryActor {
    type Result = Outcome;

    fn handle(&mut self, RemoveCluster(name): RemoveCluster, ctx: &mut Self::Context) -> Self::Result {
        if let Some(waiters) = self.restoring.get_mut(&name) {
            let (restored, registry) = (waiters.wait(), ctx.address());
            let work = async move {
                restored.await;
                registry.send(RemoveCluster(name)).await.unwrap_or(Err(RegistryError::ShuttingDown))
            };
            return Box::pin(work.into_actor(self));
        }
        let Some(cluster) = self.clusters.remove(&name) else {
            return Box::pin(actix::fut::ready(Err(RegistryError::UnknownCluster(name))));
        };
        self.views.write().remove(&name);
        self.unexpect(&name);
        self.removing.insert(name.clone());
        let (env, store) = (self.env.clone(), self.env.checkpoints.store().cloned());
        let drain_until = store.as_ref().map(|_| clock::now() + STOP_GRACE);
        let stopping =
            cluster.address.send(StopCluster(StopInformer { drain_until, stays_open: drain_until.is_some() }));
        let removed = name.clone();
        let work = async move {
            // False if the actor died before it closed its partitions.
            let has_stopped = stopping.await.is_ok();
            if let Some(store) = store.filter(|_| has_stopped) {
                return checkpoint::save_removed(&env, &store, &removed).await;
            }
            join_all(env.caches.abandon(&removed)).await;
            Vec::new()
        };
        Box::pin(work.into_actor(self).map(move |unsaved, act, ctx| {
            act.removing.remove(&name);
            // A hub that is shutting down keeps the delivery state for the last checkpoint.
            if !act.env.checkpoints.is_closing() {
                act.subscriptions.values().for_each(|subscription| subscription.forget_cluster(&name, &unsaved));
            }
            if !unsaved.is_empty() {
                Self::drop_unsaved_later(ctx);
            }
            Ok(())
        }))
    }
}
