//! Watch of the owners and documents of a simulated fleet.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt};
use informer_hub_fleet::{ClusterChange, ClusterRevisions};
use informer_hub_types::rng;
use parking_lot::Mutex;

use super::later::Later;
use super::{FleetState, RECREATED, SimulatedBackend, SimulatedFleet};
use crate::backend::{Answered, BackendError};
use crate::cluster_buckets::{ClusterBuckets, ClusterChangeStream};

/// Interval at which a watch polls for changes.
const LOOK: Duration = Duration::from_millis(20);

struct Watch {
    fleet: SimulatedFleet,
    cut_off: Arc<Mutex<bool>>,
    /// Number of calls of [`SimulatedFleet::silence_watches`] when the watch began. After the next call, the watch
    /// delivers nothing.
    silenced: usize,
    read: ClusterRevisions,
    changes: VecDeque<ClusterChange>,
    later: Later,
}

impl FleetState {
    fn revisions(&self) -> ClusterRevisions {
        let (owners, documents) = (self.owners.lock().1, self.documents.lock().1);
        // Each recreation of a bucket adds `RECREATED` revisions, so this counts them.
        let created = owners / RECREATED + documents / RECREATED;
        ClusterRevisions { owners, documents, created }
    }

    /// Returns the changes after the revisions `read`, in order.
    fn changes_after(&self, read: ClusterRevisions) -> Vec<ClusterChange> {
        let owners = self.owners.lock();
        let mut owners: Vec<_> = owners.0.values().filter(|own| own.revision > read.owners).cloned().collect();
        owners.sort_by_key(|own| own.revision);
        let owners = owners.into_iter().map(|own| {
            let (shard, revision) = (own.shard.clone(), own.revision);
            ClusterChange::Owner { shard, revision, owner: Ok(Some(own)) }
        });
        let documents = self.documents.lock();
        let newer = documents.0.iter().filter(|(_, (revision, _))| *revision > read.documents);
        let mut newer: Vec<_> = newer.map(|(shard, found)| (shard.clone(), found.clone())).collect();
        newer.sort_by_key(|(_, (revision, _))| *revision);
        let documents = newer.into_iter().map(|(shard, (revision, document))| ClusterChange::Document {
            shard,
            revision,
            document: Some(document),
        });
        owners.chain(documents).collect()
    }
}

impl SimulatedFleet {
    /// Makes the open watches of owners and documents, and the open tails, stop delivering for ever, without ending.
    pub fn silence_watches(&self) {
        *self.0.silenced.lock() += 1;
    }
}

impl Watch {
    fn as_read(&self, change: ClusterChange) -> ClusterChange {
        match change {
            ClusterChange::Document { shard, revision, document } => {
                let document = document.map(|document| self.later.read(document));
                ClusterChange::Document { shard, revision, document }
            }
            change => change,
        }
    }

    async fn next(mut self) -> Result<Option<(ClusterChange, Self)>, BackendError> {
        loop {
            if let Some(change) = self.changes.pop_front() {
                return Ok(Some((self.as_read(change), self)));
            }
            tokio::time::sleep(LOOK).await;
            let fleet = &self.fleet.0;
            if rng::unit() < fleet.faults.lock().failed / 100.0 {
                return Err(BackendError("the simulated watch fails".to_owned()));
            }
            if *fleet.silenced.lock() != self.silenced || *fleet.down.lock() || *self.cut_off.lock() {
                continue;
            }
            let now = fleet.revisions();
            self.changes = fleet.changes_after(std::mem::replace(&mut self.read, now)).into();
        }
    }
}

impl ClusterBuckets for SimulatedBackend {
    fn follow_clusters(&self) -> Answered<ClusterChangeStream> {
        let (fleet, cut_off, later) = (self.fleet.clone(), Arc::clone(&self.cut_off), self.later);
        let begin = self.perform(|fleet| {
            let read = fleet.revisions();
            let mut changes: VecDeque<_> = fleet.changes_after(ClusterRevisions::default()).into();
            changes.push_back(ClusterChange::OwnersComplete(read.owners));
            changes.push_back(ClusterChange::DocumentsComplete(read.documents));
            (*fleet.silenced.lock(), read, changes)
        });
        Box::pin(async move {
            let (silenced, read, changes) = begin.await?;
            let watch = Watch { fleet, cut_off, silenced, read, changes, later };
            Ok(stream::try_unfold(watch, Watch::next).boxed())
        })
    }

    fn cluster_revisions(&self) -> Answered<ClusterRevisions> {
        self.perform(FleetState::revisions)
    }
}
