//! Owner of a cluster, document of its collector, and since when the cluster is stale.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join;
use informer_hub_fleet::{ClusterDocument, FailureKind, Ownership, Partition};
use informer_hub_reflector::{ErrorClass, SourceError};
use informer_hub_types::clock::{self, Instant};
use informer_hub_types::{ClusterName, rng};
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::Shared;
use crate::backend::BackendError;

/// Cluster as a replica knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServedCluster {
    /// Name of the owner; empty if there is none.
    pub collector: String,
    /// Newest epoch.
    pub epoch: u64,
    /// Why its objects may be outdated; `None` if they are current.
    pub stale: Option<Stale>,
}

/// Reason why the objects of a cluster may be outdated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stale {
    /// Time of the last sign of a collector, by the clock of this process.
    pub since: Timestamp,
    /// The reason.
    pub reason: String,
}

/// State of a [`Feed`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    /// Whether the services have answered.
    pub(super) answered: bool,
    /// Error of the last request.
    pub(super) error: Option<String>,
    pub(super) document: Option<Arc<ClusterDocument>>,
    owner: Option<Ownership>,
    stale: Option<Stale>,
}

/// Follows owner and document of a cluster, until it is dropped.
pub(super) struct Feed {
    pub(super) cluster: ClusterName,
    known: Arc<watch::Sender<Known>>,
    task: JoinHandle<()>,
}

impl Feed {
    pub(super) fn start(shared: Arc<Shared>, cluster: ClusterName) -> Arc<Self> {
        let known = Arc::<watch::Sender<Known>>::default();
        let io = shared.io.clone();
        let task = io.spawn(follow(shared, cluster.clone(), Arc::clone(&known)));
        Arc::new(Self { cluster, known, task })
    }

    pub(super) fn known(&self) -> Known {
        self.known.borrow().clone()
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Known> {
        self.known.subscribe()
    }

    /// Waits until `find` finds something, at most for `limit`.
    pub(super) async fn wait<T>(&self, limit: Duration, find: impl Fn(&Known) -> Option<T>) -> Option<T> {
        let mut known = self.known.subscribe();
        let finding = async {
            loop {
                let found = find(&known.borrow_and_update());
                if found.is_some() || known.changed().await.is_err() {
                    return found;
                }
            }
        };
        tokio::time::timeout(limit, finding).await.ok().flatten()
    }

    /// Returns an error that says what is missing, and why the cluster is stale if it is. A watch that ends with it resumes
    /// from its version, since the class does not count as a failure of the watch.
    pub(super) fn missing(&self, what: &str) -> SourceError {
        let stale = self.known.borrow().stale.as_ref().map(|stale| format!("; {}", stale.reason));
        SourceError { class: ErrorClass::Refused, message: format!("{what}{}", stale.unwrap_or_default()) }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Known {
    pub(super) fn served(&self) -> ServedCluster {
        let (collector, epoch) =
            self.owner.as_ref().map(|owner| (owner.collector.clone(), owner.epoch)).unwrap_or_default();
        ServedCluster { collector, epoch, stale: self.stale.clone() }
    }

    /// Returns the failure that the collector reports about a partition.
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
        let message = format!("its collector cannot watch it since {since:.0}: {}", failure.message);
        Some(SourceError { class, message })
    }

    /// Returns why the objects of a partition may be outdated.
    pub(super) fn failure(&self, partition: &Partition) -> Option<SourceError> {
        let stale = self.stale.as_ref().map(|stale| stale.reason.clone());
        stale.map(|message| SourceError { class: ErrorClass::Refused, message }).or_else(|| self.reported(partition))
    }
}

/// Last sign of a live collector.
struct Alive {
    revision: Option<u64>,
    at: Instant,
    time: Timestamp,
}

async fn follow(shared: Arc<Shared>, cluster: ClusterName, known: Arc<watch::Sender<Known>>) {
    let mut alive = Alive { revision: None, at: clock::now(), time: clock::wall() };
    let poll = shared.params.poll;
    loop {
        let reading = join(shared.backend.owner(&cluster), shared.backend.document(&cluster));
        let (owner, document) = match tokio::time::timeout(shared.params.stale / 2, reading).await {
            Ok(read) => read,
            Err(_) => (Err(BackendError("no answer in time".to_owned())), Ok(None)),
        };
        let mut next = known.borrow().clone();
        next.error = owner.as_ref().err().or(document.as_ref().err()).map(ToString::to_string);
        next.answered |= owner.is_ok();
        if let Ok(found) = owner {
            let revision = found.as_ref().map(|found| found.revision);
            if found.as_ref().is_some_and(|found| !found.collector.is_empty()) && revision != alive.revision {
                alive = Alive { revision, at: clock::now(), time: clock::wall() };
            }
            next.owner = found;
        }
        if let Ok(Some((_, found))) = document
            && next.document.as_ref().is_none_or(|before| **before != found)
        {
            next.document = Some(Arc::new(found));
        }
        next.stale = (clock::now().duration_since(alive.at) >= shared.params.stale).then(|| stale(&next, &alive));
        note(&cluster, &known, next);
        tokio::time::sleep(poll.mul_f64(0.75 + 0.5 * rng::unit())).await;
    }
}

fn stale(known: &Known, alive: &Alive) -> Stale {
    let since = alive.time;
    let owner = known.owner.as_ref().map(|owner| owner.collector.as_str()).filter(|owner| !owner.is_empty());
    let reason = match (&known.error, owner) {
        (Some(error), _) => format!("the services of the fleet do not answer since {since:.0}: {error}"),
        (None, Some(owner)) => format!("collector {owner} shows no sign of life since {since:.0}"),
        (None, None) => format!("no collector watches the cluster since {since:.0}"),
    };
    Stale { since, reason }
}

fn note(cluster: &ClusterName, known: &watch::Sender<Known>, next: Known) {
    known.send_if_modified(|known| {
        match (&known.stale, &next.stale) {
            (None, Some(stale)) => tracing::warn!(%cluster, reason = stale.reason, "the cluster is stale"),
            (Some(_), None) => tracing::info!(%cluster, "the cluster is current again"),
            _ => {}
        }
        // A renewal alone concerns no informer.
        let renewed = |owner: &Option<Ownership>| owner.as_ref().map(|owner| (owner.collector.clone(), owner.epoch));
        let before = std::mem::replace(known, next);
        let is_owner = renewed(&before.owner) == renewed(&known.owner);
        !is_owner || before != Known { owner: before.owner.clone(), ..known.clone() }
    });
}
