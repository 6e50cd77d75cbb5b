//! Schema of `[ha]`.

use serde_json::{Value, json};

use super::node::{default, duration, human, pattern, table, text};
use super::{NAME, NAMESPACE};
use crate::ha::{LEASE_DURATION, WITHIN_LEASE};
use crate::{HaConfig, LeaseConfig};

pub(super) fn ha() -> Value {
    let is = HaConfig::new(LeaseConfig::new(""));
    let mut lease = table(
        "The Lease for which the replicas compete.",
        vec![
            ("cluster", pattern("Cluster of [clusters] with the Lease. Unset: the cluster of the hub's pod.", NAME)),
            ("namespace", pattern("Namespace of the Lease.", NAMESPACE)),
            ("name", default(pattern("Name of the Lease, which the hub creates.", NAMESPACE), is.lease.name)),
        ],
    );
    lease["required"] = json!(["namespace"]);
    let lease_duration =
        duration("How long the Lease must be unchanged before another replica takes it.", &LEASE_DURATION);
    let renew_deadline =
        duration("How long the leader delivers after its last renewal; at most 0.9 lease_duration.", &WITHIN_LEASE);
    let retry_period =
        duration("Longest time between two requests for the Lease; at most half of renew_deadline.", &WITHIN_LEASE);
    let mut ha = table(
        "Active/standby replicas: all read clusters and serve readers, and only the holder of a Lease delivers to sinks.",
        vec![
            ("lease", lease),
            ("identity", text("Name of this replica; a random suffix makes it unique. Unset: the host name.")),
            ("lease_duration", default(lease_duration, human(is.lease_duration))),
            ("renew_deadline", default(renew_deadline, human(is.renew_deadline))),
            ("retry_period", default(retry_period, human(is.retry_period))),
        ],
    );
    ha["required"] = json!(["lease"]);
    ha
}
