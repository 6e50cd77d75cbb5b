//! Computed indices in the making, over a store that goes on being written.
//!
//! The work is done by whoever has threads for it, on the snapshot of the moment in which it began. From that moment on
//! the writer computes the values of what it writes and keeps them in a journal. What has been made is then caught up
//! with the journal, again by others, until so little is left that the writer does it itself and publishes.
//!
//! Invariant: at the snapshot's moment plus the journal, an index in the making is what a walk over the store gives.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use hashbrown::HashMap;
use parking_lot::Mutex;

use super::indexers::{AddIndexersError, IndexFn, Indexers};
use super::indices::{Computed, ValuesOf};
use super::posting::{Location, PartitionId};
use super::snapshot::Snapshot;
use informer_hub_types::{ObjectKey, SharedStr, StoredObject};

/// One demand for indices; its number is never given again by the same store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BuildId(u64);

/// The values of one location in each index of a build; empty where there is no object any more.
type Row = Vec<ValuesOf>;

/// What is left to do for a [`Store`](super::Store) that gets indices: [`Self::work`], on as many threads as one
/// likes.
pub struct IndexBuild {
    columns: Vec<Column>,
    source: Mutex<Source>,
    /// What has been made, an entry per column.
    made: Mutex<Vec<Computed>>,
    ended: AtomicBool,
}

/// One index of a build.
struct Column {
    name: SharedStr,
    function: IndexFn,
    failures: Arc<AtomicU64>,
    /// Whether it was taken away before it was complete.
    dropped: AtomicBool,
}

/// What there is to index.
enum Source {
    /// The objects after this place.
    Objects { snapshot: Arc<Snapshot>, partition: PartitionId, after: Option<ObjectKey> },
    /// What was written meanwhile.
    Rows(std::vec::IntoIter<(Location, Row)>),
}

/// A piece of work.
enum Piece {
    Objects(PartitionId, Vec<Arc<StoredObject>>),
    Rows(Vec<(Location, Row)>),
}

impl Source {
    fn of(snapshot: Arc<Snapshot>) -> Self {
        Self::Objects { snapshot, partition: PartitionId(0), after: None }
    }

    fn next(&mut self) -> Option<Piece> {
        match self {
            Self::Rows(rows) => {
                let rows: Vec<_> = rows.take(IndexBuild::PIECE).collect();
                (!rows.is_empty()).then_some(Piece::Rows(rows))
            }
            Self::Objects { snapshot, partition, after } => loop {
                let (id, objects) = snapshot.partition_from(*partition)?;
                if id != *partition {
                    (*partition, *after) = (id, None);
                }
                let piece: Vec<_> = objects.iter_after(after.as_ref()).take(IndexBuild::PIECE).cloned().collect();
                let Some(last) = piece.last() else {
                    (*partition, *after) = (PartitionId(id.0.checked_add(1)?), None);
                    continue;
                };
                *after = Some(last.key().clone());
                return Some(Piece::Objects(id, piece));
            },
        }
    }
}

impl IndexBuild {
    /// How many objects a thread takes at once.
    const PIECE: usize = if cfg!(test) { 2 } else { 256 };

    fn new(indexers: Indexers) -> Self {
        let column =
            |(name, function)| Column { name, function, failures: Arc::default(), dropped: AtomicBool::new(false) };
        let columns: Vec<_> = indexers.into_iter().map(column).collect();
        let made = columns
            .iter()
            .map(|it| Computed::new(it.name.clone(), it.function.clone(), Arc::clone(&it.failures)))
            .collect();
        let source = Source::Rows(Vec::new().into_iter());
        Self { columns, source: Mutex::new(source), made: Mutex::new(made), ended: AtomicBool::new(false) }
    }

    /// Works until nothing is left to take, or nobody wants it any more. Any number of threads may do so at once; one
    /// is enough. Between two objects it lets other threads go first.
    pub fn work(&self) {
        while self.work_once() {}
    }

    /// A piece of it; whether there was one.
    pub(super) fn work_once(&self) -> bool {
        if self.has_ended() {
            return false;
        }
        let piece = self.source.lock().next();
        match piece {
            None => return false,
            Some(Piece::Rows(rows)) => self.take_in(rows),
            Some(Piece::Objects(partition, objects)) => {
                let row = |object: Arc<StoredObject>| {
                    std::thread::yield_now();
                    let at = Location { partition, key: object.key().clone() };
                    (at, self.row(&object))
                };
                self.take_in(objects.into_iter().take_while(|_| !self.has_ended()).map(row).collect());
            }
        }
        true
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Relaxed)
    }

    /// The values of an object in each index.
    fn row(&self, object: &StoredObject) -> Row {
        let values = |column: &Column| {
            if column.dropped.load(Relaxed) {
                return ValuesOf::default();
            }
            column.function.values(object).unwrap_or_else(|_| {
                column.failures.fetch_add(1, Relaxed);
                ValuesOf::default()
            })
        };
        self.columns.iter().map(values).collect()
    }

    fn take_in(&self, rows: Vec<(Location, Row)>) {
        let mut made = self.made.lock();
        for (at, row) in rows {
            for (index, values) in made.iter_mut().zip(row) {
                index.set(&at, values);
            }
        }
    }

    fn is_wanted(&self) -> bool {
        self.columns.iter().any(|column| !column.dropped.load(Relaxed))
    }

    /// Names that are still to come.
    fn names(&self) -> impl Iterator<Item = &SharedStr> {
        self.columns.iter().filter(|column| !column.dropped.load(Relaxed)).map(|column| &column.name)
    }

    /// Ends it; what was made goes to the caller, without what was taken away.
    fn finish(&self) -> (Vec<Computed>, Vec<SharedStr>) {
        self.ended.store(true, Relaxed);
        let made = std::mem::take(&mut *self.made.lock());
        let dropped: Vec<_> = self.columns.iter().filter(|column| column.dropped.load(Relaxed)).collect();
        let removed = dropped.iter().map(|column| column.name.clone()).collect();
        (made.into_iter().filter(|index| !dropped.iter().any(|column| column.name == *index.name())).collect(), removed)
    }
}

