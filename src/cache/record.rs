//! Records a store's changes in its history, from which watches of readers resume. Assigns the resource versions that
//! readers get.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashSet;

use super::history::{
    ChangeCause, ChangeKind, ClusterMarks, ClusterVersions, Conditions, Draft, Entry, Floor, HistoryLimits,
    HistoryReader, MADE_UP, MadeUpVersions, Marks, PartitionChange, PartitionChangeKind, RecordedChange, SavedVersion,
    Step, arrange,
};
use super::posting::PartitionId;
use super::snapshot::Partition;
use super::store::Store;
use super::versions::Before;
use informer_hub_types::clock::Instant;
use informer_hub_types::{ClusterName, Origin, ResourceVersion, StoredObject};

fn number(version: Option<&ResourceVersion>) -> Option<u64> {
    version.and_then(ResourceVersion::as_number)
}

impl Store {
    /// Sets the resource versions that the restored state had in the process that saved it. Readers of that process can
    /// then resume their watches. The store must hold exactly the saved state.
    ///
    /// The versions are dropped at the next change, or when [`Self::keep_history`] has used them.
    pub fn set_saved_version(&mut self, saved: SavedVersion, clusters: BTreeMap<ClusterName, ClusterVersions>) {
        self.saved_version = Some((saved, clusters));
    }

    /// Returns the version set by [`Self::set_saved_version`], unless a change followed.
    #[must_use]
    pub fn saved_version(&self) -> Option<SavedVersion> {
        self.saved_version.as_ref().map(|(saved, _)| *saved)
    }

    /// Starts to record recent changes and to count fleet versions (versions over all clusters). The present objects
    /// get the fleet version `base`, and later changes get greater ones. Call it once, before readers use versions.
    ///
    /// `base` should exceed the fleet versions of earlier processes, for example the present time in microseconds. If
    /// the saved fleet version is not less than `base`, counting starts at the version after it.
    pub fn keep_history(&mut self, limits: HistoryLimits, base: u64, now: Instant) {
        let (saved, clusters) = self.saved_version.take().unzip();
        let base = base.max(saved.map_or(0, |saved| saved.version.saturating_add(1)));
        let names: Vec<_> = self.next.joined_clusters().cloned().collect();
        let mut clusters = clusters.unwrap_or_default();
        let floors = names.into_iter().map(|name| {
            let floor = self.start_cluster(&name, clusters.remove(&name), base);
            (name, floor)
        });
        let floors = floors.collect();
        let history = HistoryReader::new(limits, base, now);
        self.next.version = base;
        history.restart(base, floors);
        history.set_saved(saved);
        self.next.history = Some(history);
        self.publish();
    }

    /// Prepares a restored cluster for recording, so that new changes get versions greater than all that readers may
    /// have. Returns the lowest version from which readers can resume. `saved` are the versions that were saved with
    /// the cluster's state.
    ///
    /// A restored object can be newer than the version from which the cluster's watch resumes, if it was delivered
    /// shortly before the process was killed. The watch then repeats changes that the store already has and ignores. In
    /// this case, readers of the earlier process must list again. The hub invents greater versions for this cluster
    /// until the watch has caught up.
    fn start_cluster(&mut self, name: &ClusterName, saved: Option<ClusterVersions>, base: u64) -> Floor {
        let (mut own, mut is_ahead) = (None, false);
        for id in self.joined(name) {
            let Some(partition) = self.next.partition(id) else { continue };
            partition.iter().for_each(|object| object.set_fleet_version(base));
            let (resume, newest) = (number(partition.resume.as_ref()), newest_of(partition));
            own = own.max(resume).max(newest);
            is_ahead |= newest > resume;
        }
        let made_up = saved.filter(|saved| saved.list >= Some(MADE_UP));
        let of_readers = saved.and_then(|saved| saved.greatest);
        let greatest = own.max(of_readers).max(made_up.and_then(|saved| saved.list));
        // With a single informer, the state is that of the version from which the informer resumes.
        let resumed = greatest.filter(|_| self.next.has_one_informer(name));
        let exact = saved.and_then(|saved| saved.list).or(resumed).filter(|_| !is_ahead);
        let next = |greatest: u64| if exact == Some(greatest) { greatest } else { greatest.saturating_add(1) };
        let floor = match greatest {
            Some(greatest) if is_ahead => Some(next(greatest).max(MADE_UP.saturating_add(base))),
            greatest => greatest.map(next),
        };
        // Older releases saved the greatest made-up version in `greatest`.
        let passed = made_up.and(of_readers).filter(|passed| *passed < MADE_UP).map(|passed| passed.saturating_add(1));
        let made_up = floor.filter(|floor| *floor >= MADE_UP).zip(own.max(passed));
        let made_up = made_up.map(|(from, until)| MadeUpVersions { from, until });
        self.mark_joined(name, |partition| Marks { made_up, ..Marks::new(number(partition.resume.as_ref()), floor) });
        if is_ahead {
            return Floor::at(floor);
        }
        greatest.map_or(Floor::UNKNOWN, |below| Floor { below, exact })
    }

