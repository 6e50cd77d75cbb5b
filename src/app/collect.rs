//! Collector of the hub: watches the clusters that this process owns in its fleet.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use actix::{Addr, Handler, MailboxError, Message};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use rand::Rng;
use tokio::sync::Mutex as AsyncMutex;

use super::fleet_status::{FleetCluster, FleetStatus};
use super::host::host_name;
use crate::actors::messages::RegistryError;
use crate::actors::messages::{AddCluster, RemoveCluster, ReviewClusterInformers, SetClusterLabels};
use crate::actors::{Env, RegistryActor};
use informer_hub_config::{FleetConfig, FleetRole, NEW_LOG};
use informer_hub_roles::{
    Backend, Collector, CollectorParams, CollectorStatus, ConnectorWrap, Credentials, FixedLimits, Host, NatsBackend,
    NatsParams, Zone,
};
use informer_hub_types::{ClusterLabels, ClusterName, Shard, ShardRules, rng};

/// Setup of a collector, the part of a process that watches clusters and writes their changes to the log of its fleet.
#[derive(Clone, Debug)]
pub struct Collect {
    /// Store that the processes of the fleet share. It has the log of changes, the owner of each cluster, and
    /// checkpoints.
    pub backend: Arc<dyn Backend>,
    /// Parameters of the collector.
    pub params: CollectorParams,
}

/// Deadline of a request to NATS.
const TIMEOUT: Duration = Duration::from_secs(5);

impl Collect {
    /// Returns the parameters of the collector that `[fleet]` configures.
    pub(super) fn of(config: &FleetConfig) -> Self {
        let nats = nats_params(config);
        let mut params = CollectorParams::new(&nats.name, nats.max_age);
        let prefer = config.prefer.clone();
        params.zone = config.zone.clone().map(|name| Zone { name, prefer });
        params.shards = ShardRules::new(config.shards.clone());
        Self { backend: Arc::new(NatsBackend::new(nats)), params }
    }
}

/// Returns the parameters of the connection to NATS. Each call gives this process a new unique name.
pub(crate) fn nats_params(config: &FleetConfig) -> NatsParams {
    let collects = config.roles.contains(&FleetRole::Collect);
    let (replicas, max_age, max_bytes) = NEW_LOG;
    NatsParams {
        servers: config.nats.clone(),
        credentials: config.credentials.clone().map(|secret| Arc::new(move || secret.read()) as Credentials),
        name: process_name(),
        fleet: config.name.clone(),
        replicas: config.replicas.unwrap_or(replicas),
        max_age: config.window_age.unwrap_or(max_age),
        max_bytes: config.window_bytes.unwrap_or(max_bytes),
        fixed: FixedLimits {
            replicas: collects && config.replicas.is_some(),
            max_age: collects && config.window_age.is_some(),
            max_bytes: collects && config.window_bytes.is_some(),
        },
        timeout: TIMEOUT,
    }
}

/// Returns a unique name of this process. Its random part prevents a restarted process from being taken for the old
/// one.
fn process_name() -> String {
    format!("{}-{}-{:08x}", host_name(), std::process::id(), rng::rng().random::<u32>())
}

/// The running collector of this process, with all configured clusters. The hub watches only the clusters that the
/// process owns.
pub(super) struct Collecting {
    collector: Collector,
    host: Arc<RegistryHost>,
}

impl Collecting {
    pub(super) fn start(collect: Collect, registry: &Addr<RegistryActor>, env: &Env) -> Self {
        let host = Arc::new(RegistryHost { registry: registry.clone(), clusters: Mutex::default() });
        let Collect { backend, params } = collect;
        let hub: Arc<dyn Host> = Arc::<RegistryHost>::clone(&host);
        Self { collector: Collector::start(backend, params, hub, &env.io), host }
    }

    /// Contends with the other collectors for the ownership of a cluster.
    pub(super) fn add(&self, cluster: AddCluster) {
        let name = cluster.name.clone();
        self.host.clusters.lock().insert(name.clone(), HostedCluster { add: cluster, watched: Arc::default() });
        self.collector.add(&name);
    }

    /// Stores new labels of a cluster. Collectors in the zone that these labels select are preferred as owners of the
    /// cluster. The registry (the actor that manages the watched clusters) gets the labels when this process next
    /// becomes the owner. If the hub watches the cluster now, the caller must also send the labels to the registry.
    pub(super) fn set_labels(&self, change: &SetClusterLabels) {
        if let Some(known) = self.host.clusters.lock().get_mut(&change.name) {
            known.add.labels.clone_from(&change.labels);
        }
    }

