//! Recording of a store's changes in its window.

use std::sync::Arc;

use super::arrange::{Arranged, Conditions, arrange};
use super::change::{ChangeKind, PartitionChange, PartitionChangeKind, RecordedChange};
use super::cluster::{Address, Floor};
use super::draft::Draft;
use super::marks::ClusterMarks;
use super::reader::{HistoryReader, floor};
use super::window::{Entry, HistoryLimits, Step};
use crate::cache::posting::PartitionId;
use crate::cache::snapshot::Partition;
use crate::cache::store::Store;
use informer_hub_types::clock::Instant;
use informer_hub_types::{ClusterName, Origin, ResourceVersion};

/// Recorded steps that are not published yet.
#[derive(Debug, Default)]
pub(in crate::cache) struct Pending(Vec<(ClusterName, Step)>);

/// State of a partition before a batch.
#[derive(Clone, Copy, Debug)]
pub(in crate::cache) struct Before {
    had_joined: bool,
    was_converted: bool,
}

impl Before {
    pub(in crate::cache) fn of(partition: &Partition) -> Self {
        Self { had_joined: partition.synced, was_converted: partition.converted_from.is_some() }
    }
}

fn number(version: Option<&ResourceVersion>) -> Option<u64> {
    version.and_then(ResourceVersion::as_number)
}

impl Store {
    /// Starts to count versions after `base` and to keep recent changes. The present objects get the version `base`.
    /// Call it once, before readers use versions. `base` should exceed the versions of earlier processes, such as the
    /// present time in microseconds.
    pub fn keep_history(&mut self, limits: HistoryLimits, base: u64, now: Instant) {
        let ids: Vec<_> = self.next.partitions().map(|(id, _)| id).collect();
        for id in ids {
            let Some(mut partition) = self.next.take(id) else { continue };
            partition.iter().for_each(|object| object.set_fleet_version(base));
            let complete = number(partition.resume.as_ref());
            partition.marks.restart(complete.filter(|_| partition.synced));
            self.next.put(id, partition);
        }
        let history = HistoryReader::new(limits, base, now);
        self.next.version = base;
        history.restart(&self.next);
        self.next.history = Some(history);
        self.publish();
    }

    /// Returns the read half of the window; `None` if there is none.
    #[must_use]
    pub fn history(&self) -> Option<&HistoryReader> {
        self.next.history()
    }

    /// Sets the time of the following changes.
    pub fn set_time(&mut self, now: Instant) {
        if let Some(history) = self.next.history() {
            history.set_time(now);
        }
    }

    /// Drops recorded changes that have exceeded their age. Returns whether any are left.
    pub fn trim_history(&mut self, now: Instant) -> bool {
        self.history().is_some_and(|history| history.trim(now))
    }

    /// Sets whether memory is short. If so, fewer changes are kept.
    pub fn set_history_tight(&mut self, tight: bool) {
        if let Some(history) = self.next.history() {
            history.set_tight(tight);
        }
    }

    /// Returns whether changes are recorded.
    pub(in crate::cache) fn records(&self) -> bool {
        self.next.history.is_some()
    }

    /// Publishes the next snapshot with the changes recorded for it.
    pub(in crate::cache) fn publish(&mut self) {
        let steps = std::mem::take(&mut self.pending.0);
        let history = self.next.history().filter(|_| !steps.is_empty());
        let cells = history.map(|history| history.append(steps));
        self.published.store(Arc::new(self.next.clone()));
        if let (Some(history), Some(cells)) = (history, cells) {
            history.publish(self.next.version, cells);
        }
    }

