//! A store that a program writes itself: client-go's `cache.Indexer`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::index_errors::IndexerConflict;
use super::indexers::Indexers;
use super::lister::Lister;
use super::posting::PartitionId;
use super::query::QueryError;
use super::reader::IndexReader;
use super::store::Store;
use informer_hub_types::{
    ApiResource, ClusterLabels, ClusterName, ClusterSelector, Dynamic, InformerHealth, InvalidKey, Labels, Object,
    ObjectKey, Origin, Phase, ResourceVersion, Scope, SharedStr, StoredObject, StoredObjectParts, Uid,
};

/// Objects of one resource with computed indices: a cache that a program fills itself, or test data behind a
/// [`Lister`].
///
/// Any number of threads may write and read. Writes are serialized, and each is published before it returns; readers
/// never wait. Unlike an informer's store, every write takes effect: versions and UIDs are not compared, and no
/// notifications are sent. A write costs logarithmic time in the number of objects, plus the time of the index
/// functions. An index function must not write to the indexer.
pub struct Indexer<K = Dynamic> {
    store: Mutex<Store>,
    partition: PartitionId,
    cluster: ClusterName,
    reader: IndexReader<K>,
}

impl<K> Indexer<K> {
    /// Creates an empty indexer, whose objects have the cluster `local`.
    #[must_use]
    pub fn new(resource: ApiResource) -> Self {
        Self::of_cluster(local(), resource)
    }

    /// Creates an empty indexer, whose objects have the given cluster.
    #[must_use]
    pub fn of_cluster(cluster: ClusterName, resource: ApiResource) -> Self {
        let mut store = Store::new(resource.clone());
        let health = InformerHealth::new();
        health.set_synced();
        health.set_phase(Phase::Watching);
        let origin =
            Origin { cluster: cluster.clone(), cluster_labels: ClusterLabels::new(), resource, scope: Scope::all() };
        let partition = store.open(Arc::new(origin), health, Vec::new());
        let reader = IndexReader::new(Arc::clone(store.published()), ClusterSelector::All);
        Self { store: Mutex::new(store), partition, cluster, reader }
    }

    /// Returns the read half, which can be cloned and shared.
    #[must_use]
    pub fn reader(&self) -> &IndexReader<K> {
        &self.reader
    }

    /// Returns a lister of the objects.
    #[must_use]
    pub fn lister(&self) -> Lister<K> {
        Lister::over(self.reader.clone())
    }

    /// Stores an object, replacing the one at its key.
    pub fn add(&self, object: impl Into<Arc<StoredObject>>) {
        self.store.lock().put(self.partition, &object.into());
    }

    /// Same as [`Self::add`]: the object need not exist, as in client-go.
    pub fn update(&self, object: impl Into<Arc<StoredObject>>) {
        self.add(object);
    }

    /// Removes the stored object with the key of the given object, even if the two differ otherwise.
    pub fn delete(&self, object: &StoredObject) {
        self.store.lock().discard(self.partition, object);
    }

    /// Replaces all objects in one step: no reader sees a mixture. Of objects with the same key, the last one is
    /// stored.
    pub fn replace<O: Into<Arc<StoredObject>>>(
        &self,
        objects: impl IntoIterator<Item = O>,
        resource_version: ResourceVersion,
    ) {
        let objects = objects.into_iter().map(Into::into).collect();
        self.store.lock().replace(self.partition, objects, resource_version);
    }

    /// Does nothing, as in client-go: there are no listeners to repeat objects to. Exists so that code for a store
    /// works with this type too.
    pub fn resync(&self) {}

    /// Returns the resource version of the last write: that of the added or deleted object, or the one given to
    /// [`Self::replace`]. `None` before the first write. Corresponds to client-go's `LastStoreSyncResourceVersion`.
    #[must_use]
    pub fn resource_version(&self) -> Option<ResourceVersion> {
        self.reader.snapshot().partition(self.partition).and_then(|partition| partition.version.clone())
    }

    /// Returns all objects, by key.
    #[must_use]
    pub fn list(&self) -> Vec<Object<K>> {
        self.reader.list()
    }

    /// Returns all keys, sorted.
    #[must_use]
    pub fn list_keys(&self) -> Vec<ObjectKey> {
        self.reader.list_keys()
    }

