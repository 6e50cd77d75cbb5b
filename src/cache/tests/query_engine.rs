//! Tests of query execution: cancellation, limits, statistics, and errors.

use std::cell::Cell;
use std::sync::Arc;
use std::thread;

use serde_json::json;

use super::query::{fill, found, origin};
use crate::testing::{object_with, pods};
use crate::{Answer, Bounds, Group, Query, QueryError, RunningQuery, ScanThread, Snapshot, Store};
use informer_hub_query::{Column, Direction, Expr, Literal, Output, Question, Test};
use informer_hub_types::{ClusterName, FieldPath, ObjectKey, ResourceVersion, StoredObject, StoredObjectParts, Uid};

fn pod(name: &str, body: &serde_json::Value) -> StoredObject {
    StoredObject::new(StoredObjectParts {
        key: ObjectKey::new("shop", name),
        uid: Uid::new(name),
        resource_version: ResourceVersion::new("1"),
        labels: informer_hub_types::Labels::default(),
        index_values: Vec::new(),
        json: body.to_string().into_bytes(),
    })
}

fn of(objects: Vec<StoredObject>) -> Arc<Snapshot> {
    let mut store = Store::new(pods());
    fill(&mut store, origin("eu", &[], None), &[], objects);
    store.published().load_full()
}

fn path(text: &str) -> FieldPath {
    text.parse().unwrap()
}

fn names(number: usize) -> Vec<StoredObject> {
    (0..number).map(|number| pod(&format!("{number:05}"), &json!({"spec": {"size": number % 10}}))).collect()
}

fn is(at: &str, text: &str) -> Expr {
    Expr::Field { path: path(at), test: Test::Is(Literal::Text(text.into())) }
}

#[test]
fn cancelled_query_ends_soon() {
    let snapshot = of(names(10_000));
    let running = RunningQuery::new(snapshot, Query::matching(is("spec.x", "y")).in_pieces(1_000), None);
    running.cancel();
    running.work();
    assert_eq!(running.finish().unwrap_err(), QueryError::Cancelled);
}

#[test]
fn deadline_error_reports_the_progress() {
    let snapshot = of(names(10_000));
    let running = RunningQuery::new(snapshot, Query::matching(is("spec.x", "y")).in_pieces(1), None);
    thread::scope(|scope| {
        let worker = scope.spawn(|| running.work());
        while running.examined() == 0 {
            thread::yield_now();
        }
        let error = running.expire_query();
        assert!(matches!(error, QueryError::Deadline { candidates: 10_000, .. }), "{error}");
        // The first reason wins.
        running.cancel();
        worker.join().unwrap();
    });
    let error = running.finish().unwrap_err();
    let QueryError::Deadline { within, examined, candidates } = &error else { panic!("{error:?}") };
    assert_eq!((*within, *candidates), (Bounds::default().within, 10_000));
    assert!((1..10_000).contains(examined), "{examined}");
    assert!(error.to_string().contains(&format!("examined {examined} of about 10000 objects")), "{error}");
}

#[test]
fn reader_answers_only_short_queries_that_need_no_cache() {
    let snapshot = of(names(2_000));
    let now = |query: Query| snapshot.answer_if_short(&query).unwrap();
    let one = Query::get("shop", "00007");
    let number = |answer: Option<Answer>| answer.map(|answer| answer.items.len());
    assert_eq!(number(now(one.clone())), Some(1));
    assert!(now(Query::list()).is_none(), "2,000 objects are a scan");
    assert!(now(Query::matching(Expr::OwnedBy(Uid::new("u")))).is_none(), "there is no index of owners");
    assert_eq!(number(now(one.clone().continue_at("a token"))), None);
    let few = of(names(20));
    let some = |limit: usize| Query::list().limit(limit.try_into().unwrap());
    assert_eq!(number(few.answer_if_short(&some(20)).unwrap()), Some(20));
    assert!(few.answer_if_short(&some(19)).unwrap().is_none(), "the cache keeps the snapshot for the next page");
    let unknown = snapshot.answer_if_short(&Query::by_index("by-moon", "x")).unwrap_err();
    assert!(matches!(unknown, QueryError::UnknownIndex { .. }), "{unknown:?}");
}

/// A thread that other scans need too.
#[derive(Default)]
struct WantedThread {
    pauses: Cell<usize>,
}

impl ScanThread for WantedThread {
    fn pause(&self) {
        self.pauses.set(self.pauses.get() + 1);
    }

    fn is_wanted(&self) -> bool {
        true
    }
}

#[test]
fn scan_in_slices_gives_the_same_answer() {
    let (snapshot, query) = (of(names(3_000)), Query::matching(is("spec.size", "7")).in_pieces(10));
    let running = RunningQuery::new(Arc::clone(&snapshot), query.clone(), None);
    let (mut slices, thread) = (1, WantedThread::default());
    while running.work_slice(&thread) {
        slices += 1;
    }
    // Bodies of about 10 µs, slices of 5 ms, a pause each 300 µs.
    assert!((5..=8).contains(&slices), "{slices}");
    assert!(thread.pauses.get() >= 80, "{}", thread.pauses.get());
    let names = |answer: Answer| answer.items.iter().map(|object| object.name().to_owned()).collect::<Vec<_>>();
    assert_eq!(names(running.finish().unwrap()), names(snapshot.answer(&query).unwrap()));
}

