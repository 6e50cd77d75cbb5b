//! Immutable consistent state of a store, as seen by readers. Cloning it copies a few reference counts.

use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use super::applied::Outbox;
use super::history::{HistoryReader, Marks};
use super::indexers::{IndexFn, Indexers};
use super::indices::Indices;
use super::objects::Objects;
use super::posting::{Location, PartitionId, Posting, owned};
use super::restored::Restored;
use super::stage::Relist;
use informer_hub_types::{
    ApiResource, ClusterLabels, ClusterName, FieldPath, Freshness, InformerHealth, MemoryStep, Object, ObjectKey,
    Origin, ResourceVersion, SharedStr, StoredObject,
};

/// An index declared by an informer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeclaredIndex {
    /// Name of the index.
    pub name: SharedStr,
    /// Path of the field whose values are exactly the index values of each object. With a path, the index can answer
    /// queries by this field. `None` if there is no such field.
    pub path: Option<FieldPath>,
}

impl<T: Into<SharedStr>> From<T> for DeclaredIndex {
    /// Creates an index without a known path.
    fn from(name: T) -> Self {
        Self { name: name.into(), path: None }
    }
}

/// The objects of one informer.
#[derive(Clone)]
pub struct Partition {
    pub(super) origin: Arc<Origin>,
    pub(super) health: Arc<InformerHealth>,
    pub(super) indexes: Arc<[DeclaredIndex]>,
    /// Whether each object has its values in all declared indices. If indices were added, false until a list is
    /// complete.
    pub(super) is_indexed: bool,
    pub(super) objects: Objects,
    /// Total size of the kept bodies' JSON before compression, in bytes.
    pub(super) plain_bytes: u64,
    /// Whether the bodies (JSON) of new objects are dropped to save memory.
    pub(super) bare: bool,
    pub(super) version: Option<ResourceVersion>,
    /// Version up to which the partition is complete, so that a watch may resume from there; `None` if unknown.
    pub(super) resume: Option<ResourceVersion>,
    /// Resource version of the newest applied deletion; `None` once the partition is complete up to that version. While
    /// it is set, `resume` gets no new version.
    pub(super) deleted: Option<ResourceVersion>,
    /// Keys of objects whose stored version may be too great, because the cluster's versions went back (as after an
    /// etcd restore). The next event of such an object is applied even if its version is lower. Almost always empty.
    pub(super) rewound: imbl::OrdSet<ObjectKey>,
    /// Hash of the settings that the informer decodes objects with.
    pub(super) settings: u64,
    /// Hash of earlier settings, with which some objects are still decoded until a list replaces them.
    pub(super) outdated: Option<u64>,
    /// Set while stored objects may differ from the cluster's objects of equal resource version, until a list is
    /// complete. Causes: the resource or its CRD changed, or the cluster's versions went back. The value is the CRD's
    /// new generation, or zero if the CRD is not the cause.
    pub(super) converting: Option<u64>,
    /// State at the restore from disk, for readers that continue from there; `None` if it was not restored.
    pub(super) restored: Option<Arc<Restored>>,
    pub(super) synced: bool,
    pub(super) outbox: Option<Outbox>,
    /// Whether a list after the first one is running, and how its changes are published.
    pub(super) relist: Relist,
    /// Resource versions of the partition that decide from which versions its readers can resume.
    pub(super) marks: Marks,
}

impl Partition {
    /// Returns the informer that fills the partition.
    #[must_use]
    pub fn origin(&self) -> &Arc<Origin> {
        &self.origin
    }

    /// Returns whether the informer with this `health` fills the partition.
    #[must_use]
    #[doc(hidden)]
    pub fn is_of(&self, health: &Arc<InformerHealth>) -> bool {
        Arc::ptr_eq(&self.health, health)
    }

    /// Returns how current the partition is.
    #[must_use]
    pub fn freshness(&self) -> Freshness {
        self.health.freshness()
    }

    /// Returns the health of the partition's informer.
    #[must_use]
    #[doc(hidden)]
    pub fn health(&self) -> &Arc<InformerHealth> {
        &self.health
    }

