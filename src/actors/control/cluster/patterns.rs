//! Resource patterns: assigns each resource that a cluster offers to the pattern that selects it. Then requests the
//! resource as if the user of the pattern had named it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use actix::prelude::*;
use smol_str::SmolStr;

use crate::actors::control::cluster::reconcile::{ClusterDiscovery, RequestedPattern, group_and_plural};
use crate::actors::control::cluster::{ClusterActor, RequestKey, RequestState};
use crate::actors::control::messages::WatchMode;
use crate::actors::runtime::capacity::STOP_GRACE;
use crate::actors::runtime::jitter::jittered;
use crate::actors::status::hub::PatternStatus;
use crate::actors::subscribe::requests::RequestInformer;
use crate::actors::subscribe::resource_request::ResourceRequest;
use crate::actors::subscribe::subscription::Subscription;
use crate::actors::subscribe::user::User;
use crate::discovery::{Claim, share};
use informer_hub_reflector::InformerOptions;
use informer_hub_types::{
    ApiResource, Catalogue, ResourceLookup, ResourcePattern, ResourceRef, Scope, clock, first_names,
};

/// How often subscribers are checked for pending events of a removed resource.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

impl ClusterDiscovery {
    /// Sets the resource pattern of a user (configuration entry, caller or subscription), and adds a scope in which the
    /// pattern's resources are watched.
    pub(super) fn add_pattern(
        &mut self,
        user: User,
        pattern: ResourcePattern,
        scope: Scope,
        options: Arc<InformerOptions>,
    ) {
        let new = || RequestedPattern { pattern: pattern.clone(), scopes: BTreeSet::new(), options };
        let known = self.patterns.entry(user).or_insert_with(new);
        known.pattern = pattern;
        known.scopes.insert(scope);
    }

    pub(super) fn shares(&self) -> Vec<PatternStatus> {
        let status = |(user, asked): (&User, &RequestedPattern)| {
            let share = self.shares.get(user).cloned().unwrap_or_default();
            let name = match user {
                User::Config(name) | User::Caller(name) => name.clone(),
                User::Subscription(id) => id.to_string(),
            };
            PatternStatus {
                name,
                pattern: asked.pattern.to_string(),
                watched: share.watched.iter().map(|resource| resource.gvr.to_string()).collect(),
                left_out: share.left_out,
            }
        };
        self.patterns.iter().map(status).collect()
    }
}

/// Returns the name under which a pattern requests a resource: without an API version.
fn name_of(resource: &ApiResource) -> ResourceRef {
    ResourceRef { version: None, ..ResourceRef::exact(&resource.gvr) }
}

impl ClusterActor {
    /// Returns whether a resource was requested by patterns only, not by its name.
    fn is_matched(&self, request: &RequestState) -> bool {
        request.users.iter().all(|user| self.discovery.patterns.contains_key(user))
    }

    /// Assigns the offered resources to patterns and updates the requests accordingly.
    pub(super) fn assign_patterns(&mut self, ctx: &mut Context<Self>) {
        if self.discovery.patterns.is_empty() {
            return self.discovery.shares.clear();
        }
        let Some(seen) = self.discovery.seen().cloned() else { return };
        let taken = self.named_resources();
        let claims = self.discovery.patterns.iter().map(|(user, known)| Claim { user, pattern: &known.pattern });
        let shares = share(claims, &taken, &seen.catalogue);
        for (user, share) in &shares {
            let known = self.discovery.shares.get(user).map(|share| &share.left_out);
            if !share.left_out.is_empty() && known != Some(&share.left_out) {
                let pattern =
                    self.discovery.patterns.get(user).map(|known| known.pattern.to_string()).unwrap_or_default();
                tracing::warn!(
                    cluster = %self.parts.name, pattern,
                    watched = share.watched.len(), left_out = first_names(&share.left_out),
                    "the pattern selects more resources than its limit; some are not watched: raise the limit or \
                     exclude resources"
                );
            }
        }
        let selected: BTreeSet<(User, RequestKey)> = shares
            .iter()
            .filter_map(|(user, share)| Some((user, share, self.discovery.patterns.get(user)?)))
            .flat_map(|(user, share, known)| {
                let keys = share
                    .watched
                    .iter()
                    .map(|resource| ResourceRequest::Written(name_of(resource)))
                    .flat_map(|name| known.scopes.iter().map(move |scope| (name.clone(), scope.clone())));
                keys.map(|key| (user.clone(), key)).collect::<Vec<_>>()
            })
            .collect();
        self.discovery.shares = shares;
        self.remove_unselected(&selected, &seen.catalogue, ctx);
        for (user, (wanted, scope)) in selected {
            let Some(known) = self.discovery.patterns.get(&user) else { continue };
            let is_requested =
                self.requests.get(&(wanted.clone(), scope.clone())).is_some_and(|it| it.users.contains(&user));
            if !is_requested {
                let options = known.options.clone();
                self.request_informer(RequestInformer { user, wanted, scope, options, watch_errors: None }, ctx);
            }
        }
    }

