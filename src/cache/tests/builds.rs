//! Model test of index builds during writes, against a scan of the store.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;
use proptest::prelude::*;

use crate::testing::{delta, list_keeping, object_with, origin, pods, properties};
use crate::{
    AddIndexersError, BuildId, BuildStep, DeltaFifo, IndexBuild, IndexError, IndexFn, Indexers, PartitionId, Snapshot,
    Store,
};
use informer_hub_types::{Change, DeltaKind, InformerHealth, ObjectKey, SharedStr, StoredObject};

const CLUSTERS: [&str; 3] = ["c1", "c2", "c3"];
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
const VALUES: [&str; 5] = ["", "p", "p.q", "q.r.p", "fail"];
const INDICES: [&str; 3] = ["first", "parts", "other"];

fn values(name: &str, object: &StoredObject) -> Option<Vec<SharedStr>> {
    let v = object.labels().get("v").unwrap_or_default();
    match (name, v) {
        (_, "fail") => None,
        ("first", v) => Some(v.split('.').take(1).map(SharedStr::from).collect()),
        (name, v) => Some(v.split('.').map(|part| format!("{name} {part}").into()).collect()),
    }
}

/// Resource versions of the objects that an index function was called for. Each object state has its own version.
type Calls = Arc<Mutex<Vec<String>>>;

fn function(name: &'static str, calls: &Calls) -> IndexFn {
    let calls = Arc::clone(calls);
    IndexFn::new(move |object| {
        calls.lock().push(object.resource_version().to_string());
        values(name, object).ok_or_else(|| IndexError("it fails".to_owned()))
    })
}

type Postings = BTreeMap<String, BTreeSet<(PartitionId, ObjectKey)>>;

fn walked(snapshot: &Snapshot, index: &str) -> Postings {
    let mut postings = Postings::new();
    for (id, partition) in snapshot.partitions() {
        for object in partition.iter() {
            for value in values(index, object).unwrap_or_default() {
                postings.entry(value.to_string()).or_default().insert((id, object.key().clone()));
            }
        }
    }
    postings
}

fn indexed(snapshot: &Snapshot, index: &str) -> Postings {
    let at = |value: &str| snapshot.by_index(index, value).map(|at| (at.partition, at.key)).collect();
    snapshot.index_values(index).map(|(value, _)| (value.to_string(), at(value))).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Open(usize),
    Close(usize),
    Put(usize, usize, usize),
    Delete(usize, usize),
    /// A list with these names.
    List(usize, Vec<usize>),
    Plan(Vec<usize>),
    Begin,
    /// Processes this many pieces.
    Work(usize),
    Resume,
    GiveUp,
    Remove(usize),
    Recover,
}

fn arb_step() -> impl Strategy<Value = Step> {
    let cluster = || 0..CLUSTERS.len();
    let name = || 0..NAMES.len();
    prop_oneof![
        2 => cluster().prop_map(Step::Open),
        1 => cluster().prop_map(Step::Close),
        20 => (cluster(), name(), 0..VALUES.len()).prop_map(|(cluster, name, v)| Step::Put(cluster, name, v)),
        4 => (cluster(), name()).prop_map(|(cluster, name)| Step::Delete(cluster, name)),
        1 => (cluster(), prop::collection::vec(name(), 0..4)).prop_map(|(cluster, keep)| Step::List(cluster, keep)),
        5 => prop::collection::vec(0..INDICES.len(), 0..3).prop_map(Step::Plan),
        6 => Just(Step::Begin),
        10 => (1_usize..6).prop_map(Step::Work),
        8 => Just(Step::Resume),
        1 => Just(Step::GiveUp),
        2 => (0..INDICES.len()).prop_map(Step::Remove),
        1 => Just(Step::Recover),
    ]
}

/// Reference model of a build request.
struct Request {
    id: BuildId,
    /// Names that have not been removed.
    names: BTreeSet<&'static str>,
    removed: BTreeSet<&'static str>,
    begun: bool,
}

