//! One consistent state of a store: what readers see. Cloning it costs a few reference counts.

use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use super::indexers::{IndexFn, Indexers};
use super::indices::Indices;
use super::objects::Objects;
use super::posting::{Location, PartitionId, Posting, owned};
use super::restore::Restored;
use super::stage::Relist;
use super::store::Applied;
use informer_hub_types::{
    ApiResource, ClusterLabels, ClusterName, FieldPath, Freshness, InformerHealth, MemoryStep, Object, ObjectKey,
    Origin, ResourceVersion, SharedStr, StoredObject,
};

/// What the last batch of a partition did.
#[derive(Clone, Debug)]
pub struct Outbox {
    /// The batch's number within its partition, from 1.
    pub number: u64,
    /// What it did, in order.
    pub applied: Arc<[Applied]>,
}

/// An index that an informer declares.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeclaredIndex {
    /// Its name.
    pub name: SharedStr,
    /// The path whose scalars it has as values, where the objects' bytes have the same at that path: a condition on the
    /// path is then answered from the index.
    pub path: Option<FieldPath>,
}

impl<T: Into<SharedStr>> From<T> for DeclaredIndex {
    /// One of which nothing but the name is known.
    fn from(name: T) -> Self {
        Self { name: name.into(), path: None }
    }
}

/// The objects of one informer.
#[derive(Clone)]
pub struct Partition {
    origin: Arc<Origin>,
    health: Arc<InformerHealth>,
    indexes: Arc<[DeclaredIndex]>,
    /// Whether each object has its values in all of them: not until a list is complete, where they were declared late.
    pub(super) is_indexed: bool,
    pub(super) objects: Objects,
    /// Bytes of the JSON of all bodies.
    pub(super) plain_bytes: u64,
    /// Whether bodies of new objects are left out.
    pub(super) bare: bool,
    pub(super) version: Option<ResourceVersion>,
    /// Up to which version it is complete, so that a watch may go on from there.
    pub(super) resume: Option<ResourceVersion>,
    /// What tells how its informer takes objects in from how an earlier one did.
    pub(super) settings: u64,
    /// How its objects were taken in that a list has yet to exchange, where that is another way.
    pub(super) outdated: Option<u64>,
    /// The informer that read its objects in another version of the resource, or as another kind; until a list is complete.
    pub(super) converted_from: Option<Arc<Origin>>,
    /// What it was when it came from disk, for who goes on from there.
    pub(super) restored: Option<Arc<Restored>>,
    pub(super) synced: bool,
    pub(super) outbox: Option<Outbox>,
    /// How far a list that is not the first has come to readers.
    pub(super) relist: Relist,
}

impl Partition {
    /// The informer that fills it.
    #[must_use]
    pub fn origin(&self) -> &Arc<Origin> {
        &self.origin
    }

    /// Whether it is filled by the informer that shows `health`.
    #[must_use]
    pub fn is_of(&self, health: &Arc<InformerHealth>) -> bool {
        Arc::ptr_eq(&self.health, health)
    }

    /// How far it can be trusted now.
    #[must_use]
    pub fn freshness(&self) -> Freshness {
        self.health.freshness()
    }

    /// What its informer shows of itself.
    #[must_use]
    pub fn health(&self) -> &Arc<InformerHealth> {
        &self.health
    }

    /// How much is kept of its objects.
    #[must_use]
    pub fn memory(&self) -> MemoryStep {
        self.health.memory.step()
    }

    /// Whether it takes in heads alone. Bodies that it had may still be there.
    #[must_use]
    pub fn is_bare(&self) -> bool {
        self.bare
    }

    /// Bytes of the JSON of all bodies that are kept, before any compression.
    #[must_use]
    pub fn plain_bytes(&self) -> u64 {
        self.plain_bytes
    }

    /// The same, for what its informer has become. Where that is another resource, its objects are to be read anew.
    fn go_on_as(self, origin: Arc<Origin>) -> Self {
        let is_other = (self.origin.resource != origin.resource).then(|| Arc::clone(&self.origin));
        let resume = self.resume.filter(|_| is_other.is_none());
        let relist = if is_other.is_some() { Relist::None } else { self.relist };
        Self { converted_from: is_other.or(self.converted_from), origin, resume, relist, ..self }
    }

