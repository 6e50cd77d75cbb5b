//! Types and parser of `[ha]`, the leader election.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::clusters::KnownClusters;
use super::error::suggestion;
use super::table::Table;
use super::{ClusterAccess, ClusterConfig, HumanDuration};
use informer_hub_types::{ClusterName, is_dns_label};

/// Bounds of `lease_duration`.
pub(super) const LEASE_DURATION: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(300);
pub(super) const WITHIN_LEASE: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(300);

/// `[ha]`: leader election of several replicas. Only the leader delivers to sinks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HaConfig {
    /// Lease for which the replicas compete.
    pub lease: LeaseConfig,
    /// Name of this replica. Default: the host name. A random suffix is added to make it unique.
    pub identity: Option<String>,
    /// How long a lease must be unchanged before another replica takes it. Default 10 s.
    pub lease_duration: Duration,
    /// How long the leader continues to deliver after it last renewed the lease. Default 7 s.
    pub renew_deadline: Duration,
    /// Longest time between two requests for the lease. Default 2 s.
    pub retry_period: Duration,
}

/// `[ha.lease]`: the `Lease` object for which the replicas compete.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseConfig {
    /// Cluster of `[clusters]` that holds the lease. `None` is the cluster of the hub's pod.
    pub cluster: Option<ClusterName>,
    /// Namespace of the lease.
    pub namespace: String,
    /// Name of the lease. Default `informer-hub`.
    pub name: String,
}

impl LeaseConfig {
    /// Creates a lease `informer-hub` in the cluster of the hub's pod.
    #[must_use]
    pub fn new(namespace: impl Into<String>) -> Self {
        Self { cluster: None, namespace: namespace.into(), name: "informer-hub".to_owned() }
    }
}

impl HaConfig {
    /// Returns whether the lease is in this cluster. Without `lease.cluster`, it is in the cluster of the hub's pod.
    #[must_use]
    pub fn is_lease_in(&self, cluster: &ClusterConfig) -> bool {
        match &self.lease.cluster {
            Some(name) => cluster.name == *name,
            None => cluster.access == ClusterAccess::InCluster,
        }
    }

    /// Creates an election with the default durations.
    #[must_use]
    pub fn new(lease: LeaseConfig) -> Self {
        Self {
            lease,
            identity: None,
            lease_duration: Duration::from_secs(10),
            renew_deadline: Duration::from_secs(7),
            retry_period: Duration::from_secs(2),
        }
    }
}

pub(super) fn ha(mut table: Table<'_>, known: KnownClusters<'_>) -> HaConfig {
    if table.lacks(&["lease"]) {
        table.checker.mistake(&table.path, "has no lease; write lease = { namespace = \"informer-hub\" }");
    }
    let lease = table.table("lease").map(|table| lease(table, known));
    let identity = table.text("identity");
    let lease_duration = table.duration("lease_duration", LEASE_DURATION);
    let renew_deadline = table.duration("renew_deadline", WITHIN_LEASE);
    let retry_period = table.duration("retry_period", WITHIN_LEASE);
    // If the lease is missing, that has been reported, and this substitute without a namespace is never used.
    let default = HaConfig::new(lease.unwrap_or_else(|| LeaseConfig::new("")));
    let config = HaConfig {
        identity,
        lease_duration: lease_duration.unwrap_or(default.lease_duration),
        renew_deadline: renew_deadline.unwrap_or(default.renew_deadline),
        retry_period: retry_period.unwrap_or(default.retry_period),
        ..default
    };
    let is_too_long = |part: Duration, of: Duration, tenths: u32| part * 10 > of * tenths;
    let long = |table: &Table<'_>, key: &str, is: Duration, share: &str, of: Duration| {
        let (is, of) = (HumanDuration(is), HumanDuration(of));
        table.mistake(key, format!("{is} is longer than {share}, which is {of}"));
    };
    if is_too_long(config.renew_deadline, config.lease_duration, 9) {
        long(&table, "renew_deadline", config.renew_deadline, "nine tenths of lease_duration", config.lease_duration);
    }
    if is_too_long(config.retry_period, config.renew_deadline, 5) {
        long(&table, "retry_period", config.retry_period, "half of renew_deadline", config.renew_deadline);
    }
    table.finish();
    config
}

fn lease(mut table: Table<'_>, known: KnownClusters<'_>) -> LeaseConfig {
    if table.lacks(&["namespace"]) {
        table.checker.mistake(&table.path, "has no namespace; write namespace = \"informer-hub\"");
    }
    let cluster = table.parsed::<ClusterName>("cluster");
    if let Some(name) = cluster.as_ref().filter(|name| !known.tables.iter().any(|cluster| cluster.name == **name)) {
        let all = known.tables.iter().map(|cluster| cluster.name.as_str());
        let problem =
            format!("there is no cluster {:?} in [clusters]{}", name.as_str(), suggestion(name.as_str(), all));
        table.mistake("cluster", problem);
    }
    let lease = LeaseConfig::new(label(&mut table, "namespace").unwrap_or_default());
    let name = label(&mut table, "name").unwrap_or(lease.name);
    table.finish();
    LeaseConfig { cluster, name, namespace: lease.namespace }
}

fn label(table: &mut Table<'_>, key: &'static str) -> Option<String> {
    let text = table.text(key)?;
    if !is_dns_label(&text) {
        let rule = "at most 63 characters out of a-z, 0-9 and '-', the first and the last a letter or a digit";
        table.mistake(key, format!("{text:?} is not a {key}; use {rule}"));
    }
    Some(text)
}
