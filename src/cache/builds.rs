//! Construction of computed indices over a store that is being written.
//!
//! The caller provides the threads, which first index the objects of the current snapshot. Meanwhile, the store's
//! writer computes the index values of each write, and records them in a journal in memory. The threads then work off
//! the journal in rounds. Once it is short enough, the writer applies the remaining entries and publishes the indices.
//!
//! Invariant: the entries built from the snapshot, plus those in the journal, equal an index built from the current
//! store.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use hashbrown::HashMap;
use parking_lot::Mutex;

use super::index_errors::AddIndexersError;
use super::indexers::{IndexFn, Indexers};
use super::indices::{Computed, ValuesOf};
use super::posting::{Location, PartitionId};
use super::snapshot::Snapshot;
use informer_hub_types::{ObjectKey, SharedStr, StoredObject};

/// ID of a request for indices, unique within the process. A store that is recovered after a panic does not reuse the
/// IDs from before the panic.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BuildId(u64);

/// Index values of one object: one list of values per index of the build. If the object was removed, all lists are
/// empty.
type Row = Vec<ValuesOf>;

/// Construction of new indices for a [`Store`](super::Store). Any number of threads may call [`Self::work`].
pub struct IndexBuild {
    columns: Vec<Column>,
    source: Mutex<Source>,
    /// The indices under construction, in the order of `columns`.
    built: Mutex<Vec<Computed>>,
    ended: AtomicBool,
}

/// One index under construction.
struct Column {
    name: SharedStr,
    function: IndexFn,
    failures: Arc<AtomicU64>,
    /// Whether the index was removed before it was complete.
    dropped: AtomicBool,
}

/// Remaining input of an index build: objects of a snapshot, or values of later writes.
enum Source {
    /// Objects of a snapshot: those of `partition` after the key `after`, and those of later partitions.
    Objects { snapshot: Arc<Snapshot>, partition: PartitionId, after: Option<ObjectKey> },
    /// Index values of objects written during the build, from the journal.
    Rows(std::vec::IntoIter<(Location, Row)>),
}

/// Unit of work of an index build: the part of the input that a thread processes in one step.
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
    /// Maximum number of objects or journal entries in a [`Piece`].
    const PIECE: usize = if cfg!(test) { 2 } else { 256 };

    fn new(indexers: Indexers) -> Self {
        let column =
            |(name, function)| Column { name, function, failures: Arc::default(), dropped: AtomicBool::new(false) };
        let columns: Vec<_> = indexers.into_iter().map(column).collect();
        let built = columns
            .iter()
            .map(|it| Computed::new(it.name.clone(), it.function.clone(), Arc::clone(&it.failures)))
            .collect();
        let source = Source::Rows(Vec::new().into_iter());
        Self { columns, source: Mutex::new(source), built: Mutex::new(built), ended: AtomicBool::new(false) }
    }

    /// Builds the indices until no input is left or the build is cancelled. One thread suffices; any number may work.
    /// Yields to other threads between two objects.
    pub fn work(&self) {
        while self.work_once() {}
    }

    /// Builds the indices for one part of the input. Returns false if none was left or the build has ended.
    pub(super) fn work_once(&self) -> bool {
        if self.has_ended() {
            return false;
        }
        let piece = self.source.lock().next();
        match piece {
            None => return false,
            Some(Piece::Rows(rows)) => self.add_rows(rows),
            Some(Piece::Objects(partition, objects)) => {
                let row = |object: Arc<StoredObject>| {
                    std::thread::yield_now();
                    let at = Location { partition, key: object.key().clone() };
                    (at, self.row(&object))
                };
                self.add_rows(objects.into_iter().take_while(|_| !self.has_ended()).map(row).collect());
            }
        }
        true
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Relaxed)
    }

    /// Returns the values of an object in each index.
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

    fn add_rows(&self, rows: Vec<(Location, Row)>) {
        let mut built = self.built.lock();
        for (at, row) in rows {
            for (index, values) in built.iter_mut().zip(row) {
                index.set(&at, values);
            }
        }
    }

    fn is_needed(&self) -> bool {
        self.columns.iter().any(|column| !column.dropped.load(Relaxed))
    }

    /// Returns the names of the indices that were not removed during the build.
    fn names(&self) -> impl Iterator<Item = &SharedStr> {
        self.columns.iter().filter(|column| !column.dropped.load(Relaxed)).map(|column| &column.name)
    }

    /// Ends the build. Returns the built indices, and the names of those that were removed during the build.
    fn finish(&self) -> (Vec<Computed>, Vec<SharedStr>) {
        self.ended.store(true, Relaxed);
        let built = std::mem::take(&mut *self.built.lock());
        let dropped: Vec<_> = self.columns.iter().filter(|column| column.dropped.load(Relaxed)).collect();
        let removed = dropped.iter().map(|column| column.name.clone()).collect();
        (
            built.into_iter().filter(|index| !dropped.iter().any(|column| column.name == *index.name())).collect(),
            removed,
        )
    }
}

impl fmt::Debug for IndexBuild {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

impl fmt::Debug for Builds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.queue.iter().map(|request| &request.build)).finish()
    }
}

/// Progress of a build of indices.
#[derive(Debug)]
pub enum BuildStep {
    /// The build has work left: call [`IndexBuild::work`], then [`Store::resume_build`](super::Store::resume_build).
    Work(Arc<IndexBuild>),
    /// The build has ended: its indices are published, or the error gives the reason why not.
    Done(Result<(), AddIndexersError>),
}

/// A queued request to build indices.
struct BuildRequest {
    id: BuildId,
    build: Arc<IndexBuild>,
    /// Number of times the build was handed to threads. Once above 0, `journal` records all writes.
    rounds: u32,
    journal: HashMap<Location, Row>,
}

