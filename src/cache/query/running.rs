//! A running query: shared by worker threads and the waiting caller.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

use super::answer::Answer;
use super::builder::Query;
use super::condition::asks_owners;
use super::error::QueryError;
use super::job::Job;
use super::owners::OWNER_INDEX;
use super::pace::{Pace, ScanThread};
use super::plan::AccessPath;
use super::progress::{CANCELLED, DEADLINE, Progress};
use super::token::Position;
use super::visible::VisibleParts;
use crate::snapshot::Snapshot;

/// A potentially long query on one snapshot. Threads call [`Self::work`], then one of them calls [`Self::finish`].
/// Writers never wait for it.
pub struct RunningQuery {
    snapshot: Arc<Snapshot>,
    query: Query,
    visible: VisibleParts,
    position: Option<Position>,
    /// Access path, chosen once and used by all threads.
    way: OnceLock<Arc<AccessPath>>,
    progress: Progress,
}

impl RunningQuery {
    /// Creates a query on a snapshot. With a position, it continues where an answer to the same question and snapshot
    /// ended.
    #[must_use]
    pub fn new(snapshot: Arc<Snapshot>, query: Query, position: Option<Position>) -> Self {
        let visible = VisibleParts::new(&snapshot, &query);
        Self { snapshot, query, visible, position, way: OnceLock::new(), progress: Progress::default() }
    }

    /// Answers the query on this thread if few objects must be examined. Returns `None` if the query needs
    /// [`Self::work`].
    ///
    /// # Errors
    /// If the query is invalid, was cancelled, or exceeded a limit of time, results or bytes. `None` means that the
    /// query is valid.
    pub fn answer_if_short(&self) -> Result<Option<Answer>, QueryError> {
        let job = self.job()?;
        if job.is_long() && !self.query.explain {
            return Ok(None);
        }
        job.answer(&self.progress).map(Some)
    }

    /// Returns the number of threads for which the query has enough work.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.job().map_or(1, |job| job.threads())
    }

    /// Works on the query without pauses until no work is left, or the query was stopped.
    pub fn work(&self) {
        self.work_at(&mut Pace::unbroken());
    }

    /// Works on the query for about 5 ms, or 50 ms if no other scan needs the thread, with a pause every 300 µs.
    /// Returns whether work may be left.
    #[doc(hidden)]
    pub fn work_slice(&self, thread: &dyn ScanThread) -> bool {
        self.work_at(&mut Pace::slice(thread))
    }

    fn work_at(&self, pace: &mut Pace<'_>) -> bool {
        // An invalid query is reported by `finish`.
        self.job().is_ok_and(|job| job.work(&self.progress, pace))
    }

    /// Returns the answer. Call it after [`Self::work`] has returned on every thread.
    ///
    /// # Errors
    /// If the query is invalid, was cancelled, or exceeded a limit of time, results or bytes.
    pub fn finish(&self) -> Result<Answer, QueryError> {
        self.job()?.finish(&self.progress)
    }

    /// Stops the query soon, because the caller no longer waits.
    pub fn cancel(&self) {
        self.progress.stop(CANCELLED);
    }

    /// Stops the query because its time limit has passed, even before it starts. Returns the error for the caller.
    pub fn expire_query(&self) -> QueryError {
        self.progress.stop(DEADLINE);
        let (within, examined) = (self.query.bounds.within, self.examined());
        let candidates = self.job().map_or(0, |job| job.candidates() as u64).max(examined);
        QueryError::Deadline { within, examined, candidates }
    }

    /// Returns whether the query tests owners and the snapshot has no index of owners, which the cache should then
    /// build first.
    #[must_use]
    pub fn lacks_owners(&self) -> bool {
        // `job` rejects conditions that are nested too deeply, before they are searched.
        self.snapshot.index_fn(OWNER_INDEX).is_none()
            && self.job().is_ok()
            && asks_owners(&self.query.question.condition)
    }

    /// Returns the number of objects examined so far.
    #[must_use]
    pub fn examined(&self) -> u64 {
        self.progress.examined.load(Relaxed)
    }

    /// Returns the query.
    #[must_use]
    pub fn query(&self) -> &Query {
        &self.query
    }

    /// Returns the snapshot.
    #[must_use]
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    fn job(&self) -> Result<Job<'_>, QueryError> {
        Job::along(&self.way, &self.snapshot, &self.query, &self.visible, self.position.as_ref())
    }
}

impl std::fmt::Debug for RunningQuery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunningQuery").field("query", &self.query).finish_non_exhaustive()
    }
}

impl Snapshot {
    /// Returns whether the query should run on its own threads: it may examine more than 1,000 objects, or more than 50
    /// if their bodies are read. Returns false if the query is invalid.
    #[must_use]
    #[doc(hidden)]
    pub fn is_long(&self, query: &Query) -> bool {
        Job::new(self, query, &VisibleParts::new(self, query), None).is_ok_and(|job| job.is_long())
    }

    /// Returns how a query would be answered from this snapshot.
    ///
    /// # Errors
    /// If the query is invalid.
    pub fn explain(&self, query: &Query) -> Result<super::Plan, QueryError> {
        Ok(Job::new(self, query, &VisibleParts::new(self, query), None)?.plan())
    }

    /// Answers a query on this thread, without a time limit; the other limits apply.
    ///
    /// # Errors
    /// [`QueryError::UnknownIndex`], [`QueryError::TooMuch`], or another error of the query. A continue token is an
    /// error: only the cache that issued it knows its snapshot.
    pub fn answer(&self, query: &Query) -> Result<Answer, QueryError> {
        if query.question.continue_token.is_some() {
            return Err(QueryError::Contradiction(
                "a continue token is valid only for the cache that issued it, not for a snapshot",
            ));
        }
        Job::new(self, query, &VisibleParts::new(self, query), None)?.answer(&Progress::default())
    }

    /// Answers a query on this thread if it is short and does not need the cache actor. Otherwise returns `None`, which
    /// means that one of these holds:
    /// - The query may examine many objects ([`Self::is_long`]).
    /// - A limit may leave out results, so that the answer needs a continue token.
    /// - The query continues an earlier answer.
    /// - The query tests owners, and the snapshot has no index of owners.
    ///
    /// # Errors
    /// As [`Self::answer`].
    #[doc(hidden)]
    pub fn answer_if_short(&self, query: &Query) -> Result<Option<Answer>, QueryError> {
        if query.question.continue_token.is_some() {
            return Ok(None);
        }
        let job = Job::new(self, query, &VisibleParts::new(self, query), None)?;
        // An incomplete answer needs a continue token, so the cache would do the work again.
        if job.is_long() || job.may_be_incomplete() || job.reads_owners() {
            return Ok(None);
        }
        let answer = job.answer(&Progress::default())?;
        Ok(Some(answer).filter(|answer| answer.end().is_none()))
    }

    /// Answers a query from this snapshot, after `position`: the end ([`Answer::end`]) of an earlier answer. Only the
    /// limits of `query` may differ from the query of the earlier answer.
    ///
    /// # Errors
    /// As [`Self::answer`].
    #[doc(hidden)]
    pub fn answer_after(&self, query: &Query, position: &Position) -> Result<Answer, QueryError> {
        Job::new(self, query, &VisibleParts::new(self, query), Some(position))?.answer(&Progress::default())
    }
}
