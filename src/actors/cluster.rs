//! The cluster: connects, looks resources up, and keeps one informer per (resource, scope) that somebody wants.
//!
//! What goes wrong with a cluster stays here: its own backoff, its own restart intensity. An informer that dies too
//! often is `degraded` and tried again slowly; the cluster says so and its other informers work on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use futures::future::join_all;
use rand::Rng;

use super::capacity::MAILBOX;
use super::env::Env;
use super::informer::{InformerActor, InformerParts};
use super::messages::{
    AddListener, Attach, Detach, RemoveListener, Resolved, StopCluster, StopInformer, Unwant, User, Want, Wanted,
};
use super::status::{ClusterState, ClusterView, InformerView, SharedView};
use super::subscription::{Subscription, SubscriptionId};
use super::supervision::{ChildExited, Children, ExitGuard, ExitStatus, RestartIntensity, Supervision, stop_with};
use crate::reflector::{Connection, Connector, InformerOptions, ResolveError, SourceError};
use crate::types::{ApiResource, ClusterLabels, ClusterName, Gvr, InformerHealth, Origin, Phase, Scope, clock};

/// Smaller than an informer's: by the time one gives up, five restarts have not helped.
const INTENSITY: RestartIntensity = RestartIntensity { restarts: 3, within: Duration::from_secs(300) };

/// How long until a resource that the cluster did not have is looked up again (with up to half of it added at random).
const ABSENT_REST: Duration = Duration::from_secs(20);

const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(60);

/// What a cluster actor is made of.
#[derive(Clone)]
pub(super) struct ClusterParts {
    pub(super) name: ClusterName,
    pub(super) labels: ClusterLabels,
    pub(super) connector: Arc<dyn Connector>,
    pub(super) view: SharedView,
    pub(super) registry: Recipient<Resolved>,
    /// Those that are about it already. It knows them before any informer starts: one that an earlier informer told
    /// must not miss what the next one finds.
    pub(super) subscriptions: Vec<Arc<Subscription>>,
}

type WantKey = (Wanted, Scope);
type InformerKey = (Gvr, Scope);

struct WantState {
    users: BTreeSet<User>,
    options: InformerOptions,
    health: Arc<InformerHealth>,
    resolved: Option<ApiResource>,
    attempts: u32,
}

struct Informer {
    address: Option<Addr<InformerActor>>,
    parts: InformerParts,
    number: usize,
}

/// See the module.
pub(super) struct ClusterActor {
    env: Env,
    parts: ClusterParts,
    connection: Option<Arc<dyn Connection>>,
    connect_attempts: u32,
    error: Option<String>,
    wants: BTreeMap<WantKey, WantState>,
    informers: BTreeMap<InformerKey, Informer>,
    attached: BTreeMap<SubscriptionId, Arc<Subscription>>,
    supervision: Supervision,
    degraded: usize,
    next_number: usize,
    stopping: bool,
    children: Children,
    _guard: ExitGuard,
}

impl ClusterActor {
    pub(super) fn new(env: Env, mut parts: ClusterParts, guard: ExitGuard) -> Self {
        let subscriptions = std::mem::take(&mut parts.subscriptions);
        Self {
            env,
            parts,
            connection: None,
            connect_attempts: 0,
            error: None,
            wants: BTreeMap::new(),
            informers: BTreeMap::new(),
            attached: subscriptions.into_iter().map(|subscription| (subscription.id, subscription)).collect(),
            supervision: Supervision::new(&[], INTENSITY),
            degraded: 0,
            next_number: 0,
            stopping: false,
            children: Children::new(),
            _guard: guard,
        }
    }

    fn connect(&mut self, ctx: &mut Context<Self>) {
        let connecting = self.parts.connector.connect().into_actor(self);
        ctx.spawn(connecting.map(|connected, act, ctx| {
            match connected {
                Ok(connection) => {
                    act.connection = Some(connection);
                    act.connect_attempts = 0;
                    act.error = None;
                    let open: Vec<_> = act.wants.keys().cloned().collect();
                    for key in open {
                        act.resolve(&key, ctx);
                    }
                }
                Err(error) => {
                    act.fail(&error);
                    act.connect_attempts += 1;
                    ctx.run_later(retry_after(act.connect_attempts), Self::connect);
                }
            }
            act.show();
        }));
    }

    fn fail(&mut self, error: &SourceError) {
        let text = Some(error.to_string());
        // Once for each cause, not for each attempt.
        if self.error != text {
            tracing::warn!(cluster = %self.parts.name, %error, "the cluster cannot be reached, it is tried again");
        }
        self.error = text;
    }

