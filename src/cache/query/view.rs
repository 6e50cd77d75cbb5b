//! Informers selected by a query, and the freshness of their clusters.

use std::ops::Range;

use super::builder::Query;
use super::condition::{Condition, Known};
use super::coverage::Coverage;
use super::visible::VisibleParts;
use crate::posting::PartitionId;
use crate::snapshot::{Partition, Snapshot};
use crate::visible_ranges::{KeyRanges, intersection};
use informer_hub_types::{ClusterSelector, Freshness, MemoryStep, ObjectKey, Origin, StoredObject};

/// A selected informer that may have matching objects.
pub(super) struct Member<'s> {
    pub(super) id: PartitionId,
    pub(super) partition: &'s Partition,
    /// Index of the informer's cluster among the selected clusters, which are ordered by name.
    pub(super) rank: usize,
    /// Whether the informer has every index in the query. Otherwise it cannot answer.
    pub(super) can_answer: bool,
    /// Key ranges of the objects that the reader may see; `None` if it sees all.
    pub(super) ranges: Option<KeyRanges>,
}

impl Member<'_> {
    fn len(&self) -> usize {
        self.ranges.as_ref().map_or_else(|| self.partition.len(), |ranges| self.partition.len_in(ranges))
    }
}

/// A selected cluster with its informers.
struct SelectedCluster {
    /// Informers of the cluster, as a range of [`View::members`].
    members: Range<usize>,
    coverage: Coverage,
}

/// The informers that a query selects, by cluster.
pub(super) struct View<'s> {
    pub(super) members: Vec<Member<'s>>,
    clusters: Vec<SelectedCluster>,
    /// Selected clusters that should have the resource but have not answered yet.
    expected: Vec<Coverage>,
    /// Whether the reader of the query may see all objects.
    pub(super) sees_all: bool,
}

impl<'s> View<'s> {
    /// Selects the informers of a query. Visits each cluster that the selector does not exclude by name.
    pub(super) fn new(
        snapshot: &'s Snapshot,
        query: &Query,
        condition: &Condition<'_>,
        visible: &VisibleParts,
    ) -> Self {
        let sees_all = query.visibility().is_none();
        let mut view = Self { members: Vec::new(), clusters: Vec::new(), expected: Vec::new(), sees_all };
        match &query.clusters {
            ClusterSelector::Names(names) => {
                let mut names: Vec<_> = names.iter().collect();
                names.sort_unstable();
                names.dedup();
                for name in names {
                    view.select_cluster(snapshot, (query, condition, visible), snapshot.partitions_of(name));
                }
            }
            ClusterSelector::All | ClusterSelector::Labels(_) => {
                for (_, ids) in snapshot.clusters() {
                    view.select_cluster(snapshot, (query, condition, visible), ids);
                }
            }
        }
        for (cluster, labels) in snapshot.expected() {
            let selected = query.clusters.matches(cluster, labels)
                && query.visibility().is_none_or(|visibility| visibility.sees_any(cluster, labels))
                && !condition.rules_out(&Known { cluster, labels, namespace: None })
                && !view.is_named(view.rank_of(cluster.as_str()), cluster.as_str());
            if selected {
                let (cluster, freshness, memory) = (cluster.clone(), Freshness::Missing, MemoryStep::Full);
                view.expected.push(Coverage { cluster, freshness, memory, part: None });
            }
        }
        view
    }

