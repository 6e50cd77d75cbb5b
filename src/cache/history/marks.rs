//! Marks of a partition or cluster: the resource versions that decide from where its readers can resume a watch.

use super::cluster::Floor;

/// Resource versions of a partition (one informer's objects) that decide from where its readers can resume a watch.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Marks {
    /// Resource version up to which the visible state is complete. Does not change while a list is published in parts.
    pub(crate) complete: Option<u64>,
    /// Resource version that readers may already have, e.g. from a list, or that the hub made up. Later changes must
    /// get greater versions, even while the partition is not yet complete up to this version.
    pub(crate) floor: Option<u64>,
    /// Greatest resource version of a recorded change of the partition.
    pub(crate) newest: Option<u64>,
    /// Greatest version of the cluster itself in a change since readers last had to list again. Readers may have it,
    /// also if the change has a made-up version.
    pub(crate) received: Option<u64>,
    /// Fleet version (change number over all clusters) and resource version of the last change that has both.
    pub(crate) latest: Option<(u64, u64)>,
    /// Versions that the hub makes up now; `None` if it uses the cluster's own versions.
    pub(crate) made_up: Option<MadeUpVersions>,
}

/// Versions that the hub makes up for the changes of a cluster, because readers may already have the next versions of
/// the cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MadeUpVersions {
    /// The first of them. Lower ones were made up before the hub last used the cluster's own versions: they have
    /// expired.
    pub(crate) from: u64,
    /// Resource version of the cluster from which the hub uses the cluster's own versions again.
    pub(crate) until: u64,
}

impl MadeUpVersions {
    /// Combines the made-up versions of two partitions of a cluster.
    pub(crate) fn merge(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(one), Some(other)) => {
                Some(Self { from: one.from.min(other.from), until: one.until.max(other.until) })
            }
            (one, other) => one.or(other),
        }
    }
}

/// Resource versions saved with a cluster's state, so that its readers can resume after a restart of the hub.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ClusterVersions {
    /// Resource version that a reader gets when it lists the saved objects. `None` if it is unknown.
    pub list: Option<u64>,
    /// Greatest resource version that readers may have; `None` if it is unknown. If the hub made up the version in
    /// `list`, this is instead the greatest version below all made-up versions.
    pub greatest: Option<u64>,
}

/// Marks (resource versions for readers) of a whole cluster, combined from all its partitions whose objects readers can
/// see.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct ClusterMarks {
    /// Resource version up to which all partitions (informers) of the cluster are complete.
    pub(crate) complete: Option<u64>,
    floor: Option<u64>,
    newest: Option<u64>,
    /// Greatest version of the cluster itself in a change since readers last had to list again.
    pub(crate) received: Option<u64>,
    latest: Option<(u64, u64)>,
    made_up: Option<MadeUpVersions>,
}

impl Marks {
    /// Creates the marks (resource versions for readers) of a partition without recorded changes.
    pub(crate) fn new(complete: Option<u64>, floor: Option<u64>) -> Self {
        Self { complete, floor, ..Self::default() }
    }

    /// Returns whether the hub must still make up versions for the cluster, because this partition is not yet complete
    /// up to the version from which the hub uses the cluster's own versions again.
    pub(crate) fn is_behind(&self) -> bool {
        self.made_up.is_some_and(|made_up| self.complete < Some(made_up.until))
    }

    /// Records a change by its fleet version (change number over all clusters) and the resource version that readers
    /// get.
    pub(crate) fn note(&mut self, fleet_version: u64, version: u64) {
        self.newest = self.newest.max(Some(version));
        self.latest = Some((fleet_version, version));
    }
}

impl ClusterMarks {
    /// Combines the marks (resource versions for readers) of the partitions whose objects readers can see.
    pub(crate) fn of<'p>(joined: impl Iterator<Item = &'p Marks>) -> Self {
        let with = |cluster: Option<Self>, marks: &Marks| {
            let Self { complete, floor, newest, received, latest, made_up } =
                cluster.unwrap_or(Self { complete: marks.complete, ..Self::default() });
            Some(Self {
                complete: complete.min(marks.complete),
                floor: floor.max(marks.floor),
                newest: newest.max(marks.newest),
                received: received.max(marks.received),
                latest: latest.max(marks.latest),
                made_up: MadeUpVersions::merge(made_up, marks.made_up),
            })
        };
        joined.fold(None, with).unwrap_or_default()
    }

    /// Returns the greatest resource version that readers may have received other than with a change, e.g. with a list.
    /// Later changes must get greater versions.
    pub(crate) fn base(&self) -> Option<u64> {
        self.complete.max(self.floor)
    }

    /// Returns the first of the versions that the hub makes up now; `None` if it uses the cluster's own versions.
    pub(crate) fn made_up_from(&self) -> Option<u64> {
        self.made_up.map(|made_up| made_up.from)
    }

    /// Returns the version from which a reader of this state resumes. This is the result of [`Self::base`], unless a
    /// change has at least that version. In that case, it is the version of the last change.
    pub(crate) fn version(&self) -> Option<u64> {
        let base = self.base();
        if base > self.newest { base } else { self.latest.map(|(_, version)| version) }
    }

    /// Returns the greatest resource version that readers of the cluster may have received.
    pub(crate) fn greatest(&self) -> Option<u64> {
        self.base().max(self.newest)
    }

    /// Returns the made-up versions of a cluster of which readers no longer have the present state, also if they have
    /// the newest versions of the cluster.
    pub(crate) fn made_up_after_break(&self) -> Option<MadeUpVersions> {
        let above = self.received.map_or(0, |received| received.saturating_add(1));
        self.made_up.map(|made_up| MadeUpVersions { until: made_up.until.max(above), ..made_up })
    }

    /// Returns a version that is greater than all versions that readers may have.
    pub(crate) fn fresh(&self) -> Option<u64> {
        self.greatest().map(|greatest| greatest.saturating_add(1))
    }

    /// Returns the resource versions to save with the cluster's state, so that readers can resume after a restart.
    pub(crate) fn versions(&self) -> ClusterVersions {
        // The hub makes up versions until the cluster's own ones exceed those that readers may have.
        let own = self.made_up.map(|made_up| made_up.until.saturating_sub(1));
        ClusterVersions { list: self.version(), greatest: own.or(self.greatest()) }
    }

    /// Returns the floor (lowest version to resume from) of a window of changes that starts with this state.
    pub(crate) fn as_floor(&self) -> Floor {
        self.greatest().map_or(Floor::UNKNOWN, |below| Floor { below, exact: self.version() })
    }

    /// Returns whether any recorded change has this version or a greater one.
    pub(crate) fn has_change_from(&self, version: u64) -> bool {
        self.newest >= Some(version)
    }

    /// Returns the greatest resource version that readers may already have when a partition with these `marks` changes.
    /// A change at or below this version would be missed, so it needs another version.
    pub(crate) fn base_of(&self, marks: &Marks) -> u64 {
        marks.complete.max(self.floor).unwrap_or(0)
    }
}
