//! Resource versions below a URL root: computes the version of a snapshot, and waits until the hub has reached a
//! version.

use std::sync::Arc;
use std::time::Duration;

use super::scope::{Clusters, Scope};
use crate::cache::{MADE_UP, Snapshot};
use informer_hub_kubeapi::Status;
use informer_hub_types::clock;

/// How long a request waits for a version that the hub has not reached yet, as kube-apiserver does.
const WAIT: Duration = Duration::from_secs(3);

/// Interval at which a waiting request checks the version again. Necessary because a bookmark from a cluster advances
/// the version without waking the request.
const POLL: Duration = Duration::from_millis(50);

impl Scope {
    /// Returns the resource version of a snapshot. At a URL root of one cluster, this is the cluster's version; at
    /// other roots, it is the hub's own. `None` if no informer of the one cluster has synced, or its versions are not
    /// integers.
    pub(super) fn version(&self, snapshot: &Snapshot) -> Option<u64> {
        if self.naming.is_fleet() { Some(snapshot.version()) } else { self.cluster_version(snapshot) }
    }

    /// Returns the resource version of a snapshot; fails if it has none.
    ///
    /// # Errors
    /// [`Status`] of code 503 if no informer of the cluster has synced, or its versions are not integers.
    pub(super) fn known_version(&self, snapshot: &Snapshot) -> Result<u64, Status> {
        self.version(snapshot).ok_or_else(|| {
            let text = "the hub cannot order the cluster's resource versions: no resource has synced yet, or the versions are not integers";
            Status::service_unavailable(text)
        })
    }

    /// Returns the cluster's resource version at a URL root of one cluster. `None` at other roots, and if the version
    /// is unknown.
    pub(super) fn cluster_version(&self, snapshot: &Snapshot) -> Option<u64> {
        match &self.clusters {
            Clusters::One(cluster) => snapshot.cluster_version(cluster),
            Clusters::Matching(_) => None,
        }
    }

    /// Returns the version up to which a snapshot has all changes; `None` if it is unknown.
    ///
    /// At a URL root of one cluster, this version may be less than [`Self::version`]. After a kill and restart, for
    /// example, readers get a version that the hub has made up, which is greater than all earlier ones.
    fn complete_version(&self, snapshot: &Snapshot) -> Option<u64> {
        match &self.clusters {
            Clusters::One(cluster) => snapshot.cluster_complete(cluster),
            Clusters::Matching(_) => Some(snapshot.version()),
        }
    }

    /// Waits until the present snapshot has all changes up to the version `wanted`, and returns it.
    ///
    /// # Errors
    /// [`Status`] of code 504 after three seconds, as in kube-apiserver. [`Status`] of code 410 if `wanted` is a
    /// version that an earlier process of the hub made up: the cluster itself never reaches it.
    pub(super) async fn not_older_than(&self, wanted: u64) -> Result<Arc<Snapshot>, Status> {
        if matches!(self.clusters, Clusters::One(_)) && wanted >= MADE_UP {
            // This process or an earlier one has made up such a version, so the cluster itself will never reach it.
            let snapshot = self.snapshot();
            let is_own = self.version(&snapshot).is_some_and(|version| version >= wanted);
            return if is_own { Ok(snapshot) } else { Err(Status::watch_expired(wanted, 0)) };
        }
        self.wait_for(wanted, Self::complete_version).await
    }

    /// Waits until [`Self::version`], which readers see as the resource version, is at least `version`. Returns the
    /// present snapshot.
    ///
    /// # Errors
    /// [`Status`] of code 504 after three seconds.
    pub(super) async fn reached(&self, version: u64) -> Result<Arc<Snapshot>, Status> {
        self.wait_for(version, Self::version).await
    }

    async fn wait_for(
        &self,
        wanted: u64,
        version_of: impl Fn(&Self, &Snapshot) -> Option<u64>,
    ) -> Result<Arc<Snapshot>, Status> {
        let until = clock::now() + WAIT;
        let mut changed = self.cache.history.subscribe(&self.changes());
        loop {
            let snapshot = self.snapshot();
            let current = version_of(self, &snapshot).unwrap_or_default();
            if current >= wanted {
                return Ok(snapshot);
            }
            let now = clock::now();
            if now >= until {
                return Err(Status::version_too_large(wanted, current));
            }
            let _ = tokio::time::timeout_at(until.min(now + POLL), changed.changed()).await;
        }
    }
}
