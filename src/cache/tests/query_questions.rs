//! Model test of queries: random queries of random fleets, against a filter over the decoded objects of the same
//! snapshot.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread;

use proptest::prelude::*;
use serde_json::Value;
use smol_str::SmolStr;

use super::query::origin;
use crate::testing::{delta, pods, properties};
use crate::{
    Answer, DeltaFifo, IndexFn, Indexers, OWNER_INDEX, PartitionId, Query, QueryError, RunningQuery, Snapshot, Store,
    owner_index, pack_all,
};
use informer_hub_query::arbitrary;
use informer_hub_query::{
    Column, Direction, Expr, Head, Literal, Matcher, Output, Question, SortKey, Test, TextTest, Values,
};
use informer_hub_types::{
    Change, ClusterLabels, ClusterName, DeltaKind, Dictionary, FieldPath, IndexEntry, InformerHealth, Labels,
    ObjectKey, Phase, ResourceVersion, SharedStr, StoredObject, StoredObjectParts, Uid,
};

const CLUSTERS: [(&str, &str); 3] = [("eu", "eu"), ("prod-1.example", "us"), ("us", "us")];

/// Names of a declared and a computed index: the texts at `a` and `b`.
const DECLARED: &str = "by-a";
const COMPUTED: &str = "by-b";

fn values_at(object: &Value, path: &str) -> Vec<SharedStr> {
    let path: FieldPath = path.parse().unwrap();
    path.select(object).into_iter().filter_map(Value::as_str).map(SharedStr::from).collect()
}

/// An informer: cluster, namespace if only one, whether it declares the index.
#[derive(Clone, Debug)]
struct Informer {
    cluster: usize,
    namespace: Option<SmolStr>,
    declares: bool,
    objects: Vec<(Value, u64)>,
}

fn stored(object: &Value, version: u64, declares: bool) -> StoredObject {
    let metadata = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    let labels = object["metadata"]["labels"].as_object().unwrap().iter();
    let labels = labels.map(|(key, value)| (key.as_str().into(), value.as_str().unwrap().into())).collect();
    let entry = |value| IndexEntry { index: DECLARED.into(), value };
    let index_values = if declares { values_at(object, "a").into_iter().map(entry).collect() } else { Vec::new() };
    StoredObject::new(StoredObjectParts {
        key: ObjectKey::new(metadata("namespace"), metadata("name")),
        uid: Uid::new(metadata("uid")),
        resource_version: ResourceVersion::new(&version.to_string()),
        labels: Labels::new(labels),
        index_values,
        json: object.to_string().into_bytes(),
    })
}

fn informers() -> impl Strategy<Value = Vec<Informer>> {
    let namespace = prop::option::weighted(0.3, prop::sample::select(vec!["a", "ab", "b"]).prop_map(SmolStr::new));
    let objects = prop::collection::vec((objects(), 1..4_u64), 0..14);
    let informer = (0..CLUSTERS.len(), namespace, prop::bool::weighted(0.8), objects)
        .prop_map(|(cluster, namespace, declares, objects)| Informer { cluster, namespace, declares, objects });
    prop::collection::vec(informer, 1..6).prop_map(|mut informers| {
        informers.sort_by_key(|informer| (informer.cluster, informer.namespace.clone()));
        informers.dedup_by_key(|informer| (informer.cluster, informer.namespace.clone()));
        informers
    })
}

/// Generates objects as in the tests of the query language, with valid names and namespaces.
fn objects() -> impl Strategy<Value = Value> {
    let name = prop::sample::select(vec!["a", "ab", "abc", "b", "web", "null"]);
    let namespace = prop::option::weighted(0.9, prop::sample::select(vec!["a", "ab", "b", "web"]));
    (arbitrary::objects(), name, namespace).prop_map(|(mut object, name, namespace)| {
        object["metadata"]["name"] = name.into();
        let metadata = object["metadata"].as_object_mut().unwrap();
        match namespace {
            Some(namespace) => metadata.insert("namespace".into(), namespace.into()),
            None => metadata.remove("namespace"),
        };
        object
    })
}

