//! A hub as an embedder has it: started from a configuration, asked and subscribed to, shut down.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use actix::{Addr, MailboxError};
use futures::future::join_all;
use kube::Resource;
use serde::Serialize;

use super::exporter::MetricsExporter;
use super::metrics::Metrics;
use super::reload::{Reloader, Running};
use super::report::{HubReport, Reporter};
use super::sources::ClusterSourceState;
use super::start::{HubBuilder, StartError};
use super::typed::{CacheClient, api_resource};
use crate::actors::messages::{SetMemoryLimit, Shutdown, ViewSync, WaitForCacheSync};
use crate::actors::sinks::sink::Drain;
use crate::actors::{FleetView, HubSystem, NotSynced, RegistryActor, Tuning};
use crate::cache::Chain;
use informer_hub_config::Config;
use informer_hub_types::clock::{self, Instant};
use informer_hub_types::{ApiResource, LEAST_MEMORY_LIMIT, Object};

/// How long before the end of a shutdown it is seen how far behind the sinks are.
const LAST_LOOK: Duration = Duration::from_millis(50);

/// Why a memory limit is not set; the caller can fix it.
#[derive(Debug, thiserror::Error)]
pub enum MemoryLimitError {
    /// It does not hold the process itself.
    #[error("a memory limit of {limit} bytes does not hold the process itself: give it {LEAST_MEMORY_LIMIT} or more")]
    TooSmall {
        /// What was asked for.
        limit: u64,
    },
    /// The hub is shutting down.
    #[error("the hub is shutting down")]
    Stopped(#[from] MailboxError),
}

/// A running hub: clusters, informers, caches, sinks.
///
/// It has threads of its own; its addresses work from any thread and any runtime. Dropping it ends it at once;
/// [`Hub::shutdown`] ends it in order.
pub struct Hub {
    system: HubSystem,
    /// What it runs with; the state directory is held until the hub has ended.
    running: Arc<Running>,
}

/// How a shutdown went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShutdownReport {
    /// Events that sinks could not deliver in time, by sink, those included that a sink had no room for. Of these it
    /// is not known yet which the sink would have taken.
    pub undelivered: Vec<(String, u64)>,
    /// Events that are in a sink's journal, for the next start, by sink.
    pub kept: Vec<(String, u64)>,
    /// Actors that were still alive at the end; zero unless something is wrong.
    pub actors_left: usize,
}

