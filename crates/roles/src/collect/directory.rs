//! Owners and documents of all clusters as a collector knows them, by one [watch](crate::cluster_watch) of their buckets.
//!
//! It decides when a collector claims a shard or reads a document again. It decides nothing that must not be outdated: a
//! claim compares the revision of the entry.

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

/// Entry of a bucket at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known<T> {
    /// The entry, if there is one.
    pub(super) entry: Option<T>,
    /// Time up to which all changes are known.
    pub(super) current: Instant,
}

#[derive(Default)]
struct Entries(Mutex<Buckets>);

#[derive(Default)]
struct Buckets {
    owners: Bucket<Result<Ownership, String>>,
    /// Revisions of the documents.
    documents: Bucket<u64>,
}

/// Entries of a bucket by shard.
struct Bucket<T> {
    entries: BTreeMap<Shard, T>,
    /// Shards with an entry in the watch that begins; `None` once it has delivered all.
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

    /// Drops the entries that the watch has not delivered.
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

    /// Returns the owner of a shard; `None` before all are known.
    ///
    /// # Errors
    /// The services do not answer, or the entry cannot be decoded.
    pub(super) fn owner(&self, shard: &Shard) -> Result<Option<Known<Ownership>>, BackendError> {
        if let Some(error) = self.watch.error() {
            return Err(BackendError(error));
        }
        // Before the entry: a change in between is a part of it.
        let Some(current) = self.watch.current() else { return Ok(None) };
        let entry = self.entries.0.lock().owners.entries.get(shard).cloned().transpose().map_err(BackendError)?;
        Ok(Some(Known { entry, current }))
    }

    /// Returns the revision of the document of a shard; `None` before all are known.
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

    fn note_services(&self, _: Option<&str>) {}
}
