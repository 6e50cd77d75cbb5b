//! Connecting to a cluster and resolving requested resources.

use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;

use crate::actors::control::cluster::failure_log::kind_of;
use crate::actors::control::cluster::{ClusterActor, RequestKey, RequestState, informer_key_of};
use crate::actors::control::messages::{Resolved, WatchMode};
use crate::actors::runtime::jitter::jittered;
use crate::actors::runtime::supervision::detach;
use crate::actors::subscribe::resource_request::ResourceRequest;
use informer_hub_reflector::{EarlyRetry, ResolveError, SourceError};
use informer_hub_types::{ApiResource, InformerHealth, Phase, exponential_backoff, rng};

/// Delay before a missing resource is looked up again; up to half of it is added at random.
const ABSENT_RETRY: Duration = Duration::from_secs(20);

const FIRST_RETRY: Duration = Duration::from_secs(1);

const LAST_RETRY: Duration = Duration::from_secs(60);

impl ClusterActor {
    pub(super) fn connect(&mut self, ctx: &mut Context<Self>) {
        let connecting = self.parts.connector.connect().into_actor(self);
        ctx.spawn(connecting.map(|connected, act, ctx| {
            match connected {
                Ok(connection) => {
                    act.connection = Some(connection);
                    act.connect_attempts = 0;
                    act.error = None;
                    act.probe_server(ctx);
                    let open: Vec<_> = act.requests.keys().cloned().collect();
                    for key in open {
                        act.resolve(&key, ctx);
                    }
                    act.reconcile(ctx);
                }
                Err(error) => {
                    act.fail(&error);
                    act.connect_attempts += 1;
                    ctx.run_later(retry_after(act.connect_attempts), Self::connect);
                }
            }
            act.publish_view();
        }));
    }

    fn fail(&mut self, error: &SourceError) {
        let text = Some(error.to_string());
        // Logged once per cause, not per attempt.
        if self.error != text {
            tracing::warn!(cluster = %self.parts.name, %error, "cannot reach the cluster; retrying");
        }
        self.error = text;
    }

    /// Logs that the cluster does not answer, once per kind of failure.
    pub(super) fn log_unreachable(&mut self, error: &SourceError) {
        let cluster = &self.parts.name;
        let kind = kind_of(error.class);
        if self.logged_failures.contains(&kind) {
            tracing::debug!(%cluster, %error, "requests to the cluster still fail");
            return;
        }
        self.logged_failures.push(kind);
        if error.class.is_refusal() {
            tracing::warn!(%cluster, %error, "the cluster denies discovery requests; retrying");
        } else {
            tracing::warn!(%cluster, %error, "cannot reach the cluster; retrying");
        }
    }

    /// Logs that the cluster answers again after a logged failure. For this, it must answer discovery, all lookups, and
    /// at least one active informer (if there are any).
    pub(super) fn log_reachable(&mut self) {
        let fails = |request: &RequestState| request.resolved.is_none() && request.health.answers() == Some(false);
        let is_unasked = self.discovery.failing || self.requests.values().any(|request| fails(request));
        if self.logged_failures.is_empty() || is_unasked || self.is_unanswered() {
            return;
        }
        self.logged_failures.clear();
        tracing::info!(cluster = %self.parts.name, "the cluster answers again");
    }

    /// Resolves a requested resource and starts its informer.
    pub(super) fn resolve(&mut self, key: &RequestKey, ctx: &mut Context<Self>) {
        let Some(connection) = self.connection.clone() else { return };
        let resource = match &key.0 {
            ResourceRequest::Known(known) => return self.on_resolved(key, known.0.clone(), ctx),
            ResourceRequest::Written(written) => written.clone(),
            ResourceRequest::Matching(_) => return,
        };
        if self.discovery.knows() {
            return self.reconcile_request(key, ctx);
        }
        let Some(request) = self.requests.get_mut(key) else { return };
        self.next_lookup += 1;
        let (lookup, answers) = (self.next_lookup, self.answers);
        request.lookup = lookup;
        if std::mem::take(&mut request.unanswered) {
            request.haste.waited();
        }
        let key = key.clone();
        ctx.spawn(connection.resolve(resource).into_actor(self).map(move |resolved, act, ctx| {
            if !act.is_current(&key, lookup) {
                return;
            }
            match resolved {
                Ok(resource) => {
                    act.note_answer(&key);
                    act.probe_server(ctx);
                    act.on_resolved(&key, resource, ctx);
                }
                Err(error) => {
                    act.on_unresolved(key.clone(), &error, ctx);
                    // The cluster has answered another request since this lookup began.
                    if act.answers != answers {
                        act.hurry_lookup(&key, ctx);
                    }
                }
            }
            // Discovery may have to follow the resource.
            act.reconcile(ctx);
            act.log_reachable();
            act.publish_view();
        }));
    }

    fn is_current(&self, key: &RequestKey, lookup: u64) -> bool {
        self.requests.get(key).is_some_and(|request| request.lookup == lookup)
    }

