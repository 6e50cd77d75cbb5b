//! Cluster actor: connects to one cluster, resolves resources, and runs one informer per requested (resource, scope).
//!
//! Failures of a cluster stay within its actor, which has its own backoff and restart intensity. An informer that dies
//! too often becomes `degraded` and is retried slowly, while the others continue.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use futures::FutureExt;
use futures::future::join_all;

use crate::actors::control::informer::{InformerActor, InformerParts};
use crate::actors::control::messages::{
    AddListener, Attach, Detach, MoveTo, RemoveListener, Resolved, StopCluster, WatchMode,
};
use crate::actors::env::Env;
use crate::actors::runtime::capacity::CONTROL_MAILBOX;
use crate::actors::runtime::recovery::RecoverySignal;
use crate::actors::runtime::supervision::{
    ChildExited, Children, ExitGuard, ExitStatus, RestartIntensity, Supervision, detach, start_control, stop_with,
};
use crate::actors::runtime::yield_budget::YieldBudget;
use crate::actors::status::hub::SharedView;
use crate::actors::subscribe::requests::{ReleaseInformers, RequestInformer};
use crate::actors::subscribe::resource_request::ResourceRequest;
use crate::actors::subscribe::subscription::Subscription;
use crate::actors::subscribe::user::SubscriptionId;
use crate::actors::subscribe::user::User;
use crate::actors::subscribe::watch_errors::WatchErrors;
use crate::cache::DeclaredIndex;
use informer_hub_reflector::{Connection, Connector, EarlyRetry, ErrorClass, InformerOptions};
use informer_hub_types::{ApiResource, ClusterLabels, ClusterName, ClusterTimings, Gvr, InformerHealth, Origin, Scope};

/// Restart intensity for the informers and discovery of a cluster, counted together. Smaller than an informer's own,
/// since an informer that gives up has already restarted its own actors five times.
const INTENSITY: RestartIntensity = RestartIntensity { restarts: 3, within: Duration::from_secs(300) };

mod failure_log;
mod labels;
mod lookup;
mod patterns;
mod reconcile;
mod relist;
mod replace;
mod server_probe;
mod stop;
mod view;
mod watched;

use failure_log::FailureLog;
use reconcile::ClusterDiscovery;
use server_probe::ServerProbe;

/// Parameters of a cluster actor.
#[derive(Clone)]
pub(in crate::actors) struct ClusterParts {
    pub(in crate::actors) name: ClusterName,
    pub(in crate::actors) labels: ClusterLabels,
    pub(in crate::actors) connector: Arc<dyn Connector>,
    pub(in crate::actors) view: SharedView,
    pub(in crate::actors) registry: Recipient<Resolved>,
    /// Subscriptions that select the cluster. They must be known before any informer starts. Otherwise a subscriber
    /// that an earlier informer served would miss events of that informer's successor.
    pub(in crate::actors) subscriptions: Vec<Arc<Subscription>>,
}

type RequestKey = (ResourceRequest, Scope);
type InformerKey = (Gvr, Scope);

struct RequestState {
    users: Vec<User>,
    options: Arc<InformerOptions>,
    watch_errors: Arc<WatchErrors>,
    health: Arc<InformerHealth>,
    /// Resource of the partition that was restored from disk for this request. `None` if there is none, or once the
    /// cluster has resolved the request.
    restored: Option<ApiResource>,
    resolved: Option<ApiResource>,
    attempts: u32,
    /// Whether the cluster has reported that it does not have the resource.
    missed: bool,
    /// Number of the current lookup of the resource. Answers and timers of earlier lookups are ignored.
    lookup: u64,
    /// Whether the next lookup is delayed because the cluster did not answer the last one. When the cluster answers
    /// another request, the delay may end early (see the field `haste`).
    unanswered: bool,
    haste: EarlyRetry,
}

impl RequestState {
    fn add_user(&mut self, user: User) {
        if !self.users.contains(&user) {
            self.users.push(user);
        }
    }

    fn remove_user(&mut self, user: &User) {
        self.users.retain(|other| other != user);
        self.watch_errors.remove(user);
    }
}

struct Informer {
    address: Option<Addr<InformerActor>>,
    parts: InformerParts,
    number: usize,
    /// Last reported `metadata.generation` of the CRD that defines the resource.
    generation: Option<u64>,
}

impl Informer {
    /// Moves the informer to another origin (resource, API version or cluster labels) with its objects and subscribers.
    /// Returns the request to the informer's actor. If the actor is dead, returns `None`: the actor starts with the new
    /// origin.
    fn move_to(&mut self, to: MoveTo) -> Option<Request<InformerActor, MoveTo>> {
        self.parts.moved_from = Some(std::mem::replace(&mut self.parts.origin, Arc::clone(&to.origin)));
        (self.parts.source, self.parts.mode) = (Arc::clone(&to.source), to.mode);
        self.address.as_ref().map(|address| address.send(to))
    }
}

