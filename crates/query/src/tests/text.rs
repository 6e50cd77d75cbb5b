//! Tests of the text form.

use std::num::NonZeroUsize;

use proptest::prelude::*;

use super::super::{Column, Direction, Expr, Literal, Output, Question, Test, TextTest};
use crate::arbitrary::{exprs, questions};
use informer_hub_types::{ClusterName, ClusterSelector, Condition, FieldPath, LabelSelector, Requirement, Uid};

fn path(text: &str) -> FieldPath {
    text.parse().unwrap()
}

fn field(name: &str, test: Test) -> Expr {
    Expr::Field { path: path(name), test }
}

fn column(text: &str) -> Column {
    Column::Path(path(text))
}

fn is(literal: Literal) -> Test {
    Test::Is(literal)
}

fn text(text: &str) -> Literal {
    Literal::Text(text.into())
}

fn quantity(text: &str) -> Literal {
    Literal::Quantity(text.into())
}

fn namespaces(names: &[&str]) -> Expr {
    Expr::Namespace(TextTest::In(names.iter().map(|name| (*name).into()).collect()))
}

fn names(names: &[&str]) -> Expr {
    let names = names.iter().map(|name| ClusterName::new(name).unwrap()).collect();
    Expr::Cluster(ClusterSelector::Names(names))
}

fn not(expr: Expr) -> Expr {
    Expr::Not(Box::new(expr))
}

fn condition(text: &str) -> Expr {
    text.parse().unwrap_or_else(|error: super::super::InvalidQuestion| panic!("{}", error.annotated()))
}

fn question(text: &str) -> Question {
    text.parse().unwrap_or_else(|error: super::super::InvalidQuestion| panic!("{}", error.annotated()))
}

#[test]
fn each_condition_parses() {
    let labels = |text: &str| Expr::Labels(text.parse().unwrap());
    let region = ClusterSelector::Labels([("region".to_owned(), "eu".to_owned())].into());
    let index = |values: &[&str]| Expr::Index {
        index: "by-node".into(),
        values: values.iter().map(|value| (*value).into()).collect(),
    };
    for (written, expected) in [
        ("", Expr::All),
        ("all", Expr::All),
        ("cluster(region=eu)", Expr::Cluster(region.clone())),
        ("cluster ( region == 'eu' )", Expr::Cluster(region)),
        ("cluster()", Expr::Cluster(ClusterSelector::All)),
        ("cluster in (prod-eu, prod-us)", names(&["prod-eu", "prod-us"])),
        ("cluster = prod-eu", names(&["prod-eu"])),
        ("cluster != prod-eu", not(names(&["prod-eu"]))),
        ("namespace in (shop, pay)", namespaces(&["shop", "pay"])),
        ("NAMESPACE IN [shop,pay]", namespaces(&["shop", "pay"])),
        ("namespace = \"\"", namespaces(&[""])),
        ("namespace not in (shop)", not(namespaces(&["shop"]))),
        ("namespace notin (shop)", not(namespaces(&["shop"]))),
        ("namespace in ()", namespaces(&[])),
        ("name prefix \"web-\"", Expr::Name(TextTest::Prefix("web-".into()))),
        ("name not prefix web-", not(Expr::Name(TextTest::Prefix("web-".into())))),
        ("name = in", Expr::Name(TextTest::In(vec!["in".into()]))),
        ("labels(app=web, tier!=dev)", labels("app=web,tier!=dev")),
        ("labels(app in (web, api), !canary)", labels("app in (web,api),!canary")),
        ("labels()", labels("")),
        ("index by-node = n1", index(&["n1"])),
        ("index \"by-node\" in (n1, 'n 2')", index(&["n1", "n 2"])),
        ("index by-node != n1", not(index(&["n1"]))),
        ("uid = 7", Expr::Uid(Uid::new("7"))),
        ("uid in (a, b)", Expr::Or(vec![Expr::Uid(Uid::new("a")), Expr::Uid(Uid::new("b"))])),
        ("uid != a", not(Expr::Uid(Uid::new("a")))),
        ("owned-by a", Expr::OwnedBy(Uid::new("a"))),
        ("owned-by = a", Expr::OwnedBy(Uid::new("a"))),
        ("spec.nodeName == \"node-7\"", field("spec.nodeName", is(text("node-7")))),
        ("$.spec.nodeName=node-7", field("spec.nodeName", is(text("node-7")))),
        ("status.phase in (Failed, Unknown)", field("status.phase", Test::In(vec![text("Failed"), text("Unknown")]))),
        ("status.phase not in (Failed)", field("status.phase", Test::NotIn(vec![text("Failed")]))),
        ("status.phase != Failed", field("status.phase", Test::IsNot(text("Failed")))),
        ("a[*].image contains \"nginx\"", field("a[*].image", Test::Contains("nginx".into()))),
        ("a prefix b", field("a", Test::Prefix("b".into()))),
        ("a not prefix b", not(field("a", Test::Prefix("b".into())))),
        ("a not contains b", not(field("a", Test::Contains("b".into())))),
        ("a > 2026-01-01T00:00:00Z", field("a", Test::More(text("2026-01-01T00:00:00Z")))),
        ("a > \"1GB\"", field("a", Test::More(text("1GB")))),
        ("a > v1.30", field("a", Test::More(text("v1.30")))),
        ("a.cpu >= 500m", field("a.cpu", Test::AtLeast(quantity("500m")))),
        ("metadata.deletionTimestamp exists", field("metadata.deletionTimestamp", Test::Exists)),
        ("a not exists", not(field("a", Test::Exists))),
        ("not a exists", not(field("a", Test::Exists))),
        ("!(a exists)", not(field("a", Test::Exists))),
        (
            "metadata.labels['app.kubernetes.io/name'] = x",
            field("metadata.labels['app.kubernetes.io/name']", is(text("x"))),
        ),
        (
            r"metadata.labels['it\'s \] (x)'] < 2",
            field(r"metadata.labels['it\'s \] (x)']", Test::Less(Literal::Number(2.0))),
        ),
        ("['name'] = x", field("['name']", is(text("x")))),
        ("not.b exists", field("not.b", Test::Exists)),
        ("count > 5", field("['count']", Test::More(Literal::Number(5.0)))),
        ("limit exists", field("['limit']", Test::Exists)),
    ] {
        assert_eq!(condition(written), expected, "{written}");
        assert_eq!(condition(&expected.to_string()), expected, "{expected}");
        assert_eq!(question(written), Question::new(expected), "{written}");
    }
}