    /// Returns the memory step: how much of the partition's objects is kept.
    #[must_use]
    pub fn memory(&self) -> MemoryStep {
        self.health.memory.step()
    }

    /// Returns whether the partition stores new objects without bodies. Older bodies may still be there.
    #[must_use]
    pub(crate) fn is_bare(&self) -> bool {
        self.bare
    }

    /// Returns the total bytes of the kept bodies' JSON, before compression.
    #[must_use]
    #[doc(hidden)]
    pub fn plain_bytes(&self) -> u64 {
        self.plain_bytes
    }

    /// Returns whether stored objects may differ from the cluster's objects of equal resource version. True from when
    /// the resource or its CRD changes, or the cluster's versions go back, until a list is complete.
    #[must_use]
    #[doc(hidden)]
    pub fn is_converting(&self) -> bool {
        self.converting.is_some()
    }

    /// Returns this partition for another informer, `origin`, which continues it. If that informer watches another
    /// resource, the objects must be listed and decoded again.
    pub(super) fn continue_as(self, origin: Arc<Origin>) -> Self {
        let is_other = self.origin.resource != origin.resource;
        let resume = self.resume.filter(|_| !is_other);
        let relist = if is_other { Relist::None } else { self.relist };
        Self { converting: is_other.then_some(0).or(self.converting), origin, resume, relist, ..self }
    }

    /// Stores an object. Drops its body if the partition keeps only metadata.
    pub(super) fn put(&mut self, object: &Arc<StoredObject>) {
        let object = if self.bare { Arc::new(object.without_body()) } else { Arc::clone(object) };
        self.plain_bytes += object.plain_size() as u64;
        if let Some(old) = self.objects.insert(object) {
            self.plain_bytes -= old.plain_size() as u64;
        }
    }

    /// Removes the object of a key.
    pub(super) fn discard(&mut self, key: &ObjectKey) {
        if let Some(old) = self.objects.remove(key) {
            self.plain_bytes -= old.plain_size() as u64;
        }
    }

    /// Returns the version up to which the partition is complete: a watch from there misses no change. `None` if
    /// unknown.
    #[must_use]
    pub fn resume_version(&self) -> Option<&ResourceVersion> {
        self.resume.as_ref()
    }

    /// Returns the hash of the settings that the informer decodes objects with.
    #[must_use]
    #[doc(hidden)]
    pub fn settings(&self) -> u64 {
        self.settings
    }

    /// Returns the partition's state at the restore from disk; `None` if it was not restored.
    #[must_use]
    #[doc(hidden)]
    pub fn restored(&self) -> Option<&Arc<Restored>> {
        self.restored.as_ref()
    }

    /// Returns whether the partition's first list is complete.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.synced
    }

    /// Returns the sequence number of the last batch of changes that was applied to the partition; zero before the
    /// first.
    #[must_use]
    #[doc(hidden)]
    pub fn number(&self) -> u64 {
        self.outbox.as_ref().map_or(0, |outbox| outbox.number)
    }

    /// Returns whether the partition's informer declares an index. Computed indices belong to the store: see
    /// [`Snapshot::has_index`].
    #[must_use]
    pub(crate) fn declares(&self, index: &str) -> bool {
        self.indexes.iter().any(|declared| declared.name == index)
    }

    /// Returns the names of the informer's declared indices that contain the values at `path`. Returns none while newly
    /// declared indices do not cover all objects yet.
    pub(super) fn indexes_of<'s>(&'s self, path: &'s FieldPath) -> impl Iterator<Item = &'s SharedStr> {
        let of_path = |declared: &&DeclaredIndex| declared.path.as_ref() == Some(path);
        self.indexes.iter().filter(|_| self.is_indexed).filter(of_path).map(|declared| &declared.name)
    }

    /// Returns the number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Returns whether the partition has no objects.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Returns the object at `key`.
    #[must_use]
    pub fn get(&self, key: &ObjectKey) -> Option<&Arc<StoredObject>> {
        self.objects.get(key)
    }

    /// Returns all objects, in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<StoredObject>> {
        self.objects.iter()
    }

    /// Returns the objects whose keys are greater than `key` (all objects if `None`), in the order of their keys.
    #[doc(hidden)]
    pub fn iter_after(&self, key: Option<&ObjectKey>) -> impl Iterator<Item = &Arc<StoredObject>> {
        let start = key.map_or(Bound::Unbounded, Bound::Excluded);
        self.objects.range(start, Bound::Unbounded)
    }

    /// Returns the objects of a namespace, in the order of their names. Reads a range of the objects' tree, without an
    /// index.
    pub fn in_namespace<'s>(&'s self, namespace: &'s str) -> impl Iterator<Item = &'s Arc<StoredObject>> {
        let first = ObjectKey::new(namespace, "");
        self.objects
            .range(Bound::Included(&first), Bound::Unbounded)
            .take_while(move |object| object.key().namespace() == Some(namespace))
    }

    /// Returns the heap bytes of the bodies. Visits all objects.
    #[must_use]
    #[doc(hidden)]
    pub fn body_bytes(&self) -> u64 {
        self.iter().map(|object| object.body_size() as u64).sum()
    }
}

