//! What every actor needs of its surroundings: threads, the runtime for I/O, the caches, the bounds.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use actix::ArbiterHandle;
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::cache::CacheDirectory;
use super::capacity::Tuning;
use super::supervision::Census;

/// Shared by all actors of one hub; cheap to clone.
#[derive(Clone)]
pub struct Env {
    /// The multi-thread runtime that sockets, decoding, compression and closures run on.
    pub io: Handle,
    /// The caches, by resource.
    pub caches: CacheDirectory,
    /// Bounds and delays.
    pub tuning: Tuning,
    /// Living actors.
    pub census: Census,
    arbiters: Arc<[ArbiterHandle]>,
    next: Arc<AtomicUsize>,
    synced: Arc<watch::Sender<u64>>,
}

impl Env {
    /// Surroundings on the given threads.
    #[must_use]
    pub fn new(io: Handle, arbiters: Vec<ArbiterHandle>, tuning: Tuning) -> Self {
        let arbiters: Arc<[ArbiterHandle]> = arbiters.into();
        let next = Arc::new(AtomicUsize::new(0));
        let census = Census::default();
        let caches = CacheDirectory::new(io.clone(), Arc::clone(&arbiters), tuning.young_bytes, census.clone());
        Self { io, caches, tuning, census, arbiters, next, synced: Arc::new(watch::Sender::new(0)) }
    }

    /// The thread for the next actor, or group of actors that talk much to each other: round robin.
    #[must_use]
    pub fn arbiter(&self) -> &ArbiterHandle {
        &self.arbiters[self.next.fetch_add(1, Relaxed) % self.arbiters.len()]
    }

    /// Wakes whoever waits for informers to sync.
    pub fn sync_changed(&self) {
        self.synced.send_modify(|count| *count += 1);
    }

    /// Something that changes whenever an informer may have synced.
    #[must_use]
    pub fn watch_syncs(&self) -> watch::Receiver<u64> {
        self.synced.subscribe()
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Env").field("tuning", &self.tuning).field("census", &self.census).finish_non_exhaustive()
    }
}
