//! Start of a hub: state directory, caches, sinks, clusters, informers, in this order.

use std::fmt;
use std::sync::{Arc, Weak};

use actix::MailboxError;
use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::check::check;
#[cfg(feature = "fleet")]
use super::collect::{Collect, Collecting};
use super::convert;
use super::durable::DurableSubscription;
use super::election::Election;
use super::elections::{ElectionSet, Elections};
use super::error::StartError;
use super::hub::Hub;
use super::journal_readers::{Reader, RunningSinks};
use super::reload::{Dials, RunningHub};
#[cfg(feature = "fleet")]
use super::serving_replica::{Serve, Serving};
use super::sources::Sources;
use super::state::{LoadedState, OpenState};
use crate::actors::messages::{EnableCheckpoints, InformerFor, ResourceRequest, SetMemoryLimit, Start};
use crate::actors::sinks::sink::OpenStore;
use crate::actors::{CheckpointListener, HubSystem, Tuning};
use crate::cache::HistoryLimits;
use crate::state::StateDir;
use informer_hub_config::Config;
#[cfg(feature = "fleet")]
use informer_hub_config::{FleetConfig, FleetRole};
use informer_hub_dial::Dial;
use informer_hub_disk::{Disk, RealDisk};
use informer_hub_types::Threads;

impl Hub {
    /// Starts a hub: sinks first, then clusters, then informers. Returns once everything runs, not once it has synced;
    /// see [`Hub::wait_for_cache_sync`].
    ///
    /// # Errors
    /// [`StartError`] if the configuration is not usable or the operating system refuses threads. An unreachable
    /// cluster is not an error.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        Self::start_with(config, Tuning::default()).await
    }

    /// Starts a hub with the bounds and delays of `tuning` instead of the defaults.
    ///
    /// # Errors
    /// As [`Hub::start`].
    pub async fn start_with(config: Config, tuning: Tuning) -> Result<Self, StartError> {
        Self::builder(config).tuning(tuning).start().await
    }

    /// Returns a builder for options that a configuration does not have.
    #[must_use]
    pub fn builder(config: Config) -> HubBuilder {
        HubBuilder::new(config)
    }
}

/// Builder of a hub. See [`Hub::builder`].
pub struct HubBuilder {
    config: Config,
    tuning: Tuning,
    disk: Arc<dyn Disk>,
    durable: Vec<DurableSubscription>,
    dials: Dials,
    on_this_thread: bool,
    history: Option<HistoryLimits>,
    #[cfg(feature = "fleet")]
    collect: Option<Box<Collect>>,
    #[cfg(feature = "fleet")]
    serve: Option<Box<Serve>>,
}

impl HubBuilder {
    pub(super) fn new(config: Config) -> Self {
        Self {
            config,
            tuning: Tuning::default(),
            disk: Arc::new(RealDisk),
            durable: Vec::new(),
            dials: Dials::default(),
            on_this_thread: false,
            history: None,
            #[cfg(feature = "fleet")]
            collect: None,
            #[cfg(feature = "fleet")]
            serve: None,
        }
    }

    /// Sets limits and delays (queue sizes, retries, memory governor) in place of their defaults.
    #[must_use]
    pub fn tuning(mut self, tuning: Tuning) -> Self {
        self.tuning = tuning;
        self
    }

    /// Sets the disk under the state directory, e.g. a simulated one.
    #[must_use]
    #[doc(hidden)]
    pub fn disk(mut self, disk: Arc<dyn Disk>) -> Self {
        self.disk = disk;
        self
    }

    /// Adds a subscription with a journal, which continues after a restart of the hub.
    #[must_use]
    pub fn subscribe_durably(mut self, subscription: DurableSubscription) -> Self {
        self.durable.push(subscription);
        self
    }

    /// Keeps recent changes of each cache, for the Kubernetes read API.
    #[must_use]
    #[doc(hidden)]
    pub fn keep_history(mut self, limits: HistoryLimits) -> Self {
        self.history = Some(limits);
        self
    }