    fn select_cluster(
        &mut self,
        snapshot: &'s Snapshot,
        (query, condition, visible): (&Query, &Condition<'_>, &VisibleParts),
        ids: &[PartitionId],
    ) {
        let (begin, rank) = (self.members.len(), self.clusters.len());
        let (mut freshness, mut memory) = (None::<Freshness>, MemoryStep::Full);
        let mut cluster = None;
        for id in ids {
            let Some(partition) = snapshot.partition(*id) else { continue };
            let origin = partition.origin();
            let Some(ranges) = visible.of(*id) else { continue };
            if !is_selected(query, condition, origin) {
                continue;
            }
            cluster = Some(&origin.cluster);
            if !is_in_reach(condition, origin) {
                continue;
            }
            let can_answer = condition.indexes().all(|index| snapshot.has_index(partition, index));
            let trust = if can_answer { partition.freshness() } else { Freshness::Missing };
            freshness = Some(freshness.map_or(trust, |known| stalest(known, trust)));
            memory = memory.max(partition.memory());
            self.members.push(Member { id: *id, partition, rank, can_answer, ranges });
        }
        if let Some(cluster) = cluster {
            // If no informer of the cluster covers the query, its state is unknown.
            let freshness = freshness.unwrap_or(Freshness::Missing);
            let coverage = Coverage { cluster: cluster.clone(), freshness, memory, part: None };
            self.clusters.push(SelectedCluster { members: begin..self.members.len(), coverage });
        }
    }

    /// Returns the informers that have every index of the query, by cluster, with their positions in `members`.
    pub(super) fn answering(&self) -> impl Iterator<Item = (usize, &Member<'s>)> + Clone {
        self.members.iter().enumerate().filter(|(_, member)| member.can_answer)
    }

    /// Returns the number of visible objects of the informers that can answer.
    pub(super) fn len(&self) -> usize {
        self.answering().map(|(_, member)| member.len()).sum()
    }

    /// Restricts the key ranges that the reader may see to keys with one of the prefixes in `to`.
    pub(super) fn restrict(&mut self, to: &[ObjectKey]) {
        for ranges in self.members.iter_mut().filter_map(|member| member.ranges.as_mut()) {
            *ranges = intersection(ranges, to).into();
        }
    }

    /// Returns the index of a cluster among the selected clusters, which are ordered by name. If the cluster is not
    /// selected, returns the index at which it would be inserted.
    pub(super) fn rank_of(&self, cluster: &str) -> usize {
        self.clusters.partition_point(|selected| selected.coverage.cluster.as_str() < cluster)
    }

    /// Returns whether the cluster of this rank (index among the selected clusters) has this name.
    pub(super) fn is_named(&self, rank: usize, cluster: &str) -> bool {
        self.clusters.get(rank).is_some_and(|selected| selected.coverage.cluster.as_str() == cluster)
    }

    /// Returns whether another informer of the cluster has a newer state of the object than the informer `at` (an index
    /// of `members`). Of two equally new states, the one of the informer opened first takes precedence.
    ///
    /// Must be called for each match. If the newer state does not match, the object must not be in the answer.
    pub(super) fn is_superseded(&self, at: usize, stored: &StoredObject) -> bool {
        let members = self.clusters[self.members[at].rank].members.clone();
        members.len() > 1
            && members.filter(|other| *other != at).any(|other| {
                let other_member = &self.members[other];
                other_member.can_answer && has_newer(other_member.partition, stored, other < at)
            })
    }

    /// Returns the freshness and memory (coverage) of each selected cluster, by name.
    pub(super) fn coverage(&self) -> Vec<Coverage> {
        let of = |selected: &SelectedCluster| Coverage { part: self.part_of(selected), ..selected.coverage.clone() };
        let mut coverage: Vec<_> = self.clusters.iter().map(of).collect();
        if !self.expected.is_empty() {
            coverage.extend(self.expected.iter().cloned());
            coverage.sort_by(|a, b| a.cluster.cmp(&b.cluster));
        }
        coverage
    }

    /// Describes which part of a cluster's objects its informers keep; `None` if one of them keeps everything.
    fn part_of(&self, selected: &SelectedCluster) -> Option<String> {
        let members = &self.members[selected.members.clone()];
        let parts = members.iter().map(|member| member.partition.part()).collect::<Option<Vec<_>>>()?;
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

/// Returns whether a partition has a newer state of this object or, with `also_as_new`, an equally new one.
pub(super) fn has_newer(partition: &Partition, stored: &StoredObject, also_as_new: bool) -> bool {
    let (version, watched) = (stored.resource_version(), partition.origin().scope.namespace.as_deref());
    let may_have = watched.is_none() || watched == stored.key().namespace();
    may_have
        && partition
            .get(stored.key())
            .map(|state| state.resource_version())
            .is_some_and(|theirs| theirs.newer_than(version) || (also_as_new && !version.newer_than(theirs)))
}

/// Returns whether the cluster and the scope of an informer are selected.
fn is_selected(query: &Query, condition: &Condition<'_>, origin: &Origin) -> bool {
    query.clusters.matches(&origin.cluster, &origin.cluster_labels)
        && query.scope.as_ref().is_none_or(|scope| *scope == origin.scope)
        && !condition.rules_out(&Known { cluster: &origin.cluster, labels: &origin.cluster_labels, namespace: None })
}

/// Returns whether an informer may have matching objects.
fn is_in_reach(condition: &Condition<'_>, origin: &Origin) -> bool {
    let Some(namespace) = origin.scope.namespace.as_deref() else { return true };
    let known = Known { cluster: &origin.cluster, labels: &origin.cluster_labels, namespace: Some(namespace) };
    !condition.rules_out(&known)
}

fn stalest(a: Freshness, b: Freshness) -> Freshness {
    if staleness(&b) > staleness(&a) { b } else { a }
}

fn staleness(freshness: &Freshness) -> (u8, i64) {
    match freshness {
        Freshness::Synced => (0, 0),
        Freshness::StaleSince { since } => (1, -since.as_millisecond()),
        Freshness::Missing => (2, 0),
    }
}

/// Position after which an answer continues.
#[derive(Clone, Debug)]
pub(super) struct Start {
    /// Index of the cluster among the selected clusters, which are ordered by name.
    pub(super) rank: usize,
    /// Key of the last object; `None` if its cluster is no longer selected, so that the answer continues with the next
    /// cluster.
    pub(super) key: Option<ObjectKey>,
}
