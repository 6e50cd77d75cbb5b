//! Serving replica of the hub: its caches follow the log of the fleet instead of clusters.

use std::sync::Arc;

use super::collect::nats_params;
use super::fleet_status::{FleetCluster, FleetStatus};
use crate::actors::Env;
use informer_hub_config::FleetConfig;
use informer_hub_reflector::Connector;
use informer_hub_roles::{Backend, NatsBackend, Replica, ReplicaParams, ReplicaStatus, ServedCluster};
use informer_hub_types::ClusterName;

/// Services of the fleet, and the parameters of its replica.
#[derive(Clone, Debug)]
pub struct Serve {
    /// Log, owners, documents and checkpoints.
    pub backend: Arc<dyn Backend>,
    /// Parameters of the replica.
    pub params: ReplicaParams,
}

impl Serve {
    /// Returns the parameters of a process of a configured fleet.
    pub(super) fn of(config: &FleetConfig) -> Self {
        let nats = nats_params(config);
        let params = ReplicaParams::new(&nats.name);
        Self { backend: Arc::new(NatsBackend::new(nats)), params }
    }
}

/// Replica of a running hub.
#[derive(Debug)]
pub(super) struct Serving(Replica);

impl Serving {
    pub(super) fn start(serve: Serve, env: &Env) -> Self {
        Self(Replica::start(serve.backend, serve.params, &env.io))
    }

    /// Returns the connector with which the hub reads a cluster.
    pub(super) fn connector(&self, cluster: &ClusterName, inner: Arc<dyn Connector>) -> Arc<dyn Connector> {
        self.0.connector(cluster, inner)
    }

    /// Returns the status of the process in its fleet.
    pub(super) fn status(&self) -> FleetStatus {
        let ReplicaStatus { name, answered, error, clusters } = self.0.status();
        let cluster = |(name, known): (ClusterName, ServedCluster)| FleetCluster {
            name,
            owner: Some(known.collector).filter(|owner| !owner.is_empty()),
            epoch: known.epoch,
            own: false,
            weight: 0,
            stale_since: known.stale.as_ref().map(|stale| stale.since),
            stale_reason: known.stale.map(|stale| stale.reason),
        };
        FleetStatus {
            process: name,
            role: "serve",
            connected: answered && error.is_none(),
            last_error: error,
            clusters: clusters.into_iter().map(cluster).collect(),
            ..FleetStatus::default()
        }
    }
}
