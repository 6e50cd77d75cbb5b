//! Simulated process: a collector, and for each of its clusters a reflector with a cache.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::StreamExt;
use informer_hub_reflector::{
    Connection, Connector, Discovered, ErrorClass, InformerOptions, ItemVerdict, ListChunk, ListRequest, ListerWatcher,
    PageVerdict, Reflector, ReflectorOptions, ResolveError, Server, SourceError, Step, WatchItem, WatchRequest,
};
use informer_hub_types::{
    ApiResource, ClusterLabels, ClusterName, ObjectKey, ResourceRef, Scope, Shard, StoredObject, clock, rng,
};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::cluster::{ClusterSource, SimulatedCluster, resource};
use super::threads;
use crate::{Backend, Collector, CollectorParams, ConnectorWrap, Host};

pub(super) type Objects = BTreeMap<ObjectKey, u64>;
pub(super) type Caches = Arc<Mutex<Cached>>;

/// Caches of a process.
#[derive(Default)]
pub(super) struct Cached {
    pub(super) objects: BTreeMap<Shard, Objects>,
    /// Newest version of each object that this process has received. Deleted objects keep their entry.
    newest: BTreeMap<(Shard, ObjectKey), u64>,
}

impl Cached {
    /// Panics if `version` is older than a version of the object that this process has received before.
    fn verify(&mut self, shard: &Shard, key: &ObjectKey, version: u64) {
        let newest = self.newest.entry((shard.clone(), key.clone())).or_default();
        assert!(version >= *newest, "{key} of {shard} goes back from {newest} to {version}");
        *newest = version;
    }
}

/// Simulated process. Dropping it kills the process.
pub(super) struct Process {
    pub(super) name: String,
    pub(super) collector: Collector,
    hub: Arc<Hub>,
}

struct Hub {
    clusters: BTreeMap<Shard, Arc<SimulatedCluster>>,
    reflectors: Mutex<BTreeMap<Shard, JoinHandle<()>>>,
    caches: Caches,
}

impl Process {
    pub(super) fn start(
        params: CollectorParams,
        backend: Arc<dyn Backend>,
        clusters: &BTreeMap<Shard, Arc<SimulatedCluster>>,
    ) -> Self {
        let name = params.name.clone();
        let (reflectors, caches) = Default::default();
        let hub = Arc::new(Hub { clusters: clusters.clone(), reflectors, caches });
        let host: Arc<dyn Host> = Arc::<Hub>::clone(&hub);
        let collector = Collector::start(backend, params, host, &threads());
        for shard in clusters.keys() {
            collector.add(&shard.cluster);
        }
        Self { name, collector, hub }
    }

    pub(super) fn cached(&self, shard: &Shard) -> Option<Objects> {
        self.hub.caches.lock().objects.get(shard).cloned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.hub.reflectors.lock().values().for_each(JoinHandle::abort);
    }
}

/// Probability that the hub refuses to watch a shard.
const FAILED_STARTS: f64 = 0.1;

impl Host for Hub {
    fn start(&self, shard: &Shard, wrap: ConnectorWrap) -> BoxFuture<'static, Result<(), String>> {
        if rng::unit() < FAILED_STARTS {
            return Box::pin(async { Err("the cluster is being removed".to_owned()) });
        }
        let connector = wrap(Arc::new(ClusterConnector(Arc::clone(&self.clusters[shard]))));
        let (caches, name, resource_of) = (Arc::clone(&self.caches), shard.clone(), resource(shard));
        self.caches.lock().objects.insert(name.clone(), Objects::new());
        let reflector = tokio::spawn(async move {
            let connection = connector.connect().await.unwrap();
            let source = connection.lister_watcher(&resource_of, &Scope::all(), &InformerOptions::default());
            drop(connection);
            reflect(&*source, &caches, &name).await;
        });
        self.reflectors.lock().insert(shard.clone(), reflector);
        Box::pin(async { Ok(()) })
    }

    fn stop(&self, shard: &Shard) -> BoxFuture<'static, ()> {
        let reflector = self.reflectors.lock().remove(shard);
        self.caches.lock().objects.remove(shard);
        Box::pin(async move {
            if let Some(reflector) = reflector {
                reflector.abort();
                let _ = reflector.await;
            }
        })
    }

    fn labels(&self, _: &ClusterName) -> ClusterLabels {
        ClusterLabels::new()
    }
}

/// Drives a reflector, as the module documentation of `informer_hub_reflector::machine` shows.
pub(super) async fn reflect(source: &dyn ListerWatcher, caches: &Caches, name: &Shard) {
    let mut machine = Reflector::new(ReflectorOptions::default(), rng::unit);
    let mut listed = Vec::new();
    loop {
        match machine.next(clock::now()) {
            Step::Wait { until, .. } => tokio::time::sleep_until(until).await,
            Step::List { request, fresh } => {
                if fresh {
                    listed.clear();
                }
                list(source, &mut machine, request, &mut listed, caches, name).await;
            }
            Step::Check => {
                let current = source.current_version().await;
                machine.on_checked(&current, clock::now());
            }
            Step::Watch { request } => watch(source, &mut machine, request, &mut listed, caches, name).await,
        }
    }
}