impl fmt::Debug for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Partition").field("origin", &self.origin).field("len", &self.len()).finish_non_exhaustive()
    }
}

/// Consistent state of one resource over all clusters: objects and indices together.
#[derive(Clone)]
pub struct Snapshot {
    pub(super) resource: ApiResource,
    pub(super) partitions: imbl::OrdMap<PartitionId, Arc<Partition>>,
    /// Partitions of each cluster, in the order they were opened.
    pub(super) clusters: imbl::OrdMap<ClusterName, Arc<[PartitionId]>>,
    pub(super) indices: Indices,
    /// Clusters that should have the resource but have not answered yet, with their labels.
    pub(super) expected: imbl::OrdMap<ClusterName, ClusterLabels>,
    /// ID of the next partition. Only increases, so that the ID of a closed partition is never reused.
    pub(super) next_partition: u32,
    /// Fleet version (change number over all clusters) of the last change.
    pub(super) version: u64,
    /// Greatest resource version that the store has made up, for changes for which the apiserver sent no usable
    /// version; zero if it has made up none.
    pub(super) made_up: u64,
    /// Recent changes; `None` if the store does not record them.
    pub(super) history: Option<HistoryReader>,
}

impl Snapshot {
    pub(super) fn new(resource: ApiResource) -> Self {
        Self {
            resource,
            partitions: imbl::OrdMap::new(),
            clusters: imbl::OrdMap::new(),
            indices: Indices::default(),
            expected: imbl::OrdMap::new(),
            next_partition: 0,
            version: 0,
            made_up: 0,
            history: None,
        }
    }

    /// Returns the resource.
    #[must_use]
    pub fn resource(&self) -> &ApiResource {
        &self.resource
    }

    /// Returns all partitions, in the order they were opened.
    #[doc(hidden)]
    pub fn partitions(&self) -> impl Iterator<Item = (PartitionId, &Partition)> {
        self.partitions.iter().map(|(id, partition)| (*id, &**partition))
    }

    /// Returns the partition with this ID; `None` once it is closed.
    #[must_use]
    #[doc(hidden)]
    pub fn partition(&self, id: PartitionId) -> Option<&Partition> {
        self.partitions.get(&id).map(|partition| &**partition)
    }

    /// Returns the clusters with partitions, by name, each with its partitions in the order they were opened.
    pub(super) fn clusters(&self) -> impl Iterator<Item = (&ClusterName, &[PartitionId])> {
        self.clusters.iter().map(|(name, ids)| (name, &**ids))
    }

    /// Returns the partitions of a cluster, in the order they were opened.
    #[doc(hidden)]
    #[must_use]
    pub fn partitions_of(&self, cluster: &ClusterName) -> &[PartitionId] {
        self.clusters.get(cluster).map_or(&[], |ids| ids)
    }

