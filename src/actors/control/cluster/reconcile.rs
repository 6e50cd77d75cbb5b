//! Reconciliation of requests with what a cluster offers, as reported by discovery.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use smol_str::SmolStr;

use crate::actors::control::cluster::{ClusterActor, Informer, RequestKey, RequestState, informer_key_of};
use crate::actors::control::discovery::{DiscoveryActor, DiscoveryParts};
use crate::actors::control::messages::{DiscoveryReport, MoveTo, Resolved, StopInformer, WatchMode};
use crate::actors::pipeline::messages::Stop;
use crate::actors::runtime::jitter::jittered;
use crate::actors::runtime::supervision::{ChildExited, ExitGuard, detach, start_control, stop_with};
use crate::actors::status::hub::DiscoveryStatus;
use crate::actors::subscribe::resource_request::ResourceRequest;
use crate::actors::subscribe::user::User;
use crate::discovery::{DiscoveryResults, Share, WatchDecision, decide_watch, definition_of};
use informer_hub_reflector::InformerOptions;
use informer_hub_types::{
    ApiResource, InformerHealth, Phase, ResourcePattern, ResourceRef, Scope, built_in, clock, is_built_in,
};

/// Delay before discovery is restarted after it died too often; up to half of it is added at random.
const RESTART_DELAY: Duration = Duration::from_secs(60);

/// Pattern of resources that a user (configuration entry, caller or subscription) requested.
pub(super) struct RequestedPattern {
    pub(super) pattern: ResourcePattern,
    pub(super) scopes: BTreeSet<Scope>,
    pub(super) options: Arc<InformerOptions>,
}

/// Last discovery result of a cluster, and the patterns that select from it.
#[derive(Default)]
pub(super) struct ClusterDiscovery {
    actor: Option<(usize, Option<Addr<DiscoveryActor>>)>,
    seen: Option<DiscoveryResults>,
    view: DiscoveryStatus,
    /// Whether the last discovery request failed.
    pub(super) failing: bool,
    pub(super) patterns: BTreeMap<User, RequestedPattern>,
    pub(super) shares: BTreeMap<User, Share>,
}

impl ClusterDiscovery {
    /// Returns whether a discovery result is known.
    pub(super) fn knows(&self) -> bool {
        self.seen.is_some()
    }

    pub(super) fn seen(&self) -> Option<&DiscoveryResults> {
        self.seen.as_ref()
    }

    /// Returns whether `number` is the number of the current discovery actor.
    pub(super) fn is_of(&self, number: usize) -> bool {
        self.actor.as_ref().is_some_and(|(known, _)| *known == number)
    }

    /// Address of the discovery actor, while it runs.
    #[cfg(test)]
    pub(super) fn address(&self) -> Option<Addr<DiscoveryActor>> {
        self.actor.as_ref().and_then(|(_, address)| address.clone())
    }

    pub(super) fn status(&self) -> Option<DiscoveryStatus> {
        self.actor.as_ref().map(|_| self.view.clone())
    }
}

impl ClusterActor {
    /// Starts, stops and moves informers to match requests and discovery. Idempotent.
    pub(super) fn reconcile(&mut self, ctx: &mut Context<Self>) {
        if self.stopping || self.connection.is_none() {
            return;
        }
        if !self.needs_discovery() {
            return self.stop_discovery();
        }
        if self.discovery.actor.is_none() {
            self.start_discovery(ctx);
        }
        if !self.discovery.knows() {
            return;
        }
        self.assign_patterns(ctx);
        let keys: Vec<_> = self.requests.keys().cloned().collect();
        for key in keys {
            self.reconcile_request(&key, ctx);
        }
    }

    /// Returns whether discovery must run, because the cluster may start or stop offering a requested resource at any
    /// time. It need not run if all requested resources are built-in and offered: only an upgrade of the apiserver can
    /// remove such a resource.
    fn needs_discovery(&self) -> bool {
        let may_go = |(key, request): (&Arc<RequestKey>, &RequestState)| {
            let may_go = |resource: &ApiResource| !is_built_in(&resource.gvr.group, &resource.gvr.resource);
            match (&key.0, &request.resolved) {
                (_, Some(resolved)) => may_go(resolved),
                (ResourceRequest::Known(known), None) => may_go(&known.0),
                (ResourceRequest::Written(written), None) => {
                    built_in(written).is_none() || request.health.phase() == Phase::Absent
                }
                (ResourceRequest::Matching(_), None) => true,
            }
        };
        let is_idle = |informer: &Informer| informer.parts.mode != WatchMode::Active;
        !self.discovery.patterns.is_empty()
            || self.requests.iter().map(|(key, request)| (key, request.as_ref())).any(may_go)
            || self.informers.values().any(|informer| is_idle(informer))
    }

