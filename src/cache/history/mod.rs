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
//! version of its object; a deletion has that of its event.
//!
//! A relist may find a deletion that has no event. It gets an unused version between the last complete version before
//! the list and the version of the list. Such a version exists, because the deletion itself had one. If the cluster has
//! several joined partitions, this is not possible, because the versions of their later changes are unknown. The
//! deletion then gets a version that the hub makes up.
//!
//! - The version of a change leads to the position after it.
//! - Any other version leads to the position before the first change with a greater version. A list has such a version
//!   only if it is greater than that of each change. Otherwise, the list has the version of the last change
//!   ([`Snapshot::cluster_version`]).
//! - A change at or below a version that readers may have would be missed. It gets a made-up version, above all that
//!   readers may have. If a reader resumes from the version in the change's object instead, it may read the change
//!   again.
//! - With one joined partition, made-up versions are far above those of the cluster: a reader that has one must list
//!   after a restart. Once the cluster's own versions exceed those that readers have from the cluster, they are used
//!   again, and readers must list. With several partitions, a made-up version is one above all that readers may have.
//! - No two changes have the same version. After a restore of etcd, one partition may still process changes from before
//!   the restore when another has later ones. Of two changes with the same version, the second gets a made-up one.
//! - Readers of the cluster expire (must list again) if a partition joins or leaves, or if a list has a lower version
//!   than before. The latter happens after a restore of etcd, which uses versions again for other states. Therefore,
//!   later versions are greater than all that readers may have.
//! - In a new process, a restored cluster starts above all versions that readers may have. A reader can resume only if
//!   it has the version of a list of the saved state, and the whole resource was saved at once.
//!
//! Changes of one partition are in the order of versions, as its queue is. Those of several partitions are not: one
//! informer may lag behind another.
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
pub(crate) use marks::{ClusterMarks, Marks};
pub(crate) use window::{Entry, Pending, Step};