#[test]
fn oversized_answer_is_an_error_without_a_limit() {
    let snapshot = of(names(100));
    let small = Bounds { items: 50, ..Bounds::default() };
    let error = snapshot.answer(&Query::list().within(small)).unwrap_err();
    assert_eq!(error, QueryError::TooMuch { what: "objects or values", limit: 50 });
    let limited = Query::list().within(small).limit(50.try_into().unwrap());
    assert_eq!(snapshot.answer(&limited).unwrap().items.len(), 50);
    assert_eq!(snapshot.answer(&Query::list().within(small).count()).unwrap().count, Some(100));
    let by_name = Query::list().within(small).distinct(Column::Path(path("metadata.name")));
    assert!(matches!(snapshot.answer(&by_name), Err(QueryError::TooMuch { .. })));
    let few_bytes = Bounds { bytes: 1_000, ..Bounds::default() };
    for query in [
        Query::list().select([path("metadata.name")]),
        Query::list().distinct(Column::Path(path("metadata.name"))),
        Query::list().sort_by(path("metadata.name")),
    ] {
        let error = snapshot.answer(&query.within(few_bytes)).unwrap_err();
        assert_eq!(error, QueryError::TooMuch { what: "bytes of values", limit: 1_000 });
    }
}

#[test]
fn answer_names_paths_that_no_object_has() {
    let snapshot = of(names(20));
    let either = |paths: &[&str]| Query::matching(Expr::Or(paths.iter().map(|path| is(path, "x")).collect()));
    let answer = snapshot.answer(&either(&["spec.size", "spec.sise", "spec.size.deep"])).unwrap();
    assert_eq!(answer.unmatched, [path("spec.sise"), path("spec.size.deep")]);
    assert_eq!((answer.examined, answer.read), (20, 20));
    // Paths are not reported if no body was read.
    let answer = snapshot.answer(&either(&["spec.sise"]).and(Expr::Uid(Uid::new("nobody")))).unwrap();
    assert_eq!((answer.unmatched.len(), answer.examined, answer.read), (0, 20, 0));
}

#[test]
fn answer_names_clauses_without_values() {
    let snapshot = of(names(20));
    let (good, bad) = (path("spec.size"), path("spec.sise"));
    let all = Query::list;
    for (query, empty) in [
        (all().sort_by(bad.clone()), vec![bad.clone()]),
        (all().sort_by(bad.clone()).limit(3.try_into().unwrap()), vec![bad.clone()]),
        (all().sort_by(good.clone()), Vec::new()),
        (all().select([good.clone(), bad.clone()]), vec![bad.clone()]),
        (all().sort_by(bad.clone()).select([bad.clone()]).limit(3.try_into().unwrap()), vec![bad.clone()]),
        (all().count_by(Column::Path(bad.clone())), vec![bad.clone()]),
        (all().distinct(Column::Path(bad.clone())), vec![bad.clone()]),
        (all().distinct(Column::Path(good.clone())), Vec::new()),
        (all().count_by(Column::Cluster), Vec::new()),
        (Query::matching(Expr::Uid(Uid::new("nobody"))).sort_by(bad), Vec::new()),
    ] {
        assert_eq!(snapshot.answer(&query).unwrap().unmatched, empty, "{}", query.question());
    }
}

#[test]
fn unreadable_object_is_counted_and_does_not_match() {
    let broken = StoredObject::new(StoredObjectParts {
        key: ObjectKey::new("shop", "broken"),
        uid: Uid::new("broken"),
        resource_version: ResourceVersion::new("1"),
        labels: informer_hub_types::Labels::default(),
        index_values: Vec::new(),
        json: b"{\"spec\":{".to_vec(),
    });
    let snapshot = of(vec![broken, pod("whole", &json!({"spec": {"a": "x"}}))]);
    let answer = snapshot.answer(&Query::matching(is("spec.a", "x"))).unwrap();
    assert_eq!((found(&answer), answer.unreadable), (vec!["eu/shop/whole@1".to_owned()], 1));
    assert_eq!(snapshot.answer(&Query::list()).unwrap().items.len(), 2);
    let sorted = snapshot.answer(&Query::list().sort_by(path("spec.a"))).unwrap();
    assert_eq!(found(&sorted), ["eu/shop/broken@1", "eu/shop/whole@1"]);
    let counted = snapshot.answer(&Query::list().count_by(Column::Path(path("spec.a")))).unwrap();
    assert_eq!((counted.groups, counted.unreadable), (vec![Group { value: "x".into(), count: 1 }], 1));
}

