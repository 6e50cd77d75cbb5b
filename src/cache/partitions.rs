//! Partitions of a snapshot: opened, moved to another resource, closed.

use std::sync::Arc;

use super::history::Marks;
use super::objects::Objects;
use super::posting::PartitionId;
use super::snapshot::{DeclaredIndex, Partition, Snapshot};
use super::stage::Relist;
use informer_hub_types::{InformerHealth, Origin};

impl Snapshot {
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
        indexes: Arc<[DeclaredIndex]>,
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
                let is_indexed = known.is_empty() || (known.is_indexed && known.indexes == indexes);
                Partition { origin, health, indexes, is_indexed, ..known }
            }
            None => Partition {
                origin,
                health,
                indexes,
                is_indexed: true,
                objects: Objects::default(),
                plain_bytes: 0,
                bare: false,
                version: None,
                resume: None,
                deleted: None,
                rewound: imbl::OrdSet::new(),
                settings: 0,
                outdated: None,
                converting: None,
                restored: None,
                synced: false,
                outbox: None,
                relist: Relist::None,
                marks: Marks::default(),
            },
        };
        self.partitions.insert(id, Arc::new(partition));
    }

    /// Adds a partition of another snapshot under the given ID. The informer `origin` continues to fill it.
    pub(super) fn adopt(&mut self, id: PartitionId, partition: Partition, origin: Arc<Origin>) {
        self.open(id, Arc::clone(&origin), Arc::clone(&partition.health), Arc::default());
        self.partitions.insert(id, Arc::new(partition.continue_as(origin)));
    }

    /// Changes the origin of a partition: another API version of the resource, or other cluster labels.
    pub(super) fn relabel(&mut self, id: PartitionId, origin: Arc<Origin>) {
        let Some(partition) = self.partitions.remove(&id).map(Arc::unwrap_or_clone) else { return };
        if self.partitions.is_empty() {
            self.resource = origin.resource.clone();
        }
        self.partitions.insert(id, Arc::new(partition.continue_as(origin)));
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

    /// Removes a partition, so that the caller can modify it without copying its tree; [`Self::put`] puts it back.
    pub(super) fn take(&mut self, id: PartitionId) -> Option<Partition> {
        self.partitions.remove(&id).map(Arc::unwrap_or_clone)
    }

    pub(super) fn put(&mut self, id: PartitionId, partition: Partition) {
        self.partitions.insert(id, Arc::new(partition));
    }
}
