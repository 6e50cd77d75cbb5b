//! Objects of a list in order: by cluster, then by namespace and name.
//!
//! A cluster can have several partitions, one per informer. They are merged by key; an object in two of them appears
//! once.
//!
//! A list can show an earlier state of the cache. It is read from the present state, with all later changes undone.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use super::scope::Scope;
use crate::cache::{ChangeKind, KeyRanges, Partition, PartitionId, RecordedChange, Snapshot, is_in};
use informer_hub_access::{Visibility, Visible};
use informer_hub_types::{ClusterName, FieldPath, LabelNeeds, ObjectKey, Origin, StoredObject};

/// An object, and the informer (cluster, resource and scope) that it comes from.
pub(super) type ObjectWithOrigin = (Arc<StoredObject>, Arc<Origin>);

/// Position in a list. A list that continues here begins after the object with this cluster and key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ListPosition {
    pub(super) cluster: ClusterName,
    pub(super) key: ObjectKey,
}

/// Conditions of a selection that can be tested before an object is decoded. Objects that do not meet them are skipped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidates<'a> {
    /// Namespace of the selected objects; `None` if objects of several namespaces may be selected.
    pub(super) namespace: Option<&'a str>,
    /// Bits that the label filter of each selected object must have. A label filter is a Bloom filter of the object's
    /// labels.
    pub(super) needs: &'a LabelNeeds,
    /// A field path, and the value that all selected objects have there, in the form that an index stores.
    pub(super) field: Option<(&'a FieldPath, &'a str)>,
}

/// Objects of one informer's partition in the order of their keys, each with whether it may be selected.
type CandidateIter<'s> = Box<dyn Iterator<Item = (&'s Arc<StoredObject>, bool)> + 's>;

/// State of the cache that a list is read from: the newest snapshot, or an earlier state.
#[derive(Clone, Debug)]
pub(super) struct State {
    snapshot: Arc<Snapshot>,
    partitions: BTreeMap<ClusterName, Vec<PartitionId>>,
    /// Objects that differ between an earlier state and the snapshot, by cluster, as they were in the earlier state.
    /// `None` stands for an object that did not exist then.
    undone: BTreeMap<ClusterName, BTreeMap<ObjectKey, Option<ObjectWithOrigin>>>,
    /// Clusters that may have objects in this state: those of `partitions` and `undone`.
    clusters: BTreeSet<ClusterName>,
    visibility: Visibility,
    /// Key ranges of the visible objects, by cluster. All objects of a cluster without an entry are visible.
    ranges: BTreeMap<ClusterName, KeyRanges>,
}

impl State {
    pub(super) fn present(scope: &Scope, snapshot: Arc<Snapshot>) -> Self {
        let mut partitions: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (id, partition) in scope.partitions(&snapshot) {
            partitions.entry(partition.origin().cluster.clone()).or_default().push(id);
        }
        let clusters = partitions.keys().cloned().collect();
        let (visibility, ranges) = (scope.visibility.clone(), BTreeMap::new());
        let mut state = Self { snapshot, partitions, undone: BTreeMap::new(), clusters, visibility, ranges };
        state.find_ranges();
        state
    }

    /// Returns an earlier state of the cache: the present `snapshot`, in which `changes` are undone. `changes` are all
    /// changes since the earlier state, in order.
    pub(super) fn before(scope: &Scope, snapshot: Arc<Snapshot>, changes: &[Arc<RecordedChange>]) -> Self {
        let mut state = Self::present(scope, snapshot);
        for change in changes {
            let before = match change.kind {
                ChangeKind::Added => None,
                ChangeKind::Modified | ChangeKind::Deleted => Some(change.old.as_ref().unwrap_or(&change.object)),
            };
            let before = before.map(|old| (Arc::clone(old), Arc::clone(&change.origin)));
            state.clusters.insert(change.origin.cluster.clone());
            // The first change of an object contains the object's state before all `changes`.
            let undone = state.undone.entry(change.origin.cluster.clone()).or_default();
            undone.entry(change.object.key().clone()).or_insert(before);
        }
        state.find_ranges();
        state
    }