    fn start_discovery(&mut self, ctx: &mut Context<Self>) {
        let Some(connection) = self.connection.clone() else { return };
        self.next_number += 1;
        let number = self.next_number;
        let (env, cluster, listener) = (self.env.clone(), self.parts.name.clone(), ctx.address().recipient());
        let recovery = self.recovery.clone();
        let guard = ExitGuard::new(number, 0, Some(&ctx.address().recipient()), &self.env.actor_count);
        let token = self.children.token();
        let address = start_control(self.env.arbiter(), move |ctx| {
            stop_with(&token, ctx);
            DiscoveryActor::new(env, DiscoveryParts { cluster, connection, listener, number, recovery }, guard)
        });
        self.discovery.actor = Some((number, Some(address)));
    }

    pub(super) fn stop_discovery(&mut self) {
        self.stop_discovery_actor();
        (self.discovery.seen, self.discovery.view, self.discovery.failing) = (None, DiscoveryStatus::default(), false);
    }

    /// Restarts a running discovery actor, with new watches. The last discovery result is kept.
    pub(super) fn restart_discovery(&mut self, ctx: &mut Context<Self>) {
        if self.stop_discovery_actor() {
            self.start_discovery(ctx);
        }
    }

    /// Stops the discovery actor. Returns whether one was running or about to be restarted.
    fn stop_discovery_actor(&mut self) -> bool {
        let Some((_, address)) = self.discovery.actor.take() else { return false };
        if let Some(address) = address {
            detach(address.send(Stop { drain: false }));
        }
        true
    }

    pub(super) fn on_discovery_exit(&mut self, exited: ChildExited, ctx: &mut Context<Self>) {
        let delay = if self.supervision.note_death(clock::now()) { Duration::ZERO } else { jittered(RESTART_DELAY) };
        tracing::error!(
            cluster = %self.parts.name, status = %exited.status, restart_in = ?delay,
            "the part of the hub that discovers the cluster's resource types failed; restarting it, and its last result \
             stays in use"
        );
        if let Some((_, address)) = &mut self.discovery.actor {
            *address = None;
        }
        ctx.run_later(delay, move |act, ctx| {
            if act.discovery.is_of(exited.child) {
                act.start_discovery(ctx);
            }
        });
    }

    /// Compares one request with the discovery result. Then starts, resumes, moves or idles the informer of the
    /// request, or deletes its objects if the resource is gone.
    pub(super) fn reconcile_request(&mut self, key: &RequestKey, ctx: &mut Context<Self>) {
        let (Some(seen), Some(request)) = (self.discovery.seen().cloned(), self.requests.get_mut(key)) else { return };
        let written = match &key.0 {
            ResourceRequest::Written(written) => written.clone(),
            ResourceRequest::Known(known) => ResourceRef::exact(&known.0.gvr),
            ResourceRequest::Matching(_) => return,
        };
        if let (Some(resolved), Some(definitions)) = (&request.resolved, &seen.definitions)
            && let Some(&generation) = definitions.get(&definition_of(&resolved.gvr))
        {
            request.health.set_defined();
            let informer_key = informer_key_of(key, resolved);
            self.note_generation(&informer_key, generation, ctx);
        }
        let Some(request) = self.requests.get(key) else { return };
        let was_defined = request.health.is_defined();
        let decision = decide_watch(&written, request.resolved.as_ref(), was_defined, &seen);
        if let (WatchDecision::Rest { .. }, Some(restored)) = (&decision, &request.restored)
            && let WatchDecision::Rest { gone: true, why } = decide_watch(&written, Some(restored), was_defined, &seen)
        {
            return self.delete_restored(key, why, ctx);
        }
        match decision {
            WatchDecision::Unknown => {}
            WatchDecision::Watch(found) => self.watch(key, found, ctx),
            WatchDecision::Move(found) => self.move_to(key, &found, false, ctx),
            // A known resource, which code requested, is never replaced by one that was defined anew.
            WatchDecision::Renew(_) if matches!(key.0, ResourceRequest::Known(_)) => self.resume(key),
            WatchDecision::Renew(found) => self.move_to(key, &found, true, ctx),
            WatchDecision::Rest { gone, why } => self.set_idle(key, gone, why, ctx),
        }
    }

    fn watch(&mut self, key: &RequestKey, found: ApiResource, ctx: &mut Context<Self>) {
        let Some(request) = self.requests.get(key) else { return };
        if request.resolved.is_some() {
            return self.resume(key);
        }
        request.health.set_answers(true);
        self.on_resolved(key, found, ctx);
    }