/// Manages one cluster; see the module.
pub(in crate::actors) struct ClusterActor {
    env: Env,
    parts: ClusterParts,
    connection: Option<Arc<dyn Connection>>,
    connect_attempts: u32,
    server_probe: ServerProbe,
    error: Option<String>,
    /// Kinds of failure logged since the cluster last answered.
    logged_failures: Vec<ErrorClass>,
    failures: FailureLog,
    recovery: RecoverySignal,
    /// Number of times the cluster has answered again after a failure.
    answers: u64,
    timings: Arc<ClusterTimings>,
    // Boxed, because a B-tree node has room for eleven entries and most clusters have few.
    requests: BTreeMap<Arc<RequestKey>, Box<RequestState>>,
    informers: BTreeMap<Arc<InformerKey>, Box<Informer>>,
    /// Informers that are stopping. If one is requested again, it starts when its predecessor has stopped.
    ending: BTreeSet<Arc<InformerKey>>,
    next_lookup: u64,
    attached: BTreeMap<SubscriptionId, Arc<Subscription>>,
    discovery: ClusterDiscovery,
    supervision: Supervision,
    next_number: usize,
    stopping: bool,
    yield_budget: YieldBudget,
    children: Children,
    _guard: ExitGuard,
}

impl ClusterActor {
    pub(in crate::actors) fn new(env: Env, mut parts: ClusterParts, guard: ExitGuard) -> Self {
        let subscriptions = std::mem::take(&mut parts.subscriptions);
        Self {
            env,
            parts,
            connection: None,
            connect_attempts: 0,
            server_probe: ServerProbe::default(),
            error: None,
            logged_failures: Vec::new(),
            failures: FailureLog::default(),
            recovery: RecoverySignal::new(),
            answers: 0,
            timings: Arc::default(),
            requests: BTreeMap::new(),
            informers: BTreeMap::new(),
            ending: BTreeSet::new(),
            next_lookup: 0,
            attached: subscriptions.into_iter().map(|subscription| (subscription.id, subscription)).collect(),
            discovery: ClusterDiscovery::default(),
            supervision: Supervision::new(&[], INTENSITY),
            next_number: 0,
            stopping: false,
            yield_budget: YieldBudget::default(),
            children: Children::new(),
            _guard: guard,
        }
    }

    /// Starts the informer of a request, if this process watches its resource. With `moved_from`, the informer takes
    /// over the objects of that resource.
    fn start_informer(
        &mut self,
        key: &RequestKey,
        resource: &ApiResource,
        moved_from: Option<ApiResource>,
        mode: WatchMode,
        ctx: &mut Context<Self>,
    ) {
        if !self.watches(key, resource) {
            return;
        }
        let informer_key = informer_key_of(key, resource);
        let (Some(connection), Some(request)) = (&self.connection, self.requests.get(key)) else { return };
        request.health.set_timings(&self.timings);
        let options = self.options_of(key, resource).unwrap_or(&request.options);
        request.health.set_omitted(options.omitted());
        let origin = self.origin_of(resource, &informer_key);
        let moved_from = moved_from.map(|before| self.origin_of(&before, &informer_key));
        let parts = InformerParts {
            origin: Arc::new(origin),
            health: Arc::clone(&request.health),
            source: connection.lister_watcher(resource, &informer_key.1, options),
            indexes: declared_by(options),
            settings: options.fingerprint().unwrap_or(0),
            watch_errors: Arc::clone(&request.watch_errors),
            outcomes: ctx.address().recipient(),
            recovery: self.recovery.clone(),
            mode,
            moved_from: moved_from.map(Arc::new),
        };
        let informer = Informer { address: None, parts, number: 0, generation: None };
        self.informers.insert(Arc::new(informer_key.clone()), Box::new(informer));
        self.launch(&informer_key, ctx);
    }

    fn origin_of(&self, resource: &ApiResource, key: &InformerKey) -> Origin {
        Origin {
            cluster: self.parts.name.clone(),
            cluster_labels: self.parts.labels.clone(),
            resource: resource.clone(),
            scope: key.1.clone(),
        }
    }

