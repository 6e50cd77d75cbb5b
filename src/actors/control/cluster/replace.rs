//! Changed requests: an entry of the configuration, or the resources that a pattern selects, changed while the hub
//! runs.
//!
//! Informers that are still requested after the change continue with their objects. If their options changed, they list
//! again and report the differences.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use actix::prelude::*;

use crate::actors::control::cluster::{ClusterActor, InformerKey, RequestKey};
use crate::actors::control::messages::RemoveListener;
use crate::actors::runtime::capacity::STOP_GRACE;
use crate::actors::runtime::supervision::detach;
use crate::actors::subscribe::requests::{ReplaceRequests, RequestInformer};
use crate::actors::subscribe::resource_request::ResourceRequest;
use crate::actors::subscribe::user::{SubscriptionId, User};
use informer_hub_types::clock;

/// Informers that each subscription selects.
pub(super) type SelectedInformers = BTreeMap<SubscriptionId, BTreeSet<InformerKey>>;

impl ClusterActor {
    pub(super) fn selected_informers(&self) -> SelectedInformers {
        self.attached.iter().map(|(id, subscription)| (*id, self.informers_of(subscription))).collect()
    }

    /// Removes the listeners of subscriptions from informers that they selected `before` and no longer select. Their
    /// pending events are delivered first.
    pub(super) fn remove_listeners(&self, before: SelectedInformers) {
        let drain_until = Some(clock::now() + STOP_GRACE);
        for (id, informers) in before {
            let Some(subscription) = self.attached.get(&id) else { continue };
            let selected = self.informers_of(subscription);
            let left = informers.iter().filter(|key| !selected.contains(key));
            for informer in left.filter_map(|key| self.informers.get(key)) {
                match &informer.address {
                    Some(address) => detach(address.send(RemoveListener { subscription: id, drain_until })),
                    None => subscription.forget(&informer.parts.origin),
                }
            }
        }
    }

    /// Removes a user from a request. An informer without users runs on until `stop_unused`.
    pub(super) fn withdraw(&mut self, key: &RequestKey, user: &User) {
        if let Some(request) = self.requests.get_mut(key) {
            request.remove_user(user);
        }
    }

    fn requests_by(&self, user: &User) -> Vec<Arc<RequestKey>> {
        let of_user = self.requests.iter().filter(|(_, request)| request.users.contains(user));
        of_user.map(|(key, _)| Arc::clone(key)).collect()
    }

    /// Replaces the pattern of a user. Requests that the old pattern made stay until the new one is compared with the
    /// offered resources.
    fn replace_pattern(&mut self, user: &User, requests: Vec<RequestInformer>) {
        // The requests differ in their scope only.
        let options = requests.first().map(|request| Arc::clone(&request.options)).unwrap_or_default();
        for key in self.requests_by(user) {
            if let Some(request) = self.requests.get_mut(&key) {
                request.options = Arc::clone(&options);
            }
            self.apply_settings(&key);
        }
        for RequestInformer { user, wanted, scope, options, .. } in requests {
            if let ResourceRequest::Matching(pattern) = wanted {
                self.discovery.add_pattern(user, pattern, scope, options);
            }
        }
    }
}

impl Handler<ReplaceRequests> for ClusterActor {
    type Result = ResponseActFuture<Self, ()>;

    fn handle(&mut self, replace: ReplaceRequests, ctx: &mut Self::Context) -> Self::Result {
        self.yield_budget.count(ctx);
        let ReplaceRequests { user, requests } = replace;
        let selected = self.selected_informers();
        self.discovery.patterns.remove(&user);
        if requests.iter().any(|request| matches!(request.wanted, ResourceRequest::Matching(_))) {
            self.replace_pattern(&user, requests);
        } else {
            let kept: BTreeSet<_> = requests.iter().map(|one| (one.wanted.clone(), one.scope.clone())).collect();
            for request in requests {
                self.request_informer(request, ctx);
            }
            for key in self.requests_by(&user).into_iter().filter(|key| !kept.contains(&**key)) {
                self.withdraw(&key, &user);
            }
        }
        self.reconcile(ctx);
        self.remove_listeners(selected);
        let stopping = self.stop_unused(Some(clock::now() + STOP_GRACE), ctx);
        self.attach_all();
        stopping
    }
}