    /// Resumes the list and watch of an informer that stopped them because its resource was absent.
    fn resume(&mut self, key: &RequestKey) {
        let Some(informer) = self.informer_key(key).and_then(|key| self.informers.get_mut(&key)) else { return };
        if std::mem::take(&mut informer.parts.mode) == WatchMode::Active {
            return;
        }
        informer.parts.health.set_error(None);
        tracing::info!(
            cluster = %self.parts.name, resource = %informer.parts.origin.resource.gvr,
            "the resource exists again; watching it"
        );
        if let Some(address) = &informer.address {
            detach(address.send(WatchMode::Active));
        }
    }

    /// Deletes the restored objects of a resource whose definition was deleted while the hub was down.
    fn delete_restored(&mut self, key: &RequestKey, why: String, ctx: &mut Context<Self>) {
        let Some(request) = self.requests.get_mut(key) else { return };
        let Some(restored) = request.restored.take() else { return };
        request.resolved = Some(restored.clone());
        request.lookup = 0;
        // Starts without deletions, so that `set_idle` waits for them before the informer counts as unused.
        self.start_informer(key, &restored, None, WatchMode::IdleKeep, ctx);
        self.set_idle(key, true, why, ctx);
    }

    /// Stops the list and watch of a resource that the cluster does not offer. With `gone`, also deletes its objects.
    fn set_idle(&mut self, key: &RequestKey, gone: bool, why: String, ctx: &mut Context<Self>) {
        let Some(request) = self.requests.get_mut(key) else { return };
        let is_new = request.health.error().is_none_or(|known| *known != why);
        let informer_key = request.resolved.as_ref().map(|resolved| informer_key_of(key, resolved));
        let Some(informer) = informer_key.and_then(|key| self.informers.get_mut(&key)) else {
            if request.resolved.is_none() {
                request.health.set_answers(true);
                request.health.set_phase(Phase::Absent);
                if is_new {
                    tracing::warn!(
                        cluster = %self.parts.name, resource = key.0.text(), error = why,
                        "the cluster does not serve the resource; it is watched once it is served"
                    );
                }
                request.missed = true;
                // Invalidates a lookup in progress.
                request.lookup = 0;
                request.health.set_error(Some(why));
            }
            return;
        };
        let mode = if gone { WatchMode::IdleClear } else { WatchMode::IdleKeep };
        if informer.parts.mode == WatchMode::IdleClear || informer.parts.mode == mode {
            return;
        }
        informer.parts.mode = mode;
        let (health, resource) = (Arc::clone(&informer.parts.health), informer.parts.origin.resource.gvr.clone());
        tracing::warn!(
            cluster = %self.parts.name, %resource, error = why,
            "the cluster no longer serves the resource; stopped watching it"
        );
        health.set_answers(true);
        health.set_error(Some(why.clone()));
        let idling = informer.address.as_ref().map(|address| address.send(mode));
        let key = key.clone();
        let work = async move {
            if let Some(idling) = idling {
                let _ = idling.await;
            }
        };
        ctx.spawn(work.into_actor(self).map(move |(), act, ctx| act.on_idle(&key, mode, why, ctx)));
    }

    /// Sets phase and error of an informer that has become idle, and removes its resource if it is no longer needed.
    /// Called once the informer's remaining events are queued for subscribers.
    fn on_idle(&mut self, key: &RequestKey, mode: WatchMode, why: String, ctx: &mut Context<Self>) {
        let informer = self.informer_key(key).and_then(|key| self.informers.get(&key));
        let Some(informer) = informer.filter(|informer| informer.parts.mode == mode) else { return };
        // A late report of the reflector may have overwritten phase and error.
        informer.parts.health.set_phase(Phase::Absent);
        informer.parts.health.set_error(Some(why));
        self.remove_if_unused(key, ctx);
        self.publish_view();
    }

