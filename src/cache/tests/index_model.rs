//! Model test of readers and listers, against maps that are searched linearly.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arc_swap::ArcSwap;
use proptest::prelude::*;

use super::query::origin;
use crate::testing::{delta, object_with, pods, properties};
use crate::{DeltaFifo, IndexError, IndexFn, IndexReader, Indexer, Indexers, Lister, PartitionId, Store};
use informer_hub_types::{
    Change, ClusterName, ClusterSelector, DeltaKind, Freshness, InformerHealth, LabelSelector, Object, ObjectKey,
    ResourceVersion, SharedStr, StoredObject,
};

/// The informers: cluster, watched namespace, whether it declares `by-node`. Those of one cluster overlap.
const INFORMERS: [(&str, Option<&str>, bool); 5] =
    [("c1", None, true), ("c1", Some("a"), false), ("c2", None, false), ("c2", None, true), ("c3", Some("b"), true)];
const CLUSTERS: [&str; 3] = ["c1", "c2", "c3"];
const TIERS: [&str; 3] = ["dev", "prod", "prod"];
const NAMESPACES: [&str; 2] = ["a", "b"];
const NAMES: [&str; 3] = ["x", "y", "z"];
const NODES: [&str; 3] = ["", "n1", "n2"];
/// Values of label `v`, from which the functions compute values or fail.
const VALUES: [&str; 7] = ["", "p", "p.q", "q.p.q", "fail", "panic", "none"];
/// Names of indices that are added and removed; informers declare one of them.
const INDICES: [&str; 3] = ["parts", "first", "by-node"];

/// Returns the values of an index function, or `None` if it fails. Shared by the model and the tested code.
fn values(index: &str, v: &str) -> Option<Vec<SharedStr>> {
    match (index, v) {
        (_, "fail" | "panic") => None,
        (_, "none") => Some(Vec::new()),
        ("parts", v) => Some(v.split('.').map(SharedStr::from).collect()),
        (_, v) => Some(vec![v.chars().take(1).collect::<String>().into()]),
    }
}

fn function(index: &'static str, calls: &Arc<AtomicU64>) -> IndexFn {
    let calls = Arc::clone(calls);
    IndexFn::new(move |object| {
        calls.fetch_add(1, Relaxed);
        let v = object.labels().get("v").unwrap();
        if v == "panic" {
            std::panic::resume_unwind(Box::new("an index function panics"));
        }
        values(index, v).ok_or_else(|| IndexError("it fails".to_owned()))
    })
}

type Objects = BTreeMap<ObjectKey, Arc<StoredObject>>;

/// Reference model of a computed index.
#[derive(Clone, Default)]
struct Computed {
    calls: u64,
    failures: u64,
}

/// Reference model: objects by informer, in the order they were opened, and computed indices.
#[derive(Clone, Default)]
struct Model {
    informers: Vec<(usize, Objects)>,
    computed: BTreeMap<&'static str, Computed>,
}

fn v_of(object: &StoredObject) -> &str {
    object.labels().get("v").unwrap()
}

impl Model {
    fn objects(&mut self, informer: usize) -> Option<&mut Objects> {
        self.informers.iter_mut().find(|(at, _)| *at == informer).map(|(_, objects)| objects)
    }

    /// Counts the function calls for a stored state: one per index.
    fn count(&mut self, object: &StoredObject) {
        for (index, computed) in &mut self.computed {
            computed.calls += 1;
            computed.failures += u64::from(values(index, v_of(object)).is_none());
        }
    }

    fn declared(&self, index: &str) -> bool {
        index == "by-node" && self.informers.iter().any(|(at, _)| INFORMERS[*at].2)
    }

    /// Returns the values of an object in an index, if the informer has the index.
    fn carries(&self, index: &str, informer: usize, object: &StoredObject) -> Option<BTreeSet<SharedStr>> {
        if self.computed.contains_key(index) {
            return Some(values(index, v_of(object)).unwrap_or_default().into_iter().collect());
        }
        let entries = object.index_values().iter().filter(|entry| entry.index == index);
        (index == "by-node" && INFORMERS[informer].2).then(|| entries.map(|entry| entry.value.clone()).collect())
    }

    fn knows(&self, index: &str) -> bool {
        self.computed.contains_key(index) || self.declared(index)
    }

