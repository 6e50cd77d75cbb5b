//! Tests of evaluation against a model over decoded values.

use std::cell::Cell;

use proptest::prelude::*;
use serde_json::{Value, json};
use smol_str::SmolStr;

use super::super::{Column, Columns, Expr, Extractor, Head, Literal, Matcher, Test, TextTest};
use crate::arbitrary::{QUANTITIES, exprs, objects};
use informer_hub_types::{ClusterLabels, ClusterName, FieldPath, Segment, Uid};

/// The head of an object in a store.
struct Known {
    cluster: ClusterName,
    labels: ClusterLabels,
    object: Value,
    uid: Uid,
    knows_owners: bool,
}

impl Known {
    fn new(object: &Value, knows_owners: bool) -> Self {
        let cluster = ClusterName::new("eu").unwrap();
        let labels = [("region".to_owned(), "eu".to_owned()), ("a b".to_owned(), String::new())].into();
        let uid = Uid::new(object["metadata"]["uid"].as_str().unwrap_or_default());
        Self { cluster, labels, object: object.clone(), uid, knows_owners }
    }

    fn metadata(&self, field: &str) -> &str {
        self.object["metadata"][field].as_str().unwrap_or_default()
    }

    fn owners(&self) -> Vec<&str> {
        let owners = self.object["metadata"]["ownerReferences"].as_array();
        owners.into_iter().flatten().filter_map(|owner| owner["uid"].as_str()).collect()
    }
}

impl Head for Known {
    fn cluster(&self) -> &ClusterName {
        &self.cluster
    }

    fn cluster_labels(&self) -> &ClusterLabels {
        &self.labels
    }

    fn namespace(&self) -> &str {
        self.metadata("namespace")
    }

    fn name(&self) -> &str {
        self.metadata("name")
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.object["metadata"]["labels"][key].as_str()
    }

    fn uid(&self) -> &Uid {
        &self.uid
    }

    fn in_index(&self, index: &str, values: &[SmolStr]) -> bool {
        index == "a" && values.contains(&SmolStr::new("web"))
    }

    fn owned_by(&self, owner: &Uid) -> Option<bool> {
        self.knows_owners.then(|| self.owners().contains(&owner.to_string().as_str()))
    }
}

/// Evaluates an expression as its documentation defines.
fn model(expr: &Expr, known: &Known) -> bool {
    let passes = |test: &TextTest, given: &str| match test {
        TextTest::In(texts) => texts.iter().any(|one| one == given),
        TextTest::Prefix(start) => given.starts_with(start.as_str()),
    };
    match expr {
        Expr::All => true,
        Expr::And(exprs) => exprs.iter().all(|expr| model(expr, known)),
        Expr::Or(exprs) => exprs.iter().any(|expr| model(expr, known)),
        Expr::Not(expr) => !model(expr, known),
        Expr::Cluster(selector) => selector.matches(&known.cluster, &known.labels),
        Expr::Namespace(test) => passes(test, known.namespace()),
        Expr::Name(test) => passes(test, known.name()),
        Expr::Labels(selector) => selector.matches(|key| known.label(key)),
        Expr::Index { index, values } => known.in_index(index, values),
        Expr::Uid(uid) => known.uid == *uid,
        Expr::OwnedBy(uid) => known.owners().contains(&uid.to_string().as_str()),
        Expr::Field { path, test } => field(test, &select(path, &known.object)),
    }
}

/// An independent implementation of [`FieldPath::select`].
fn select<'v>(path: &FieldPath, object: &'v Value) -> Vec<&'v Value> {
    path.segments().iter().fold(vec![object], |values, segment| match segment {
        Segment::Field(name) => values.into_iter().filter_map(|value| value.as_object()?.get(name.as_str())).collect(),
        Segment::Each => values.into_iter().filter_map(Value::as_array).flatten().collect(),
    })
}

