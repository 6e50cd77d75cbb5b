//! A prepared query on one snapshot, processed by any number of threads.

use std::borrow::Cow;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use super::answer::{Answer, Row};
use super::builder::Query;
use super::condition::Condition;
use super::error::QueryError;
use super::gather::{Hit, Order, groups, unmatched};
use super::head::HeadOf;
use super::index_rewrite::with_indices;
use super::memo::LabelMemo;
use super::owners::{OWNER_INDEX, references};
use super::pace::Pace;
use super::pieces::Pieces;
use super::plan::{Access, AccessPath, ExaminedParts, Plan, Planner, SHORT};
use super::progress::Progress;
use super::token::Position;
use super::view::{Start, View};
use super::visible::VisibleParts;
use crate::snapshot::Snapshot;
use informer_hub_query::{Column, Columns, Matcher, Output, Question, SortKey, Values};
use informer_hub_types::{Members, Object, StoredObject};

/// Number of candidates up to which a query runs on the caller's thread if it decompresses bodies. See [`SHORT`].
const SHORT_READ: usize = 50;
/// Maximum number of objects in a piece, the unit of work of a thread. A piece takes under 1 ms if no bodies are read.
const PIECE: usize = 8_192;
/// Number of objects in a piece if bodies must be decompressed: a few ms of work.
const READ_PIECE: usize = 512;
/// Number of objects that a thread examines between checks for cancellation.
pub(super) const CANCEL_CHECK_INTERVAL: u64 = 64;

/// A prepared query: its access path, matcher and columns on one snapshot.
pub(super) struct Job<'s> {
    pub(super) snapshot: &'s Snapshot,
    pub(super) query: &'s Query,
    pub(super) condition: Condition<'s>,
    pub(super) view: View<'s>,
    way: Arc<AccessPath>,
    /// Tests candidates against the condition; `None` if every candidate matches.
    pub(super) matcher: Option<Matcher>,
    pub(super) sort: Option<Columns>,
    pub(super) columns: Option<Columns>,
    /// JSON members that condition, order and columns read.
    pub(super) members: Members,
    /// Position after which the answer continues; `None` if the answer starts at the beginning.
    pub(super) start: Option<Start>,
    /// Sort keys of the object at `start`; `None` without a start or without sort columns.
    pub(super) sorted_start: Option<Box<[SortKey]>>,
    /// Number of hits to keep: the limit plus one. The additional hit shows that a limit left out results. `None` keeps
    /// all hits.
    pub(super) keep: Option<usize>,
}

impl<'s> Job<'s> {
    /// Prepares a query; `position` is where it continues.
    ///
    /// # Errors
    /// If the query is invalid.
    pub(super) fn new(
        snapshot: &'s Snapshot,
        query: &'s Query,
        visible: &VisibleParts,
        position: Option<&Position>,
    ) -> Result<Self, QueryError> {
        Self::along(&OnceLock::new(), snapshot, query, visible, position)
    }

    /// Prepares a query like [`Self::new`], but takes the access path from `way`. If `way` is empty, plans a path and
    /// stores it there.
    pub(super) fn along(
        way: &OnceLock<Arc<AccessPath>>,
        snapshot: &'s Snapshot,
        query: &'s Query,
        visible: &VisibleParts,
        position: Option<&Position>,
    ) -> Result<Self, QueryError> {
        let question = &query.question;
        let of_objects = matches!(question.output, Output::Objects | Output::Columns(_));
        if !of_objects && !question.order.is_empty() {
            return Err(QueryError::Contradiction(
                "an order applies to objects and columns only, not to counts and distinct values",
            ));
        }
        let matcher = Matcher::new(&question.condition)?;
        let condition = Condition::new(&question.condition, snapshot)?;
        let mut view = View::new(snapshot, query, &condition, visible);
        let indexed = with_indices(&question.condition, snapshot, &view);
        let way = way.get_or_init(|| Arc::new(Planner { snapshot, view: &view }.best(&indexed)));
        let way = Arc::clone(way);
        if let Access::Ranges(ranges) = &way.access {
            view.restrict(ranges);
        }
        // The index condition adds a term if it does not decide alone, which may exceed the matcher's limit of terms.
        // Then the original condition is used.
        let matcher =
            if let Cow::Owned(indexed) = &indexed { Matcher::new(indexed).unwrap_or(matcher) } else { matcher };
        let matcher = (!way.exact).then_some(matcher);
        let sort: Vec<_> = question.order.iter().map(|(column, _)| column.clone()).collect();
        let sort = (!sort.is_empty()).then(|| Columns::new(&sort));
        let columns = match &question.output {
            Output::Objects | Output::Count => None,
            output => Some(Columns::new(columns_of(output))),
        };
        let members = members(question, &condition);
        let keep = question.limit.filter(|_| of_objects).map(|limit| limit.get().saturating_add(1));
        let mut job = Self {
            snapshot,
            query,
            condition,
            view,
            way,
            matcher,
            sort,
            columns,
            members,
            start: None,
            sorted_start: None,
            keep,
        };
        if let Some(position) = position {
            job.start_after(position)?;
        }
        Ok(job)
    }

