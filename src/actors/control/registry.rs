//! Registry actor: the informer factory and root of the supervision tree.
//!
//! It keeps all clusters, requests and subscriptions, and sends each cluster actor its share. So a cluster that is
//! added later, or whose actor was restarted, receives all requests and subscriptions that select it. The registry
//! never waits for a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use actix::prelude::*;
use futures::FutureExt;
use futures::future::{LocalBoxFuture, join_all};
use tokio_util::sync::CancellationToken;

use crate::actors::control::checkpoint::CheckpointActor;
use crate::actors::control::cluster::{ClusterActor, ClusterParts};
use crate::actors::control::messages::{
    Attach, FindSubscription, Resolved, Shutdown, Start, StopCluster, StopInformer, ViewSync, WaitForCacheSync,
};
use crate::actors::env::Env;
use crate::actors::runtime::capacity::{CONTROL_MAILBOX, STOP_GRACE};
use crate::actors::runtime::supervision::{
    ChildExited, Children, ExitGuard, ExitStatus, RestartIntensity, Supervision, detach, start_control, stop_with,
};
use crate::actors::runtime::waiters::Waiters;
use crate::actors::runtime::yield_budget::YieldBudget;
use crate::actors::status::hub::SharedView;
use crate::actors::status::sync::{ENDING, NotSynced, SyncScope, SyncView, Views};
use crate::actors::subscribe::requests::{InformerFor, Release, ReleaseInformers};
use crate::actors::subscribe::resource_request::ResourceRequest;
use crate::actors::subscribe::subscription::{Subscribe, Subscription, Target};
use crate::actors::subscribe::user::SubscriptionId;
use informer_hub_reflector::Connector;
use informer_hub_types::{ClusterLabels, ClusterName, View, clock};

mod add_remove;
mod checkpoint;
mod expected_clusters;
mod labels;
mod memory;
mod replace;
mod status;

/// Restart intensity for cluster actors, counted per cluster. The smallest in the supervision tree, because a cluster
/// actor holds no objects and should never die.
const INTENSITY: RestartIntensity = RestartIntensity { restarts: 3, within: Duration::from_secs(600) };

/// Delay before a cluster actor that died too often is restarted.
const RESTART_DELAY: Duration = Duration::from_secs(60);

struct Cluster {
    labels: ClusterLabels,
    connector: Arc<dyn Connector>,
    address: Addr<ClusterActor>,
    number: usize,
    supervision: Supervision,
}

/// Root of the supervision tree; see the module.
pub struct RegistryActor {
    env: Env,
    clusters: BTreeMap<ClusterName, Cluster>,
    removing: BTreeSet<ClusterName>,
    /// Clusters whose saved partitions are being restored, and callers waiting for that.
    restoring: BTreeMap<ClusterName, Waiters>,
    views: Views,
    /// Number of messages to clusters whose effect is not in the clusters' published state (views) yet.
    in_flight: Arc<AtomicUsize>,
    demands: Vec<InformerFor>,
    subscriptions: BTreeMap<SubscriptionId, Arc<Subscription>>,
    resolved: BTreeMap<ResourceRequest, BTreeSet<crate::actors::subscribe::resource_request::KnownResource>>,
    started: bool,
    stopping: bool,
    next_subscription: u64,
    next_cluster: usize,
    memory: memory::Memory,
    checkpointer: Option<Addr<CheckpointActor>>,
    yield_budget: YieldBudget,
    children: Children,
    _guard: ExitGuard,
}

impl RegistryActor {
    fn sync_view(&self) -> SyncView {
        SyncView::new(Arc::clone(&self.views), Arc::clone(&self.in_flight), self.env.watch_syncs())
    }

    /// Returns a token that is cancelled when the registry ends. The clusters then stop too.
    pub(in crate::actors) fn end(&self) -> CancellationToken {
        self.children.token()
    }

    /// Creates a registry without clusters.
    #[must_use]
    pub fn new(env: Env) -> Self {
        let guard = ExitGuard::new(0, 0, None, &env.actor_count);
        Self {
            env,
            clusters: BTreeMap::new(),
            removing: BTreeSet::new(),
            restoring: BTreeMap::new(),
            views: Views::default(),
            in_flight: Arc::default(),
            demands: Vec::new(),
            subscriptions: BTreeMap::new(),
            resolved: BTreeMap::new(),
            started: false,
            stopping: false,
            next_subscription: 0,
            next_cluster: 0,
            memory: memory::Memory::default(),
            checkpointer: None,
            yield_budget: YieldBudget::default(),
            children: Children::new(),
            _guard: guard,
        }
    }

