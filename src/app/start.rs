//! How a hub starts: state first, then caches, sinks, clusters, informers.

use std::fmt;
use std::sync::{Arc, Weak};

use actix::MailboxError;
use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::convert;
use super::durable::DurableSubscription;
use super::hub::Hub;
use super::readers::Reader;
use super::reload::Running;
use super::report::RunningSinks;
use super::sources::Sources;
use super::state::{Found, OpenState};
use crate::actors::messages::{EnableCheckpoints, ResourceRequest, SetMemoryLimit, Start};
use crate::actors::sinks::sink::OpenStore;
use crate::actors::{CheckpointListener, HubSystem, RegistryError, SystemError, Tuning};
use crate::state::{StateDir, StateError};
use informer_hub_config::Config;
use informer_hub_dial::Dial;
use informer_hub_disk::{Disk, RealDisk};
use informer_hub_journal::JournalError;
use informer_hub_types::{Threads, check_name};

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
    /// A sink's journal cannot be opened; whoever runs the machine can fix it.
    #[error("sinks.{sink}: its journal cannot be opened")]
    Journal {
        /// The sink.
        sink: String,
        /// Why.
        #[source]
        source: JournalError,
    },
    /// A durable subscription that cannot be; whoever asks for it can fix it.
    #[error("durable subscription {name:?}: {problem}")]
    Subscription {
        /// Its name.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The state directory cannot be used; whoever runs the hub can mend it.
    #[error(transparent)]
    State(#[from] StateError),
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

/// What opens connections in place of TCP.
#[derive(Clone, Debug, Default)]
pub(super) struct Dials {
    /// Those to apiservers.
    pub(super) clusters: Option<Dial>,
    /// Those to receivers of webhooks.
    pub(super) receivers: Option<Dial>,
}

/// A hub that is yet to be started. See [`Hub::builder`].
pub struct HubBuilder {
    config: Config,
    tuning: Tuning,
    disk: Arc<dyn Disk>,
    durable: Vec<DurableSubscription>,
    dials: Dials,
    here: bool,
}

impl HubBuilder {
    pub(super) fn new(config: Config) -> Self {
        Self {
            config,
            tuning: Tuning::default(),
            disk: Arc::new(RealDisk),
            durable: Vec::new(),
            dials: Dials::default(),
            here: false,
        }
    }

    /// Bounds and delays of the caller's choice.
    #[must_use]
    pub fn tuning(mut self, tuning: Tuning) -> Self {
        self.tuning = tuning;
        self
    }

    /// Another disk under the state directory.
    #[must_use]
    pub fn disk(mut self, disk: Arc<dyn Disk>) -> Self {
        self.disk = disk;
        self
    }

    /// Has an actor told from a journal, and go on where it was when the hub is started again.
    #[must_use]
    pub fn subscribe_durably(mut self, subscription: DurableSubscription) -> Self {
        self.durable.push(subscription);
        self
    }

    /// Has connections to apiservers opened by `dial`, in place of TCP. TLS is spoken over them where a cluster's address
    /// says `https`.
    #[must_use]
    pub fn dial(mut self, dial: Dial) -> Self {
        self.dials.clusters = Some(dial);
        self
    }

    /// Has connections to receivers of webhooks opened by `dial`, in place of TCP and of proxies. HTTP/1.1 is spoken over
    /// them without TLS: a sink whose address says `https` is refused at the start.
    #[must_use]
    pub fn dial_receivers(mut self, dial: Dial) -> Self {
        self.dials.receivers = Some(dial);
        self
    }

    /// On the actix system and the runtime of the thread that starts it, which it ends with, instead of threads of its
    /// own: for simulations that are to happen in the same order each time
    /// ([`HubSystem::start_here`]).
    #[must_use]
    pub fn on_this_thread(mut self) -> Self {
        self.here = true;
        self
    }

    /// Starts it: sinks first, then clusters, then informers. Returns when everything runs; whether anything has
    /// synced is for [`Hub::wait_for_cache_sync`].
    ///
    /// # Errors
    /// [`StartError`] when the configuration, a subscription or the state directory cannot be used, or the operating
    /// system refuses threads. A cluster that cannot be reached is no error.
    pub async fn start(self) -> Result<Hub, StartError> {
        let Self { config, tuning, disk, durable, dials, here } = self;
        check(&config, &durable)?;
        let stall = tuning.reflector.stall;
        // Before anything else: another process may be using it.
        let names = config.sinks.iter().map(|sink| &sink.name).chain(durable.iter().map(|one| &one.name));
        let opening = if here { Threads::simulated(Handle::current()) } else { Threads::current() };
        let state = OpenState::of(&config, disk, names.cloned().collect(), &opening).await?;
        let remembered = match &state {
            Some(state) => state.remembered(&opening).await,
            None => Vec::new(),
        };
        let sources = Sources::begin(&config.sources, remembered, &opening).await;
        let written = config;
        let (config, _) = sources.effective(&written);
        let system = if here { HubSystem::start_here(tuning) } else { HubSystem::start(tuning)? };
        let io = system.env().io.clone();
        let readers = readers(&config, durable, state.as_ref(), &io, dials.receivers.as_ref())?;
        let (env, registry) = (system.env().clone(), system.registry().clone());
        let running = Running::new(
            registry,
            env.clone(),
            state.clone(),
            dials,
            stall,
            (written, config.clone()),
            Arc::new(sources),
        );
        let hub = Hub::new(system, running);
        hub.registry().send(SetMemoryLimit(config.hub.memory_limit)).await?;
        let mut demands: Vec<_> =
            config.resources.iter().map(|resource| convert::demand(resource, &config.resources)).collect();
        // What is named is its entry's, not a pattern's.
        demands.sort_by_key(|demand| matches!(demand.wanted, ResourceRequest::Matching(_)));
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
        for cluster in &config.clusters {
            hub.running().add_cluster(cluster).await?;
        }
        hub.registry().send(Start).await?;
        hub.running().watch_sources().await;
        hub.running().watch_credentials();
        Ok(hub)
    }
}

impl fmt::Debug for HubBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HubBuilder").field("durable", &self.durable).finish_non_exhaustive()
    }
}

