//! A store that a program writes itself: client-go's `cache.Indexer`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::indexers::{IndexerConflict, Indexers};
use super::lister::Lister;
use super::posting::PartitionId;
use super::query::QueryError;
use super::reader::IndexReader;
use super::store::Store;
use informer_hub_types::{
    ApiResource, ClusterLabels, ClusterName, ClusterSelector, Dynamic, InformerHealth, InvalidKey, Labels, Object,
    ObjectKey, Origin, Phase, ResourceVersion, Scope, SharedStr, StoredObject, StoredObjectParts, Uid,
};

/// Objects of one resource, with computed indices: a cache of a program's own, or what a test of a controller puts
/// behind a [`Lister`].
///
/// Any number of threads may write and read it. Writers go one after another, each publishes its result before it
/// returns; readers never wait. Unlike what the watch of an informer does to a store, a write here always counts:
/// versions and UIDs are not compared, and nobody is notified. Writing costs time in the logarithm of the objects, as
/// well as what the index functions cost, which must not write to the indexer themselves.
pub struct Indexer<K = Dynamic> {
    store: Mutex<Store>,
    partition: PartitionId,
    cluster: ClusterName,
    reader: IndexReader<K>,
}

impl<K> Indexer<K> {
    /// An empty one, whose objects say that they are of a cluster `local`.
    #[must_use]
    pub fn new(resource: ApiResource) -> Self {
        Self::of_cluster(local(), resource)
    }

    /// An empty one, whose objects say that they are of `cluster`.
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

    /// The read half, which can be cloned and handed out.
    #[must_use]
    pub fn reader(&self) -> &IndexReader<K> {
        &self.reader
    }

    /// A lister of the objects.
    #[must_use]
    pub fn lister(&self) -> Lister<K> {
        Lister::over(self.reader.clone())
    }

    /// Puts an object at its key.
    pub fn add(&self, object: impl Into<Arc<StoredObject>>) {
        self.store.lock().put(self.partition, &object.into());
    }

    /// The same as [`Self::add`]: there need not have been an object, as with client-go's.
    pub fn update(&self, object: impl Into<Arc<StoredObject>>) {
        self.add(object);
    }

    /// Takes out what is at the object's key, whatever its state.
    pub fn delete(&self, object: &StoredObject) {
        self.store.lock().discard(self.partition, object);
    }

    /// Puts these objects in the place of all that there are, at once: no reader sees a mixture. Of a repeated key the
    /// last one counts.
    pub fn replace<O: Into<Arc<StoredObject>>>(
        &self,
        objects: impl IntoIterator<Item = O>,
        resource_version: ResourceVersion,
    ) {
        let objects = objects.into_iter().map(Into::into).collect();
        self.store.lock().replace(self.partition, objects, resource_version);
    }

    /// Does nothing, as with client-go's: a store has nobody to repeat its objects to. It is there so that what is
    /// written for a store can be used with this one.
    pub fn resync(&self) {}

    /// The version that the last write brought: an object's, also of one that was deleted, or a list's. `None` before
    /// the first. client-go's `LastStoreSyncResourceVersion`.
    #[must_use]
    pub fn resource_version(&self) -> Option<ResourceVersion> {
        self.reader.snapshot().partition(self.partition).and_then(|partition| partition.version.clone())
    }

    /// All objects, by key.
    #[must_use]
    pub fn list(&self) -> Vec<Object<K>> {
        self.reader.list()
    }

    /// All keys, sorted.
    #[must_use]
    pub fn list_keys(&self) -> Vec<ObjectKey> {
        self.reader.list_keys()
    }

    /// What is at the object's key.
    #[must_use]
    pub fn get(&self, object: &StoredObject) -> Option<Object<K>> {
        self.reader.get(&self.cluster, object.key())
    }

    /// What is at a key that is written `namespace/name`, or `name`.
    ///
    /// # Errors
    /// [`InvalidKey`] when that is no key.
    pub fn get_by_key(&self, key: &str) -> Result<Option<Object<K>>, InvalidKey> {
        self.reader.get_by_key(&self.cluster, key)
    }

    /// The objects that share a value of an index with `object`, which need not be there itself.
    ///
    /// # Errors
    /// [`QueryError::UnknownIndex`], and [`QueryError::Unindexable`] when the index's function fails for `object`.
    pub fn index(&self, index: &str, object: &StoredObject) -> Result<Vec<Object<K>>, QueryError> {
        self.reader.index(index, object)
    }

    /// The keys of the objects that have a value in an index, sorted.
    ///
    /// # Errors
    /// [`QueryError::UnknownIndex`] names what there is.
    pub fn index_keys(&self, index: &str, value: &str) -> Result<Vec<ObjectKey>, QueryError> {
        self.reader.index_keys(index, value)
    }

    /// The values that any object has in an index, sorted.
    ///
    /// # Errors
    /// [`QueryError::UnknownIndex`] names what there is; client-go's says that there is no value.
    pub fn list_index_func_values(&self, index: &str) -> Result<Vec<SharedStr>, QueryError> {
        self.reader.list_index_func_values(index)
    }

    /// The objects that have a value in an index, by key.
    ///
    /// # Errors
    /// [`QueryError::UnknownIndex`] names what there is.
    pub fn by_index(&self, index: &str, value: &str) -> Result<Vec<Object<K>>, QueryError> {
        self.reader.by_index(index, value)
    }

    /// The indices, with their functions.
    #[must_use]
    pub fn get_indexers(&self) -> Indexers {
        self.reader.snapshot().indexers()
    }

    /// Adds indices over the objects that there are and those to come.
    ///
    /// # Errors
    /// [`IndexerConflict`] when there is an index of such a name; then nothing is added.
    pub fn add_indexers(&self, indexers: Indexers) -> Result<(), IndexerConflict> {
        self.store.lock().add_indexers(indexers)
    }
}

fn local() -> ClusterName {
    ClusterName::new("local").expect("it keeps the rule of names")
}

/// A value that is not an object of Kubernetes; the caller can fix it.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// It has no JSON form.
    #[error("the value cannot be written as JSON")]
    NoJson(#[source] serde_json::Error),
    /// It has no `metadata`, or that is not of the form that Kubernetes gives it. Without details, which may quote it.
    #[error("the value has no metadata as Kubernetes objects have it")]
    NoMetadata,
    /// `metadata.name` is missing or empty.
    #[error("the value has no metadata.name")]
    NoName,
}

/// What is read of an object that a program made.
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
    /// The stored form of a value: its JSON, and what is read of its metadata.
    ///
    /// # Errors
    /// [`ObjectError`] when it has no name that it could be stored under.
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
