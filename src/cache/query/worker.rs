//! Work of one thread on a query. For each object it examines the head (metadata and index values). It reads the body
//! (JSON) only if the head does not show whether the object matches.

use std::cell::RefCell;
use std::sync::Arc;

use super::gather::{Hit, Order, PieceMatches, size, truncate};
use super::head::HeadOf;
use super::job::{CANCEL_CHECK_INTERVAL, Job};
use super::memo::LabelMemo;
use super::pace::Pace;
use super::pieces::{Piece, Pieces};
use super::progress::Progress;
use informer_hub_query::{Extractor, Output, SortKey, Values};
use informer_hub_types::StoredObject;

impl Job<'_> {
    /// Processes pieces of the query's work (each some objects of one informer). Ends if no piece is left, the query is
    /// over, or the time slice of `pace` is used up. Returns true only if the time slice was used up; pieces may then
    /// be left.
    pub(super) fn work(&self, progress: &Progress, pace: &mut Pace<'_>) -> bool {
        let (pieces, order) = (self.pieces(), self.order());
        // Without sort columns, and if no informers overlap, the first pieces have the first hits.
        let is_in_order = order.directions.is_empty() && !self.any_overlap();
        let mut bounds = self.query.bounds;
        if self.keep.is_some_and(|keep| keep - 1 <= bounds.items) {
            // The query's own limit is at most `bounds.items`, and already limits the hits that are kept.
            bounds.items = usize::MAX;
        }
        let mut worker = Worker::new(self, &order, progress);
        while !progress.is_over() {
            if pace.is_over() {
                return true;
            }
            let Some(piece) = progress.next(|cursor| pieces.next(cursor)) else { break };
            let keep = self.keep.map(|keep| if is_in_order { progress.still_needed(keep) } else { keep });
            let found = worker.examine(&pieces, &piece, keep, pace);
            progress.take(
                piece.number,
                found,
                |gathered, number, found| {
                    gathered.take(number, found, &order, self.keep);
                    self.keep.is_some_and(|keep| is_in_order && gathered.still_needed(keep) == 0)
                },
                bounds,
            );
        }
        false
    }
}

/// A worker thread's state for one query.
pub(super) struct Worker<'j, 's> {
    job: &'j Job<'s>,
    order: &'j Order<'j, 's>,
    progress: &'j Progress,
    memo: RefCell<LabelMemo>,
    /// Searches bodies for the paths of the query's condition, because the answer lists the paths that no body has.
    /// `None` if the condition has no paths, or if each path was already found in some body.
    watched: Option<Extractor>,
    seen: Vec<bool>,
}

/// Error: the body of an object is damaged, or not kept in memory.
struct Unreadable;

impl<'j, 's> Worker<'j, 's> {
    pub(super) fn new(job: &'j Job<'s>, order: &'j Order<'j, 's>, progress: &'j Progress) -> Self {
        let paths = &job.condition.paths;
        let watched = (!paths.is_empty()).then(|| Extractor::new(paths));
        Self { job, order, progress, memo: RefCell::new(LabelMemo::new()), watched, seen: vec![false; paths.len()] }
    }

    /// Examines the objects of one piece of the query's work and returns the matches. If `keep` is given, matches
    /// beyond the first `keep` of this piece may be left out.
    pub(super) fn examine(
        &mut self,
        pieces: &Pieces<'_, 's>,
        piece: &Piece,
        keep: Option<usize>,
        pace: &mut Pace<'_>,
    ) -> PieceMatches {
        let mut found = PieceMatches::default();
        let passed = pieces.each(piece, |stored| {
            found.tally.examined += 1;
            let read = found.tally.read;
            if self.look(piece.member, stored, &mut found).is_err() {
                *if stored.is_kept() { &mut found.tally.unreadable } else { &mut found.tally.unkept } += 1;
            }
            let enough = keep.is_some_and(|keep| {
                if self.order.directions.is_empty() {
                    return found.hits.len() >= keep;
                }
                truncate(&mut found.hits, keep, self.order, 2);
                false
            });
            pace.spend(1, found.tally.read - read);
            !enough && (!found.tally.examined.is_multiple_of(CANCEL_CHECK_INTERVAL) || !self.progress.is_over())
        });
        // Excluding an object by its label filter takes a fifth of the time of examining its head.
        pace.spend(passed / 5, 0);
        found.tally.examined += passed;
        found.tally.seen.clone_from(&self.seen);
        found
    }