fn replace(caches: &Caches, name: &Shard, listed: &mut Vec<Arc<StoredObject>>) {
    let objects: Objects = listed.drain(..).map(|object| (object.key().clone(), number(&object))).collect();
    let mut caches = caches.lock();
    for (key, version) in &objects {
        caches.verify(name, key, *version);
    }
    caches.objects.insert(name.clone(), objects);
}

fn number(object: &StoredObject) -> u64 {
    object.resource_version().as_number().unwrap()
}

async fn list(
    source: &dyn ListerWatcher,
    machine: &mut Reflector,
    request: ListRequest,
    listed: &mut Vec<Arc<StoredObject>>,
    caches: &Caches,
    name: &Shard,
) {
    let mut stream = match source.list(request).await {
        Ok(stream) => stream,
        Err(error) => return machine.on_list_error(&error, clock::now()),
    };
    while let Some(chunk) = stream.next().await {
        match chunk {
            Ok(ListChunk::Items(objects)) => listed.extend(objects),
            Ok(ListChunk::Skipped(skipped)) => panic!("{skipped:?}"),
            Ok(ListChunk::End { version, continue_token, remaining }) => {
                if let PageVerdict::ListComplete(_) =
                    machine.on_page_end(version, continue_token, remaining, clock::now())
                {
                    replace(caches, name, listed);
                }
                return;
            }
            Err(error) => return machine.on_list_error(&error, clock::now()),
        }
    }
}

async fn watch(
    source: &dyn ListerWatcher,
    machine: &mut Reflector,
    request: WatchRequest,
    listed: &mut Vec<Arc<StoredObject>>,
    caches: &Caches,
    name: &Shard,
) {
    if request.initial_events {
        listed.clear();
    }
    let (opened, mut events) = (clock::now(), 0);
    let end = match source.watch(request).await {
        Err(error) => Err(error),
        Ok(mut stream) => {
            machine.on_watch_opened(clock::now());
            loop {
                // Gives up a watch whose events wait for the log, as a reflector does at its deadline.
                let next = tokio::time::timeout(Duration::from_secs(20), stream.next()).await;
                let batch = match next {
                    Err(_) => break Err(machine.stall_error()),
                    Ok(None) => break Ok(()),
                    Ok(Some(Err(error))) => break Err(error),
                    Ok(Some(Ok(batch))) => batch,
                };
                events += batch.items.len() as u64;
                for item in batch.items {
                    let verdict = machine.on_watch_item(&item, clock::now());
                    match (verdict, item) {
                        (ItemVerdict::Initial, WatchItem::Added(object)) => listed.push(object),
                        (ItemVerdict::InitialEventsEnd(_), _) => replace(caches, name, listed),
                        (ItemVerdict::Apply, item) => apply(&mut caches.lock(), name, &item),
                        _ => {}
                    }
                }
            }
        }
    };
    machine.on_watch_end(end.as_ref().copied(), events, opened.elapsed(), clock::now());
}

fn apply(caches: &mut Cached, name: &Shard, item: &WatchItem) {
    if let WatchItem::Added(object) | WatchItem::Modified(object) | WatchItem::Deleted(object) = item {
        caches.verify(name, object.key(), number(object));
    }
    let Some(objects) = caches.objects.get_mut(name) else { return };
    match item {
        WatchItem::Added(object) | WatchItem::Modified(object) => {
            objects.insert(object.key().clone(), number(object));
        }
        WatchItem::Deleted(object) => _ = objects.remove(object.key()),
        WatchItem::Bookmark { .. } | WatchItem::Skipped(_) => {}
    }
}

#[derive(Clone)]
struct ClusterConnector(Arc<SimulatedCluster>);

impl std::fmt::Debug for ClusterConnector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterConnector").finish_non_exhaustive()
    }
}

fn unsupported() -> SourceError {
    SourceError { class: ErrorClass::NotFound, message: "not simulated".to_owned() }
}

impl Connector for ClusterConnector {
    fn connect(&self) -> BoxFuture<'static, Result<Arc<dyn Connection>, SourceError>> {
        let connection = self.clone();
        Box::pin(async move { Ok(Arc::new(connection) as Arc<dyn Connection>) })
    }
}

impl Connection for ClusterConnector {
    fn server(&self) -> BoxFuture<'static, Result<Server, SourceError>> {
        Box::pin(async { Err(unsupported()) })
    }

    fn resolve(&self, _: ResourceRef) -> BoxFuture<'static, Result<ApiResource, ResolveError>> {
        Box::pin(async { Err(ResolveError::Unavailable(unsupported())) })
    }

    fn catalogue(&self, _: Option<Arc<Discovered>>) -> BoxFuture<'static, Result<Option<Discovered>, SourceError>> {
        Box::pin(async { Err(unsupported()) })
    }

    fn lister_watcher(&self, _: &ApiResource, _: &Scope, _: &InformerOptions) -> Arc<dyn ListerWatcher> {
        Arc::new(ClusterSource(Arc::clone(&self.0)))
    }
}
