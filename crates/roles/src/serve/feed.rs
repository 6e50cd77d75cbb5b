//! State of one shard that a replica serves: its owner, its collector's document, and whether its objects are stale.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use informer_hub_fleet::{ClusterDocument, DecodeError, FailureKind, Ownership, Partition};
use informer_hub_reflector::{ErrorClass, SourceError};
use informer_hub_types::clock::{self, Instant};
use informer_hub_types::{Shard, WatchCell, Watcher};
use jiff::Timestamp;
use parking_lot::Mutex;

/// Shard of a cluster as a replica knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServedShard {
    /// Name of the owner; empty if there is none.
    pub collector: String,
    /// Epoch of the owner: the number of its term; 0 if unknown.
    pub epoch: u64,
    /// Why the shard's objects may be outdated; `None` if they are current.
    pub stale: Option<Stale>,
}

/// Reason why the objects of a shard may be outdated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stale {
    /// Last time at which this process noticed that a collector watches the shard.
    pub since: Timestamp,
    /// The reason, for operators.
    pub reason: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    /// Whether the watch has delivered the owners of all shards at least once since the start.
    pub(super) answered: bool,
    /// Why the backend or an entry of the shard cannot be read; `None` if both can.
    pub(super) error: Option<String>,
    pub(super) document: Option<Arc<ClusterDocument>>,
    owner: Option<Ownership>,
    stale: Option<Stale>,
}

/// Owner and document of one shard, updated from the watch of their buckets.
pub(super) struct Feed {
    pub(super) shard: Shard,
    /// Time without a renewal by a collector after which the shard is stale.
    limit: Duration,
    signs: Mutex<Signs>,
    known: WatchCell<Known>,
}

/// Facts that decide whether the shard is stale, and why.
struct Signs {
    alive: Alive,
    /// Errors by source: of the backend at index [`BACKEND`], of the owner's entry at [`OWNER`], of the document at
    /// [`DOCUMENT`].
    errors: [Option<String>; 3],
}

/// Last renewal by the owner of the shard, and when this process noticed it.
struct Alive {
    revision: Option<u64>,
    at: Instant,
    time: Timestamp,
}

const BACKEND: usize = 0;
const OWNER: usize = 1;
const DOCUMENT: usize = 2;

impl Alive {
    fn now(revision: Option<u64>) -> Self {
        Self { revision, at: clock::now(), time: clock::wall() }
    }
}

impl Feed {
    pub(super) fn new(shard: Shard, limit: Duration) -> Self {
        let signs = Signs { alive: Alive::now(None), errors: Default::default() };
        Self { shard, limit, signs: Mutex::new(signs), known: WatchCell::default() }
    }

    /// Updates the owner from its entry. A new revision shows that the collector is alive.
    pub(super) fn note_owner(&self, owner: Result<Option<Ownership>, DecodeError>) {
        self.update(|signs, known| {
            let owner = match owner {
                Ok(owner) => owner,
                Err(error) => {
                    signs.errors[OWNER] = Some(format!("cannot decode the owner of {}: {error}", self.shard));
                    return;
                }
            };
            signs.errors[OWNER] = None;
            let revision = owner.as_ref().filter(|owner| !owner.collector.is_empty()).map(|owner| owner.revision);
            if revision.is_some() && revision != signs.alive.revision {
                signs.alive = Alive::now(revision);
            }
            known.owner = owner;
        });
    }

    /// Updates the document about the shard's cluster. The last known document stays in use if it is deleted from the
    /// bucket.
    pub(super) fn note_document(&self, document: &Bytes) {
        self.update(|signs, known| match ClusterDocument::decode(document) {
            Ok(document) => {
                signs.errors[DOCUMENT] = None;
                if known.document.as_deref() != Some(&document) {
                    known.document = Some(Arc::new(document));
                }
            }
            Err(error) => {
                let what = format!("cannot decode the collector's document about cluster {}: {error}", self.shard);
                signs.errors[DOCUMENT] = Some(what);
            }
        });
    }

    /// Called once the watch has delivered all owners. If `has_owner` is false, records that this shard has no owner.
    pub(super) fn note_complete(&self, has_owner: bool) {
        if !has_owner {
            self.note_owner(Ok(None));
        }
        self.update(|_, known| known.answered = true);
    }

    /// Records the error of the backend, `None` if it answers, and checks whether the shard has become stale.
    pub(super) fn note_backend(&self, error: Option<String>) {
        self.update(|signs, _| signs.errors[BACKEND] = error);
    }