/// Generates conditions for indices, keys and ranges, alone and combined.
fn conditions() -> impl Strategy<Value = Expr> {
    let text = || prop::sample::select(vec!["a", "ab", "b", "web", ""]).prop_map(SmolStr::new);
    let texts = move || {
        prop_oneof![prop::collection::vec(text(), 1..3).prop_map(TextTest::In), text().prop_map(TextTest::Prefix),]
    };
    let index = (prop::sample::select(vec![DECLARED, COMPUTED]), prop::collection::vec(text(), 0..3))
        .prop_map(|(index, values)| Expr::Index { index: index.into(), values });
    let head = (prop::sample::select(vec!["metadata.name", "metadata.namespace"]), text())
        .prop_map(|(path, text)| Expr::Field { path: path.parse().unwrap(), test: Test::Is(Literal::Text(text)) });
    let one = prop_oneof![
        3 => index,
        3 => texts().prop_map(Expr::Namespace),
        3 => texts().prop_map(Expr::Name),
        1 => head,
        1 => text().prop_map(|text| Expr::OwnedBy(Uid::new(&text))),
        3 => arbitrary::exprs(0, false).prop_map(|expr| with_known_indices(&expr)),
    ];
    one.prop_recursive(2, 8, 3, |inner| {
        let several = prop::collection::vec(inner, 1..4);
        prop_oneof![3 => several.clone().prop_map(Expr::And), 1 => several.prop_map(Expr::Or)]
    })
}

/// Replaces index names by known ones.
fn with_known_indices(expr: &Expr) -> Expr {
    let all = |exprs: &[Expr]| exprs.iter().map(with_known_indices).collect();
    match expr {
        Expr::And(exprs) => Expr::And(all(exprs)),
        Expr::Or(exprs) => Expr::Or(all(exprs)),
        Expr::Not(expr) => Expr::Not(Box::new(with_known_indices(expr))),
        Expr::Index { index, values } => {
            let index = if index.len() % 2 == 0 { DECLARED } else { COMPUTED };
            Expr::Index { index: index.into(), values: values.clone() }
        }
        other => other.clone(),
    }
}

fn questions() -> impl Strategy<Value = Question> {
    let column = || prop_oneof![1 => Just(Column::Cluster), 4 => arbitrary::paths().prop_map(Column::Path)];
    let direction = prop::sample::select(vec![Direction::Ascending, Direction::Descending]);
    let order = prop_oneof![Just(Vec::new()), prop::collection::vec((column(), direction), 1..3)];
    let output = prop_oneof![
        3 => Just(Output::Objects),
        2 => prop::collection::vec(column(), 1..3).prop_map(Output::Columns),
        1 => Just(Output::Count),
        1 => column().prop_map(Output::CountBy),
        1 => column().prop_map(Output::Distinct),
    ];
    let limit = prop::option::of((1_usize..8).prop_map(|limit| NonZeroUsize::new(limit).unwrap()));
    (conditions(), order, limit, output).prop_map(|(condition, order, limit, output)| {
        let of_objects = matches!(output, Output::Objects | Output::Columns(_));
        let order = if of_objects { order } else { Vec::new() };
        Question { condition, order, limit, continue_token: None, output }
    })
}

