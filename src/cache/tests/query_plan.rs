//! Tests of query planning.

use super::query::{fill, origin};
use crate::testing::{object_with, pods};
use crate::{Indexers, OWNER_INDEX, Query, QueryError, Store, owner_index};
use informer_hub_query::{Expr, Literal, Test, TextTest};
use informer_hub_types::Uid;

/// Returns a store of 200 pods: 10 on each of 20 nodes, all in one zone, 50 in each of 4 namespaces.
fn fleet() -> Store {
    let mut store = Store::new(pods());
    for cluster in ["a", "b"] {
        let pod = |number: usize| {
            let (namespace, node) = (format!("ns-{}", number % 4), format!("n{}", number % 20));
            let labels = [("app", "web")];
            object_with(&namespace, &format!("web-{number}"), "u", 1, &labels, &[("by-node", &node), ("by-zone", "z")])
        };
        fill(&mut store, origin(cluster, &[], None), &["by-node", "by-zone"], (0..100).map(pod).collect());
    }
    store
}

fn explained(store: &Store, condition: Expr) -> String {
    let query = Query::matching(condition);
    let snapshot = store.published().load();
    let plan = snapshot.explain(&query).unwrap();
    assert_eq!(snapshot.answer(&query.explain()).unwrap().plan, plan);
    plan.to_string()
}

fn plan(condition: Expr) -> String {
    explained(&fleet(), condition)
}

fn index(index: &str, values: &[&str]) -> Expr {
    Expr::Index { index: index.into(), values: values.iter().map(|value| (*value).into()).collect() }
}

fn is(text: &str) -> TextTest {
    TextTest::In(vec![text.into()])
}

fn labels() -> Expr {
    Expr::Labels("app=web".parse().unwrap())
}

fn field(path: &str, text: &str) -> Expr {
    Expr::Field { path: path.parse().unwrap(), test: Test::Is(Literal::Text(text.into())) }
}

#[test]
fn query_without_a_selective_condition_is_a_scan() {
    assert_eq!(plan(Expr::All), "all objects: about 200 objects; all match");
    assert_eq!(plan(labels()), "all objects: about 200 objects; matched on heads");
    let bodies = "all objects: about 200 objects; matched on heads, or on decompressed bodies if needed";
    assert_eq!(plan(field("spec.nodeName", "n1")), bodies);
    assert_eq!(
        plan(Expr::Not(Box::new(index("by-node", &["n1"])))),
        "all objects: about 200 objects; matched on heads"
    );
    assert_eq!(
        plan(Expr::Or(vec![index("by-node", &["n1"]), labels()])),
        "all objects: about 200 objects; matched on heads"
    );
}

#[test]
fn query_uses_an_index_and_filters_its_candidates() {
    assert_eq!(plan(index("by-node", &["n1"])), "index by-node = \"n1\": about 10 objects; all match");
    let both = Expr::And(vec![labels(), index("by-node", &["n1"])]);
    assert_eq!(plan(both), "index by-node = \"n1\": about 10 objects; matched on heads");
    let two = index("by-node", &["n1", "n2"]);
    assert_eq!(plan(two), "index by-node = \"n1\", index by-node = \"n2\": about 20 objects; all match");
}

#[test]
fn query_uses_the_cheapest_access_path() {
    let zone_and_node = Expr::And(vec![index("by-zone", &["z"]), index("by-node", &["n1"])]);
    assert_eq!(plan(zone_and_node), "index by-node = \"n1\": about 10 objects; matched on heads");
    let nested = Expr::And(vec![Expr::And(vec![labels(), index("by-node", &["n1"])]), Expr::Namespace(is("ns-1"))]);
    assert_eq!(plan(nested), "key range ns-1/*: about 50 objects; matched on heads");
    let nobody = Expr::And(vec![index("by-node", &["none"]), Expr::Namespace(is("ns-1"))]);
    assert_eq!(plan(nobody), "index by-node = \"none\": about 0 objects; matched on heads");
}

#[test]
fn query_scans_if_an_index_value_is_not_selective() {
    assert_eq!(plan(index("by-zone", &["z"])), "index by-zone = \"z\": about 200 objects; all match");
    let mut store = fleet();
    let pod = |number: usize| object_with("many", &number.to_string(), "u", 1, &[], &[("by-zone", "z")]);
    fill(&mut store, origin("c", &[], None), &["by-zone"], (0..1_000).map(pod).collect());
    let many = explained(&store, index("by-zone", &["z"]));
    assert_eq!(many, "all objects: about 1200 objects; matched on heads");
}