/// What is wrong with durable subscriptions, if anything is.
fn check(config: &Config, durable: &[DurableSubscription]) -> Result<(), StartError> {
    for (at, one) in durable.iter().enumerate() {
        let wrong = |problem: String| StartError::Subscription { name: one.name.clone(), problem };
        check_name("name", &one.name).map_err(|error| wrong(format!("a name is {}", error.rule)))?;
        if config.hub.state_dir.is_none() {
            return Err(wrong("there is no state directory to keep it in; set hub.state_dir".to_owned()));
        }
        let taken = durable[..at].iter().any(|other| other.name == one.name);
        if taken || config.sinks.iter().any(|sink| sink.name == one.name) {
            return Err(wrong("another subscription or sink has this name".to_owned()));
        }
        let known = |name: &&String| !config.resources.iter().any(|resource| resource.name == **name);
        if let Some(unknown) = one.resources.iter().find(known) {
            return Err(wrong(format!("there is no [resources.{unknown}]")));
        }
    }
    Ok(())
}

/// All are built before the first one starts.
fn readers(
    config: &Config,
    durable: Vec<DurableSubscription>,
    state: Option<&OpenState>,
    io: &Threads,
    dial: Option<&Dial>,
) -> Result<Vec<Reader>, StartError> {
    let fsync = config.hub.fsync;
    let sinks = config.sinks.iter().map(|sink| Reader::of_sink(sink, state, fsync, io, dial));
    let mut all = sinks.collect::<Result<Vec<_>, _>>()?;
    // Checked: where there are some, there is a state directory.
    if let Some(state) = state {
        all.extend(durable.into_iter().map(|one| Reader::of_durable(one, state, fsync, io)));
    }
    Ok(all)
}

/// Opens the readers' stores. What they were told of and the caches on disk do not have, these take over.
async fn open_stores(
    readers: &[Reader],
    mut found: Found,
    io: &Threads,
) -> Result<(Vec<OpenStore>, Found), StartError> {
    let places: Vec<_> = readers.iter().map(|reader| (reader.name.clone(), reader.params.place.clone())).collect();
    let opening = io.spawn_blocking(move || {
        let mut stores = Vec::new();
        for (sink, place) in places {
            let Some(place) = place else {
                stores.push(OpenStore::in_memory());
                continue;
            };
            let opened = OpenStore::open(&sink, &place, &|event| found.knows(&sink, event));
            let (store, orphans) = opened.map_err(|source| StartError::Journal { sink: sink.clone(), source })?;
            found.adopt(&sink, &orphans);
            stores.push(store);
        }
        Ok((stores, found))
    });
    opening.await.map_err(|_| StartError::Died(MailboxError::Closed))?
}

/// Lets journals forget what the caches on disk have caught up with, and sees that what is kept beside these is still there.
struct Releasing {
    sinks: RunningSinks,
    sources: Arc<Sources>,
    state: Weak<StateDir>,
    io: Threads,
    /// Where each journal ended when the pass began, by sink.
    marks: Mutex<Vec<(String, u64)>>,
}

impl CheckpointListener for Releasing {
    fn pass_begins(&self) {
        let sinks = self.sinks.lock();
        *self.marks.lock() =
            sinks.iter().filter_map(|one| Some((one.name().to_owned(), one.health.journal_end()?))).collect();
        for one in sinks.iter() {
            let (sink, health) = (one.sink().clone(), Arc::clone(&one.health));
            self.io.spawn_blocking(move || sink.tend(&health));
        }
        let kept = self.sources.kept();
        if let Some(state) = OpenState::upgrade(&self.state).filter(|_| !kept.is_empty()) {
            self.io.spawn_blocking(move || state.tend(kept));
        }
    }

    fn pass_completed(&self) {
        let sinks = self.sinks.lock();
        for (name, end) in std::mem::take(&mut *self.marks.lock()) {
            // None: the hub is shutting down.
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