/// A decoded object with its cluster.
struct Decoded {
    cluster: ClusterName,
    labels: ClusterLabels,
    key: ObjectKey,
    uid: Uid,
    version: u64,
    object: Value,
    indexed: Vec<(&'static str, SharedStr)>,
}

impl Head for Decoded {
    fn cluster(&self) -> &ClusterName {
        &self.cluster
    }
    fn cluster_labels(&self) -> &ClusterLabels {
        &self.labels
    }
    fn namespace(&self) -> &str {
        self.object["metadata"]["namespace"].as_str().unwrap_or_default()
    }
    fn name(&self) -> &str {
        self.object["metadata"]["name"].as_str().unwrap_or_default()
    }
    fn label(&self, key: &str) -> Option<&str> {
        self.object["metadata"]["labels"][key].as_str()
    }
    fn uid(&self) -> &Uid {
        &self.uid
    }
    fn in_index(&self, index: &str, values: &[SmolStr]) -> bool {
        self.indexed.iter().any(|(name, value)| *name == index && values.iter().any(|one| *one == value.as_str()))
    }
}

fn names_index(expr: &Expr, expected_lines: &str) -> bool {
    match expr {
        Expr::And(exprs) | Expr::Or(exprs) => exprs.iter().any(|expr| names_index(expr, expected_lines)),
        Expr::Not(expr) => names_index(expr, expected_lines),
        Expr::Index { index, .. } => index == expected_lines,
        _ => false,
    }
}

/// Returns the newest state of every object, among informers with the indices of the condition.
fn decoded(snapshot: &Snapshot, condition: &Expr) -> Vec<Decoded> {
    let mut newest: BTreeMap<(ClusterName, ObjectKey), Decoded> = BTreeMap::new();
    for (_, partition) in snapshot.partitions() {
        let declares = partition.declares(DECLARED);
        if names_index(condition, DECLARED) && !declares {
            continue;
        }
        for stored in partition.iter() {
            let object: Value = serde_json::from_slice(&stored.json().unwrap()).unwrap();
            let (cluster, labels) = (partition.origin().cluster.clone(), partition.origin().cluster_labels.clone());
            let mut indexed: Vec<_> = values_at(&object, "b").into_iter().map(|value| (COMPUTED, value)).collect();
            if declares {
                indexed.extend(values_at(&object, "a").into_iter().map(|value| (DECLARED, value)));
            }
            let version = stored.resource_version().as_number().unwrap();
            let (key, uid) = (stored.key().clone(), stored.uid().clone());
            let fresh = Decoded { cluster, labels, key: key.clone(), uid, version, object, indexed };
            match newest.get(&(fresh.cluster.clone(), key.clone())) {
                Some(known) if known.version >= version => {}
                _ => drop(newest.insert((fresh.cluster.clone(), key), fresh)),
            }
        }
    }
    newest.into_values().collect()
}

fn column(of: &Decoded, column: &Column) -> Values {
    match column {
        Column::Cluster => [Value::from(of.cluster.as_str())].into_iter().collect(),
        Column::Path(path) => path.select(&of.object).into_iter().cloned().collect(),
    }
}

type Line = (String, Vec<Values>);

/// Returns all result lines, ignoring the limit: objects with columns, values with counts, or a count.
fn expected(snapshot: &Snapshot, question: &Question) -> Vec<Line> {
    let matcher = Matcher::new(&question.condition).unwrap();
    let mut found = decoded(snapshot, &question.condition);
    found.retain(|one| matcher.on_body(one, one.object.to_string().as_bytes()).unwrap());
    let keys = |one: &Decoded| -> Vec<_> {
        question.order.iter().map(|(by, direction)| (SortKey::new(&column(one, by)), *direction)).collect()
    };
    found.sort_by(|a, b| {
        let (of_a, of_b) = (keys(a), keys(b));
        let pairs = of_a.iter().zip(&of_b).map(|((a, direction), (b, _))| direction.apply(a.cmp(b)));
        let by_columns = pairs.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then);
        by_columns.then_with(|| (&a.cluster, &a.key).cmp(&(&b.cluster, &b.key)))
    });
    let text = |one: &Decoded| format!("{}/{}@{}", one.cluster, one.key, one.version);
    match &question.output {
        Output::Objects => found.iter().map(|one| (text(one), Vec::new())).collect(),
        Output::Columns(columns) => {
            found.iter().map(|one| (text(one), columns.iter().map(|by| column(one, by)).collect())).collect()
        }
        Output::Count => vec![(found.len().to_string(), Vec::new())],
        Output::CountBy(by) | Output::Distinct(by) => {
            let mut counts: HashMap<Value, u64> = HashMap::new();
            for one in &found {
                let mut values: std::collections::HashSet<_> = column(one, by).into_iter().collect();
                if values.is_empty() {
                    values.insert(Value::Null);
                }
                values
                    .into_iter()
                    .filter(|value| !value.is_null() || matches!(question.output, Output::CountBy(_)))
                    .for_each(|value| *counts.entry(value).or_default() += 1);
            }
            let mut counts: Vec<_> = counts.into_iter().collect();
            counts.sort_by_key(|(value, count)| {
                let first = if matches!(question.output, Output::CountBy(_)) { u64::MAX - count } else { 0 };
                (first, SortKey::new(std::slice::from_ref(value)), value.to_string())
            });
            counts.into_iter().map(|(value, count)| (format!("{value} {count}"), Vec::new())).collect()
        }
    }
}

fn lines(answer: &Answer) -> Vec<Line> {
    let text = |object: &informer_hub_types::Object| {
        format!("{}/{}@{}", object.cluster(), object.key(), object.resource_version())
    };
    let objects = answer.items.iter().map(|object| (text(object), Vec::new()));
    let rows = answer.rows.iter().map(|row| (text(&row.object), row.values.clone()));
    let groups = answer.groups.iter().map(|group| (format!("{} {}", group.value, group.count), Vec::new()));
    let count = answer.count.iter().map(|count| (count.to_string(), Vec::new()));
    objects.chain(rows).chain(groups).chain(count).collect()
}