    /// Returns the snapshot of the cache that these objects belong to.
    pub(super) fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Sets `ranges` to the key ranges of the visible objects of each cluster.
    fn find_ranges(&mut self) {
        if self.visibility.is_everything() {
            return;
        }
        let mut ranges = BTreeMap::new();
        for cluster in &self.clusters {
            let undone = self.undone.get(cluster).into_iter().flat_map(BTreeMap::values).flatten();
            let origins = self.partitions(cluster).map(|(_, partition)| partition.origin());
            let mut origins: Vec<_> = origins.chain(undone.map(|(_, origin)| origin)).collect();
            origins.dedup_by(|next, origin| next.cluster_labels == origin.cluster_labels);
            let visible = origins
                .iter()
                .map(|origin| self.visibility.visible(&origin.cluster, &origin.cluster_labels))
                .fold(Visible::Nothing, Visible::union);
            if let Some(found) = self.ranges_in(cluster, &visible) {
                ranges.insert(cluster.clone(), found);
            }
        }
        self.ranges = ranges;
    }

    /// Returns the key ranges of the visible objects of a cluster; `None` if all objects are visible.
    fn ranges_in(&self, cluster: &ClusterName, visible: &Visible) -> Option<KeyRanges> {
        let mut found = BTreeSet::new();
        for (_, partition) in self.partitions(cluster) {
            found.extend(partition.visible_ranges(visible)?.iter().cloned());
        }
        let undone = self.undone.get(cluster).into_iter().flat_map(BTreeMap::keys);
        for namespace in undone.filter_map(ObjectKey::namespace).filter(|namespace| visible.sees(Some(namespace))) {
            found.insert(ObjectKey::new(namespace, ""));
        }
        (*visible != Visible::Everything).then(|| found.into_iter().collect())
    }

    /// Returns whether a key may be visible in a cluster.
    fn may_see(&self, cluster: &ClusterName, key: &ObjectKey) -> bool {
        self.ranges.get(cluster).is_none_or(|ranges| is_in(ranges, key))
    }

    /// Returns the names of the clusters in order, from `first` on if it is given.
    pub(super) fn clusters_from(&self, first: Option<&ClusterName>) -> impl Iterator<Item = &ClusterName> {
        let first = first.map_or(Bound::Unbounded, |first| Bound::Included(first.clone()));
        self.clusters.range((first, Bound::Unbounded))
    }

    /// Returns the object of a key in a cluster; `None` if it does not exist or is not visible.
    pub(super) fn get(&self, cluster: &ClusterName, key: &ObjectKey) -> Option<ObjectWithOrigin> {
        self.stored(cluster, key).filter(|found| self.may_see(cluster, key) && self.sees(found))
    }

    /// Returns whether the reader may see an object whose key is in the visible ranges.
    ///
    /// In the present state, this is always true. In an earlier state, the cluster may have had other labels, so the
    /// rights are checked again.
    fn sees(&self, (object, origin): &ObjectWithOrigin) -> bool {
        let namespace = object.key().namespace();
        self.undone.is_empty() || self.visibility.sees(&origin.cluster, &origin.cluster_labels, namespace)
    }

    fn stored(&self, cluster: &ClusterName, key: &ObjectKey) -> Option<ObjectWithOrigin> {
        if let Some(undone) = self.undone.get(cluster).and_then(|undone| undone.get(key)) {
            return undone.clone();
        }
        let found =
            self.partitions(cluster).find_map(|(_, partition)| Some((partition.get(key)?, partition.origin())))?;
        Some((Arc::clone(found.0), Arc::clone(found.1)))
    }