    /// Moves the informer of a request to the resource `found`: another API version, or (if `renewed`) a resource that
    /// was deleted and defined again.
    fn move_to(&mut self, key: &RequestKey, found: &ApiResource, renewed: bool, ctx: &mut Context<Self>) {
        let Some(from) = self.informer_key(key) else { return };
        if self.is_elsewhere(key) {
            if let Some(request) = self.requests.get_mut(key) {
                request.resolved = None;
            }
            return self.on_resolved(key, found.clone(), ctx);
        }
        let to = informer_key_of(key, found);
        let same_informer: Vec<_> =
            self.requests.keys().filter(|key| self.informer_key(key).as_ref() == Some(&from)).cloned().collect();
        let names_version = |key: &Arc<RequestKey>| match &key.0 {
            ResourceRequest::Written(written) => written.version.is_some(),
            ResourceRequest::Known(_) | ResourceRequest::Matching(_) => true,
        };
        let is_alone = renewed || !same_informer.iter().any(names_version);
        let is_free = from == to || !self.informers.contains_key(&to) && !self.ending.contains(&to);
        if from.1 != to.1 || !is_alone || !is_free {
            return self.restart_informer(key, renewed, ctx);
        }
        let Some(request) = self.requests.get(key) else { return };
        let options = self.options_of(key, found).unwrap_or(&request.options).clone();
        let (Some(connection), Some(mut informer)) = (&self.connection, self.informers.remove(&from)) else { return };
        let source = connection.lister_watcher(found, &to.1, &options);
        let origin = Arc::new(self.origin_of(found, &to));
        tracing::info!(
            cluster = %self.parts.name, from = from.0.long(), to = to.0.long(), kind = %found.kind,
            "the version or definition of the resource has changed; its informer watches the new one"
        );
        informer.parts.health.set_error(None);
        // The next list is assumed to be read under this generation of the CRD: discovery has found the new resource,
        // so the apiserver has read the CRD.
        if let Some(generation) = informer.generation {
            informer.parts.health.set_definition_generation(generation);
        }
        let moving = informer.move_to(MoveTo { origin, source, mode: WatchMode::Active, renewed });
        self.informers.insert(Arc::new(to), informer);
        for key in same_informer {
            if let Some(request) = self.requests.get_mut(&key) {
                request.resolved = Some(found.clone());
                let (cluster, wanted) = (self.parts.name.clone(), key.0.clone());
                detach(self.parts.registry.send(Resolved { cluster, wanted, resource: found.clone() }));
            }
        }
        let work = async move {
            if let Some(moving) = moving {
                let _ = moving.await;
            }
        };
        ctx.spawn(work.into_actor(self).map(|(), act, _| act.publish_view()));
    }

    /// Replaces the informer of a request. Stops the previous informer, unless other requests use it. With `gone`, the
    /// objects of the stopped informer are deleted first.
    fn restart_informer(&mut self, key: &RequestKey, gone: bool, ctx: &mut Context<Self>) {
        let Some(from) = self.informer_key(key) else { return };
        let Some(request) = self.requests.get_mut(key) else { return };
        (request.resolved, request.health) = (None, InformerHealth::new());
        let is_used = self.requests.keys().any(|key| self.informer_key(key).as_ref() == Some(&from));
        if is_used {
            let key = key.clone();
            return self.reconcile_request(&key, ctx);
        }
        let Some((from, informer)) = self.informers.remove_entry(&from) else { return };
        let clearing = informer.address.as_ref().filter(|_| gone).map(|address| address.send(WatchMode::IdleClear));
        self.ending.insert(Arc::clone(&from));
        let work = async move {
            if let Some(clearing) = clearing {
                let _ = clearing.await;
            }
        };
        // The request is resolved again when the informer has stopped.
        ctx.spawn(work.into_actor(self).then(move |(), act, _| {
            let drain_until = gone.then(|| clock::now() + crate::actors::runtime::capacity::STOP_GRACE);
            act.stop_all(BTreeMap::from([(from, informer)]), StopInformer { drain_until, stays_open: false })
        }));
        let key = key.clone();
        self.reconcile_request(&key, ctx);
    }
}

impl Handler<DiscoveryReport> for ClusterActor {
    type Result = ();

    fn handle(&mut self, report: DiscoveryReport, ctx: &mut Self::Context) {
        if self.stopping || !self.discovery.is_of(report.number) {
            return;
        }
        if let Some(outcome) = &report.outcome {
            let was_failing = std::mem::replace(&mut self.discovery.failing, outcome.is_err());
            if was_failing && outcome.is_ok() {
                self.recovery.signal();
            }
            match outcome {
                Ok(()) => self.probe_server(ctx),
                Err(error) => self.log_unreachable(error),
            }
        }
        self.discovery.view = report.view;
        if let Some(seen) = report.seen {
            self.discovery.seen = Some(seen);
            self.request_restored(ctx);
            self.reconcile(ctx);
            self.attach_all();
        }
        self.log_reachable();
        self.publish_view();
    }
}

pub(super) fn group_and_plural(resource: &ApiResource) -> (SmolStr, SmolStr) {
    (resource.gvr.group.clone(), resource.gvr.resource.clone())
}
