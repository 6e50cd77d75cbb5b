//! Stopping informers of a cluster, and closing their partitions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use actix::prelude::*;
use futures::future::join_all;

use crate::actors::cache::messages::CloseAbandoned;
use crate::actors::control::cluster::{ClusterActor, Informer, InformerKey};
use crate::actors::control::messages::StopInformer;
use crate::actors::runtime::capacity::STOP_GRACE;
use crate::actors::subscribe::user::User;
use informer_hub_types::clock::{self, Instant};

impl ClusterActor {
    /// Removes a user (configuration entry, caller or subscription) from all requests and stops informers without
    /// users.
    pub(super) fn release_user(&mut self, user: &User, ctx: &mut Context<Self>) -> ResponseActFuture<Self, ()> {
        self.discovery.patterns.remove(user);
        for request in self.requests.values_mut() {
            request.remove_user(user);
        }
        // A resource that only this user named may belong to a pattern now.
        self.reconcile(ctx);
        // Callers and subscriptions have ended; sinks still need the events of a removed entry.
        let drain_until = matches!(user, User::Config(_)).then(|| clock::now() + STOP_GRACE);
        self.stop_unused(drain_until, ctx)
    }

    /// Stops informers without users (configuration entries, callers or subscriptions). Pending events are delivered
    /// until `drain_until`; `None` drops them.
    pub(super) fn stop_unused(
        &mut self,
        drain_until: Option<Instant>,
        ctx: &mut Context<Self>,
    ) -> ResponseActFuture<Self, ()> {
        // A subscription that shared a removed request needs its own request, possibly the same one.
        let alone = self.attached.values().filter(|subscription| self.requests_of(subscription).is_empty());
        let own: Vec<_> = alone.filter_map(|subscription| subscription.own_request()).collect();
        for request in own {
            self.request_informer(request, ctx);
        }
        let (caches, name) = (&self.env.caches, &self.parts.name);
        self.requests.retain(|key, request| {
            let is_used = !request.users.is_empty();
            if let Some(restored) = request.restored.as_ref().filter(|_| !is_used) {
                caches.forget_restored(name, restored, &key.1);
            }
            is_used
        });
        let wanted: BTreeSet<_> = self.requests.keys().filter_map(|key| self.informer_key(key)).collect();
        let (kept, unused): (BTreeMap<_, _>, _) =
            std::mem::take(&mut self.informers).into_iter().partition(|(key, _)| wanted.contains(key));
        self.informers = kept;
        self.publish_view();
        self.stop_all(unused, StopInformer { drain_until, stays_open: false })
    }

    /// Stops informers concurrently. Completes when they have stopped and their partitions are closed; closes the
    /// partitions of dead informers itself.
    pub(super) fn stop_all(
        &mut self,
        unused: BTreeMap<Arc<InformerKey>, Box<Informer>>,
        stop: StopInformer,
    ) -> ResponseActFuture<Self, ()> {
        self.ending.extend(unused.keys().cloned());
        let caches = self.env.caches.clone();
        let stops: Vec<_> = unused
            .into_iter()
            .map(|(key, informer)| {
                let stopping = informer.address.map(|address| address.send(stop));
                let (origin, caches) = (informer.parts.origin, caches.clone());
                async move {
                    let stopped = match stopping {
                        Some(stopping) => stopping.await.is_ok(),
                        None => false,
                    };
                    if !stopped && !stop.stays_open {
                        let abandoned = CloseAbandoned::Origin(Arc::clone(&origin));
                        // On an error the cache actor has died; its successor gets the same message.
                        if caches.of_origin(&origin).send(abandoned.clone()).await.is_err() {
                            let _ = caches.of_origin(&origin).send(abandoned).await;
                        }
                    }
                    (key, origin)
                }
            })
            .collect();
        Box::pin(join_all(stops).into_actor(self).map(move |ended, act, ctx| {
            // A hub that is shutting down keeps the delivery state for the last checkpoint.
            let forgets = !act.env.checkpoints.is_closing() && !stop.stays_open;
            for (key, origin) in ended {
                act.ending.remove(&key);
                if !forgets {
                    continue;
                }
                act.attached.values().for_each(|subscription| subscription.forget(&origin));
            }
            // Starts informers that were requested again meanwhile.
            let open: Vec<_> = act
                .requests
                .iter()
                .filter(|(_, request)| request.resolved.is_none())
                .map(|(key, _)| key.clone())
                .collect();
            for key in open {
                act.resolve(&key, ctx);
            }
            act.publish_view();
        }))
    }
}
