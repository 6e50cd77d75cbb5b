//! Resources shared by all actors of a hub: threads, caches, limits, checkpoints.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use actix::ArbiterHandle;
use parking_lot::RwLock;

use crate::actors::cache::actor::CacheDirectory;
use crate::actors::checkpoint::store::Checkpoints;
use crate::actors::memory::members::Budget;
use crate::actors::runtime::capacity::Tuning;
use crate::actors::runtime::supervision::ActorCount;
use crate::actors::runtime::thread_pools::ThreadPools;
use crate::actors::subscribe::resource_request::ResourceRequest;
use informer_hub_types::{ApiResource, Rewinds, Threads, View, WatchCell, Watcher};

/// Shared resources of one hub; cheap to clone.
#[derive(Clone)]
pub struct Env {
    /// Multi-thread runtime for sockets, decoding and compression.
    pub io: Threads,
    /// Blocking threads for scans of queries. Their CPU priority is lower than that of the threads that store changes.
    pub readers: Threads,
    /// Blocking threads for closures of the embedding program. Separate, so that blocked closures do not stall the hub.
    pub handlers: Threads,
    /// Caches by resource and view (form in which objects are kept).
    pub caches: CacheDirectory,
    /// Limits and delays.
    pub tuning: Arc<Tuning>,
    /// Memory status, and the informers whose memory the governor limits.
    pub budget: Budget,
    /// Resources whose resourceVersions went back, because etcd was restored from a backup.
    pub rewinds: Rewinds,
    /// Checkpoint state.
    pub checkpoints: Checkpoints,
    /// Count of running actors.
    pub actor_count: ActorCount,
    arbiters: Arc<[ArbiterHandle]>,
    next: Arc<AtomicUsize>,
    synced: Arc<WatchCell<()>>,
    /// Requests whose options make the shared view (the default form of objects) keep only parts of objects.
    partial: Arc<RwLock<Vec<ResourceRequest>>>,
}

impl Env {
    /// Creates the shared resources on the given threads.
    #[must_use]
    pub fn new(pools: ThreadPools, arbiters: Vec<ArbiterHandle>, tuning: Tuning) -> Self {
        let arbiters: Arc<[ArbiterHandle]> = arbiters.into();
        let next = Arc::new(AtomicUsize::new(0));
        let actor_count = ActorCount::default();
        let checkpoints = Checkpoints::default();
        let caches =
            CacheDirectory::new(&pools, Arc::clone(&arbiters), &tuning, actor_count.clone(), checkpoints.clone());
        Self {
            io: pools.io,
            readers: pools.readers,
            handlers: pools.handlers,
            caches,
            tuning: Arc::new(tuning),
            budget: Budget::new(),
            rewinds: Rewinds::default(),
            checkpoints,
            actor_count,
            arbiters,
            next,
            synced: Arc::new(WatchCell::new(())),
            partial: Arc::default(),
        }
    }

    /// Returns an `Env` with the same threads, but separate caches, no memory limit and no checkpoints. For
    /// [`SeparateRegistry`](crate::actors::SeparateRegistry).
    pub(in crate::actors) fn separate(&self) -> Self {
        let checkpoints = Checkpoints::default();
        let (arbiters, actor_count) = (Arc::clone(&self.arbiters), self.actor_count.clone());
        Self {
            caches: CacheDirectory::new(&self.pools(), arbiters, &self.tuning, actor_count, checkpoints.clone()),
            budget: Budget::new(),
            checkpoints,
            synced: Arc::new(WatchCell::new(())),
            partial: Arc::default(),
            ..self.clone()
        }
    }

    fn pools(&self) -> ThreadPools {
        ThreadPools { io: self.io.clone(), readers: self.readers.clone(), handlers: self.handlers.clone() }
    }

    /// Returns the thread for the next actor or group of actors, round robin.
    #[must_use]
    pub fn arbiter(&self) -> &ArbiterHandle {
        &self.arbiters[self.next.fetch_add(1, Relaxed) % self.arbiters.len()]
    }

    /// Records a request whose options make the shared view (the default form of objects) keep only parts of objects.
    pub(in crate::actors) fn note_partial(&self, wanted: ResourceRequest) {
        self.partial.write().push(wanted);
    }

    /// Returns the view (form of objects) in which informers keep whole objects of a resource. This is the shared view.
    /// It is [`View::Whole`] if a request makes the shared view keep only parts of the resource's objects.
    #[must_use]
    pub fn whole_view(&self, resource: &ApiResource) -> View {
        let wanted = ResourceRequest::known(resource);
        let is_partial = self.partial.read().iter().any(|partial| partial.may_be(&wanted));
        if is_partial { View::Whole } else { View::Shared }
    }

    /// Wakes callers that wait for informers to sync.
    pub fn sync_changed(&self) {
        self.synced.set(());
    }

    /// Returns a watcher that is notified whenever an informer may have synced.
    #[must_use]
    pub fn watch_syncs(&self) -> Watcher<()> {
        self.synced.subscribe()
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Env")
            .field("tuning", &self.tuning)
            .field("actor_count", &self.actor_count)
            .finish_non_exhaustive()
    }
}
