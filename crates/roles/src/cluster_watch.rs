//! Watch of the owners and documents of all clusters, one per process.
//!
//! # Contract
//! - The number of a process's requests does not depend on the number of clusters. One watch reads all clusters. It is
//!   opened again every [`REREAD`], and when [`ClusterWatch::reread`] is called. At each poll interval, the buckets'
//!   last revisions are requested.
//! - The request for the revisions detects a backend that does not answer. It also detects a watch that delivers
//!   nothing, which is then opened again.
//! - A server that dies loses its requests. So an unanswered request for the revisions is sent again every [`REPEAT`],
//!   and the first answer is used.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use informer_hub_fleet::{ClusterChange, ClusterRevisions};
use informer_hub_types::clock::{self, Instant};
use informer_hub_types::{Threads, jittered_backoff, rng};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::backend::{Backend, BackendError};
use super::cluster_buckets::watch_ended;
use super::progress::Progress;

/// Average interval after which the watch is opened again and reads all entries, even if it works.
const REREAD: Duration = Duration::from_secs(60);
/// Pause between two readings of the buckets, so that one reading serves several calls of [`ClusterWatch::reread`].
const GATHER: Duration = Duration::from_millis(50);
/// First and longest pause before the watch is opened again after an error.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// Time without an answer of the backend after which the buckets' last revisions are requested again.
const REPEAT: Duration = Duration::from_secs(1);
/// Time without a delivered change after which a watch counts as broken, if the buckets have changes that it lacks.
const DELIVERY: Duration = Duration::from_millis(500);

/// Receiver of the changes of the owners of all clusters, and of the documents about them.
pub(crate) trait ClusterObserver: Send + Sync + 'static {
    /// Called when a watch begins. All entries of the two buckets follow as changes. `OwnersComplete` marks the end of
    /// the owners, `DocumentsComplete` the end of the documents.
    fn begin(&self);

    fn change(&self, change: ClusterChange);

    /// Called after each check of the backend, with the backend's error; `None` if it works.
    fn note_backend(&self, error: Option<&str>);
}

/// Watch of the owners and documents of all clusters; see the [module documentation](self). Dropping it ends the watch.
pub(crate) struct ClusterWatch {
    state: Arc<State>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct State {
    progress: Mutex<Progress>,
    errors: Mutex<Errors>,
    /// Notified if the watch has to be opened again and read all entries.
    reread: Notify,
}

#[derive(Default)]
struct Errors {
    watch: Option<String>,
    probe: Option<String>,
}

struct Watching<O> {
    backend: Arc<dyn Backend>,
    observer: Arc<O>,
    state: Arc<State>,
    poll: Duration,
    /// Deadline of a request for the buckets' last revisions. Also the longest time in which a new watch may deliver
    /// nothing, until it has delivered all existing entries.
    patience: Duration,
}

impl ClusterWatch {
    /// Starts the task. The task opens the watch when [`ClusterWatch::reread`] is called for the first time.
    pub(crate) fn start(
        backend: Arc<dyn Backend>,
        observer: Arc<impl ClusterObserver>,
        poll: Duration,
        patience: Duration,
        io: &Threads,
    ) -> Self {
        let state = Arc::<State>::default();
        let watching = Watching { backend, observer, state: Arc::clone(&state), poll, patience };
        let task = io.spawn(async move { _ = tokio::join!(watching.follow(), watching.probe()) });
        Self { state, task }
    }

    /// Opens the watch again, so that it reads all entries.
    pub(crate) fn reread(&self) {
        self.state.reread.notify_one();
    }

    /// Returns why the backend cannot be read; `None` if it works.
    pub(crate) fn error(&self) -> Option<String> {
        self.state.errors.lock().first().cloned()
    }

