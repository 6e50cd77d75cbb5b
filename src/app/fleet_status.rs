//! Status of the process in its fleet.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use serde::Serialize;

use informer_hub_telemetry::metrics::{Id, LabelSet, Snapshot};
use informer_hub_types::ClusterName;

/// Status of a process that shares clusters with others.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct FleetStatus {
    /// Name of the process in the fleet.
    pub process: String,
    /// Role of the process: `collect`, or `serve` for the roles serve and deliver.
    pub role: &'static str,
    /// Whether NATS answered the last requests.
    pub connected: bool,
    /// Why NATS has not answered the last requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Number of clusters and shards that this process owns; zero in a serving process.
    pub owned: usize,
    /// Number of times that this process became the owner of a cluster or shard.
    pub acquired: u64,
    /// Number of times that this process lost the ownership of a cluster or shard to another process.
    pub lost: u64,
    /// Number of times that this process handed a cluster or shard over, to balance the load or because the operator
    /// moved it.
    pub moved: u64,
    /// Bytes of changes that the fleet's log has not stored yet.
    pub queued_bytes: u64,
    /// Seconds for which the oldest change has waited to be stored in the fleet's log; zero if none waits.
    pub oldest_append_seconds: f64,
    /// Clusters of the configuration and of cluster sources, by name. A cluster that is divided into shards has an
    /// entry for each shard.
    pub clusters: Vec<FleetCluster>,
}

/// A cluster or shard with its owner, as this process last read it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct FleetCluster {
    /// Name of the cluster.
    pub name: ClusterName,
    /// Name of the shard. Absent for an undivided cluster, and for the part of a divided cluster that no rule assigns
    /// to a named shard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard: Option<String>,
    /// Process that owns the cluster or shard; absent if none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Epoch (number of the term) of the last owner; zero if there never was one.
    pub epoch: u64,
    /// Whether this process is the owner.
    pub own: bool,
    /// Weight of the cluster, from its objects and events. Collectors share clusters by weight; zero if unknown.
    pub weight: u64,
    /// In a serving process, the time since which the cached objects of this cluster may be outdated; absent if they
    /// are current.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stale_since: Option<jiff::Timestamp>,
    /// In a serving process, why the cached objects of this cluster may be outdated; absent if they are current.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stale_reason: Option<String>,
}

impl FleetStatus {
    /// Returns whether the hub is not ready yet, because it knows of no present or past owner of any of its clusters.
    /// This applies to a serving process, and to every process while NATS does not answer. Returns false without
    /// clusters.
    pub(super) fn is_waiting(&self) -> bool {
        let has_owners = self.clusters.is_empty() || self.clusters.iter().any(|cluster| cluster.epoch > 0);
        !has_owners && (!self.connected || self.role == "serve")
    }

    /// Returns the number of clusters that have at least one entry for which `is_counted` returns true. An entry stands
    /// for an undivided cluster or for one shard.
    fn count(&self, is_counted: impl Fn(&FleetCluster) -> bool) -> u64 {
        let counted = self.clusters.iter().filter(|cluster| is_counted(cluster));
        counted.map(|cluster| &cluster.name).collect::<BTreeSet<_>>().len() as u64
    }

    pub(super) fn put(&self, out: &mut Snapshot) {
        out.flag(Id::FleetConnected, LabelSet::NONE, self.connected);
        out.count(Id::FleetUnowned, LabelSet::NONE, self.count(|cluster| cluster.owner.is_none()));
        if self.role == "serve" {
            out.count(Id::FleetServed, LabelSet::NONE, self.count(|_| true));
            out.count(Id::FleetStale, LabelSet::NONE, self.count(|cluster| cluster.stale_since.is_some()));
            return;
        }
        out.count(Id::FleetOwned, LabelSet::NONE, self.count(|cluster| cluster.own));
        out.count(Id::FleetAcquired, LabelSet::NONE, self.acquired);
        out.count(Id::FleetLost, LabelSet::NONE, self.lost);
        out.count(Id::FleetMoved, LabelSet::NONE, self.moved);
        out.count(Id::FleetQueued, LabelSet::NONE, self.queued_bytes);
        out.put(Id::FleetOldest, LabelSet::NONE, self.oldest_append_seconds);
        for cluster in self.clusters.iter().filter(|cluster| cluster.own) {
            let shard = cluster.shard.as_deref().unwrap_or_default();
            let labels = out.labels(&[("cluster", cluster.name.as_str()), ("shard", shard)]);
            out.count(Id::FleetEpoch, labels, cluster.epoch);
            out.count(Id::FleetWeight, labels, cluster.weight);
        }
    }
}