    /// Finds out what a wanted resource is, then starts its informer.
    fn resolve(&mut self, key: &WantKey, ctx: &mut Context<Self>) {
        let Some(connection) = self.connection.clone() else { return };
        let resource = match &key.0 {
            Wanted::Known(known) => return self.on_resolved(key, known.0.clone(), ctx),
            Wanted::Written(written) => written.clone(),
        };
        let key = key.clone();
        ctx.spawn(connection.resolve(resource).into_actor(self).map(move |resolved, act, ctx| {
            match resolved {
                Ok(resource) => {
                    act.wants.get(&key).inspect(|want| want.health.set_answers(true));
                    act.on_resolved(&key, resource, ctx);
                }
                Err(error) => act.on_unresolved(key, &error, ctx),
            }
            act.show();
        }));
    }

    fn on_unresolved(&mut self, key: WantKey, error: &ResolveError, ctx: &mut Context<Self>) {
        let Some(want) = self.wants.get_mut(&key) else { return };
        want.attempts += 1;
        let before = want.health.error();
        let rest = match error {
            ResolveError::NotFound { .. } => {
                want.health.set_answers(true);
                want.health.set_phase(Phase::Absent);
                want.health.set_error(Some(error.to_string()));
                jittered(ABSENT_REST)
            }
            ResolveError::Unavailable(source) => {
                want.health.set_answers(false);
                want.health.set_error(Some(format!("{error}: {source}")));
                retry_after(want.attempts)
            }
        };
        // Once for each cause, not for each attempt.
        if want.health.error() != before {
            tracing::warn!(cluster = %self.parts.name, resource = key.0.text(), error = %chain(error), "the resource cannot be watched yet");
        }
        ctx.run_later(rest, move |act, ctx| act.resolve(&key, ctx));
    }

    fn on_resolved(&mut self, key: &WantKey, resource: ApiResource, ctx: &mut Context<Self>) {
        let Some(want) = self.wants.get_mut(key) else { return };
        if want.resolved.is_some() {
            return;
        }
        want.health.set_error(None);
        if std::mem::take(&mut want.attempts) > 0 {
            tracing::info!(cluster = %self.parts.name, resource = %resource.gvr, "the resource is there, it is watched");
        }
        // A namespace in the scope of a cluster-scoped resource would ask for a path that does not exist.
        let scope = if resource.namespaced { key.1.clone() } else { Scope { namespace: None, ..key.1.clone() } };
        let informer_key = (resource.gvr.clone(), scope);
        want.resolved = Some(resource.clone());
        if let Some(known) = self.informers.get(&informer_key) {
            want.health = Arc::clone(&known.parts.health);
        } else {
            self.set_up(key, &resource, &informer_key, ctx);
        }
        let resolved = Resolved { cluster: self.parts.name.clone(), wanted: key.0.clone(), resource };
        ctx.spawn(self.parts.registry.send(resolved).into_actor(self).map(|_, _, _| ()));
        self.attach_all(ctx);
        self.show();
    }

    fn set_up(&mut self, key: &WantKey, resource: &ApiResource, informer_key: &InformerKey, ctx: &mut Context<Self>) {
        let (Some(connection), Some(want)) = (&self.connection, self.wants.get(key)) else { return };
        let origin = Origin {
            cluster: self.parts.name.clone(),
            cluster_labels: self.parts.labels.clone(),
            resource: resource.clone(),
            scope: informer_key.1.clone(),
        };
        let parts = InformerParts {
            origin: Arc::new(origin),
            health: Arc::clone(&want.health),
            source: connection.lister_watcher(resource, &informer_key.1, &want.options),
            indexes: want.options.indexes.keys().cloned().collect(),
        };
        let informer = Informer { address: None, parts, number: 0 };
        self.informers.insert(informer_key.clone(), informer);
        self.launch(informer_key, ctx);
    }

    /// Starts an informer's actor, with the subscriptions that are about it.
    fn launch(&mut self, key: &InformerKey, ctx: &mut Context<Self>) {
        self.next_number += 1;
        let number = self.next_number;
        let about = |subscription: &&Arc<Subscription>| self.informers_of(subscription).contains(key);
        let subscriptions: Vec<_> = self.attached.values().filter(about).cloned().collect();
        let Some(informer) = self.informers.get_mut(key) else { return };
        let guard = ExitGuard::new(number, 0, Some(&ctx.address().recipient()), &self.env.census);
        let (env, parts) = (self.env.clone(), informer.parts.clone());
        let token = self.children.token();
        let actor = move |ctx: &mut Context<InformerActor>| {
            stop_with(&token, ctx);
            InformerActor::new(env, parts, subscriptions, guard)
        };
        informer.number = number;
        informer.address = Some(InformerActor::start_in_arbiter(self.env.arbiter(), actor));
    }

