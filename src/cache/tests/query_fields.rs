//! Tests of field conditions with an index: same answers, found by the index.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::query::{found, origin};
use crate::testing::{pods, properties};
use crate::{DeclaredIndex, DeltaFifo, IndexFn, Indexers, Query, Snapshot, Store};
use informer_hub_codec::{Decoder, Projection, WatchItem};
use informer_hub_query::{Expr, Literal, Test};
use informer_hub_types::{Change, Delta, DeltaKind, FieldPath, InformerHealth, ResourceVersion, SharedStr};

const PATHS: [(&str, &str); 2] = [("by-one", "spec.v"), ("by-each", "spec.list[*].v")];

fn path(text: &str) -> FieldPath {
    text.parse().unwrap()
}

/// Kind of the indices in a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Known {
    Nowhere,
    Declared,
    Computed,
}

/// Returns a snapshot of two informers with decoded objects.
fn snapshot(objects: &[Value], known: [Known; 2]) -> std::sync::Arc<Snapshot> {
    let mut store = Store::new(pods());
    for (at, known) in known.into_iter().enumerate() {
        let declared: &[_] = if known == Known::Declared { &PATHS } else { &[] };
        let indexes: Vec<(SharedStr, FieldPath)> =
            declared.iter().map(|(name, at)| ((*name).into(), path(at))).collect();
        let index =
            |(name, path): &(SharedStr, FieldPath)| DeclaredIndex { name: name.clone(), path: Some(path.clone()) };
        let health = InformerHealth::new();
        let id = store.open(origin(["c1", "c2"][at], &[], None), health, indexes.iter().map(index).collect::<Vec<_>>());
        let mut decoder = Decoder::new(pods(), &Projection::default(), indexes);
        let mut fifo = DeltaFifo::new(usize::MAX);
        for (number, spec) in objects.iter().enumerate().filter(|(number, _)| number % 2 == at) {
            let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {
                "name": format!("p{number}"), "namespace": "ns", "uid": format!("u{number}"), "resourceVersion": "1"
            }, "spec": spec});
            let line = json!({"type": "ADDED", "object": object}).to_string();
            let WatchItem::Added(object) = decoder.decode_event(line.as_bytes()).unwrap() else { panic!("{line}") };
            fifo.push(Change::Delta(Delta { kind: DeltaKind::Added, object }));
        }
        store.apply(id, fifo.pop(usize::MAX)).unwrap();
    }
    if known.contains(&Known::Computed) {
        let index =
            |all: Indexers, (name, at): &(&str, &str)| all.with(format!("computed-{name}"), IndexFn::path(path(at)));
        let computed = PATHS.iter().fold(Indexers::new(), index);
        store.add_indexers(computed).unwrap();
    }
    store.published().load_full()
}

fn arb_scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => prop::sample::select(vec!["a", "b", "7", "1.50", "true", "", "null", "\"a\"", "10.0.0.1"]).prop_map(Value::from),
        1 => Just(json!(7)),
        1 => Just(json!(1.5)),
        1 => any::<bool>().prop_map(Value::from),
        1 => Just(Value::Null),
        1 => Just(json!({"x": "a"})),
        1 => Just(json!(["a"])),
    ]
}

fn arb_spec() -> impl Strategy<Value = Value> {
    let list = prop::collection::vec(arb_scalar().prop_map(|value| json!({"v": value})), 0..3);
    (prop::option::of(arb_scalar()), list).prop_map(|(value, list)| match value {
        Some(value) => json!({"v": value, "list": list}),
        None => json!({"list": list}),
    })
}

fn arb_literal() -> impl Strategy<Value = Literal> {
    prop_oneof![
        6 => prop::sample::select(vec!["a", "b", "7", "1.50", "true", "", "null", "\"a\"", "10.0.0.1", "none"])
            .prop_map(|text| Literal::Text(text.into())),
        1 => any::<bool>().prop_map(Literal::Bool),
        1 => Just(Literal::Number(7.0)),
        1 => Just(Literal::Quantity("7".into())),
    ]
}

