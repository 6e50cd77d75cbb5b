//! Simulated cluster: the history of one resource, with a list and a watch that fail at random.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{self, StreamExt};
use informer_hub_codec::{Decoded, Decoder};
use informer_hub_fleet::Record;
use informer_hub_reflector::{
    ErrorClass, InformerOptions, ListChunk, ListRequest, ListStream, ListerWatcher, SourceError, VersionMatch,
    WatchBatch, WatchItem, WatchRequest, WatchStream,
};
use informer_hub_types::{
    ApiResource, Gvr, ObjectKey, ResourceVersion, Shard, ShardName, ShardRule, ShardRules, StoredObject, rng,
};
use parking_lot::Mutex;
use rand::Rng;
use rand::rngs::StdRng;

/// Change of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    key: ObjectKey,
    version: u64,
    deleted: bool,
}

impl Change {
    pub(super) fn of_record(record: &Record) -> Option<Self> {
        let (key, version, deleted) = match record {
            Record::Put { key, version, .. } => (key, version, false),
            Record::Delete { key, version, .. } => (key, version, true),
            _ => return None,
        };
        Some(Self { key: key.clone(), version: version.as_number()?, deleted })
    }
}

#[derive(Default)]
struct State {
    changes: Vec<Change>,
    objects: BTreeMap<ObjectKey, u64>,
    compacted: u64,
    lists: usize,
    failures: f64,
}

/// Objects of a shard with their history.
pub(super) struct SimulatedCluster {
    state: Mutex<State>,
}

/// Returns rules by which the cluster `c0` has two shards: one for secrets, one for all other resources.
pub(super) fn divided() -> ShardRules {
    ShardRules::new(vec![ShardRule {
        name: ShardName::new("secrets").unwrap(),
        clusters: vec!["c0".to_owned()],
        resources: vec!["secrets".parse().unwrap()],
        namespaces: Vec::new(),
    }])
}

/// Returns the only resource of a shard: secrets in a shard that a rule makes, else pods.
pub(super) fn resource(shard: &Shard) -> ApiResource {
    let plural = if shard.name.is_none() { "pods" } else { "secrets" };
    ApiResource { gvr: Gvr::new("", "v1", plural), kind: "Pod".into(), namespaced: true }
}

fn object(key: &ObjectKey, version: u64) -> Arc<StoredObject> {
    let (namespace, name) = (key.namespace().unwrap_or_default(), key.name());
    let json = format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"namespace":"{namespace}","name":"{name}","uid":"u-{name}","resourceVersion":"{version}"}}}}"#
    );
    let mut decoder = Decoder::new(
        resource(&Shard::rest_of("c0".parse().unwrap())),
        &InformerOptions::default().projection,
        Vec::new(),
    );
    match decoder.decode_object(json.as_bytes()).unwrap() {
        Decoded::Object(object) => object,
        Decoded::Skipped(skipped) => panic!("{skipped:?}"),
    }
}

impl SimulatedCluster {
    pub(super) fn new(failures: f64) -> Self {
        Self { state: Mutex::new(State { failures, ..State::default() }) }
    }

    /// Changes up to three objects.
    pub(super) fn churn(&self, rng: &mut StdRng) {
        let mut state = self.state.lock();
        for _ in 0..rng.random_range(0..4) {
            let key = ObjectKey::new("ns", &format!("o{}", rng.random_range(0..8)));
            let version = state.version() + rng.random_range(1..4);
            let deleted = state.objects.contains_key(&key) && rng.random_bool(0.4);
            if deleted {
                state.objects.remove(&key)
            } else {
                state.objects.insert(key.clone(), version)
            };
            state.changes.push(Change { key, version, deleted });
        }
    }

    /// Adds objects that never change.
    pub(super) fn fill(&self, objects: usize) {
        let mut state = self.state.lock();
        for at in 0..objects {
            let (key, version) = (ObjectKey::new("ns", &format!("fill-{at}")), state.version() + 1);
            state.objects.insert(key.clone(), version);
            state.changes.push(Change { key, version, deleted: false });
        }
    }

    /// Forgets the history, so that watches from earlier versions fail.
    pub(super) fn compact(&self) {
        let mut state = self.state.lock();
        state.compacted = state.version();
    }

    pub(super) fn set_failures(&self, failures: f64) {
        self.state.lock().failures = failures;
    }

    pub(super) fn lists(&self) -> usize {
        self.state.lock().lists
    }

    /// Returns the version of the last change.
    pub(super) fn version(&self) -> u64 {
        self.state.lock().version()
    }