struct Fixture {
    store: Store,
    open: BTreeMap<usize, PartitionId>,
    version: u64,
    queue: VecDeque<Request>,
    complete: BTreeSet<&'static str>,
    work: Option<Arc<IndexBuild>>,
    calls: Vec<Calls>,
}

impl Fixture {
    fn new() -> Self {
        let (open, queue, complete, calls) = (BTreeMap::new(), VecDeque::new(), BTreeSet::new(), Vec::new());
        Self { store: Store::new(pods()), open, version: 0, queue, complete, work: None, calls }
    }

    fn step(&mut self, step: Step) {
        self.version += 1;
        match step {
            Step::Open(cluster) => {
                let id = self.store.open(origin(CLUSTERS[cluster]), InformerHealth::new(), Vec::new());
                self.open.insert(cluster, id);
            }
            Step::Close(cluster) => {
                if let Some(id) = self.open.remove(&cluster) {
                    self.store.close(id);
                }
            }
            Step::Put(cluster, name, v) => {
                let pod = object_with("ns", NAMES[name], "u", self.version, &[("v", VALUES[v])], &[]);
                self.apply(cluster, vec![Change::Delta(delta(DeltaKind::Updated, pod))]);
            }
            Step::Delete(cluster, name) => {
                let pod = object_with("ns", NAMES[name], "u", self.version, &[], &[]);
                self.apply(cluster, vec![Change::Delta(delta(DeltaKind::Deleted, pod))]);
            }
            Step::List(cluster, keep) => {
                self.apply(cluster, list_keeping(keep.into_iter().map(|name| NAMES[name])));
            }
            Step::Plan(names) => self.plan(names.into_iter().map(|at| INDICES[at]).collect()),
            Step::Begin => self.begin(),
            Step::Work(pieces) => {
                let work = self.work.take();
                self.work = work.filter(|work| (0..pieces).all(|_| work.work_once()));
            }
            Step::Resume => self.resume(),
            Step::GiveUp => {
                if self.queue.front().is_some_and(|request| request.begun) {
                    self.store.give_up_build();
                    self.queue.pop_front();
                    self.work = None;
                }
            }
            Step::Remove(at) => self.remove(INDICES[at]),
            Step::Recover => {
                self.store = Store::recover(Arc::clone(self.store.published()));
                self.queue.clear();
                // A thread that is still working finds the build cancelled.
                assert!(self.work.take().is_none_or(|work| !work.work_once()));
            }
        }
    }

    fn apply(&mut self, cluster: usize, changes: Vec<Change>) {
        let Some(id) = self.open.get(&cluster) else { return };
        let mut fifo = DeltaFifo::new(usize::MAX);
        for change in changes {
            fifo.push(change);
        }
        assert!(self.store.apply(*id, fifo.pop(usize::MAX)).is_some());
    }

