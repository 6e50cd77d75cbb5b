//! How a hub starts: state first, then caches, sinks, clusters, informers.

use std::fmt;
use std::sync::Arc;

use actix::MailboxError;
use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::durable::DurableSubscription;
use super::hub::Hub;
use super::report::{RunningSink, RunningSinks};
use super::state::{Found, OpenState};
use super::{convert, sinks};
use crate::actors::messages::{AddCluster, Keep, SetMemoryLimit, Start};
use crate::actors::sink::{OpenStore, Sink, SinkParams, StorePlace};
use crate::actors::{CheckpointListener, HubSystem, RegistryError, Subscribe, SystemError, Tuning};
use crate::config::{Config, Initial, ResourceConfig};
use crate::disk::{Disk, RealDisk};
use crate::journal::JournalError;
use crate::sink;
use crate::source::Dial;
use crate::state::StateError;
use crate::types::{ClusterSelector, Threads, check_name};

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

/// A hub that is yet to be started. See [`Hub::builder`].
pub struct HubBuilder {
    config: Config,
    tuning: Tuning,
    disk: Arc<dyn Disk>,
    durable: Vec<DurableSubscription>,
    dial: Option<Dial>,
    here: bool,
}

impl HubBuilder {
    pub(super) fn new(config: Config) -> Self {
        Self {
            config,
            tuning: Tuning::default(),
            disk: Arc::new(RealDisk),
            durable: Vec::new(),
            dial: None,
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

    /// Has connections to apiservers opened by `dial`, in place of TCP.
    #[must_use]
    pub fn dial(mut self, dial: Dial) -> Self {
        self.dial = Some(dial);
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
        let Self { config, tuning, disk, durable, dial, here } = self;
        check(&config, &durable)?;
        let stall = tuning.reflector.stall;
        // Before anything else: another process may be using it.
        let names = config.sinks.iter().map(|sink| &sink.name).chain(durable.iter().map(|one| &one.name));
        let opening = if here { Threads::simulated(Handle::current()) } else { Threads::current() };
        let state = OpenState::of(&config, disk, names.cloned().collect(), &opening).await?;
        let system = if here { HubSystem::start_here(tuning) } else { HubSystem::start(tuning)? };
        let io = system.env().io.clone();
        // All sinks are checked before the first one starts.
        let readers = readers(&config, durable, state.as_ref(), &io)?;
        let hub = Hub::new(system, state.clone());
        hub.registry().send(SetMemoryLimit(config.hub.memory_limit)).await?;
        let demands: Vec<_> =
            config.resources.iter().map(|resource| convert::demand(resource, &config.resources)).collect();
        let stores = match state {
            None => readers.iter().map(|_| OpenStore::in_memory()).collect(),
            Some(state) => {
                let found = state.load(&config, demands.clone(), &io).await?;
                let (stores, found) = open_stores(&readers, found, &io).await?;
                let keeping = state.restore(found, &config, hub.system().env());
                let releasing = Releasing { sinks: Arc::clone(hub.sinks()), io: io.clone(), marks: Mutex::default() };
                hub.system().env().checkpoints.listen(Arc::new(releasing));
                hub.registry().send(Keep(Arc::new(keeping))).await?;
                stores
            }
        };
        for demand in demands {
            hub.registry().send(demand).await?;
        }
        for (reader, store) in readers.into_iter().zip(stores) {
            start_reader(&hub, &config.resources, reader, store).await?;
        }
        for cluster in &config.clusters {
            let connector = Arc::new(convert::connector(cluster, stall, dial.clone(), &io));
            let add = AddCluster { name: cluster.name.clone(), labels: cluster.labels.clone(), connector };
            hub.registry().send(add).await??;
        }
        hub.registry().send(Start).await?;
        Ok(hub)
    }
}

impl fmt::Debug for HubBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HubBuilder").field("durable", &self.durable).finish_non_exhaustive()
    }
}

/// A sink or a durable subscription, ready to be started.
struct Reader {
    name: String,
    params: SinkParams,
    /// Names of configured resources; empty: all.
    resources: Vec<String>,
    clusters: ClusterSelector,
    skip_initial: bool,
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

fn readers(
    config: &Config,
    durable: Vec<DurableSubscription>,
    state: Option<&OpenState>,
    io: &Threads,
) -> Result<Vec<Reader>, StartError> {
    let place = |name: &str, limits| {
        state.map(|state| {
            let (disk, directory) = state.reader(name);
            StorePlace { disk, directory, limits, fsync: config.hub.fsync }
        })
    };
    let mut all = Vec::new();
    for sink in &config.sinks {
        let mut params = sinks::sink(sink, io)?;
        params.place = place(&sink.name, sinks::limits(sink));
        all.push(Reader {
            name: sink.name.clone(),
            params,
            resources: sink.select.resources.clone(),
            clusters: sink.select.clusters.clone(),
            skip_initial: sink.initial == Initial::Skip,
        });
    }
    for one in durable {
        // Checked: there is a state directory.
        let Some(place) = place(&one.name, one.limits) else { continue };
        all.push(Reader {
            name: one.name.clone(),
            resources: one.resources.clone(),
            clusters: one.clusters.clone(),
            skip_initial: one.selection.initial == sink::Initial::Skip,
            params: one.params(place, io),
        });
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
            let opened = OpenStore::open(&sink, &place, &|event| found.knows(event));
            let (store, orphans) = opened.map_err(|source| StartError::Journal { sink: sink.clone(), source })?;
            found.adopt(&sink, &orphans);
            stores.push(store);
        }
        Ok((stores, found))
    });
    opening.await.map_err(|_| StartError::Died(MailboxError::Closed))?
}

async fn start_reader(
    hub: &Hub,
    resources: &[ResourceConfig],
    reader: Reader,
    store: OpenStore,
) -> Result<(), StartError> {
    let Reader { name, params, resources: wanted, clusters, skip_initial } = reader;
    let (health, is_durable) = (Arc::clone(&params.machine.health), params.place.is_some());
    let running = Sink::start(params, store, hub.system().env());
    for resource in resources.iter().filter(|resource| wanted.is_empty() || wanted.contains(&resource.name)) {
        let mut subscribe =
            Subscribe::to_configured(&resource.name, clusters.clone(), running.subscriber()).named(&name);
        if skip_initial {
            subscribe = subscribe.skip_initial();
        }
        if is_durable {
            subscribe = subscribe.durable();
        }
        if let Some(period) = resource.resync {
            subscribe = subscribe.with_resync(period);
        }
        hub.registry().send(subscribe).await?;
    }
    hub.sinks().lock().push(RunningSink { name, sink: running, health });
    Ok(())
}

/// Lets journals forget what the caches on disk have caught up with.
struct Releasing {
    sinks: RunningSinks,
    io: Threads,
    /// Where each journal ended when the pass began, by sink.
    marks: Mutex<Vec<(String, u64)>>,
}

impl CheckpointListener for Releasing {
    fn begins(&self) {
        let sinks = self.sinks.lock();
        *self.marks.lock() =
            sinks.iter().filter_map(|one| Some((one.name.clone(), one.health.journal_end()?))).collect();
    }

    fn completed(&self) {
        let sinks = self.sinks.lock();
        for (name, end) in std::mem::take(&mut *self.marks.lock()) {
            // None: the hub is shutting down.
            let Some(sink) = sinks.iter().find(|one| one.name == name).map(|one| one.sink.clone()) else { continue };
            self.io.spawn_blocking(move || sink.release(end));
        }
    }
}

impl fmt::Debug for Releasing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Releasing").finish_non_exhaustive()
    }
}