#[test]
fn groups_are_ordered_by_count_or_by_value() {
    let sizes = [2, 1, 3, 2, 3, 3];
    let pods = sizes.iter().enumerate().map(|(at, size)| pod(&at.to_string(), &json!({"spec": {"size": size}})));
    let snapshot = of(pods.collect());
    let column = || Column::Path(path("spec.size"));
    let groups = |query: Query| {
        let answer = snapshot.answer(&query).unwrap();
        let groups = answer.groups.iter().map(|group| format!("{} {}", group.value, group.count));
        (groups.collect::<Vec<_>>().join(", "), answer.more)
    };
    assert_eq!(groups(Query::list().count_by(column())), ("3 3, 2 2, 1 1".to_owned(), false));
    assert_eq!(groups(Query::list().distinct(column())), ("1 1, 2 2, 3 3".to_owned(), false));
    assert_eq!(groups(Query::list().count_by(column()).limit(2.try_into().unwrap())), ("3 3, 2 2".to_owned(), true));
}

#[test]
fn limited_query_in_key_order_examines_few_objects() {
    let snapshot = of(names(10_000));
    let query = Query::list().limit(10.try_into().unwrap()).in_pieces(100);
    let answer = snapshot.answer(&query).unwrap();
    assert_eq!((answer.items.len(), answer.more, answer.examined), (10, true, 11));
    let page = snapshot.answer_after(&query, answer.end().unwrap()).unwrap();
    assert_eq!((page.items[0].name(), page.examined), ("00010", 11));
}

#[test]
fn limited_query_examines_no_object_behind_its_last_match() {
    let mut store = Store::new(pods());
    let with_app = |name: &str, app: &str| object_with("shop", name, &format!("{name}-{app}"), 1, &[("app", app)], &[]);
    for (cluster, matches) in [("eu", 3), ("us", 5)] {
        let web = (0..matches).map(|number| with_app(&format!("a{number}"), "web"));
        let db = (0..9).map(|number| with_app(&format!("b{number}"), "db"));
        fill(&mut store, origin(cluster, &[], None), &[], web.chain(db).collect());
    }
    let snapshot = store.published().load_full();
    // One match more than the limit shows that there are more.
    let examined = |limit: usize, query: Query| {
        let answer = snapshot.answer(&query.limit(limit.try_into().unwrap())).unwrap();
        assert_eq!((answer.items.len(), answer.more), (limit, true));
        answer.examined
    };
    assert_eq!(examined(2, Query::by_labels("app=web".parse().unwrap())), 3);
    assert_eq!(examined(3, Query::by_labels("app=web".parse().unwrap())), 12 + 1);
    assert_eq!(examined(3, Query::by_labels("app=web".parse().unwrap()).in_pieces(2)), 12 + 1);
    assert_eq!(examined(13, Query::list()), 14);
}

#[test]
fn contradictory_query_is_refused() {
    let snapshot = of(names(1));
    let refused = |question: Question, why: &str| {
        let error = snapshot.answer(&Query::from(question)).unwrap_err();
        assert!(matches!(error, QueryError::Contradiction(_)) && error.to_string().contains(why), "{error}");
    };
    let sorted = Question::default().order_by(Column::Cluster, Direction::Ascending);
    refused(sorted.output(Output::Count), "an order applies to objects and columns");
    refused(Question::default().continue_at("AAAA"), "for the cache that issued it");
    let deep = (0..1_000).fold(Expr::All, |inner, _| Expr::Not(Box::new(inner)));
    let error = snapshot.answer(&Query::matching(deep)).unwrap_err();
    assert_eq!(error.to_string(), "the condition is nested more than 256 levels deep");
}

#[test]
fn lookup_considers_overlapping_informers_of_its_cluster() {
    let mut store = Store::new(pods());
    for cluster in 0..50 {
        let pod = object_with("shop", "web", "u", 1, &[], &[("by-node", &format!("n{cluster}"))]);
        fill(&mut store, origin(&format!("c{cluster}"), &[], None), &["by-node"], vec![pod]);
    }
    let newer = object_with("shop", "web", "u", 2, &[], &[("by-node", "elsewhere")]);
    fill(&mut store, origin("c7", &[], Some("shop")), &["by-node"], vec![newer]);
    let snapshot = store.published().load_full();
    let names = |value: &str| {
        let found = snapshot.find_by_index("by-node", value).unwrap();
        found.iter().map(|object| format!("{}@{}", object.cluster(), object.resource_version())).collect::<Vec<_>>()
    };
    assert_eq!(names("n8"), ["c8@1"]);
    assert_eq!(names("n7"), Vec::<String>::new(), "the newer state has another value");
    assert_eq!(names("elsewhere"), ["c7@2"]);
    assert!(matches!(snapshot.find_by_index("by-rack", "x"), Err(QueryError::UnknownIndex { .. })));
    let cluster = ClusterName::new("c7").unwrap();
    let key = ObjectKey::new("shop", "web");
    assert_eq!(snapshot.get(&cluster, &key).unwrap().resource_version().to_string(), "2");
    let id = snapshot.partitions().find(|(_, partition)| partition.origin().scope.namespace.is_some()).unwrap().0;
    store.close(id);
    assert_eq!(store.published().load().get(&cluster, &key).unwrap().resource_version().to_string(), "1");
    assert!(store.published().load().get(&ClusterName::new("none").unwrap(), &key).is_none());
}