    fn start_after(&mut self, position: &Position) -> Result<(), QueryError> {
        let rank = self.view.rank_of(&position.cluster);
        let there = self.view.is_named(rank, &position.cluster);
        self.start = Some(Start { rank, key: there.then(|| position.key.clone()) });
        if let Some(sort) = &self.sort {
            // The object existed when the token was made, and the snapshot is the same.
            let at = self.find(rank, position).ok_or(QueryError::ExpiredToken)?;
            let (member, stored) = (at, self.view.members[at].partition.get(&position.key));
            let stored = stored.ok_or(QueryError::ExpiredToken)?;
            let memo = RefCell::new(LabelMemo::new());
            let values =
                self.read(sort, &self.head(member, stored, &memo), &mut None).map_err(|()| QueryError::ExpiredToken)?;
            self.sorted_start = Some(values.iter().map(|values| SortKey::new(values)).collect());
        }
        Ok(())
    }

    /// Returns the informer with the newest state of the object at `position`, as an index of the view's members.
    /// `None` if no selected informer of the cluster has the object. `rank` is the index of the cluster among the
    /// selected clusters.
    fn find(&self, rank: usize, position: &Position) -> Option<usize> {
        self.view.answering().filter(|(_, member)| member.rank == rank).map(|(at, _)| at).find(|at| {
            let stored = self.view.members[*at].partition.get(&position.key);
            stored.is_some_and(|stored| !self.view.is_superseded(*at, stored))
        })
    }

    /// Returns the plan, which explains how candidates are found and examined.
    pub(super) fn plan(&self) -> Plan {
        let examined = match &self.matcher {
            None => ExaminedParts::Nothing,
            Some(matcher) if self.reads_owners() || matcher.needs_body() => ExaminedParts::Bodies,
            Some(_) => ExaminedParts::Heads,
        };
        Plan::new(&self.way, examined, self.reads())
    }

    /// Returns whether the condition has an `OwnedBy` test but the snapshot has no index of owners. The owner references
    /// are then read from the stored JSON of the candidates.
    pub(super) fn reads_owners(&self) -> bool {
        self.condition.asks_owners && self.snapshot.index_fn(OWNER_INDEX).is_none()
    }

    /// Returns whether bodies of matches are read, to sort them or for output columns.
    fn reads(&self) -> bool {
        [&self.sort, &self.columns].into_iter().flatten().any(Columns::needs_body)
    }

    /// Returns the approximate number of candidates.
    pub(super) fn candidates(&self) -> usize {
        self.way.candidates
    }

    /// Returns whether the query has too many candidates for the caller's thread: more than 1,000, or more than 50 if
    /// bodies are read.
    pub(super) fn is_long(&self) -> bool {
        let reads = self.reads() || self.plan().examined == ExaminedParts::Bodies;
        self.way.candidates > if reads { SHORT_READ } else { SHORT }
    }

    /// Returns whether a limit may leave out results, because there are more candidates than the limit.
    pub(super) fn may_be_incomplete(&self) -> bool {
        self.keep.is_some_and(|keep| self.way.candidates >= keep)
    }

    /// Returns the number of objects in a piece, the unit of work of a thread.
    fn piece(&self) -> usize {
        let usual = if self.reads() || self.plan().examined == ExaminedParts::Bodies { READ_PIECE } else { PIECE };
        self.query.piece.map_or(usual, std::num::NonZeroUsize::get)
    }

    /// Returns the number of threads for which the query has enough work.
    pub(super) fn threads(&self) -> usize {
        self.way.candidates / self.piece() + 1
    }

    pub(super) fn order(&self) -> Order<'_, 's> {
        let directions = self.query.question.order.iter().map(|(_, direction)| *direction).collect();
        Order { directions, view: &self.view }
    }

    pub(super) fn pieces(&self) -> Pieces<'_, 's> {
        let start = self.start.as_ref().filter(|_| self.sort.is_none());
        let (access, needs) = (&self.way.access, &self.condition.needs);
        Pieces { snapshot: self.snapshot, view: &self.view, access, start, size: self.piece(), needs }
    }

