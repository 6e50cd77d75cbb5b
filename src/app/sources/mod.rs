//! Running cluster sources: their watchers, their last reports, their status.
//!
//! A watcher reads its source and publishes a complete report ([`SourceFeed::publish`]). The hub applies the difference
//! to the clusters, one report at a time. A report stays in force until the next one. A source that cannot be read
//! publishes nothing, so its clusters stay.

mod feed;
mod folder;
mod management;
mod set;
mod status;

pub(super) use feed::{SourceFeed, SourceHost};
pub(crate) use folder::read_all as read_folder;
pub(super) use management::WatchParams;
pub(crate) use management::{WatchedResource, cluster as management_cluster, read as read_objects, watched_resources};
pub(super) use set::Sources;
pub use status::{ClusterSourceState, ClusterSourceStatus};
