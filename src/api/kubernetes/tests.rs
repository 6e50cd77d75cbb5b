//! Tests of requests and answers over a fleet of stores, without sockets.

mod lists;
mod paths;
mod protobuf;
pub(in crate::api) mod rights;
mod selection;
mod watches;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::http::header::ACCEPT;
use axum::http::{HeaderMap, Request, StatusCode};
use futures::StreamExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::fleet::{CacheInfo, ClusterInfo, FetchError, FindFleet, Fleet};
use super::{ReadApi, ReadApiOptions, routes};
use crate::api::rights::CurrentReader;
use crate::cache::{
    Answer, ClusterVersions, DeltaFifo, Gathering, HistoryLimits, PartitionId, Query, QueryError, SavedPartition,
    SavedVersion, Store,
};
use informer_hub_access::{Reader, ReviewCache};
use informer_hub_types::{
    ApiResource, Change, ClusterLabels, ClusterName, Delta, DeltaKind, Gvr, IndexEntry, InformerHealth, Labels,
    ObjectKey, Origin, ResourceVersion, Scope, StoredObject, StoredObjectParts, Uid, View, clock,
};

/// Timeout of each request, and of each wait for an event.
const PATIENCE: Duration = Duration::from_secs(10);

/// Fleet version (the hub's own resource version) at which the stores begin.
const BASE: u64 = 1000;

/// Documents by cluster and path. The clusters have different definitions of gadgets.
const DOCUMENTS: [(&str, &str); 3] = [
    ("a/openapi/v3", r#"{"paths":{}}"#),
    (
        "a/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gadgets.ex.io",
        r#"{"spec":{"names":{"plural":"gadgets","kind":"Gadget"},"versions":[{"name":"v1","selectableFields":[{"jsonPath":
        ".spec.size"}],"additionalPrinterColumns":[{"name":"Size","type":"integer","jsonPath":".spec.size"}]}]}}"#,
    ),
    (
        "b/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gadgets.ex.io",
        r#"{"spec":{"names":{"plural":"gadgets","kind":"Gadget"},"versions":[{"name":"v1","selectableFields":[{"jsonPath":
        ".spec.color"}],"additionalPrinterColumns":[{"name":"Color","type":"string","jsonPath":".spec.color"}]}]}}"#,
    ),
];

/// A fleet of clusters whose caches are in memory, without informers.
#[derive(Debug)]
pub(in crate::api) struct TestFleet {
    clusters: Vec<ClusterInfo>,
    pub(in crate::api) stores: Mutex<BTreeMap<Gvr, Store>>,
    documents: BTreeMap<String, &'static str>,
    pub(in crate::api) is_starting: AtomicBool,
    /// Whether all clusters are unreachable, and have never answered since the hub started.
    is_down: AtomicBool,
}

impl Fleet for TestFleet {
    fn has_started(&self) -> bool {
        !self.is_starting.load(Relaxed)
    }

    fn clusters(&self) -> Vec<ClusterInfo> {
        let mut clusters = self.clusters.clone();
        if self.is_down.load(Relaxed) {
            for cluster in &mut clusters {
                (cluster.version, cluster.is_reachable) = (None, false);
            }
        }
        clusters
    }

    fn caches(&self) -> Vec<CacheInfo> {
        let stores = self.stores.lock();
        let info = |store: &Store| {
            let snapshot = store.published().load();
            Some(CacheInfo {
                resource: snapshot.resource().clone(),
                view: View::Shared,
                history: snapshot.history()?.clone(),
                published: Arc::clone(store.published()),
            })
        };
        stores.values().filter_map(info).collect()
    }

    fn query(&self, cache: &CacheInfo, query: Query) -> BoxFuture<'static, Result<Answer, QueryError>> {
        let answer = cache.published.load().answer(&query);
        Box::pin(async move { answer })
    }

    fn fetch(&self, cluster: &ClusterName, path: String) -> BoxFuture<'static, Result<Bytes, FetchError>> {
        let found = self.documents.get(&format!("{cluster}{path}")).copied();
        Box::pin(async move { found.map(|text| Bytes::from_static(text.as_bytes())).ok_or(FetchError::Missing) })
    }
}

/// The read API over a fleet of clusters in memory.
pub(in crate::api) struct Bench {
    pub(in crate::api) fleet: Arc<TestFleet>,
    api: Arc<ReadApi>,
    routes: Router,
    /// Reader (API user) that sends the requests.
    pub(in crate::api) reader: Reader,
    pub(in crate::api) partitions: BTreeMap<(String, Gvr), PartitionId>,
}