    /// Adds every attached subscription to the informers that it is about. Adding one twice changes nothing.
    fn attach_all(&mut self, ctx: &mut Context<Self>) {
        for subscription in self.attached.values() {
            for key in self.informers_of(subscription) {
                let Some(address) = self.informers.get(&key).and_then(|informer| informer.address.as_ref()) else {
                    continue;
                };
                let adding = address.send(AddListener(Arc::clone(subscription)));
                ctx.spawn(adding.into_actor(self).map(|_, _, _| ()));
            }
        }
    }

    /// The wants that a subscription is about: those configured or asked for by code; failing these, its own.
    fn wants_of(&self, subscription: &Subscription) -> Vec<&WantKey> {
        let own = User::Subscription(subscription.id);
        let shared: Vec<_> = self
            .wants
            .iter()
            .filter(|(key, want)| {
                let shared = want.users.iter().any(|user| !matches!(user, User::Subscription(_)));
                shared && subscription.is_about(&key.0, &key.1, &want.users)
            })
            .map(|(key, _)| key)
            .collect();
        if !shared.is_empty() {
            return shared;
        }
        self.wants.iter().filter(|(_, want)| want.users.contains(&own)).map(|(key, _)| key).collect()
    }

    fn informers_of(&self, subscription: &Subscription) -> BTreeSet<InformerKey> {
        self.wants_of(subscription).into_iter().filter_map(|key| self.informer_key(key)).collect()
    }

    fn informer_key(&self, key: &WantKey) -> Option<InformerKey> {
        let resource = self.wants.get(key)?.resolved.as_ref()?;
        let scope = if resource.namespaced { key.1.clone() } else { Scope { namespace: None, ..key.1.clone() } };
        Some((resource.gvr.clone(), scope))
    }

    fn want(&mut self, want: Want, ctx: &mut Context<Self>) {
        let key = (want.wanted, want.scope);
        if let Some(known) = self.wants.get_mut(&key) {
            known.users.insert(want.user);
            return;
        }
        let state = WantState {
            users: BTreeSet::from([want.user]),
            options: want.options,
            health: InformerHealth::new(),
            resolved: None,
            attempts: 0,
        };
        self.wants.insert(key.clone(), state);
        self.resolve(&key, ctx);
    }

    /// Drops a user; stops the informers that nobody wants any more.
    fn unwant(&mut self, user: &User) -> impl Future<Output = ()> + use<> {
        for want in self.wants.values_mut() {
            want.users.remove(user);
        }
        self.wants.retain(|_, want| !want.users.is_empty());
        let wanted: BTreeSet<_> = self.wants.keys().filter_map(|key| self.informer_key(key)).collect();
        let (kept, gone): (BTreeMap<_, _>, _) =
            std::mem::take(&mut self.informers).into_iter().partition(|(key, _)| wanted.contains(key));
        self.informers = kept;
        self.show();
        stop_all(gone, StopInformer { drain_until: None, keep_objects: false })
    }

    fn on_informer_exit(&mut self, exited: ChildExited, ctx: &mut Context<Self>) {
        let dead = self.informers.iter_mut().find(|(_, informer)| informer.number == exited.child);
        let Some((key, informer)) = dead else { return };
        informer.address = None;
        let key = key.clone();
        let name = &self.parts.name;
        if self.supervision.note_death(clock::now()) {
            tracing::warn!(cluster = %name, resource = %key.0, "an informer {}; starting it again", exited.status);
            return self.launch(&key, ctx);
        }
        tracing::error!(cluster = %name, resource = %key.0, "an informer {} once too often; it is degraded", exited.status);
        informer.parts.health.set_phase(Phase::Degraded);
        self.degraded += 1;
        ctx.run_later(jittered(self.env.tuning.degraded_rest), move |act, ctx| {
            act.degraded -= 1;
            act.launch(&key, ctx);
            act.show();
        });
        self.show();
    }

    /// Publishes what this cluster shows of itself.
    fn show(&self) {
        let state = match (&self.connection, &self.error) {
            _ if self.degraded > 0 => ClusterState::Degraded,
            (Some(_), _) => ClusterState::Connected,
            (None, Some(_)) => ClusterState::Unreachable,
            (None, None) => ClusterState::Connecting,
        };
        let informers = self.wants.iter().map(|(key, want)| self.informer_view(key, want)).collect();
        self.parts.view.store(Arc::new(ClusterView { state, error: self.error.clone(), informers }));
    }