    /// Collects for a fleet: the hub watches the clusters that it owns in the fleet, and writes their changes to the
    /// fleet's log.
    #[cfg(feature = "fleet")]
    #[must_use]
    #[doc(hidden)]
    pub fn collect(mut self, collect: Collect) -> Self {
        self.collect = Some(Box::new(collect));
        self
    }

    /// Serves for a fleet: the caches follow the fleet's log, and the hub watches no cluster.
    #[cfg(feature = "fleet")]
    #[must_use]
    #[doc(hidden)]
    pub fn serve(mut self, serve: Serve) -> Self {
        self.serve = Some(Box::new(serve));
        self
    }

    /// Opens connections to apiservers with `dial` instead of TCP. TLS runs on top if the address of the cluster is
    /// `https`.
    #[must_use]
    #[doc(hidden)]
    pub fn dial(mut self, dial: Dial) -> Self {
        self.dials.clusters = Some(dial);
        self
    }

    /// Opens connections to webhook receivers with `dial` instead of TCP and proxies. The connections use HTTP/1.1
    /// without TLS: the start refuses a sink with an `https` address.
    #[must_use]
    #[doc(hidden)]
    pub fn dial_receivers(mut self, dial: Dial) -> Self {
        self.dials.receivers = Some(dial);
        self
    }

    /// Runs the hub on the actix system and runtime of the calling thread instead of its own threads. For simulations
    /// with a reproducible order ([`HubSystem::start_here`]). Ending the hub ends that actix system.
    #[must_use]
    pub fn on_this_thread(mut self) -> Self {
        self.on_this_thread = true;
        self
    }

    /// Starts the hub: sinks first, then clusters, then informers. Returns once everything runs, not once it has
    /// synced; see [`Hub::wait_for_cache_sync`].
    ///
    /// # Errors
    /// [`StartError`] if the configuration, a subscription or the state directory is not usable, or the operating
    /// system refuses threads. An unreachable cluster is not an error.
    pub async fn start(self) -> Result<Hub, StartError> {
        Box::pin(self.start_all()).await
    }

    async fn start_all(self) -> Result<Hub, StartError> {
        let Self { config, tuning, disk, durable, dials, on_this_thread, history, .. } = self;
        check(&config, &durable)?;
        let stall = tuning.reflector.stall;
        // The lock comes first: another process may be using the directory.
        let names = config.sinks.iter().map(|sink| &sink.name).chain(durable.iter().map(|one| &one.name));
        let opening = if on_this_thread { Threads::simulated(Handle::current()) } else { Threads::current() };
        let state = OpenState::of(&config, disk, names.cloned().collect(), &opening).await?;
        let saved_clusters = match &state {
            Some(state) => state.read_sourced_clusters(&opening).await,
            None => Vec::new(),
        };
        let sources = Sources::begin(&config.sources, saved_clusters, &opening).await;
        let written = config;
        let (config, _) = sources.effective(&written);
        let system = if on_this_thread { HubSystem::start_here(tuning) } else { HubSystem::start(tuning)? };
        if let Some(limits) = history {
            system.env().caches.keep_history(limits);
        }
        let io = system.env().io.clone();
        let election = Election::new(&config, stall, dials.clusters.clone(), &io).map(Elections::of_lease);
        #[cfg(feature = "fleet")]
        let (serve, election) = serving(self.serve, election, &config);
        let elections = election.as_ref().map(|election| &*election.0);
        let readers = readers(&config, durable, state.as_ref(), &io, dials.receivers.as_ref(), elections)?;
        let (env, registry) = (system.env().clone(), system.registry().clone());
        let mut running = RunningHub::new(
            registry,
            env.clone(),
            state.clone(),
            dials,
            stall,
            (written, config.clone()),
            Arc::new(sources),
        );
        running.election = election;
        let hub = Hub::new(system, running);
        hub.registry().send(SetMemoryLimit(config.hub.memory_limit)).await?;
        let demands = demands(&config);
        let stores = match state {
            None => readers.iter().map(|_| OpenStore::in_memory()).collect(),
            Some(state) => {
                let found = state.load(&config, demands.clone(), &io).await?;
                let (stores, found) = open_stores(&readers, found, &io).await?;
                let keeping = state.restore(found, &config, &env);
                let (sinks, marks) = (Arc::clone(&hub.running().sinks), Mutex::default());
                let sources = Arc::clone(&hub.running().sources);
                let state = state.downgrade();
                env.checkpoints.add_listener(Arc::new(Releasing { sinks, sources, state, io: io.clone(), marks }));
                hub.registry().send(EnableCheckpoints(Arc::new(keeping))).await?;
                stores
            }
        };
        for demand in demands {
            hub.registry().send(demand).await?;
        }
        for (reader, store) in readers.into_iter().zip(stores) {
            reader.start(store, &config.resources, &env, hub.registry(), &hub.running().sinks).await?;
        }
        #[cfg(feature = "fleet")]
        join_fleet((self.collect, serve), &config, &hub);
        for cluster in &config.clusters {
            hub.running().add_cluster(cluster).await?;
        }
        hub.registry().send(Start).await?;
        hub.running().watch_sources().await;
        hub.running().watch_credentials();
        hub.running().begin_election();
        Ok(hub)
    }
}