pub(in crate::api) fn pods() -> ApiResource {
    ApiResource { gvr: Gvr::new("", "v1", "pods"), kind: "Pod".into(), namespaced: true }
}

fn cluster(name: &str, tier: &str) -> ClusterInfo {
    ClusterInfo {
        name: ClusterName::new(name).unwrap(),
        labels: [("tier".to_owned(), tier.to_owned())].into(),
        version: Some("v1.36.3".to_owned()),
        is_reachable: true,
    }
}

/// Returns a pod with a label `app`, on a node.
pub(in crate::api) fn pod(namespace: &str, name: &str, version: u64, app: &str, node: &str) -> StoredObject {
    let json = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": namespace, "uid": format!("uid-{name}"), "resourceVersion": version.to_string(),
            "labels": { "app": app }, "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": { "nodeName": node, "containers": [{ "name": "c", "image": "i" }] },
        "status": { "phase": "Running" },
    });
    StoredObject::new(StoredObjectParts {
        key: ObjectKey::new(namespace, name),
        uid: Uid::new(&format!("uid-{name}")),
        resource_version: ResourceVersion::new(&version.to_string()),
        labels: Labels::new(vec![("app".into(), app.into())]),
        index_values: Vec::<IndexEntry>::new(),
        json: json.to_string().into_bytes(),
    })
}

impl Bench {
    pub(in crate::api) fn new(options: ReadApiOptions) -> Self {
        Self::with_clusters(options, vec![("a", "prod"), ("b", "dev")])
    }

    /// Creates a fleet of these clusters. A cluster is given by its name and the value of its label `tier`.
    fn with_clusters(options: ReadApiOptions, clusters: Vec<(&str, &str)>) -> Self {
        let fleet = Arc::new(TestFleet {
            clusters: clusters.into_iter().map(|(name, tier)| cluster(name, tier)).collect(),
            stores: Mutex::default(),
            documents: DOCUMENTS.into_iter().map(|(path, text)| (path.to_owned(), text)).collect(),
            is_starting: AtomicBool::new(false),
            is_down: AtomicBool::new(false),
        });
        let found = Arc::clone(&fleet);
        let find: FindFleet = Arc::new(move || Some(Arc::clone(&found) as Arc<dyn Fleet>));
        let api = Arc::new(ReadApi::new(find, options));
        let routes = routes(Arc::clone(&api)).merge(crate::api::read_routes(&api));
        Self { fleet, api, routes, reader: Reader::administrator(), partitions: BTreeMap::new() }
    }

    pub(in crate::api) fn api(&self) -> Arc<ReadApi> {
        Arc::clone(&self.api)
    }

    /// Applies an update of a pod to the cache of a cluster.
    pub(in crate::api) fn change(&self, cluster: &str, pod: StoredObject) {
        self.event(cluster, DeltaKind::Updated, pod);
    }

    /// Creates two clusters with two pods each, listed at resource version 10.
    pub(in crate::api) fn with_pods() -> Self {
        let mut bench = Self::new(ReadApiOptions { requests: 10, watches: 10, secrets: false });
        for cluster in ["a", "b"] {
            let of = |name: &str, version, node: &str| pod("shop", name, version, "web", node);
            bench.list(&pods(), cluster, vec![of("x", 3, "n1"), of("y", 5, "n2")], 10);
        }
        bench
    }

    pub(in crate::api) fn open(&mut self, resource: &ApiResource, cluster: &str) -> PartitionId {
        self.open_scope(resource, cluster, Scope::all())
    }

    /// Opens the partition of an informer. Later lists and events of the cluster go to this partition.
    pub(in crate::api) fn open_scope(&mut self, resource: &ApiResource, cluster: &str, scope: Scope) -> PartitionId {
        let labels: ClusterLabels =
            self.fleet.clusters.iter().find(|it| it.name.as_str() == cluster).unwrap().labels.clone();
        let origin = Origin {
            cluster: ClusterName::new(cluster).unwrap(),
            cluster_labels: labels,
            resource: resource.clone(),
            scope,
        };
        self.watch_resource(resource);
        let mut stores = self.fleet.stores.lock();
        let store = stores.get_mut(&resource.gvr).unwrap();
        let health = InformerHealth::new();
        let id = store.open(Arc::new(origin), health, Vec::new());
        self.partitions.insert((cluster.to_owned(), resource.gvr.clone()), id);
        id
    }