    pub(super) fn objects(&self) -> BTreeMap<ObjectKey, u64> {
        self.state.lock().objects.clone()
    }

    pub(super) fn changes_after(&self, version: u64) -> Vec<Change> {
        self.state.lock().changes.iter().filter(|change| change.version > version).cloned().collect()
    }

    fn fails(&self) -> bool {
        rng::unit() < self.state.lock().failures
    }

    /// Returns a batch of changes after a version, or a bookmark if there is none.
    fn batch(&self, after: u64) -> (u64, Vec<WatchItem>) {
        let changes: Vec<_> = self.changes_after(after).into_iter().take(5).collect();
        let reached = changes.last().map_or_else(|| self.state.lock().version().max(after), |last| last.version);
        let event = |change: &Change| {
            let object = object(&change.key, change.version);
            if change.deleted {
                WatchItem::Deleted(object)
            } else if self.existed_before(change) {
                WatchItem::Modified(object)
            } else {
                WatchItem::Added(object)
            }
        };
        let mut items: Vec<_> = changes.iter().map(event).collect();
        if items.is_empty() {
            items.push(WatchItem::Bookmark { version: version(reached), initial_events_end: false });
        }
        (reached, items)
    }

    fn existed_before(&self, change: &Change) -> bool {
        let state = self.state.lock();
        let earlier = |other: &&Change| other.key == change.key && other.version < change.version;
        state.changes.iter().rev().find(earlier).is_some_and(|before| !before.deleted)
    }
}

impl State {
    fn version(&self) -> u64 {
        self.changes.last().map_or(1, |change| change.version)
    }
}

fn version(number: u64) -> ResourceVersion {
    ResourceVersion::new(&number.to_string())
}

fn failed<T>(class: ErrorClass) -> Result<T, SourceError> {
    Err(SourceError { class, message: "the simulated cluster fails".to_owned() })
}

/// List and watch of a [`SimulatedCluster`].
#[derive(Clone)]
pub(super) struct ClusterSource(pub(super) Arc<SimulatedCluster>);

impl std::fmt::Debug for ClusterSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterSource").finish_non_exhaustive()
    }
}

impl ListerWatcher for ClusterSource {
    fn list(&self, _: ListRequest) -> BoxFuture<'static, Result<ListStream, SourceError>> {
        let cluster = Arc::clone(&self.0);
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(5).mul_f64(rng::unit())).await;
            cluster.state.lock().lists += 1;
            if cluster.fails() {
                return failed(ErrorClass::Transient);
            }
            let (objects, at) = {
                let state = cluster.state.lock();
                (state.objects.clone(), state.version())
            };
            let objects: Vec<_> = objects.iter().map(|(key, version)| object(key, *version)).collect();
            let mut chunks: Vec<_> = objects.chunks(3).map(|chunk| Ok(ListChunk::Items(chunk.to_vec()))).collect();
            chunks.push(Ok(ListChunk::End { version: version(at), continue_token: None, remaining: None }));
            if cluster.fails() {
                chunks.truncate(1);
                chunks.push(failed(ErrorClass::Transient));
            }
            Ok(stream::iter(chunks).boxed())
        })
    }

    fn current_version(&self) -> BoxFuture<'static, Result<Option<ResourceVersion>, SourceError>> {
        let cluster = Arc::clone(&self.0);
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(5).mul_f64(rng::unit())).await;
            if cluster.fails() {
                return failed(ErrorClass::Transient);
            }
            let at = cluster.state.lock().version();
            Ok(Some(version(at)))
        })
    }

    fn watch(&self, request: WatchRequest) -> BoxFuture<'static, Result<WatchStream, SourceError>> {
        let cluster = Arc::clone(&self.0);
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(5).mul_f64(rng::unit())).await;
            let from = match &request.version {
                VersionMatch::NotOlderThan(version) if !request.initial_events => version.as_number().unwrap(),
                _ => return failed(ErrorClass::StreamingUnsupported),
            };
            if from < cluster.state.lock().compacted {
                return failed(ErrorClass::Expired);
            }
            if cluster.fails() {
                return failed(ErrorClass::Transient);
            }
            let events = stream::unfold(Some((cluster, from)), |open| async move {
                let (cluster, from) = open?;
                tokio::time::sleep(Duration::from_millis(60).mul_f64(rng::unit())).await;
                if rng::unit() < 0.02 * cluster.state.lock().failures {
                    return Some((failed(ErrorClass::Transient), None));
                }
                let (reached, items) = cluster.batch(from);
                Some((Ok(WatchBatch::from(items)), Some((cluster, reached))))
            });
            Ok(events.boxed())
        })
    }
}
