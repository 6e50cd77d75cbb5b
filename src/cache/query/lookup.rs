//! Direct implementations of the two most frequent queries: by key and by index value. Their cost does not depend on
//! the number of clusters, and they allocate only the answer.

use std::sync::Arc;

use super::error::QueryError;
use super::view::has_newer;
use crate::posting::PartitionId;
use crate::snapshot::{Partition, Snapshot};
use informer_hub_types::{ClusterName, Object, ObjectKey, Origin, StoredObject};

impl Snapshot {
    /// Verifies that there is an index of this name.
    pub(crate) fn check_index(&self, index: &str) -> Result<(), QueryError> {
        if self.index_fn(index).is_some() || self.partitions().any(|(_, partition)| partition.declares(index)) {
            return Ok(());
        }
        Err(QueryError::UnknownIndex {
            index: index.to_owned(),
            resource: self.resource().gvr.to_string(),
            known: self.index_names().iter().map(ToString::to_string).collect(),
        })
    }

    /// Returns the object at a key of one cluster, in its newest state among the selected informers. Costs a lookup in
    /// each of the cluster's informers.
    pub(crate) fn get_of(
        &self,
        cluster: &ClusterName,
        key: &ObjectKey,
        is_selected: impl Fn(&Origin) -> bool,
    ) -> Option<Object> {
        let theirs = self.partitions_of(cluster).iter().filter_map(|id| self.partition(*id));
        let mut newest: Option<(&Partition, &Arc<StoredObject>)> = None;
        for partition in theirs.filter(|partition| is_selected(partition.origin())) {
            let Some(stored) = partition.get(key) else { continue };
            if newest.is_none_or(|(_, best)| stored.resource_version().newer_than(best.resource_version())) {
                newest = Some((partition, stored));
            }
        }
        newest.map(|(partition, stored)| Object::new(Arc::clone(partition.origin()), Arc::clone(stored)))
    }

    /// Returns the object at a key of one cluster, in the newest state among its informers.
    #[must_use]
    pub fn get(&self, cluster: &ClusterName, key: &ObjectKey) -> Option<Object> {
        self.get_of(cluster, key, |_| true)
    }

    /// Returns the objects with `value` in `index`, by cluster and key, in their newest states. Costs one lookup per
    /// object.
    ///
    /// The result does not show how fresh each cluster is. So clusters without such objects need not be visited, unlike
    /// for an [`super::Answer`].
    ///
    /// # Errors
    /// [`QueryError::UnknownIndex`].
    pub fn find_by_index(&self, index: &str, value: &str) -> Result<Vec<Object>, QueryError> {
        self.find_by_index_of(index, value, |_| true)
    }

    /// As [`Self::find_by_index`], for the selected informers.
    pub(crate) fn find_by_index_of(
        &self,
        index: &str,
        value: &str,
        is_selected: impl Fn(&Origin) -> bool,
    ) -> Result<Vec<Object>, QueryError> {
        let Some(posting) = self.indices.posting(index, value) else {
            return self.check_index(index).map(|()| Vec::new());
        };
        let mut found = Vec::new();
        let mut at: Option<(PartitionId, Option<&Partition>)> = None;
        for (id, key) in posting.iter() {
            let partition = match at {
                Some((last, partition)) if last == id => partition,
                _ => {
                    let selected = |partition: &&Partition| is_selected(partition.origin());
                    let partition = self.partition(id).filter(selected);
                    at = Some((id, partition));
                    partition
                }
            };
            let Some((partition, stored)) = partition.and_then(|it| it.get(key).map(|stored| (it, stored))) else {
                continue;
            };
            if !self.is_superseded(id, partition, stored, index, &is_selected) {
                found.push(Object::new(Arc::clone(partition.origin()), Arc::clone(stored)));
            }
        }
        let place = |a: &Object, b: &Object| (a.cluster(), a.key()).cmp(&(b.cluster(), b.key()));
        if !found.is_sorted_by(|a, b| place(a, b).is_le()) {
            found.sort_unstable_by(place);
        }
        Ok(found)
    }

    /// Returns whether another selected informer of the cluster with this index has a newer state of the object.
    fn is_superseded(
        &self,
        id: PartitionId,
        partition: &Partition,
        stored: &StoredObject,
        index: &str,
        is_selected: impl Fn(&Origin) -> bool,
    ) -> bool {
        let others = self.partitions_of(&partition.origin().cluster).iter().filter(|other| **other != id);
        others.filter_map(|other| Some((*other, self.partition(*other)?))).any(|(other, them)| {
            // Of equally new states, the one of the informer that was opened first counts: it has the lower ID.
            is_selected(them.origin()) && self.has_index(them, index) && has_newer(them, stored, other < id)
        })
    }
}
