//! Freshness of the clusters in an answer.

use informer_hub_types::{ClusterName, Freshness, MemoryStep};

/// Freshness of one cluster's part of an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Coverage {
    /// Name of the cluster.
    pub cluster: ClusterName,
    /// Freshness of the stalest of the cluster's informers that may have matching objects.
    pub freshness: Freshness,
    /// Strictest memory step among the cluster's informers that may have matching objects. A memory step is how much of
    /// its objects an informer keeps.
    pub memory: MemoryStep,
    /// Text that says which objects and fields the cluster's informers keep: `namespace shop`, `without data`. `None`
    /// if one of the informers keeps everything, or if none may have matching objects.
    pub part: Option<String>,
}
