//! The read half of a store, with the methods of client-go's `Indexer`.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use arc_swap::ArcSwap;

use super::query::{Query, QueryError};
use super::snapshot::{Partition, Snapshot};
use informer_hub_types::{
    ClusterName, ClusterSelector, Dynamic, FieldPath, InvalidKey, Object, ObjectKey, Origin, Scope, SharedStr,
    StoredObject,
};

/// Reads the last published state of a store, in all or some clusters.
///
/// Cheap to clone and to send. Each call reads one snapshot, takes no lock and never waits for a writer. For several
/// answers about one state, use [`Self::snapshot`]. The cost of a call grows with its result and with the number of the
/// resource's informers. Objects are ordered by cluster, then key. If several informers of one cluster watch the same
/// object, it is returned once, in its newest state.
pub struct IndexReader<K = Dynamic> {
    published: Arc<ArcSwap<Snapshot>>,
    clusters: ClusterSelector,
    /// The only cluster to read from; `None` for all selected clusters.
    only: Option<ClusterName>,
    /// Scope of the informers whose objects are read; `None` for informers of any scope.
    scope: Option<Scope>,
    kind: PhantomData<fn() -> K>,
}

impl<K> IndexReader<K> {
    /// Creates a reader of a published store, in the selected clusters.
    #[must_use]
    pub fn new(published: Arc<ArcSwap<Snapshot>>, clusters: ClusterSelector) -> Self {
        Self { published, clusters, only: None, scope: None, kind: PhantomData }
    }

    /// Returns a reader of this one cluster. The reader finds nothing if the cluster is not selected.
    #[must_use]
    pub fn cluster(&self, cluster: &ClusterName) -> Self {
        let selected = self.only.as_ref().is_none_or(|only| only == cluster);
        let clusters = if selected { self.clusters.clone() } else { ClusterSelector::Names(Vec::new()) };
        let (published, scope) = (Arc::clone(&self.published), self.scope.clone());
        Self { only: Some(cluster.clone()), scope, ..Self::new(published, clusters) }
    }

    /// Restricts the reader to informers of exactly this scope. Objects that only informers of other scopes watch are
    /// then invisible, for example to a subscriber of one namespace.
    #[must_use]
    pub fn of_informers(self, scope: Scope) -> Self {
        Self { scope: Some(scope), ..self }
    }