impl fmt::Debug for HubBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HubBuilder").field("durable", &self.durable).finish_non_exhaustive()
    }
}

/// Returns the configured requests for informers. Requests that name one resource come first, then those with a
/// pattern. So a resource with an entry of its own uses that entry, even if a pattern matches it too.
fn demands(config: &Config) -> Vec<InformerFor> {
    let mut demands: Vec<_> =
        config.resources.iter().map(|resource| convert::demand(resource, &config.resources)).collect();
    demands.sort_by_key(|demand| matches!(demand.wanted, ResourceRequest::Matching(_)));
    demands
}

/// Returns the serving replica and the leader elections of this process, if any. A replica or elections that the caller
/// passes take precedence over the configuration.
#[cfg(feature = "fleet")]
fn serving(
    serve: Option<Box<Serve>>,
    election: Option<Elections>,
    config: &Config,
) -> (Option<Box<Serve>>, Option<Elections>) {
    let mut serve = serve.or_else(|| with_role(config, Serve::ROLES).map(|fleet| Box::new(Serve::of(fleet))));
    let election =
        election.or_else(|| serve.as_mut()?.elect(&config.sinks.iter().map(|sink| sink.name.clone()).collect()));
    (serve, election)
}

/// Returns the configured fleet, if the process has one of the roles.
#[cfg(feature = "fleet")]
fn with_role<'c>(config: &'c Config, roles: &[FleetRole]) -> Option<&'c FleetConfig> {
    config.fleet.as_ref().filter(|fleet| fleet.roles.iter().any(|role| roles.contains(role)))
}

/// Starts the collector or serving replica of this process, if any. One that the caller passes takes precedence over
/// the configured one. A collector contends for the clusters that are added later; a replica reads them from the
/// fleet's log.
#[cfg(feature = "fleet")]
fn join_fleet((collect, serve): (Option<Box<Collect>>, Option<Box<Serve>>), config: &Config, hub: &Hub) {
    let (running, env) = (hub.running(), hub.system().env());
    if let Some(collect) =
        collect.or_else(|| with_role(config, &[FleetRole::Collect]).map(|fleet| Box::new(Collect::of(fleet))))
    {
        let collecting = Arc::new(Collecting::start(*collect, hub.registry(), env));
        let weak = Arc::downgrade(&collecting);
        running.fleet.set(move || weak.upgrade().map(|collecting| collecting.status()));
        // Set only here, and a hub starts once.
        let _ = running.collecting.set(collecting);
    } else if let Some(serve) = serve {
        let serving = Arc::new(Serving::start(*serve, env));
        let weak = Arc::downgrade(&serving);
        running.fleet.set(move || weak.upgrade().map(|serving| serving.status()));
        let _ = running.serving.set(serving);
    }
}