    /// Ends the use of made-up versions for a cluster: changes get the apiserver's versions again. Readers must then
    /// list again, since they may have made-up versions.
    ///
    /// Does nothing while a partition of the cluster is not complete up to its [`MadeUpVersions::until`].
    fn return_to_own_versions(&mut self, partition: &mut Partition) {
        if partition.marks.made_up.is_none() || partition.marks.is_behind() {
            return;
        }
        let cluster = partition.origin().cluster.clone();
        if self.next.joined_partitions(&cluster).any(|(_, other)| other.marks.is_behind()) {
            return;
        }
        let others = self.next.joined_partitions(&cluster).map(|(_, other)| other.marks.complete);
        let complete = others.fold(partition.marks.complete, Ord::max);
        let mut floor = complete.max(self.marks_with(&cluster, partition).received);
        if self.next.joined_partitions(&cluster).next().is_some() {
            // A reader with the newest version may lack changes of a partition that lags behind.
            floor = floor.map(|greatest| greatest.saturating_add(1));
        }
        partition.marks = Marks::new(partition.marks.complete, floor);
        self.mark_joined(&cluster, |other| Marks::new(other.marks.complete, floor));
        self.cut(cluster, floor, false);
    }

    /// Sets the marks of all visible partitions of a cluster: the versions that decide from where readers can resume.
    /// Skips the partition that is being written, because it is not in the store meanwhile.
    fn mark_joined(&mut self, cluster: &ClusterName, marks_of: impl Fn(&Partition) -> Marks) {
        for id in self.joined(cluster) {
            let Some(mut partition) = self.next.take(id) else { continue };
            partition.marks = marks_of(&partition);
            self.next.put(id, partition);
        }
    }

    /// Returns the store's recent changes, for reading; `None` if the store records none.
    #[must_use]
    pub fn history(&self) -> Option<&HistoryReader> {
        self.next.history()
    }

    /// Sets the time of the changes recorded from now on.
    pub fn set_time(&mut self, now: Instant) {
        if let Some(history) = self.next.history() {
            history.set_time(now);
        }
    }

    /// Drops the oldest recorded changes beyond the limits of age and bytes. Returns whether any are left.
    pub fn trim_history(&mut self, now: Instant) -> bool {
        self.history().is_some_and(|history| history.trim(now))
    }

    /// Sets whether memory is short. If so, only an eighth of the byte limit on recent changes is used.
    pub fn set_history_tight(&mut self, tight: bool) {
        if let Some(history) = self.next.history() {
            history.set_tight(tight);
        }
    }

    /// Returns whether changes are recorded.
    pub(super) fn records(&self) -> bool {
        self.next.history.is_some()
    }

    /// Publishes the next snapshot with the changes recorded for it.
    pub(super) fn publish(&mut self) {
        self.saved_version = None;
        let steps = std::mem::take(&mut self.pending.0);
        let history = self.next.history().filter(|_| !steps.is_empty());
        let cells = history.map(|history| history.append(steps));
        self.published.store(Arc::new(self.next.clone()));
        if let (Some(history), Some(cells)) = (history, cells) {
            history.publish(self.next.version, cells);
        }
    }

