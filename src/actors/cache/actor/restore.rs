//! Partitions that are restored from disk, reopened, or moved to another API version of their resource.

use std::sync::Arc;

use crate::actors::cache::actor::{CacheDirectory, Maintain, Packing, Store};
use crate::actors::cache::messages::CloseAbandoned;
use crate::actors::cache::write_half::WriteHalf;
use crate::actors::runtime::supervision::detach;
use crate::actors::subscribe::resource_request::ResourceRequest;
use crate::cache::{Partition, PartitionId, SavedPartition, Snapshot};
use informer_hub_types::{
    ApiResource, ClusterName, Gvr, InformerHealth, Origin, PackedTotals, Scope, StoredObject, View,
};

impl CacheDirectory {
    /// Starts a cache from its state on disk, before any informer runs. `plain` are the restored objects that are not
    /// compressed yet.
    pub fn insert_restored(&self, view: View, store: Store, packs: Packing, plain: &[Arc<StoredObject>]) {
        let gvr: Gvr = store.published().load().resource().gvr.clone();
        let entry = self.start(store, packs);
        entry.write_half.write(|half| add_uncompressed(half, plain));
        // Cannot fail: the mailbox is new and empty.
        let _ = entry.address.try_send(Maintain);
        self.caches.lock().insert((gvr, view), entry);
    }

    /// Returns the counters of compressed bytes of a resource's cache.
    pub(in crate::actors) fn totals(&self, resource: &ApiResource, view: &View) -> Arc<PackedTotals> {
        Arc::clone(&self.find(&mut self.caches.lock(), resource, view).totals)
    }

    /// Restores a partition from disk into a cache in use, before an informer opens it. `plain` are restored objects
    /// that are not compressed yet; objects of other partitions in it are ignored. Returns `None` if an informer has
    /// already opened the partition. Blocks.
    pub(in crate::actors) fn restore_partition(
        &self,
        view: &View,
        saved: SavedPartition,
        plain: &[Arc<StoredObject>],
    ) -> Option<(PartitionId, Partition)> {
        let resource = saved.origin.resource.clone();
        self.write_and_maintain(&resource, view, |half| {
            let id = half.store.restore(saved)?;
            let snapshot = half.store.published().load_full();
            let partition = snapshot.partition(id)?.clone();
            partition.raise_floor(None);
            let is_in = |object: &&Arc<StoredObject>| {
                partition.get(object.key()).is_some_and(|stored| Arc::ptr_eq(stored, object))
            };
            add_uncompressed(half, plain.iter().filter(is_in));
            Some((id, partition))
        })
    }

    /// Reopens a partition that was closed when its cluster was removed. `to` carries the cluster's current labels.
    /// Blocks.
    pub(in crate::actors) fn reopen(&self, partition: &Partition, to: &Arc<Origin>) -> PartitionId {
        self.write_and_maintain(&to.resource, &to.scope.view, |half| {
            let id = half.store.reopen(partition, Arc::clone(to));
            add_uncompressed(half, partition.iter().filter(|object| object.plain().is_some()));
            id
        })
    }

    fn write_and_maintain<T>(&self, resource: &ApiResource, view: &View, work: impl FnOnce(&mut WriteHalf) -> T) -> T {
        let (half, address) = {
            let mut caches = self.caches.lock();
            let entry = self.find(&mut caches, resource, view);
            (entry.write_half.clone(), entry.address.clone())
        };
        let done = half.write(work);
        // If the mailbox is full, the next batch triggers the same work.
        let _ = address.try_send(Maintain);
        done
    }