/// Returns the answer of a query that runs on several threads.
fn by_threads(snapshot: &Arc<Snapshot>, query: &Query) -> Result<Answer, QueryError> {
    let running = RunningQuery::new(Arc::clone(snapshot), query.clone(), None);
    thread::scope(|scope| (0..3).for_each(|_| drop(scope.spawn(|| running.work()))));
    running.finish()
}

fn write(store: &mut Store, id: PartitionId, informer: &Informer, kind: DeltaKind, objects: &[(Value, u64)]) {
    let mut fifo = DeltaFifo::new(usize::MAX);
    for (object, version) in objects {
        let stored = stored(object, *version, informer.declares);
        if informer.namespace.as_deref().is_none_or(|watched| stored.key().namespace() == Some(watched)) {
            fifo.push(Change::Delta(delta(kind, stored)));
        }
    }
    store.apply(id, fifo.pop(usize::MAX)).unwrap();
}

fn fleet(informers: &[Informer], owners: bool, packed: bool) -> (Store, Vec<PartitionId>) {
    let mut store = Store::new(pods());
    let computed = IndexFn::new(|object| Ok(values_at(&object.typed()?, "b")));
    store.add_indexers(Indexers::new().with(COMPUTED, computed)).unwrap();
    if owners {
        store.add_indexers(Indexers::new().with(OWNER_INDEX, owner_index())).unwrap();
    }
    let mut ids = Vec::new();
    for informer in informers {
        let (cluster, region) = CLUSTERS[informer.cluster];
        let health = InformerHealth::new();
        health.set_phase(Phase::Watching);
        health.set_synced();
        let indexes: Vec<_> = informer.declares.then(|| DECLARED.into()).into_iter().collect();
        let origin = origin(cluster, &[("region", region), ("tier", "")], informer.namespace.as_deref());
        let id = store.open(origin, health, indexes);
        write(&mut store, id, informer, DeltaKind::Added, &informer.objects);
        ids.push(id);
    }
    if packed {
        let dictionary = Arc::new(Dictionary::none());
        for (_, partition) in store.published().load().partitions() {
            let _ = pack_all(partition.iter(), &dictionary, &Arc::default());
        }
    }
    (store, ids)
}

proptest! {
    #![proptest_config(properties(1024))]

    #[test]
    fn answer_equals_a_filter_over_the_decoded_objects(
        informers in informers(),
        question in questions(),
        (owners, packed, threads) in any::<(bool, bool, bool)>(),
        piece in 1_usize..6,
        later in prop::collection::vec((0..6_usize, objects(), any::<bool>()), 0..12),
    ) {
        let (mut store, ids) = fleet(&informers, owners, packed);
        let snapshot = store.published().load_full();
        let query = Query::from(question.clone()).in_pieces(piece);
        if names_index(&question.condition, DECLARED) && !informers.iter().any(|informer| informer.declares) {
            let is_unknown = matches!(snapshot.answer(&query), Err(QueryError::UnknownIndex { .. }));
            prop_assert!(is_unknown);
            return Ok(());
        }
        // Later writes must not appear in answers of this snapshot.
        for (at, object, gone) in &later {
            let at = at % ids.len();
            let kind = if *gone { DeltaKind::Deleted } else { DeltaKind::Updated };
            write(&mut store, ids[at], &informers[at], kind, &[(object.clone(), 9)]);
        }
        let all = expected(&snapshot, &question);
        let of_objects = matches!(question.output, Output::Objects | Output::Columns(_));
        let limit = question.limit.map_or(usize::MAX, NonZeroUsize::get);
        let expected_lines = if question.output == Output::Count { all.clone() } else { all.iter().take(limit).cloned().collect() };
        let answer = if threads { by_threads(&snapshot, &query) } else { snapshot.answer(&query) }.unwrap();
        prop_assert_eq!(lines(&answer), expected_lines);
        prop_assert_eq!(answer.more, question.output != Output::Count && all.len() > limit);
        prop_assert_eq!(answer.end().is_some(), answer.more && of_objects);
        // All pages together are the complete answer.
        let mut pages = lines(&answer);
        let mut end = answer.end().cloned();
        while let Some(position) = end {
            let page = snapshot.answer_after(&query, &position).unwrap();
            prop_assert!(!page.items.is_empty() || !page.rows.is_empty());
            pages.extend(lines(&page));
            end = page.end().cloned();
        }
        if of_objects {
            prop_assert_eq!(pages, all);
        }
    }
}
