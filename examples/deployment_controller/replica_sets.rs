//! A ReplicaSet's pods: as many as it wants, never twice.

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
use super::controller::{Controller, is_ours};
use super::expectations::{Change, Owner};

/// How many requests of one ReplicaSet run at a time.
const AT_ONCE: NonZeroUsize = NonZeroUsize::new(8).expect("eight is not zero");

/// How many pods of one ReplicaSet are made or deleted before its next turn.
const AT_MOST: usize = 500;

impl Controller {
    pub(super) async fn sync_set(&self, request: &Request) -> anyhow::Result<()> {
        let Request { cluster, key } = request;
        let namespace = key.namespace().unwrap_or_default();
        let Ok(set) = self.sets.get(cluster, namespace, key.name()) else {
            self.expectations.forget(request);
            return Ok(());
        };
        let set = set.decode()?;
        if !is_ours(&set.metadata) {
            return Ok(());
        }
        if set.metadata.deletion_timestamp.is_some() {
            // Its pods go with it. What was asked for and did not show is not asked for again.
            self.expectations.forget(request);
            return Ok(());
        }
        let owner = &Owner { request: request.clone(), uid: set.uid().context("a ReplicaSet of the cache has a UID")? };
        let client = self.clients.get(cluster).context("a cluster without a client")?;
        let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let wanted = usize::try_from(set.spec.replicas.unwrap_or(1)).unwrap_or(0);
        // What failed, or does not show, and is still wanted: asked for again, under the same name.
        let shown = self.pods_of(request, &set)?.iter().map(ResourceExt::name_any).collect();
        self.apply(owner, &api, &set, &self.expectations.again(owner, wanted, &shown)).await?;
        // In this order: what is seen between the two is counted, and waited for. The other way round, it would be neither.
        let are_met = self.expectations.are_met(owner);
        let mut pods = self.pods_of(request, &set)?;
        if are_met {
            let new = (pods.len()..wanted).map(|_| (new_name(&set), Change::Create));
            // The youngest go first.
            pods.sort_by_key(|pod| pod.metadata.creation_timestamp.clone());
            let surplus = pods.iter().skip(wanted).map(|pod| (pod.name_any(), Change::Delete));
            let changes = new.chain(surplus).take(AT_MOST).collect::<Vec<_>>();
            self.apply(owner, &api, &set, &changes).await?;
        }
        if !self.expectations.are_met(owner) {
            // Its pods will bring it back as they come and go. If they do not, somebody has to ask.
            self.look_again(request);
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

    /// The pods that the cache shows of a ReplicaSet, without those that are being deleted.
    fn pods_of(&self, request: &Request, set: &ReplicaSet) -> anyhow::Result<Vec<Pod>> {
        let namespace = request.key.namespace().unwrap_or_default();
        let all = self.pods.cluster(&request.cluster).namespace(namespace).list(&labels(set)?);
        let pods = all.iter().map(informer_hub::Object::decode).collect::<Result<Vec<_>, _>>()?;
        let is_mine = |pod: &Pod| is_controlled_by(&pod.metadata, &set.metadata);
        Ok(pods.into_iter().filter(|pod| is_mine(pod) && pod.metadata.deletion_timestamp.is_none()).collect())
    }

    /// Makes and deletes pods.
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

    /// Makes or deletes a pod, and remembers what is to be expected of it.
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
            // It may have shown already, and nobody will tell of it a second time.
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

/// Does pieces of work: one at first, then twice as many each time, until one fails or `stop` is cancelled. So what the
/// server refuses (a quota, a template that is not valid) is refused once, and not for every pod.
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
        parallelize_until(&stop, AT_ONCE, batch, work).await;
        (from, size) = (from + batch, 2 * size);
    }
    failed.into_inner().map_or(Ok(()), Err)
}

/// Makes a pod. That it is there already is as good: its name is the ReplicaSet's own.
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

/// Deletes a pod. That it is gone already is as good.
async fn delete(api: &Api<Pod>, name: &str) -> kube::Result<()> {
    match within(api.delete(name, &DeleteParams::default())).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        done => done.map(|_| ()),
    }
}

/// A name of our own choice, so that a request that may have failed can be repeated.
fn new_name(set: &ReplicaSet) -> String {
    format!("{}-{:06x}", set.name_any(), rng::rng().random_range(0..1 << 24))
}

/// A ReplicaSet's selector, as far as it is made of plain labels, which is all that `deployments.rs` makes.
fn labels(set: &ReplicaSet) -> anyhow::Result<LabelSelector> {
    let labels = set.spec.selector.match_labels.as_ref();
    let pairs = labels.into_iter().flatten().map(|(key, value)| format!("{key}={value}"));
    Ok(pairs.collect::<Vec<_>>().join(",").parse()?)
}
