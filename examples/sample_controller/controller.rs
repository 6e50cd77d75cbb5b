//! The controller: a Foo names a Deployment, which the controller makes, scales, and reports on.

#![allow(clippy::disallowed_names, reason = "a Foo is called foo, as in Kubernetes' own sample")]

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

/// The name under which Events are written.
const COMPONENT: &str = "sample-controller";

struct Controller {
    /// Keys of Foos. Clusters take turns and have a worker left each, so that none waits for another that is flooded or
    /// hangs.
    queue: WorkQueue<Request>,
    foos: SharedInformer<Foo>,
    deployments: SharedInformer<Deployment>,
    foo_lister: Lister<Foo>,
    deployment_lister: Lister<Deployment>,
    clients: Clients,
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
    /// Handlers only put keys in line: whatever happened, the answer is to look at the Foo as it is now.
    async fn watch(self: &Arc<Self>) -> Result<(), InformerError> {
        let queue = || self.queue.clone();
        let (add, update, delete) = (queue(), queue(), queue());
        let of_foos = ResourceEventHandlerFuncs::new()
            .on_add(move |foo| add.add(Request::from(foo)))
            .on_update(move |_, foo| update.add(Request::from(foo)))
            .on_delete(move |foo| delete.add(Request::from(foo)));
        self.foos.add_event_handler(of_foos).await?;

        // What happens to a Deployment is a matter for the Foo that owns it. A tombstone is no special case: `on_delete`
        // always has an object, and only its owner is asked for.
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
            // No cluster of ours, or not any more.
            self.unsynced.forget(&work.cluster);
            return work.succeed();
        }
        // Before its caches are complete, the absence of something means nothing. Each cluster is waited for on its own:
        // one that is out of reach holds up nobody else.
        if !self.foos.has_synced_in(&work.cluster) || !self.deployments.has_synced_in(&work.cluster) {
            let delay = self.unsynced.delay(&work.cluster);
            return work.retry_after(delay);
        }
        self.unsynced.forget(&work.cluster);
        match self.sync(&work).await {
            Ok(()) => work.succeed(),
            Err(error) => {
                tracing::warn!("{}: {error:#}", *work);
                work.retry();
            }
        }
    }

    /// Brings one Foo and its Deployment together, whatever has happened to either.
    async fn sync(&self, request: &Request) -> anyhow::Result<()> {
        let Request { cluster, key } = request;
        let namespace = key.namespace().unwrap_or_default();
        // A Foo that is gone needs nothing: Kubernetes' garbage collector takes what it owned.
        let Ok(foo) = self.foo_lister.get(cluster, namespace, key.name()) else { return Ok(()) };
        let foo = foo.decode()?;
        if foo.metadata.deletion_timestamp.is_some() {
            // On its way out: what would be made for it now would go with it.
            return Ok(());
        }
        let name = &foo.spec.deployment_name;
        if name.is_empty() {
            // Trying again would not help; the next change of the Foo brings it back.
            tracing::warn!("{request}: spec.deploymentName must be set");
            return Ok(());
        }
        let client = self.clients.get(cluster).context("a cluster without a client")?;
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
        let deployment = match self.deployment_lister.get(cluster, namespace, name) {
            Ok(deployment) => deployment.decode()?,
            Err(_) => match within(deployments.create(&PostParams::default(), &new_deployment(&foo)?)).await {
                // It is there, and the cache has not heard of it yet.
                Err(kube::Error::Api(status)) if status.is_already_exists() => within(deployments.get(name)).await?,
                made => made?,
            },
        };
        if !is_controlled_by(&deployment.metadata, &foo.metadata) {
            let problem = format!("Resource {name:?} already exists and is not managed by Foo");
            if self.queue.num_requeues(request) == 0 {
                record(client, &foo, "Warning", "ErrResourceExists", &problem).await;
            }
            bail!(problem);
        }
        let wanted = foo.spec.replicas;
        if wanted.is_some() && wanted != deployment.spec.replicas {
            let scale = json!({ "spec": { "replicas": wanted } });
            within(deployments.patch(name, &PatchParams::default(), &Patch::Merge(scale))).await?;
        }
        self.report(client, &foo, &deployment).await
    }

    /// Writes the status, where it differs.
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

/// The Deployment that a Foo wants, with the Foo as its owner.
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

/// Writes an Event. It is for people to read: nothing depends on it, so its failure is only logged.
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
        tracing::warn!("event {reason} of {}: {error}", foo.name_any());
    }
}
