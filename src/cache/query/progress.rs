//! Progress of a running query, shared by its threads: the results so far, and why the query stops (deadline,
//! cancellation, failure).

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;

use super::builder::Bounds;
use super::error::QueryError;
use super::gather::{Gathered, PieceMatches};
use super::pieces::{Cursor, Piece};

const RUNNING: u8 = 0;
const LIMIT_REACHED: u8 = 1;
pub(super) const CANCELLED: u8 = 2;
pub(super) const DEADLINE: u8 = 3;

/// Shared progress of the threads of one query.
#[derive(Default)]
pub(super) struct Progress {
    cursor: Mutex<Cursor>,
    gathered: Mutex<Gathered>,
    end: AtomicU8,
    failed: AtomicBool,
    failure: Mutex<Option<QueryError>>,
    pub(super) examined: AtomicU64,
}

impl Progress {
    /// Returns the next piece of work. `find` takes the piece at the cursor that all threads share, and advances the
    /// cursor.
    pub(super) fn next(&self, find: impl FnOnce(&mut Cursor) -> Option<Piece>) -> Option<Piece> {
        find(&mut self.cursor.lock())
    }

    /// Returns whether the work has ended.
    pub(super) fn is_over(&self) -> bool {
        self.end.load(Relaxed) != RUNNING || self.failed.load(Relaxed)
    }

    /// Returns how many of the first `limit` hits are missing: see [`Gathered::still_needed`].
    pub(super) fn still_needed(&self, limit: usize) -> usize {
        self.gathered.lock().still_needed(limit)
    }

    /// Adds the matches of a piece to the results with the function `take`. If `take` returns true, there are enough
    /// results, and the query stops. If the results exceed a limit in `bounds`, the query fails.
    pub(super) fn take(
        &self,
        number: usize,
        found: PieceMatches,
        take: impl FnOnce(&mut Gathered, usize, PieceMatches) -> bool,
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
            self.stop(LIMIT_REACHED);
        }
    }

    /// Stops the query, with the reason `end`. If it has stopped already, the earlier reason stays.
    pub(super) fn stop(&self, end: u8) {
        let _ = self.end.compare_exchange(RUNNING, end, Relaxed, Relaxed);
    }

    /// Checks whether the work ran to its end, or until enough results were found.
    ///
    /// # Errors
    /// [`QueryError::TooMuch`], [`QueryError::Cancelled`] or [`QueryError::Deadline`] if the work was stopped earlier.
    pub(super) fn ended(&self, within: Duration, candidates: usize) -> Result<(), QueryError> {
        if let Some(failure) = self.failure.lock().clone() {
            return Err(failure);
        }
        match self.end.load(Relaxed) {
            CANCELLED => Err(QueryError::Cancelled),
            DEADLINE => {
                let (examined, candidates) = (self.examined.load(Relaxed), candidates as u64);
                Err(QueryError::Deadline { within, examined, candidates: candidates.max(examined) })
            }
            _ => Ok(()),
        }
    }

    /// Removes and returns the results gathered so far.
    pub(super) fn gathered(&self) -> Gathered {
        std::mem::take(&mut self.gathered.lock())
    }
}