    /// Returns the total number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.partitions.values().map(|partition| partition.len()).sum()
    }

    /// Returns whether there are no objects.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the locations of the objects with `value` in `index`, by partition and key.
    #[doc(hidden)]
    pub fn by_index(&self, index: &str, value: &str) -> impl Iterator<Item = Location> {
        self.indices.posting(index, value).into_iter().flat_map(Posting::iter).map(owned)
    }

    /// Returns the values of an index, unordered, each with its number of objects. client-go's `ListIndexFuncValues`.
    pub fn index_values(&self, index: &str) -> impl Iterator<Item = (&SharedStr, usize)> {
        self.indices.values(index)
    }

    /// Returns a handle to the object at a location.
    #[must_use]
    #[doc(hidden)]
    pub fn object(&self, at: &Location) -> Option<Object> {
        let partition = self.partitions.get(&at.partition)?;
        let stored = partition.get(&at.key)?;
        Some(Object::new(Arc::clone(&partition.origin), Arc::clone(stored)))
    }

    /// Returns the sorted names of all declared and computed indices.
    #[must_use]
    pub fn index_names(&self) -> Vec<SharedStr> {
        let declared = self.partitions.values().flat_map(|partition| partition.indexes.iter().map(|it| &it.name));
        let mut names: Vec<_> = declared.chain(self.indices.computed_names()).cloned().collect();
        names.sort();
        names.dedup();
        names
    }

    /// Returns whether an index covers a partition: the partition's informer declares the index, or the index is
    /// computed. Computed indices cover all objects.
    #[must_use]
    pub(crate) fn has_index(&self, partition: &Partition, index: &str) -> bool {
        self.indices.is_computed(index) || partition.declares(index)
    }

    /// Returns the computed indices. client-go's `GetIndexers`.
    #[must_use]
    #[doc(hidden)]
    pub fn indexers(&self) -> Indexers {
        self.indices.indexers()
    }

    /// Returns how often the function of a computed index failed or panicked since it was added. The counter is live,
    /// not part of the snapshot. Zero if there is no such index.
    #[must_use]
    pub fn index_failures(&self, index: &str) -> u64 {
        self.indices.failures(index)
    }

    /// Returns the name of an index that has the values at `path` and covers all objects of these partitions; `None` if
    /// there is none.
    pub(super) fn index_of<'p>(
        &self,
        path: &FieldPath,
        mut partitions: impl Iterator<Item = &'p Partition> + Clone,
    ) -> Option<SharedStr> {
        let computed = self.indices.computed_of(path);
        computed.cloned().or_else(|| {
            let first = partitions.next()?;
            let by_all = |name: &&SharedStr| partitions.clone().all(|it| it.indexes_of(path).any(|one| one == *name));
            // A computed index of the same name would take precedence.
            first.indexes_of(path).filter(|name| !self.indices.is_computed(name)).find(by_all).cloned()
        })
    }

    /// Returns the function of a computed index; `None` if there is no such index.
    pub(super) fn index_fn(&self, index: &str) -> Option<&IndexFn> {
        self.indices.function(index)
    }

    /// Returns the first partition with this or a higher ID.
    pub(super) fn partition_from(&self, id: PartitionId) -> Option<(PartitionId, &Partition)> {
        self.partitions.range(id..).next().map(|(id, partition)| (*id, &**partition))
    }

    /// Returns the clusters that should have the resource but have not answered yet, with their labels.
    #[doc(hidden)]
    pub fn expected(&self) -> impl Iterator<Item = (&ClusterName, &ClusterLabels)> {
        self.expected.iter()
    }

    pub(super) fn expect(&mut self, cluster: ClusterName, labels: Option<ClusterLabels>) {
        match labels {
            // The cluster has answered already: the mark arrived late.
            Some(_) if !self.partitions_of(&cluster).is_empty() => None,
            Some(labels) => self.expected.insert(cluster, labels),
            None => self.expected.remove(&cluster),
        };
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("resource", &self.resource.gvr)
            .field("partitions", &self.partitions.len())
            .finish_non_exhaustive()
    }
}