    /// Stops watching a cluster, and gives up its ownership.
    pub(super) async fn remove(&self, cluster: &ClusterName) {
        self.collector.remove(cluster).await;
        self.host.clusters.lock().remove(cluster);
    }

    /// Gives up the ownership of all clusters, so that other collectors take them over.
    pub(super) async fn shutdown(&self) {
        self.collector.shutdown().await;
    }

    /// Returns the status of the process in its fleet.
    pub(super) fn status(&self) -> FleetStatus {
        let CollectorStatus { name, answered, error, shards, acquired, lost, moved, queued_bytes, oldest_append } =
            self.collector.status();
        FleetStatus {
            process: name,
            role: "collect",
            connected: answered && error.is_none(),
            last_error: error,
            owned: shards.values().filter(|owner| owner.is_own).count(),
            acquired,
            lost,
            moved,
            queued_bytes,
            oldest_append_seconds: oldest_append.as_secs_f64(),
            clusters: shards
                .into_iter()
                .map(|(shard, owner)| FleetCluster {
                    name: shard.cluster,
                    shard: shard.name.map(|name| name.as_str().to_owned()),
                    owner: Some(owner.collector).filter(|owner| !owner.is_empty()),
                    epoch: owner.epoch,
                    own: owner.is_own,
                    weight: owner.weight,
                    stale_since: None,
                    stale_reason: None,
                })
                .collect(),
        }
    }

    /// Returns the clusters that this process owns, wholly or in part.
    pub(super) fn owned(&self) -> BTreeSet<ClusterName> {
        self.collector.owned().into_iter().map(|shard| shard.cluster).collect()
    }
}

impl fmt::Debug for Collecting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.collector.fmt(f)
    }
}

/// Adds clusters to the registry (the actor that manages the watched clusters) when this process becomes their owner,
/// and removes them when it no longer is.
struct RegistryHost {
    registry: Addr<RegistryActor>,
    clusters: Mutex<BTreeMap<ClusterName, HostedCluster>>,
}

/// Configured cluster. The hub watches it while this process owns it or one of its shards.
#[derive(Clone)]
struct HostedCluster {
    add: AddCluster,
    /// Shards of the cluster that this process owns. Locked while the registry adds or removes the cluster.
    watched: Arc<AsyncMutex<BTreeSet<Shard>>>,
}

impl RegistryHost {
    fn hosted(&self, cluster: &ClusterName) -> Option<HostedCluster> {
        self.clusters.lock().get(cluster).cloned()
    }
}

async fn tell<M>(registry: &Addr<RegistryActor>, message: M) -> Result<(), String>
where
    M: Message<Result = Result<(), RegistryError>> + Send + 'static,
    RegistryActor: Handler<M>,
{
    match registry.send(message).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(MailboxError::Closed | MailboxError::Timeout) => Err("the hub is shutting down".to_owned()),
    }
}

impl Host for RegistryHost {
    fn start(&self, shard: &Shard, wrap: ConnectorWrap) -> BoxFuture<'static, Result<(), String>> {
        let (shard, registry) = (shard.clone(), self.registry.clone());
        let known = self.hosted(&shard.cluster);
        Box::pin(async move {
            let Some(HostedCluster { add, watched }) = known else {
                return Err("it is no longer configured".to_owned());
            };
            let mut watched = watched.lock().await;
            let result = if watched.is_empty() {
                tell(&registry, AddCluster { connector: wrap(Arc::clone(&add.connector)), ..add }).await
            } else {
                tell(&registry, ReviewClusterInformers(shard.cluster.clone())).await
            };
            if result.is_ok() {
                watched.insert(shard);
            }
            result
        })
    }

    fn stop(&self, shard: &Shard) -> BoxFuture<'static, ()> {
        let (shard, registry, known) = (shard.clone(), self.registry.clone(), self.hosted(&shard.cluster));
        Box::pin(async move {
            let Some(known) = known else { return };
            let mut watched = known.watched.lock().await;
            watched.remove(&shard);
            // An error means that the registry no longer has the cluster, or has ended.
            let _ = if watched.is_empty() {
                tell(&registry, RemoveCluster(shard.cluster)).await
            } else {
                tell(&registry, ReviewClusterInformers(shard.cluster)).await
            };
        })
    }

    fn labels(&self, cluster: &ClusterName) -> ClusterLabels {
        self.clusters.lock().get(cluster).map(|known| known.add.labels.clone()).unwrap_or_default()
    }
}
