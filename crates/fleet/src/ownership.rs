//! Ownership of a cluster.

use informer_hub_types::ClusterName;

/// Entry of the bucket of owners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ownership {
    /// The cluster.
    pub cluster: ClusterName,
    /// Its owner; empty if the last one has released it.
    pub collector: String,
    /// Epoch for [`Writer::open`](crate::Writer::open).
    pub epoch: u64,
    /// Revision of the entry. It changes with each renewal, so an observer sees by its own clock that an owner is alive.
    pub revision: u64,
}