    /// Returns the newest state of each object by cluster and key, among informers that have the index, if given.
    fn newest(
        &self,
        clusters: &[usize],
        index: Option<&str>,
    ) -> BTreeMap<(&str, ObjectKey), (usize, Arc<StoredObject>)> {
        let mut newest: BTreeMap<_, (usize, Arc<StoredObject>)> = BTreeMap::new();
        for (informer, objects) in &self.informers {
            let cluster = INFORMERS[*informer].0;
            if !clusters.iter().any(|at| CLUSTERS[*at] == cluster) {
                continue;
            }
            let speaks = |index: &str| self.computed.contains_key(index) || INFORMERS[*informer].2;
            for (key, object) in objects.iter().filter(|_| index.is_none_or(speaks)) {
                let known = newest.entry((cluster, key.clone())).or_insert((*informer, Arc::clone(object)));
                if object.resource_version().newer_than(known.1.resource_version()) {
                    *known = (*informer, Arc::clone(object));
                }
            }
        }
        newest
    }

    /// Returns the expected answers for the selected clusters.
    fn answers(&self, clusters: &[usize], probe: &StoredObject) -> Answers {
        let mut answers = Answers::new();
        let newest = self.newest(clusters, None);
        let lines = |wanted: &dyn Fn(&ObjectKey, &StoredObject) -> bool| {
            let found = newest.iter().filter(|((_, key), (_, object))| wanted(key, object));
            found.map(|((cluster, key), (_, object))| line(cluster, key, object)).collect::<Vec<_>>()
        };
        let keys: BTreeSet<_> = newest.keys().map(|(_, key)| key.to_string()).collect();
        answers.insert("list".into(), Some(lines(&|_, _| true)));
        answers.insert("keys".into(), Some(keys.into_iter().collect()));
        answers.insert("labels".into(), Some(lines(&|_, object| v_of(object) == "p")));
        for namespace in NAMESPACES {
            let inside = |key: &ObjectKey| key.namespace() == Some(namespace);
            answers.insert(format!("in {namespace}"), Some(lines(&|key, _| inside(key))));
            answers.insert(
                format!("labels in {namespace}"),
                Some(lines(&|key, object| inside(key) && v_of(object) != "p")),
            );
        }
        for (cluster, key) in places() {
            let got = newest.get(&(cluster, key.clone())).map(|(_, object)| line(cluster, &key, object));
            answers.insert(format!("get {cluster} {key}"), Some(got.into_iter().collect()));
        }
        for index in INDICES {
            self.answers_of_index(index, clusters, probe, &mut answers);
        }
        answers
    }

    fn answers_of_index(&self, index: &str, clusters: &[usize], probe: &StoredObject, answers: &mut Answers) {
        let newest = self.newest(clusters, Some(index));
        let carriers = |wanted: &BTreeSet<SharedStr>| {
            let carries = |informer: usize, object: &StoredObject| {
                self.carries(index, informer, object).is_some_and(|values| !values.is_disjoint(wanted))
            };
            newest.iter().filter(move |(_, (informer, object))| carries(*informer, object)).collect::<Vec<_>>()
        };
        let known = self.knows(index);
        for value in every_value() {
            let found = carriers(&BTreeSet::from([value.clone()]));
            let lines = found.iter().map(|((cluster, key), (_, object))| line(cluster, key, object)).collect();
            let keys: BTreeSet<_> = found.iter().map(|((_, key), _)| key.to_string()).collect();
            answers.insert(format!("{index} {value:?}"), known.then_some(lines));
            answers.insert(format!("{index} {value:?} keys"), known.then(|| keys.into_iter().collect()));
        }
        let mut there = BTreeSet::new();
        for (informer, objects) in &self.informers {
            if clusters.iter().any(|at| CLUSTERS[*at] == INFORMERS[*informer].0) {
                there.extend(
                    objects.values().flat_map(|object| self.carries(index, *informer, object).unwrap_or_default()),
                );
            }
        }
        let there = there.iter().map(ToString::to_string).collect();
        answers.insert(format!("{index} values"), known.then_some(there));
        let like = if self.computed.contains_key(index) {
            values(index, v_of(probe)).map(BTreeSet::from_iter)
        } else {
            Some(probe.index_values().iter().map(|entry| entry.value.clone()).collect())
        };
        let lines = |like: BTreeSet<_>| {
            carriers(&like).iter().map(|((cluster, key), (_, object))| line(cluster, key, object)).collect::<Vec<_>>()
        };
        answers.insert(format!("{index} like"), like.filter(|_| known).map(lines));
    }
}

/// Answers by question; `None` for an error.
type Answers = BTreeMap<String, Option<Vec<String>>>;