    /// Creates the cache of a resource, without partitions, if there is none yet.
    fn watch_resource(&self, resource: &ApiResource) {
        self.fleet.stores.lock().entry(resource.gvr.clone()).or_insert_with(|| {
            let mut store = Store::new(resource.clone());
            store.keep_history(HistoryLimits::default(), BASE, clock::now());
            store
        });
    }

    /// Simulates a restart of the hub, which restores the objects that cluster `a` had at a version. Readers of the
    /// earlier process have seen versions up to `greatest`.
    fn restart_at(&mut self, version: u64, greatest: u64, objects: Vec<StoredObject>) {
        let mut stores = self.fleet.stores.lock();
        let before = stores.remove(&pods().gvr).unwrap();
        let key = ("a".to_owned(), pods().gvr);
        let origin = Arc::clone(before.published().load().partition(self.partitions[&key]).unwrap().origin());
        let mut store = Store::new(pods());
        let mut kept = Gathering::default();
        for object in objects {
            kept.put(Arc::new(object));
        }
        let cluster = origin.cluster.clone();
        let id = store.restore(SavedPartition {
            origin,
            health: InformerHealth::new(),
            indexes: Vec::new(),
            settings: 1,
            version: Some(ResourceVersion::new(&version.to_string())),
            synced: true,
            readers: BTreeSet::new(),
            objects: kept,
        });
        let versions = ClusterVersions { list: Some(version), greatest: Some(greatest) };
        let fleet = SavedVersion { version: BASE, has_same_labels: true };
        store.set_saved_version(fleet, [(cluster, versions)].into());
        store.keep_history(HistoryLimits::default(), 2 * BASE, clock::now());
        stores.insert(pods().gvr, store);
        self.partitions.insert(key, id.unwrap());
    }

    /// Applies a complete list of a resource, at resource version `version`, to the cache of a cluster. Opens its
    /// partition if necessary.
    pub(in crate::api) fn list(
        &mut self,
        resource: &ApiResource,
        cluster: &str,
        objects: Vec<StoredObject>,
        version: u64,
    ) {
        let key = (cluster.to_owned(), resource.gvr.clone());
        let id = match self.partitions.get(&key) {
            Some(id) => *id,
            None => self.open(resource, cluster),
        };
        let deltas = objects
            .into_iter()
            .map(|object| Change::Delta(Delta { kind: DeltaKind::Replaced, object: Arc::new(object) }));
        let version = ResourceVersion::new(&version.to_string());
        let changes = [Change::ReplaceBegin].into_iter().chain(deltas).chain([Change::ReplaceEnd(version.clone())]);
        self.apply(&resource.gvr, id, changes, version);
    }

    fn apply(&self, gvr: &Gvr, id: PartitionId, changes: impl IntoIterator<Item = Change>, version: ResourceVersion) {
        let mut fifo = DeltaFifo::new(usize::MAX);
        changes.into_iter().for_each(|change| fifo.push(change));
        let mut stores = self.fleet.stores.lock();
        stores.get_mut(gvr).unwrap().apply_up_to(id, fifo.pop(usize::MAX), Some(version));
    }

    /// Applies a watch event of a pod.
    pub(in crate::api) fn event(&self, cluster: &str, kind: DeltaKind, object: StoredObject) {
        self.event_of(&pods(), cluster, kind, object);
    }

    fn event_of(&self, resource: &ApiResource, cluster: &str, kind: DeltaKind, object: StoredObject) {
        let id = self.partitions[&(cluster.to_owned(), resource.gvr.clone())];
        let version = object.resource_version().clone();
        self.apply(&resource.gvr, id, [Change::Delta(Delta { kind, object: Arc::new(object) })], version);
    }

    /// Sends a request. Its reader is `self.reader`, unless the request has its own.
    pub(in crate::api) async fn send(&self, mut request: Request<Body>) -> axum::response::Response {
        if request.extensions().get::<Reader>().is_none() {
            request.extensions_mut().insert(self.reader.clone());
        }
        tokio::time::timeout(PATIENCE, self.routes.clone().oneshot(request)).await.expect("an answer").unwrap()
    }