    fn on_unresolved(&mut self, key: RequestKey, error: &ResolveError, ctx: &mut Context<Self>) {
        let Some(request) = self.requests.get_mut(&key) else { return };
        request.attempts += 1;
        let lookup = request.lookup;
        let delay = match error {
            ResolveError::NotFound { .. } => {
                let why = error.to_string();
                // Logged once per cause, not per attempt.
                if request.health.error().is_none_or(|known| *known != why) {
                    tracing::warn!(
                        cluster = %self.parts.name, resource = key.0.text(), %error,
                        "the cluster does not serve the resource; it is watched once it is served"
                    );
                }
                request.missed = true;
                request.health.set_phase(Phase::Absent);
                request.health.set_error(Some(why));
                self.note_answer(&key);
                jittered(ABSENT_RETRY)
            }
            ResolveError::Unavailable(source) => {
                request.unanswered = source.class.is_unreachable();
                request.health.set_answers(false);
                request.health.set_error(Some(format!("{error}: {source}")));
                let delay = retry_after(request.attempts);
                self.log_unreachable(source);
                delay
            }
        };
        if matches!(error, ResolveError::NotFound { .. }) && self.discovery.knows() {
            return;
        }
        ctx.run_later(delay, move |act, ctx| {
            if act.is_current(&key, lookup) {
                act.resolve(&key, ctx);
            }
        });
    }

    /// Records that the cluster answered a lookup of a request. If the previous lookup was unanswered, also sends the
    /// recovery signal, on which other delayed requests to the cluster are retried early.
    fn note_answer(&self, key: &RequestKey) {
        let Some(request) = self.requests.get(key) else { return };
        let was_unanswered = request.health.answers() == Some(false);
        request.health.set_answers(true);
        if was_unanswered {
            self.recovery.signal();
        }
    }

    /// Retries delayed lookups whenever the cluster answers again.
    pub(super) fn listen_for_recovery(&self, ctx: &mut Context<Self>) {
        let answers = futures::stream::unfold(self.recovery.subscribe(), |mut answers| async {
            answers.changed().await.ok().map(|()| ((), answers))
        });
        let hurrying = answers.into_actor(self).map(|(), act, ctx| {
            act.answers += 1;
            let keys: Vec<_> = act.requests.keys().cloned().collect();
            for key in keys {
                act.hurry_lookup(&key, ctx);
            }
        });
        ctx.spawn(hurrying.finish());
    }

    /// Retries a lookup, after a short random delay, if it waits only because the cluster did not answer.
    fn hurry_lookup(&mut self, key: &RequestKey, ctx: &mut Context<Self>) {
        let Some(request) = self.requests.get_mut(key).filter(|request| request.unanswered) else { return };
        if !request.haste.take() {
            return;
        }
        // A new number invalidates the timer of the shortened wait.
        self.next_lookup += 1;
        let lookup = self.next_lookup;
        request.lookup = lookup;
        let key = key.clone();
        ctx.run_later(EarlyRetry::SPREAD.mul_f64(rng::unit()), move |act, ctx| {
            if act.is_current(&key, lookup) {
                act.resolve(&key, ctx);
            }
        });
    }

    pub(super) fn on_resolved(&mut self, key: &RequestKey, resource: ApiResource, ctx: &mut Context<Self>) {
        let Some(request) = self.requests.get_mut(key) else { return };
        if request.resolved.is_some() {
            return;
        }
        request.health.set_error(None);
        request.attempts = 0;
        (request.unanswered, request.haste) = (false, EarlyRetry::default());
        if std::mem::take(&mut request.missed) {
            tracing::info!(cluster = %self.parts.name, resource = %resource.gvr, "the resource exists now; watching it");
        }
        let informer_key = informer_key_of(key, &resource);
        if self.ending.contains(&informer_key) {
            return;
        }
        request.resolved = Some(resource.clone());
        let mut restored = request.restored.take().filter(|restored| restored.gvr != resource.gvr);
        let is_version = |other: &mut ApiResource| {
            (&other.gvr.group, &other.gvr.resource, &other.kind, other.namespaced)
                == (&resource.gvr.group, &resource.gvr.resource, &resource.kind, resource.namespaced)
        };
        // The restored partition is another version of the resource.
        let moved_from = restored.take_if(is_version).filter(|_| !self.informers.contains_key(&informer_key));
        if let Some(other) = restored {
            // The restored partition is a different resource with the same name.
            request.health = InformerHealth::new();
            self.env.caches.forget_restored(&self.parts.name, &other, &key.1);
        }
        if let Some(known) = self.informers.get(&informer_key) {
            request.health = Arc::clone(&known.parts.health);
            known.parts.watch_errors.absorb(&request.watch_errors);
            request.watch_errors = Arc::clone(&known.parts.watch_errors);
            self.apply_settings(key);
            self.attach_all();
        } else {
            self.start_informer(key, &resource, moved_from, WatchMode::Active, ctx);
        }
        let resolved = Resolved { cluster: self.parts.name.clone(), wanted: key.0.clone(), resource };
        detach(self.parts.registry.send(resolved));
    }
}

/// Returns the delay before the next attempt: random between 1 s and an upper bound, which doubles from 2 s to 60 s.
fn retry_after(attempts: u32) -> Duration {
    let cap = exponential_backoff(FIRST_RETRY, attempts, LAST_RETRY);
    FIRST_RETRY + (cap.saturating_sub(FIRST_RETRY)).mul_f64(rng::unit())
}