fn line(cluster: &str, key: &ObjectKey, object: &StoredObject) -> String {
    format!("{cluster}/{key}@{}", object.resource_version())
}

fn lines(objects: &[Object]) -> Vec<String> {
    objects.iter().map(|object| line(object.cluster().as_str(), object.key(), object)).collect()
}

fn texts<T: ToString>(items: &[T]) -> Vec<String> {
    items.iter().map(ToString::to_string).collect()
}

fn places() -> impl Iterator<Item = (&'static str, ObjectKey)> {
    let keys = || NAMESPACES.iter().flat_map(|namespace| NAMES.iter().map(|name| ObjectKey::new(namespace, name)));
    CLUSTERS.iter().flat_map(move |cluster| keys().map(|key| (*cluster, key)))
}

fn every_value() -> BTreeSet<SharedStr> {
    let computed = INDICES.iter().flat_map(|index| VALUES.iter().flat_map(|v| values(index, v).unwrap_or_default()));
    computed.chain(NODES.iter().map(|node| SharedStr::from(*node))).chain(["nowhere".into()]).collect()
}

/// Returns the actual answers to the questions of [`Model::answers`].
fn ask(reader: &IndexReader, probe: &StoredObject) -> Answers {
    let mut answers = Answers::new();
    let lister = Lister::over(reader.clone());
    answers.insert("list".into(), Some(lines(&reader.list())));
    assert_eq!(lines(&lister.list(&LabelSelector::everything())), lines(&reader.list()));
    assert!(lister.list(&LabelSelector::nothing()).is_empty());
    answers.insert("keys".into(), Some(texts(&reader.list_keys())));
    answers.insert("labels".into(), Some(lines(&lister.list(&"v=p".parse().unwrap()))));
    for namespace in NAMESPACES {
        let lister = lister.namespace(namespace);
        answers.insert(format!("in {namespace}"), Some(lines(&lister.list(&LabelSelector::everything()))));
        answers.insert(format!("labels in {namespace}"), Some(lines(&lister.list(&"v!=p".parse().unwrap()))));
    }
    for (cluster, key) in places() {
        let name = ClusterName::new(cluster).unwrap();
        let got: Vec<_> = reader.get(&name, &key).into_iter().collect();
        let same = lister.namespace(key.namespace().unwrap()).get(&name, key.name());
        assert_eq!(lines(&same.into_iter().collect::<Vec<_>>()), lines(&got));
        answers.insert(format!("get {cluster} {key}"), Some(lines(&got)));
    }
    for index in INDICES {
        for value in every_value() {
            let found = reader.by_index(index, &value).ok();
            answers.insert(format!("{index} {value:?}"), found.map(|found| lines(&found)));
            let keys = reader.index_keys(index, &value).ok();
            answers.insert(format!("{index} {value:?} keys"), keys.map(|keys| texts(&keys)));
        }
        let there = reader.list_index_func_values(index).ok();
        answers.insert(format!("{index} values"), there.map(|values| texts(&values)));
        answers.insert(format!("{index} like"), reader.index(index, probe).ok().map(|found| lines(&found)));
    }
    answers
}

#[derive(Clone, Debug)]
enum Step {
    Open(usize),
    Close(usize),
    /// Informer, kind, place, label `v`, nodes, whether the version is old.
    Put(usize, DeltaKind, (usize, usize), usize, Vec<usize>, bool),
    Delete(usize, (usize, usize), bool),
    /// A list with these keys, without objects.
    List(usize, Vec<(usize, usize)>),
    AddIndexers(Vec<usize>),
    RemoveIndexer(usize),
    Recover,
}

fn arb_place() -> impl Strategy<Value = (usize, usize)> {
    (0..NAMESPACES.len(), 0..NAMES.len())
}

fn arb_step() -> impl Strategy<Value = Step> {
    let informer = || 0..INFORMERS.len();
    let kind = prop_oneof![Just(DeltaKind::Added), Just(DeltaKind::Updated), Just(DeltaKind::Replaced)];
    let nodes = prop::collection::vec(0..NODES.len(), 0..3);
    let put = (informer(), kind, arb_place(), 0..VALUES.len(), nodes, prop::bool::weighted(0.2));
    prop_oneof![
        2 => informer().prop_map(Step::Open),
        1 => informer().prop_map(Step::Close),
        16 => put.prop_map(|(informer, kind, place, v, nodes, old)| Step::Put(informer, kind, place, v, nodes, old)),
        4 => (informer(), arb_place(), any::<bool>()).prop_map(|(informer, place, old)| Step::Delete(informer, place, old)),
        1 => (informer(), prop::collection::vec(arb_place(), 0..4)).prop_map(|(informer, keep)| Step::List(informer, keep)),
        3 => prop::collection::vec(0..INDICES.len(), 0..3).prop_map(Step::AddIndexers),
        2 => (0..INDICES.len()).prop_map(Step::RemoveIndexer),
        1 => Just(Step::Recover),
    ]
}