    /// Returns the time up to which the observer has received all changes; `None` before it has all entries.
    pub(crate) fn current(&self) -> Option<Instant> {
        self.state.progress.lock().current()
    }
}

impl Drop for ClusterWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl<O: ClusterObserver> Watching<O> {
    /// Keeps a watch open, once [`ClusterWatch::reread`] was called for the first time.
    async fn follow(&self) {
        let mut failures = 0;
        self.state.reread.notified().await;
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

    /// Reads the buckets and follows their changes, until the watch has to be opened again.
    async fn read(&self) -> Result<(), BackendError> {
        let Self { state, observer, .. } = self;
        // This reading serves all calls of `reread` so far.
        let _ = state.reread.notified().now_or_never();
        state.progress.lock().begin();
        observer.begin();
        let mut changes = self.backend.follow_clusters().await?;
        let mut complete = false;
        let end = clock::now() + REREAD.mul_f64(0.75 + 0.5 * rng::unit());
        loop {
            // Once all entries are read, a watch without changes is no failure.
            let limit = if complete { end } else { clock::now() + self.patience };
            let change = tokio::select! {
                biased;
                () = state.reread.notified() => return Ok(()),
                change = changes.next() => change,
                () = tokio::time::sleep_until(limit) => {
                    let text = "NATS: the watch of the owners and resources of clusters delivers nothing";
                    let error = BackendError(text.to_owned());
                    return if complete { Ok(()) } else { Err(error) };
                }
            };
            let change = change.ok_or_else(watch_ended)??;
            observer.change(change.clone());
            let was_complete = std::mem::replace(&mut complete, state.progress.lock().note(&change));
            if complete && !was_complete {
                self.note(|errors| errors.watch = None);
            }
        }
    }

    /// Checks at each poll interval that the backend answers, and that the watch delivers all stored changes.
    async fn probe(&self) {
        let mut failures = 0;
        loop {
            let (read, begun) = (self.state.progress.lock().read(), clock::now());
            let asking = tokio::time::timeout(self.patience, self.revisions()).await;
            let late = || Err(BackendError(format!("NATS: no answer within {:?}", self.patience)));
            let answer = asking.unwrap_or_else(|_| late());
            self.note(|errors| errors.probe = answer.as_ref().err().map(ToString::to_string));
            let mut pause = self.poll.mul_f64(0.75 + 0.5 * rng::unit());
            if let Ok(stored) = answer {
                failures = 0;
                self.verify(read, stored, begun).await;
            } else {
                failures += 1;
                pause = jittered_backoff(PAUSE.0, failures, pause);
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Requests the buckets' last revisions, again every [`REPEAT`], and returns the first answer.
    async fn revisions(&self) -> Result<ClusterRevisions, BackendError> {
        let mut answers = FuturesUnordered::new();
        loop {
            answers.push(self.backend.cluster_revisions());
            tokio::select! {
                biased;
                Some(answer) = answers.next() => return answer,
                () = tokio::time::sleep(REPEAT) => {}
            }
        }
    }

    /// Opens the watch again if it does not deliver the changes up to `stored`, the last revisions in the buckets.
    /// `stored` was requested at `begun`, when the watch had delivered the changes up to `read`.
    async fn verify(&self, read: ClusterRevisions, stored: ClusterRevisions, begun: Instant) {
        let is_behind = {
            let mut progress = self.state.progress.lock();
            let is_behind = progress.is_behind(read, stored);
            if !is_behind {
                progress.note_stored(stored, begun);
            }
            is_behind
        };
        if is_behind || self.is_silent(stored).await {
            tracing::debug!("the watch of cluster owners in NATS lacks stored changes; opening another watch");
            self.state.reread.notify_one();
        }
    }

    /// Returns whether the watch lacks changes up to `stored`, and delivers none for [`DELIVERY`].
    async fn is_silent(&self, stored: ClusterRevisions) -> bool {
        let delivered = self.state.progress.lock().read();
        let is_silent = || self.state.progress.lock().is_silent(delivered, stored);
        if !is_silent() {
            return false;
        }
        tokio::time::sleep(DELIVERY).await;
        is_silent()
    }

    /// Sets or clears an error of the backend: `change` edits the errors. Passes the current error to the observer.
    /// Logs when the backend begins to fail and when it works again.
    fn note(&self, change: impl FnOnce(&mut Errors)) {
        let error = {
            let mut errors = self.state.errors.lock();
            let before = errors.first().is_some();
            change(&mut errors);
            let error = errors.first().cloned();
            match &error {
                Some(error) if !before => {
                    tracing::warn!(error, "cannot read from NATS which collectors own the clusters; retrying");
                }
                None if before => tracing::info!("can read from NATS again which collector watches each cluster"),
                _ => {}
            }
            error
        };
        self.observer.note_backend(error.as_deref());
    }
}

impl Errors {
    fn first(&self) -> Option<&String> {
        self.probe.as_ref().or(self.watch.as_ref())
    }
}