    /// Records a batch of a partition that is taken out for writing. `list` is the version of the list that it ended.
    pub(in crate::cache) fn record_batch(
        &mut self,
        id: PartitionId,
        partition: &mut Partition,
        drafts: Vec<Draft>,
        list: Option<&ResourceVersion>,
        before: Before,
    ) {
        if !self.records() || !partition.synced {
            return;
        }
        let listed = number(list);
        let complete = number(partition.resume.as_ref());
        if !before.had_joined {
            return self.record_join(id, partition, complete.or(listed));
        }
        self.record_changes(id, partition, drafts, listed);
        if let Some(listed) = listed
            && (before.was_converted || partition.marks.complete.is_none_or(|complete| listed < complete))
        {
            self.record_cut(partition, listed);
        }
        if let Some(complete) = complete.or(listed) {
            partition.marks.complete = Some(complete);
        }
    }

    fn record_changes(&mut self, id: PartitionId, partition: &mut Partition, drafts: Vec<Draft>, list: Option<u64>) {
        if drafts.is_empty() {
            return;
        }
        let cluster = partition.origin().cluster.clone();
        let mut conditions = Conditions { list, ..Conditions::default() };
        let floor_of_cluster = self.marks_with(&cluster, Some(partition)).floor;
        conditions.base = partition.marks.complete.max(floor_of_cluster).unwrap_or(0);
        if drafts.iter().any(Draft::is_missed) {
            conditions.used = self.used_versions(&cluster, partition, list.is_some());
        }
        for arranged in arrange(drafts, conditions) {
            self.record_change(id, partition, &cluster, arranged);
        }
    }

    /// Returns the versions that no deletion may get: those of changes and, at the end of a list, of present objects.
    fn used_versions(
        &self,
        cluster: &ClusterName,
        partition: &Partition,
        with_objects: bool,
    ) -> hashbrown::HashSet<u64> {
        let changes = self.history().into_iter().flat_map(|history| history.versions_of(cluster));
        let objects = partition.iter().filter(|_| with_objects).filter_map(|it| it.resource_version().as_number());
        changes.chain(objects).collect()
    }

    fn record_change(
        &mut self,
        id: PartitionId,
        partition: &mut Partition,
        cluster: &ClusterName,
        (draft, cluster_version): Arranged,
    ) {
        self.next.version += 1;
        let version = self.next.version;
        let Draft { kind, object, old, .. } = draft;
        let mut bytes = object.plain_size();
        if kind == ChangeKind::Deleted {
            let stored = old.as_ref().filter(|stored| !Arc::ptr_eq(stored, &object));
            bytes += stored.map_or(0, |stored| stored.plain_size());
        } else {
            object.set_fleet_version(version);
            // A partition without bodies stores a copy.
            let stored = partition.get(object.key()).filter(|stored| {
                stored.uid() == object.uid() && stored.resource_version() == object.resource_version()
            });
            stored.inspect(|stored| stored.set_fleet_version(version));
        }
        let address = match cluster_version {
            Some(known) => {
                partition.marks.note(version, known);
                Address::Version(known)
            }
            None => Address::Before(floor(&self.marks_with(cluster, Some(partition)))),
        };
        let origin = Arc::clone(partition.origin());
        let change = RecordedChange { version, partition: id, origin, kind, object, old, cluster_version };
        let entry = Entry::Change(Arc::new(change));
        self.step(cluster, Step::Push { entry, bytes, address: Some(address) });
    }

    /// Records that the versions of a cluster went back to that of a list, or have a new meaning.
    fn record_cut(&mut self, partition: &mut Partition, list: u64) {
        let cluster = partition.origin().cluster.clone();
        partition.marks.restart(Some(list));
        for id in self.others(&cluster) {
            let Some(mut other) = self.next.take(id) else { continue };
            let complete = other.marks.complete;
            other.marks.restart(complete);
            self.next.put(id, other);
        }
        self.step(&cluster, Step::Cut { at: self.next.version, floor: Floor::at(Some(list)) });
    }

