//! Strategies for random queries and for objects that they can match.

#![allow(missing_docs, reason = "the names and types of builders for tests say it")]
#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "the generated values are valid")]

use std::num::NonZeroUsize;

use proptest::prelude::*;
use serde_json::{Value, json};
use smol_str::SmolStr;

use crate::{Column, Direction, Expr, Literal, Output, Question, Test, TextTest};
use informer_hub_types::{ClusterName, ClusterSelector, FieldPath, LabelSelector, Uid};

/// Quantities and their values in billionths: an independent oracle for the parser.
pub const QUANTITIES: &[(&str, i128)] = &[
    ("0", 0),
    ("1", 1_000_000_000),
    ("1000m", 1_000_000_000),
    ("500m", 500_000_000),
    ("0.5", 500_000_000),
    ("-1", -1_000_000_000),
    ("1Ki", 1_024_000_000_000),
    ("1.024k", 1_024_000_000_000),
    ("1024", 1_024_000_000_000),
    ("9007199254740993", 9_007_199_254_740_993_000_000_000),
];

pub fn texts() -> impl Strategy<Value = SmolStr> {
    let quantities: Vec<_> = QUANTITIES.iter().map(|(text, _)| *text).collect();
    prop_oneof![
        4 => prop::sample::select(vec!["", "a", "ab", "b", "web", "true", "null", "in", "not"]),
        2 => prop::sample::select(quantities),
    ]
    .prop_map(SmolStr::new)
}

/// Generates texts that need escaping or quotes in a query.
fn odd_texts() -> impl Strategy<Value = SmolStr> {
    prop_oneof![3 => texts(), 1 => "[ -~é\\n\\t]{0,8}".prop_map(SmolStr::from), 1 => "\\PC{0,4}".prop_map(SmolStr::from)]
}

pub fn numbers() -> impl Strategy<Value = f64> {
    prop::sample::select(vec![-1.0, 0.0, 0.5, 1.0, 1.5, 1024.0, 9_007_199_254_740_992.0, 1e300])
}

pub fn literals() -> impl Strategy<Value = Literal> {
    let quantity = prop::sample::select(QUANTITIES).prop_map(|(text, _)| Literal::Quantity(text.into()));
    prop_oneof![
        any::<bool>().prop_map(Literal::Bool),
        numbers().prop_map(Literal::Number),
        texts().prop_map(Literal::Text),
        quantity,
    ]
}

pub fn paths() -> impl Strategy<Value = FieldPath> {
    let known = [
        "a",
        "a.b",
        "a[*]",
        "a[*].b",
        "a[*][*]",
        "a[*].b[*].c",
        "b",
        "b.a",
        "b[*]",
        "c.a.b",
        "c.a",
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "metadata.labels.a",
        "metadata",
        "['count']",
        "['name']",
        "['not'].b",
        "metadata.ownerReferences[*].uid",
        "['']",
    ];
    let known: Vec<FieldPath> = known.iter().filter_map(|path| path.parse().ok()).collect();
    prop::sample::select(known)
}

fn odd_paths() -> impl Strategy<Value = FieldPath> {
    let name = prop_oneof![
        "[a-c]",
        "[ -~é\\n]{1,6}",
        "(not|and|or|in|notin|Exists|prefix|contains|count|all|NAME|labels|\\$)"
    ]
    .prop_map(|name| format!("['{}']", name.replace('\\', "\\\\").replace('\'', "\\'")));
    let step = prop_oneof![3 => name.clone(), 1 => Just("[*]".to_owned())];
    let built = (name, prop::collection::vec(step, 0..4)).prop_map(|(first, rest)| {
        let text = first + &rest.concat();
        text.parse::<FieldPath>().unwrap_or_else(|wrong| panic!("{wrong}"))
    });
    prop_oneof![paths(), built]
}

fn tests(literals: BoxedStrategy<Literal>, texts: BoxedStrategy<SmolStr>) -> impl Strategy<Value = Test> {
    let several = prop::collection::vec(literals.clone(), 0..3);
    prop_oneof![
        literals.clone().prop_map(Test::Is),
        literals.clone().prop_map(Test::IsNot),
        several.clone().prop_map(Test::In),
        several.prop_map(Test::NotIn),
        literals.clone().prop_map(Test::Less),
        literals.clone().prop_map(Test::AtMost),
        literals.clone().prop_map(Test::More),
        literals.prop_map(Test::AtLeast),
        texts.clone().prop_map(Test::Contains),
        texts.prop_map(Test::Prefix),
        Just(Test::Exists),
    ]
}

fn text_tests(texts: BoxedStrategy<SmolStr>) -> impl Strategy<Value = TextTest> {
    let several = prop::collection::vec(texts.clone(), 0..3).prop_map(TextTest::In);
    prop_oneof![several, texts.prop_map(TextTest::Prefix)]
}