    fn plan(&mut self, names: BTreeSet<&'static str>) {
        let function = |name: &&'static str| {
            let calls = Calls::default();
            self.calls.push(Arc::clone(&calls));
            (*name, function(name, &calls))
        };
        let planned = self.store.plan_indexers(names.iter().map(function).collect());
        let coming = self.queue.iter().flat_map(|request| &request.names);
        let taken: BTreeSet<_> = coming.chain(&self.complete).copied().collect();
        let taken: Vec<_> = names.intersection(&taken).copied().collect();
        match planned {
            Err(conflict) => assert_eq!(conflict.names, taken),
            Ok(id) => {
                assert!(taken.is_empty());
                self.queue.push_back(Request { id, names, removed: BTreeSet::new(), begun: false });
            }
        }
    }

    fn begin(&mut self) {
        let begun = self.store.begin_build();
        let due = self.queue.front_mut().filter(|request| !request.begun);
        assert_eq!(begun.as_ref().map(|(id, _)| *id), due.as_ref().map(|request| request.id));
        if let Some(due) = due {
            due.begun = true;
            self.work = begun.map(|(_, work)| work);
        }
    }

    fn resume(&mut self) {
        if self.work.as_ref().is_some_and(|work| work.work_once()) {
            return;
        }
        self.work = None;
        match self.store.resume_build() {
            None => assert!(self.queue.front().is_none_or(|request| !request.begun)),
            Some(BuildStep::Work(work)) => self.work = Some(work),
            Some(BuildStep::Done(result)) => {
                let request = self.queue.pop_front().unwrap();
                self.complete.extend(request.names);
                match result {
                    Ok(()) => assert!(request.removed.is_empty()),
                    Err(AddIndexersError::Removed { names, .. }) => assert!(names.iter().eq(&request.removed)),
                    Err(other) => panic!("{other}"),
                }
            }
        }
    }

    fn remove(&mut self, name: &'static str) {
        let known = self.store.remove_indexer(name);
        let coming = self.queue.iter_mut().find(|request| request.names.contains(name));
        assert_eq!(known, self.complete.remove(name) || coming.is_some());
        if let Some(request) = coming {
            request.names.remove(name);
            request.removed.insert(name);
        }
    }

    fn check(&self) {
        let snapshot = self.store.published().load_full();
        assert!(snapshot.indexers().names().eq(&self.complete), "{:?}", self.complete);
        for name in INDICES {
            let expected = if self.complete.contains(name) { walked(&snapshot, name) } else { Postings::new() };
            assert_eq!(indexed(&snapshot, name), expected, "{name}");
        }
        for calls in &self.calls {
            let calls = calls.lock();
            let states: BTreeSet<_> = calls.iter().collect();
            assert_eq!(states.len(), calls.len(), "a function is called once per state");
        }
    }
}

proptest! {
    #![proptest_config(properties(128))]

    #[test]
    fn index_built_between_writes_equals_a_scan(steps in prop::collection::vec(arb_step(), 1..120)) {
        let mut fixture = Fixture::new();
        (0..CLUSTERS.len()).for_each(|cluster| fixture.step(Step::Open(cluster)));
        for step in steps {
            fixture.step(step);
            fixture.check();
        }
        // All queued builds complete.
        while !fixture.queue.is_empty() {
            for step in [Step::Begin, Step::Work(usize::MAX), Step::Resume] {
                fixture.step(step);
            }
            fixture.check();
        }
    }
}

/// Returns a store with one open partition of this many objects.
fn filled(objects: u64) -> (Store, PartitionId) {
    let mut store = Store::new(pods());
    let id = store.open(origin("c"), InformerHealth::new(), Vec::new());
    put(&mut store, id, 0..objects, 1);
    (store, id)
}

fn put(store: &mut Store, id: PartitionId, names: std::ops::Range<u64>, version: u64) {
    let mut fifo = DeltaFifo::new(usize::MAX);
    for name in names {
        let v = format!("{}.{}", name % 7, version % 5);
        let pod = object_with("ns", &name.to_string(), "u", version, &[("v", &v)], &[]);
        fifo.push(Change::Delta(delta(DeltaKind::Updated, pod)));
    }
    store.apply(id, fifo.pop(usize::MAX)).unwrap();
}

#[test]
fn threads_build_an_index_during_writes() {
    let (store, id) = filled(2_000);
    let store = Mutex::new(store);
    let plain = |name| IndexFn::new(move |object| Ok(values(name, object).unwrap()));
    let indexers = Indexers::new().with("parts", plain("parts")).with("first", plain("first"));
    store.lock().plan_indexers(indexers).unwrap();
    let (complete, rounds) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for version in 2.. {
                if complete.load(Relaxed) {
                    return;
                }
                let first = version * 37 % 2_000;
                put(&mut store.lock(), id, first..first + 20, version);
            }
        });
        let (_, mut build) = store.lock().begin_build().unwrap();
        loop {
            rounds.fetch_add(1, Relaxed);
            std::thread::scope(|scope| (0..3).for_each(|_| drop(scope.spawn(|| build.work()))));
            let step = store.lock().resume_build().unwrap();
            match step {
                BuildStep::Work(more) => build = more,
                BuildStep::Done(result) => break assert_eq!(result, Ok(())),
            }
        }
        complete.store(true, Relaxed);
    });
    put(&mut store.lock(), id, 5..9, u64::MAX);
    let snapshot = store.lock().published().load_full();
    for name in ["parts", "first"] {
        assert_eq!(indexed(&snapshot, name), walked(&snapshot, name), "after {rounds:?} rounds");
    }
}