    /// Finds the restored partition (saved objects of one informer) that a request selects. Used before the cluster has
    /// resolved the request's resource name. Returns the partition's resource and health.
    ///
    /// Partitions that an informer has opened do not count. Returns `None` unless exactly one partition matches.
    pub(in crate::actors) fn restored(
        &self,
        cluster: &ClusterName,
        wanted: &ResourceRequest,
        scope: &Scope,
    ) -> Option<(ApiResource, Arc<InformerHealth>)> {
        let mut found = Vec::new();
        for ((_, view), snapshot) in self.snapshots_of_all() {
            let resource = snapshot.resource();
            let is_named = || self.checkpoints.store().is_some_and(|it| it.is_resolved_to(wanted, &resource.gvr));
            if view != scope.view || !wanted.may_be(&ResourceRequest::known(resource)) && !is_named() {
                continue;
            }
            let matches = |restored: &Arc<crate::cache::Restored>| restored.is_fresh();
            let partitions = snapshot.partitions().filter(|(_, partition)| {
                let origin = partition.origin();
                origin.cluster == *cluster && origin.scope == *scope && partition.restored().is_some_and(matches)
            });
            found
                .extend(partitions.map(|(_, partition)| (snapshot.resource().clone(), Arc::clone(partition.health()))));
        }
        if found.len() == 1 { found.pop() } else { None }
    }

    /// Returns the resources and scopes of a cluster's partitions that were restored from disk and not yet opened by an
    /// informer.
    pub(in crate::actors) fn restored_resources(&self, cluster: &ClusterName) -> Vec<(ApiResource, Scope)> {
        let is_restored = |partition: &&Partition| partition.restored().is_some_and(|restored| restored.is_fresh());
        let restored = |(_, snapshot): ((Gvr, View), Arc<Snapshot>)| {
            let partitions = snapshot.partitions_of(cluster).iter().filter_map(|id| snapshot.partition(*id));
            let scopes = partitions.filter(is_restored).map(|partition| partition.origin().scope.clone());
            scopes.map(|scope| (snapshot.resource().clone(), scope)).collect::<Vec<_>>()
        };
        self.snapshots_of_all().into_iter().flat_map(restored).collect()
    }

    /// Moves the objects of an informer from the cache of `from` to the cache of `to`, into the partition of `to`. Each
    /// informer has a health of its own, so `health` identifies its partition in the cache of `from`. Returns the ID of
    /// the partition of `to`; `None` if the informer has no partition.
    ///
    /// Readers find the objects in at least one of the two caches at any time. Blocks. The caller ensures that nothing
    /// writes to the partition meanwhile.
    pub(in crate::actors) fn move_partition(
        &self,
        from: &Origin,
        to: &Arc<Origin>,
        health: &Arc<InformerHealth>,
    ) -> Option<PartitionId> {
        let (old, new, address) = {
            let mut caches = self.caches.lock();
            let old = caches.get(&(from.resource.gvr.clone(), from.scope.view.clone()))?.write_half.clone();
            let new = self.find(&mut caches, &to.resource, &to.scope.view);
            (old, new.write_half.clone(), new.address.clone())
        };
        let snapshot = old.published().load_full();
        let (before, partition) = snapshot.partitions().find(|(_, partition)| partition.is_of(health))?;
        let moves = self.checkpoints.store().map(|store| &store.moves);
        moves.inspect(|moves| moves.lock().begin(from, to));
        let id = new.write(|half| {
            let id = half.store.adopt(partition, Arc::clone(to));
            add_uncompressed(half, partition.iter().filter(|object| object.plain().is_some()));
            id
        });
        moves.inspect(|moves| moves.lock().done(to));
        if from.resource.gvr != to.resource.gvr {
            old.write(|half| half.forget(before));
        }
        // If the mailbox is full, the next batch triggers the same work.
        let _ = address.try_send(Maintain);
        Some(id)
    }

    /// Closes a restored partition (saved objects of one informer) that no informer will open.
    pub(in crate::actors) fn forget_restored(&self, cluster: &ClusterName, resource: &ApiResource, scope: &Scope) {
        let Some(snapshot) = self.published(&resource.gvr, &scope.view) else { return };
        let matches = |origin: &Origin| origin.cluster == *cluster && origin.scope == *scope;
        if let Some((_, partition)) = snapshot.partitions().find(|(_, partition)| matches(partition.origin())) {
            let abandoned = CloseAbandoned::Origin(Arc::clone(partition.origin()));
            detach(self.of(resource, &scope.view).send(abandoned));
        }
    }
}

/// Registers objects that are not compressed yet, for the next compression round.
fn add_uncompressed<'o>(half: &mut WriteHalf, objects: impl IntoIterator<Item = &'o Arc<StoredObject>>) {
    for object in objects {
        half.uncompressed.add(Arc::clone(object));
    }
    half.publish_size();
}
