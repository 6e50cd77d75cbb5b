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

/// See the [module documentation](self). Dropping it ends the watch.
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
    owners: BTreeMap<Shard, Result<Ownership, String>>,
    /// Revisions of the documents.
    documents: BTreeMap<Shard, u64>,
    /// Shards with an entry in the watch that begins; `None` once it has delivered all.
    begun: (Option<BTreeSet<Shard>>, Option<BTreeSet<Shard>>),
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
        let entry = self.entries.0.lock().owners.get(shard).cloned().transpose().map_err(BackendError)?;
        Ok(Some(Known { entry, current }))
    }

    /// Returns the revision of the document of a shard; `None` before all are known.
    pub(super) fn document(&self, shard: &Shard) -> Option<Known<u64>> {
        let current = self.watch.current()?;
        Some(Known { entry: self.entries.0.lock().documents.get(shard).copied(), current })
    }
}

impl ClusterObserver for Entries {
    fn begin(&self) {
        self.0.lock().begun = (Some(BTreeSet::new()), Some(BTreeSet::new()));
    }

    fn change(&self, change: ClusterChange) {
        let buckets = &mut *self.0.lock();
        match change {
            ClusterChange::Owner { shard, owner, .. } => {
                if let Some(begun) = &mut buckets.begun.0 {
                    begun.insert(shard.clone());
                }
                let error = |error| format!("cannot decode the owner of {shard}: {error}");
                match owner.map_err(error).transpose() {
                    Some(owner) => _ = buckets.owners.insert(shard, owner),
                    None => _ = buckets.owners.remove(&shard),
                }
            }
            ClusterChange::Document { shard, revision, document } => {
                if let Some(begun) = &mut buckets.begun.1 {
                    begun.insert(shard.clone());
                }
                match document {
                    Some(_) => _ = buckets.documents.insert(shard, revision),
                    None => _ = buckets.documents.remove(&shard),
                }
            }
            ClusterChange::OwnersComplete(_) => {
                if let Some(begun) = buckets.begun.0.take() {
                    buckets.owners.retain(|shard, _| begun.contains(shard));
                }
            }
            ClusterChange::DocumentsComplete(_) => {
                if let Some(begun) = buckets.begun.1.take() {
                    buckets.documents.retain(|shard, _| begun.contains(shard));
                }
            }
        }
    }

    fn note_services(&self, _: Option<&str>) {}
}