impl BuildRequest {
    fn is_under_way(&self) -> bool {
        self.rounds > 0 && self.build.is_needed()
    }
}

impl Drop for BuildRequest {
    /// Stops the threads of the build. A request is dropped once its build is complete or cancelled, or with its store.
    fn drop(&mut self) {
        self.build.ended.store(true, Relaxed);
    }
}

/// Queue of a store's requests for new indices. One request is built at a time.
#[derive(Default)]
pub(super) struct Builds {
    queue: VecDeque<BuildRequest>,
}

/// Number of the next [`BuildId`].
static NEXT: AtomicU64 = AtomicU64::new(1);

impl Builds {
    /// Maximum number of journal entries (objects written during the build) that the store's writer applies itself,
    /// which takes 1 to 2 ms. If there are more, threads apply them.
    const WRITER_MAX: usize = if cfg!(test) { 2 } else { 1_000 };

    /// Maximum number of rounds in which threads work off the journal of writes. After the last round, the writer
    /// applies the remaining journal entries itself. The maximum is reached only if writes outpace the threads.
    const MAX_ROUNDS: u32 = if cfg!(test) { 4 } else { 16 };

    /// Returns the names of the indices that are queued or under construction.
    pub(super) fn names(&self) -> impl Iterator<Item = &SharedStr> {
        self.queue.iter().flat_map(|request| request.build.names())
    }

    pub(super) fn add(&mut self, indexers: Indexers) -> BuildId {
        let id = BuildId(NEXT.fetch_add(1, Relaxed));
        let build = Arc::new(IndexBuild::new(indexers));
        self.queue.push_back(BuildRequest { id, build, rounds: 0, journal: HashMap::new() });
        id
    }

    /// Builds indices of a snapshot on this thread.
    pub(super) fn build_now(indexers: Indexers, snapshot: Arc<Snapshot>) -> Vec<Computed> {
        let build = IndexBuild::new(indexers);
        *build.source.lock() = Source::of(snapshot);
        build.work();
        build.finish().0
    }

    /// Starts the first queued build. `None` if the queue is empty or that build has started already.
    pub(super) fn begin(&mut self, snapshot: impl FnOnce() -> Arc<Snapshot>) -> Option<(BuildId, Arc<IndexBuild>)> {
        let request = self.queue.front_mut().filter(|request| request.rounds == 0)?;
        request.rounds = 1;
        if request.build.is_needed() {
            *request.build.source.lock() = Source::of(snapshot());
        }
        Some((request.id, Arc::clone(&request.build)))
    }

    /// Removes an index that is queued or under construction. Returns whether it was found.
    pub(super) fn remove(&mut self, name: &str) -> bool {
        let columns = self.queue.iter().flat_map(|request| request.build.columns.iter());
        let Some(column) = columns.filter(|it| !it.dropped.load(Relaxed)).find(|it| it.name == name) else {
            return false;
        };
        column.dropped.store(true, Relaxed);
        for request in self.queue.iter().filter(|request| !request.build.is_needed()) {
            request.build.ended.store(true, Relaxed);
        }
        true
    }

    /// Records the index values of a written object in the journal of the running index build, if there is one.
    pub(super) fn put(&mut self, partition: PartitionId, object: &StoredObject) {
        if let Some(request) = self.under_way() {
            let row = request.build.row(object);
            request.journal.insert(Location { partition, key: object.key().clone() }, row);
        }
    }

    /// Records a removed object in the journal of the running index build, if there is one.
    pub(super) fn discard(&mut self, partition: PartitionId, key: &ObjectKey) {
        if let Some(request) = self.under_way() {
            let row = vec![ValuesOf::new(); request.build.columns.len()];
            request.journal.insert(Location { partition, key: key.clone() }, row);
        }
    }

    /// Returns whether an index build is running. If so, the store must also report removed objects with
    /// [`Self::discard`].
    pub(super) fn is_under_way(&self) -> bool {
        self.queue.front().is_some_and(BuildRequest::is_under_way)
    }

    /// Returns whether the build with this ID is running or queued.
    pub(super) fn has(&self, id: BuildId) -> bool {
        self.queue.iter().any(|request| request.id == id)
    }

    /// Returns whether the first build of the queue has this ID.
    pub(super) fn is_first(&self, id: BuildId) -> bool {
        self.queue.front().is_some_and(|request| request.id == id)
    }

    fn under_way(&mut self) -> Option<&mut BuildRequest> {
        self.queue.front_mut().filter(|request| request.is_under_way())
    }

    /// Returns the next step of the running build: more work, or its result. `None` if no build is running.
    pub(super) fn resume(&mut self) -> Option<Next> {
        let request = self.queue.front_mut().filter(|request| request.rounds > 0)?;
        let journal = std::mem::take(&mut request.journal);
        if journal.len() > Self::WRITER_MAX && request.rounds < Self::MAX_ROUNDS && request.build.is_needed() {
            request.rounds += 1;
            *request.build.source.lock() = Source::Rows(journal.into_iter().collect::<Vec<_>>().into_iter());
            return Some(Next::Work(Arc::clone(&request.build)));
        }
        request.build.add_rows(journal.into_iter().collect());
        let (built, removed) = request.build.finish();
        self.queue.pop_front();
        Some(Next::Built(built, removed))
    }

    /// Cancels the running build of indices.
    pub(super) fn give_up(&mut self) {
        self.queue.pop_front();
    }
}

/// Result of [`Builds::resume`]: more work, or the built indices and the names of the indices that were removed during
/// the build.
pub(super) enum Next {
    Work(Arc<IndexBuild>),
    Built(Vec<Computed>, Vec<SharedStr>),
}
