//! Fleet versions and the window of recent changes, for readers that list and then watch.
//!
//! Each visible change of a store has a *fleet version*: the version of the previous change plus one. A snapshot has
//! the version of its last change, and each object the version of its own last change. The window keeps recent changes,
//! so that a watch can resume after any of their versions. A store without a window counts no versions.
//!
//! # What is a change
//!
//! - An object is added, modified or deleted in a partition whose first list is complete.
//! - A partition joins (becomes visible) with its first list, or from disk. Each of its objects is one added object, in
//!   the order of keys.
//! - A partition leaves. Each of its objects is one deleted object, in the order of keys.
//! - The labels of a cluster change. For readers that select clusters by labels, its objects are added or deleted.
//!
//! A relist is recorded by its differences. A repeated object and a restored body are no changes.
//!
//! # Versions of a cluster
//!
//! Readers of one cluster resume by the cluster's own resource versions ([`HistoryReader::locate`]). A change has the
//! version of its object; a deletion has the version of its watch event.
//!
//! A relist may find a deletion that has no watch event. The hub gives this deletion an unused version between the last
//! complete version before the list and the version of the list. An unused version exists, because the cluster gave the
//! deletion a version of its own. If the cluster has several joined partitions, this version could be that of a later
//! change of another partition. The deletion then gets a version that the hub makes up.
//!
//! - A reader that has the version of a change continues after that change.
//! - A reader that has any other version continues before the first change with a greater version.
//! - A list has the version up to which the state is complete, if that is above the versions of all changes. Otherwise,
//!   it has the version of the last change ([`Snapshot::cluster_version`]).
//! - A reader would miss a change whose version is not above its own. Such a change gets a made-up version, above all
//!   versions that readers may have. A reader that resumes from the version in the object instead may read the change
//!   again.
//! - With one joined partition, made-up versions are far above those of the cluster. After a restart of the hub, a
//!   reader that has such a version must list. The hub uses the cluster's versions again once they exceed all of them
//!   that readers may have. Readers must then list, too.
//! - With several joined partitions, a made-up version is the next number above all versions that readers may have.
//! - No two changes have the same version. If the version of a change is already used, the change gets a made-up one.
//!   This happens after a restore of etcd, if one partition is still at changes from before the restore.
//! - Readers of the cluster expire (must list again) if a partition joins or leaves, or if a list has a lower version
//!   than before. A lower version means that etcd was restored, and uses versions again for other states. Later changes
//!   therefore get versions above all that readers may have.
//! - In a new process, a restored cluster starts above all versions that readers may have. A reader can resume only if
//!   it has the version of a list of the saved state, and the whole resource was saved at once.
//!
//! Changes that a partition's watch reports are in the order of versions, as its queue is. Those of a list are not, nor
//! those of several partitions: one informer may lag behind another.
//!
//! [`Snapshot::cluster_version`]: super::Snapshot::cluster_version

mod arrange;
mod change;
mod cluster;
mod draft;
mod marks;
mod reader;
mod window;

pub use change::{ChangeCause, ChangeKind, RecordedChange};
pub use cluster::LocateError;
pub use marks::ClusterVersions;
pub use reader::{HistoryCursor, HistoryReader, HistoryScope, HistorySubscription, PositionExpired};
pub use window::{HistoryLimits, SavedVersion};

pub(crate) use arrange::{Conditions, arrange};
pub(crate) use change::{PartitionChange, PartitionChangeKind};
pub(crate) use cluster::Floor;
pub use cluster::MADE_UP;
pub(crate) use draft::Draft;
pub(crate) use marks::{ClusterMarks, MadeUpVersions, Marks};
pub(crate) use window::{Entry, Pending, Step};
