//! Tests of queries and answers.

use std::sync::Arc;

use crate::posting::tests::SHOWN;
use crate::testing::{delta, object_with, pods};
use crate::{Answer, DeltaFifo, IndexReader, Query, QueryError, Store};
use informer_hub_types::{
    Change, ClusterName, ClusterSelector, DeltaKind, Dynamic, Freshness, InformerHealth, Origin, Phase, Scope,
    StoredObject,
};

pub(super) fn origin(cluster: &str, labels: &[(&str, &str)], namespace: Option<&str>) -> Arc<Origin> {
    Arc::new(Origin {
        cluster: ClusterName::new(cluster).unwrap(),
        cluster_labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        resource: pods(),
        scope: namespace.map_or_else(Scope::all, Scope::namespace),
    })
}

/// Opens a partition of a watching informer and fills it.
pub(super) fn fill(store: &mut Store, origin: Arc<Origin>, indexes: &[&str], objects: Vec<StoredObject>) {
    let health = InformerHealth::new();
    health.set_phase(Phase::Watching);
    health.set_synced();
    let id = store.open(origin, health, indexes.iter().map(|name| (*name).into()).collect::<Vec<_>>());
    let mut fifo = DeltaFifo::new(usize::MAX);
    for object in objects {
        fifo.push(Change::Delta(delta(DeltaKind::Added, object)));
    }
    store.apply(id, fifo.pop(usize::MAX)).unwrap();
}

pub(super) fn ask(store: &Store, query: &Query) -> Answer {
    store.published().load().answer(query).unwrap()
}

/// Formats `cluster/namespace/name@version`, in the answer's order.
pub(super) fn found(answer: &Answer) -> Vec<String> {
    let text = |object: &informer_hub_types::Object| {
        format!("{}/{}@{}", object.cluster(), object.key(), object.resource_version())
    };
    answer.items.iter().map(text).collect()
}

/// Formats `cluster ok`, `cluster missing` or `cluster stale`.
pub(super) fn covered(answer: &Answer) -> Vec<String> {
    let word = |freshness| match freshness {
        Freshness::Synced => "ok",
        Freshness::StaleSince { .. } => "stale",
        Freshness::Missing => "missing",
    };
    answer.coverage.iter().map(|part| format!("{} {}", part.cluster, word(part.freshness))).collect()
}

fn pod(namespace: &str, name: &str, version: u64, app: &str, node: &str) -> StoredObject {
    object_with(namespace, name, "u", version, &[("app", app)], &[("by-node", node)])
}

/// Returns a store whose clusters were opened unordered, so that answers must be sorted.
fn fleet() -> Store {
    let mut store = Store::new(pods());
    let us = vec![pod("shop", "web", 4, "web", "n1"), pod("pay", "db", 5, "db", "n2")];
    fill(&mut store, origin("us", &[("tier", "prod")], None), &["by-node"], us);
    let eu = vec![
        pod("shop", "web", 1, "web", "n1"),
        pod("shop", "api", 2, "api", "n2"),
        pod("shop-b", "web", 3, "web", "n1"),
    ];
    fill(&mut store, origin("eu", &[("tier", "dev")], None), &["by-node"], eu);
    store
}

fn expect(query: &Query, items: &[&str]) {
    let answer = ask(&fleet(), query);
    assert_eq!(found(&answer), items, "{query:?}");
    assert!(answer.is_complete());
}

#[test]
fn list_is_ordered_by_cluster_and_key() {
    let all = ["eu/shop-b/web@3", "eu/shop/api@2", "eu/shop/web@1", "us/pay/db@5", "us/shop/web@4"];
    expect(&Query::list(), &all);
    expect(&Query::list().across_clusters(), &all);
}

#[test]
fn get_finds_an_object_in_every_cluster() {
    expect(&Query::get("shop", "web"), &["eu/shop/web@1", "us/shop/web@4"]);
    expect(&Query::get("pay", "db"), &["us/pay/db@5"]);
    expect(&Query::get("pay", "no"), &[]);
    expect(&Query::get("", "web"), &[]);
}

