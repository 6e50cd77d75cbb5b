//! The controller: creates and scales the Deployment that a `Foo` names, and writes the status of the `Foo`.

#![allow(clippy::disallowed_names, reason = "the sample of Kubernetes uses this name")]

use std::num::NonZeroUsize;
use std::sync::Arc;

use anyhow::{Context, bail};
use informer_hub::informers::{InformerError, ResourceEventHandlerFuncs};
use informer_hub::queries::Lister;
use informer_hub::types::{Object, clock};
use informer_hub::workqueue::Work;
use informer_hub::{Hub, Request, SharedInformer, SharedInformerFactory, WorkQueue};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::common::{Clients, Unsynced, controller_of, is_controlled_by, share, within};
use super::foo::{Foo, FooStatus};

/// Component in the Events that the controller writes.
const COMPONENT: &str = "sample-controller";

struct Controller {
    /// Keys of Foos. Clusters take turns, and one cluster cannot occupy all workers, so none waits for another that is
    /// overloaded or hangs.
    queue: WorkQueue<Request>,
    foos: SharedInformer<Foo>,
    deployments: SharedInformer<Deployment>,
    foo_lister: Lister<Foo>,
    deployment_lister: Lister<Deployment>,
    clients: Clients,
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
    let (foos, deployments) = (factory.informer::<Foo>()?, factory.informer::<Deployment>()?);
    let controller = Arc::new(Controller {
        queue: WorkQueue::per_cluster_at_most(share(workers)),
        foo_lister: foos.lister(),
        deployment_lister: deployments.lister(),
        foos,
        deployments,
        clients,
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
    /// Adds the event handlers. They only queue keys: a worker then compares the current state.
    async fn watch(self: &Arc<Self>) -> Result<(), InformerError> {
        let queue = || self.queue.clone();
        let (add, update, delete) = (queue(), queue(), queue());
        let of_foos = ResourceEventHandlerFuncs::new()
            .on_add(move |foo| add.add(Request::from(foo)))
            .on_update(move |_, foo| update.add(Request::from(foo)))
            .on_delete(move |foo| delete.add(Request::from(foo)));
        self.foos.add_event_handler(of_foos).await?;

        // A change of a Deployment queues the Foo that owns it. Tombstones need no special case: `on_delete` always has
        // an object.
        let this = || Arc::clone(self);
        let (add, update, delete) = (this(), this(), this());
        let of_deployments = ResourceEventHandlerFuncs::new()
            .on_add(move |deployment| add.add_owner_of(deployment))
            .on_update(move |old, new| {
                if old.resource_version() != new.resource_version() {
                    update.add_owner_of(new);
                }
            })
            .on_delete(move |deployment| delete.add_owner_of(deployment));
        self.deployments.add_event_handler(of_deployments).await?;
        Ok(())
    }

    fn add_owner_of(&self, deployment: &Object<Deployment>) {
        let Ok(decoded) = deployment.decode() else { return };
        let Some(owner) = controller_of(&decoded.metadata).filter(|owner| owner.kind == Foo::kind(&())) else { return };
        let namespace = deployment.namespace().unwrap_or_default();
        if let Ok(foo) = self.foo_lister.get(deployment.cluster(), namespace, &owner.name) {
            self.queue.add(Request::from(&foo));
        }
    }

    async fn work(&self, work: Work<Request>) {
        if !self.clients.contains_key(&work.cluster) {
            // The cluster is not configured, or was removed.
            self.unsynced.forget(&work.cluster);
            return work.succeed();
        }
        // Before its caches have synced, a missing object may exist. Each cluster is waited for separately, so an
        // unreachable one does not delay the others.
        if !self.foos.has_synced_in(&work.cluster) || !self.deployments.has_synced_in(&work.cluster) {
            let delay = self.unsynced.delay(&work.cluster);
            return work.retry_after(delay);
        }
        self.unsynced.forget(&work.cluster);
        match self.sync(&work).await {
            Ok(()) => work.succeed(),
            Err(error) => {
                tracing::warn!(key = %*work, error = format!("{error:#}"), "cannot sync a Foo");
                work.retry();
            }
        }
    }

    /// Brings the Deployment of one Foo to the desired state.
    async fn sync(&self, request: &Request) -> anyhow::Result<()> {
        let Request { cluster, key } = request;
        let namespace = key.namespace().unwrap_or_default();
        // A deleted Foo needs nothing: the garbage collector of Kubernetes deletes its Deployment.
        let Ok(foo) = self.foo_lister.get(cluster, namespace, key.name()) else { return Ok(()) };
        let foo = foo.decode()?;
        if foo.metadata.deletion_timestamp.is_some() {
            // The Foo is being deleted, and its Deployment with it.
            return Ok(());
        }
        let name = &foo.spec.deployment_name;
        if name.is_empty() {
            // A retry would not help; the next change of the Foo queues it again.
            tracing::warn!(key = %request, "spec.deploymentName must be set");
            return Ok(());
        }
        let client = self.clients.get(cluster).context("a cluster without a client")?;
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
        let deployment = match self.deployment_lister.get(cluster, namespace, name) {
            Ok(deployment) => deployment.decode()?,
            Err(_) => match within(deployments.create(&PostParams::default(), &new_deployment(&foo)?)).await {
                // It exists, but is not in the cache yet.
                Err(kube::Error::Api(status)) if status.is_already_exists() => within(deployments.get(name)).await?,
                created => created?,
            },
        };
        if !is_controlled_by(&deployment.metadata, &foo.metadata) {
            let problem = format!("Resource {name:?} already exists and is not managed by Foo");
            if self.queue.num_requeues(request) == 0 {
                record(client, &foo, "Warning", "ErrResourceExists", &problem).await;
            }
            bail!(problem);
        }
        let replicas = foo.spec.replicas;
        if replicas.is_some() && replicas != deployment.spec.replicas {
            let scale = json!({ "spec": { "replicas": replicas } });
            within(deployments.patch(name, &PatchParams::default(), &Patch::Merge(scale))).await?;
        }
        self.report(client, &foo, &deployment).await
    }

    /// Writes the status if it changed.
    async fn report(&self, client: &Client, foo: &Foo, deployment: &Deployment) -> anyhow::Result<()> {
        let available = deployment.status.as_ref().and_then(|status| status.available_replicas).unwrap_or(0);
        let status = FooStatus { available_replicas: available };
        if foo.status != status {
            let foos: Api<Foo> = Api::namespaced(client.clone(), &foo.namespace().unwrap_or_default());
            let patch = Patch::Merge(json!({ "status": status }));
            within(foos.patch_status(&foo.name_any(), &PatchParams::default(), &patch)).await?;
            record(client, foo, "Normal", "Synced", "Foo synced successfully").await;
        }
        Ok(())
    }
}

/// Returns the Deployment for a Foo, with the Foo as its owner.
fn new_deployment(foo: &Foo) -> anyhow::Result<Deployment> {
    let owner = foo.controller_owner_ref(&()).context("a Foo of the cache has a UID")?;
    let labels = json!({ "app": "nginx", "controller": foo.name_any() });
    Ok(serde_json::from_value(json!({
        "metadata": { "name": foo.spec.deployment_name, "namespace": foo.namespace(), "ownerReferences": [owner] },
        "spec": {
            "replicas": foo.spec.replicas,
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": "nginx", "image": "nginx:latest" }] },
            },
        },
    }))?)
}

/// Writes an Event. Nothing depends on it, so a failure is only logged.
async fn record(client: &Client, foo: &Foo, kind: &str, reason: &str, message: &str) {
    let namespace = foo.namespace().unwrap_or_default();
    let now = Some(Time(clock::wall()));
    let mut event = Event {
        count: Some(1),
        first_timestamp: now.clone(),
        involved_object: foo.object_ref(&()),
        last_timestamp: now,
        message: Some(message.to_owned()),
        reason: Some(reason.to_owned()),
        reporting_component: Some(COMPONENT.to_owned()),
        type_: Some(kind.to_owned()),
        ..Event::default()
    };
    event.metadata.generate_name = Some(format!("{}.", foo.name_any()));
    event.metadata.namespace = Some(namespace.clone());
    let events: Api<Event> = Api::namespaced(client.clone(), &namespace);
    if let Err(error) = within(events.create(&PostParams::default(), &event)).await {
        tracing::warn!(reason, foo = foo.name_any(), %error, "cannot write an Event");
    }
}