    fn launch(
        &mut self,
        name: &ClusterName,
        labels: ClusterLabels,
        connector: Arc<dyn Connector>,
        supervision: Supervision,
        ctx: &mut Context<Self>,
    ) {
        self.next_cluster += 1;
        let number = self.next_cluster;
        let view = SharedView::default();
        let about = |subscription: &&Arc<Subscription>| subscription.clusters.matches(name, &labels);
        let subscriptions = self.subscriptions.values().filter(about).cloned().collect();
        let parts = ClusterParts {
            name: name.clone(),
            labels: labels.clone(),
            connector: Arc::clone(&connector),
            view: Arc::clone(&view),
            registry: ctx.address().recipient(),
            subscriptions,
        };
        let guard = ExitGuard::new(number, 0, Some(&ctx.address().recipient()), &self.env.actor_count);
        let env = self.env.clone();
        let token = self.children.token();
        let address = start_control(self.env.arbiter(), move |ctx| {
            stop_with(&token, ctx);
            ClusterActor::new(env, parts, guard)
        });
        self.views.write().insert(name.clone(), (labels.clone(), view));
        self.clusters.insert(name.clone(), Cluster { labels, connector, address, number, supervision });
        if self.started {
            self.send_all_requests(name);
        }
    }

    /// Sends a cluster all requests and subscriptions that select it.
    fn send_all_requests(&self, name: &ClusterName) {
        let Some(cluster) = self.clusters.get(name) else { return };
        for demand in &self.demands {
            detach(self.send_request(name, cluster, demand));
        }
        for subscription in self.subscriptions.values() {
            detach(self.send_subscription(name, cluster, subscription));
        }
    }

    /// Sends a request to a cluster. Completes when the cluster has handled it.
    fn send_request(&self, name: &ClusterName, cluster: &Cluster, demand: &InformerFor) -> PendingHandling {
        if !demand.clusters.matches(name, &cluster.labels) {
            return Box::pin(std::future::ready(()));
        }
        let requests: Vec<_> =
            demand.requests().map(|request| self.send_counted(cluster.address.send(request))).collect();
        for view in demand.views() {
            self.expect(name, cluster, &demand.wanted, view);
        }
        Box::pin(join_all(requests).map(drop))
    }

    /// If a request keeps only parts of objects in the shared view, remembers its resource. If the embedding program
    /// later creates an informer of whole objects of the resource, the informer then uses another view.
    fn note_partial(&self, demand: &InformerFor) {
        if demand.options.is_partial() && demand.views().any(|view| *view == View::Shared) {
            self.env.note_partial(demand.wanted.clone());
        }
    }

    /// Attaches a subscription to a cluster. Completes when the cluster's informers have added the subscription.
    fn send_subscription(
        &self,
        name: &ClusterName,
        cluster: &Cluster,
        subscription: &Arc<Subscription>,
    ) -> PendingHandling {
        if !subscription.clusters.matches(name, &cluster.labels) {
            return Box::pin(std::future::ready(()));
        }
        let attaching = self.send_counted(cluster.address.send(Attach(Arc::clone(subscription))));
        if let Target::Resource(wanted, scope) = &subscription.target {
            self.expect(name, cluster, wanted, &scope.view);
        }
        Box::pin(attaching.then(async |attaching| {
            if let Some(attaching) = attaching {
                attaching.await;
            }
        }))
    }

    /// Sends a message to a cluster and counts it until the cluster's published state (view) shows its effect. Until
    /// then the hub does not count as synced. The message is sent even if the returned future is dropped.
    fn send_counted<T: 'static>(
        &self,
        request: impl Future<Output = Result<T, MailboxError>> + 'static,
    ) -> LocalBoxFuture<'static, Option<T>> {
        let in_flight = Arc::clone(&self.in_flight);
        in_flight.fetch_add(1, SeqCst);
        let (done, answered) = tokio::sync::oneshot::channel();
        detach(request.map(move |answer| {
            in_flight.fetch_sub(1, SeqCst);
            // The caller may have dropped the future.
            let _ = done.send(answer.ok());
        }));
        Box::pin(answered.map(|answer| answer.ok().flatten()))
    }
}

/// Future that completes when a cluster has handled a message, or can no longer handle it.
type PendingHandling = LocalBoxFuture<'static, ()>;