fn key_of((namespace, name): (usize, usize)) -> ObjectKey {
    ObjectKey::new(NAMESPACES[namespace], NAMES[name])
}

/// The store with its model.
struct Fixture {
    store: Store,
    model: Model,
    open: BTreeMap<usize, PartitionId>,
    calls: BTreeMap<&'static str, Arc<AtomicU64>>,
    version: u64,
}

impl Fixture {
    fn step(&mut self, step: Step) {
        self.version += 1;
        match step {
            Step::Open(informer) => self.open(informer),
            Step::Close(informer) => {
                if let Some(id) = self.open.remove(&informer) {
                    self.store.close(id);
                    self.model.informers.retain(|(at, _)| *at != informer);
                }
            }
            Step::Put(informer, kind, place, v, nodes, old) => self.put(informer, kind, place, VALUES[v], &nodes, old),
            Step::Delete(informer, place, old) => self.delete(informer, place, old),
            Step::List(informer, keep) => self.list(informer, &keep.into_iter().map(key_of).collect()),
            Step::AddIndexers(names) => self.add_indexers(&names.into_iter().map(|at| INDICES[at]).collect()),
            Step::RemoveIndexer(at) => {
                let known = self.model.computed.remove(INDICES[at]).is_some();
                assert_eq!(self.store.remove_indexer(INDICES[at]), known);
            }
            Step::Recover => self.store = Store::recover(Arc::clone(self.store.published())),
        }
    }

    fn open(&mut self, informer: usize) {
        let (cluster, namespace, declares) = INFORMERS[informer];
        let tier = TIERS[CLUSTERS.iter().position(|name| *name == cluster).unwrap()];
        let mut origin = Arc::unwrap_or_clone(origin(cluster, &[("tier", tier)], namespace));
        // Two informers of the same scope differ in their field selector.
        origin.scope.field_selector = Some(informer.to_string().into());
        let indexes = if declares { vec!["by-node".into()] } else { vec![] };
        let id = self.store.open(Arc::new(origin), InformerHealth::new(), indexes);
        if self.open.insert(informer, id).is_none() {
            self.model.informers.push((informer, Objects::new()));
        }
    }

    fn put(&mut self, informer: usize, kind: DeltaKind, place: (usize, usize), v: &str, nodes: &[usize], old: bool) {
        let key = key_of(place);
        let (_, watched, declares) = INFORMERS[informer];
        if watched.is_some_and(|namespace| key.namespace() != Some(namespace)) {
            return;
        }
        let entries: Vec<_> = nodes.iter().filter(|_| declares).map(|node| ("by-node", NODES[*node])).collect();
        let version = if old { self.version / 2 } else { self.version };
        let object = object_with(NAMESPACES[place.0], NAMES[place.1], "u", version, &[("v", v)], &entries);
        let change = Change::Delta(delta(kind, copy(&object)));
        // Objects of a relist become visible when the list is complete.
        let known = self.model.objects(informer).filter(|_| kind == DeltaKind::Replaced);
        let changes = known.map_or_else(Vec::new, |objects| objects.keys().cloned().map(Change::ReplaceKeep).collect());
        let is_list = kind == DeltaKind::Replaced;
        let begin = is_list.then_some(Change::ReplaceBegin);
        let end = is_list.then(|| Change::ReplaceEnd(ResourceVersion::new("1")));
        self.apply(informer, begin.into_iter().chain(changes).chain([change]).chain(end).collect());
        let Some(objects) = self.model.objects(informer) else { return };
        let counts = objects.get(&key).is_none_or(|stored| {
            let (stored_is, new_is) = (stored.resource_version(), object.resource_version());
            let stale = kind != DeltaKind::Replaced && stored_is.newer_than(new_is);
            !stale && (stored_is != new_is || stored.index_values() != object.index_values())
        });
        if counts {
            let object = Arc::new(object);
            objects.insert(key, Arc::clone(&object));
            self.model.count(&object);
        }
    }