#[test]
fn by_namespace_excludes_namespaces_with_the_same_prefix() {
    expect(&Query::by_namespace("shop"), &["eu/shop/api@2", "eu/shop/web@1", "us/shop/web@4"]);
    expect(&Query::by_namespace("sho"), &[]);
}

#[test]
fn conditions_are_combined_with_and() {
    let labels = || "app=web".parse().unwrap();
    expect(&Query::by_labels(labels()), &["eu/shop-b/web@3", "eu/shop/web@1", "us/shop/web@4"]);
    expect(&Query::by_labels(labels()).in_namespace("shop"), &["eu/shop/web@1", "us/shop/web@4"]);
    expect(&Query::by_index("by-node", "n1"), &["eu/shop-b/web@3", "eu/shop/web@1", "us/shop/web@4"]);
    expect(&Query::by_index("by-node", "n1").in_namespace("shop-b"), &["eu/shop-b/web@3"]);
    expect(&Query::by_index("by-node", "n2").with_labels(labels()), &[]);
    expect(&Query::by_index("by-node", "n3"), &[]);
    expect(&Query::get("shop", "api").with_labels(labels()), &[]);
}

#[test]
fn query_selects_clusters_by_label_or_name() {
    let prod = ClusterSelector::Labels([("tier".to_owned(), "prod".to_owned())].into());
    let answer = ask(&fleet(), &Query::get("shop", "web").in_clusters(prod));
    assert_eq!((found(&answer), covered(&answer)), (vec!["us/shop/web@4".to_owned()], vec!["us ok".to_owned()]));
    let named = ClusterSelector::Names(vec![ClusterName::new("eu").unwrap()]);
    let answer = ask(&fleet(), &Query::by_index("by-node", "n2").in_clusters(named));
    assert_eq!((found(&answer), covered(&answer)), (vec!["eu/shop/api@2".to_owned()], vec!["eu ok".to_owned()]));
}

/// Returns the result of `ask`, and the number of locations visited for it.
fn shown<T>(ask: impl FnOnce() -> T) -> (T, usize) {
    let before = SHOWN.get();
    let answer = ask();
    (answer, SHOWN.get() - before)
}

#[test]
fn index_lookup_in_one_cluster_skips_the_others() {
    let mut store = Store::new(pods());
    for cluster in 0..10 {
        let pods = (0..30).map(|pod_number| pod("shop", &format!("p{pod_number}"), 1, "web", "n1"));
        fill(&mut store, origin(&format!("c{cluster}"), &[], None), &["by-node"], pods.collect());
    }
    let named = ClusterSelector::Names(vec![ClusterName::new("c4").unwrap()]);
    let query = Query::by_index("by-node", "n1").in_clusters(named.clone());
    let (answer, looked) = shown(|| ask(&store, &query));
    assert_eq!(answer.items.len(), 30);
    assert!(looked <= 31, "{looked} of 300");
    let reader = IndexReader::<Dynamic>::new(Arc::clone(store.published()), named);
    let (values, looked) = shown(|| reader.list_index_func_values("by-node").unwrap());
    assert_eq!(values, ["n1"]);
    assert!(looked <= 1, "{looked} of 300");
    let nowhere = IndexReader::<Dynamic>::new(Arc::clone(store.published()), ClusterSelector::Names(Vec::new()));
    let (values, looked) = shown(|| nowhere.list_index_func_values("by-node").unwrap());
    assert_eq!((values.len(), looked), (0, 0));
}