#[test]
fn value_kind_follows_syntax() {
    for (written, expected) in [
        ("true", Literal::Bool(true)),
        ("false", Literal::Bool(false)),
        ("True", text("True")),
        ("-1.5e3", Literal::Number(-1500.0)),
        ("9007199254740992", Literal::Number(9_007_199_254_740_992.0)),
        ("9007199254740993", quantity("9007199254740993")),
        ("500m", quantity("500m")),
        ("2Gi", quantity("2Gi")),
        ("+5", quantity("+5")),
        ("007", quantity("007")),
        ("quantity(1)", quantity("1")),
        ("quantity( \"0.5\" )", quantity("0.5")),
        ("Running", text("Running")),
        ("2024-01-01T00:00:00Z", text("2024-01-01T00:00:00Z")),
        ("nginx:1.27@sha256", text("nginx:1.27@sha256")),
        ("\"500m\"", text("500m")),
        ("'true'", text("true")),
        (r#""a\"b\\c\n\t\r'""#, text("a\"b\\c\n\t\r'")),
        (r"'it\'s'", text("it's")),
        ("\"\"", text("")),
        ("\"é\u{1f600}\"", text("é\u{1f600}")),
    ] {
        let expected = field("a", is(expected));
        assert_eq!(condition(&format!("a = {written}")), expected, "{written}");
        assert_eq!(condition(&expected.to_string()), expected, "{expected}");
    }
}

#[test]
fn not_binds_tighter_than_and_tighter_than_or() {
    let [a, b, c] = ["a", "b", "c"].map(|name| field(name, Test::Exists));
    let and = |exprs: &[&Expr]| Expr::And(exprs.iter().map(|&expr| expr.clone()).collect());
    let or = |exprs: &[&Expr]| Expr::Or(exprs.iter().map(|&expr| expr.clone()).collect());
    for (written, expected) in [
        ("a exists and b exists and c exists", and(&[&a, &b, &c])),
        ("a exists && b exists&&c exists", and(&[&a, &b, &c])),
        ("a exists or b exists || c exists", or(&[&a, &b, &c])),
        ("a exists and b exists or c exists", or(&[&and(&[&a, &b]), &c])),
        ("a exists or b exists and c exists", or(&[&a, &and(&[&b, &c])])),
        ("(a exists or b exists) and c exists", and(&[&or(&[&a, &b]), &c])),
        ("not a exists and b exists", and(&[&not(a.clone()), &b])),
        ("not (a exists and b exists)", not(and(&[&a, &b]))),
        ("not not ((a exists))", not(not(a.clone()))),
        ("(a exists and b exists) and c exists", and(&[&and(&[&a, &b]), &c])),
        ("\n a exists\n\tAND b exists ", and(&[&a, &b])),
    ] {
        assert_eq!(condition(written), expected, "{written}");
        assert_eq!(condition(&expected.to_string()), expected, "{expected}");
    }
}

#[test]
fn clauses_parse_in_any_order() {
    let limit = NonZeroUsize::new(50).unwrap();
    let ordered = Question::new(namespaces(&["shop"]))
        .order_by(path("status.startTime"), Direction::Descending)
        .order_by(path("metadata.name"), Direction::Ascending)
        .limit(limit)
        .continue_at("t0k/en=")
        .output(Output::Columns(vec![Column::Cluster, column("metadata.name"), column("spec.nodeName")]));
    for written in [
        "namespace = shop order by status.startTime desc, metadata.name limit 50 continue \"t0k/en=\" \
         select cluster, metadata.name, spec.nodeName",
        "namespace=shop select cluster,name,spec.nodeName continue 't0k/en=' limit 50 \
         ORDER BY status.startTime DESCENDING, name asc",
    ] {
        assert_eq!(question(written), ordered, "{written}");
    }
    let output = |output: Output| Question::default().output(output);
    for (written, expected) in [
        ("count", output(Output::Count)),
        ("all count", output(Output::Count)),
        ("count by spec.nodeName", output(Output::CountBy(column("spec.nodeName")))),
        ("count by cluster", output(Output::CountBy(Column::Cluster))),
        ("count by namespace limit 50", output(Output::CountBy(column("metadata.namespace"))).limit(limit)),
        ("distinct spec.containers[*].image", output(Output::Distinct(column("spec.containers[*].image")))),
        ("order by ['cluster']", Question::default().order_by(path("['cluster']"), Direction::Ascending)),
        ("select ['in']", output(Output::Columns(vec![column("['in']")]))),
        ("distinct ['exists'].x", output(Output::Distinct(column("exists.x")))),
        ("select uid", output(Output::Columns(vec![column("metadata.uid")]))),
        ("", Question::default()),
        (" \n", Question::default()),
    ] {
        assert_eq!(question(written), expected, "{written}");
        assert_eq!(question(&expected.to_string()), expected, "{expected}");
    }
}

#[test]
fn expression_without_syntax_displays_as_equivalent() {
    let selector = |condition| Expr::Labels([Requirement { key: "a".into(), condition }].into_iter().collect());
    let empty = std::collections::BTreeSet::new;
    for (built, written) in [
        (Expr::And(vec![]), "all"),
        (Expr::Or(vec![]), "not all"),
        (Expr::Or(vec![Expr::And(vec![namespaces(&["a"])])]), "namespace = a"),
        (not(Expr::And(vec![namespaces(&["a"])])), "not namespace = a"),
        (selector(Condition::In(empty())), "labels(nothing,!nothing)"),
        (selector(Condition::NotIn(empty())), "labels()"),
        (Expr::Cluster(ClusterSelector::Labels([].into())), "cluster()"),
    ] {
        assert_eq!(built.to_string(), written);
        condition(written);
    }
    assert_eq!(condition("labels()"), Expr::Labels(LabelSelector::everything()));
}

proptest! {
    #![proptest_config(informer_hub_testing::properties(512))]

    #[test]
    fn displayed_query_parses_to_itself(asked in questions()) {
        let text = asked.to_string();
        let read = text.parse::<Question>();
        prop_assert_eq!(read.as_ref(), Ok(&asked), "{}", text);
    }

    #[test]
    fn displayed_expression_round_trips(asked in exprs(0, true)) {
        let text = asked.to_string();
        match text.parse::<Expr>() {
            Ok(read) => prop_assert_eq!(read.to_string(), text),
            Err(error) => prop_assert!(false, "{}", error.annotated()),
        }
    }
}