    fn delete(&mut self, informer: usize, place: (usize, usize), old: bool) {
        let version = if old { self.version / 2 } else { self.version };
        let last = object_with(NAMESPACES[place.0], NAMES[place.1], "u", version, &[("v", "p")], &[("by-node", "n1")]);
        let version = last.resource_version().clone();
        self.apply(informer, vec![Change::Delta(delta(DeltaKind::Deleted, last))]);
        if let Some(objects) = self.model.objects(informer) {
            objects.retain(|key, stored| *key != key_of(place) || stored.resource_version().newer_than(&version));
        }
    }

    fn list(&mut self, informer: usize, keep: &BTreeSet<ObjectKey>) {
        let mut changes = vec![Change::ReplaceBegin];
        changes.extend(keep.iter().cloned().map(Change::ReplaceKeep));
        changes.push(Change::ReplaceEnd(ResourceVersion::new("1")));
        self.apply(informer, changes);
        if let Some(objects) = self.model.objects(informer) {
            objects.retain(|key, _| keep.contains(key));
        }
    }

    fn add_indexers(&mut self, names: &BTreeSet<&'static str>) {
        let fresh: BTreeMap<_, _> = names.iter().map(|name| (*name, Arc::new(AtomicU64::new(0)))).collect();
        let indexers: Indexers = fresh.iter().map(|(name, calls)| (*name, function(name, calls))).collect();
        let taken: Vec<_> = names.iter().filter(|name| self.model.knows(name)).map(ToString::to_string).collect();
        let added = self.store.add_indexers(indexers);
        assert_eq!(added.err().map(|conflict| conflict.names), (!taken.is_empty()).then_some(taken.clone()));
        if taken.is_empty() {
            self.calls.extend(fresh);
            let objects: Vec<_> =
                self.model.informers.iter().flat_map(|(_, objects)| objects.values().cloned()).collect();
            for name in names {
                let failures = objects.iter().filter(|object| values(name, v_of(object)).is_none()).count() as u64;
                self.model.computed.insert(name, Computed { calls: objects.len() as u64, failures });
            }
        }
    }

    fn apply(&mut self, informer: usize, changes: Vec<Change>) {
        let Some(id) = self.open.get(&informer) else { return };
        let mut fifo = DeltaFifo::new(usize::MAX);
        for change in changes {
            fifo.push(change);
        }
        assert!(self.store.apply(*id, fifo.pop(usize::MAX)).is_some());
    }

    fn check(&self, step: usize) {
        let all = [0, 1, 2];
        let probe = object_with(
            "other",
            "probe",
            "u",
            1,
            &[("v", VALUES[step % VALUES.len()])],
            &[("by-node", "n1"), ("by-node", "")],
        );
        let reader = |clusters| IndexReader::new(Arc::clone(self.store.published()), clusters);
        let compare = |reader: &IndexReader, clusters: &[usize]| {
            let (got, expected) = (ask(reader, &probe), self.model.answers(clusters, &probe));
            for (question, answer) in &expected {
                assert_eq!(got.get(question), Some(answer), "{question:?} to {reader:?}");
            }
            assert_eq!(got.len(), expected.len());
        };
        let cluster = step % CLUSTERS.len();
        let name = ClusterName::new(CLUSTERS[cluster]).unwrap();
        let prod = ClusterSelector::Labels([("tier".to_owned(), "prod".to_owned())].into());
        match step % 4 {
            0 => compare(&reader(ClusterSelector::All), &all),
            1 => compare(&reader(ClusterSelector::All).cluster(&name), &[cluster]),
            2 => compare(&reader(prod), &[1, 2]),
            _ => compare(&reader(prod).cluster(&name), if cluster == 0 { &[] } else { &all[cluster..=cluster] }),
        }
        let snapshot = self.store.published().load();
        let mut names: Vec<_> = self.model.computed.keys().copied().collect();
        assert_eq!(texts(&snapshot.indexers().names().collect::<Vec<_>>()), names);
        names.extend(self.model.declared("by-node").then_some("by-node"));
        names.sort_unstable();
        names.dedup();
        assert_eq!(snapshot.index_names(), names);
        for (name, computed) in &self.model.computed {
            assert_eq!(snapshot.index_failures(name), computed.failures, "failures of {name}");
            assert_eq!(snapshot.index_values(name).map(|(_, count)| usize::from(count == 0)).sum::<usize>(), 0);
        }
        let answer = snapshot.answer(&crate::Query::by_index("parts", "p"));
        assert!(answer.is_err() || answer.unwrap().coverage.iter().all(|part| part.freshness == Freshness::Missing));
    }

