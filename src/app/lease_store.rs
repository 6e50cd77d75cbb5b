//! Stores of the lease of a leader election: a `Lease` in a cluster, or an entry in a NATS bucket of a fleet.

use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use super::convert;
use informer_hub_codec::classify_status;
use informer_hub_config::{ClusterAccess, Config, HaConfig};
use informer_hub_lease::kubernetes::{HttpRequest, LeaseName, answer};
use informer_hub_lease::{Answer, Request};
use informer_hub_reflector::{Connection, Connector, ObjectRequest};
#[cfg(feature = "fleet")]
use informer_hub_roles::Backend;
use informer_hub_source::{AccessSettings, KubeConnector};
use informer_hub_types::clock;

/// Store of one election's record (holder, renewal, note), with compare-and-set.
pub(super) trait LeaseStore: Send + Sync {
    /// Maximum size of the note (the published progress of sinks) in a record, in bytes.
    fn max_note(&self) -> usize;

    /// Reads or writes the record of the election. `deadline` limits the request, but not the time to connect to a
    /// Kubernetes cluster before it. If the request fails, the error is a text with the cause.
    fn execute<'s>(&'s self, request: &'s Request, deadline: Duration) -> BoxFuture<'s, Result<Answer, String>>;
}

/// Cluster that holds the Lease of `[ha]`.
pub(super) struct LeaseCluster {
    ha: HaConfig,
    connector: KubeConnector,
    settings: Mutex<AccessSettings>,
}

impl LeaseCluster {
    pub(super) fn new(ha: &HaConfig, settings: AccessSettings, connector: KubeConnector) -> Self {
        Self { ha: ha.clone(), connector, settings: Mutex::new(settings) }
    }

    /// Applies the address and credentials of the Lease's cluster from a new configuration. Changes nothing if the
    /// configuration lacks this cluster or its address.
    pub(super) fn follow(&self, config: &Config) {
        let Some(cluster) = config.clusters.iter().find(|cluster| self.ha.is_lease_in(cluster)) else { return };
        if matches!(cluster.access, ClusterAccess::Agent | ClusterAccess::Awaited { .. }) {
            return;
        }
        let (next, mut settings) = (convert::settings(cluster), self.settings.lock());
        if *settings != next {
            settings.clone_from(&next);
            self.connector.change(next);
        }
    }
}

/// `Lease` object in a Kubernetes cluster.
pub(super) struct KubernetesLease {
    connector: Arc<dyn Connector>,
    connection: OnceCell<Arc<dyn Connection>>,
    name: LeaseName,
}

impl KubernetesLease {
    pub(super) fn new(connector: Arc<dyn Connector>, name: LeaseName) -> Self {
        Self { connector, connection: OnceCell::new(), name }
    }
}

impl LeaseStore for KubernetesLease {
    /// Half of the 256 KiB that an apiserver accepts for all annotations of an object.
    fn max_note(&self) -> usize {
        128 << 10
    }

    fn execute<'s>(&'s self, request: &'s Request, deadline: Duration) -> BoxFuture<'s, Result<Answer, String>> {
        Box::pin(async move {
            let connecting = self.connection.get_or_try_init(|| self.connector.connect());
            let connection = connecting.await.map_err(|error| error.to_string())?;
            let HttpRequest { method, path, body } = self.name.http(request, clock::wall());
            let found = within(deadline, connection.exchange(ObjectRequest { method, path, body })).await?;
            match answer(request, found.status, &found.body) {
                Answer::Failed => Err(classify_status(found.status, &found.body, None).to_string()),
                answer => Ok(answer),
            }
        })
    }
}

/// Entry in the NATS bucket with the leases of a fleet.
#[cfg(feature = "fleet")]
pub(super) struct FleetLease {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) name: String,
}

#[cfg(feature = "fleet")]
impl LeaseStore for FleetLease {
    /// Half of the 1 MiB that a NATS server accepts for a message by default.
    fn max_note(&self) -> usize {
        512 << 10
    }

    fn execute<'s>(&'s self, request: &'s Request, deadline: Duration) -> BoxFuture<'s, Result<Answer, String>> {
        Box::pin(within(deadline, self.backend.lease(&self.name, request.clone())))
    }
}

async fn within<T, E: Display>(deadline: Duration, request: impl Future<Output = Result<T, E>>) -> Result<T, String> {
    match tokio::time::timeout(deadline, request).await {
        Ok(answered) => answered.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {deadline:?}")),
    }
}
