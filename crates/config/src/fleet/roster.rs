//! Tables and sources merged into one list of clusters: who has a name, and who wanted it too.

use std::collections::BTreeMap;

use serde::Serialize;

use super::said::Found;
use crate::ClusterConfig;
use informer_hub_types::ClusterName;

/// Who has a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Holder {
    /// A table `[clusters.<name>]`.
    Table,
    /// A source, and what it found the cluster in.
    Source {
        /// The source.
        name: String,
        /// The object or file.
        object: String,
    },
}

impl Holder {
    /// Where the configuration has it, as people write it.
    #[must_use]
    pub fn of(&self, cluster: &ClusterName) -> String {
        match self {
            Self::Table => format!("[clusters.{cluster}]"),
            Self::Source { name, object } => format!("{object} of [cluster_sources.{name}]"),
        }
    }
}

/// A cluster that is not watched as a source has it, since somebody else has its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Conflict {
    /// The name.
    pub cluster: ClusterName,
    /// The source.
    pub source: String,
    /// What it found the cluster in.
    pub object: String,
    /// Who has the name.
    pub holder: Holder,
}

/// All clusters, and where they come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roster {
    /// The clusters, by name.
    pub clusters: Vec<ClusterConfig>,
    /// Where each comes from that no table has.
    pub sourced: BTreeMap<ClusterName, Holder>,
    /// Who did not get a name, by source.
    pub conflicts: Vec<Conflict>,
}

/// Merges tables and what sources have found. Of those who have one name a table comes first, then the first source by name,
/// then what that found first.
#[must_use]
pub fn merge<'s>(tables: &[ClusterConfig], sources: &BTreeMap<String, impl AsRef<[Found]> + 's>) -> Roster {
    let mut all: BTreeMap<ClusterName, (ClusterConfig, Holder)> = BTreeMap::new();
    for table in tables {
        all.insert(table.name.clone(), (table.clone(), Holder::Table));
    }
    let mut conflicts = Vec::new();
    for (source, found) in sources {
        for Found { cluster, object } in found.as_ref() {
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
    /// How many clusters a source has brought.
    #[must_use]
    pub fn count(&self, source: &str) -> usize {
        self.sourced.values().filter(|holder| matches!(holder, Holder::Source { name, .. } if name == source)).count()
    }
}