fn field(test: &Test, values: &[&Value]) -> bool {
    let any = |holds: &dyn Fn(&Value) -> bool| values.iter().any(|value| holds(value));
    let is_text = |value: &Value, holds: &dyn Fn(&str) -> bool| value.as_str().is_some_and(holds);
    match test {
        Test::Is(literal) => any(&|value| compared(value, literal) == Some(0)),
        Test::IsNot(literal) => !any(&|value| compared(value, literal) == Some(0)),
        Test::In(literals) => literals.iter().any(|literal| any(&|value| compared(value, literal) == Some(0))),
        Test::NotIn(literals) => !literals.iter().any(|literal| any(&|value| compared(value, literal) == Some(0))),
        Test::Less(literal) => any(&|value| compared(value, literal).is_some_and(|c| c < 0)),
        Test::AtMost(literal) => any(&|value| compared(value, literal).is_some_and(|c| c <= 0)),
        Test::More(literal) => any(&|value| compared(value, literal).is_some_and(|c| c > 0)),
        Test::AtLeast(literal) => any(&|value| compared(value, literal).is_some_and(|c| c >= 0)),
        Test::Contains(part) => any(&|value| {
            let elements = value.as_array().into_iter().flatten();
            is_text(value, &|text| text.contains(part.as_str())) || elements.into_iter().any(|one| one == part.as_str())
        }),
        Test::Prefix(start) => any(&|value| is_text(value, &|text| text.starts_with(start.as_str()))),
        Test::Exists => any(&|value| !value.is_null()),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "generated values have an integral double")]
fn doubled(float: f64) -> i128 {
    (float * 2.0) as i128
}

/// Returns -1, 0 or 1; `None` if the kinds differ.
fn compared(value: &Value, literal: &Literal) -> Option<i8> {
    let order = match (literal, value) {
        (Literal::Bool(literal), Value::Bool(value)) => value.cmp(literal),
        (Literal::Text(literal), Value::String(value)) => value.as_bytes().cmp(literal.as_bytes()),
        // Generated numbers are 64-bit integers, halves, or 1e300; twice each is an integer.
        (Literal::Number(literal), Value::Number(value)) => match value.as_i64() {
            Some(int) if literal.abs() < 1e17 => (i128::from(int) * 2).cmp(&doubled(*literal)),
            _ => value.as_f64()?.partial_cmp(literal)?,
        },
        (Literal::Quantity(literal), Value::Number(value)) if value.as_f64()? < 1e17 => {
            billionths_of(value)?.cmp(&billionths(literal)?)
        }
        (Literal::Quantity(_), Value::Number(_)) => std::cmp::Ordering::Greater,
        (Literal::Quantity(literal), Value::String(value)) => billionths(value)?.cmp(&billionths(literal)?),
        _ => return None,
    };
    Some(order as i8)
}

fn billionths(text: &str) -> Option<i128> {
    let known = QUANTITIES.iter().chain(&[("3", 3_000_000_000)]);
    known.into_iter().find(|(known, _)| *known == text).map(|(_, billionths)| *billionths)
}

fn billionths_of(number: &serde_json::Number) -> Option<i128> {
    match number.as_i64() {
        Some(int) => Some(i128::from(int) * 1_000_000_000),
        None => Some(doubled(number.as_f64()?) * 500_000_000),
    }
}

fn matcher(text: &str) -> Matcher {
    Matcher::new(&text.parse().unwrap()).unwrap()
}

#[test]
fn field_tests_match_documentation() {
    let object = json!({
        "metadata": {"name": "web-0", "namespace": "shop", "labels": {"app": "web"}, "deletionTimestamp": null},
        "spec": {
            "nodeName": "n1",
            "priority": 7,
            "hostNetwork": false,
            "containers": [
                {"image": "nginx:1", "args": ["-v", "x"], "resources": {"requests": {"cpu": "500m", "memory": "2Gi"}}},
                {"image": "envoy", "resources": {"requests": {"cpu": 2}}},
            ],
        },
    });
    let known = Known::new(&object, false);
    let json = object.to_string();
    for (text, expected) in [
        ("spec.nodeName = n1", true),
        ("spec.nodeName != n1", false),
        ("spec.missing != n1", true),
        ("spec.missing not in (n1)", true),
        ("spec.missing < 5", false),
        ("spec.priority = 7", true),
        ("spec.priority = '7'", false),
        ("spec.priority >= 7 and spec.priority < 7.5", true),
        ("spec.priority = 7000m", true),
        ("spec.hostNetwork = false", true),
        ("spec.hostNetwork < true", true),
        ("spec.containers[*].image contains ngin", true),
        ("spec.containers[*].image prefix env", true),
        ("spec.containers[*].image != envoy", false),
        ("spec.containers[*].image not in (other)", true),
        ("spec.containers[*].args contains x", true),
        ("spec.containers[*].args contains v", false),
        ("spec.containers[*].args[*] contains v", true),
        ("spec.containers[*].resources.requests.cpu >= 2", true),
        ("spec.containers[*].resources.requests.cpu = 0.5", false),
        ("spec.containers[*].resources.requests.cpu = quantity('0.5')", true),
        ("spec.containers[*].resources.requests.cpu < 1000m", true),
        ("spec.containers[*].resources.requests.cpu > 2000m", false),
        ("spec.containers[*].resources.requests.memory = 2048Mi", true),
        ("metadata.deletionTimestamp exists", false),
        ("metadata.deletionTimestamp not exists", true),
        ("spec exists", true),
        ("spec.containers exists and spec.containers[*].image exists", true),
        ("spec.nodeName.x exists or spec[*] exists or spec.containers.image exists", false),
        ("not spec.nodeName = n1 or metadata.labels.app = web", true),
    ] {
        assert_eq!(matcher(text).on_body(&known, json.as_bytes()).unwrap(), expected, "{text}");
    }
}

