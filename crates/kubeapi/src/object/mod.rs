//! Rewrites objects and lists as bytes, without decoding them.
//!
//! Cached objects are valid JSON. Any other bytes are copied unchanged, without a panic.

mod edit;
mod pretty;
pub(crate) mod scan;
#[cfg(test)]
pub(crate) mod testing;
mod yaml;

use informer_hub_types::ClusterName;

pub use edit::Edit;
pub use pretty::{Indenter, pretty};
pub use yaml::{to_yaml, write_yaml_element};

/// Key of the annotation and label that name an object's cluster in answers from several clusters.
pub const CLUSTER_KEY: &str = "informer-hub.io/cluster";

/// Changes that [`rewrite`] makes to an object before it is sent in an answer from several clusters.
#[derive(Clone, Copy, Debug)]
pub struct Identity<'a> {
    /// Cluster of the object. Its name is added to the object as an annotation and as a label.
    pub cluster: &'a ClusterName,
    /// New `metadata.resourceVersion`, assigned by the hub. It replaces the object's `resourceVersion` in the cluster.
    pub version: u64,
    /// Whether the name becomes `<cluster>:<name>`.
    pub is_unique: bool,
}

/// `apiVersion` and `kind` of a list.
#[derive(Clone, Debug)]
pub struct ListHead {
    /// `apiVersion`, such as `v1`.
    pub api_version: String,
    /// `kind`, such as `PodList`.
    pub kind: String,
}

/// Returns the object as sent in an answer from several clusters: with the changes of `identity`.
#[must_use]
pub fn rewrite(json: &[u8], identity: Identity<'_>) -> Vec<u8> {
    Edit::from(identity).object(json)
}

/// Returns the object with this `metadata.resourceVersion`.
#[must_use]
pub fn set_version(json: &[u8], version: u64) -> Vec<u8> {
    Edit { version: Some(version), ..Edit::default() }.object(json)
}

/// Appends the object without `kind` and `apiVersion` to `out`. kube-apiserver lists objects of built-in kinds in this
/// form.
pub fn without_type(json: &[u8], out: &mut Vec<u8>) {
    Edit { without_type: true, ..Edit::default() }.write_object(json, out);
}

/// Returns the object as `PartialObjectMetadata`.
#[must_use]
pub fn partial_metadata(json: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    Edit::default().write_metadata(json, &mut out);
    out
}