    fn informer_view(&self, key: &WantKey, want: &WantState) -> InformerView {
        let informer_key = self.informer_key(key);
        let informer = informer_key.and_then(|key| self.informers.get(&key));
        let about = self.attached.values().filter(|subscription| self.wants_of(subscription).contains(&key));
        let listeners = informer.map_or_else(Vec::new, |informer| {
            about
                .map(|subscription| {
                    (subscription.name.clone(), Arc::clone(&subscription.inbox_at(&informer.parts.origin).health))
                })
                .collect()
        });
        InformerView {
            wanted: key.0.clone(),
            resource: want.resolved.clone(),
            scope: key.1.clone(),
            health: Arc::clone(&want.health),
            listeners,
        }
    }
}

/// Stops informers, all at once; ends when they have.
fn stop_all(informers: BTreeMap<InformerKey, Informer>, stop: StopInformer) -> impl Future<Output = ()> + use<> {
    let stops: Vec<_> = informers.into_values().filter_map(|informer| Some(informer.address?.send(stop))).collect();
    async move {
        join_all(stops).await;
    }
}

/// `rest`, with up to half of it added at random.
fn jittered(rest: Duration) -> Duration {
    rest + rest.mul_f64(rand::rng().random_range(0.0..0.5))
}

/// Exponential, with full jitter above the first delay.
fn retry_after(attempts: u32) -> Duration {
    let cap = FIRST_RETRY.saturating_mul(1 << attempts.min(6)).min(LAST_RETRY);
    FIRST_RETRY + (cap.saturating_sub(FIRST_RETRY)).mul_f64(rand::rng().random_range(0.0..1.0))
}

/// An error with its causes, for a log line.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

impl Actor for ClusterActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX);
        self.show();
        self.connect(ctx);
    }
}

impl Handler<ChildExited> for ClusterActor {
    type Result = ();

    fn handle(&mut self, exited: ChildExited, ctx: &mut Self::Context) {
        if !self.stopping && exited.status != ExitStatus::Stopped {
            self.on_informer_exit(exited, ctx);
        }
    }
}

impl Handler<Want> for ClusterActor {
    type Result = ();

    fn handle(&mut self, want: Want, ctx: &mut Self::Context) {
        self.want(want, ctx);
        self.attach_all(ctx);
        self.show();
    }
}

impl Handler<Unwant> for ClusterActor {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, Unwant(user): Unwant, _ctx: &mut Self::Context) -> Self::Result {
        Box::pin(self.unwant(&user))
    }
}

impl Handler<Attach> for ClusterActor {
    type Result = ();

    fn handle(&mut self, Attach(subscription): Attach, ctx: &mut Self::Context) {
        let own = subscription.own_want();
        self.attached.insert(subscription.id, Arc::clone(&subscription));
        if let Some(own) = own.filter(|_| self.wants_of(&subscription).is_empty()) {
            self.want(own, ctx);
        }
        self.attach_all(ctx);
        self.show();
    }
}

impl Handler<Detach> for ClusterActor {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, Detach(id): Detach, _ctx: &mut Self::Context) -> Self::Result {
        self.attached.remove(&id);
        let addresses = self.informers.values().filter_map(|informer| informer.address.as_ref());
        let removals: Vec<_> = addresses.map(|address| address.send(RemoveListener(id))).collect();
        let unwanting = self.unwant(&User::Subscription(id));
        Box::pin(async move {
            join_all(removals).await;
            unwanting.await;
        })
    }
}

impl Handler<StopCluster> for ClusterActor {
    type Result = ResponseActFuture<Self, ()>;

    fn handle(&mut self, stop: StopCluster, _ctx: &mut Self::Context) -> Self::Result {
        self.stopping = true;
        self.wants.clear();
        let informers = std::mem::take(&mut self.informers);
        let stop = StopInformer { drain_until: stop.drain_until, keep_objects: stop.keep_objects };
        Box::pin(stop_all(informers, stop).into_actor(self).map(|(), _, ctx| ctx.stop()))
    }
}

#[cfg(test)]
impl Handler<super::tests::Crash> for ClusterActor {
    type Result = ();

    fn handle(&mut self, crash: super::tests::Crash, _ctx: &mut Self::Context) {
        crash.strike(super::tests::Victim::Cluster);
        self.informers
            .values()
            .filter_map(|informer| informer.address.as_ref())
            .for_each(|it| drop(actix::spawn(it.send(crash))));
    }
}