#[test]
fn head_decides_without_bytes() {
    let object = json!({"metadata": {"name": "web-0", "namespace": "shop", "labels": {"app": "web"}}});
    let known = Known::new(&object, false);
    for (text, expected, needs_body) in [
        ("namespace = shop and name prefix web-", Some(true), false),
        ("namespace = shop and spec.x = 1", None, true),
        ("namespace = pay and spec.x = 1", Some(false), true),
        ("spec.x = 1 and namespace = pay", Some(false), true),
        ("namespace = shop or spec.x = 1", Some(true), true),
        ("not (spec.x = 1 or namespace = shop)", Some(false), true),
        ("labels(app=web) and cluster(region=eu)", Some(true), false),
        ("metadata.name = web-0", Some(true), false),
        ("metadata.namespace != pay", Some(true), false),
        ("metadata.uid exists", None, false),
        ("owned-by x", None, false),
    ] {
        let matcher = matcher(text);
        assert_eq!(matcher.on_head(&known), expected, "{text}");
        assert_eq!(matcher.needs_body(), needs_body, "{text}");
    }
    assert_eq!(matcher("owned-by x").on_head(&Known::new(&object, true)), Some(false));
}

#[test]
fn pass_stops_once_result_is_certain() {
    let known = Known::new(&json!({}), false);
    for (text, json, expected) in [
        ("a = 1", r#"{"a":1,"b":"#, Some(true)),
        ("a = 1", r#"{"a":2,"b":"#, Some(false)),
        ("a.b = 1", r#"{"a":{"b":2,"c":"#, Some(false)),
        ("a[*].b = 1", r#"{"a":[{"b":2},{"b":1}],"#, Some(true)),
        ("a[*].b = 1", r#"{"a":[{"b":2},"#, None),
        ("a = 1 and b = 2", r#"{"b":3,"#, Some(false)),
        ("a = 1 or b = 2", r#"{"b":3,"#, None),
        ("name = x and a = 1", "", Some(false)),
        ("a = 1", "", None),
        ("a = 1", "{}x", None),
        ("a = 1", r#"{"a":1e999}"#, None),
        ("a = 1", "[1]", Some(false)),
        ("a = 1", "null", Some(false)),
        ("a = 1", "\u{feff}{}", None),
    ] {
        let found = matcher(text).on_body(&known, json.as_bytes()).ok();
        assert_eq!(found, expected, "{text} {json}");
    }
    assert!(matcher("a = x").on_body(&known, b"{\"a\":\"\xff\"}").is_err());
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(matcher("b exists").on_body(&known, deep.as_bytes()).is_ok());
}

#[test]
fn columns_are_read_from_head_if_possible() {
    let object = json!({"metadata": {"name": "web-0", "namespace": "shop"}, "spec": {"ports": [1, 2]}});
    let known = Known::new(&object, false);
    let column = |path: &str| Column::Path(path.parse().unwrap());
    let of_head = Columns::new(&[column("metadata.namespace"), Column::Cluster, column("metadata.name")]);
    assert!(!of_head.needs_body());
    let values = of_head.on_head(&known).unwrap();
    assert_eq!(values, of_head.on_body(&known, object.to_string().as_bytes()).unwrap());
    assert_eq!(values.concat(), [json!("shop"), json!("eu"), json!("web-0")]);
    let of_body = Columns::new(&[column("spec.ports[*]"), Column::Cluster, column("metadata.name"), column("x")]);
    assert!(of_body.needs_body() && of_body.on_head(&known).is_none());
    let values = of_body.on_body(&known, object.to_string().as_bytes()).unwrap();
    let values: Vec<_> = values.iter().map(|values| json!(values.as_slice())).collect();
    assert_eq!(values, [json!([1, 2]), json!(["eu"]), json!(["web-0"]), json!([])]);
    assert!(
        Columns::new(&[column("metadata.uid")]).on_head(&known).is_none(),
        "only the bytes tell empty from missing"
    );
}

#[test]
fn extraction_stops_after_last_requested_value() {
    let extractor =
        |paths: &[&str]| Extractor::new(&paths.iter().map(|path| path.parse().unwrap()).collect::<Vec<_>>());
    let found = extractor(&["a", "a.b", "a.c[*]", "d"]).extract(br#"{"x":[{}],"a":{"b":1,"c":[2,3]},"d":null,"broken"#);
    let found: Vec<_> = found.unwrap().iter().map(|values| json!(values.as_slice())).collect();
    assert_eq!(found, [json!([{"b": 1, "c": [2, 3]}]), json!([1]), json!([2, 3]), json!([null])]);
    assert!(extractor(&["a", "z"]).extract(br#"{"a":1,"broken"#).is_err());
    assert!(extractor(&[]).extract(b"broken").unwrap().is_empty());
}

proptest! {
    #![proptest_config(informer_hub_testing::properties(1024))]

    #[test]
    fn matcher_agrees_with_model(
        expr in exprs(0, false),
        object in objects(),
        knows_owners: bool,
        pretty: bool,
    ) {
        let known = Known::new(&object, knows_owners);
        let json = if pretty { format!("{object:#}") } else { object.to_string() };
        let expected = model(&expr, &known);
        let matcher = Matcher::new(&expr).unwrap();
        prop_assert_eq!(matcher.on_body(&known, json.as_bytes()).unwrap(), expected, "{} of {}", expr, object);
        let of_head = matcher.on_head(&known);
        prop_assert!(of_head.is_none_or(|holds| holds == expected), "the head contradicts: {} of {}", expr, object);
        let text = expr.to_string();
        let read = Matcher::new(&text.parse().unwrap()).unwrap();
        prop_assert_eq!(read.on_body(&known, json.as_bytes()).unwrap(), expected, "{} is displayed as {}", expr, text);
    }

    #[test]
    fn extractor_agrees_with_path_select(object in objects(), which in prop::collection::vec(0_usize..12, 0..6)) {
        let known = ["a", "a.b", "a[*]", "a[*].b", "a[*][*]", "b", "b.a", "c.a.b", "metadata", "metadata.labels.a", "x", "c[*].c"];
        let paths: Vec<FieldPath> = which.iter().map(|&path| known[path].parse().unwrap()).collect();
        let json = object.to_string();
        let found = Extractor::new(&paths).extract(json.as_bytes()).unwrap();
        prop_assert_eq!(found.len(), paths.len());
        for (path, values) in paths.iter().zip(&found) {
            let expected: Vec<Value> = path.select(&object).into_iter().cloned().collect();
            prop_assert_eq!(values.as_slice(), expected.as_slice(), "{} of {}", path, object);
        }
    }

    #[test]
    fn corrupt_bytes_never_panic(expr in exprs(1, false), object in objects(), at: prop::sample::Index, byte: u8) {
        let known = Known::new(&object, false);
        let mut json = object.to_string().into_bytes();
        let at = at.index(json.len());
        json[at] = byte;
        let matcher = Matcher::new(&expr).unwrap();
        let _ = matcher.on_body(&known, &json);
        let _ = matcher.on_body(&known, &json[..at]);
        let paths = ["a[*].b", "c", "metadata.name"].map(|path| path.parse().unwrap());
        let _ = Extractor::new(&paths).extract(&json);
        let _ = Extractor::new(&paths).extract(&json[..at]);
    }
}

#[test]
fn head_evaluation_short_circuits() {
    struct Counting(Known, Cell<usize>);
    impl Head for Counting {
        fn cluster(&self) -> &ClusterName {
            &self.0.cluster
        }
        fn cluster_labels(&self) -> &ClusterLabels {
            &self.0.labels
        }
        fn namespace(&self) -> &str {
            self.0.namespace()
        }
        fn name(&self) -> &str {
            self.1.set(self.1.get() + 1);
            self.0.name()
        }
        fn label(&self, key: &str) -> Option<&str> {
            self.0.label(key)
        }
        fn uid(&self) -> &Uid {
            &self.0.uid
        }
        fn in_index(&self, index: &str, values: &[SmolStr]) -> bool {
            self.0.in_index(index, values)
        }
    }
    let head = Counting(Known::new(&json!({"metadata": {"name": "a"}}), false), Cell::new(0));
    assert_eq!(matcher("namespace = shop and name = a").on_head(&head), Some(false));
    assert_eq!(matcher("name = a or name = b or name = c").on_head(&head), Some(true));
    assert_eq!(head.1.get(), 1);
}