    /// Records the changes (`drafts`) that a batch has made to `partition`, which is being written. `list` is the
    /// resource version of the list that ended within the batch, if any.
    pub(super) fn record_batch(
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
        let (listed, complete) = (number(list), number(partition.resume.as_ref()));
        if !before.had_joined {
            return self.record_join(id, partition, complete.or(listed));
        }
        self.record_changes(id, partition, drafts, listed);
        if let Some(listed) = listed {
            self.record_list_end(partition, listed, before);
        }
        if let Some(complete) = complete.or(listed) {
            partition.marks.complete = Some(complete);
        }
        self.return_to_own_versions(partition);
    }

    fn record_changes(&mut self, id: PartitionId, partition: &mut Partition, drafts: Vec<Draft>, list: Option<u64>) {
        if drafts.is_empty() {
            return;
        }
        let cluster = partition.origin().cluster.clone();
        let marks = self.marks_with(&cluster, partition);
        let base = marks.base_of(&partition.marks);
        let has_missed = drafts.iter().any(Draft::is_missed);
        // With other partitions, a deletion could get the version of one of their later changes, which is still
        // unknown.
        let may_guess = has_missed && self.next.joined_partitions(&cluster).next().is_none();
        let used = may_guess.then(|| self.used_versions(&cluster, partition, &drafts));
        for (draft, version) in arrange(drafts, Conditions { list, base, used }) {
            let is_used = |version| marks.has_change_from(version) && self.has_used(&cluster, version);
            let is_own = |version: &u64| Some(*version) > partition.marks.floor && !is_used(*version);
            let received = draft.received();
            let is_back = received <= partition.marks.received;
            partition.marks.received = received.max(partition.marks.received);
            let version = version.filter(is_own).or_else(|| {
                // The change has no usable version: readers at this or a later version would miss the change, and of
                // two changes with one version, one would be missed. The made-up one is above the version in the
                // object, since readers may also resume from that.
                self.make_up(partition, received);
                if is_back {
                    // The cluster may use versions again, as after a restore of etcd. A change without a version does
                    // not show whether it does.
                    partition.marks.made_up = self.marks_with(&cluster, partition).made_up_after_break();
                }
                partition.marks.floor
            });
            self.record_change(id, partition, draft, version);
        }
    }

    /// Returns whether a published change of the cluster has this version.
    fn has_used(&self, cluster: &ClusterName, version: u64) -> bool {
        self.history().is_some_and(|history| history.has_used(cluster, version))
    }

    /// Returns the resource versions that are in use, so that the hub can give an unused one to a deletion that the
    /// watch missed. In use are the versions of recorded changes and of the partition's objects.
    ///
    /// Object versions that come from the changes in `drafts` are left out, since these changes are not recorded yet.
    fn used_versions(&self, cluster: &ClusterName, partition: &Partition, drafts: &[Draft]) -> HashSet<u64> {
        let received: HashSet<_> = drafts.iter().filter_map(Draft::received).collect();
        let changes = self.history().into_iter().flat_map(|history| history.versions_of(cluster));
        let objects = partition.iter().filter_map(|it| it.resource_version().as_number());
        changes.chain(objects.filter(|version| !received.contains(version))).collect()
    }

    fn record_change(
        &mut self,
        id: PartitionId,
        partition: &mut Partition,
        draft: Draft,
        cluster_version: Option<u64>,
    ) {
        self.next.version += 1;
        let version = self.next.version;
        let cause = if draft.is_tombstone { ChangeCause::Missed } else { ChangeCause::Object };
        let Draft { kind, object, old, .. } = draft;
        let mut bytes = object.plain_size();
        if kind == ChangeKind::Deleted {
            let stored = old.as_ref().filter(|stored| !Arc::ptr_eq(stored, &object));
            bytes += stored.map_or(0, |stored| stored.plain_size());
        } else {
            object.set_fleet_version(version);
            // A partition without bodies stores a copy of the object, which needs the version too.
            let stored = partition.get(object.key()).filter(|stored| is_same_state(stored, &object));
            stored.inspect(|stored| stored.set_fleet_version(version));
        }
        if let Some(cluster_version) = cluster_version {
            partition.marks.note(version, cluster_version);
        }
        let origin = Arc::clone(partition.origin());
        let cluster = origin.cluster.clone();
        let Some(at) = self.history().map(HistoryReader::time) else { return };
        let change = RecordedChange { version, partition: id, origin, kind, object, old, cluster_version, at, cause };
        self.step(cluster, Step::Push { entry: Entry::Change(Arc::new(change)), bytes });
    }

