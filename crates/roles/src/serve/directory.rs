//! Owners and documents of the clusters of a process, by one watch of their buckets.
//!
//! # Contract
//! - The requests of a process do not grow with its clusters: one watch, read anew every [`REREAD`] and after clusters were
//!   added, and one request for the last revisions per [`poll`](super::ReplicaParams::poll).
//! - That request finds services that do not answer, and a watch that has become silent, which is then opened again.
//! - A cluster becomes stale by the clock of this process, also while the watch and the request fail.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use informer_hub_fleet::ClusterChange;
use informer_hub_types::{Shard, Threads, clock, jittered_backoff, rng};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::ReplicaParams;
use super::feed::Feed;
use super::progress::Progress;
use crate::backend::{Backend, BackendError};

/// Interval in which the buckets are read anew, whatever the watch has delivered.
const REREAD: Duration = Duration::from_secs(60);
/// Time for which clusters that are added are gathered, before the buckets are read for them.
const GATHER: Duration = Duration::from_millis(50);
/// First and longest pause before the watch is opened again after an error.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// See the [module documentation](self). Dropping it ends the watch.
pub(super) struct Directory {
    inner: Arc<Inner>,
    task: JoinHandle<()>,
}

struct Inner {
    backend: Arc<dyn Backend>,
    poll: Duration,
    stale: Duration,
    feeds: Mutex<BTreeMap<Shard, Weak<Feed>>>,
    progress: Mutex<Progress>,
    errors: Mutex<Errors>,
    /// Notified if the buckets have to be read anew.
    reread: Notify,
}

/// Errors of the services.
#[derive(Default)]
struct Errors {
    watch: Option<String>,
    probe: Option<String>,
}

impl Directory {
    pub(super) fn start(backend: Arc<dyn Backend>, params: &ReplicaParams, io: &Threads) -> Self {
        let (feeds, progress, errors, reread) = Default::default();
        let ReplicaParams { poll, stale, .. } = *params;
        let inner = Arc::new(Inner { backend, poll, stale, feeds, progress, errors, reread });
        let (following, probing) = (Arc::clone(&inner), Arc::clone(&inner));
        let task = io.spawn(async move { _ = tokio::join!(following.follow(), probing.probe()) });
        Self { inner, task }
    }

    /// Returns the feed of a shard, which is followed until it is dropped.
    pub(super) fn feed(&self, shard: &Shard) -> Arc<Feed> {
        let mut feeds = self.inner.feeds.lock();
        if let Some(feed) = feeds.get(shard).and_then(Weak::upgrade) {
            return feed;
        }
        let feed = Arc::new(Feed::new(shard.clone(), self.inner.stale));
        feed.note_services(self.inner.errors.lock().first().cloned());
        feeds.insert(shard.clone(), Arc::downgrade(&feed));
        self.inner.reread.notify_one();
        feed
    }

    /// Returns the feeds by shard.
    pub(super) fn feeds(&self) -> Vec<Arc<Feed>> {
        self.inner.feeds()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Inner {
    fn feeds(&self) -> Vec<Arc<Feed>> {
        let mut feeds = self.feeds.lock();
        feeds.retain(|_, feed| feed.strong_count() > 0);
        feeds.values().filter_map(Weak::upgrade).collect()
    }

    fn feed(&self, shard: &Shard) -> Option<Arc<Feed>> {
        self.feeds.lock().get(shard).and_then(Weak::upgrade)
    }

    /// Keeps a watch open, from the first cluster on.
    async fn follow(&self) {
        let mut failures = 0;
        self.reread.notified().await;
        loop {
            let pause = match self.read().await {
                Ok(()) => {
                    failures = 0;
                    GATHER
                }
                Err(error) => {
                    self.note(|errors| errors.watch = Some(error.to_string()));
                    failures += 1;
                    jittered_backoff(PAUSE.0, failures, PAUSE.1)
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// Reads the buckets and follows them, until they have to be read anew.
    async fn read(&self) -> Result<(), BackendError> {
        // Clusters that were added until now are in this pass.
        let _ = self.reread.notified().now_or_never();
        *self.progress.lock() = Progress::default();
        let mut changes = self.backend.follow_clusters().await?;
        let (mut owned, mut complete) = (BTreeSet::new(), false);
        let end = clock::now() + REREAD.mul_f64(0.75 + 0.5 * rng::unit());
        loop {
            // Once all is read, silence is no failure.
            let limit = if complete { end } else { clock::now() + self.stale / 2 };
            let change = tokio::select! {
                biased;
                () = self.reread.notified() => return Ok(()),
                change = changes.next() => change,
                () = tokio::time::sleep_until(limit) => {
                    let error = BackendError("the watch of the clusters is silent".to_owned());
                    return if complete { Ok(()) } else { Err(error) };
                }
            };
            let change = change.ok_or_else(|| BackendError("the watch of the clusters has ended".to_owned()))??;
            let was_complete = std::mem::replace(&mut complete, self.progress.lock().note(&change));
            self.apply(change, &mut owned);
            if complete && !was_complete {
                self.note(|errors| errors.watch = None);
            }
        }
    }

    /// Passes a change to the feed of its shard. `owned` has the shards with an owner's entry until all are known.
    fn apply(&self, change: ClusterChange, owned: &mut BTreeSet<Shard>) {
        match change {
            ClusterChange::Owner { shard, owner, .. } => {
                let Some(feed) = self.feed(&shard) else { return };
                feed.note_owner(owner);
                owned.insert(shard);
            }
            ClusterChange::Document { shard, document: Some(document), .. } => {
                if let Some(feed) = self.feed(&shard) {
                    feed.note_document(&document);
                }
            }
            ClusterChange::OwnersComplete(_) => {
                self.feeds().iter().for_each(|feed| feed.note_complete(owned.contains(&feed.shard)));
            }
            ClusterChange::Document { document: None, .. } | ClusterChange::DocumentsComplete(_) => {}
        }
    }

    /// Verifies at each interval that the services answer, and that the watch delivers what they have.
    async fn probe(&self) {
        loop {
            let read = self.progress.lock().read();
            let asking = tokio::time::timeout(self.stale / 2, self.backend.cluster_revisions()).await;
            let answer = asking.unwrap_or_else(|_| Err(BackendError("no answer in time".to_owned())));
            let error = answer.as_ref().err().map(ToString::to_string);
            if let Ok(stored) = answer
                && self.progress.lock().is_behind(read, stored)
            {
                tracing::debug!("the watch of the clusters is behind, opening another");
                self.reread.notify_one();
            }
            self.note(|errors| errors.probe = error);
            tokio::time::sleep(self.poll.mul_f64(0.75 + 0.5 * rng::unit())).await;
        }
    }

    /// Changes the errors of the services, and passes them to all feeds.
    fn note(&self, change: impl FnOnce(&mut Errors)) {
        let error = {
            let mut errors = self.errors.lock();
            let before = errors.first().is_some();
            change(&mut errors);
            let error = errors.first().cloned();
            match &error {
                Some(error) if !before => tracing::warn!(error, "cannot follow the owners of clusters, trying again"),
                None if before => tracing::info!("following the owners of clusters again"),
                _ => {}
            }
            error
        };
        self.feeds().iter().for_each(|feed| feed.note_services(error.clone()));
    }
}

impl Errors {
    fn first(&self) -> Option<&String> {
        self.probe.as_ref().or(self.watch.as_ref())
    }
}
