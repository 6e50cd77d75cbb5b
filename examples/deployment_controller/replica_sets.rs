//! Sync of a ReplicaSet: creates and deletes pods until there are as many as desired, without duplicates.

use std::num::NonZeroUsize;

use anyhow::Context;
use informer_hub::Request;
use informer_hub::types::{LabelSelector, rng};
use informer_hub::workqueue::parallelize_until;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Resource, ResourceExt};
use parking_lot::Mutex;
use rand::Rng;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::common::{is_controlled_by, is_refused, within};
use super::controller::{Controller, is_managed};
use super::expectations::{Change, Owner};

/// Maximum number of concurrent requests for one ReplicaSet.
const CONCURRENCY: NonZeroUsize = NonZeroUsize::new(8).expect("eight is not zero");

/// Maximum number of pods that are created or deleted in one sync.
const MAX_CHANGES: usize = 500;

impl Controller {
    pub(super) async fn sync_set(&self, request: &Request) -> anyhow::Result<()> {
        let Request { cluster, key } = request;
        let namespace = key.namespace().unwrap_or_default();
        let Ok(set) = self.sets.get(cluster, namespace, key.name()) else {
            self.expectations.forget(request);
            return Ok(());
        };
        let set = set.decode()?;
        if !is_managed(&set.metadata) {
            return Ok(());
        }
        if set.metadata.deletion_timestamp.is_some() {
            // Its pods are deleted with it, so no request is repeated.
            self.expectations.forget(request);
            return Ok(());
        }
        let owner = &Owner { request: request.clone(), uid: set.uid().context("a ReplicaSet of the cache has a UID")? };
        let client = self.clients.get(cluster).context("a cluster without a client")?;
        let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let desired = usize::try_from(set.spec.replicas.unwrap_or(1)).unwrap_or(0);
        // Repeats overdue requests that are still needed, under the same names.
        let shown = self.pods_of(request, &set)?.iter().map(ResourceExt::name_any).collect();
        self.apply(owner, &api, &set, &self.expectations.again(owner, desired, &shown)).await?;
        // The order matters: a change that becomes visible between the two lines is counted. In the other order, it
        // would be neither counted nor expected.
        let are_met = self.expectations.are_met(owner);
        let mut pods = self.pods_of(request, &set)?;
        if are_met {
            let new = (pods.len()..desired).map(|_| (new_name(&set), Change::Create));
            // The youngest pods are deleted first.
            pods.sort_by_key(|pod| pod.metadata.creation_timestamp.clone());
            let surplus = pods.iter().skip(desired).map(|pod| (pod.name_any(), Change::Delete));
            let changes = new.chain(surplus).take(MAX_CHANGES).collect::<Vec<_>>();
            self.apply(owner, &api, &set, &changes).await?;
        }
        if !self.expectations.are_met(owner) {
            // Events of its pods queue it again. This is for the case that there are none.
            self.requeue_overdue(request);
        }
        let count = i32::try_from(pods.len()).unwrap_or(i32::MAX);
        if set.status.as_ref().map(|status| status.replicas) != Some(count) {
            let sets: Api<ReplicaSet> = Api::namespaced(client.clone(), namespace);
            let status = json!({ "replicas": count, "observedGeneration": set.metadata.generation });
            let patch = Patch::Merge(json!({ "status": status }));
            within(sets.patch_status(key.name(), &PatchParams::default(), &patch)).await?;
        }
        Ok(())
    }

    /// Returns the cached pods of a ReplicaSet, without those that are being deleted.
    fn pods_of(&self, request: &Request, set: &ReplicaSet) -> anyhow::Result<Vec<Pod>> {
        let namespace = request.key.namespace().unwrap_or_default();
        let all = self.pods.cluster(&request.cluster).namespace(namespace).list(&labels(set)?);
        let pods = all.iter().map(informer_hub::Object::decode).collect::<Result<Vec<_>, _>>()?;
        let is_mine = |pod: &Pod| is_controlled_by(&pod.metadata, &set.metadata);
        Ok(pods.into_iter().filter(|pod| is_mine(pod) && pod.metadata.deletion_timestamp.is_none()).collect())
    }