fn arb_condition() -> impl Strategy<Value = Expr> {
    let test = prop_oneof![
        arb_literal().prop_map(Test::Is),
        arb_literal().prop_map(Test::IsNot),
        prop::collection::vec(arb_literal(), 0..3).prop_map(Test::In),
        prop::collection::vec(arb_literal(), 0..3).prop_map(Test::NotIn),
        Just(Test::Exists),
    ];
    let field = (0..2_usize, test).prop_map(|(at, test)| Expr::Field { path: path(PATHS[at].1), test });
    field.prop_recursive(3, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Expr::And),
            prop::collection::vec(inner.clone(), 0..3).prop_map(Expr::Or),
            inner.prop_map(|one| Expr::Not(Box::new(one))),
        ]
    })
}

proptest! {
    #![proptest_config(properties(512))]

    #[test]
    fn index_does_not_change_the_answer(
        objects in prop::collection::vec(arb_spec(), 0..12),
        condition in arb_condition(),
    ) {
        let ask = |known| {
            let answer = snapshot(&objects, known).answer(&Query::matching(condition.clone())).unwrap();
            (found(&answer), answer.read)
        };
        let (expected, read) = ask([Known::Nowhere; 2]);
        for known in [
            [Known::Declared; 2],
            [Known::Declared, Known::Nowhere],
            [Known::Computed; 2],
            [Known::Computed, Known::Declared],
        ] {
            let (found, now_read) = ask(known);
            prop_assert_eq!(&found, &expected, "{:?}", known);
            prop_assert!(now_read <= read, "{} objects were read with {:?}, {} without", now_read, known, read);
        }
    }
}

fn plan(known: [Known; 2], test: Test) -> String {
    let objects: Vec<_> = (0..40).map(|number| json!({"v": format!("v{}", number % 4)})).collect();
    let condition = Expr::Field { path: path("spec.v"), test };
    snapshot(&objects, known).explain(&Query::matching(condition)).unwrap().to_string()
}

#[test]
fn field_condition_uses_an_index_of_all_informers() {
    let is = |text: &str| Test::Is(Literal::Text(text.into()));
    let by_index = "index by-one = \"v1\": about 10 objects; all match";
    assert_eq!(plan([Known::Declared; 2], is("v1")), by_index);
    assert_eq!(plan([Known::Computed; 2], is("v1")), by_index.replace("by-one", "computed-by-one"));
    let both = Test::In(["v1", "v2"].map(|text| Literal::Text(text.into())).into());
    assert_eq!(
        plan([Known::Declared; 2], both),
        "index by-one = \"v1\", index by-one = \"v2\": about 20 objects; all match"
    );
    assert_eq!(
        plan([Known::Declared; 2], Test::IsNot(Literal::Text("v1".into()))),
        "all objects: about 40 objects; matched on heads"
    );
    let bodies = "all objects: about 40 objects; matched on heads, or on decompressed bodies if needed";
    assert_eq!(plan([Known::Declared, Known::Nowhere], is("v1")), bodies, "one informer lacks it");
    assert_eq!(
        plan([Known::Declared; 2], Test::Is(Literal::Number(7.0))),
        bodies,
        "a number has several written forms"
    );
    let written_alike = plan([Known::Declared; 2], is("7"));
    assert_eq!(
        written_alike,
        "index by-one = \"7\": about 0 objects; matched on heads, or on decompressed bodies if needed"
    );
}

#[test]
fn index_declared_late_is_used_after_the_next_complete_list() {
    let mut store = Store::new(pods());
    let plan = |store: &Store| {
        let condition = Expr::Field { path: path("spec.v"), test: Test::Is(Literal::Text("v1".into())) };
        store.published().load().explain(&Query::matching(condition)).unwrap().is_scan()
    };
    let health = InformerHealth::new();
    let id = store.open(origin("c1", &[], None), std::sync::Arc::clone(&health), Vec::new());
    let object = std::sync::Arc::new(crate::testing::object_with("ns", "a", "u", 1, &[], &[]));
    let mut fifo = DeltaFifo::new(usize::MAX);
    fifo.push(Change::Delta(Delta { kind: DeltaKind::Added, object: std::sync::Arc::clone(&object) }));
    store.apply(id, fifo.pop(usize::MAX)).unwrap();
    let declared = vec![DeclaredIndex { name: "by-one".into(), path: Some(path("spec.v")) }];
    assert_eq!(store.open(origin("c1", &[], None), health, declared), id);
    assert!(plan(&store), "the object was decoded without it");
    let keep = [object.key().clone()].into_iter().collect();
    let end = crate::Popped::ReplaceEnd { keep, version: ResourceVersion::new("2"), rewound: false };
    store.apply(id, vec![end]).unwrap();
    assert!(!plan(&store));
}