    /// Puts an object at its key, without its body where none are kept.
    pub(super) fn put(&mut self, object: &Arc<StoredObject>) {
        let object = if self.bare { Arc::new(object.without_body()) } else { Arc::clone(object) };
        self.plain_bytes += object.plain_size() as u64;
        if let Some(old) = self.objects.insert(object) {
            self.plain_bytes -= old.plain_size() as u64;
        }
    }

    /// Empties a key.
    pub(super) fn discard(&mut self, key: &ObjectKey) {
        if let Some(old) = self.objects.remove(key) {
            self.plain_bytes -= old.plain_size() as u64;
        }
    }

    /// Up to which version it is complete: a watch from there misses nothing. `None` where that cannot be told.
    #[must_use]
    pub fn resume_version(&self) -> Option<&ResourceVersion> {
        self.resume.as_ref()
    }

    /// What tells how its informer takes objects in from how an earlier one did.
    #[must_use]
    pub fn settings(&self) -> u64 {
        self.settings
    }

    /// What it was when it came from disk, where it did.
    #[must_use]
    pub fn restored(&self) -> Option<&Arc<Restored>> {
        self.restored.as_ref()
    }

    /// Whether its first list is complete.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.synced
    }

    /// The number of its last batch; zero before the first.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.outbox.as_ref().map_or(0, |outbox| outbox.number)
    }

    /// Whether its informer declares an index. Computed ones are the store's: see [`Snapshot::has_index`].
    #[must_use]
    pub fn declares(&self, index: &str) -> bool {
        self.indexes.iter().any(|declared| declared.name == index)
    }

    /// Names of the declared indices that have what is at a path.
    pub(super) fn indexes_of<'s>(&'s self, path: &'s FieldPath) -> impl Iterator<Item = &'s SharedStr> {
        let of_path = |declared: &&DeclaredIndex| declared.path.as_ref() == Some(path);
        self.indexes.iter().filter(|_| self.is_indexed).filter(of_path).map(|declared| &declared.name)
    }

    /// How many objects it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// The object at `key`.
    #[must_use]
    pub fn get(&self, key: &ObjectKey) -> Option<&Arc<StoredObject>> {
        self.objects.get(key)
    }

    /// All objects, by key.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<StoredObject>> {
        self.objects.iter()
    }

    /// The objects after `key` (from the first, when `None`), by key.
    pub fn iter_after(&self, key: Option<&ObjectKey>) -> impl Iterator<Item = &Arc<StoredObject>> {
        let start = key.map_or(Bound::Unbounded, Bound::Excluded);
        self.objects.range(start, Bound::Unbounded)
    }

    /// The objects of one namespace, by name: a range of the tree, no index needed.
    pub fn in_namespace<'s>(&'s self, namespace: &'s str) -> impl Iterator<Item = &'s Arc<StoredObject>> {
        let first = ObjectKey::new(namespace, "");
        self.objects
            .range(Bound::Included(&first), Bound::Unbounded)
            .take_while(move |object| object.key().namespace() == Some(namespace))
    }

    /// Bytes that the bodies take on the heap. Walks all objects.
    #[must_use]
    pub fn body_bytes(&self) -> u64 {
        self.iter().map(|object| object.body_size() as u64).sum()
    }
}

impl fmt::Debug for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Partition").field("origin", &self.origin).field("len", &self.len()).finish_non_exhaustive()
    }
}

