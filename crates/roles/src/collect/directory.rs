//! Owners and documents of all clusters as a collector knows them, by one [watch](crate::cluster_watch) of their
//! buckets.
//!
//! Collectors use it to decide when to claim a shard or read a document again. The directory may be outdated. This is
//! harmless, because a claim fails if the stored entry has another revision.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use informer_hub_fleet::{ClusterChange, Ownership};
use informer_hub_types::clock::Instant;
use informer_hub_types::{Shard, Threads};
use parking_lot::Mutex;

use super::CollectorParams;
use crate::backend::{Backend, BackendError};
use crate::cluster_watch::{ClusterObserver, ClusterWatch};

/// Owners and documents of all clusters, as a collector knows them; see the [module documentation](self). Dropping it
/// ends the watch.
pub(super) struct Directory {
    entries: Arc<Entries>,
    watch: ClusterWatch,
}

/// Last known entry of a bucket, and how current it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known<T> {
    pub(super) entry: Option<T>,
    /// Time up to which all changes of the bucket have been read. The entry is at least as new.
    pub(super) current: Instant,
}

#[derive(Default)]
struct Entries(Mutex<Buckets>);

#[derive(Default)]
struct Buckets {
    owners: Bucket<Result<Ownership, String>>,
    /// Revision of each shard's `ClusterDocument`, in which its owner stores what it knows of the cluster.
    documents: Bucket<u64>,
}

struct Bucket<T> {
    entries: BTreeMap<Shard, T>,
    /// Shards whose entries a new watch has delivered so far; `None` once it has delivered all entries.
    begun: Option<BTreeSet<Shard>>,
}

impl<T> Default for Bucket<T> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), begun: None }
    }
}

impl<T> Bucket<T> {
    fn begin(&mut self) {
        self.begun = Some(BTreeSet::new());
    }

    fn change(&mut self, shard: Shard, entry: Option<T>) {
        if let Some(begun) = &mut self.begun {
            begun.insert(shard.clone());
        }
        match entry {
            Some(entry) => _ = self.entries.insert(shard, entry),
            None => _ = self.entries.remove(&shard),
        }
    }

    /// Drops the entries that the new watch has not delivered, because they were removed.
    fn complete(&mut self) {
        if let Some(begun) = self.begun.take() {
            self.entries.retain(|shard, _| begun.contains(shard));
        }
    }
}

impl Directory {
    pub(super) fn start(backend: Arc<dyn Backend>, params: &CollectorParams, io: &Threads) -> Self {
        let entries = Arc::<Entries>::default();
        let watch = ClusterWatch::start(backend, Arc::clone(&entries), params.renewal, params.lease / 2, io);
        watch.reread();
        Self { entries, watch }
    }

    /// Returns what is known of a shard's owner; `None` until the watch has read the owners of all shards. Afterwards,
    /// `Known::entry` is `None` if the shard has no owner.
    ///
    /// # Errors
    /// The backend does not answer, or the entry cannot be decoded.
    pub(super) fn owner(&self, shard: &Shard) -> Result<Option<Known<Ownership>>, BackendError> {
        if let Some(error) = self.watch.error() {
            return Err(BackendError(error));
        }
        // Read before the entry: a change in between makes the entry newer than `current`, which is safe.
        let Some(current) = self.watch.current() else { return Ok(None) };
        let entry = self.entries.0.lock().owners.entries.get(shard).cloned().transpose().map_err(BackendError)?;
        Ok(Some(Known { entry, current }))
    }

    /// Returns the last known revision of the document about a shard's cluster; `None` until the watch has read the
    /// documents of all shards. Afterwards, `Known::entry` is `None` if there is no document.
    pub(super) fn document(&self, shard: &Shard) -> Option<Known<u64>> {
        let current = self.watch.current()?;
        Some(Known { entry: self.entries.0.lock().documents.entries.get(shard).copied(), current })
    }
}

impl ClusterObserver for Entries {
    fn begin(&self) {
        let buckets = &mut *self.0.lock();
        buckets.owners.begin();
        buckets.documents.begin();
    }

    fn change(&self, change: ClusterChange) {
        let buckets = &mut *self.0.lock();
        match change {
            ClusterChange::Owner { shard, owner, .. } => {
                let owner = owner.map_err(|error| format!("cannot decode the owner of {shard}: {error}"));
                buckets.owners.change(shard, owner.transpose());
            }
            ClusterChange::Document { shard, revision, document } => {
                buckets.documents.change(shard, document.map(|_| revision));
            }
            ClusterChange::OwnersComplete(_) => buckets.owners.complete(),
            ClusterChange::DocumentsComplete(_) => buckets.documents.complete(),
        }
    }

    fn note_backend(&self, _: Option<&str>) {}
}
