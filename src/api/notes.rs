//! Notes of handlers for the audit log: the clusters, resources and objects that a request has read.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use axum::http::request::Parts;
use parking_lot::Mutex;

use informer_hub_types::{ClusterName, Gvr};

/// Maximum number of clusters named in an audit event.
const MAX_CLUSTERS: usize = 32;

/// Maximum number of resources that are noted for one request: the number that one event stream may read at most.
const MAX_RESOURCES: usize = 64;

/// Notes of handlers about one request, for the audit event of the request.
#[derive(Clone, Debug, Default)]
pub(in crate::api) struct Notes(Arc<State>);

#[derive(Debug, Default)]
struct State {
    objects: AtomicU64,
    is_withheld: AtomicBool,
    read: Mutex<Read>,
}

/// Clusters, resources and object that a request has read.
#[derive(Clone, Debug, Default)]
pub(in crate::api) struct Read {
    pub(in crate::api) clusters: BTreeSet<ClusterName>,
    /// Number of clusters read beyond those in `clusters`.
    pub(in crate::api) more_clusters: usize,
    pub(in crate::api) resources: Vec<Gvr>,
    /// Namespace and name, if only one object was read.
    pub(in crate::api) object: Option<(String, String)>,
}

impl Notes {
    /// Returns the notes of a request.
    pub(in crate::api) fn of(parts: &Parts) -> Self {
        parts.extensions.get::<Self>().cloned().unwrap_or_default()
    }

    /// Sets the number of objects, rows or events that were served so far.
    pub(in crate::api) fn served(&self, objects: u64) {
        self.0.objects.store(objects, Relaxed);
    }

    /// Records that objects were hidden: the reader may not see them, and the answer is as if they did not exist.
    pub(in crate::api) fn withhold(&self) {
        self.0.is_withheld.store(true, Relaxed);
    }

    pub(in crate::api) fn is_withheld(&self) -> bool {
        self.0.is_withheld.load(Relaxed)
    }

    /// Sets the clusters that the request reads. `clusters` may contain a cluster several times.
    pub(in crate::api) fn clusters<'c>(&self, clusters: impl IntoIterator<Item = &'c ClusterName>) {
        let all: BTreeSet<_> = clusters.into_iter().collect();
        let mut read = self.0.read.lock();
        read.more_clusters = all.len().saturating_sub(MAX_CLUSTERS);
        read.clusters = all.into_iter().take(MAX_CLUSTERS).cloned().collect();
    }

    /// Adds a resource that is read.
    pub(in crate::api) fn resource(&self, gvr: &Gvr) {
        let mut read = self.0.read.lock();
        if read.resources.len() < MAX_RESOURCES {
            read.resources.push(gvr.clone());
        }
    }

    /// Sets namespace and name of the only object that is read.
    pub(in crate::api) fn object(&self, namespace: &str, name: &str) {
        self.0.read.lock().object = Some((namespace.to_owned(), name.to_owned()));
    }

    pub(in crate::api) fn objects(&self) -> u64 {
        self.0.objects.load(Relaxed)
    }

    pub(in crate::api) fn read(&self) -> Read {
        self.0.read.lock().clone()
    }
}
