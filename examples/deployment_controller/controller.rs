//! The controller: watches three resources, and keeps two kinds of keys in one queue.

use std::num::NonZeroUsize;
use std::sync::Arc;

use informer_hub::informers::{InformerError, ResourceEventHandlerFuncs};
use informer_hub::queries::Lister;
use informer_hub::types::{ClusterName, Object};
use informer_hub::workqueue::Work;
use informer_hub::{Hub, Request, SharedInformer, SharedInformerFactory, WorkQueue};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use tokio_util::sync::CancellationToken;

use super::common::{Clients, Unsynced, controller_of, share};
use super::expectations::{Expectations, OVERDUE, Owner};

/// Deployments with this annotation, set to `"true"`, and ReplicaSets with it are ours; others we leave alone.
pub(crate) const OURS: &str = "informer-hub.io/example";

/// What a worker brings into order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Task {
    /// A Deployment: its ReplicaSets.
    Deployment(Request),
    /// A ReplicaSet: its pods.
    ReplicaSet(Request),
}

impl Task {
    fn cluster(&self) -> &ClusterName {
        let (Self::Deployment(request) | Self::ReplicaSet(request)) = self;
        &request.cluster
    }
}

pub(super) struct Controller {
    queue: WorkQueue<Task>,
    informers: (SharedInformer<Deployment>, SharedInformer<ReplicaSet>, SharedInformer<Pod>),
    pub(super) deployments: Lister<Deployment>,
    pub(super) sets: Lister<ReplicaSet>,
    pub(super) pods: Lister<Pod>,
    pub(super) expectations: Expectations,
    pub(super) clients: Clients,
    /// Is cancelled at the end: what consists of many requests stops between two of them.
    pub(super) stop: CancellationToken,
    unsynced: Unsynced,
}

/// Runs the controller until `stop`, and until what was begun is done.
pub(crate) async fn run(
    hub: &Hub,
    clients: Clients,
    workers: NonZeroUsize,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let factory = SharedInformerFactory::new(hub.system());
    let informers = (factory.informer()?, factory.informer()?, factory.informer()?);
    let controller = Arc::new(Controller {
        queue: WorkQueue::fair_at_most(share(workers), |task: &Task| task.cluster().clone()),
        deployments: informers.0.lister(),
        sets: informers.1.lister(),
        pods: informers.2.lister(),
        informers,
        expectations: Expectations::default(),
        clients,
        stop: stop.clone(),
        unsynced: Unsynced::default(),
    });
    controller.watch().await?;
    factory.start().await?;

    let queue = controller.queue.clone();
    let work = move |work| {
        let controller = Arc::clone(&controller);
        async move { controller.work(work).await }
    };
    queue.run_workers(workers, &stop, work).await;
    factory.shutdown().await;
    Ok(())
}

impl Controller {
    async fn watch(self: &Arc<Self>) -> Result<(), InformerError> {
        let (deployments, sets, pods) = &self.informers;
        let of_deployments = self.handler(|this, deployment: &Object<Deployment>, _| {
            this.queue.add(Task::Deployment(deployment.into()));
        });
        deployments.add_event_handler(of_deployments).await?;
        let of_sets = self.handler(|this, set: &Object<ReplicaSet>, _| {
            this.queue.add(Task::ReplicaSet(set.into()));
            let Ok(decoded) = set.decode() else { return };
            if let Some(deployment) = owner(set.cluster(), &decoded.metadata, &this.deployments) {
                this.queue.add(Task::Deployment(deployment.request));
            }
        });
        sets.add_event_handler(of_sets).await?;
        let of_pods = self.handler(|this, pod: &Object<Pod>, seen| {
            let Ok(decoded) = pod.decode() else { return };
            let Some(set) = owner(pod.cluster(), &decoded.metadata, &this.sets) else { return };
            // A pod with a grace period is as good as gone once it has been told to go.
            if seen != Seen::Changed || decoded.metadata.deletion_timestamp.is_some() {
                this.expectations.settle(&set, pod.name());
            }
            this.queue.add(Task::ReplicaSet(set.request));
        });
        pods.add_event_handler(of_pods).await?;
        Ok(())
    }

    /// A handler that does the same with whatever happens to an object; only pods make a difference.
    fn handler<K: 'static>(
        self: &Arc<Self>,
        see: impl Fn(&Self, &Object<K>, Seen) + Clone + Send + 'static,
    ) -> ResourceEventHandlerFuncs<K> {
        let of = |seen: Seen| {
            let (this, see) = (Arc::clone(self), see.clone());
            move |object: &Object<K>| see(&this, object, seen)
        };
        let (changed, came, gone) = (of(Seen::Changed), of(Seen::Came), of(Seen::Gone));
        // `on_delete` has an object also where the deletion itself was not seen: no tombstones to unwrap.
        ResourceEventHandlerFuncs::new().on_add(came).on_update(move |_, object| changed(object)).on_delete(gone)
    }

    async fn work(&self, work: Work<Task>) {
        if !self.clients.contains_key(work.cluster()) {
            // No cluster of ours, or not any more.
            self.unsynced.forget(work.cluster());
            return work.succeed();
        }
        // Before its caches are complete, the absence of something means nothing. Each cluster is waited for on its own:
        // one that is out of reach holds up nobody else.
        if !self.has_synced(work.cluster()) {
            let delay = self.unsynced.delay(work.cluster());
            return work.retry_after(delay);
        }
        self.unsynced.forget(work.cluster());
        let done = match &*work {
            Task::Deployment(request) => Box::pin(self.sync_deployment(request)).await,
            Task::ReplicaSet(request) => Box::pin(self.sync_set(request)).await,
        };
        match done {
            Ok(()) => work.succeed(),
            Err(error) => {
                tracing::warn!("{:?}: {error:#}", *work);
                work.retry();
            }
        }
    }

    /// Has a ReplicaSet looked at again if what is expected of it does not show.
    pub(super) fn look_again(&self, set: &Request) {
        self.queue.add_after(Task::ReplicaSet(set.clone()), OVERDUE);
    }

    fn has_synced(&self, cluster: &ClusterName) -> bool {
        let (deployments, sets, pods) = &self.informers;
        deployments.has_synced_in(cluster) && sets.has_synced_in(cluster) && pods.has_synced_in(cluster)
    }
}

/// What happened to an object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    Came,
    Changed,
    Gone,
}

/// Whether we are asked to look after an object.
pub(super) fn is_ours(meta: &ObjectMeta) -> bool {
    meta.annotations.as_ref().and_then(|all| all.get(OURS)).is_some_and(|value| value == "true")
}

/// The object in charge of another one, if the cache has it. A name is not enough: the owner may have been replaced by
/// another of its name, which is no owner.
fn owner<O>(cluster: &ClusterName, meta: &ObjectMeta, owners: &Lister<O>) -> Option<Owner>
where
    O: Resource<DynamicType = ()>,
{
    let wanted = controller_of(meta).filter(|owner| owner.kind == O::kind(&()))?;
    let found = owners.get(cluster, meta.namespace.as_deref().unwrap_or_default(), &wanted.name).ok()?;
    (found.uid().to_string() == wanted.uid).then(|| Owner { request: Request::from(&found), uid: wanted.uid.clone() })
}