#[test]
fn unknown_index_error_names_the_known_indices() {
    let error = fleet().published().load().answer(&Query::by_index("by-image", "x")).unwrap_err();
    assert!(
        matches!(&error, QueryError::UnknownIndex { index, known, .. } if index == "by-image" && known == &["by-node"])
    );
    assert_eq!(error.to_string(), r#"no index "by-image" is declared for pods; declared: by-node"#);
    let error = Store::new(pods()).published().load().answer(&Query::by_index("a", "x")).unwrap_err();
    assert!(error.to_string().ends_with("declared: none"), "{error}");
}

#[test]
fn cluster_without_the_index_is_missing_in_the_coverage() {
    let mut store = fleet();
    fill(&mut store, origin("ap", &[], None), &[], vec![pod("shop", "web", 9, "web", "n1")]);
    let answer = ask(&store, &Query::by_index("by-node", "n2"));
    assert_eq!(covered(&answer), ["ap missing", "eu ok", "us ok"]);
    assert!(!answer.is_complete());
    assert!(ask(&store, &Query::list()).is_complete());
}

#[test]
fn coverage_includes_clusters_that_have_not_answered() {
    let mut store = fleet();
    let labels = [("tier".to_owned(), "prod".to_owned())];
    store.expect(ClusterName::new("jp").unwrap(), Some(labels.into()));
    assert_eq!(covered(&ask(&store, &Query::list())), ["eu ok", "jp missing", "us ok"]);
    let dev = ClusterSelector::Labels([("tier".to_owned(), "dev".to_owned())].into());
    assert_eq!(covered(&ask(&store, &Query::list().in_clusters(dev))), ["eu ok"]);
    fill(&mut store, origin("jp", &[], None), &[], Vec::new());
    assert_eq!(covered(&ask(&store, &Query::list())), ["eu ok", "jp ok", "us ok"]);
}

#[test]
fn coverage_shows_the_stalest_contributing_informer() {
    let mut store = fleet();
    let health = InformerHealth::new();
    store.open(origin("eu", &[], Some("pay")), Arc::clone(&health), Vec::new());
    assert_eq!(covered(&ask(&store, &Query::list())), ["eu missing", "us ok"], "never listed");
    assert_eq!(covered(&ask(&store, &Query::by_namespace("shop"))), ["eu ok", "us ok"], "not contributing");
    health.set_phase(Phase::Watching);
    health.set_synced();
    health.set_phase(Phase::Stale);
    assert_eq!(covered(&ask(&store, &Query::list())), ["eu stale", "us ok"]);
}

#[test]
fn cluster_without_a_covering_informer_is_missing() {
    let mut store = Store::new(pods());
    fill(&mut store, origin("eu", &[], Some("shop")), &[], vec![pod("shop", "web", 1, "web", "n1")]);
    let answer = ask(&store, &Query::by_namespace("pay"));
    assert_eq!((found(&answer).len(), covered(&answer)), (0, vec!["eu missing".to_owned()]));
    assert!(!answer.is_complete());
}

#[test]
fn overlapping_informers_return_each_object_once_in_its_newest_state() {
    let mut store = Store::new(pods());
    let all = vec![pod("shop", "a", 5, "web", "n1"), pod("shop", "b", 1, "web", "n1"), pod("pay", "c", 7, "web", "n1")];
    fill(&mut store, origin("eu", &[], None), &["by-node"], all);
    let shop =
        vec![pod("shop", "a", 5, "web", "n1"), pod("shop", "b", 2, "db", "n2"), pod("shop", "d", 1, "web", "n1")];
    fill(&mut store, origin("eu", &[], Some("shop")), &["by-node"], shop);
    let expect = |query: &Query, items: &[&str]| assert_eq!(found(&ask(&store, query)), items, "{query:?}");
    expect(&Query::list(), &["eu/pay/c@7", "eu/shop/a@5", "eu/shop/b@2", "eu/shop/d@1"]);
    expect(&Query::get("shop", "b"), &["eu/shop/b@2"]);
    expect(&Query::by_namespace("pay"), &["eu/pay/c@7"]);
    // A match that no longer matches in the newer state of another informer.
    expect(&Query::by_labels("app=web".parse().unwrap()), &["eu/pay/c@7", "eu/shop/a@5", "eu/shop/d@1"]);
    expect(&Query::by_index("by-node", "n1"), &["eu/pay/c@7", "eu/shop/a@5", "eu/shop/d@1"]);
    expect(&Query::by_index("by-node", "n2"), &["eu/shop/b@2"]);
}

#[test]
fn answer_is_of_one_snapshot() {
    let mut store = fleet();
    let snapshot = store.published().load_full();
    let id = snapshot.partitions().next().unwrap().0;
    store.close(id);
    assert_eq!(snapshot.answer(&Query::list()).unwrap().items.len(), 5);
    assert_eq!(ask(&store, &Query::list()).items.len(), 3);
}

#[test]
fn query_with_a_key_or_an_index_is_not_a_scan() {
    assert!(!Query::get("ns", "a").is_scan() && !Query::by_index("by-node", "n1").is_scan());
    assert!(Query::list().is_scan() && Query::by_namespace("ns").is_scan());
}

#[test]
fn index_query_is_long_above_a_thousand_objects() {
    let mut store = Store::new(pods());
    for (cluster, count) in [("a", 400), ("b", 600)] {
        let pods = (0..count).map(|number| pod("shop", &number.to_string(), 1, "web", "n1"));
        fill(&mut store, origin(cluster, &[], None), &["by-node"], pods.collect());
    }
    let is_long = |store: &Store, query: &Query| store.published().load().is_long(query);
    let (crowd, nobody, unknown) = (("by-node", "n1"), ("by-node", "n2"), ("by-app", "n1"));
    assert!(!is_long(&store, &Query::by_index(crowd.0, crowd.1)), "a thousand");
    fill(&mut store, origin("c", &[], None), &["by-node"], vec![pod("shop", "one", 1, "web", "n1")]);
    assert!(is_long(&store, &Query::by_index(crowd.0, crowd.1)));
    for (index, value) in [nobody, unknown] {
        assert!(!is_long(&store, &Query::by_index(index, value)), "{index} {value}");
    }
    assert!(is_long(&store, &Query::list()) && !is_long(&store, &Query::get("shop", "one")));
}

#[test]
fn coverage_of_a_cluster_is_that_of_its_stalest_informer() {
    let mut store = Store::new(pods());
    let health = |phases: &[Phase], synced: bool| {
        let health = InformerHealth::new();
        for phase in phases {
            health.set_phase(*phase);
        }
        if synced {
            health.set_synced();
        }
        health
    };
    let fresh = health(&[Phase::Watching], true);
    let stale = health(&[Phase::Watching, Phase::Stale], true);
    let missing = health(&[Phase::Listing], false);
    for (cluster, first, second) in [
        ("a", &fresh, &stale),
        ("b", &stale, &fresh),
        ("c", &stale, &missing),
        ("d", &missing, &fresh),
        ("e", &fresh, &fresh),
    ] {
        for (namespace, health) in [("one", first), ("two", second)] {
            let own = InformerHealth::new();
            own.set_phase(health.phase());
            if health.has_synced() {
                own.set_synced();
            }
            store.open(origin(cluster, &[], Some(namespace)), own, Vec::new());
        }
    }
    let words = ["a stale", "b stale", "c missing", "d missing", "e ok"];
    assert_eq!(covered(&ask(&store, &Query::list())), words);
}

#[test]
fn reopened_partition_has_the_new_health_and_indices() {
    let mut store = Store::new(pods());
    let (first, second) = (InformerHealth::new(), InformerHealth::new());
    let place = origin("a", &[], None);
    let id = store.open(Arc::clone(&place), Arc::clone(&first), vec!["by-node".into()]);
    assert_eq!(store.open(place, Arc::clone(&second), vec!["by-app".into()]), id);
    let snapshot = store.published().load_full();
    let partition = snapshot.partition(id).unwrap();
    assert!(partition.is_of(&second) && !partition.is_of(&first));
    assert!(partition.declares("by-app") && !partition.declares("by-node"));
    second.set_synced();
    second.set_phase(Phase::Watching);
    assert_eq!(partition.freshness(), Freshness::Synced);
}