    /// Appends to `out` the next visible objects of a cluster, in the order of their keys. Starts after the key
    /// `after`, and skips objects that cannot meet the conditions `wanted`.
    ///
    /// Reads at most `most` objects. Returns the key to continue after; `None` at the end.
    pub(super) fn objects<'s>(
        &'s self,
        cluster: &ClusterName,
        after: Option<&ObjectKey>,
        wanted: Candidates<'s>,
        most: usize,
        out: &mut Vec<ObjectWithOrigin>,
    ) -> Option<ObjectKey> {
        let Some(ranges) = self.ranges.get(cluster) else {
            return self.objects_within(cluster, after, wanted, &mut { most }, out);
        };
        let is_passed =
            |range: &ObjectKey| after.is_some_and(|it| it > range && !it.as_str().starts_with(range.as_str()));
        let first = ranges.partition_point(is_passed);
        let mut left = most;
        for range in &ranges[first..] {
            let namespace = range.namespace();
            if wanted.namespace.is_some_and(|wanted| Some(wanted) != namespace) {
                continue;
            }
            if left == 0 {
                // The next call continues here, because the start of this range follows all keys of the earlier ranges.
                return Some(range.clone());
            }
            let wanted = Candidates { namespace, ..wanted };
            if let Some(next) = self.objects_within(cluster, after, wanted, &mut left, out) {
                return Some(next);
            }
            left = left.saturating_sub(1);
        }
        None
    }

    /// Appends to `out` the next objects of a cluster, visible or not, in the order of their keys. Starts after the key
    /// `after`, and skips objects that cannot meet the conditions `wanted`.
    ///
    /// Reads at most `left` objects, and subtracts their number from `left`. Returns the key to continue after; `None`
    /// at the end.
    fn objects_within<'s>(
        &'s self,
        cluster: &ClusterName,
        after: Option<&ObjectKey>,
        wanted: Candidates<'s>,
        left: &mut usize,
        out: &mut Vec<ObjectWithOrigin>,
    ) -> Option<ObjectKey> {
        let Candidates { namespace, needs, field } = wanted;
        let first = namespace.map(|namespace| ObjectKey::new(namespace, ""));
        let after = match (after, first.as_ref()) {
            (Some(after), Some(first)) => Some(after.max(first)),
            (after, first) => after.or(first),
        };
        let is_within = |key: &ObjectKey| namespace.is_none() || key.namespace() == namespace;
        let undone = self.undone.get(cluster);
        let everything = LabelNeeds::default();
        // If an object is in two partitions, its state in the first counts. Filters could hide that state and show the
        // other, so they are used only if there is one partition.
        let is_only = self.partitions.get(cluster).is_some_and(|ids| ids.len() == 1);
        let (needs, field) = if is_only { (needs, field) } else { (&everything, None) };
        let wanted = Candidates { namespace, needs, field };
        let mut sources: Vec<_> = self
            .partitions(cluster)
            .map(|(id, partition)| (self.candidates(id, partition, after, wanted).peekable(), partition.origin()))
            .collect();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let undone = undone.into_iter().flat_map(|undone| undone.range::<ObjectKey, _>((from, Bound::Unbounded)));
        let mut undone = undone.peekable();
        let mut last = None;
        while *left > 0 {
            *left -= 1;
            let stored = sources.iter_mut().filter_map(|(objects, _)| objects.peek().map(|(object, _)| object.key()));
            let (stored, other) = (stored.min(), undone.peek().map(|(key, _)| *key));
            let key = [stored, other].into_iter().flatten().min().filter(|key| is_within(key))?.clone();
            let mut found = None;
            for (objects, origin) in &mut sources {
                if let Some((object, true)) = objects.next_if(|(object, _)| *object.key() == key) {
                    found.get_or_insert_with(|| (Arc::clone(object), Arc::clone(origin)));
                }
            }
            if let Some((_, before)) = undone.next_if(|(undone, _)| **undone == key) {
                found.clone_from(before);
            }
            out.extend(found.filter(|found| self.sees(found)));
            last = Some(key);
        }
        last
    }

    /// Returns the objects of one partition (objects of one informer) after the key `after`. With each object, returns
    /// whether it may meet the conditions `wanted`.
    fn candidates<'s>(
        &'s self,
        id: PartitionId,
        partition: &'s Partition,
        after: Option<&'s ObjectKey>,
        wanted: Candidates<'s>,
    ) -> CandidateIter<'s> {
        let of_field = |(path, value)| self.snapshot.indexed_after(id, after, path, value);
        match wanted.field.and_then(of_field) {
            Some(objects) => Box::new(objects.map(|object| (object, true))),
            None => Box::new(partition.candidates_after(after, wanted.needs)),
        }
    }

    fn partitions(&self, cluster: &ClusterName) -> impl Iterator<Item = (PartitionId, &Partition)> {
        let ids = self.partitions.get(cluster).into_iter().flatten();
        ids.filter_map(|id| Some((*id, self.snapshot.partition(*id)?)))
    }

    pub(super) fn is_namespaced(&self) -> bool {
        self.snapshot.resource().namespaced
    }

    /// Returns the number of visible objects; `None` if every object would have to be visited to count them.
    pub(super) fn len(&self) -> Option<usize> {
        let is_plain = self.undone.is_empty() && self.partitions.values().all(|ids| ids.len() == 1);
        is_plain.then(|| self.partitions.keys().map(|cluster| self.len_of(cluster)).sum())
    }

    fn len_of(&self, cluster: &ClusterName) -> usize {
        let ranges = self.ranges.get(cluster);
        let len = |partition: &Partition| ranges.map_or_else(|| partition.len(), |ranges| partition.len_in(ranges));
        self.partitions(cluster).map(|(_, partition)| len(partition)).sum()
    }
}