impl fmt::Debug for IndexBuild {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

impl fmt::Debug for Builds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.line.iter().map(|demand| &demand.build)).finish()
    }
}

/// What becomes of a build.
#[derive(Debug)]
pub enum BuildStep {
    /// There is more to do.
    Work(Arc<IndexBuild>),
    /// The indices are published; or why they are not.
    Done(Result<(), AddIndexersError>),
}

/// One demand.
struct Demand {
    id: BuildId,
    build: Arc<IndexBuild>,
    /// How often its work was handed out. What is written in between is in the journal, once it was.
    rounds: u32,
    journal: HashMap<Location, Row>,
}

impl Demand {
    fn is_under_way(&self) -> bool {
        self.rounds > 0 && self.build.is_wanted()
    }
}

impl Drop for Demand {
    /// Nobody waits for it any more, whether it was done or its store is gone.
    fn drop(&mut self) {
        self.build.ended.store(true, Relaxed);
    }
}

/// The demands of a store, in line: one at a time is worked on.
#[derive(Default)]
pub(super) struct Builds {
    line: VecDeque<Demand>,
    next: u64,
}

impl Builds {
    /// So many written locations the writer catches up with itself: a millisecond or two.
    const FEW: usize = if cfg!(test) { 2 } else { 1_000 };

    /// Each round has only what was written during the one before. More of them than this there are only where writing
    /// goes faster than catching up; then the writer ends it.
    const ROUNDS: u32 = if cfg!(test) { 4 } else { 16 };

    /// Names that are to be.
    pub(super) fn names(&self) -> impl Iterator<Item = &SharedStr> {
        self.line.iter().flat_map(|demand| demand.build.names())
    }

    pub(super) fn add(&mut self, indexers: Indexers) -> BuildId {
        self.next += 1;
        let id = BuildId(self.next);
        let build = Arc::new(IndexBuild::new(indexers));
        self.line.push_back(Demand { id, build, rounds: 0, journal: HashMap::new() });
        id
    }

    /// Indices of what a snapshot has, at once and on this thread.
    pub(super) fn at_once(indexers: Indexers, snapshot: Arc<Snapshot>) -> Vec<Computed> {
        let build = IndexBuild::new(indexers);
        *build.source.lock() = Source::of(snapshot);
        build.work();
        build.finish().0
    }

    /// Begins with the one whose turn it is, unless it has begun.
    pub(super) fn begin(&mut self, snapshot: impl FnOnce() -> Arc<Snapshot>) -> Option<(BuildId, Arc<IndexBuild>)> {
        let demand = self.line.front_mut().filter(|demand| demand.rounds == 0)?;
        demand.rounds = 1;
        if demand.build.is_wanted() {
            *demand.build.source.lock() = Source::of(snapshot());
        }
        Some((demand.id, Arc::clone(&demand.build)))
    }

    /// Takes away an index that is not complete yet; whether there is one of the name.
    pub(super) fn remove(&mut self, name: &str) -> bool {
        let columns = self.line.iter().flat_map(|demand| demand.build.columns.iter());
        let Some(column) = columns.filter(|it| !it.dropped.load(Relaxed)).find(|it| it.name == name) else {
            return false;
        };
        column.dropped.store(true, Relaxed);
        for demand in self.line.iter().filter(|demand| !demand.build.is_wanted()) {
            demand.build.ended.store(true, Relaxed);
        }
        true
    }

    /// Something is written.
    pub(super) fn put(&mut self, partition: PartitionId, object: &StoredObject) {
        if let Some(demand) = self.under_way() {
            let row = demand.build.row(object);
            demand.journal.insert(Location { partition, key: object.key().clone() }, row);
        }
    }

    /// Something is gone.
    pub(super) fn discard(&mut self, partition: PartitionId, key: &ObjectKey) {
        if let Some(demand) = self.under_way() {
            let row = vec![ValuesOf::new(); demand.build.columns.len()];
            demand.journal.insert(Location { partition, key: key.clone() }, row);
        }
    }

    /// Whether what is gone is to be told.
    pub(super) fn is_under_way(&self) -> bool {
        self.line.front().is_some_and(Demand::is_under_way)
    }

    fn under_way(&mut self) -> Option<&mut Demand> {
        self.line.front_mut().filter(|demand| demand.is_under_way())
    }

    /// What comes next for the one that was worked on: more of it, or what has been made and the names of what was
    /// taken away from it.
    pub(super) fn resume(&mut self) -> Option<Next> {
        let demand = self.line.front_mut().filter(|demand| demand.rounds > 0)?;
        let journal = std::mem::take(&mut demand.journal);
        if journal.len() > Self::FEW && demand.rounds < Self::ROUNDS && demand.build.is_wanted() {
            demand.rounds += 1;
            *demand.build.source.lock() = Source::Rows(journal.into_iter().collect::<Vec<_>>().into_iter());
            return Some(Next::Work(Arc::clone(&demand.build)));
        }
        demand.build.take_in(journal.into_iter().collect());
        let (made, removed) = demand.build.finish();
        self.line.pop_front();
        Some(Next::Made(made, removed))
    }

    /// Gives up the one that was worked on.
    pub(super) fn give_up(&mut self) {
        self.line.pop_front();
    }
}

/// See [`Builds::resume`].
pub(super) enum Next {
    Work(Arc<IndexBuild>),
    Made(Vec<Computed>, Vec<SharedStr>),
}
