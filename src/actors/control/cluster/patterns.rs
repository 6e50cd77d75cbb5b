//! Resource patterns: assigns the resources a cluster offers to patterns, and requests each of them as if it were
//! named.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use actix::prelude::*;
use smol_str::SmolStr;

use crate::actors::control::cluster::survey::{Asked, Survey, taken_by};
use crate::actors::control::cluster::{ClusterActor, InformerKey, WantKey, WantState};
use crate::actors::control::messages::Rest;
use crate::actors::runtime::jitter::jittered;
use crate::actors::status::hub::PatternStatus;
use crate::actors::subscribe::requests::Want;
use crate::actors::subscribe::resource_request::ResourceRequest;
use crate::actors::subscribe::subscription::Subscription;
use crate::actors::subscribe::user::User;
use crate::discovery::{Claim, share};
use informer_hub_reflector::InformerOptions;
use informer_hub_types::{ApiResource, Catalogue, Found, ResourcePattern, ResourceRef, Scope};

/// How often subscribers are checked for pending events of a removed resource.
const LOOK: Duration = Duration::from_secs(1);

impl Survey {
    /// Adds a scope to a pattern, or updates the pattern.
    pub(super) fn ask_for(&mut self, user: User, pattern: ResourcePattern, scope: Scope, options: InformerOptions) {
        let new = || Asked { pattern: pattern.clone(), scopes: BTreeSet::new(), options };
        let known = self.patterns.entry(user).or_insert_with(new);
        known.pattern = pattern;
        known.scopes.insert(scope);
    }