    /// Makes watches call `current` for the rights of their readers.
    pub(in crate::api) fn use_current(&mut self, current: CurrentReader) {
        let found = Arc::clone(&self.fleet);
        let find: FindFleet = Arc::new(move || Some(Arc::clone(&found) as Arc<dyn Fleet>));
        let options = ReadApiOptions { requests: 10, watches: 10, secrets: false };
        self.api = Arc::new(ReadApi::new(find, options).with_current_readers(current));
        self.routes = routes(Arc::clone(&self.api)).merge(crate::api::read_routes(&self.api));
    }

    /// Makes the API ask clusters for the rights of readers.
    fn use_reviews(&mut self, reviews: Arc<ReviewCache>) {
        let found = Arc::clone(&self.fleet);
        let find: FindFleet = Arc::new(move || Some(Arc::clone(&found) as Arc<dyn Fleet>));
        let options = ReadApiOptions { requests: 10, watches: 10, secrets: false };
        self.api = Arc::new(ReadApi::new(find, options).with_reviews(reviews));
        self.routes = routes(Arc::clone(&self.api)).merge(crate::api::read_routes(&self.api));
    }

    /// Changes the label `tier` of a cluster.
    pub(in crate::api) fn relabel(&self, cluster: &str, tier: &str) {
        let mut stores = self.fleet.stores.lock();
        for ((_, gvr), id) in self.partitions.iter().filter(|((name, _), _)| name == cluster) {
            let store = stores.get_mut(gvr).unwrap();
            let origin = Arc::clone(store.published().load().partition(*id).unwrap().origin());
            let labels = [("tier".to_owned(), tier.to_owned())].into();
            let origin = Origin { cluster_labels: labels, ..Origin::clone(&origin) };
            store.open(Arc::new(origin), InformerHealth::new(), Vec::new());
        }
    }

    pub(in crate::api) async fn ask(&self, path: &str, accept: &str) -> (StatusCode, HeaderMap, Bytes) {
        let request = Request::get(path).header(ACCEPT, accept).body(Body::empty()).unwrap();
        let (head, body) = self.send(request).await.into_parts();
        let body = tokio::time::timeout(PATIENCE, to_bytes(body, usize::MAX)).await.expect("an end").unwrap();
        (head.status, head.headers, body)
    }

    pub(in crate::api) async fn json(&self, path: &str) -> (u16, Value) {
        self.json_of(path, "application/json").await
    }

    /// Returns code and JSON of an answer.
    pub(in crate::api) async fn json_of(&self, path: &str, accept: &str) -> (u16, Value) {
        let (status, _, body) = self.ask(path, accept).await;
        (status.as_u16(), serde_json::from_slice(&body).unwrap_or_else(|_| panic!("{path}: {body:?}")))
    }

    /// Opens a watch, whose response must have the status 200.
    async fn watch(&self, path: &str) -> Events {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = self.send(request).await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        Events { body: response.into_body().into_data_stream(), buffer: Vec::new() }
    }
}

/// Events of a watch.
struct Events {
    body: axum::body::BodyDataStream,
    buffer: Vec<u8>,
}

impl Events {
    /// Returns the next event; `None` at the end.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<_> = self.buffer.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let chunk = tokio::time::timeout(PATIENCE, self.body.next()).await.expect("an event")?;
            self.buffer.extend_from_slice(&chunk.unwrap());
        }
    }

    /// Returns the next event, without a time limit; `None` at the end.
    async fn next_unbounded(&mut self) -> Option<Value> {
        while !self.buffer.contains(&b'\n') {
            self.buffer.extend_from_slice(&self.body.next().await?.unwrap());
        }
        self.next().await
    }

    /// Returns type, name and version of the next event, such as `ADDED x@3`.
    async fn line(&mut self) -> String {
        self.next().await.map_or_else(|| "end".to_owned(), |event| line(&event))
    }
}

fn line(event: &Value) -> String {
    let metadata = &event["object"]["metadata"];
    let name = metadata["name"].as_str().or(event["object"]["reason"].as_str()).unwrap_or("-");
    format!("{} {name}@{}", event["type"].as_str().unwrap(), metadata["resourceVersion"].as_str().unwrap_or("-"))
}

/// Returns names and versions of a list's items.
fn items(list: &Value) -> Vec<String> {
    let item = |item: &Value| {
        let metadata = &item["metadata"];
        format!("{}@{}", metadata["name"].as_str().unwrap(), metadata["resourceVersion"].as_str().unwrap())
    };
    list["items"].as_array().unwrap().iter().map(item).collect()
}
