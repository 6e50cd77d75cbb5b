//! Sync of a Deployment: one ReplicaSet for its current template, while the others are scaled down.
//!
//! Simplified: the new ReplicaSet gets all replicas at once, and the old ones lose theirs once its pods exist. The real
//! controller respects availability, `maxSurge` and `maxUnavailable`, keeps a history for roll-backs, and also scales
//! paused Deployments.

use anyhow::{Context, bail};
use informer_hub::Request;
use informer_hub::types::LabelSelector;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, ReplicaSet};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Resource, ResourceExt};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::common::{is_controlled_by, within};
use super::controller::{ANNOTATION, Controller, is_managed};

/// Label with the hash of the template, which separates the pods of different templates.
const HASH_LABEL: &str = "pod-template-hash";

impl Controller {
    pub(super) async fn sync_deployment(&self, request: &Request) -> anyhow::Result<()> {
        let Request { cluster, key } = request;
        let namespace = key.namespace().unwrap_or_default();
        let Ok(deployment) = self.deployments.get(cluster, namespace, key.name()) else { return Ok(()) };
        let deployment = deployment.decode()?;
        let spec = &deployment.spec;
        // Paused Deployments are not rolled out.
        let is_paused = spec.paused == Some(true);
        if !is_managed(&deployment.metadata) || is_paused || deployment.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let client = self.clients.get(cluster).context("a cluster without a client")?;
        let api: Api<ReplicaSet> = Api::namespaced(client.clone(), namespace);

        // The name contains the hash of the template, so a repeated creation cannot make a second ReplicaSet.
        let (name, desired) = (name_of_new(&deployment, spec)?, spec.replicas.unwrap_or(1));
        let new = match self.sets.get(cluster, namespace, &name) {
            Ok(set) => set.decode()?,
            Err(_) => match within(api.create(&PostParams::default(), &new_set(&deployment, spec, &name)?)).await {
                Err(kube::Error::Api(status)) if status.is_already_exists() => within(api.get(&name)).await?,
                created => created?,
            },
        };
        if !is_controlled_by(&new.metadata, &deployment.metadata) {
            bail!("ReplicaSet {name:?} has another owner");
        }
        scale(&api, &new, desired).await?;

        let (mut total, updated) = (0, replicas(&new));
        let all = self.sets.cluster(cluster).namespace(namespace).list(&LabelSelector::default());
        for set in all {
            let set = set.decode()?;
            if !is_controlled_by(&set.metadata, &deployment.metadata) {
                continue;
            }
            total += replicas(&set);
            if set.name_any() != name && updated >= desired {
                scale(&api, &set, 0).await?;
            }
        }
        let generation = deployment.metadata.generation;
        let status = json!({ "replicas": total, "updatedReplicas": updated, "observedGeneration": generation });
        let known = deployment.status.as_ref().map(|known| {
            let number = |replicas: Option<i32>| replicas.unwrap_or(0);
            (number(known.replicas), number(known.updated_replicas), known.observed_generation)
        });
        if known != Some((total, updated, generation)) {
            let api: Api<Deployment> = Api::namespaced(client.clone(), namespace);
            let patch = Patch::Merge(json!({ "status": status }));
            within(api.patch_status(key.name(), &PatchParams::default(), &patch)).await?;
        }
        Ok(())
    }
}

/// Returns the number of pods in the status of a ReplicaSet.
fn replicas(set: &ReplicaSet) -> i32 {
    set.status.as_ref().map_or(0, |status| status.replicas)
}

async fn scale(api: &Api<ReplicaSet>, set: &ReplicaSet, replicas: i32) -> anyhow::Result<()> {
    if set.spec.replicas != Some(replicas) {
        let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
        within(api.patch(&set.name_any(), &PatchParams::default(), &patch)).await?;
    }
    Ok(())
}

fn name_of_new(deployment: &Deployment, spec: &DeploymentSpec) -> anyhow::Result<String> {
    let digest = Sha256::digest(serde_json::to_vec(&spec.template)?);
    let hash = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]);
    Ok(format!("{}-{hash:08x}", deployment.name_any()))
}

/// Returns the ReplicaSet for the current template of a Deployment.
fn new_set(deployment: &Deployment, spec: &DeploymentSpec, name: &str) -> anyhow::Result<ReplicaSet> {
    let owner = deployment.controller_owner_ref(&()).context("a Deployment of the cache has a UID")?;
    let hash = name.rsplit('-').next().unwrap_or_default().to_owned();
    let mut template = spec.template.clone();
    let meta = template.metadata.get_or_insert_default();
    meta.labels.get_or_insert_default().insert(HASH_LABEL.to_owned(), hash.clone());
    let mut selector = spec.selector.clone();
    selector.match_labels.get_or_insert_default().insert(HASH_LABEL.to_owned(), hash);
    Ok(serde_json::from_value(json!({
        "metadata": {
            "name": name,
            "namespace": deployment.namespace(),
            "labels": meta.labels,
            "annotations": { ANNOTATION: "true" },
            "ownerReferences": [owner],
        },
        "spec": { "replicas": spec.replicas.unwrap_or(1), "selector": selector, "template": template },
    }))?)
}
