//! Clusters of a running hub: added, changed, removed.

use std::sync::Arc;

use actix::MailboxError;
use futures::future::join_all;

use super::{Difference, RunningHub};
use crate::actors::messages::{AddCluster, RegistryError, RemoveCluster, SetClusterLabels};
use crate::app::convert;
use crate::app::error::{ReloadError, StartError};
use informer_hub_config::{ClusterAccess, ClusterConfig, Config};
use informer_hub_reflector::Connector;
use informer_hub_types::ClusterName;

impl RunningHub {
    /// Ends removed clusters. Changed clusters get their new labels, address and credentials.
    pub(super) async fn change_clusters(
        &self,
        old: &Config,
        new: &Config,
        changes: &Difference,
    ) -> Result<(), ReloadError> {
        self.election.iter().for_each(|elections| elections.0.follow_cluster(new));
        let find = |all: &Config, name: &str| all.clusters.iter().find(|one| one.name.as_str() == name).cloned();
        for name in &changes.changed {
            let (Some(before), Some(now)) = (find(old, name), find(new, name)) else { continue };
            if is_of_agent(&before) != is_of_agent(&now) {
                self.remove_cluster(before.name).await?;
                self.add_cluster(&now).await?;
                continue;
            }
            let settings = convert::settings(&now);
            let is_elsewhere = convert::settings(&before) != settings;
            if let Some(connector) = self.connectors.lock().get(&now.name).filter(|_| is_elsewhere) {
                connector.change(settings);
            }
            if before.labels != now.labels {
                let change = SetClusterLabels { name: now.name, labels: now.labels };
                #[cfg(feature = "fleet")]
                self.collecting.get().inspect(|collecting| collecting.set_labels(&change));
                // An error means that the registry does not have the cluster: the embedding program has removed it, or
                // another process of the fleet watches it.
                let _ = self.registry.send(change).await?;
            }
        }
        let mut going = Vec::new();
        for cluster in changes.removed.iter().filter_map(|name| find(old, name)) {
            self.connectors.lock().remove(&cluster.name);
            going.push(self.remove_cluster(cluster.name));
        }
        // Removed concurrently, because each may have to wait for its subscribers.
        for gone in join_all(going).await {
            gone?;
        }
        Ok(())
    }

    /// Adds the new clusters of a configuration. The registry refuses a cluster if the embedding program has added
    /// another one of this name. Removes the refused clusters from `config`, and returns them with the reason.
    pub(super) async fn add_clusters(
        &self,
        config: &mut Config,
        changes: &Difference,
    ) -> Result<Vec<(ClusterName, RegistryError)>, ReloadError> {
        let mut refused = Vec::new();
        let is_new = |cluster: &&ClusterConfig| changes.added.iter().any(|added| added == cluster.name.as_str());
        for cluster in config.clusters.iter().filter(is_new) {
            self.check_open()?;
            match self.add_cluster(cluster).await {
                Err(StartError::Cluster(error)) => {
                    self.connectors.lock().remove(&cluster.name);
                    refused.push((cluster.name.clone(), error));
                }
                done => done?,
            }
        }
        config.clusters.retain(|cluster| refused.iter().all(|(name, _)| *name != cluster.name));
        Ok(refused)
    }

    /// Returns the connector for a cluster that the embedding program adds.
    pub(in crate::app) fn connector(&self, cluster: &ClusterConfig) -> Arc<dyn Connector> {
        Arc::new(convert::connector(cluster, self.stall, self.dials.clusters.clone(), &self.env.io))
    }

    /// Adds a cluster. In a collecting process of a fleet, it is watched only while the process owns it. If an agent (a
    /// separate process) watches the cluster, only a serving replica adds it, to read it from the fleet's log.
    pub(in crate::app) async fn add_cluster(&self, cluster: &ClusterConfig) -> Result<(), StartError> {
        let is_elsewhere = is_of_agent(cluster);
        // A replica reads all clusters from the log.
        #[cfg(feature = "fleet")]
        let is_elsewhere = is_elsewhere && self.serving.get().is_none();
        if is_elsewhere {
            return Ok(());
        }
        let connector = convert::connector(cluster, self.stall, self.dials.clusters.clone(), &self.env.io);
        self.connectors.lock().insert(cluster.name.clone(), connector.clone());
        let (name, labels) = (cluster.name.clone(), cluster.labels.clone());
        let connector: Arc<dyn Connector> = Arc::new(connector);
        #[cfg(feature = "fleet")]
        let connector = match self.serving.get() {
            Some(serving) => serving.connector(&name, connector),
            None => connector,
        };
        let cluster = AddCluster { name, labels, connector };
        #[cfg(feature = "fleet")]
        if let Some(collecting) = self.collecting.get() {
            collecting.add(cluster);
            return Ok(());
        }
        self.registry.send(cluster).await??;
        Ok(())
    }

    async fn remove_cluster(&self, name: ClusterName) -> Result<(), MailboxError> {
        #[cfg(feature = "fleet")]
        if let Some(collecting) = self.collecting.get() {
            collecting.remove(&name).await;
            return Ok(());
        }
        // An error means that the embedding program has removed the cluster already.
        let _ = self.registry.send(RemoveCluster(name)).await?;
        Ok(())
    }
}

/// Whether an agent, a separate process, watches the cluster.
fn is_of_agent(cluster: &ClusterConfig) -> bool {
    cluster.access == ClusterAccess::Agent
}
