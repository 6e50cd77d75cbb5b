//! Merge of the clusters of tables and cluster sources into one list, and conflicts over their names.

use std::collections::BTreeMap;

use serde::Serialize;

use super::source_report::FoundCluster;
use crate::ClusterConfig;
use informer_hub_types::ClusterName;

/// Origin of a cluster: the table or the cluster source that defines it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Holder {
    /// A table `[clusters.<name>]`.
    Table,
    /// Cluster source, and the object in which it found the cluster.
    Source {
        /// Name of the cluster source.
        name: String,
        /// Object or file in which the source found the cluster.
        object: String,
    },
}

impl Holder {
    /// Formats the origin for messages, e.g. `[clusters.prod-eu]`.
    #[must_use]
    pub fn of(&self, cluster: &ClusterName) -> String {
        match self {
            Self::Table => format!("[clusters.{cluster}]"),
            Self::Source { name, object } => format!("{object} of [cluster_sources.{name}]"),
        }
    }
}

/// Cluster that a source has found, and that is ignored because its name is in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Conflict {
    /// Name of the cluster.
    pub cluster: ClusterName,
    /// Name of the cluster source that found the ignored cluster.
    pub source: String,
    /// Object in which the source found the cluster.
    pub object: String,
    /// Origin (table or source) of the cluster that already has the name.
    pub holder: Holder,
}

/// All clusters after a merge, with their origins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roster {
    /// Clusters, sorted by name.
    pub clusters: Vec<ClusterConfig>,
    /// Origins of the clusters that cluster sources found.
    pub sourced: BTreeMap<ClusterName, Holder>,
    /// Clusters that are ignored because their names are in use, sorted by source.
    pub conflicts: Vec<Conflict>,
}

/// Merges the clusters of tables and sources. For equal names a table has precedence, then the first source by name, then
/// the first cluster of that source.
#[must_use]
pub fn merge<'s>(tables: &[ClusterConfig], sources: &BTreeMap<String, impl AsRef<[FoundCluster]> + 's>) -> Roster {
    let mut all: BTreeMap<ClusterName, (ClusterConfig, Holder)> = BTreeMap::new();
    for table in tables {
        all.insert(table.name.clone(), (table.clone(), Holder::Table));
    }
    let mut conflicts = Vec::new();
    for (source, found) in sources {
        for FoundCluster { cluster, object } in found.as_ref() {
            if let Some((_, holder)) = all.get(&cluster.name) {
                conflicts.push(Conflict {
                    cluster: cluster.name.clone(),
                    source: source.clone(),
                    object: object.clone(),
                    holder: holder.clone(),
                });
            } else {
                let holder = Holder::Source { name: source.clone(), object: object.clone() };
                all.insert(cluster.name.clone(), (cluster.clone(), holder));
            }
        }
    }
    let others = all.iter().filter(|(_, (_, holder))| *holder != Holder::Table);
    let others = others.map(|(name, (_, holder))| (name.clone(), holder.clone())).collect();
    Roster { clusters: all.into_values().map(|(cluster, _)| cluster).collect(), sourced: others, conflicts }
}

impl Roster {
    /// Returns the number of merged clusters that are from this source.
    #[must_use]
    pub fn count(&self, source: &str) -> usize {
        self.sourced.values().filter(|holder| matches!(holder, Holder::Source { name, .. } if name == source)).count()
    }
}