    /// Examines an object and adds it to `found` if it matches.
    fn look(&mut self, member: usize, stored: &Arc<StoredObject>, found: &mut PieceMatches) -> Result<(), Unreadable> {
        let job = self.job;
        let memo = &self.memo;
        let head = HeadOf { snapshot: job.snapshot, member: &job.view.members[member], stored, memo };
        let decided = job.matcher.as_ref().map_or(Some(true), |matcher| matcher.on_head(&head));
        if decided == Some(false) || job.view.is_superseded(member, stored) {
            return Ok(());
        }
        let mut body = None;
        let matches = match (decided, &job.matcher) {
            (None, Some(matcher)) => {
                found.tally.read += 1;
                let bytes = body.insert(stored.json_with(&job.members).map_err(|_| Unreadable)?);
                note_paths(&mut self.watched, &mut self.seen, bytes);
                matcher.on_body(&head, bytes).map_err(|_| Unreadable)?
            }
            _ => true,
        };
        if matches { self.take(member, stored, &head, &mut body, found) } else { Ok(()) }
    }

    fn take(
        &self,
        member: usize,
        stored: &Arc<StoredObject>,
        head: &HeadOf<'_, '_>,
        body: &mut Option<Arc<[u8]>>,
        found: &mut PieceMatches,
    ) -> Result<(), Unreadable> {
        let job = self.job;
        let was_read = body.is_some();
        let result = match (&job.query.question.output, &job.columns) {
            (Output::CountBy(_) | Output::Distinct(_), Some(columns)) => {
                job.read(columns, head, body).map(|values| count(&values, found)).map_err(|()| Unreadable)
            }
            (Output::Count, _) => {
                found.tally.count += 1;
                Ok(())
            }
            _ => self.hit(member, stored, head, body, found),
        };
        found.tally.read += u64::from(!was_read && body.is_some());
        result
    }

    fn hit(
        &self,
        member: usize,
        stored: &Arc<StoredObject>,
        head: &HeadOf<'_, '_>,
        body: &mut Option<Arc<[u8]>>,
        found: &mut PieceMatches,
    ) -> Result<(), Unreadable> {
        let job = self.job;
        let sort: Box<[_]> = match &job.sort {
            None => Box::default(),
            // An unreadable object is sorted like one without values.
            Some(columns) => match job.read(columns, head, body) {
                Ok(values) => {
                    found.tally.order.note(&values);
                    values.iter().map(|values| SortKey::new(values)).collect()
                }
                Err(()) => self.order.directions.iter().map(|_| SortKey::new(&[])).collect(),
            },
        };
        let mut hit = Hit { member, stored: Arc::clone(stored), sort, row: None };
        if let (Some(start), Some(sort)) = (&job.start, &job.sorted_start)
            && !self.order.is_after(&hit, sort, start)
        {
            return Ok(());
        }
        // With an order and a limit, few objects are in the answer; their columns are read at the end.
        if let Some(columns) = job.columns.as_ref().filter(|_| job.sort.is_none() || job.keep.is_none()) {
            let row = job.read(columns, head, body).map_err(|()| Unreadable)?;
            found.tally.bytes += row.iter().map(|values| size(values)).sum::<usize>();
            hit.row = Some(row);
        }
        if job.keep.is_none() {
            found.tally.bytes += hit.sort.iter().map(SortKey::size).sum::<usize>();
        }
        found.hits.push(hit);
        Ok(())
    }
}

/// Counts one matching object for `count by` and `distinct`, by the query's first column. An object counts once for
/// each distinct value of that column, or under `null` if it has no value.
fn count(values: &[Values], found: &mut PieceMatches) {
    found.tally.output.note(values);
    let values = values.first().map_or(&[][..], |values| values);
    let values = if values.is_empty() { &[serde_json::Value::Null][..] } else { values };
    for (_, value) in values.iter().enumerate().filter(|(at, value)| !values[..*at].contains(value)) {
        match found.tally.groups.get_mut(value) {
            Some(count) => *count += 1,
            None => drop(found.tally.groups.insert(value.clone(), 1)),
        }
    }
}

/// Marks in `seen` which paths of the query's condition exist in the body `bytes`. Once all paths are marked, sets
/// `watched` to `None`, so that later bodies are not searched.
fn note_paths(watched: &mut Option<Extractor>, seen: &mut [bool], bytes: &[u8]) {
    let Some(Ok(values)) = watched.as_ref().map(|paths| paths.extract(bytes)) else { return };
    seen.iter_mut().zip(values).for_each(|(seen, values)| *seen |= !values.is_empty());
    if !seen.contains(&false) {
        *watched = None;
    }
}
