//! Query execution: short queries run inline, long ones on a limited number of threads, with a deadline.
//!
//! A long query is cancelled when its caller no longer waits.

use std::fmt;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread;

use actix::Actor;
use actix::dev::{MessageResponse, OneshotSender};
use futures::future::join_all;
use parking_lot::Mutex;
use rand::Rng as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinError;
use tokio::time::timeout_at;

use crate::actors::cache::messages::Ask;
use crate::actors::runtime::capacity::{SCAN_THREADS, SCANS_WAITING};
use crate::cache::{
    Answer, Fingerprint, PinnedSnapshots, Query, QueryError, RunningQuery, ScanThread, Snapshot, TokenKey,
};
use informer_hub_types::pauses::give_way;
use informer_hub_types::{Threads, clock, rng};

/// Runner of queries, shared by the caches of one hub: its threads, and permits that limit the number of concurrent
/// scans. Cheap to clone.
#[derive(Clone)]
pub(in crate::actors) struct QueryRunner {
    /// Threads that scan, of a lower priority than those of the write path.
    readers: Threads,
    permits: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
    /// Number of scans that wait or run.
    scans: Arc<AtomicUsize>,
    threads: usize,
    tokens: TokenKey,
    /// Next number of a pinned snapshot. All caches of the hub share it, so that a continue token of one cache is
    /// invalid in another.
    next_pinned: Arc<AtomicU64>,
}