/// Function that returns the status; `None` once the hub has ended.
type ReadStatus = Box<dyn Fn() -> Option<FleetStatus> + Send + Sync>;

/// Shared function that reads the status of the process in its fleet; unset without a fleet.
#[derive(Clone, Default)]
pub(super) struct SharedFleetStatus(Arc<OnceLock<ReadStatus>>);

impl SharedFleetStatus {
    /// Sets the function that reads the status, once.
    #[cfg(feature = "fleet")]
    pub(super) fn set(&self, read: impl Fn() -> Option<FleetStatus> + Send + Sync + 'static) {
        let _ = self.0.set(Box::new(read));
    }

    pub(super) fn read(&self) -> Option<FleetStatus> {
        self.0.get().and_then(|read| read())
    }
}

#[cfg(test)]
mod tests {
    use informer_hub_types::clock;

    use super::*;

    fn cluster(name: &str, owner: Option<&str>, is_stale: bool) -> FleetCluster {
        FleetCluster {
            name: ClusterName::new(name).unwrap(),
            shard: None,
            owner: owner.map(str::to_owned),
            epoch: 1,
            own: false,
            weight: 0,
            stale_since: is_stale.then(clock::wall),
            stale_reason: None,
        }
    }

    #[test]
    fn serving_process_waits_for_a_collector_and_a_collector_for_nats() {
        let never_owned = FleetCluster { epoch: 0, ..cluster("a", None, false) };
        let is_waiting = |role, connected, clusters: &[FleetCluster]| {
            FleetStatus { role, connected, clusters: clusters.to_vec(), ..FleetStatus::default() }.is_waiting()
        };
        let nothing = [never_owned.clone()];
        assert!(is_waiting("serve", true, &nothing) && is_waiting("serve", false, &nothing));
        assert!(!is_waiting("collect", true, &nothing) && is_waiting("collect", false, &nothing));
        let without_owner = [never_owned, cluster("b", None, true)];
        assert!(!is_waiting("serve", true, &without_owner), "the log has objects");
        assert!(!is_waiting("serve", true, &[]), "no cluster is configured");
    }

    #[test]
    fn divided_cluster_counts_as_one() {
        let shard = |name: &str, own: bool| {
            let (owner, is_stale) = (own.then_some("x"), !own);
            FleetCluster { shard: Some(name.to_owned()), own, ..cluster("a", owner, is_stale) }
        };
        let own = FleetCluster { own: true, ..cluster("b", Some("x"), true) };
        let clusters = vec![shard("pods", true), shard("events", true), shard("nodes", false), own];
        let values = |role, ids: &[Id]| {
            let mut out = Snapshot::new(clock::wall());
            FleetStatus { role, owned: 3, clusters: clusters.clone(), ..FleetStatus::default() }.put(&mut out);
            ids.iter().map(|id| out.value(*id, &[])).collect::<Vec<_>>()
        };
        assert_eq!(values("collect", &[Id::FleetOwned, Id::FleetUnowned]), [Some(2.0), Some(1.0)]);
        assert_eq!(values("serve", &[Id::FleetServed, Id::FleetStale]), [Some(2.0), Some(2.0)]);
    }

    #[test]
    fn clusters_without_an_owner_are_counted_in_both_roles() {
        let clusters = vec![cluster("a", Some("x"), false), cluster("b", None, true), cluster("c", None, false)];
        for (role, stale) in [("collect", None), ("serve", Some(1.0))] {
            let mut out = Snapshot::new(clock::wall());
            FleetStatus { role, clusters: clusters.clone(), ..FleetStatus::default() }.put(&mut out);
            assert_eq!(out.value(Id::FleetUnowned, &[]), Some(2.0), "{role}");
            assert_eq!(out.value(Id::FleetStale, &[]), stale, "{role}");
        }
    }
}