#[test]
fn build_completes_despite_a_fast_writer() {
    let (mut store, id) = filled(10);
    store.plan_indexers(Indexers::new().with("parts", function("parts", &Calls::default()))).unwrap();
    let (_, mut build) = store.begin_build().unwrap();
    for version in 2..100 {
        build.work();
        put(&mut store, id, 0..10, version);
        match store.resume_build().unwrap() {
            BuildStep::Work(more) => build = more,
            BuildStep::Done(result) => {
                assert_eq!((result, version), (Ok(()), 5));
                let snapshot = store.published().load_full();
                return assert_eq!(indexed(&snapshot, "parts"), walked(&snapshot, "parts"));
            }
        }
    }
    panic!("the build never completed");
}

#[test]
fn index_under_construction_is_invisible_and_reserves_its_name() {
    let (mut store, _) = filled(3);
    let parts = || Indexers::new().with("parts", function("parts", &Calls::default()));
    store.plan_indexers(parts()).unwrap();
    let (_, build) = store.begin_build().unwrap();
    build.work();
    let snapshot = store.published().load_full();
    let error = snapshot.answer(&crate::Query::by_index("parts", "parts 1")).unwrap_err();
    assert!(error.to_string().starts_with("no index \"parts\""), "{error}");
    let taken = store.plan_indexers(parts()).unwrap_err();
    assert_eq!(taken.to_string(), format!("{} already has an index named parts: no index was added", pods().gvr));
    assert_eq!(store.add_indexers(parts()).unwrap_err(), taken);
    assert!(matches!(store.resume_build(), Some(BuildStep::Done(Ok(())))));
    assert!(store.published().load().answer(&crate::Query::by_index("parts", "parts 1")).is_ok());
}

#[test]
fn removal_of_an_index_under_construction_is_reported() {
    let (mut store, _) = filled(3);
    let calls = Calls::default();
    store.plan_indexers(Indexers::new().with("parts", function("parts", &calls))).unwrap();
    let (_, build) = store.begin_build().unwrap();
    assert!(build.work_once());
    assert!(store.remove_indexer("parts") && !store.remove_indexer("parts"));
    assert!(!build.work_once(), "the build is cancelled");
    let Some(BuildStep::Done(Err(error))) = store.resume_build() else { panic!("the index was removed") };
    assert_eq!(error.to_string(), format!("index parts of {} was removed before it was complete", pods().gvr));
    assert!(store.published().load().indexers().is_empty() && store.resume_build().is_none());
}

#[test]
fn recovered_store_does_not_know_builds_of_its_predecessor() {
    let (mut store, _) = filled(3);
    let parts = || Indexers::new().with("parts", function("parts", &Calls::default()));
    let lost = store.plan_indexers(parts()).unwrap();
    store.begin_build().unwrap();
    assert!(store.is_building(lost));
    let mut store = Store::recover(Arc::clone(store.published()));
    let next = store.plan_indexers(parts()).unwrap();
    store.begin_build().unwrap();
    assert!(!store.is_building(lost) && !store.has_build(lost));
    assert!(store.is_building(next) && store.has_build(next));
}

#[test]
fn debug_output_of_a_build_has_names_and_no_values() {
    let (mut store, id) = filled(3);
    store.plan_indexers(Indexers::new().with("parts", function("parts", &Calls::default()))).unwrap();
    store.begin_build().unwrap();
    put(&mut store, id, 0..3, 2);
    let text = format!("{store:?}");
    assert!(text.contains("parts") && !text.contains("parts 1") && !text.contains("ns/"), "{text}");
}