    /// Compares call counts, before queries that call functions too.
    fn check_calls(&mut self) {
        for (name, computed) in &self.model.computed {
            assert_eq!(self.calls[name].swap(0, Relaxed), computed.calls, "calls of {name}");
        }
        for computed in self.model.computed.values_mut() {
            computed.calls = 0;
        }
    }
}

/// Returns a new object with equal contents.
fn copy(object: &StoredObject) -> StoredObject {
    let labels: Vec<_> = object.labels().iter().collect();
    let entries: Vec<_> = object.index_values().iter().map(|entry| (&*entry.index, &*entry.value)).collect();
    let version = object.resource_version().as_number().unwrap();
    let key = object.key();
    object_with(key.namespace().unwrap_or_default(), key.name(), "u", version, &labels, &entries)
}

proptest! {
    #![proptest_config(properties(96))]

    #[test]
    fn readers_answer_like_a_linear_search(steps in prop::collection::vec(arb_step(), 1..50)) {
        let (model, open, calls) = (Model::default(), BTreeMap::new(), BTreeMap::new());
        let mut fixture = Fixture { store: Store::new(pods()), model, open, calls, version: 0 };
        fixture.add_indexers(&BTreeSet::from(["parts"]));
        for informer in 0..INFORMERS.len() {
            fixture.step(Step::Open(informer));
        }
        let probe = object_with("", "probe", "u", 1, &[("v", "p")], &[]);
        let mut older: Option<(IndexReader, Answers)> = None;
        for (at, step) in steps.into_iter().enumerate() {
            fixture.step(step);
            fixture.check_calls();
            fixture.check(at);
            if let Some((reader, then)) = older.as_ref().filter(|_| at % 7 == 6) {
                prop_assert_eq!(&ask(reader, &probe), then, "an old snapshot does not change");
            }
            if at % 7 == 0 {
                let published = Arc::new(ArcSwap::new(fixture.store.published().load_full()));
                let reader = IndexReader::new(published, ClusterSelector::All);
                let answers = ask(&reader, &probe);
                older = Some((reader, answers));
            }
            for calls in fixture.calls.values() {
                calls.store(0, Relaxed);
            }
        }
    }

    #[test]
    fn indexer_equals_a_map_and_its_indices_equal_a_scan(
        writes in prop::collection::vec((0..4_u8, arb_place(), 0..VALUES.len(), 1..9_u64), 1..60),
        added_at in 0..60_usize,
    ) {
        let indexer: Indexer = Indexer::new(pods());
        let mut model: BTreeMap<ObjectKey, (u64, &str)> = BTreeMap::new();
        for (at, (kind, place, v, version)) in writes.into_iter().enumerate() {
            if at == added_at {
                let calls = Arc::default();
                indexer.add_indexers(Indexers::new().with("parts", function("parts", &calls))).unwrap();
            }
            let (key, v) = (key_of(place), VALUES[v]);
            let made = |name: usize, v: &str| {
                object_with(NAMESPACES[place.0], NAMES[name], "u", version, &[("v", v)], &[])
            };
            match kind {
                0 => indexer.add(made(place.1, v)),
                1 => indexer.update(made(place.1, v)),
                2 => indexer.delete(&made(place.1, v)),
                _ => indexer.replace([made(0, "p"), made(place.1, "q"), made(place.1, v)], ResourceVersion::new("7")),
            }
            match kind {
                0 | 1 => { model.insert(key, (version, v)); }
                2 => { model.remove(&key); }
                _ => {
                    model = [(key_of((place.0, 0)), (version, "p"))].into();
                    model.insert(key, (version, v));
                }
            }
            prop_assert_eq!(texts(&indexer.list_keys()), texts(&model.keys().collect::<Vec<_>>()));
            let written = if kind == 3 { "7".to_owned() } else { version.to_string() };
            prop_assert_eq!(indexer.resource_version().map(|version| version.to_string()), Some(written));
            for object in indexer.list() {
                let stored = (object.resource_version().as_number().unwrap(), v_of(&object));
                prop_assert_eq!(Some(&stored), model.get(object.key()));
            }
            for value in every_value().iter().filter(|_| at >= added_at) {
                let carries = |v: &str| values("parts", v).is_some_and(|values| values.contains(value));
                let carriers: Vec<_> = model.iter().filter(|(_, (_, v))| carries(v)).map(|(key, _)| key).collect();
                prop_assert_eq!(texts(&indexer.index_keys("parts", value).unwrap()), texts(&carriers));
            }
        }
    }
}
