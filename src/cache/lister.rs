//! Listers: what a controller asks a cache for, in the words of client-go's generated listers.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;

use super::query::Query;
use super::reader::IndexReader;
use super::snapshot::Snapshot;
use informer_hub_types::{ClusterName, ClusterSelector, Dynamic, LabelSelector, Object, ObjectKey};

/// No such object, as Kubernetes says it; whoever asked decides whether that is wrong.
///
/// A cache that has not synced yet says this of what it has not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{resource} {:?} not found in cluster {cluster}{}", key.name(), within(key))]
pub struct NotFound {
    /// The resource asked, as kubectl prints it.
    pub resource: String,
    /// The cluster asked.
    pub cluster: ClusterName,
    /// Namespace and name asked for.
    pub key: ObjectKey,
}

fn within(key: &ObjectKey) -> String {
    key.namespace().map(|namespace| format!(", namespace {namespace}")).unwrap_or_default()
}

/// Lists and gets objects of one resource, in all clusters or some.
///
/// Each call reads one snapshot and holds up nobody. A list by labels looks at the labels of every object of its
/// namespace (or of all): client-go's is linear too.
pub struct Lister<K = Dynamic> {
    reader: IndexReader<K>,
}

impl<K> Lister<K> {
    /// A lister of what appears in `published`, in the selected clusters.
    #[must_use]
    pub fn new(published: Arc<ArcSwap<Snapshot>>, clusters: ClusterSelector) -> Self {
        Self::over(IndexReader::new(published, clusters))
    }

    /// A lister of what a reader reads.
    #[must_use]
    pub fn over(reader: IndexReader<K>) -> Self {
        Self { reader }
    }

    /// The same, restricted to one cluster; it has nothing if that cluster was not selected before.
    #[must_use]
    pub fn cluster(&self, cluster: &ClusterName) -> Self {
        Self::over(self.reader.cluster(cluster))
    }

    /// The same, restricted to one namespace. The empty one stands for all, as everywhere in Kubernetes.
    #[must_use]
    pub fn namespace(&self, namespace: &str) -> NamespaceLister<K> {
        NamespaceLister { reader: self.reader.clone(), namespace: namespace.to_owned() }
    }

    /// Objects whose labels match, by cluster, then key.
    #[must_use]
    pub fn list(&self, labels: &LabelSelector) -> Vec<Object<K>> {
        list(&self.reader, Query::list(), labels)
    }

    /// One object. The namespace is empty for a cluster-scoped one.
    ///
    /// # Errors
    /// [`NotFound`] when the cache does not have it.
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
    /// Objects of the namespace whose labels match, by cluster, then key.
    #[must_use]
    pub fn list(&self, labels: &LabelSelector) -> Vec<Object<K>> {
        let all = self.namespace.is_empty();
        list(&self.reader, if all { Query::list() } else { Query::by_namespace(&self.namespace) }, labels)
    }

    /// One object of the namespace.
    ///
    /// # Errors
    /// [`NotFound`] when the cache does not have it.
    pub fn get(&self, cluster: &ClusterName, name: &str) -> Result<Object<K>, NotFound> {
        Lister::over(self.reader.clone()).get(cluster, &self.namespace, name)
    }
}

/// Labels are only looked at where they can make a difference.
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