#[test]
fn query_combines_the_indices_of_a_disjunction() {
    let either = Expr::Or(vec![index("by-node", &["n1"]), index("by-node", &["n2"])]);
    assert_eq!(plan(either), "index by-node = \"n1\", index by-node = \"n2\": about 20 objects; all match");
    let mixed = Expr::Or(vec![
        index("by-node", &["n1"]),
        Expr::And(vec![Expr::Namespace(is("ns-1")), Expr::Name(is("web-1"))]),
    ]);
    assert_eq!(plan(mixed), "index by-node = \"n1\", key ns-1/web-1: about 12 objects; matched on heads");
    assert_eq!(plan(Expr::Or(Vec::new())), "nothing: about 0 objects; all match");
}

#[test]
fn query_looks_up_keys_and_reads_ranges_of_prefixes() {
    let key = Expr::And(vec![Expr::Namespace(is("ns-1")), Expr::Name(is("web-1"))]);
    assert_eq!(plan(key), "key ns-1/web-1: about 2 objects; matched on heads");
    assert_eq!(plan(Expr::Namespace(is("ns-1"))), "key range ns-1/*: about 50 objects; all match");
    assert_eq!(plan(field("metadata.namespace", "ns-1")), "key range ns-1/*: about 50 objects; all match");
    let names = Expr::And(vec![Expr::Namespace(is("ns-1")), Expr::Name(TextTest::Prefix("web-1".into()))]);
    assert_eq!(plan(names), "key range ns-1/web-1*: about 6 objects; all match");
    assert_eq!(
        plan(Expr::Namespace(TextTest::Prefix("ns-".into()))),
        "key range ns-*: about 200 objects; matched on heads"
    );
    assert_eq!(plan(Expr::Name(is("web-1"))), "all objects: about 200 objects; matched on heads");
    let two = Expr::Namespace(TextTest::In(vec!["ns-1".into(), "ns-2".into()]));
    assert_eq!(plan(two), "key range ns-1/*, key range ns-2/*: about 100 objects; all match");
}

#[test]
fn plan_counts_selected_clusters_only() {
    let there = Expr::Cluster(informer_hub_types::ClusterSelector::Names(vec!["a".parse().unwrap()]));
    let in_a = Expr::And(vec![there, labels()]);
    assert_eq!(plan(in_a), "all objects: about 100 objects; matched on heads");
}

#[test]
fn owner_condition_reads_bodies_without_an_owner_index() {
    let mut store = fleet();
    let owned = || Expr::OwnedBy(Uid::new("u-1"));
    let bodies = "all objects: about 200 objects; matched on heads, or on decompressed bodies if needed";
    assert_eq!(explained(&store, owned()), bodies);
    store.add_indexers(Indexers::new().with(OWNER_INDEX, owner_index())).unwrap();
    assert_eq!(explained(&store, owned()), "index owner-uid = \"u-1\": about 0 objects; all match");
}

#[test]
fn plan_says_whether_matches_are_decompressed() {
    let query = Query::by_index("by-node", "n1").sort_by("spec.nodeName".parse().unwrap());
    let plan = fleet().published().load().explain(&query).unwrap().to_string();
    assert!(plan.ends_with("all match; matches are decompressed for the answer"), "{plan}");
    let query = Query::by_index("by-node", "n1").sort_by("metadata.name".parse().unwrap());
    let plan = fleet().published().load().explain(&query).unwrap().to_string();
    assert!(plan.ends_with("all match"), "{plan}");
}

#[test]
fn unknown_index_error_suggests_the_nearest_name() {
    let error = fleet().published().load().answer(&Query::by_index("by-nod", "n1")).unwrap_err();
    let message = r#"no index "by-nod" is declared for pods; did you mean "by-node"? declared: by-node, by-zone"#;
    assert_eq!(error.to_string(), message);
    let nested = Query::matching(Expr::Not(Box::new(index("by-rack", &[]))));
    assert!(matches!(fleet().published().load().answer(&nested), Err(QueryError::UnknownIndex { .. })));
}