    /// Returns the options of the configured request, if any, that selects the same informer as `key`. The
    /// configuration takes precedence over requests from code, even while the cluster has not resolved the configured
    /// names yet.
    fn options_of(&self, key: &RequestKey, resource: &ApiResource) -> Option<&Arc<InformerOptions>> {
        let same = |(other, request): &(&Arc<RequestKey>, &RequestState)| {
            let configured = request.users.iter().any(|user| matches!(user, User::Config(_)));
            let same = match &request.resolved {
                Some(resolved) => resolved.gvr == resource.gvr,
                None => other.0.may_be(&key.0),
            };
            configured && same && other.1 == key.1
        };
        self.requests
            .iter()
            .map(|(key, request)| (key, request.as_ref()))
            .find(same)
            .map(|(_, request)| &request.options)
    }

    /// Starts an informer's actor with the subscriptions that select it.
    fn launch(&mut self, key: &InformerKey, ctx: &mut Context<Self>) {
        self.next_number += 1;
        let number = self.next_number;
        let about = |subscription: &&Arc<Subscription>| self.informers_of(subscription).contains(key);
        let subscriptions: Vec<_> = self.attached.values().filter(about).cloned().collect();
        let Some(informer) = self.informers.get_mut(key) else { return };
        let guard = ExitGuard::new(number, 0, Some(&ctx.address().recipient()), &self.env.actor_count);
        let (env, parts) = (self.env.clone(), informer.parts.clone());
        let token = self.children.token();
        let actor = move |ctx: &mut Context<InformerActor>| {
            stop_with(&token, ctx);
            InformerActor::new(env, parts, subscriptions, guard)
        };
        informer.number = number;
        informer.address = Some(start_control(self.env.arbiter(), actor));
    }

    /// Adds a subscription to the running informers that it selects. Idempotent. Completes when these informers have
    /// added the subscription.
    fn attach(&self, subscription: &Arc<Subscription>) -> impl Future<Output = ()> + Send + use<> {
        let informers = self.informers_of(subscription);
        let running = informers.iter().filter_map(|key| self.informers.get(key)?.address.as_ref());
        let adding: Vec<_> = running.map(|address| address.send(AddListener(Arc::clone(subscription)))).collect();
        join_all(adding).map(drop)
    }

    /// Adds every subscription to the informers it selects, after requests have changed.
    fn attach_all(&self) {
        self.attached.values().for_each(|subscription| detach(self.attach(subscription)));
    }

    /// Returns the requests whose events a subscription receives.
    ///
    /// If the subscription has requests of its own, returns these. Otherwise, returns the requests that it selects
    /// among those of the configuration and of callers. Requests of other subscriptions never change the result.
    fn requests_of(&self, subscription: &Subscription) -> Vec<&Arc<RequestKey>> {
        let own = User::Subscription(subscription.id);
        let own: Vec<_> =
            self.requests.iter().filter(|(_, request)| request.users.contains(&own)).map(|(key, _)| key).collect();
        if !own.is_empty() {
            return own;
        }
        self.requests
            .iter()
            .filter(|(key, request)| {
                let shared = request.users.iter().any(|user| !matches!(user, User::Subscription(_)));
                let is_about = |wanted: &ResourceRequest| subscription.selects(wanted, &key.1, &request.users);
                // Matches the request as written, or the resource it was resolved to.
                shared
                    && (is_about(&key.0)
                        || request.resolved.as_ref().is_some_and(|it| is_about(&ResourceRequest::known(it))))
            })
            .map(|(key, _)| key)
            .collect()
    }

    fn informers_of(&self, subscription: &Subscription) -> BTreeSet<InformerKey> {
        self.requests_of(subscription).into_iter().filter_map(|key| self.informer_key(key)).collect()
    }

    fn informer_key(&self, key: &RequestKey) -> Option<InformerKey> {
        let resource = self.requests.get(key)?.resolved.as_ref()?;
        Some(informer_key_of(key, resource))
    }

    fn request_informer(&mut self, request: RequestInformer, ctx: &mut Context<Self>) {
        let key = (request.wanted, request.scope);
        if let Some(known) = self.requests.get_mut(&key) {
            if let Some(handler) = request.watch_errors.filter(|_| !known.users.contains(&request.user)) {
                known.watch_errors.add(request.user.clone(), handler);
            }
            if matches!(request.user, User::Config(_)) {
                known.options = request.options;
            }
            known.add_user(request.user);
            return self.apply_settings(&key);
        }
        let watch_errors = Arc::<WatchErrors>::default();
        if let Some(handler) = request.watch_errors {
            watch_errors.add(request.user.clone(), handler);
        }
        let restored = self.env.caches.restored(&self.parts.name, &key.0, &key.1);
        let (restored, health) =
            restored.map_or_else(|| (None, InformerHealth::new()), |(resource, health)| (Some(resource), health));
        let state = RequestState {
            users: vec![request.user],
            options: request.options,
            watch_errors,
            health,
            restored,
            resolved: None,
            attempts: 0,
            missed: false,
            lookup: 0,
            unanswered: false,
            haste: EarlyRetry::default(),
        };
        self.requests.insert(Arc::new(key.clone()), Box::new(state));
        self.resolve(&key, ctx);
    }
}