/// One consistent state of one resource over all clusters: objects and indices together.
#[derive(Clone)]
pub struct Snapshot {
    resource: ApiResource,
    partitions: imbl::OrdMap<PartitionId, Arc<Partition>>,
    /// The partitions of each cluster, in the order in which they were opened.
    clusters: imbl::OrdMap<ClusterName, Arc<[PartitionId]>>,
    pub(super) indices: Indices,
    /// Clusters that should have the resource and could not be asked yet.
    expected: imbl::OrdMap<ClusterName, ClusterLabels>,
    /// Never counts back, so that whoever still holds the number of a closed partition reaches no other one.
    next_partition: u32,
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
        }
    }

    /// The resource.
    #[must_use]
    pub fn resource(&self) -> &ApiResource {
        &self.resource
    }

    /// All partitions, in the order in which they were opened.
    pub fn partitions(&self) -> impl Iterator<Item = (PartitionId, &Partition)> {
        self.partitions.iter().map(|(id, partition)| (*id, &**partition))
    }

    /// The partitions from this one, or where it would be.
    pub(super) fn partitions_from(&self, id: PartitionId) -> impl Iterator<Item = (PartitionId, &Partition)> {
        self.partitions.range(id..).map(|(id, partition)| (*id, &**partition))
    }

    /// One partition.
    #[must_use]
    pub fn partition(&self, id: PartitionId) -> Option<&Partition> {
        self.partitions.get(&id).map(|partition| &**partition)
    }

    /// The clusters that have a partition, by name, each with its partitions in the order in which they were opened.
    pub(super) fn clusters(&self) -> impl Iterator<Item = (&ClusterName, &[PartitionId])> {
        self.clusters.iter().map(|(name, ids)| (name, &**ids))
    }

    /// The partitions of one cluster, in the order in which they were opened.
    pub(super) fn partitions_of(&self, cluster: &ClusterName) -> &[PartitionId] {
        self.clusters.get(cluster).map_or(&[], |ids| ids)
    }

    /// How many objects there are in all.
    #[must_use]
    pub fn len(&self) -> usize {
        self.partitions.values().map(|partition| partition.len()).sum()
    }

    /// Whether there is no object.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The locations of the objects that carry a value in an index, by partition and key.
    pub fn by_index(&self, index: &str, value: &str) -> impl Iterator<Item = Location> {
        self.indices.posting(index, value).into_iter().flat_map(Posting::iter).map(owned)
    }

    /// The values of an index, in no order, each with how many objects carry it. client-go's
    /// `ListIndexFuncValues`.
    pub fn index_values(&self, index: &str) -> impl Iterator<Item = (&SharedStr, usize)> {
        self.indices.values(index)
    }

    /// A handle to the object at a location.
    #[must_use]
    pub fn object(&self, at: &Location) -> Option<Object> {
        let partition = self.partitions.get(&at.partition)?;
        let stored = partition.get(&at.key)?;
        Some(Object::new(Arc::clone(&partition.origin), Arc::clone(stored)))
    }

    /// Names of all indices, sorted: those that any informer declares, and the computed ones.
    #[must_use]
    pub fn index_names(&self) -> Vec<SharedStr> {
        let declared = self.partitions.values().flat_map(|partition| partition.indexes.iter().map(|it| &it.name));
        let mut names: Vec<_> = declared.chain(self.indices.computed_names()).cloned().collect();
        names.sort();
        names.dedup();
        names
    }

    /// Whether a partition has something to say about an index: its informer declares it, or it is a computed one,
    /// which is over every object.
    #[must_use]
    pub fn has_index(&self, partition: &Partition, index: &str) -> bool {
        self.indices.is_computed(index) || partition.declares(index)
    }

    /// The computed indices. client-go's `GetIndexers`.
    #[must_use]
    pub fn indexers(&self) -> Indexers {
        self.indices.indexers()
    }

    /// For how many states of objects the function of a computed index failed or panicked since it was added. Counts
    /// on after the snapshot was taken; zero where there is no such index.
    #[must_use]
    pub fn index_failures(&self, index: &str) -> u64 {
        self.indices.failures(index)
    }

    /// The name of an index, over all objects of these partitions, that has what is at a path.
    pub(super) fn index_of<'p>(
        &self,
        path: &FieldPath,
        mut partitions: impl Iterator<Item = &'p Partition> + Clone,
    ) -> Option<SharedStr> {
        let computed = self.indices.computed_of(path);
        computed.cloned().or_else(|| {
            let first = partitions.next()?;
            let by_all = |name: &&SharedStr| partitions.clone().all(|it| it.indexes_of(path).any(|one| one == *name));
            // A computed one of that name would count.
            first.indexes_of(path).filter(|name| !self.indices.is_computed(name)).find(by_all).cloned()
        })
    }

    /// The function of a computed index.
    pub(super) fn index_fn(&self, index: &str) -> Option<&IndexFn> {
        self.indices.function(index)
    }

    /// The first partition from a number on.
    pub(super) fn partition_from(&self, id: PartitionId) -> Option<(PartitionId, &Partition)> {
        self.partitions.range(id..).next().map(|(id, partition)| (*id, &**partition))
    }

    /// Clusters that should have the resource and could not be asked yet, with their labels.
    pub fn expected(&self) -> impl Iterator<Item = (&ClusterName, &ClusterLabels)> {
        self.expected.iter()
    }

    pub(super) fn expect(&mut self, cluster: ClusterName, labels: Option<ClusterLabels>) {
        match labels {
            Some(labels) => self.expected.insert(cluster, labels),
            None => self.expected.remove(&cluster),
        };
    }

    pub(super) fn fresh_id(&mut self) -> PartitionId {
        let id = PartitionId(self.next_partition);
        self.next_partition += 1;
        id
    }

    pub(super) fn open(
        &mut self,
        id: PartitionId,
        origin: Arc<Origin>,
        health: Arc<InformerHealth>,
        indexes: Vec<DeclaredIndex>,
    ) {
        self.expected.remove(&origin.cluster);
        let known = self.partitions.remove(&id).map(Arc::unwrap_or_clone);
        if known.is_none() {
            let ids = self.partitions_of(&origin.cluster).iter().copied().chain([id]).collect();
            self.clusters.insert(origin.cluster.clone(), ids);
        }
        let partition = match known {
            Some(known) => {
                if !Arc::ptr_eq(&known.health, &health) {
                    health.continue_from(&known.health);
                }
                let is_indexed = known.is_empty() || (known.is_indexed && *known.indexes == *indexes);
                Partition { origin, health, indexes: indexes.into(), is_indexed, ..known }
            }
            None => Partition {
                origin,
                health,
                indexes: indexes.into(),
                is_indexed: true,
                objects: Objects::default(),
                plain_bytes: 0,
                bare: false,
                version: None,
                resume: None,
                settings: 0,
                outdated: None,
                converted_from: None,
                restored: None,
                synced: false,
                outbox: None,
                relist: Relist::None,
            },
        };
        self.partitions.insert(id, Arc::new(partition));
    }

    /// Takes over a partition of another snapshot, for the informer that goes on with it.
    pub(super) fn adopt(&mut self, id: PartitionId, partition: Partition, origin: Arc<Origin>) {
        self.open(id, Arc::clone(&origin), Arc::clone(&partition.health), Vec::new());
        self.partitions.insert(id, Arc::new(partition.go_on_as(origin)));
    }

    /// Has a partition be that of another resource under the same name, or of a cluster that has other labels now.
    pub(super) fn relabel(&mut self, id: PartitionId, origin: Arc<Origin>) {
        let Some(partition) = self.partitions.remove(&id).map(Arc::unwrap_or_clone) else { return };
        if self.partitions.is_empty() {
            self.resource = origin.resource.clone();
        }
        self.partitions.insert(id, Arc::new(partition.go_on_as(origin)));
    }

    pub(super) fn close(&mut self, id: PartitionId) {
        let Some(partition) = self.partitions.remove(&id) else { return };
        let cluster = &partition.origin.cluster;
        let others: Arc<[_]> = self.partitions_of(cluster).iter().copied().filter(|other| *other != id).collect();
        if others.is_empty() {
            self.clusters.remove(cluster);
        } else {
            self.clusters.insert(cluster.clone(), others);
        }
        for object in partition.iter() {
            self.indices.remove(id, object);
        }
    }

    /// Takes a partition out for writing, so that its tree is not copied for the snapshot in the making.
    pub(super) fn take(&mut self, id: PartitionId) -> Option<Partition> {
        self.partitions.remove(&id).map(Arc::unwrap_or_clone)
    }

    pub(super) fn put(&mut self, id: PartitionId, partition: Partition) {
        self.partitions.insert(id, Arc::new(partition));
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
