//! A question on its way: shared by the threads that work on it and by who waits for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;

use super::answer::Answer;
use super::condition::asks_owners;
use super::gather::{Found, Gathered};
use super::job::Job;
use super::pieces::{Cursor, Piece};
use super::token::Position;
use super::{Bounds, Query, QueryError};
use crate::cache::snapshot::Snapshot;

/// A question to one snapshot that may take a while: whoever has threads to spare calls [`Self::work`] from some of
/// them, then [`Self::finish`] from one. Nobody who writes waits for any of it.
pub struct Inquiry {
    snapshot: Arc<Snapshot>,
    query: Query,
    position: Option<Position>,
    progress: Progress,
}

impl Inquiry {
    /// A question to a snapshot; with a position, where an answer to the same question from the same snapshot ended.
    #[must_use]
    pub fn new(snapshot: Arc<Snapshot>, query: Query, position: Option<Position>) -> Self {
        Self { snapshot, query, position, progress: Progress::default() }
    }

    /// The answer, where it is short work.
    ///
    /// # Errors
    /// The question's faults: a question that passes here has none.
    pub fn answer_if_short(&self) -> Result<Option<Answer>, QueryError> {
        let job = self.job()?;
        if self.query.explain {
            return Ok(Some(job.empty()));
        }
        if job.is_long() {
            return Ok(None);
        }
        job.work(&self.progress);
        job.finish(&self.progress).map(Some)
    }

    /// Threads that there is enough work for.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.job().map_or(1, |job| job.threads())
    }

    /// Works on it until nothing is left to do, or somebody has ended it.
    pub fn work(&self) {
        // What is wrong with the question, its end tells.
        if let Ok(job) = self.job() {
            job.work(&self.progress);
        }
    }

    /// The answer. All work must be done.
    ///
    /// # Errors
    /// The question's faults, and what ended the work early.
    pub fn finish(&self) -> Result<Answer, QueryError> {
        self.job()?.finish(&self.progress)
    }

    /// Ends the work soon: nobody waits any more.
    pub fn cancel(&self) {
        self.progress.stop(CANCELLED);
    }

    /// Ends the work soon, or keeps it from beginning: the time is up. What whoever waits is told.
    pub fn time_is_up(&self) -> QueryError {
        self.progress.stop(TIME_IS_UP);
        let (within, examined) = (self.query.bounds.within, self.examined());
        let candidates = self.job().map_or(0, |job| job.candidates() as u64).max(examined);
        QueryError::Deadline { within, examined, candidates }
    }

    /// Whether an index of owners would have been of use, and there is none.
    #[must_use]
    pub fn lacks_owners(&self) -> bool {
        // A condition that is too deep to be walked over is refused.
        self.snapshot.index_fn(super::OWNER_INDEX).is_none()
            && self.job().is_ok()
            && asks_owners(&self.query.question.condition)
    }

    /// How many objects have been looked at so far.
    #[must_use]
    pub fn examined(&self) -> u64 {
        self.progress.examined.load(Relaxed)
    }

    /// The question.
    #[must_use]
    pub fn query(&self) -> &Query {
        &self.query
    }

    /// The snapshot that it is put to.
    #[must_use]
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    fn job(&self) -> Result<Job<'_>, QueryError> {
        Job::new(&self.snapshot, &self.query, self.position.as_ref())
    }
}

impl std::fmt::Debug for Inquiry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inquiry").field("query", &self.query).finish_non_exhaustive()
    }
}

const GOES_ON: u8 = 0;
const ENOUGH: u8 = 1;
const CANCELLED: u8 = 2;
const TIME_IS_UP: u8 = 3;

/// How far a question is.
#[derive(Default)]
pub(super) struct Progress {
    cursor: Mutex<Cursor>,
    gathered: Mutex<Gathered>,
    end: AtomicU8,
    failed: AtomicBool,
    failure: Mutex<Option<QueryError>>,
    examined: AtomicU64,
}