    /// Returns the stored object at the given object's key.
    #[must_use]
    pub fn get(&self, object: &StoredObject) -> Option<Object<K>> {
        self.reader.get(&self.cluster, object.key())
    }

    /// Returns the object at a key of the form `namespace/name` or `name`.
    ///
    /// # Errors
    /// [`InvalidKey`] if the text is not a key.
    pub fn get_by_key(&self, key: &str) -> Result<Option<Object<K>>, InvalidKey> {
        self.reader.get_by_key(&self.cluster, key)
    }

    /// Returns the objects that share an index value with `object`, which need not be stored.
    ///
    /// # Errors
    /// [`QueryError::UnknownIndex`]; [`QueryError::Unindexable`] if the index function fails for `object`.
    pub fn index(&self, index: &str, object: &StoredObject) -> Result<Vec<Object<K>>, QueryError> {
        self.reader.index(index, object)
    }

    /// Returns the sorted keys of the objects with `value` in `index`.
    ///
    /// # Errors
    /// [`QueryError::UnknownIndex`], with the known indices.
    pub fn index_keys(&self, index: &str, value: &str) -> Result<Vec<ObjectKey>, QueryError> {
        self.reader.index_keys(index, value)
    }

    /// Returns all values of an index, sorted.
    ///
    /// # Errors
    /// [`QueryError::UnknownIndex`], with the known indices; client-go returns no values instead.
    pub fn list_index_func_values(&self, index: &str) -> Result<Vec<SharedStr>, QueryError> {
        self.reader.list_index_func_values(index)
    }

    /// Returns the objects with `value` in `index`, by key.
    ///
    /// # Errors
    /// [`QueryError::UnknownIndex`], with the known indices.
    pub fn by_index(&self, index: &str, value: &str) -> Result<Vec<Object<K>>, QueryError> {
        self.reader.by_index(index, value)
    }

    /// Returns the indices with their functions.
    #[must_use]
    pub fn get_indexers(&self) -> Indexers {
        self.reader.snapshot().indexers()
    }

    /// Adds indices over present and future objects.
    ///
    /// # Errors
    /// [`IndexerConflict`] if an index has one of the names. Then nothing is added.
    pub fn add_indexers(&self, indexers: Indexers) -> Result<(), IndexerConflict> {
        self.store.lock().add_indexers(indexers)
    }
}

fn local() -> ClusterName {
    ClusterName::new("local").expect("the name is valid")
}

/// Error of a value that is not a Kubernetes object; the caller can fix it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// Serialization to JSON failed.
    #[error("cannot serialize the Kubernetes object as JSON")]
    NoJson(#[source] serde_json::Error),
    /// `metadata` is missing or malformed. The error has no details, because they may quote the value.
    #[error("the value is no Kubernetes object: its `metadata` is missing or malformed")]
    NoMetadata,
    /// `metadata.name` is missing or empty.
    #[error("the value has no metadata.name")]
    NoName,
}

/// The part of an object's JSON that is parsed to make the stored form.
#[derive(Deserialize)]
struct Head {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    labels: Option<BTreeMap<String, String>>,
}

impl<K: Serialize> Indexer<K> {
    /// Converts a value to its stored form: its JSON and its parsed metadata.
    ///
    /// # Errors
    /// [`ObjectError`] if the value has no valid metadata and name.
    pub fn object_of(value: &K) -> Result<Arc<StoredObject>, ObjectError> {
        let json = serde_json::to_vec(value).map_err(ObjectError::NoJson)?;
        let Head { metadata } = serde_json::from_slice(&json).map_err(|_| ObjectError::NoMetadata)?;
        let name = metadata.name.filter(|name| !name.is_empty()).ok_or(ObjectError::NoName)?;
        let labels = metadata.labels.unwrap_or_default().into_iter().map(|(key, value)| (key.into(), value.into()));
        Ok(Arc::new(StoredObject::new(StoredObjectParts {
            key: ObjectKey::new(&metadata.namespace.unwrap_or_default(), &name),
            uid: Uid::new(&metadata.uid.unwrap_or_default()),
            resource_version: ResourceVersion::new(&metadata.resource_version.unwrap_or_default()),
            labels: Labels::new(labels.collect()),
            index_values: Vec::new(),
            json,
        })))
    }
}

impl<K> fmt::Debug for Indexer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Indexer").field(&self.reader).finish()
    }
}
