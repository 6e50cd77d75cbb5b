//! Freshness of the clusters in an answer.

use informer_hub_types::{ClusterName, Freshness, MemoryStep};

/// Freshness of one cluster's part of an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Coverage {
    /// Name of the cluster.
    pub cluster: ClusterName,
    /// Freshness of the stalest informer among those of the cluster that contributed.
    pub freshness: Freshness,
    /// Lowest memory step among these informers.
    pub memory: MemoryStep,
}
