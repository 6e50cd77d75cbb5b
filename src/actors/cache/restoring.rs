//! Caches that come from disk.

use std::sync::Arc;

use super::{Attend, CacheDirectory, Packing, Store};
use crate::actors::messages::{CloseAbandoned, Wanted};
use crate::actors::supervision::detach;
use crate::cache::PartitionId;
use crate::types::{ApiResource, ClusterName, Gvr, InformerHealth, Origin, Scope, StoredObject, View};

impl CacheDirectory {
    /// Begins with a cache as it was on disk, before anybody asks for it; `plain` are those of its objects that are yet to
    /// be compressed.
    pub fn begin_with(&self, view: View, store: Store, packs: Packing, plain: Vec<Arc<StoredObject>>) {
        let gvr: Gvr = store.published().load().resource().gvr.clone();
        let entry = self.start(store, packs);
        entry.write_half.write(|half| {
            for object in plain {
                half.young.add(object);
            }
            half.measure();
        });
        // It has just been made, so that there is room in its mailbox.
        let _ = entry.address.try_send(Attend);
        self.caches.lock().insert((gvr, view), entry);
    }

    /// What came from disk for a want that has not been looked up, and that nobody has opened yet: as long as it is one.
    pub(in crate::actors) fn restored(
        &self,
        cluster: &ClusterName,
        wanted: &Wanted,
        scope: &Scope,
    ) -> Option<(ApiResource, Arc<InformerHealth>)> {
        let mut found = Vec::new();
        for ((_, view), snapshot) in self.snapshots_of_all() {
            let resource = snapshot.resource();
            let is_named = || self.checkpoints.keeping().is_some_and(|it| it.name_means(wanted, &resource.gvr));
            if view != scope.view || !wanted.may_be(&Wanted::known(resource)) && !is_named() {
                continue;
            }
            let is_it = |restored: &Arc<crate::cache::Restored>| restored.is_fresh();
            let partitions = snapshot.partitions().filter(|(_, partition)| {
                let origin = partition.origin();
                origin.cluster == *cluster && origin.scope == *scope && partition.restored().is_some_and(is_it)
            });
            found
                .extend(partitions.map(|(_, partition)| (snapshot.resource().clone(), Arc::clone(partition.health()))));
        }
        if found.len() == 1 { found.pop() } else { None }
    }

    /// Has the objects of the informer that shows `health` be those of what it has become, in whose cache they are then: readers find them in one of the
    /// two at any time. `None` where there are none. For a thread that may block, while nobody writes to them.
    pub(in crate::actors) fn go_on_as(
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
        let moves = self.checkpoints.keeping().map(|keeping| &keeping.moves);
        moves.inspect(|moves| moves.lock().begin(from, to));
        let id = new.write(|half| {
            let id = half.store.adopt(partition, Arc::clone(to));
            for object in partition.iter().filter(|object| object.plain().is_some()) {
                half.young.add(Arc::clone(object));
            }
            half.measure();
            id
        });
        moves.inspect(|moves| moves.lock().done(to));
        if from.resource.gvr != to.resource.gvr {
            old.write(|half| half.forget(before));
        }
        // Where its mailbox is full, the next batch has it attend.
        let _ = address.try_send(Attend);
        Some(id)
    }

    /// Forgets what came from disk and nobody will open.
    pub(in crate::actors) fn forget_restored(&self, cluster: &ClusterName, resource: &ApiResource, scope: &Scope) {
        let Some(snapshot) = self.published(&resource.gvr, &scope.view) else { return };
        let is_it = |origin: &Origin| origin.cluster == *cluster && origin.scope == *scope;
        if let Some((_, partition)) = snapshot.partitions().find(|(_, partition)| is_it(partition.origin())) {
            let abandoned = CloseAbandoned::Origin(Arc::clone(partition.origin()));
            detach(self.of(resource, &scope.view).send(abandoned));
        }
    }
}
