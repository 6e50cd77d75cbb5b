//! How caches answer: short questions at once, long ones on threads of their own, so many at a time, with a deadline,
//! and only for as long as somebody waits.

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
use crate::cache::{Answer, Fingerprint, Held, Inquiry, Query, QueryError, Snapshot, TokenKey};
use informer_hub_types::{Threads, clock, rng};

/// What the caches of one hub share to answer questions. Cheap to clone.
#[derive(Clone)]
pub(in crate::actors) struct Questions {
    io: Threads,
    turns: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
    threads: usize,
    tokens: TokenKey,
    /// Numbers of held snapshots: of one hub, so that a token of one cache means nothing to another.
    held: Arc<AtomicU64>,
}

/// One asker of [`SCANS_WAITING`], while it waits.
struct Waiting(Arc<AtomicUsize>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Ends the work on a question when whoever asked it is gone.
struct WhileWaitedFor(Arc<Inquiry>);

impl Drop for WhileWaitedFor {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl Questions {
    /// `scans` at a time, on the blocking threads of `io`.
    pub(in crate::actors) fn new(io: Threads, scans: usize) -> Self {
        let threads = thread::available_parallelism().map_or(1, std::num::NonZero::get).min(SCAN_THREADS);
        Self {
            io,
            turns: Arc::new(Semaphore::new(scans.max(1))),
            waiting: Arc::default(),
            threads,
            tokens: TokenKey::new(rng::rng().random()),
            held: Arc::default(),
        }
    }

    /// Answers a question to the newest snapshot, or to the one that its token is about.
    pub(in crate::actors) fn answer(&self, query: Query, newest: Arc<Snapshot>, held: &Arc<Mutex<Held>>) -> Answering {
        let prepared = self.prepare(query, newest, held);
        let (inquiry, fingerprint) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return Answering::now(Err(error)),
        };
        match inquiry.answer_if_short() {
            Ok(Some(answer)) => Answering::now(Ok(self.keep(answer, &inquiry, fingerprint, held))),
            Err(error) => Answering::now(Err(error)),
            Ok(None) => {
                let (this, held) = (self.clone(), Arc::clone(held));
                let lacks_owners = inquiry.lacks_owners();
                let answer = Box::pin(async move {
                    let answer = this.scan(Arc::clone(&inquiry)).await?;
                    Ok(this.keep(answer, &inquiry, fingerprint, &held))
                });
                Answering { answer, lacks_owners }
            }
        }
    }

    fn prepare(
        &self,
        query: Query,
        newest: Arc<Snapshot>,
        held: &Mutex<Held>,
    ) -> Result<(Arc<Inquiry>, Option<Fingerprint>), QueryError> {
        let question = query.question();
        let paged = question.limit.is_some() || question.continue_token.is_some();
        let fingerprint = paged.then(|| Fingerprint::new(&query, &newest.resource().gvr));
        let (snapshot, position) = match (&question.continue_token, fingerprint) {
            (Some(token), Some(fingerprint)) => {
                let (number, position) = self.tokens.verify(token, fingerprint)?;
                (held.lock().get(number, clock::now())?, Some(position))
            }
            _ => (newest, None),
        };
        Ok((Arc::new(Inquiry::new(snapshot, query, position)), fingerprint))
    }

    /// Holds the snapshot of an answer that can be gone on with.
    fn keep(&self, mut answer: Answer, inquiry: &Inquiry, of: Option<Fingerprint>, held: &Mutex<Held>) -> Answer {
        if let (Some(end), Some(of)) = (answer.end(), of) {
            let fresh = || self.held.fetch_add(1, Relaxed);
            let number = held.lock().hold(inquiry.snapshot(), clock::now(), fresh);
            answer.next = Some(self.tokens.sign(number, of, end));
        }
        answer
    }

    /// Waits for a turn and has threads work on it.
    ///
    /// # Cancel safety
    /// Dropping this ends the work within a few objects; the turn is free when the last thread has.
    async fn scan(&self, inquiry: Arc<Inquiry>) -> Result<Answer, QueryError> {
        let within = inquiry.query().bounds().within;
        let deadline = clock::now() + within;
        let guard = WhileWaitedFor(Arc::clone(&inquiry));
        let turn = self.turn();
        let turn = timeout_at(deadline, turn).await.map_err(|_| QueryError::Crowded { within })??;
        let threads = self.threads.min(inquiry.threads());
        let work = (0..threads).map(|_| {
            let (inquiry, turn) = (Arc::clone(&inquiry), Arc::clone(&turn));
            self.io.spawn_blocking(move || {
                inquiry.work();
                drop(turn);
            })
        });
        let work = join_all(work.collect::<Vec<_>>());
        // Threads that have not begun by then, because all are busy elsewhere, are not waited for.
        let ended = timeout_at(deadline, work).await.map_err(|_| inquiry.expire_query())?;
        ended.into_iter().try_for_each(|end| end.map_err(|error| failure(&error)))?;
        let finish = self.io.spawn_blocking(move || {
            let answer = inquiry.finish();
            drop(turn);
            answer
        });
        let answer = finish.await.unwrap_or_else(|error| Err(failure(&error)));
        drop(guard);
        answer
    }

    /// One of the turns, shared by the threads that take it.
    async fn turn(&self) -> Result<Arc<OwnedSemaphorePermit>, QueryError> {
        let waiting = self.waiting.fetch_add(1, Relaxed);
        let _waiting = Waiting(Arc::clone(&self.waiting));
        if waiting >= SCANS_WAITING {
            return Err(QueryError::Busy { waiting });
        }
        Arc::clone(&self.turns).acquire_owned().await.map(Arc::new).map_err(|_| QueryError::Stopped)
    }
}

/// A thread that panicked, or a runtime that has ended.
fn failure(error: &JoinError) -> QueryError {
    if error.is_panic() { QueryError::Broken } else { QueryError::Stopped }
}

impl fmt::Debug for Questions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Questions").field("turns", &self.turns.available_permits()).finish_non_exhaustive()
    }
}

/// The answer to an [`Ask`], on its way. Where nobody waits for it any more, it is not made.
pub struct Answering {
    answer: Pin<Box<dyn Future<Output = Result<Answer, QueryError>>>>,
    /// Whether an index of owners would have been of use.
    pub(in crate::actors) lacks_owners: bool,
}

impl Answering {
    fn now(answer: Result<Answer, QueryError>) -> Self {
        Self { answer: Box::pin(ready(answer)), lacks_owners: false }
    }
}

impl<A: Actor> MessageResponse<A, Ask> for Answering {
    fn handle(self, _ctx: &mut A::Context, asker: Option<OneshotSender<Result<Answer, QueryError>>>) {
        let Some(mut asker) = asker else { return };
        actix_rt::spawn(async move {
            tokio::select! {
                biased;
                answer = self.answer => drop(asker.send(answer)),
                () = asker.closed() => {}
            }
        });
    }
}

impl fmt::Debug for Answering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Answering")
    }
}