fn clusters() -> impl Strategy<Value = ClusterSelector> {
    let name =
        prop::sample::select(vec!["eu", "us", "prod-1.example"]).prop_map(|name| ClusterName::new(name).unwrap());
    let labels = prop::collection::btree_map("region|tier|a b", "eu|us|x y|", 1..3);
    prop_oneof![
        Just(ClusterSelector::All),
        labels.prop_map(ClusterSelector::Labels),
        prop::collection::vec(name, 0..3).prop_map(ClusterSelector::Names),
    ]
}

fn selectors() -> impl Strategy<Value = LabelSelector> {
    let known = ["", "a", "!a", "a=web", "a!=web", "a in (web,b)", "b notin (web),a", "a>0", "a<5,b"];
    prop::sample::select(known.to_vec()).prop_map(|text| text.parse().unwrap())
}

fn single(odd: bool) -> impl Strategy<Value = Expr> {
    let texts = if odd { odd_texts().boxed() } else { texts().boxed() };
    let paths = if odd { odd_paths().boxed() } else { paths().boxed() };
    let uid = texts.clone().prop_map(|text| Uid::new(&text));
    let field = (paths, tests(literals().boxed(), texts.clone())).prop_map(|(path, test)| Expr::Field { path, test });
    let index = (texts.clone(), prop::collection::vec(texts.clone(), 0..3));
    prop_oneof![
        6 => field,
        1 => Just(Expr::All),
        1 => clusters().prop_map(Expr::Cluster),
        1 => text_tests(texts.clone()).prop_map(Expr::Namespace),
        1 => text_tests(texts).prop_map(Expr::Name),
        1 => selectors().prop_map(Expr::Labels),
        1 => index.prop_map(|(index, values)| Expr::Index { index, values }),
        1 => uid.clone().prop_map(Expr::Uid),
        1 => uid.prop_map(Expr::OwnedBy),
    ]
}

/// Expressions. `And` and `Or` have at least `least` members; `odd` adds texts that need escaping.
pub fn exprs(least: usize, odd: bool) -> impl Strategy<Value = Expr> {
    single(odd).prop_recursive(4, 24, 4, move |inner| {
        let several = prop::collection::vec(inner.clone(), least..4);
        prop_oneof![
            several.clone().prop_map(Expr::And),
            several.prop_map(Expr::Or),
            inner.prop_map(|expr| Expr::Not(Box::new(expr))),
        ]
    })
}

fn columns() -> impl Strategy<Value = Column> {
    prop_oneof![1 => Just(Column::Cluster), 3 => odd_paths().prop_map(Column::Path)]
}

pub fn questions() -> impl Strategy<Value = Question> {
    let direction = prop::sample::select(vec![Direction::Ascending, Direction::Descending]);
    let output = prop_oneof![
        Just(Output::Objects),
        prop::collection::vec(columns(), 1..4).prop_map(Output::Columns),
        Just(Output::Count),
        columns().prop_map(Output::CountBy),
        columns().prop_map(Output::Distinct),
    ];
    let order = prop::collection::vec((columns(), direction), 0..3);
    let limit = prop::option::of((1_usize..100).prop_map(|n| NonZeroUsize::new(n).unwrap()));
    let token = prop::option::of(odd_texts());
    (exprs(2, true), order, limit, token, output).prop_map(|(condition, order, limit, continue_token, output)| {
        Question { condition, order, limit, continue_token, output }
    })
}

fn values() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        numbers().prop_map(Value::from),
        prop::sample::select(vec![-1_i64, 0, 1, 1024, 9_007_199_254_740_992, 9_007_199_254_740_993])
            .prop_map(Value::from),
        texts().prop_map(|text| Value::from(text.as_str())),
    ];
    scalar.prop_recursive(3, 20, 4, |inner| {
        let object = prop::collection::btree_map("[abc]", inner.clone(), 0..4);
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(Value::from),
            object.prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// Generates objects with the metadata that a [`Head`](crate::Head) needs.
pub fn objects() -> impl Strategy<Value = Value> {
    let labels = prop::collection::btree_map("[ab]", "web|b|3|", 0..3);
    let owners = prop::option::of(prop::collection::vec(texts(), 0..3));
    let fields = prop::collection::btree_map("[abc]|count|name|not", values(), 0..5);
    (texts(), prop::option::of(texts()), prop::option::of(texts()), labels, owners, fields).prop_map(
        |(name, namespace, uid, labels, owners, fields)| {
            let mut metadata = json!({"name": name.as_str(), "labels": labels});
            for (field, text) in [("namespace", namespace), ("uid", uid)] {
                if let Some(text) = text {
                    metadata[field] = text.as_str().into();
                }
            }
            if let Some(owners) = owners {
                metadata["ownerReferences"] =
                    owners.iter().map(|uid| json!({"uid": uid.as_str(), "kind": "K"})).collect();
            }
            let mut object: serde_json::Map<_, _> = fields.into_iter().collect();
            object.insert("metadata".into(), metadata);
            Value::Object(object)
        },
    )
}
