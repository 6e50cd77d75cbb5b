//! Configuration of an agent: the configuration file, reduced to the agent's cluster and the resources watched there.

use std::path::Path;

use super::error::suggestion;
use super::{ClusterAccess, ClusterConfig, Config, ConfigErrors, FleetRole, Mistake};
use informer_hub_types::ClusterName;

impl Config {
    /// Reduces the configuration to one cluster and its resources, which the agent collects for the fleet. If the
    /// cluster has `agent = true`, the result connects to it by the service account of the agent's pod. Drops cluster
    /// sources, sinks and `[ha]`.
    ///
    /// `cluster` may be `None` if the file has only one cluster, or only one with `agent = true`.
    ///
    /// # Errors
    /// If the file has no `[fleet]`, does not have this cluster, or has no resource that selects it; or if `cluster` is
    /// `None` and the choice is ambiguous.
    pub fn into_agent(mut self, file: Option<&Path>, cluster: Option<&ClusterName>) -> Result<Self, ConfigErrors> {
        let wrong = |key: &str, problem: String| {
            let file = file.map(Path::to_owned);
            ConfigErrors::of(Mistake { file, line: None, column: None, variable: None, key: key.to_owned(), problem })
        };
        let Some(fleet) = &mut self.fleet else {
            return Err(wrong("fleet", "is missing; an agent writes to the log of a fleet, so add [fleet]".to_owned()));
        };
        fleet.roles = vec![FleetRole::Collect];
        let at = position(&self.clusters, cluster).map_err(|problem| wrong("clusters", problem))?;
        let mut own = self.clusters.swap_remove(at);
        if own.access == ClusterAccess::Agent {
            own.access = ClusterAccess::InCluster;
        }
        self.resources.retain(|resource| resource.clusters.matches(&own.name, &own.labels));
        if self.resources.is_empty() {
            return Err(wrong("resources", format!("no entry selects the cluster {}", own.name)));
        }
        self.clusters = vec![own];
        self.sources.clear();
        self.sinks.clear();
        self.ha = None;
        Ok(self)
    }
}

fn position(clusters: &[ClusterConfig], wanted: Option<&ClusterName>) -> Result<usize, String> {
    let names = || clusters.iter().map(|cluster| cluster.name.as_str());
    if let Some(wanted) = wanted {
        let found = clusters.iter().position(|cluster| cluster.name == *wanted);
        return found.ok_or_else(|| {
            format!("there is no cluster {:?}{}", wanted.as_str(), suggestion(wanted.as_str(), names()))
        });
    }
    if clusters.len() == 1 {
        return Ok(0);
    }
    let mut agents = clusters.iter().enumerate().filter(|(_, cluster)| cluster.access == ClusterAccess::Agent);
    match (agents.next(), agents.next()) {
        (Some((at, _)), None) => Ok(at),
        _ if clusters.is_empty() => Err("an agent needs the table of its cluster; add [clusters.NAME]".to_owned()),
        _ => Err(format!(
            "choose the cluster of the agent with --cluster; known: {}",
            names().collect::<Vec<_>>().join(", ")
        )),
    }
}
