//! A hub as an embedder has it: started from a configuration, asked and subscribed to, shut down.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use actix::{Addr, MailboxError};
use futures::future::join_all;
use kube::Resource;
use serde::Serialize;

use super::typed::{CacheClient, api_resource};
use super::{convert, sinks};
use crate::actors::messages::{AddCluster, GetStatus, SetMemoryLimit, Shutdown, Start, WaitForCacheSync};
use crate::actors::sink::{Drain, Sink, SinkParams};
use crate::actors::{HubStatus, HubSystem, NotSynced, RegistryActor, RegistryError, Subscribe, SystemError, Tuning};
use crate::cache::Chain;
use crate::config::{Config, Initial, SinkConfig};
use crate::sink::{SinkHealth, SinkStatus};
use crate::types::clock::{self, Instant};
use crate::types::{ApiResource, LEAST_MEMORY_LIMIT, Object};

/// How long before the end of a shutdown it is seen how far behind the sinks are.
const LAST_LOOK: Duration = Duration::from_millis(50);

/// Why a hub does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A sink's configuration cannot be used; whoever wrote it can fix it.
    #[error("sinks.{sink}.{key}: {problem}")]
    Sink {
        /// The sink.
        sink: String,
        /// The key that is wrong.
        key: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// The operating system refused a thread.
    #[error(transparent)]
    System(#[from] SystemError),
    /// Two clusters of one name.
    #[error(transparent)]
    Cluster(#[from] RegistryError),
    /// An actor ended while the hub started.
    #[error("an actor of the hub ended while it started")]
    Died(#[from] MailboxError),
}

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
    sinks: Vec<RunningSink>,
}

struct RunningSink {
    name: String,
    sink: Sink,
    health: Arc<SinkHealth>,
}

/// What a sink has done.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SinkReport {
    /// Its name.
    pub name: String,
    /// Its counters.
    #[serde(flatten)]
    pub status: SinkStatus,
}

/// Everything that a hub shows of itself.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HubReport {
    /// Clusters and informers.
    #[serde(flatten)]
    pub hub: HubStatus,
    /// Sinks, by name.
    pub sinks: Vec<SinkReport>,
}

/// How a shutdown went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShutdownReport {
    /// Events that sinks could not deliver in time, by sink, those included that a sink had no room for. Of these it
    /// is not known yet which the sink would have taken.
    pub undelivered: Vec<(String, u64)>,
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
        let stall = tuning.reflector.stall;
        let system = HubSystem::start(tuning)?;
        let io = system.env().io.clone();
        // All sinks are checked before the first one starts.
        let params: Vec<_> = config.sinks.iter().map(|sink| sinks::sink(sink, &io)).collect::<Result<_, _>>()?;
        let mut hub = Self { system, sinks: Vec::new() };
        hub.registry().send(SetMemoryLimit(config.hub.memory_limit)).await?;
        for resource in &config.resources {
            hub.registry().send(convert::demand(resource, &config.resources)).await?;
        }
        for (sink, params) in config.sinks.iter().zip(params) {
            hub.start_sink(&config, sink, params).await?;
        }
        for cluster in &config.clusters {
            let connector = Arc::new(convert::connector(cluster, stall, &io));
            let add = AddCluster { name: cluster.name.clone(), labels: cluster.labels.clone(), connector };
            hub.registry().send(add).await??;
        }
        hub.registry().send(Start).await?;
        Ok(hub)
    }

    async fn start_sink(&mut self, config: &Config, sink: &SinkConfig, params: SinkParams) -> Result<(), StartError> {
        let health = Arc::clone(&params.health);
        let running = Sink::start(params, self.system.env());
        for resource in &config.resources {
            let wanted = &sink.select.resources;
            if !wanted.is_empty() && !wanted.contains(&resource.name) {
                continue;
            }
            let clusters = sink.select.clusters.clone();
            let mut subscribe =
                Subscribe::to_configured(&resource.name, clusters, running.subscriber()).named(&sink.name);
            if sink.initial == Initial::Skip {
                subscribe = subscribe.skip_initial();
            }
            if let Some(period) = resource.resync {
                subscribe = subscribe.with_resync(period);
            }
            self.registry().send(subscribe).await?;
        }
        self.sinks.push(RunningSink { name: sink.name.clone(), sink: running, health });
        Ok(())
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

    /// Waits until every informer has synced.
    ///
    /// # Errors
    /// [`NotSynced`] names what had not when the time was up, and why.
    pub async fn wait_for_cache_sync(&self, timeout: Duration) -> Result<(), NotSynced> {
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
        let sinks = self.sinks.iter().map(|sink| (sink.name.clone(), Arc::clone(&sink.health))).collect();
        Reporter { registry: self.registry().clone(), sinks }
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
    pub async fn shutdown(mut self, timeout: Duration) -> ShutdownReport {
        let deadline = clock::now() + timeout;
        let behind = self.stop_clusters(deadline).await;
        let drains = self.sinks.iter().map(async |sink| match sink.sink.drain(Drain { deadline }).await {
            Some(report) => (sink.name.clone(), report.left),
            None => (sink.name.clone(), sink.health.status().pending_events),
        });
        let mut undelivered = join_all(drains).await;
        for (sink, left) in &mut undelivered {
            *left += behind.get(sink).copied().unwrap_or_default();
        }
        undelivered.retain(|(_, left)| *left > 0);
        self.sinks.clear();
        let census = self.system.env().census.clone();
        let until = clock::now() + Duration::from_secs(1);
        while census.living() > 0 && clock::now() < until {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        ShutdownReport { undelivered, actors_left: census.living() }
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("system", &self.system).field("sinks", &self.sinks.len()).finish()
    }
}

/// See [`Hub::reporter`].
#[derive(Clone)]
pub struct Reporter {
    registry: Addr<RegistryActor>,
    sinks: Vec<(String, Arc<SinkHealth>)>,
}

impl Reporter {
    /// What everything is doing.
    ///
    /// # Errors
    /// The hub is shutting down.
    pub async fn report(&self) -> Result<HubReport, MailboxError> {
        let hub = self.registry.send(GetStatus).await?;
        let report =
            |(name, health): &(String, Arc<SinkHealth>)| SinkReport { name: name.clone(), status: health.status() };
        Ok(HubReport { hub, sinks: self.sinks.iter().map(report).collect() })
    }
}

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reporter").field("sinks", &self.sinks.len()).finish_non_exhaustive()
    }
}