    /// Creates and deletes pods.
    async fn apply(
        &self,
        owner: &Owner,
        api: &Api<Pod>,
        set: &ReplicaSet,
        changes: &[(String, Change)],
    ) -> anyhow::Result<()> {
        let apply = |at: usize| self.apply_one(owner, api, set, &changes[at]);
        Ok(slow_start(&self.stop, changes.len(), apply).await?)
    }

    /// Creates or deletes a pod and records the expectation.
    async fn apply_one(
        &self,
        owner: &Owner,
        api: &Api<Pod>,
        set: &ReplicaSet,
        (name, change): &(String, Change),
    ) -> kube::Result<()> {
        self.expectations.expect(owner, name, *change);
        let done = match change {
            Change::Create => create(api, set, name).await,
            Change::Delete => delete(api, name).await,
        };
        match &done {
            // The change may be visible already, and then there is no further event.
            Ok(()) if self.shows(&owner.request, name) == (*change == Change::Create) => {
                self.expectations.settle(owner, name);
            }
            Ok(()) => {}
            Err(error) if is_refused(error) => self.expectations.settle(owner, name),
            Err(_) => self.expectations.doubt(owner, name, *change),
        }
        done
    }

    fn shows(&self, request: &Request, pod: &str) -> bool {
        self.pods.get(&request.cluster, request.key.namespace().unwrap_or_default(), pod).is_ok()
    }
}

/// Runs pieces of work in batches: one piece at first, then twice as many each time, until one fails or `stop` is
/// cancelled. So a refusal by the server (a quota, an invalid template) happens once and not for every pod.
pub(crate) async fn slow_start<W, E>(
    stop: &CancellationToken,
    pieces: usize,
    work: impl Fn(usize) -> W,
) -> Result<(), E>
where
    W: Future<Output = Result<(), E>>,
{
    let (failed, stop) = (Mutex::new(None), stop.child_token());
    let (mut from, mut size) = (0, 1);
    while from < pieces && !stop.is_cancelled() {
        let batch = size.min(pieces - from);
        let work = |at: usize| {
            let (piece, failed, stop) = (work(from + at), &failed, &stop);
            async move {
                if let Err(error) = piece.await {
                    failed.lock().get_or_insert(error);
                    stop.cancel();
                }
            }
        };
        parallelize_until(&stop, CONCURRENCY, batch, work).await;
        (from, size) = (from + batch, 2 * size);
    }
    failed.into_inner().map_or(Ok(()), Err)
}

/// Creates a pod. Succeeds if it exists: its name is unique to the ReplicaSet.
async fn create(api: &Api<Pod>, set: &ReplicaSet, name: &str) -> kube::Result<()> {
    let template = set.spec.template.clone().unwrap_or_default();
    let mut pod = Pod { metadata: template.metadata.unwrap_or_default(), spec: template.spec, status: None };
    pod.metadata.name = Some(name.to_owned());
    pod.metadata.owner_references = set.controller_owner_ref(&()).map(|owner| vec![owner]);
    match within(api.create(&PostParams::default(), &pod)).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        done => done.map(|_| ()),
    }
}

/// Deletes a pod. Succeeds if it does not exist.
async fn delete(api: &Api<Pod>, name: &str) -> kube::Result<()> {
    match within(api.delete(name, &DeleteParams::default())).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        done => done.map(|_| ()),
    }
}

/// Returns a random name, chosen here so that a request with an unknown outcome can be repeated.
fn new_name(set: &ReplicaSet) -> String {
    format!("{}-{:06x}", set.name_any(), rng::rng().random_range(0..1 << 24))
}

/// Returns the label selector of a ReplicaSet. Only `matchLabels` are supported, which is all that `deployments.rs`
/// uses.
fn labels(set: &ReplicaSet) -> anyhow::Result<LabelSelector> {
    let labels = set.spec.selector.match_labels.as_ref();
    let pairs = labels.into_iter().flatten().map(|(key, value)| format!("{key}={value}"));
    Ok(pairs.collect::<Vec<_>>().join(",").parse()?)
}