    /// Records that a partition, taken out for writing, has joined: its objects are visible from now on.
    pub(in crate::cache) fn record_join(&mut self, id: PartitionId, partition: &mut Partition, complete: Option<u64>) {
        if !self.records() || !partition.synced {
            return;
        }
        let cluster = partition.origin().cluster.clone();
        let others = (!self.others(&cluster).is_empty()).then(|| self.marks_with(&cluster, None));
        let first = self.next.version + 1;
        for object in partition.iter() {
            self.next.version += 1;
            object.set_fleet_version(self.next.version);
        }
        partition.marks.restart(complete);
        let address = others.map_or(Floor::UNKNOWN, |others| {
            partition.marks.floor = complete.max(others.base());
            let exact = self.marks_with(&cluster, Some(partition)).version();
            Floor { exact, ..floor(&others) }
        });
        self.step_of_all(id, partition, first, PartitionChangeKind::Joined, Some(Address::Before(address)), 0);
        if others.is_none() {
            self.step(&cluster, Step::Join { at: self.next.version, floor: Floor::at(complete) });
        }
    }

    /// Records that a partition leaves. Call it before it is closed.
    pub(in crate::cache) fn record_leave(&mut self, id: PartitionId) {
        if !self.records() || self.partition(id).is_none_or(|partition| !partition.synced) {
            return;
        }
        let Some(partition) = self.next.take(id) else { return };
        let cluster = partition.origin().cluster.clone();
        let marks = self.marks_with(&cluster, Some(&partition));
        let first = self.next.version + 1;
        self.next.version += partition.len() as u64;
        let bytes = usize::try_from(partition.body_bytes()).unwrap_or(usize::MAX);
        let address = Some(Address::Before(floor(&marks)));
        self.step_of_all(id, &partition, first, PartitionChangeKind::Left, address, bytes);
        match self.others(&cluster).first().and_then(|other| Some((*other, self.next.take(*other)?))) {
            // Versions that readers have stay known.
            Some((other, mut heir)) => {
                heir.marks.inherit(&marks);
                self.next.put(other, heir);
            }
            None => self.step(&cluster, Step::Leave),
        }
        self.next.put(id, partition);
    }

    /// Records that the informer of a partition has other cluster labels. Call it after the change.
    pub(in crate::cache) fn record_relabel(&mut self, id: PartitionId, before: Arc<Origin>) {
        let Some(partition) = self.partition(id).filter(|partition| partition.synced && self.records()) else { return };
        if partition.origin().cluster_labels == before.cluster_labels {
            return;
        }
        let partition = partition.clone();
        let first = self.next.version + 1;
        self.next.version += partition.len() as u64;
        self.step_of_all(id, &partition, first, PartitionChangeKind::Relabelled(before), None, 0);
    }

    /// Adds a change of all objects of a partition, which has the versions from `first` to the present one.
    fn step_of_all(
        &mut self,
        id: PartitionId,
        partition: &Partition,
        first: u64,
        kind: PartitionChangeKind,
        address: Option<Address>,
        bytes: usize,
    ) {
        let last = self.next.version;
        if first > last {
            return;
        }
        let (origin, objects) = (Arc::clone(partition.origin()), partition.objects.clone());
        let change = PartitionChange { first, last, partition: id, kind, origin, objects };
        let entry = Entry::Partition(Arc::new(change));
        self.step(&partition.origin().cluster, Step::Push { entry, bytes, address });
    }

    fn step(&mut self, cluster: &ClusterName, step: Step) {
        self.pending.0.push((cluster.clone(), step));
    }

    /// Returns the partitions of a cluster that have joined, except for one that is taken out for writing.
    fn others(&self, cluster: &ClusterName) -> Vec<PartitionId> {
        let has_joined = |id: &PartitionId| self.partition(*id).is_some_and(|partition| partition.synced);
        self.next.partitions_of(cluster).iter().copied().filter(has_joined).collect()
    }

    /// Combines the marks of these partitions and one that is taken out for writing.
    fn marks_with(&self, cluster: &ClusterName, partition: Option<&Partition>) -> ClusterMarks {
        let ids = self.next.partitions_of(cluster).iter();
        ClusterMarks::of(ids.filter_map(|id| self.partition(*id)).chain(partition))
    }
}
