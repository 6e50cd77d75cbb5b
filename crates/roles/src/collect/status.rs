//! Status of a collector: the owners of the clusters, and whether the backend answers.

use std::collections::BTreeMap;
use std::time::Duration;

use informer_hub_fleet::Ownership;
use informer_hub_types::Shard;
use parking_lot::Mutex;

use crate::BackendError;

/// Status of a [`Collector`](super::Collector).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectorStatus {
    /// Name of the collector.
    pub name: String,
    /// Whether the backend has answered a request since the start.
    pub answered: bool,
    /// Error of the backend. If the last requests for several shards failed, the error for the first of these shards by
    /// name. `None` if the last request for every shard succeeded.
    pub error: Option<String>,
    /// Shards of the clusters that the collector contends for, with their owners.
    pub shards: BTreeMap<Shard, ShardOwner>,
    /// Number of times that the collector became the owner of a shard.
    pub acquired: u64,
    /// Number of times that the collector lost a shard to another collector.
    pub lost: u64,
    /// Number of times that the collector handed a shard over to another collector, for balance or by order of the
    /// operator.
    pub moved: u64,
    /// Bytes of changes that the log has not stored yet.
    pub queued_bytes: u64,
    /// How long the oldest change that is not stored has waited; zero if all are stored.
    pub oldest_append: Duration,
}

/// Owner of a shard, as a collector knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardOwner {
    /// Name of the owner; empty if there is none.
    pub collector: String,
    /// Newest epoch, the number of an owner's term.
    pub epoch: u64,
    /// Whether this collector is the owner, and watches the shard.
    pub is_own: bool,
    /// Cost of the shard, from its numbers of objects and events, as its owner measures it; zero if unknown.
    pub weight: u64,
}

/// Owners of the shards and errors of the backend, as the tasks that contend for shards report them.
#[derive(Debug, Default)]
pub(super) struct Ownerships(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    shards: BTreeMap<Shard, ShardOwner>,
    /// Error of the last request for each shard; none after a success.
    errors: BTreeMap<Shard, String>,
    answered: bool,
    acquired: u64,
    lost: u64,
    moved: u64,
}

impl Ownerships {
    /// Adds a shard that the collector contends for. Its owner is not known yet.
    pub(super) fn add(&self, shard: &Shard) {
        self.0.lock().shards.entry(shard.clone()).or_default();
    }

    /// Records an answer about a shard. If only this shard was failing, logs that the backend answers again.
    pub(super) fn note_answer(&self, shard: &Shard) {
        let mut known = self.0.lock();
        known.answered = true;
        if known.errors.remove(shard).is_some() && known.errors.is_empty() {
            tracing::info!("the ownership of all clusters can be read and renewed again");
        }
    }

    /// Records a failed request for a shard. Logs a warning if no shard was failing before. Otherwise logs at debug
    /// level when the shard begins to fail.
    pub(super) fn note_failure(&self, shard: &Shard, error: &BackendError) {
        let mut known = self.0.lock();
        if known.errors.is_empty() {
            tracing::warn!(cluster = %shard, %error, "cannot read or renew the ownership of the cluster; retrying");
        } else if !known.errors.contains_key(shard) {
            tracing::debug!(
                cluster = %shard, %error,
                "cannot read or renew the ownership of the cluster; retrying"
            );
        }
        known.errors.insert(shard.clone(), error.to_string());
    }

    /// Records `found`, the entry of a shard's owner, while this collector does not hold the shard. `None` if there is
    /// no entry.
    pub(super) fn note_owner(&self, shard: &Shard, found: Option<&Ownership>) {
        let owner = found.map(|found| ShardOwner {
            collector: found.collector.clone(),
            epoch: found.epoch,
            is_own: false,
            weight: found.weight,
        });
        self.0.lock().shards.insert(shard.clone(), owner.unwrap_or_default());
    }

    pub(super) fn note_acquired(&self, own: &Ownership) {
        let mut known = self.0.lock();
        known.acquired += 1;
        let (collector, epoch) = (own.collector.clone(), own.epoch);
        known.shards.insert(own.shard.clone(), ShardOwner { collector, epoch, is_own: true, weight: own.weight });
    }

    pub(super) fn note_weight(&self, own: &Ownership) {
        if let Some(owner) = self.0.lock().shards.get_mut(&own.shard) {
            owner.weight = own.weight;
        }
    }

    pub(super) fn note_moved(&self, shard: &Shard) {
        let mut known = self.0.lock();
        known.moved += 1;
        if let Some(owner) = known.shards.get_mut(shard) {
            (owner.is_own, owner.collector) = (false, String::new());
        }
    }

    /// Returns the owners of the shards that the collector contends for.
    pub(super) fn shards(&self) -> BTreeMap<Shard, ShardOwner> {
        self.0.lock().shards.clone()
    }

    pub(super) fn note_lost(&self, shard: &Shard) {
        let mut known = self.0.lock();
        known.lost += 1;
        if let Some(owner) = known.shards.get_mut(shard) {
            (owner.is_own, owner.collector) = (false, String::new());
        }
    }

    /// Forgets a shard that the collector no longer contends for.
    pub(super) fn forget(&self, shard: &Shard) {
        let mut known = self.0.lock();
        known.shards.remove(shard);
        known.errors.remove(shard);
    }

    /// Returns the status, except the queued bytes and the oldest append.
    pub(super) fn status(&self, name: &str) -> CollectorStatus {
        let known = self.0.lock();
        CollectorStatus {
            name: name.to_owned(),
            answered: known.answered,
            error: known.errors.values().next().cloned(),
            shards: known.shards.clone(),
            acquired: known.acquired,
            lost: known.lost,
            moved: known.moved,
            ..CollectorStatus::default()
        }
    }
}