impl Hub {
    /// Starts a hub: sinks first, then clusters, then informers. Returns when everything runs; whether anything has
    /// synced is for [`Hub::wait_for_cache_sync`].
    ///
    /// # Errors
    /// [`StartError`] when the configuration cannot be used or the operating system refuses threads. A cluster that
    /// cannot be reached is no error.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        Self::start_with(config, Tuning::default()).await
    }

    /// The same, with bounds and delays of the caller's choice.
    ///
    /// # Errors
    /// As [`Hub::start`].
    pub async fn start_with(config: Config, tuning: Tuning) -> Result<Self, StartError> {
        Self::builder(config).tuning(tuning).start().await
    }

    /// A hub that is yet to be started, with more to it than a configuration says.
    #[must_use]
    pub fn builder(config: Config) -> HubBuilder {
        HubBuilder::new(config)
    }

    pub(super) fn new(system: HubSystem, running: Running) -> Self {
        Self { system, running: Arc::new(running) }
    }

    pub(super) fn running(&self) -> &Arc<Running> {
        &self.running
    }

    /// The registry: add and remove clusters, ask for informers, subscribe.
    #[must_use]
    pub fn registry(&self) -> &Addr<RegistryActor> {
        self.system.registry()
    }

    /// The cache of a type, over all clusters.
    #[must_use]
    pub fn cache<K>(&self) -> CacheClient<K>
    where
        K: Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        CacheClient::new(self.system.env().caches.clone(), api_resource::<K>())
    }

    /// The cache of a resource, over all clusters, its objects read as JSON.
    #[must_use]
    pub fn cache_of(&self, resource: ApiResource) -> CacheClient {
        CacheClient::new(self.system.env().caches.clone(), resource)
    }

    /// Who owns an object, the nearest first, up to the one that nobody owns: as far as the hub watches their kinds in the
    /// object's cluster. Where the chain breaks off, it says why.
    #[must_use]
    pub fn owner_chain<K>(&self, object: &Object<K>) -> Chain {
        self.system.env().caches.owner_chain(&object.clone().cast())
    }

    /// Waits until every source of clusters has said what it brings, or why it cannot, and every informer has synced.
    ///
    /// # Errors
    /// [`NotSynced`] names what had not when the time was up, and why.
    pub async fn wait_for_cache_sync(&self, timeout: Duration) -> Result<(), NotSynced> {
        let (sources, began) = (&self.running.sources, clock::now());
        let left = || timeout.saturating_sub(clock::now().duration_since(began));
        let mut heard = sources.watch();
        while sources.is_waiting() {
            if !matches!(tokio::time::timeout(left(), heard.changed()).await, Ok(Ok(()))) {
                let waiting = sources.status().into_iter().filter(|source| source.state == ClusterSourceState::Waiting);
                let waiting = waiting.map(|source| format!("cluster_sources.{}: has said nothing yet", source.name));
                return Err(NotSynced { waited: timeout, waiting: waiting.collect() });
            }
        }
        let timeout = left();
        let stopped = |_| NotSynced { waited: timeout, waiting: vec!["the hub is shutting down".to_owned()] };
        self.registry().send(WaitForCacheSync { timeout }).await.unwrap_or_else(|error| Err(stopped(error)))
    }

    /// What everything is doing.
    ///
    /// # Errors
    /// The hub is shutting down.
    pub async fn report(&self) -> Result<HubReport, MailboxError> {
        self.reporter().report().await
    }

    /// Makes reports, from anywhere, for as long as the hub lives.
    #[must_use]
    pub fn reporter(&self) -> Reporter {
        let Running { registry, sinks, sources, credentials, status, .. } = &*self.running;
        let (sinks, sources, configuration) = (Arc::clone(sinks), Arc::clone(sources), Arc::clone(status));
        Reporter { registry: registry.clone(), sinks, sources, credentials: Arc::clone(credentials), configuration }
    }

    /// Changes the configuration while the hub runs, from anywhere, for as long as it lives.
    #[must_use]
    pub fn reloader(&self) -> Reloader {
        Reloader(Arc::downgrade(&self.running))
    }

    /// What all clusters show, read without asking any actor.
    ///
    /// # Errors
    /// The hub is shutting down.
    pub async fn fleet(&self) -> Result<FleetView, MailboxError> {
        Ok(FleetView::new(self.registry().send(ViewSync).await?, self.system.env().clone()))
    }

    /// Returns an exporter of the hub's metrics, to which the program adds its work queues. The program serves them; the
    /// service does so at `/metrics`.
    ///
    /// # Errors
    /// The hub is shutting down.
    pub async fn metrics_exporter(&self) -> Result<MetricsExporter, MailboxError> {
        let metrics = Metrics::default();
        metrics.attach(self.fleet().await?, self.reporter().parts());
        Ok(MetricsExporter::new(metrics))
    }

    /// Limits the memory that the process has resident from now on, in bytes; `None`: no limit any more. Informers keep less
    /// of their objects where they have to, and more again where they may, within seconds; the status shows which.
    ///
    /// # Errors
    /// [`MemoryLimitError`] when the limit does not hold the process itself; then the one before stays.
    pub async fn set_memory_limit(&self, limit: Option<u64>) -> Result<(), MemoryLimitError> {
        if let Some(limit) = limit.filter(|limit| *limit < LEAST_MEMORY_LIMIT) {
            return Err(MemoryLimitError::TooSmall { limit });
        }
        Ok(self.registry().send(SetMemoryLimit(limit)).await?)
    }

    /// What the actors share.
    #[must_use]
    pub fn system(&self) -> &HubSystem {
        &self.system
    }

    /// Stops clusters and informers, and drains what waits in their pipelines. Gives what still waited to be handed to
    /// each subscriber by name when the time was all but over: a sink that is full takes nothing in.
    async fn stop_clusters(&self, deadline: Instant) -> BTreeMap<String, u64> {
        let mut behind = BTreeMap::new();
        let mut stopping = Box::pin(self.registry().send(Shutdown { deadline }));
        let nearly = deadline.checked_sub(LAST_LOOK).unwrap_or(deadline);
        if tokio::time::timeout_at(nearly, &mut stopping).await.is_ok() {
            return behind;
        }
        // The registry answers while it stops the clusters. What it cannot say in time is not waited for.
        let reporter = self.reporter();
        let look = tokio::time::timeout(Duration::from_secs(1), reporter.report());
        // An error of the second means that the registry had ended already.
        let (looked, _) = futures::join!(look, stopping);
        let Ok(Ok(report)) = looked else { return behind };
        let informers = report.hub.clusters.into_iter().flat_map(|cluster| cluster.informers);
        for listener in informers.flat_map(|informer| informer.listeners) {
            *behind.entry(listener.name).or_default() += listener.pending;
        }
        behind
    }

    /// Ends the hub in order: reflectors, what waits in the pipelines, then the sinks, all within `timeout`.
    pub async fn shutdown(self, timeout: Duration) -> ShutdownReport {
        let deadline = clock::now() + timeout;
        self.running.close();
        let behind = self.stop_clusters(deadline).await;
        let sinks = std::mem::take(&mut *self.running.sinks.lock());
        let drains = sinks.iter().map(async |sink| match sink.sink().drain(Drain { deadline }).await {
            Some(report) => (sink.name().to_owned(), report.left, report.kept),
            None => (sink.name().to_owned(), sink.health.status().pending_events, 0),
        });
        let (mut undelivered, mut kept) = (Vec::new(), Vec::new());
        for (sink, left, in_journal) in join_all(drains).await {
            let left = left + behind.get(&sink).copied().unwrap_or_default();
            undelivered.push((sink.clone(), left));
            kept.push((sink, in_journal));
        }
        undelivered.retain(|(_, left)| *left > 0);
        kept.retain(|(_, kept)| *kept > 0);
        drop(sinks);
        let census = self.system.env().census.clone();
        let until = clock::now() + Duration::from_secs(1);
        while census.running() > 0 && clock::now() < until {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        ShutdownReport { undelivered, kept, actors_left: census.running() }
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