    /// Requests restored resources that patterns select but the cluster no longer offers. They are then treated like
    /// any other absent resource.
    pub(super) fn request_restored(&mut self, ctx: &mut Context<Self>) {
        let Some(seen) = self.discovery.seen().filter(|_| !self.discovery.patterns.is_empty()).cloned() else { return };
        for (resource, scope) in self.env.caches.restored_resources(&self.parts.name) {
            let is_known = |(key, request): (&Arc<RequestKey>, &RequestState)| {
                let known = request.resolved.as_ref().or(request.restored.as_ref());
                key.1 == scope && known.is_some_and(|known| known.gvr == resource.gvr)
            };
            let name = name_of(&resource);
            let may_be_offered = !matches!(seen.catalogue.find(&name), ResourceLookup::Nothing);
            if may_be_offered || self.requests.iter().map(|(key, request)| (key, request.as_ref())).any(is_known) {
                continue;
            }
            let is_of = |(_, known): &(&User, &RequestedPattern)| {
                known.pattern.may_have(&resource.gvr) && known.scopes.contains(&scope)
            };
            if let Some((user, known)) = self.discovery.patterns.iter().find(is_of) {
                let (user, options, wanted) = (user.clone(), known.options.clone(), ResourceRequest::Written(name));
                self.request_informer(RequestInformer { user, wanted, scope, options, watch_errors: None }, ctx);
            }
        }
    }

    /// Returns the resources that configuration entries name; these are not assigned to patterns.
    fn named_resources(&self) -> BTreeSet<(SmolStr, SmolStr)> {
        let by_name = self.requests.iter().filter(|(_, request)| {
            request
                .users
                .iter()
                .any(|user| matches!(user, User::Config(_)) && !self.discovery.patterns.contains_key(user))
        });
        let resource = |(key, request): (&Arc<RequestKey>, &RequestState)| {
            if let Some(resolved) = &request.resolved {
                return Some(group_and_plural(resolved));
            }
            let ResourceRequest::Written(written) = &key.0 else { return None };
            match self.discovery.seen()?.catalogue.find(&ResourceRef { version: None, ..written.clone() }) {
                ResourceLookup::Resource(found) => Some(group_and_plural(&found)),
                ResourceLookup::OtherVersions(_) | ResourceLookup::Unknown | ResourceLookup::Nothing => None,
            }
        };
        by_name.map(|(key, request)| (key, request.as_ref())).filter_map(resource).collect()
    }

    /// Withdraws each pattern's requests for resources that it no longer selects. A resource that the cluster does not
    /// offer at present stays requested; its absence is handled separately.
    fn remove_unselected(
        &mut self,
        selected: &BTreeSet<(User, RequestKey)>,
        catalogue: &Catalogue,
        ctx: &mut Context<Self>,
    ) {
        let is_offered = |key: &RequestKey| match &key.0 {
            ResourceRequest::Written(written) => matches!(catalogue.find(written), ResourceLookup::Resource(_)),
            ResourceRequest::Known(_) | ResourceRequest::Matching(_) => true,
        };
        let is_selected = |user: &User, key: &RequestKey| {
            let Some(known) = self.discovery.patterns.get(user) else { return true };
            selected.contains(&(user.clone(), key.clone()))
                || !is_offered(key) && ResourceRequest::Matching(known.pattern.clone()).may_be(&key.0)
        };
        let unselected: Vec<_> = self
            .requests
            .iter()
            .flat_map(|(key, request)| request.users.iter().map(move |user| (user, key)))
            .filter(|(user, key)| !is_selected(user, key))
            .map(|(user, key)| (user.clone(), Arc::clone(key)))
            .collect();
        if unselected.is_empty() {
            return;
        }
        let selected = self.selected_informers();
        for (user, key) in unselected {
            self.withdraw(&key, &user);
        }
        self.remove_listeners(selected);
        let stopping = self.stop_unused(Some(clock::now() + STOP_GRACE), ctx);
        ctx.spawn(stopping);
    }

    /// Removes a resource that only patterns requested and whose definition is gone, once its subscribers have received
    /// the deletions.
    ///
    /// Keeping such resources would leak memory on a cluster that creates and deletes definitions.
    pub(super) fn remove_if_unused(&mut self, key: &RequestKey, ctx: &mut Context<Self>) {
        let Some(request) = self.requests.get(key).filter(|request| self.is_matched(request)) else { return };
        let Some(informer) = self.informer_key(key).and_then(|key| self.informers.get(&key)) else { return };
        let (is_idle, origin) = (informer.parts.mode != WatchMode::Active, &informer.parts.origin);
        if !is_idle || request.health.objects.load(Relaxed) > 0 {
            return;
        }
        let has_pending = |subscription: &Arc<Subscription>| {
            subscription.known_inbox_at(origin).is_some_and(|inbox| !inbox.is_idle())
        };
        if self.attached.values().any(has_pending) {
            let key = key.clone();
            ctx.run_later(jittered(CHECK_INTERVAL), move |act, ctx| act.remove_if_unused(&key, ctx));
            return;
        }
        if let Some(request) = self.requests.get_mut(key) {
            request.users.clear();
        }
        let stopping = self.stop_unused(None, ctx);
        ctx.spawn(stopping);
    }
}