    /// Records the end of a list with version `list`. All readers of the cluster must list again in two cases: the
    /// partition was complete up to a greater version before, or the resource or its CRD changed.
    fn record_list_end(&mut self, partition: &mut Partition, list: u64, before: Before) {
        let cluster = partition.origin().cluster.clone();
        let continued = partition.marks.complete.filter(|complete| list >= *complete);
        if let Some(from) = continued.filter(|_| !before.was_converted) {
            if list - from > 1 {
                self.record_skip(partition, from, list);
            }
            return;
        }
        // After a list that went back, the apiserver may use versions again, for other states than readers have seen.
        self.make_up(partition, Some(list));
        let made_up = self.marks_with(&cluster, partition).made_up_after_break();
        let floor = partition.marks.floor;
        partition.marks = Marks { made_up, ..Marks::new(Some(list), floor) };
        self.mark_joined(&cluster, |other| {
            let Marks { complete, made_up, .. } = other.marks;
            Marks { made_up, ..Marks::new(complete, complete) }
        });
        self.cut(cluster, floor, false);
    }

    /// Records that a list jumped from version `from` to version `to` without the changes in between. Readers cannot
    /// resume from a version in between.
    fn record_skip(&mut self, partition: &mut Partition, from: u64, to: u64) {
        let cluster = partition.origin().cluster.clone();
        // New readers must not start between the two versions either, though other partitions may not be complete up to
        // `to`.
        if self.next.joined_partitions(&cluster).next().is_some() {
            partition.marks.floor = partition.marks.floor.max(Some(to));
        }
        let marks = self.marks_with(&cluster, partition);
        if marks.version().is_some_and(|version| from < version && version < to) {
            self.make_up(partition, Some(to));
        }
        self.step(cluster, Step::Skip { from, to, at: self.next.version });
    }

    /// Records that a partition moved here from another store: its objects are visible from now on.
    pub(super) fn record_adoption(&mut self, id: PartitionId) {
        let Some(mut adopted) = self.next.take(id) else { return };
        let complete = number(adopted.resume.as_ref()).or(adopted.marks.complete);
        self.record_join(id, &mut adopted, complete);
        self.next.put(id, adopted);
    }

    /// Records that readers see the objects of `partition`, which is being written, from now on. `complete` is the
    /// version up to which it has all changes. Does nothing before the first list of the partition is complete.
    pub(super) fn record_join(&mut self, id: PartitionId, partition: &mut Partition, complete: Option<u64>) {
        if !self.records() || !partition.synced {
            return;
        }
        let cluster = partition.origin().cluster.clone();
        let others = self.next.cluster_marks(&cluster);
        let first = self.next.version + 1;
        for (object, version) in partition.iter().zip(first..) {
            object.set_fleet_version(version);
        }
        self.record_all(id, partition, PartitionChangeKind::Joined, 0);
        // Versions that readers received before the join must not be valid after it.
        let ahead = newest_of(partition).filter(|newest| complete.is_some_and(|complete| *newest > complete));
        let floor = others.fresh().max(complete).max(ahead.map(|ahead| ahead.saturating_add(1)));
        partition.marks = Marks::new(complete, floor);
        self.cut(cluster, floor, false);
    }

    /// Records that a partition is removed, with all its objects. Must be called before the partition is closed.
    pub(super) fn record_leave(&mut self, id: PartitionId) {
        if !self.records() || self.partition(id).is_none_or(|partition| !partition.synced) {
            return;
        }
        let Some(partition) = self.next.take(id) else { return };
        let cluster = partition.origin().cluster.clone();
        let marks = self.marks_with(&cluster, &partition);
        let floor = marks.fresh();
        let bytes = usize::try_from(partition.body_bytes()).unwrap_or(usize::MAX);
        self.record_all(id, &partition, PartitionChangeKind::Left, bytes);
        let others = self.joined(&cluster);
        if let Some((heir, mut other)) = others.first().and_then(|heir| Some((*heir, self.next.take(*heir)?))) {
            other.marks.floor = floor;
            other.marks.made_up = marks.made_up_after_break();
            self.next.put(heir, other);
        }
        self.cut(cluster, floor, others.is_empty());
        self.next.put(id, partition);
    }

