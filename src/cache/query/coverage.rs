//! Freshness of the clusters in an answer.

use informer_hub_types::{ClusterName, Freshness, MemoryStep};

/// Freshness of one cluster's part of an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Coverage {
    /// Name of the cluster.
    pub cluster: ClusterName,
    /// Freshness of the stalest of the cluster's informers that contributed.
    pub freshness: Freshness,
    /// Strictest memory step among these informers. A memory step is how much of its objects an informer keeps.
    pub memory: MemoryStep,
    /// Which part of the cluster's objects and of their fields is cached, for people: `namespace shop`, `without data`.
    /// `None` if an informer caches all, or if no informer contributed.
    pub part: Option<String>,
}
