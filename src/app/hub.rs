//! Running hub: access to clusters, caches, subscriptions and status, and shutdown.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use actix::{Addr, MailboxError};
use futures::future::join_all;
use kube::Resource;
use serde::Serialize;

use super::election::RELEASE_TIMEOUT;
use super::exporter::MetricsExporter;
use super::journal_readers::RunningSink;
use super::metrics::Metrics;
use super::reload::{Reloader, RunningHub};
use super::report::{HubReport, Reporter};
use super::sources::ClusterSourceState;
use super::typed::{CacheClient, api_resource};
use crate::actors::messages::{SetMemoryLimit, Shutdown, ViewSync, WaitForCacheSync};
use crate::actors::sinks::sink::Drain;
use crate::actors::{FleetView, HubSystem, NotSynced, RegistryActor};
use crate::cache::OwnerChain;
use informer_hub_config::ClusterConfig;
use informer_hub_reflector::Connector;
#[cfg(feature = "fleet")]
use informer_hub_types::ClusterName;
use informer_hub_types::clock::{self, Instant};
use informer_hub_types::{ApiResource, LEAST_MEMORY_LIMIT, Object};

/// Maximum time for which a shutdown waits until all actors have ended.
const ACTORS_TIMEOUT: Duration = Duration::from_secs(1);

/// Error of setting a memory limit. The caller can fix it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryLimitError {
    /// The limit is below the minimum.
    #[error("a memory limit of {limit} bytes is too small for the process itself: set {LEAST_MEMORY_LIMIT} or more")]
    TooSmall {
        /// The refused limit, in bytes.
        limit: u64,
    },
    /// The hub is shutting down.
    #[error("the hub is shutting down")]
    Stopped(#[from] MailboxError),
}

/// A running hub: clusters, informers, caches and sinks.
///
/// A hub has its own threads. The addresses of its actors can be used from any thread and any runtime.
/// [`Hub::shutdown`] ends the hub gracefully; dropping the handle ends the hub immediately.
pub struct Hub {
    system: HubSystem,
    /// Parts of the running hub. They keep the state directory locked until the hub has ended.
    running: Arc<RunningHub>,
}

/// Result of a shutdown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Number of undelivered events, by sink. Also counts notifications that a full sink has not accepted, although the
    /// filter of the sink might have dropped some of them.
    pub undelivered: Vec<(String, u64)>,
    /// Number of undelivered events that stay in the journal for the next start, by sink.
    pub kept: Vec<(String, u64)>,
    /// Number of actors still alive at the end; zero unless there is a fault.
    pub actors_left: usize,
}

impl Hub {
    pub(super) fn new(system: HubSystem, running: RunningHub) -> Self {
        Self { system, running: Arc::new(running) }
    }

    pub(super) fn running(&self) -> &Arc<RunningHub> {
        &self.running
    }

    /// Returns the registry, which adds and removes clusters, starts informers and accepts subscriptions.
    #[must_use]
    pub fn registry(&self) -> &Addr<RegistryActor> {
        self.system.registry()
    }

