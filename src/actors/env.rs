//! What every actor needs of its surroundings: threads, the runtime for I/O, the caches, the bounds.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use actix::ArbiterHandle;
use parking_lot::RwLock;

use crate::actors::cache::actor::CacheDirectory;
use crate::actors::checkpoint::keeper::Checkpoints;
use crate::actors::memory::budget::Budget;
use crate::actors::runtime::capacity::Tuning;
use crate::actors::runtime::supervision::Census;
use crate::actors::subscribe::resource_request::ResourceRequest;
use informer_hub_types::{ApiResource, Threads, View, WatchCell, Watcher};

/// Shared by all actors of one hub; cheap to clone.
#[derive(Clone)]
pub struct Env {
    /// The multi-thread runtime that sockets, decoding, compression and scans run on.
    pub io: Threads,
    /// Whose blocking threads a program's closures run on, so that closures that are stuck hold up nothing of the hub.
    pub handlers: Threads,
    /// The caches, by resource.
    pub caches: CacheDirectory,
    /// Bounds and delays.
    pub tuning: Tuning,
    /// What is known of the memory, and who keeps what.
    pub budget: Budget,
    /// What is kept on disk.
    pub checkpoints: Checkpoints,
    /// Living actors.
    pub census: Census,
    arbiters: Arc<[ArbiterHandle]>,
    next: Arc<AtomicUsize>,
    synced: Arc<WatchCell<()>>,
    /// What the configuration keeps only parts of.
    partial: Arc<RwLock<Vec<ResourceRequest>>>,
}

impl Env {
    /// Surroundings on the given threads.
    #[must_use]
    pub fn new(io: Threads, handlers: Threads, arbiters: Vec<ArbiterHandle>, tuning: Tuning) -> Self {
        let arbiters: Arc<[ArbiterHandle]> = arbiters.into();
        let next = Arc::new(AtomicUsize::new(0));
        let census = Census::default();
        let checkpoints = Checkpoints::default();
        let caches =
            CacheDirectory::new(io.clone(), Arc::clone(&arbiters), &tuning, census.clone(), checkpoints.clone());
        Self {
            io,
            handlers,
            caches,
            tuning,
            budget: Budget::new(),
            checkpoints,
            census,
            arbiters,
            next,
            synced: Arc::new(WatchCell::new(())),
            partial: Arc::default(),
        }
    }

    /// The same threads with caches of their own, no limit to memory and nothing on disk: for informers that nobody asks
    /// questions of, but who started them.
    pub(in crate::actors) fn apart(&self) -> Self {
        let checkpoints = Checkpoints::default();
        let (io, arbiters, census) = (self.io.clone(), Arc::clone(&self.arbiters), self.census.clone());
        Self {
            caches: CacheDirectory::new(io, arbiters, &self.tuning, census, checkpoints.clone()),
            budget: Budget::new(),
            checkpoints,
            synced: Arc::new(WatchCell::new(())),
            partial: Arc::default(),
            ..self.clone()
        }
    }

    /// The thread for the next actor, or group of actors that talk much to each other: round robin.
    #[must_use]
    pub fn arbiter(&self) -> &ArbiterHandle {
        &self.arbiters[self.next.fetch_add(1, Relaxed) % self.arbiters.len()]
    }

    /// Notes a resource of which the configuration keeps only parts.
    pub(in crate::actors) fn note_partial(&self, wanted: ResourceRequest) {
        self.partial.write().push(wanted);
    }

    /// The view in which whole objects of a resource are, shared with as many as possible.
    #[must_use]
    pub fn whole_view(&self, resource: &ApiResource) -> View {
        let wanted = ResourceRequest::known(resource);
        let is_partial = self.partial.read().iter().any(|partial| partial.may_be(&wanted));
        if is_partial { View::Whole } else { View::Shared }
    }

    /// Wakes whoever waits for informers to sync.
    pub fn sync_changed(&self) {
        self.synced.set(());
    }

    /// Something that changes whenever an informer may have synced.
    #[must_use]
    pub fn watch_syncs(&self) -> Watcher<()> {
        self.synced.subscribe()
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Env").field("tuning", &self.tuning).field("census", &self.census).finish_non_exhaustive()
    }
}