/// Returns the key of the informer for a resolved request.
fn informer_key_of(key: &RequestKey, resource: &ApiResource) -> InformerKey {
    // The API has no namespaced path for a cluster-scoped resource, so the namespace of the request is ignored.
    let scope = if resource.namespaced { key.1.clone() } else { Scope { namespace: None, ..key.1.clone() } };
    (resource.gvr.clone(), scope)
}

/// Returns the indices that the options declare.
fn declared_by(options: &InformerOptions) -> Arc<[DeclaredIndex]> {
    options.declared().into_iter().map(|(name, path)| DeclaredIndex { name, path }).collect()
}

impl Actor for ClusterActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(CONTROL_MAILBOX);
        self.publish_view();
        self.listen_for_recovery(ctx);
        self.connect(ctx);
    }
}

impl Handler<ChildExited> for ClusterActor {
    type Result = ();

    fn handle(&mut self, exited: ChildExited, ctx: &mut Self::Context) {
        if self.stopping || exited.status == ExitStatus::Stopped {
            return;
        }
        if self.discovery.is_of(exited.child) {
            return self.on_discovery_exit(exited, ctx);
        }
        self.on_informer_exit(exited, ctx);
    }
}

impl Handler<RequestInformer> for ClusterActor {
    type Result = ();

    fn handle(&mut self, request: RequestInformer, ctx: &mut Self::Context) {
        self.yield_budget.count(ctx);
        if let ResourceRequest::Matching(pattern) = request.wanted {
            self.discovery.add_pattern(request.user, pattern, request.scope, request.options);
        } else {
            self.request_informer(request, ctx);
        }
        self.reconcile(ctx);
        self.attach_all();
        self.publish_view();
    }
}

impl Handler<ReleaseInformers> for ClusterActor {
    type Result = ResponseActFuture<Self, ()>;

    fn handle(&mut self, ReleaseInformers(user): ReleaseInformers, ctx: &mut Self::Context) -> Self::Result {
        self.release_user(&user, ctx)
    }
}

impl Handler<Attach> for ClusterActor {
    type Result = MessageResult<Attach>;

    fn handle(&mut self, Attach(subscription): Attach, ctx: &mut Self::Context) -> Self::Result {
        self.yield_budget.count(ctx);
        let own = subscription.own_request();
        self.attached.insert(subscription.id, Arc::clone(&subscription));
        if let Some(own) = own.filter(|_| self.requests_of(&subscription).is_empty()) {
            self.request_informer(own, ctx);
        }
        self.reconcile(ctx);
        let attaching = self.attach(&subscription);
        self.publish_view();
        MessageResult(attaching.boxed())
    }
}

impl Handler<Detach> for ClusterActor {
    type Result = ResponseActFuture<Self, ()>;

    fn handle(&mut self, detach: Detach, ctx: &mut Self::Context) -> Self::Result {
        self.yield_budget.count(ctx);
        let Detach { subscription: id, drain_until } = detach;
        self.attached.remove(&id);
        let remove = RemoveListener { subscription: id, drain_until };
        let addresses = self.informers.values().filter_map(|informer| informer.address.as_ref());
        let removals: Vec<_> = addresses.map(|address| address.send(remove)).collect();
        let removed = join_all(removals).into_actor(self);
        Box::pin(removed.then(move |_, act, ctx| act.release_user(&User::Subscription(id), ctx)))
    }
}

impl Handler<StopCluster> for ClusterActor {
    type Result = ResponseActFuture<Self, ()>;

    fn handle(&mut self, StopCluster(stop): StopCluster, _ctx: &mut Self::Context) -> Self::Result {
        self.stopping = true;
        self.log_pending_failures();
        self.stop_discovery();
        self.requests.clear();
        let informers = std::mem::take(&mut self.informers);
        Box::pin(self.stop_all(informers, stop).map(|(), _, ctx| ctx.stop()))
    }
}

#[cfg(test)]
impl Handler<crate::actors::tests::Crash> for ClusterActor {
    type Result = ();

    fn handle(&mut self, crash: crate::actors::tests::Crash, _ctx: &mut Self::Context) {
        crash.strike(crate::actors::tests::Victim::Cluster);
        self.discovery.address().into_iter().for_each(|it| detach(it.send(crash)));
        self.informers.values().filter_map(|informer| informer.address.as_ref()).for_each(|it| detach(it.send(crash)));
    }
}
