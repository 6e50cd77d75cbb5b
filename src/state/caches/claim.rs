//! Claims: a claim says that the configuration still needs a saved partition, and how to restore it. A partition
//! without a claim stays on disk.

use std::sync::Arc;

use super::codec::PartitionHeader;
use crate::cache::{DeclaredIndex, Gathering, SavedPartition};
use informer_hub_types::{ApiResource, ClusterLabels, InformerHealth, Origin};

/// Parameters for restoring a saved partition that the configuration still needs.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Labels of the partition's cluster.
    pub labels: ClusterLabels,
    /// Indices that the configuration declares for the resource.
    pub indexes: Vec<DeclaredIndex>,
    /// Hash of the settings that objects are decoded with; zero if unknown.
    pub settings: u64,
    /// Whether the configured resource has no API version. If the partition is saved in several API versions, only the
    /// most recently updated copy is kept.
    pub any_version: bool,
}

/// Returns the partition to restore, made of its claim and its saved header and objects.
pub(super) fn saved(
    resource: &ApiResource,
    claim: Claim,
    header: PartitionHeader,
    objects: Gathering,
) -> SavedPartition {
    let version = header.version;
    let health = InformerHealth::new();
    health.restore(version.clone(), header.synced, header.alive, objects.len() as u64);
    if let Some(floor) = header.floor {
        health.set_floor(floor);
    }
    if header.defined {
        health.set_definition_generation(header.generation);
    }
    let is_same = claim.settings != 0 && claim.settings == header.settings;
    SavedPartition {
        origin: Arc::new(Origin {
            cluster: header.cluster,
            cluster_labels: claim.labels,
            resource: resource.clone(),
            scope: header.scope,
        }),
        health,
        indexes: if is_same { claim.indexes } else { Vec::new() },
        settings: header.settings,
        version,
        synced: header.synced,
        readers: header.readers,
        objects,
    }
}