    /// Records that the cluster labels of a partition's informer have changed. Must be called after the change;
    /// `before` has the former labels.
    pub(super) fn record_relabel(&mut self, id: PartitionId, before: Arc<Origin>) {
        let Some(partition) = self.partition(id).filter(|partition| partition.synced && self.records()) else { return };
        if partition.origin().cluster_labels == before.cluster_labels {
            return;
        }
        let partition = partition.clone();
        self.record_all(id, &partition, PartitionChangeKind::Relabelled(before), 0);
    }

    /// Records a change of a whole partition, such as its removal, as one entry. The change uses one fleet version
    /// (change number over all clusters) per object, and at least one.
    fn record_all(&mut self, id: PartitionId, partition: &Partition, kind: PartitionChangeKind, bytes: usize) {
        let first = self.next.version + 1;
        self.next.version += partition.len().max(1) as u64;
        let (origin, objects, last) = (Arc::clone(partition.origin()), partition.objects.clone(), self.next.version);
        let cluster = origin.cluster.clone();
        let Some(at) = self.history().map(HistoryReader::time) else { return };
        let change = PartitionChange { first, last, partition: id, kind, origin, objects, at };
        self.step(cluster, Step::Push { entry: Entry::Partition(Arc::new(change)), bytes });
    }

    /// Makes all readers of a cluster list again, except readers whose version is `floor`. `has_left` is true if the
    /// cluster's last partition was removed.
    fn cut(&mut self, cluster: ClusterName, floor: Option<u64>, has_left: bool) {
        self.step(cluster, Step::Cut { at: self.next.version, floor: Floor::at(floor), has_left });
    }

    fn step(&mut self, cluster: ClusterName, step: Step) {
        self.pending.0.push((cluster, step));
    }

    /// Makes up a resource version that is greater than `received` and than all versions that readers may have. Stores
    /// it in the partition as the greatest version given to readers.
    ///
    /// If the cluster has no other partition, the made-up version is at least `MADE_UP`, far above all versions of an
    /// apiserver. Later processes thereby recognize it. The hub returns to versions of the apiserver once they exceed
    /// every version of the apiserver that readers may have.
    ///
    /// With several partitions, the made-up version is only the next greater number. A far greater one could stay in
    /// use forever: to end it, all partitions must be complete up to one version at the same time.
    fn make_up(&mut self, partition: &mut Partition, received: Option<u64>) {
        let cluster = partition.origin().cluster.clone();
        let Some(greatest) = self.marks_with(&cluster, partition).greatest().max(received) else { return };
        let mut made_up = greatest.saturating_add(1);
        if self.joined(&cluster).is_empty() {
            let least = MADE_UP.saturating_add(self.next.version).max(self.next.made_up.saturating_add(1));
            let until = made_up;
            made_up = made_up.max(least);
            if until < MADE_UP {
                partition.marks.made_up = Some(MadeUpVersions { from: made_up, until });
            }
            self.next.made_up = made_up;
        }
        partition.marks.floor = Some(made_up);
    }

    /// Returns the visible partitions of a cluster, except for the one that is being written.
    fn joined(&self, cluster: &ClusterName) -> Vec<PartitionId> {
        self.next.joined_partitions(cluster).map(|(id, _)| id).collect()
    }

    /// Combines the marks of all visible partitions of a cluster and of `partition`, which is being written. Marks are
    /// the versions that decide from where readers can resume.
    fn marks_with(&self, cluster: &ClusterName, partition: &Partition) -> ClusterMarks {
        let partition = Some(&partition.marks).filter(|_| partition.has_synced());
        ClusterMarks::of(self.next.joined_partitions(cluster).map(|(_, other)| &other.marks).chain(partition))
    }
}

/// Returns the greatest resource version of the objects in a partition; `None` if no version is a number.
fn newest_of(partition: &Partition) -> Option<u64> {
    partition.iter().filter_map(|object| object.resource_version().as_number()).max()
}

fn is_same_state(one: &StoredObject, other: &StoredObject) -> bool {
    one.uid() == other.uid() && one.resource_version() == other.resource_version()
}