    /// Returns the last published snapshot, of all clusters.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.published.load_full()
    }

    /// Returns all objects.
    #[must_use]
    pub fn list(&self) -> Vec<Object<K>> {
        self.find(Query::list()).unwrap_or_default()
    }

    /// Returns the sorted keys of all objects. A key in several clusters is returned once.
    #[must_use]
    pub fn list_keys(&self) -> Vec<ObjectKey> {
        keys(&self.list())
    }

    /// Returns the object of a cluster at a key.
    #[must_use]
    pub fn get(&self, cluster: &ClusterName, key: &ObjectKey) -> Option<Object<K>> {
        self.published.load().get_of(cluster, key, |origin| self.selects(origin)).map(Object::cast)
    }

    /// Returns the object of a cluster at a key of the form `namespace/name` or `name`.
    ///
    /// # Errors
    /// [`InvalidKey`] if the text is not a key.
    pub fn get_by_key(&self, cluster: &ClusterName, key: &str) -> Result<Option<Object<K>>, InvalidKey> {
        Ok(self.get(cluster, &key.parse()?))
    }

    /// Returns the objects that share an index value with `object`, which need not be stored. If the index has a
    /// function, that function computes the values of `object`. Otherwise the values are those that `object` contains
    /// for the index.
    ///
    /// # Errors
    /// [`QueryError::UnknownIndex`]; [`QueryError::Unindexable`] if the index function fails for `object`.
    pub fn index(&self, index: &str, object: &StoredObject) -> Result<Vec<Object<K>>, QueryError> {
        let snapshot = self.snapshot();
        let values = snapshot.values_for(index, object)?;
        let mut found = Vec::new();
        for value in &values {
            found.extend(self.by_index_in(&snapshot, index, value)?);
        }
        if values.len() > 1 {
            found.sort_by(|a, b| (a.cluster(), a.key()).cmp(&(b.cluster(), b.key())));
            found.dedup_by(|a, b| (a.cluster(), a.key()) == (b.cluster(), b.key()));
        }
        Ok(found)
    }

    /// Returns the sorted keys of the objects with `value` in `index`. A key in several clusters is returned once.
    ///
    /// # Errors
    /// [`QueryError::UnknownIndex`], with the known indices.
    pub fn index_keys(&self, index: &str, value: &str) -> Result<Vec<ObjectKey>, QueryError> {
        Ok(keys(&self.by_index(index, value)?))
    }

    /// Returns all values of an index, sorted. If several informers of a cluster watch the same object, the result may
    /// include a value that only an older copy of the object has.
    ///
    /// # Errors
    /// [`QueryError::UnknownIndex`], with the known indices.
    pub fn list_index_func_values(&self, index: &str) -> Result<Vec<SharedStr>, QueryError> {
        let snapshot = self.snapshot();
        snapshot.check_index(index)?;
        let everywhere = self.only.is_none() && self.scope.is_none() && self.clusters == ClusterSelector::All;
        let mut values: Vec<_> = if everywhere {
            snapshot.index_values(index).map(|(value, _)| value.clone()).collect()
        } else {
            let origins = snapshot.partitions().map(|(id, partition)| (id, partition.origin()));
            let selected = origins.filter(|(_, origin)| self.selects(origin));
            let selected: Vec<_> = selected.map(|(id, _)| id).collect();
            snapshot.indices.values_in(index, &selected).cloned().collect()
        };
        values.sort_unstable();
        Ok(values)
    }

    /// Returns the objects with `value` in `index`.
    ///
    /// # Errors
    /// [`QueryError::UnknownIndex`], with the known indices.
    pub fn by_index(&self, index: &str, value: &str) -> Result<Vec<Object<K>>, QueryError> {
        self.by_index_in(&self.published.load(), index, value)
    }

    fn by_index_in(&self, snapshot: &Snapshot, index: &str, value: &str) -> Result<Vec<Object<K>>, QueryError> {
        let found = snapshot.find_by_index_of(index, value, |origin| self.selects(origin))?;
        Ok(found.into_iter().map(Object::cast).collect())
    }

    /// Answers a query from the last published snapshot, and returns the objects of the answer.
    pub(super) fn find(&self, query: Query) -> Result<Vec<Object<K>>, QueryError> {
        self.find_in(&self.snapshot(), query)
    }

    fn find_in(&self, snapshot: &Snapshot, query: Query) -> Result<Vec<Object<K>>, QueryError> {
        let clusters = match &self.only {
            None => self.clusters.clone(),
            Some(only) => {
                // A selector may test the cluster's labels, which are known from its informers.
                let origins = snapshot.partitions().map(|(_, partition)| partition.origin());
                let is_selected = origins
                    .filter(|origin| origin.cluster == *only)
                    .any(|origin| self.clusters.matches(&origin.cluster, &origin.cluster_labels));
                ClusterSelector::Names(is_selected.then(|| only.clone()).into_iter().collect())
            }
        };
        let query = query.in_clusters(clusters);
        let query = self.scope.iter().fold(query, |query, scope| query.of_informers(scope.clone()));
        Ok(snapshot.answer(&query)?.cast().items)
    }

    fn selects(&self, origin: &Origin) -> bool {
        self.only.as_ref().is_none_or(|only| *only == origin.cluster)
            && self.scope.as_ref().is_none_or(|scope| *scope == origin.scope)
            && self.clusters.matches(&origin.cluster, &origin.cluster_labels)
    }
}

impl Snapshot {
    /// Returns whether any index has the values at `path`: a computed index, or an index that an informer declares and
    /// that already has all objects of the informer.
    #[doc(hidden)]
    #[must_use]
    pub fn has_index_of(&self, path: &FieldPath) -> bool {
        let declares = |partition: &Partition| partition.indexes_of(path).next().is_some();
        self.indices.computed_of(path).is_some() || self.partitions().any(|(_, partition)| declares(partition))
    }

    /// Returns the index values of an object, which need not be stored; may contain duplicates.
    fn values_for(&self, index: &str, object: &StoredObject) -> Result<Vec<SharedStr>, QueryError> {
        self.check_index(index)?;
        if let Some(function) = self.index_fn(index) {
            let because =
                |source| QueryError::Unindexable { index: index.to_owned(), key: object.key().clone(), source };
            return function.values(object).map_err(because);
        }
        let entries = object.index_values().iter().filter(|entry| entry.index == index);
        Ok(entries.map(|entry| entry.value.clone()).collect())
    }
}

fn keys<K>(objects: &[Object<K>]) -> Vec<ObjectKey> {
    let mut keys: Vec<_> = objects.iter().map(|object| object.key().clone()).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

impl<K> Clone for IndexReader<K> {
    fn clone(&self) -> Self {
        let Self { published, clusters, only, scope, kind } = self;
        let published = Arc::clone(published);
        Self { published, clusters: clusters.clone(), only: only.clone(), scope: scope.clone(), kind: *kind }
    }
}

impl<K> fmt::Debug for IndexReader<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let resource = self.published.load().resource().gvr.to_string();
        f.debug_struct("IndexReader")
            .field("resource", &resource)
            .field("clusters", &self.clusters)
            .field("scope", &self.scope)
            .field("only", &self.only)
            .finish()
    }
}