    fn head<'o>(&'o self, member: usize, stored: &'o StoredObject, memo: &'o RefCell<LabelMemo>) -> HeadOf<'o, 's> {
        HeadOf { snapshot: self.snapshot, member: &self.view.members[member], stored, memo }
    }

    /// Returns whether a cluster has several informers, so that its keys may be out of order.
    pub(super) fn any_overlap(&self) -> bool {
        self.view.members.windows(2).any(|pair| pair[0].rank == pair[1].rank)
    }

    /// Does all work of the query on this thread and returns the answer. If only the plan is requested, returns that
    /// without results.
    ///
    /// # Errors
    /// As [`Self::finish`].
    pub(super) fn answer(&self, progress: &Progress) -> Result<Answer, QueryError> {
        if self.query.explain {
            return Ok(self.empty());
        }
        self.work(progress, &mut Pace::unbroken());
        self.finish(progress)
    }

    /// Builds the answer from the results.
    ///
    /// # Errors
    /// If the query was cancelled, or exceeded a limit of time, results or bytes.
    pub(super) fn finish(&self, progress: &Progress) -> Result<Answer, QueryError> {
        progress.ended(self.query.bounds.within, self.candidates())?;
        let question = &self.query.question;
        let limit = question.limit.map(std::num::NonZeroUsize::get);
        let mut gathered = progress.gathered();
        let mut answer = self.empty();
        (answer.examined, answer.read) = (gathered.tally.examined, gathered.tally.read);
        (answer.unreadable, answer.unkept) = (gathered.tally.unreadable, gathered.tally.unkept);
        answer.unmatched = unmatched(&self.condition.paths, &gathered.tally.seen, gathered.tally.read);
        let (order, mut output) =
            (std::mem::take(&mut gathered.tally.order), std::mem::take(&mut gathered.tally.output));
        match &question.output {
            Output::Count => answer.count = Some(gathered.tally.count),
            output @ (Output::CountBy(_) | Output::Distinct(_)) => {
                (answer.groups, answer.more) = groups(std::mem::take(&mut gathered.tally.groups), output, limit);
            }
            Output::Objects | Output::Columns(_) => {
                let (hits, more) = gathered.into_hits(&self.order(), limit);
                answer.more = more;
                answer.end = hits.last().filter(|_| more).map(|hit| self.position(hit));
                self.fill(&mut answer, hits, progress)?;
            }
        }
        answer.rows.iter().for_each(|row| output.note(&row.values));
        let order = order.empty(question.order.iter().map(|(column, _)| column));
        for path in order.chain(output.empty(columns_of(&question.output).iter())) {
            if !answer.unmatched.contains(path) {
                answer.unmatched.push(path.clone());
            }
        }
        Ok(answer)
    }

    /// Returns an answer without results, with plan and coverage.
    pub(super) fn empty(&self) -> Answer {
        Answer {
            items: Vec::new(),
            rows: Vec::new(),
            groups: Vec::new(),
            count: None,
            more: false,
            next: None,
            coverage: self.view.coverage(),
            plan: self.plan(),
            examined: 0,
            read: 0,
            unmatched: Vec::new(),
            unreadable: 0,
            unkept: 0,
            end: None,
            kind: PhantomData,
        }
    }

    fn position(&self, hit: &Hit) -> Position {
        let cluster = self.view.members[hit.member].partition.origin().cluster.as_str().into();
        Position { cluster, key: hit.stored.key().clone() }
    }

    /// Reads columns from the object's head (metadata) if it has them all, else from `body`, which is loaded if
    /// necessary.
    pub(super) fn read(
        &self,
        columns: &Columns,
        head: &HeadOf<'_, '_>,
        body: &mut Option<Arc<[u8]>>,
    ) -> Result<Vec<Values>, ()> {
        if body.is_none() {
            if let Some(values) = columns.on_head(head) {
                return Ok(values);
            }
            *body = Some(head.stored.json_with(&self.members).map_err(drop)?);
        }
        columns.on_body(head, body.as_deref().unwrap_or_default()).map_err(drop)
    }

    fn fill(&self, answer: &mut Answer, hits: Vec<Hit>, progress: &Progress) -> Result<(), QueryError> {
        let handle = |hit: &Hit| {
            Object::new(Arc::clone(self.view.members[hit.member].partition.origin()), Arc::clone(&hit.stored))
        };
        let Some(columns) = &self.columns else {
            answer.items = hits.iter().map(handle).collect();
            return Ok(());
        };
        let memo = RefCell::new(LabelMemo::new());
        for (number, hit) in hits.into_iter().enumerate() {
            if (number as u64).is_multiple_of(CANCEL_CHECK_INTERVAL) {
                progress.ended(self.query.bounds.within, self.candidates())?;
            }
            let object = handle(&hit);
            let values = match hit.row {
                Some(row) => row,
                None => {
                    self.read(columns, &self.head(hit.member, &hit.stored, &memo), &mut None).unwrap_or_else(|()| {
                        *if hit.stored.is_kept() { &mut answer.unreadable } else { &mut answer.unkept } += 1;
                        Vec::new()
                    })
                }
            };
            answer.rows.push(Row { object, values });
        }
        Ok(())
    }
}

fn columns_of(output: &Output) -> &[Column] {
    match output {
        Output::Objects | Output::Count => &[],
        Output::Columns(columns) => columns,
        Output::CountBy(column) | Output::Distinct(column) => std::slice::from_ref(column),
    }
}

/// Returns the JSON members that a query reads.
fn members(question: &Question, condition: &Condition<'_>) -> Members {
    let columns = question.order.iter().map(|(column, _)| column).chain(columns_of(&question.output));
    let of_columns = columns.filter_map(|column| match column {
        Column::Cluster => None,
        Column::Path(path) => Some(path),
    });
    let owners = condition.asks_owners.then_some(references());
    Members::new(condition.paths.iter().chain(of_columns).chain(owners))
}