/// Waits until clusters have handled messages, for at most [`STOP_GRACE`]. The registry answers a request only after
/// this wait. So a caller that waits for each answer cannot fill the clusters' mailboxes.
async fn wait_for_clusters(in_flight: Vec<PendingHandling>) {
    // A delayed cluster handles the message later.
    let _ = tokio::time::timeout(STOP_GRACE, join_all(in_flight)).await;
}

impl fmt::Debug for RegistryActor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistryActor").field("clusters", &self.clusters.keys()).finish_non_exhaustive()
    }
}

impl Actor for RegistryActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(CONTROL_MAILBOX);
    }
}

impl Handler<ChildExited> for RegistryActor {
    type Result = ();

    fn handle(&mut self, exited: ChildExited, ctx: &mut Self::Context) {
        if self.stopping || exited.status == ExitStatus::Stopped {
            return;
        }
        if exited.child == memory::GOVERNOR {
            return Self::on_governor_exit(exited, ctx);
        }
        if exited.child == checkpoint::CHECKPOINTER {
            return Self::on_checkpointer_exit(exited, ctx);
        }
        let dead = self.clusters.iter_mut().find(|(_, cluster)| cluster.number == exited.child);
        let Some((name, cluster)) = dead.map(|(name, cluster)| (name.clone(), cluster)) else { return };
        let delay = if cluster.supervision.note_death(clock::now()) { Duration::ZERO } else { RESTART_DELAY };
        tracing::error!(
            cluster = %name, status = %exited.status, restart_in = ?delay,
            "the part of the hub that watches the cluster failed; restarting it"
        );
        ctx.run_later(delay, move |act, ctx| {
            // The cluster may have been removed, or removed and re-added, meanwhile.
            if act.clusters.get(&name).is_some_and(|cluster| cluster.number == exited.child)
                && let Some(Cluster { labels, connector, supervision, .. }) = act.clusters.remove(&name)
            {
                act.launch(&name, labels, connector, supervision, ctx);
            }
        });
    }
}

impl Handler<InformerFor> for RegistryActor {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, demand: InformerFor, ctx: &mut Self::Context) -> Self::Result {
        self.yield_budget.count(ctx);
        let clusters = self.clusters.iter().filter(|_| self.started);
        let in_flight = clusters.map(|(name, cluster)| self.send_request(name, cluster, &demand)).collect();
        self.note_partial(&demand);
        let same = |known: &InformerFor| {
            (&known.user, &known.wanted, &known.scopes) == (&demand.user, &demand.wanted, &demand.scopes)
        };
        if matches!(demand.wanted, ResourceRequest::Matching(_)) {
            // A pattern replaces the previous pattern of its user.
            self.demands.retain(|known| known.user != demand.user);
        }
        if !self.demands.iter().any(same) {
            self.demands.push(demand);
        }
        Box::pin(wait_for_clusters(in_flight))
    }
}

impl Handler<Release> for RegistryActor {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, Release(user): Release, _ctx: &mut Self::Context) -> Self::Result {
        let (gone, kept): (Vec<_>, _) =
            std::mem::take(&mut self.demands).into_iter().partition(|demand| demand.user == user);
        self.demands = kept;
        self.unexpect_unrequested(&gone);
        let all: Vec<_> =
            self.clusters.values().map(|cluster| cluster.address.send(ReleaseInformers(user.clone()))).collect();
        let caches = self.env.caches.clone();
        Box::pin(join_all(all).map(move |_| {
            for demand in &gone {
                if let ResourceRequest::Known(known) = &demand.wanted {
                    demand.views().for_each(|view| caches.forget_private(&known.0.gvr, view));
                }
            }
        }))
    }
}

impl Handler<Start> for RegistryActor {
    type Result = ();

    fn handle(&mut self, _: Start, _ctx: &mut Self::Context) {
        if !std::mem::replace(&mut self.started, true) {
            for name in self.clusters.keys() {
                self.send_all_requests(name);
            }
        }
    }
}

impl Handler<Resolved> for RegistryActor {
    type Result = ();

