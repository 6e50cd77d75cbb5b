//! Search for an object with its owners, children and Events.

use std::sync::Arc;

use axum::http::request::Parts;

use super::children::{Children, children_of};
use super::object_events::events_about;
use super::report::{ObjectReport, write};
use crate::api::kubernetes::{CacheInfo, Fleet, ReadApi, reader_id};
use crate::api::notes::Notes;
use crate::api::v1::{ClusterChoice, Failure, Sight, find, find_all, short_name};
use crate::cache::{Snapshot, owner_chain};
use informer_hub_access::Verb;
use informer_hub_types::{ClusterName, Freshness, Object, ObjectKey};

/// Optional parts that the client wants in the answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnswerParts {
    pub(super) children: bool,
    pub(super) events: bool,
    /// Whether each owner in the answer includes its whole object.
    pub(super) objects: bool,
}

/// Finds the object at a cluster, resource, namespace and name, and gathers the wanted parts of the answer.
pub(super) async fn gather(
    api: &Arc<ReadApi>,
    fleet: &dyn Fleet,
    parts: &Parts,
    [cluster, resource, namespace, name]: [&str; 4],
    wanted: AnswerParts,
    name_of_resource: &mut String,
) -> Result<Vec<u8>, Failure> {
    let sight = Sight::of(api, parts);
    let Ok(cluster) = ClusterName::new(cluster) else {
        return Err(Failure::unknown_cluster(&start(cluster), None));
    };
    ClusterChoice::One(cluster.clone()).check(fleet, &sight)?;
    let cache = find(fleet, resource, &sight)?;
    *name_of_resource = cache.resource.gvr.to_string();
    let key = key_of(&cache, namespace, name)?;
    let notes = Notes::of(parts);
    notes.resource(&cache.resource.gvr);
    notes.clusters([&cluster]);
    notes.object(namespace, name);
    let snapshot = cache.published.load_full();
    let labels = api.cluster_labels(cluster.as_str()).unwrap_or_default();
    if !sight.sees(Verb::Get, &cache.resource, (&cluster, &labels), key.namespace()).await {
        sight.withhold();
        return Err(missing(&cache, &cluster, &key));
    }
    let object = snapshot.get(&cluster, &key).ok_or_else(|| missing(&cache, &cluster, &key))?;
    let caches = find_all(fleet, &sight);
    let freshness = freshness_of(&snapshot, &object);
    let (owners, owners_end) = owners_of(&object, &caches, &sight).await;
    let children =
        if wanted.children { children_of(fleet, &object, &caches, &sight).await? } else { Children::default() };
    let events = if wanted.events { events_about(fleet, &object, &caches, &sight).await? } else { None };
    let change = cache.history.last_change(&cluster, &key).filter(|change| change.object.uid() == object.uid());
    let change = change.map(|change| {
        let time = api.time_of(change.at);
        (change, time)
    });
    notes.served(1 + owners.len() as u64);
    let _turn = api.turn(&reader_id(parts)).await;
    let shown =
        ObjectReport { object, freshness, owners, owners_end, children, events, change, with_objects: wanted.objects };
    Ok(write(&shown))
}

fn key_of(cache: &CacheInfo, namespace: &str, name: &str) -> Result<ObjectKey, Failure> {
    let plural = short_name(&cache.resource.gvr);
    match (cache.resource.namespaced, namespace.is_empty()) {
        (true, true) => Err(Failure::invalid(format!(
            "{plural} have a namespace; write /v1/objects/<cluster>/{plural}/<namespace>/<name>"
        ))),
        (false, false) => {
            Err(Failure::invalid(format!("{plural} have no namespace; write /v1/objects/<cluster>/{plural}/<name>")))
        }
        _ => Ok(ObjectKey::new(namespace, name)),
    }
}

fn missing(cache: &CacheInfo, cluster: &ClusterName, key: &ObjectKey) -> Failure {
    let plural = short_name(&cache.resource.gvr);
    Failure::unknown_object(format!("cluster {cluster} has no {plural} {:?}", start(key.as_str())))
}

fn start(text: &str) -> String {
    text.chars().take(100).collect()
}

fn freshness_of(snapshot: &Snapshot, object: &Object) -> Freshness {
    let mut of_origin = snapshot.partitions().filter(|(_, partition)| Arc::ptr_eq(partition.origin(), object.origin()));
    of_origin.next().map_or(Freshness::Missing, |(_, partition)| partition.freshness())
}

/// Returns the owners of an object, nearest first, and the reason why the chain of owners is incomplete; `None` if it
/// is complete. An owner that the reader may not see counts as missing.
async fn owners_of(object: &Object, caches: &[CacheInfo], sight: &Sight) -> (Vec<Object>, Option<String>) {
    let snapshots: Vec<_> = caches.iter().map(|cache| cache.published.load_full()).collect();
    let chain = owner_chain(object, &snapshots);
    let (mut owners, mut end) = (chain.owners, chain.broken.map(|broken| broken.to_string()));
    let mut visible = owners.clone();
    sight.retain(Verb::Get, &mut visible).await;
    let is_visible = |owner: &Object| visible.iter().any(|other| other.uid() == owner.uid());
    if let Some(hidden) = owners.iter().position(|owner| !is_visible(owner)) {
        let owner = &owners[hidden];
        let resource = &owner.origin().resource;
        end = Some(format!("{} {} {:?} does not exist", resource.gvr.api_version(), resource.kind, owner.name()));
        owners.truncate(hidden);
    }
    (owners, end)
}