/// Guard that adds one to a counter and subtracts it again when dropped.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    /// Adds one to the counter. Returns the guard, and the value of the counter before the addition.
    fn new(counter: &Arc<AtomicUsize>) -> (Self, usize) {
        let before = counter.fetch_add(1, Relaxed);
        (Self(Arc::clone(counter)), before)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Cancels the scan if its caller drops the future.
struct CancelOnDrop(Arc<RunningQuery>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl QueryRunner {
    /// Creates a runner of at most `scans` scans at a time on the blocking threads of `readers`.
    pub(in crate::actors) fn new(readers: Threads, scans: usize) -> Self {
        let threads = thread::available_parallelism().map_or(1, std::num::NonZero::get).min(SCAN_THREADS);
        Self {
            readers,
            permits: Arc::new(Semaphore::new(scans.max(1))),
            waiting: Arc::default(),
            scans: Arc::default(),
            threads,
            tokens: TokenKey::new(rng::rng().random()),
            next_pinned: Arc::default(),
        }
    }

    /// Answers a query from `newest`, or from the pinned snapshot that its continue token names.
    pub(in crate::actors) fn answer(
        &self,
        query: Query,
        newest: Arc<Snapshot>,
        pinned: &Arc<Mutex<PinnedSnapshots>>,
    ) -> PendingAnswer {
        let prepared = self.prepare(query, newest, pinned);
        let (running, fingerprint) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return PendingAnswer::now(Err(error)),
        };
        match running.answer_if_short() {
            Ok(Some(answer)) => PendingAnswer::now(Ok(self.keep(answer, &running, fingerprint, pinned))),
            Err(error) => PendingAnswer::now(Err(error)),
            Ok(None) => {
                let (runner, pinned) = (self.clone(), Arc::clone(pinned));
                let lacks_owners = running.lacks_owners();
                let answer = Box::pin(async move {
                    let answer = runner.scan(Arc::clone(&running)).await;
                    let answer = answer.map(|answer| runner.keep(answer, &running, fingerprint, &pinned));
                    // This may be the last holder of the snapshot, with many replaced nodes to free.
                    drop(runner.readers.spawn_blocking(move || drop(running)));
                    answer
                });
                PendingAnswer { answer, lacks_owners }
            }
        }
    }

    fn prepare(
        &self,
        query: Query,
        newest: Arc<Snapshot>,
        pinned: &Mutex<PinnedSnapshots>,
    ) -> Result<(Arc<RunningQuery>, Option<Fingerprint>), QueryError> {
        let question = query.question();
        let paged = question.limit.is_some() || question.continue_token.is_some();
        let fingerprint = paged.then(|| Fingerprint::new(&query, &newest.resource().gvr));
        let (snapshot, position) = match (&question.continue_token, fingerprint) {
            (Some(token), Some(fingerprint)) => {
                let (number, position) = self.tokens.verify(token, fingerprint)?;
                (pinned.lock().get(number, clock::now())?, Some(position))
            }
            _ => (newest, None),
        };
        Ok((Arc::new(RunningQuery::new(snapshot, query, position)), fingerprint))
    }

    /// Pins the snapshot of an incomplete answer, for the next page, and sets the answer's continue token.
    fn keep(
        &self,
        mut answer: Answer,
        running: &RunningQuery,
        fingerprint: Option<Fingerprint>,
        pinned: &Mutex<PinnedSnapshots>,
    ) -> Answer {
        if let (Some(end), Some(fingerprint)) = (answer.end(), fingerprint) {
            let fresh = || self.next_pinned.fetch_add(1, Relaxed);
            let number = pinned.lock().pin(running.snapshot(), clock::now(), fresh);
            answer.next = Some(self.tokens.sign(number, fingerprint, end));
        }
        answer
    }

    /// Waits for a scan permit, then scans on several threads.
    ///
    /// # Cancel safety
    /// Dropping the future stops the work within a few objects. The permit is released when the last thread has
    /// stopped.
    async fn scan(&self, running: Arc<RunningQuery>) -> Result<Answer, QueryError> {
        let within = running.query().bounds().within;
        let deadline = clock::now() + within;
        let guard = CancelOnDrop(Arc::clone(&running));
        let _scan = Counted::new(&self.scans);
        let permit = self.permit();
        let permit = timeout_at(deadline, permit).await.map_err(|_| QueryError::Crowded { within })??;
        let threads = self.threads.min(running.threads());
        let work = (0..threads).map(|_| self.work(&running, &permit));
        let work = join_all(work.collect::<Vec<_>>());
        // At the deadline, the caller gets an error. Threads that still work stop at their next check, and are not
        // waited for.
        let ended = timeout_at(deadline, work).await.map_err(|_| running.expire_query())?;
        ended.into_iter().try_for_each(|end| end.map_err(|error| failure(&error)))?;
        let finish = self.readers.spawn_blocking(move || {
            let answer = running.finish();
            drop(permit);
            answer
        });
        let answer = finish.await.unwrap_or_else(|error| Err(failure(&error)));
        drop(guard);
        answer
    }

    /// Runs one thread of a scan, slice by slice, until no work is left. Between slices, other scans can use the
    /// thread.
    async fn work(&self, running: &Arc<RunningQuery>, permit: &Arc<OwnedSemaphorePermit>) -> Result<(), JoinError> {
        loop {
            let (running, permit, scans) = (Arc::clone(running), Arc::clone(permit), Arc::clone(&self.scans));
            let slice = self.readers.spawn_blocking(move || {
                let has_more = running.work_slice(&Reader { scans });
                drop(permit);
                has_more
            });
            if !slice.await? {
                return Ok(());
            }
        }
    }

    /// Acquires a scan permit, shared by the threads of one scan.
    async fn permit(&self) -> Result<Arc<OwnedSemaphorePermit>, QueryError> {
        let (_waiting, waiting) = Counted::new(&self.waiting);
        if waiting >= SCANS_WAITING {
            return Err(QueryError::Busy { waiting });
        }
        Arc::clone(&self.permits).acquire_owned().await.map(Arc::new).map_err(|_| QueryError::Stopped)
    }
}

/// Thread of a scan. It sleeps briefly now and then, so that other threads can run.
struct Reader {
    /// Number of scans that wait or run.
    scans: Arc<AtomicUsize>,
}

impl ScanThread for Reader {
    fn pause(&self) {
        give_way();
    }

    fn is_wanted(&self) -> bool {
        self.scans.load(Relaxed) > 1
    }
}

/// Maps a panicked thread, or a runtime that has ended, to a query error.
fn failure(error: &JoinError) -> QueryError {
    if error.is_panic() { QueryError::Broken } else { QueryError::Stopped }
}

impl fmt::Debug for QueryRunner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueryRunner").field("permits", &self.permits.available_permits()).finish_non_exhaustive()
    }
}

/// Pending answer to an [`Ask`]. Its query is dropped unanswered if the caller no longer waits.
pub struct PendingAnswer {
    answer: Pin<Box<dyn Future<Output = Result<Answer, QueryError>>>>,
    /// Whether the query tests owners of objects but the cache has no index of owners, so that the cache should build
    /// it.
    pub(in crate::actors) lacks_owners: bool,
}

impl PendingAnswer {
    fn now(answer: Result<Answer, QueryError>) -> Self {
        Self { answer: Box::pin(ready(answer)), lacks_owners: false }
    }
}

impl<A: Actor> MessageResponse<A, Ask> for PendingAnswer {
    fn handle(self, _ctx: &mut A::Context, caller: Option<OneshotSender<Result<Answer, QueryError>>>) {
        let Some(mut caller) = caller else { return };
        actix_rt::spawn(async move {
            tokio::select! {
                biased;
                answer = self.answer => drop(caller.send(answer)),
                () = caller.closed() => {}
            }
        });
    }
}

impl fmt::Debug for PendingAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PendingAnswer")
    }
}