    fn update(&self, change: impl FnOnce(&mut Signs, &mut Known)) {
        let mut signs = self.signs.lock();
        let mut next = self.known.get();
        change(&mut signs, &mut next);
        next.error = signs.errors.iter().flatten().next().cloned();
        let is_stale = clock::now().duration_since(signs.alive.at) >= self.limit;
        next.stale = is_stale.then(|| stale(&next, &signs.alive));
        note(&self.shard, &self.known, next);
    }

    pub(super) fn known(&self) -> Known {
        self.known.get()
    }

    pub(super) fn subscribe(&self) -> Watcher<Known> {
        self.known.subscribe()
    }

    /// Waits until `find` returns something, at most for `limit`; `None` after that.
    pub(super) async fn wait<T>(&self, limit: Duration, find: impl Fn(&Known) -> Option<T>) -> Option<T> {
        let mut known = self.known.subscribe();
        let finding = async {
            loop {
                let found = find(&known.read_latest());
                if found.is_some() || known.changed().await.is_err() {
                    return found;
                }
            }
        };
        tokio::time::timeout(limit, finding).await.ok().flatten()
    }

    /// Returns an error with the text `what`, and the reason if the shard is stale. After a watch that ends with this
    /// error, the reflector opens another watch instead of listing.
    pub(super) fn missing(&self, what: &str) -> SourceError {
        let stale = self.known.get().stale.as_ref().map(|stale| format!("; {}", stale.reason));
        SourceError { class: ErrorClass::Refused, message: format!("{what}{}", stale.unwrap_or_default()) }
    }
}

impl Known {
    pub(super) fn served(&self) -> ServedShard {
        let (collector, epoch) =
            self.owner.as_ref().map(|owner| (owner.collector.clone(), owner.epoch)).unwrap_or_default();
        ServedShard { collector, epoch, stale: self.stale.clone() }
    }

    /// Returns the failure that the collector's document reports for a partition; `None` if its informer works.
    pub(super) fn reported(&self, partition: &Partition) -> Option<SourceError> {
        let failures = &self.document.as_ref()?.failures;
        let failure = failures.get(&(partition.resource.clone(), partition.selection))?;
        let class = match failure.kind {
            FailureKind::Unreachable => ErrorClass::Refused,
            FailureKind::Unauthorized => ErrorClass::Unauthorized,
            FailureKind::Forbidden => ErrorClass::Forbidden,
            FailureKind::NotFound => ErrorClass::NotFound,
        };
        let since = i64::try_from(failure.since).ok().and_then(|since| Timestamp::from_millisecond(since).ok());
        let since = since.unwrap_or_default();
        let message = format!("its collector has failed to watch the resource since {since:.0}: {}", failure.message);
        Some(SourceError { class, message })
    }

    /// Returns why the objects of a partition may be outdated: a stale shard, or a failure of its collector.
    pub(super) fn failure(&self, partition: &Partition) -> Option<SourceError> {
        let stale = self.stale.as_ref().map(|stale| stale.reason.clone());
        stale.map(|message| SourceError { class: ErrorClass::Refused, message }).or_else(|| self.reported(partition))
    }
}

fn stale(known: &Known, alive: &Alive) -> Stale {
    let since = alive.time;
    let owner = known.owner.as_ref().map(|owner| owner.collector.as_str()).filter(|owner| !owner.is_empty());
    let reason = match (&known.error, owner) {
        (Some(error), _) => format!("the fleet's data about the cluster has been unreadable since {since:.0}: {error}"),
        (None, Some(owner)) => format!("collector {owner} has not renewed its ownership since {since:.0}"),
        (None, None) => format!("no collector has watched the cluster since {since:.0}"),
    };
    Stale { since, reason }
}

fn note(shard: &Shard, known: &WatchCell<Known>, next: Known) {
    known.modify(|known| {
        match (&known.stale, &next.stale) {
            (None, Some(stale)) => {
                tracing::warn!(cluster = %shard, reason = stale.reason, "the cached objects of the cluster are stale");
            }
            (Some(_), None) => tracing::info!(cluster = %shard, "the cached objects of the cluster are current again"),
            _ => {}
        }
        // Do not wake informers for a mere renewal of the ownership.
        let renewed = |owner: &Option<Ownership>| owner.as_ref().map(|owner| (owner.collector.clone(), owner.epoch));
        let before = std::mem::replace(known, next);
        let is_owner = renewed(&before.owner) == renewed(&known.owner);
        !is_owner || before != Known { owner: before.owner.clone(), ..known.clone() }
    });
}