    /// Returns the cache of the resource type `K`, over all clusters.
    #[must_use]
    pub fn cache<K>(&self) -> CacheClient<K>
    where
        K: Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        CacheClient::new(self.system.env().caches.clone(), api_resource::<K>())
    }

    /// Returns the cache of a resource over all clusters, with objects as JSON.
    #[must_use]
    pub fn cache_of(&self, resource: ApiResource) -> CacheClient {
        CacheClient::new(self.system.env().caches.clone(), resource)
    }

    /// Returns the owners of an object, nearest first, up to the object that has no owner. Owners are found only if the
    /// hub watches their resource in the object's cluster. If one is missing, the result says why.
    #[must_use]
    pub fn owner_chain<K>(&self, object: &Object<K>) -> OwnerChain {
        self.system.env().caches.owner_chain(&object.clone().cast())
    }

    /// Waits until every cluster source has reported or failed, and every informer has synced.
    ///
    /// # Errors
    /// [`NotSynced`] lists what had not synced in time, and why.
    pub async fn wait_for_cache_sync(&self, timeout: Duration) -> Result<(), NotSynced> {
        let (sources, began) = (&self.running.sources, clock::now());
        let left = || timeout.saturating_sub(clock::now().duration_since(began));
        let mut changed = sources.watch();
        while sources.is_waiting() {
            if !matches!(tokio::time::timeout(left(), changed.changed()).await, Ok(Ok(()))) {
                let waiting = sources.status().into_iter().filter(|source| source.state == ClusterSourceState::Waiting);
                let waiting =
                    waiting.map(|source| format!("cluster source {} has not reported its clusters yet", source.name));
                return Err(NotSynced { waited: timeout, waiting: waiting.collect() });
            }
        }
        let timeout = left();
        let stopped = |_| NotSynced { waited: timeout, waiting: vec!["the hub is shutting down".to_owned()] };
        self.registry().send(WaitForCacheSync { timeout }).await.unwrap_or_else(|error| Err(stopped(error)))
    }

    /// Returns the status of the hub.
    ///
    /// # Errors
    /// The hub is shutting down.
    pub async fn report(&self) -> Result<HubReport, MailboxError> {
        self.reporter().report().await
    }

    /// Returns a handle that reports the hub's status, from any thread, while the hub runs.
    #[must_use]
    pub fn reporter(&self) -> Reporter {
        let RunningHub { registry, sinks, sources, credentials, status, election, fleet, .. } = &*self.running;
        let (sinks, sources, configuration) = (Arc::clone(sinks), Arc::clone(sources), Arc::clone(status));
        let (credentials, election) = (Arc::clone(credentials), election.as_ref().map(|one| Arc::clone(&one.0)));
        let fleet = fleet.clone();
        Reporter { registry: registry.clone(), sinks, sources, credentials, configuration, election, fleet }
    }

    /// Returns a handle that changes the configuration, from any thread, while the hub runs.
    #[must_use]
    pub fn reloader(&self) -> Reloader {
        Reloader(Arc::downgrade(&self.running))
    }

    /// Returns the view of all clusters, which reads counters without messages to actors.
    ///
    /// # Errors
    /// The hub is shutting down.
    pub async fn fleet(&self) -> Result<FleetView, MailboxError> {
        Ok(FleetView::new(self.registry().send(ViewSync).await?, self.system.env().clone()))
    }

    /// Returns an exporter of the hub's metrics. The program can add its work queues to the exporter, and has to serve
    /// the metrics itself; the standalone service serves them at `/metrics`.
    ///
    /// # Errors
    /// The hub is shutting down.
    pub async fn metrics_exporter(&self) -> Result<MetricsExporter, MailboxError> {
        let metrics = Metrics::default();
        metrics.attach(self.fleet().await?, self.reporter().parts());
        Ok(MetricsExporter::new(metrics))
    }

    /// Limits the resident memory of the process, in bytes; `None` removes the limit. Within seconds, informers drop
    /// parts of their objects' data if the limit requires it, and restore them if it permits. The status shows what
    /// they keep.
    ///
    /// # Errors
    /// [`MemoryLimitError`] if the limit is too small, so that the previous limit stays, or the hub is shutting down.
    pub async fn set_memory_limit(&self, limit: Option<u64>) -> Result<(), MemoryLimitError> {
        if let Some(limit) = limit.filter(|limit| *limit < LEAST_MEMORY_LIMIT) {
            return Err(MemoryLimitError::TooSmall { limit });
        }
        Ok(self.registry().send(SetMemoryLimit(limit)).await?)
    }

    /// Returns the clusters that this process owns in its fleet; `None` if it is not a collector.
    #[cfg(feature = "fleet")]
    #[doc(hidden)]
    #[must_use]
    pub fn collected(&self) -> Option<Vec<ClusterName>> {
        self.running.collecting.get().map(|collecting| collecting.owned().into_iter().collect())
    }

    /// Returns the connector to a cluster, for [`AddCluster`](crate::messages::AddCluster). Sends no request.
    ///
    /// A cluster that is added by a message stays after reloads, although it is not in the configuration.
    #[must_use]
    pub fn connector(&self, cluster: &ClusterConfig) -> Arc<dyn Connector> {
        self.running.connector(cluster)
    }

    /// Returns the actor system of the hub.
    #[must_use]
    pub fn system(&self) -> &HubSystem {
        &self.system
    }

    /// Stops clusters and informers, and waits until their notifications have been delivered. If the deadline passes,
    /// returns the number of notifications that each sink has not accepted, e.g. because it is full. Clusters that do
    /// not stop are not waited for after `end`.
    async fn stop_clusters(&self, deadline: Instant, end: Instant) -> BTreeMap<String, u64> {
        let backlogs = self.backlogs_of_sinks(deadline).await;
        // An error means that the registry had ended already, or that clusters do not stop in time.
        let _ = tokio::time::timeout_at(end, self.registry().send(Shutdown { deadline })).await;
        if clock::now() < deadline {
            return BTreeMap::new();
        }
        backlogs.into_iter().map(|(sink, pending)| (sink, pending())).collect()
    }

    /// Returns, for each sink, its name and a function that counts the events that it has not accepted.
    async fn backlogs_of_sinks(&self, deadline: Instant) -> Vec<(String, impl Fn() -> u64 + use<>)> {
        let followed = |one: &RunningSink| (one.follower.clone(), one.followed.clone());
        let followed: Vec<_> = self.running.sinks.lock().iter().map(followed).collect();
        let backlogs = followed.into_iter().map(async |(follower, followed)| {
            let backlog = follower.backlog(&followed, self.registry()).await.ok()?;
            Some((follower.name, backlog))
        });
        let until = deadline.min(clock::now() + Duration::from_secs(1));
        let backlogs = tokio::time::timeout_at(until, join_all(backlogs)).await;
        backlogs.unwrap_or_default().into_iter().flatten().collect()
    }

    /// Ends the hub within `timeout`: first the watches of clusters, then the delivery of notifications, then the
    /// sinks. A fifth of the time is reserved for the end of the actors. The reserve is at most 1 s, or 3 s if leases
    /// have to be released too.
    pub async fn shutdown(self, timeout: Duration) -> ShutdownReport {
        let end = clock::now() + timeout;
        let reserved = self.reserved(timeout);
        let deadline = end - reserved;
        self.running.close();
        #[cfg(feature = "fleet")]
        if let Some(collecting) = self.running.collecting.get() {
            // If NATS does not answer, the ownerships of clusters are not released, but expire.
            let _ = tokio::time::timeout(timeout / 2, collecting.shutdown()).await;
        }
        let behind = self.stop_clusters(deadline, deadline + reserved / 4).await;
        let running_sink = |one: &RunningSink| (one.name().to_owned(), one.sink().clone(), Arc::clone(&one.health));
        let sinks: Vec<_> = self.running.sinks.lock().iter().map(running_sink).collect();
        let drains = sinks.iter().map(async |(name, sink, health)| {
            let drained = tokio::time::timeout_at(deadline + reserved / 2, sink.drain(Drain { deadline })).await;
            match drained.ok().flatten() {
                Some(report) => (name.clone(), report.left, report.kept),
                None => (name.clone(), health.status().pending_events, 0),
            }
        });
        let (mut undelivered, mut kept) = (Vec::new(), Vec::new());
        for (sink, left, in_journal) in join_all(drains).await {
            let left = left + behind.get(&sink).copied().unwrap_or_default();
            undelivered.push((sink.clone(), left));
            kept.push((sink, in_journal));
        }
        undelivered.retain(|(_, left)| *left > 0);
        kept.retain(|(_, kept)| *kept > 0);
        // Publishes the progress of the drained sinks before it releases the Lease, so that the next holder delivers
        // only the remaining events.
        self.running.resign((clock::now() + RELEASE_TIMEOUT).min(end - reserved / 8)).await;
        drop((sinks, std::mem::take(&mut *self.running.sinks.lock())));
        let actor_count = self.system.env().actor_count.clone();
        let until = (clock::now() + ACTORS_TIMEOUT).min(end);
        while actor_count.running() > 0 && clock::now() < until {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        ShutdownReport { undelivered, kept, actors_left: actor_count.running() }
    }

    /// Returns how much of a shutdown's `timeout` is reserved for the steps after the sinks have been drained. It is a
    /// fifth, at most 1 s, or 3 s with leader elections.
    fn reserved(&self, timeout: Duration) -> Duration {
        let most = if self.running.election.is_some() { RELEASE_TIMEOUT } else { ACTORS_TIMEOUT };
        most.min(timeout / 5)
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub")
            .field("system", &self.system)
            .field("sinks", &self.running.sinks.lock().len())
            .finish_non_exhaustive()
    }
}