/// Builds all readers (sinks and durable subscriptions) without starting any. An unusable configuration is thus found
/// before the first reader starts.
fn readers(
    config: &Config,
    durable: Vec<DurableSubscription>,
    state: Option<&OpenState>,
    io: &Threads,
    dial: Option<&Dial>,
    elections: Option<&ElectionSet>,
) -> Result<Vec<Reader>, StartError> {
    let fsync = config.hub.fsync;
    let fenced = |reader: Reader| {
        let fence = elections.map(|elections| elections.fence_of(&reader.name));
        reader.fenced(fence)
    };
    let sinks = config.sinks.iter().map(|sink| Reader::of_sink(sink, state, fsync, io, dial).map(fenced));
    let mut all = sinks.collect::<Result<Vec<_>, _>>()?;
    // `check` has refused durable subscriptions without a state directory.
    if let Some(state) = state {
        all.extend(durable.into_iter().map(|one| Reader::of_durable(one, state, fsync, io)));
    }
    Ok(all)
}

/// Opens the event store of each reader (sink or durable subscription). Journaled events that are newer than the caches
/// on disk are added to the caches.
async fn open_stores(
    readers: &[Reader],
    mut found: LoadedState,
    io: &Threads,
) -> Result<(Vec<OpenStore>, LoadedState), StartError> {
    let places: Vec<_> = readers.iter().map(|reader| (reader.name.clone(), reader.params.place.clone())).collect();
    let opening = io.spawn_blocking(move || {
        let mut stores = Vec::new();
        for (sink, place) in places {
            let Some(place) = place else {
                stores.push(OpenStore::in_memory());
                continue;
            };
            let opened = OpenStore::open(&sink, &place, &|event| found.covers(&sink, event));
            let (store, uncheckpointed) =
                opened.map_err(|source| StartError::Journal { sink: sink.clone(), source })?;
            found.adopt(&sink, &uncheckpointed);
            stores.push(store);
        }
        Ok((stores, found))
    });
    opening.await.map_err(|_| StartError::Died(MailboxError::Closed))?
}

/// Listener of checkpoints. Before a checkpoint, it rewrites files that were deleted from the state directory. After
/// the checkpoint, it releases journaled events that the caches on disk cover.
struct Releasing {
    sinks: RunningSinks,
    sources: Arc<Sources>,
    state: Weak<StateDir>,
    io: Threads,
    /// Number of the next event in each sink's journal when the checkpoint began, with the name of the sink.
    marks: Mutex<Vec<(String, u64)>>,
}

impl CheckpointListener for Releasing {
    fn pass_begins(&self) {
        let sinks = self.sinks.lock();
        *self.marks.lock() =
            sinks.iter().filter_map(|one| Some((one.name().to_owned(), one.health.journal_end()?))).collect();
        for one in sinks.iter() {
            let (sink, health) = (one.sink().clone(), Arc::clone(&one.health));
            self.io.spawn_blocking(move || sink.check_files(&health));
        }
        let saved = self.sources.saved();
        if let Some(state) = OpenState::upgrade(&self.state).filter(|_| !saved.is_empty()) {
            self.io.spawn_blocking(move || state.rewrite_sourced_clusters(saved));
        }
    }

    fn pass_completed(&self) {
        let sinks = self.sinks.lock();
        for (name, end) in std::mem::take(&mut *self.marks.lock()) {
            // A missing sink was removed, or the hub is shutting down.
            let Some(sink) = sinks.iter().find(|one| one.name() == name).map(|one| one.sink().clone()) else {
                continue;
            };
            self.io.spawn_blocking(move || sink.release(end));
        }
    }
}

impl fmt::Debug for Releasing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Releasing").finish_non_exhaustive()
    }
}