    fn handle(&mut self, resolved: Resolved, _ctx: &mut Self::Context) {
        let Resolved { wanted, resource, .. } = resolved;
        if let Some(store) = self.env.checkpoints.store().filter(|_| !wanted.may_be(&ResourceRequest::known(&resource)))
        {
            store.note_name(&wanted, &resource.gvr);
        }
        let known = crate::actors::subscribe::resource_request::KnownResource(resource);
        if !self.resolved.entry(wanted.clone()).or_default().insert(known) {
            return;
        }
        for (name, cluster) in &self.clusters {
            let demanded = self
                .demands
                .iter()
                .filter(|demand| demand.wanted == wanted && demand.clusters.matches(name, &cluster.labels));
            for view in demanded.flat_map(InformerFor::views).collect::<BTreeSet<_>>() {
                self.expect(name, cluster, &wanted, view);
            }
        }
    }
}

impl Handler<Subscribe> for RegistryActor {
    type Result = ResponseFuture<SubscriptionId>;

    fn handle(&mut self, subscribe: Subscribe, ctx: &mut Self::Context) -> Self::Result {
        self.yield_budget.count(ctx);
        self.next_subscription += 1;
        let id = SubscriptionId(self.next_subscription);
        let subscription = Arc::new(Subscription::new(id, subscribe, ctx.address().recipient()));
        let clusters = self.clusters.iter().filter(|_| self.started);
        let in_flight = clusters.map(|(name, cluster)| self.send_subscription(name, cluster, &subscription)).collect();
        self.env.checkpoints.add_reader(&subscription);
        self.subscriptions.insert(id, subscription);
        Box::pin(wait_for_clusters(in_flight).map(move |()| id))
    }
}

impl Handler<FindSubscription> for RegistryActor {
    type Result = Option<Arc<Subscription>>;

    fn handle(&mut self, FindSubscription(id): FindSubscription, _ctx: &mut Self::Context) -> Self::Result {
        self.subscriptions.get(&id).map(Arc::clone)
    }
}

impl Handler<WaitForCacheSync> for RegistryActor {
    type Result = ResponseFuture<Result<(), NotSynced>>;

    fn handle(&mut self, WaitForCacheSync { timeout }: WaitForCacheSync, _ctx: &mut Self::Context) -> Self::Result {
        Box::pin(self.sync_view().wait(SyncScope::Everything, timeout))
    }
}

impl Handler<ViewSync> for RegistryActor {
    type Result = MessageResult<ViewSync>;

    fn handle(&mut self, _: ViewSync, _ctx: &mut Self::Context) -> Self::Result {
        MessageResult(self.sync_view())
    }
}

impl Handler<Shutdown> for RegistryActor {
    type Result = ResponseActFuture<Self, ()>;

    fn handle(&mut self, Shutdown { deadline }: Shutdown, _ctx: &mut Self::Context) -> Self::Result {
        if std::mem::replace(&mut self.stopping, true) {
            // Stopping here would cancel the shutdown in progress. The caller sees the mailbox close instead.
            return Box::pin(std::future::pending().into_actor(self));
        }
        self.in_flight.fetch_add(ENDING, SeqCst);
        self.env.checkpoints.close();
        let last = self.checkpointer.take();
        let stop = StopCluster(StopInformer { drain_until: Some(deadline), stays_open: false });
        let stops: Vec<_> =
            std::mem::take(&mut self.clusters).into_values().map(|cluster| cluster.address.send(stop)).collect();
        let checkpoints = self.env.checkpoints.clone();
        let work = async move {
            let _ = tokio::time::timeout_at(deadline + STOP_GRACE, join_all(stops)).await;
            checkpoints.settle();
            checkpoint::last(last, deadline).await;
        };
        Box::pin(work.into_actor(self).map(|(), act, ctx| {
            act.env.caches.clear();
            act.env.checkpoints.remove_readers();
            ctx.stop();
        }))
    }
}

#[cfg(test)]
impl Handler<crate::actors::tests::Crash> for RegistryActor {
    type Result = ();

    fn handle(&mut self, crash: crate::actors::tests::Crash, _ctx: &mut Self::Context) {
        crash.strike(crate::actors::tests::Victim::Registry);
        self.clusters.values().for_each(|cluster| detach(cluster.address.send(crash)));
    }
}

#[cfg(test)]
impl Handler<crate::actors::tests::CrashIn> for RegistryActor {
    type Result = ();

    fn handle(&mut self, crash: crate::actors::tests::CrashIn, _ctx: &mut Self::Context) {
        let named = self.clusters.iter().filter(|(name, _)| name.as_str() == crash.0);
        named.for_each(|(_, cluster)| detach(cluster.address.send(crash.1)));
    }
}