impl Progress {
    /// The next piece, as `find` finds it.
    pub(super) fn next(&self, find: impl FnOnce(&mut Cursor) -> Option<Piece>) -> Option<Piece> {
        find(&mut self.cursor.lock())
    }

    /// Whether there is nothing more to do.
    pub(super) fn is_over(&self) -> bool {
        self.end.load(Relaxed) != GOES_ON || self.failed.load(Relaxed)
    }

    /// Takes in what a piece has; `take` says whether that is enough.
    pub(super) fn take(
        &self,
        number: usize,
        found: Found,
        take: impl FnOnce(&mut Gathered, usize, Found) -> bool,
        bounds: Bounds,
    ) {
        self.examined.fetch_add(found.tally.examined, Relaxed);
        let mut gathered = self.gathered.lock();
        let enough = take(&mut gathered, number, found);
        let over = [
            ("objects or values", bounds.items, gathered.items),
            ("bytes of values", bounds.bytes, gathered.tally.bytes),
        ];
        if let Some((what, limit, _)) = over.into_iter().find(|(_, limit, found)| found > limit) {
            self.failure.lock().get_or_insert(QueryError::TooMuch { what, limit });
            self.failed.store(true, Relaxed);
            *gathered = Gathered::default();
        }
        if enough {
            self.stop(ENOUGH);
        }
    }

    /// The first end counts.
    fn stop(&self, end: u8) {
        let _ = self.end.compare_exchange(GOES_ON, end, Relaxed, Relaxed);
    }

    /// What ended the work before there was an answer.
    ///
    /// # Errors
    /// That.
    pub(super) fn ended(&self, within: Duration, candidates: usize) -> Result<(), QueryError> {
        if let Some(failure) = self.failure.lock().clone() {
            return Err(failure);
        }
        match self.end.load(Relaxed) {
            CANCELLED => Err(QueryError::Cancelled),
            TIME_IS_UP => {
                let (examined, candidates) = (self.examined.load(Relaxed), candidates as u64);
                Err(QueryError::Deadline { within, examined, candidates: candidates.max(examined) })
            }
            _ => Ok(()),
        }
    }

    /// All that was found; nothing is left.
    pub(super) fn gathered(&self) -> Gathered {
        std::mem::take(&mut self.gathered.lock())
    }
}

impl Snapshot {
    /// Whether an answer takes so long that it belongs on a thread of its own: very many objects may have to be looked
    /// at for it, or some have to be decompressed. A question that has no answer takes no time.
    #[must_use]
    pub fn is_long(&self, query: &Query) -> bool {
        Job::new(self, query, None).is_ok_and(|job| job.is_long())
    }

    /// How a question would be answered from this snapshot.
    ///
    /// # Errors
    /// The question's faults.
    pub fn explain(&self, query: &Query) -> Result<super::Plan, QueryError> {
        Ok(Job::new(self, query, None)?.plan())
    }

    /// Answers a question from this snapshot, here and now, however long it takes; its bounds hold, but for the time.
    ///
    /// # Errors
    /// [`QueryError::UnknownIndex`], [`QueryError::TooMuch`] and the question's other faults. A continue token is one:
    /// only the cache that gave it knows its snapshot.
    pub fn answer(&self, query: &Query) -> Result<Answer, QueryError> {
        if query.question.continue_token.is_some() {
            return Err(QueryError::Contradiction(
                "a continue token is for the cache that gave it, not for a snapshot",
            ));
        }
        let job = Job::new(self, query, None)?;
        if query.explain {
            return Ok(job.empty());
        }
        let progress = Progress::default();
        job.work(&progress);
        job.finish(&progress)
    }

    /// Goes on behind the place where an answer to the same question from this snapshot ended ([`Answer::end`]).
    ///
    /// # Errors
    /// As [`Self::answer`].
    pub fn answer_after(&self, query: &Query, position: &Position) -> Result<Answer, QueryError> {
        let job = Job::new(self, query, Some(position))?;
        let progress = Progress::default();
        job.work(&progress);
        job.finish(&progress)
    }
}
