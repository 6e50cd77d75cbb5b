//! Listers: read access to a cache, with methods like those of client-go's generated listers.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;

use super::query::Query;
use super::reader::IndexReader;
use super::snapshot::Snapshot;
use informer_hub_types::{ClusterName, ClusterSelector, Dynamic, LabelSelector, Object, ObjectKey};

/// Error for a missing object, in the words of Kubernetes; the caller decides whether it is a fault.
///
/// Also returned for objects that an unsynced cache has not read yet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{resource} {:?} not found in cluster {cluster}{}", key.name(), within(key))]
pub struct NotFound {
    /// The resource, as kubectl prints it.
    pub resource: String,
    /// The cluster.
    pub cluster: ClusterName,
    /// Namespace and name.
    pub key: ObjectKey,
}

fn within(key: &ObjectKey) -> String {
    key.namespace().map(|namespace| format!(", namespace {namespace}")).unwrap_or_default()
}

/// Lists and gets objects of one resource, in all or some clusters.
///
/// Each call reads one snapshot and blocks no other thread. A list by labels tests every object of the namespace (or of
/// all namespaces), as in client-go.
pub struct Lister<K = Dynamic> {
    reader: IndexReader<K>,
}

impl<K> Lister<K> {
    /// Creates a lister of a published store, in the selected clusters.
    #[must_use]
    pub fn new(published: Arc<ArcSwap<Snapshot>>, clusters: ClusterSelector) -> Self {
        Self::over(IndexReader::new(published, clusters))
    }

    /// Creates a lister of the objects that `reader` can read.
    #[must_use]
    pub fn over(reader: IndexReader<K>) -> Self {
        Self { reader }
    }

    /// Restricts the lister to one cluster. It is empty if that cluster is not selected.
    #[must_use]
    pub fn cluster(&self, cluster: &ClusterName) -> Self {
        Self::over(self.reader.cluster(cluster))
    }

    /// Restricts the lister to one namespace. An empty text means all namespaces, as everywhere in Kubernetes.
    #[must_use]
    pub fn namespace(&self, namespace: &str) -> NamespaceLister<K> {
        NamespaceLister { reader: self.reader.clone(), namespace: namespace.to_owned() }
    }

    /// Returns the objects with matching labels, by cluster, then key.
    #[must_use]
    pub fn list(&self, labels: &LabelSelector) -> Vec<Object<K>> {
        list(&self.reader, Query::list(), labels)
    }

    /// Returns one object. For a cluster-scoped object, `namespace` is empty.
    ///
    /// # Errors
    /// [`NotFound`] if the cache does not have it.
    pub fn get(&self, cluster: &ClusterName, namespace: &str, name: &str) -> Result<Object<K>, NotFound> {
        let key = ObjectKey::new(namespace, name);
        self.reader.get(cluster, &key).ok_or_else(|| {
            let resource = self.reader.snapshot().resource().gvr.to_string();
            NotFound { resource, cluster: cluster.clone(), key }
        })
    }
}

/// A [`Lister`] of one namespace.
pub struct NamespaceLister<K = Dynamic> {
    reader: IndexReader<K>,
    namespace: String,
}

impl<K> NamespaceLister<K> {
    /// Returns the objects of the namespace with matching labels, by cluster, then key.
    #[must_use]
    pub fn list(&self, labels: &LabelSelector) -> Vec<Object<K>> {
        let all = self.namespace.is_empty();
        list(&self.reader, if all { Query::list() } else { Query::by_namespace(&self.namespace) }, labels)
    }

    /// Returns one object of the namespace.
    ///
    /// # Errors
    /// [`NotFound`] if the cache does not have it.
    pub fn get(&self, cluster: &ClusterName, name: &str) -> Result<Object<K>, NotFound> {
        Lister::over(self.reader.clone()).get(cluster, &self.namespace, name)
    }
}

/// Returns the objects that `query` and `labels` select; empty if the query fails. Labels are tested only if `labels`
/// can exclude objects.
fn list<K>(reader: &IndexReader<K>, query: Query, labels: &LabelSelector) -> Vec<Object<K>> {
    if labels.matches_nothing() {
        return Vec::new();
    }
    let query = if labels.is_empty() { query } else { query.with_labels(labels.clone()) };
    reader.find(query).unwrap_or_default()
}

impl<K> Clone for Lister<K> {
    fn clone(&self) -> Self {
        Self::over(self.reader.clone())
    }
}

impl<K> Clone for NamespaceLister<K> {
    fn clone(&self) -> Self {
        Self { reader: self.reader.clone(), namespace: self.namespace.clone() }
    }
}

impl<K> fmt::Debug for Lister<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lister").field(&self.reader).finish()
    }
}

impl<K> fmt::Debug for NamespaceLister<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NamespaceLister").field(&self.reader).field(&self.namespace).finish()
    }
}
