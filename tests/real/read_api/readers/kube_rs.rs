//! kube-rs' watcher and reflector.

use std::hash::Hash;
use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::{Resource, ResourceExt};
use kube_runtime::reflector::{self, Store};
use kube_runtime::{WatchStreamExt, watcher};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::task::JoinHandle;

use super::expected::Held;
use super::process::Dump;
use crate::read_api::endpoint::Endpoint;

/// A reflector of kube-rs. Dropping it ends its watch.
pub(super) struct KubeRs<K: Resource + 'static>
where
    K::DynamicType: Eq + Hash + Clone,
{
    store: Store<K>,
    /// Number of events so far, and each error with the number of events before it.
    log: Arc<Mutex<Log>>,
    task: JoinHandle<()>,
}

/// Events and errors of a watcher.
#[derive(Clone, Default, Debug)]
struct Log {
    events: usize,
    errors: Vec<(usize, String)>,
}

impl<K> KubeRs<K>
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Default + Send + Sync,
{
    /// Starts a reflector of all objects at a root, with its first list in pages or as a stream.
    pub(super) fn start(root: &Endpoint, is_streaming: bool) -> Self {
        let (store, writer) = reflector::store();
        Self::run(Api::all(root.client().clone()), store, writer, is_streaming)
    }
}

impl KubeRs<DynamicObject> {
    /// Starts a reflector of a resource without a type.
    pub(super) fn start_dynamic(root: &Endpoint, resource: &ApiResource, is_streaming: bool) -> Self {
        let writer = reflector::store::Writer::new(resource.clone());
        let api = Api::all_with(root.client().clone(), resource);
        Self::run(api, writer.as_reader(), writer, is_streaming)
    }
}

impl<K> KubeRs<K>
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Send + Sync,
{
    fn run(api: Api<K>, store: Store<K>, writer: reflector::store::Writer<K>, is_streaming: bool) -> Self {
        let config = watcher::Config::default();
        let config = if is_streaming { config.streaming_lists() } else { config.page_size(13) };
        let log = Arc::<Mutex<Log>>::default();
        let kept = Arc::clone(&log);
        let task = tokio::spawn(async move {
            let mut events = pin!(watcher(api, config).default_backoff().reflect(writer));
            while let Some(event) = events.next().await {
                let mut log = kept.lock();
                log.events += 1;
                if let Err(error) = event {
                    let count = log.events;
                    log.errors.push((count, error.to_string()));
                }
            }
        });
        Self { store, log, task }
    }

    /// Returns its objects and errors.
    pub(super) fn dump(&self) -> Dump {
        let Log { events, errors } = self.log.lock().clone();
        let errors = errors.into_iter().map(|(at, error)| format!("event {at}: {error}")).collect();
        Dump {
            synced: true,
            objects: self.held(),
            counts: [("events".to_owned(), events)].into(),
            errors,
            reverts: Vec::new(),
        }
    }

    fn held(&self) -> Vec<Held> {
        let entry = |object: &Arc<K>| Held {
            key: format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any()),
            cluster: String::new(),
            uid: object.uid().unwrap_or_default(),
            version: object.resource_version().unwrap_or_default(),
            hash: String::new(),
            error: String::new(),
        };
        self.store.state().iter().map(entry).collect()
    }
}

impl<K: Resource + 'static> Drop for KubeRs<K>
where
    K::DynamicType: Eq + Hash + Clone,
{
    fn drop(&mut self) {
        self.task.abort();
    }
}