    pub(super) fn shares(&self) -> Vec<PatternStatus> {
        let status = |(user, asked): (&User, &Asked)| {
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

/// Returns the request for a resource selected by a pattern.
fn named(resource: &ApiResource) -> ResourceRequest {
    let gvr = &resource.gvr;
    ResourceRequest::Written(ResourceRef {
        resource: gvr.resource.clone(),
        version: None,
        group: Some(gvr.group.clone()),
    })
}

impl ClusterActor {
    /// Returns whether all users of a request are patterns.
    fn is_matched(&self, want: &WantState) -> bool {
        want.users.iter().all(|user| self.survey.patterns.contains_key(user))
    }

    /// Assigns the offered resources to patterns and updates the requests accordingly.
    pub(super) fn deal_out(&mut self, ctx: &mut Context<Self>) {
        if self.survey.patterns.is_empty() {
            return self.survey.shares.clear();
        }
        let Some(seen) = self.survey.seen().cloned() else { return };
        let taken = self.named_ones();
        let claims = self.survey.patterns.iter().map(|(user, known)| Claim { user, pattern: &known.pattern });
        let shares = share(claims, &taken, &seen.catalogue);
        for (user, share) in &shares {
            let known = self.survey.shares.get(user).map(|share| &share.left_out);
            if !share.left_out.is_empty() && known != Some(&share.left_out) {
                let pattern = self.survey.patterns.get(user).map(|known| known.pattern.to_string()).unwrap_or_default();
                tracing::warn!(
                    cluster = %self.parts.name, pattern, watched = share.watched.len(), left_out = share.left_out.join(", "),
                    "pattern limit reached, some resources are not watched: raise the limit or exclude resources"
                );
            }
        }
        let wishes: BTreeSet<(User, WantKey)> = shares
            .iter()
            .filter_map(|(user, share)| Some((user, share, self.survey.patterns.get(user)?)))
            .flat_map(|(user, share, known)| {
                let keys = share
                    .watched
                    .iter()
                    .map(named)
                    .flat_map(|name| known.scopes.iter().map(move |scope| (name.clone(), scope.clone())));
                keys.map(|key| (user.clone(), key)).collect::<Vec<_>>()
            })
            .collect();
        self.survey.shares = shares;
        self.drop_what_is_not_wished(&wishes, &seen.catalogue, ctx);
        for (user, (wanted, scope)) in wishes {
            let Some(known) = self.survey.patterns.get(&user) else { continue };
            let is_wanted = self.wants.get(&(wanted.clone(), scope.clone())).is_some_and(|it| it.users.contains(&user));
            if !is_wanted {
                let options = known.options.clone();
                self.want(Want { user, wanted, scope, options, watch_errors: None }, ctx);
            }
        }
    }

    /// Returns the resources that configuration entries name; these are not assigned to patterns.
    fn named_ones(&self) -> BTreeSet<(SmolStr, SmolStr)> {
        let by_name = self.wants.iter().filter(|(_, want)| {
            want.users.iter().any(|user| matches!(user, User::Config(_)) && !self.survey.patterns.contains_key(user))
        });
        let resource = |(key, want): (&Arc<WantKey>, &WantState)| {
            if let Some(resolved) = &want.resolved {
                return Some(taken_by(resolved));
            }
            let ResourceRequest::Written(written) = &key.0 else { return None };
            match self.survey.seen()?.catalogue.find(&ResourceRef { version: None, ..written.clone() }) {
                Found::Resource(found) => Some(taken_by(&found)),
                Found::OtherVersions(_) | Found::Unknown | Found::Nothing => None,
            }
        };
        by_name.map(|(key, want)| (key, want.as_ref())).filter_map(resource).collect()
    }

    /// Removes requests that no pattern selects any more. A resource that the cluster does not offer at present stays
    /// requested; its absence is handled separately.
    fn drop_what_is_not_wished(
        &mut self,
        wishes: &BTreeSet<(User, WantKey)>,
        catalogue: &Catalogue,
        ctx: &mut Context<Self>,
    ) {
        let is_offered = |key: &WantKey| match &key.0 {
            ResourceRequest::Written(written) => matches!(catalogue.find(written), Found::Resource(_)),
            ResourceRequest::Known(_) | ResourceRequest::Matching(_) => true,
        };
        let is_meant = |user: &User, key: &WantKey| {
            let Some(known) = self.survey.patterns.get(user) else { return true };
            wishes.contains(&(user.clone(), key.clone()))
                || !is_offered(key) && ResourceRequest::Matching(known.pattern.clone()).may_be(&key.0)
        };
        let unmeant: Vec<_> = self
            .wants
            .iter()
            .flat_map(|(key, want)| want.users.iter().map(move |user| (user, key)))
            .filter(|(user, key)| !is_meant(user, key))
            .map(|(user, key)| (user.clone(), Arc::clone(key)))
            .collect();
        if unmeant.is_empty() {
            return;
        }
        for (user, key) in unmeant {
            if let Some(want) = self.wants.get_mut(&key) {
                want.users.remove(&user);
            }
        }
        let gone = self.let_go(None, ctx);
        ctx.spawn(gone);
    }

    /// Removes a resource that only patterns requested and whose definition is gone, once its subscribers have received
    /// the deletions.
    ///
    /// Keeping such resources would leak memory on a cluster that creates and deletes definitions.
    pub(super) fn drop_matched(&mut self, key: &WantKey, ctx: &mut Context<Self>) {
        let Some(want) = self.wants.get(key).filter(|want| self.is_matched(want)) else { return };
        let Some(informer) = self.informer_key(key).and_then(|key| self.informers.get(&key)) else { return };
        let (rests, origin) = (informer.parts.rest != Rest::No, &informer.parts.origin);
        if !rests || want.health.objects.load(Relaxed) > 0 {
            return;
        }
        let waits = |subscription: &Arc<Subscription>| {
            subscription.known_inbox_at(origin).is_some_and(|inbox| !inbox.is_idle())
        };
        if self.attached.values().any(waits) {
            let key = key.clone();
            ctx.run_later(jittered(LOOK), move |act, ctx| act.drop_matched(&key, ctx));
            return;
        }
        if let Some(want) = self.wants.get_mut(key) {
            want.users.clear();
        }
        let gone = self.let_go(None, ctx);
        ctx.spawn(gone);
    }

    /// Removes a request that only patterns made, if a configuration entry now names it with other options.
    pub(super) fn yield_to(&mut self, user: &User, key: &WantKey, options: &InformerOptions, ctx: &mut Context<Self>) {
        let is_pattern = self.survey.patterns.contains_key(user);
        let yields = |known: &WantState| {
            let is_free = if is_pattern { known.users.is_empty() } else { self.is_matched(known) };
            is_free && known.options != *options && matches!(user, User::Config(_))
        };
        if self.wants.get(key).is_some_and(|known| yields(known))
            && let Some(known) = self.wants.get_mut(key)
        {
            known.users.clear();
            let gone = self.let_go(None, ctx);
            ctx.spawn(gone);
        }
    }

    /// As [`Self::yield_to`], for an entry that names the resource differently than the pattern does.
    pub(super) fn take_from_patterns(&mut self, key: &WantKey, informer: &InformerKey, ctx: &mut Context<Self>) {
        let Some(want) = self.wants.get(key).filter(|want| !self.is_matched(want)) else { return };
        if !want.users.iter().any(|user| matches!(user, User::Config(_))) {
            return;
        }
        let others = self.wants.iter().filter(|(other, _)| self.informer_key(other).as_ref() == Some(informer));
        let others: Vec<_> = others.map(|(key, other)| (Arc::clone(key), other.as_ref())).collect();
        let yields = |(_, other): &(_, &WantState)| self.is_matched(other) && other.options != want.options;
        if others.is_empty() || !others.iter().all(yields) {
            return;
        }
        let others: Vec<_> = others.into_iter().map(|(key, _)| key).collect();
        for other in others {
            if let Some(other) = self.wants.get_mut(&other) {
                other.users.clear();
            }
        }
        let gone = self.let_go(None, ctx);
        ctx.spawn(gone);
    }
}
