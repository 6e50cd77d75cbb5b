//! The controller: watches three resources and processes two kinds of keys from one queue.

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

/// Annotation of managed Deployments and ReplicaSets, with the value `"true"`. Others are ignored.
pub(crate) const ANNOTATION: &str = "informer-hub.io/example";

/// Key of the queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Task {
    /// A Deployment whose ReplicaSets are to be synced.
    Deployment(Request),
    /// A ReplicaSet whose pods are to be synced.
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
    /// Cancelled at the end: work of many requests stops between two requests.
    pub(super) stop: CancellationToken,
    unsynced: Unsynced,
}

/// Runs the controller until `stop` is cancelled and the keys in progress are done.
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
        let of_pods = self.handler(|this, pod: &Object<Pod>, event| {
            let Ok(decoded) = pod.decode() else { return };
            let Some(set) = owner(pod.cluster(), &decoded.metadata, &this.sets) else { return };
            // A pod that terminates during its grace period counts as deleted.
            if event != EventKind::Updated || decoded.metadata.deletion_timestamp.is_some() {
                this.expectations.settle(&set, pod.name());
            }
            this.queue.add(Task::ReplicaSet(set.request));
        });
        pods.add_event_handler(of_pods).await?;
        Ok(())
    }

    /// Creates a handler that calls `see` for every event of an object.
    fn handler<K: 'static>(
        self: &Arc<Self>,
        see: impl Fn(&Self, &Object<K>, EventKind) + Clone + Send + 'static,
    ) -> ResourceEventHandlerFuncs<K> {
        let of = |event: EventKind| {
            let (this, see) = (Arc::clone(self), see.clone());
            move |object: &Object<K>| see(&this, object, event)
        };
        let (added, updated, deleted) = (of(EventKind::Added), of(EventKind::Updated), of(EventKind::Deleted));
        // `on_delete` has an object even if the deletion was not observed, so there are no tombstones to unwrap.
        ResourceEventHandlerFuncs::new().on_add(added).on_update(move |_, object| updated(object)).on_delete(deleted)
    }

    async fn work(&self, work: Work<Task>) {
        if !self.clients.contains_key(work.cluster()) {
            // The cluster is not configured, or was removed.
            self.unsynced.forget(work.cluster());
            return work.succeed();
        }
        // Before its caches have synced, a missing object may exist. Each cluster is waited for separately, so an
        // unreachable one does not delay the others.
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
                tracing::warn!(task = ?*work, error = format!("{error:#}"), "cannot sync an object");
                work.retry();
            }
        }
    }

    /// Queues a ReplicaSet for when its expectations are overdue.
    pub(super) fn requeue_overdue(&self, set: &Request) {
        self.queue.add_after(Task::ReplicaSet(set.clone()), OVERDUE);
    }

    fn has_synced(&self, cluster: &ClusterName) -> bool {
        let (deployments, sets, pods) = &self.informers;
        deployments.has_synced_in(cluster) && sets.has_synced_in(cluster) && pods.has_synced_in(cluster)
    }
}

/// Kind of an event.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EventKind {
    Added,
    Updated,
    Deleted,
}

/// Whether this controller manages an object.
pub(super) fn is_managed(meta: &ObjectMeta) -> bool {
    meta.annotations.as_ref().and_then(|all| all.get(ANNOTATION)).is_some_and(|value| value == "true")
}

/// Returns the controlling owner of an object from the cache. Compares UIDs, because the owner may have been replaced
/// by an object of the same name.
fn owner<O>(cluster: &ClusterName, meta: &ObjectMeta, owners: &Lister<O>) -> Option<Owner>
where
    O: Resource<DynamicType = ()>,
{
    let owner = controller_of(meta).filter(|owner| owner.kind == O::kind(&()))?;
    let found = owners.get(cluster, meta.namespace.as_deref().unwrap_or_default(), &owner.name).ok()?;
    (found.uid().to_string() == owner.uid).then(|| Owner { request: Request::from(&found), uid: owner.uid.clone() })
}
