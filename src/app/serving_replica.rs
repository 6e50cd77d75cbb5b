//! Serving replica of the hub: its caches follow the log of the fleet instead of clusters. If it delivers, it competes
//! with other replicas for a lease of each sink, and begins to read the log where the former leaders have stopped.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OnceCell;

use super::collect::nats_params;
use super::delivered::Delivered;
use super::deliverers::FleetEntries;
use super::elections::Elections;
use super::fleet_status::{FleetCluster, FleetStatus};
use super::lease_store::{FleetLease, LeaseStore};
use crate::actors::Env;
use informer_hub_config::{FleetConfig, FleetRole};
use informer_hub_lease::ElectionParams;
use informer_hub_reflector::Connector;
use informer_hub_roles::{Backend, Cursor, NatsBackend, Replica, ReplicaParams, ReplicaStatus, ServedShard};
use informer_hub_types::{ClusterName, Shard, ShardRules};

/// Maximum time to read the progress of the sinks from their leases. The replica needs it before it reads the fleet's
/// log, because it begins where the last leaders stopped.
const NOTE_TIMEOUT: Duration = Duration::from_secs(10);

/// Setup of a serving replica, the part of a process whose caches follow the log of its fleet instead of clusters.
#[derive(Clone, Debug)]
pub struct Serve {
    /// Store that the processes of the fleet share. It has the log of changes, the owner of each cluster, and
    /// checkpoints.
    pub backend: Arc<dyn Backend>,
    /// Parameters of the replica.
    pub params: ReplicaParams,
    /// Durations of the leader elections of sinks; `None` if this process never delivers.
    pub election: Option<ElectionParams>,
}

impl Serve {
    /// Roles of processes whose caches follow the fleet's log instead of clusters.
    pub(super) const ROLES: &[FleetRole] = &[FleetRole::Serve, FleetRole::Deliver];

    /// Returns the parameters of the replica that `[fleet]` configures.
    pub(super) fn of(config: &FleetConfig) -> Self {
        let nats = nats_params(config);
        let shards = ShardRules::new(config.shards.clone());
        let params = ReplicaParams { shards, ..ReplicaParams::new(&nats.name) };
        let election = config.roles.contains(&FleetRole::Deliver).then(ElectionParams::default);
        Self { backend: Arc::new(NatsBackend::new(nats)), params, election }
    }

    /// Prepares the elections of sinks. The replica begins to read the log where the last leaders stopped. Returns
    /// `None` if this process never delivers.
    pub(super) fn elect(&mut self, sinks: &BTreeSet<String>) -> Option<Elections> {
        let (params, backend) = (self.election?, Arc::clone(&self.backend));
        let open = move |name| Arc::new(FleetLease { backend: Arc::clone(&backend), name }) as Arc<dyn LeaseStore>;
        let entries = Box::new(FleetEntries(Arc::clone(&self.backend)));
        let elections = Elections::of_fleet((Box::new(open), entries), &self.params.name, params, sinks);
        let (shared, delivered) = (Arc::clone(&elections.0), Arc::<OnceCell<Delivered>>::default());
        self.params.cursor = Some(Cursor::new(move |partition| {
            let (shared, delivered, partition) = (Arc::clone(&shared), Arc::clone(&delivered), partition.clone());
            Box::pin(async move {
                // Read once, before this process delivers: its own deliveries would advance the progress.
                let reading = delivered.get_or_init(|| shared.first_delivered());
                let delivered = tokio::time::timeout(NOTE_TIMEOUT, reading).await;
                let delivered = delivered.map_err(|_| "cannot read the leases of the deliverers in time".to_owned())?;
                Ok(delivered.version_of(partition.cluster.as_str(), &partition.resource))
            })
        }));
        Some(elections)
    }
}

/// Serving replica of a running hub, whose caches follow the fleet's log.
#[derive(Debug)]
pub(super) struct Serving(Replica);

impl Serving {
    pub(super) fn start(serve: Serve, env: &Env) -> Self {
        Self(Replica::start(serve.backend, serve.params, &env.io))
    }

    /// Returns a connector with which the hub reads a cluster from the fleet's log. Only access reviews are sent to the
    /// cluster itself, through the connector `inner`.
    pub(super) fn connector(&self, cluster: &ClusterName, inner: Arc<dyn Connector>) -> Arc<dyn Connector> {
        self.0.connector(cluster, inner)
    }

    /// Returns the status of the process in its fleet.
    pub(super) fn status(&self) -> FleetStatus {
        let ReplicaStatus { name, answered, error, shards } = self.0.status();
        let cluster = |(shard, known): (Shard, ServedShard)| FleetCluster {
            name: shard.cluster,
            shard: shard.name.map(|name| name.as_str().to_owned()),
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
            clusters: shards.into_iter().map(cluster).collect(),
            ..FleetStatus::default()
        }
    }
}
