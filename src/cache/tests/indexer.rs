//! Tests of the indexer and of computed indices. Names of client-go's tests are cited.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::testing::{delta, object, object_with, origin, pods};
use crate::{DeltaFifo, IndexError, IndexFn, Indexer, Indexers, ObjectError, Query, QueryError, Store};
use informer_hub_types::{
    Change, ClusterName, DeltaKind, InformerHealth, LabelSelector, Object, ObjectKey, ResourceVersion, SharedStr,
    StoredObject,
};

/// Returns a pod without a namespace, with label `v`.
fn pod(name: &str, v: &str) -> StoredObject {
    object_with("", name, "u", 1, &[("v", v)], &[])
}

/// Returns an index of the comma-separated parts of label `v`, as in client-go's tests.
fn by_parts() -> IndexFn {
    IndexFn::new(|object| {
        let v = object.labels().get("v").ok_or_else(|| IndexError("it has no label v".to_owned()))?;
        Ok(v.split(',').map(SharedStr::from).collect())
    })
}

fn indexer() -> Indexer {
    let indexer = Indexer::new(pods());
    indexer.add_indexers(Indexers::new().with("by-parts", by_parts())).unwrap();
    indexer
}

fn names(objects: &[Object]) -> Vec<&str> {
    objects.iter().map(Object::name).collect()
}

fn carriers(indexer: &Indexer, value: &str) -> Vec<String> {
    let keys: Vec<_> =
        indexer.index_keys("by-parts", value).unwrap().iter().map(|key| key.as_str().to_owned()).collect();
    let found = indexer.by_index("by-parts", value).unwrap();
    assert_eq!(keys, names(&found));
    keys
}

fn values(indexer: &Indexer) -> Vec<String> {
    indexer.list_index_func_values("by-parts").unwrap().iter().map(ToString::to_string).collect()
}

#[test]
fn indexer_keeps_the_last_write_and_replace_removes_the_rest() {
    // TestCache
    let indexer = indexer();
    let of =
        |name: &str| indexer.get(&object("", name, "", 0)).map(|found| found.labels().get("v").unwrap().to_owned());
    indexer.add(pod("foo", "bar"));
    assert_eq!(of("foo").as_deref(), Some("bar"));
    indexer.update(Arc::new(pod("foo", "baz")));
    assert_eq!(of("foo").as_deref(), Some("baz"), "version and UID are equal");
    indexer.delete(&pod("foo", ""));
    assert_eq!(of("foo"), None);
    for (name, v) in [("c", "d"), ("a", "b"), ("e", "e")] {
        indexer.add(pod(name, v));
    }
    assert_eq!(names(&indexer.list()), ["a", "c", "e"]);
    assert_eq!(indexer.list_keys(), ["a", "c", "e"].map(|name| ObjectKey::new("", name)));
    let objects = [pod("foo", "first"), pod("a", "x"), pod("bar", "bar"), pod("foo", "foo")];
    indexer.replace(objects, ResourceVersion::new("0"));
    assert_eq!(names(&indexer.list()), ["a", "bar", "foo"]);
    assert_eq!(of("foo").as_deref(), Some("foo"));
    assert_eq!(values(&indexer), ["bar", "foo", "x"]);
    indexer.resync();
    assert_eq!(names(&indexer.list()), ["a", "bar", "foo"]);
}

#[test]
fn readers_do_not_wait_for_a_slow_write() {
    let indexer = Arc::new(Indexer::<Value>::new(pods()));
    indexer.add(object("", "a", "u", 1));
    let (reader, (asks, asked), (answers, answered)) = (Arc::downgrade(&indexer), channel(), channel());
    let thread = std::thread::spawn(move || {
        asked.recv().unwrap();
        let indexer: Arc<Indexer<Value>> = Weak::upgrade(&reader).unwrap();
        let version = indexer.resource_version().map(|version| version.to_string());
        answers.send((version, indexer.list().len(), indexer.get_indexers().len())).unwrap();
    });
    let (seen, shared) = (Arc::new(OnceLock::new()), Mutex::new((asks, answered)));
    let slot = Arc::clone(&seen);
    // Runs while the writer holds the store, and blocks it until the reader has its answer.
    let meanwhile = IndexFn::new(move |_| {
        let (asks, answered) = &*shared.lock();
        asks.send(()).unwrap();
        let _ = slot.set(answered.recv_timeout(Duration::from_secs(5)));
        Ok(Vec::new())
    });
    indexer.add_indexers(Indexers::new().with("meanwhile", meanwhile)).unwrap();
    thread.join().unwrap();
    assert_eq!(seen.get(), Some(&Ok((Some("1".to_owned()), 1, 0))));
    assert_eq!(indexer.get_indexers().len(), 1);
}

#[test]
fn indexer_ignores_versions_and_uids() {
    let indexer = indexer();
    indexer.add(object("ns", "a", "u", 9));
    indexer.add(object("ns", "a", "u", 3));
    assert_eq!(indexer.list()[0].resource_version().to_string(), "3");
    indexer.update(object("ns", "a", "v", 2));
    assert_eq!(indexer.list()[0].uid().to_string(), "v");
    indexer.delete(&object("ns", "a", "w", 1));
    assert!(indexer.list().is_empty());
}

#[test]
fn indexer_gets_by_textual_key() {
    let indexer = indexer();
    indexer.add(object("ns", "a", "u", 1));
    indexer.add(object("", "node", "u", 2));
    let version = |key: &str| indexer.get_by_key(key).unwrap().map(|found| found.resource_version().to_string());
    assert_eq!((version("ns/a").as_deref(), version("node").as_deref()), (Some("1"), Some("2")));
    assert_eq!((version("a"), version("ns/node"), version("ns/b"), version("")), (None, None, None, None));
    assert!(indexer.get_by_key("ns/a/b").unwrap_err().to_string().contains("\"ns/a/b\" is not a key"));
}

#[test]
fn indexer_finds_objects_with_the_values_of_an_unstored_one() {
    // TestIndex
    let indexer = indexer();
    for (name, v) in [("a", "b"), ("c", "b"), ("e", "f"), ("g", "h")] {
        indexer.add(pod(name, v));
    }
    let like = |v: &str| {
        let found = indexer.index("by-parts", &pod("other", v)).unwrap();
        found.iter().map(|object| object.name().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!((like("b"), like("f"), like("h")), (vec!["a".into(), "c".into()], vec!["e".into()], vec!["g".into()]));
    indexer.update(pod("e", "f,b"));
    assert_eq!(like("f,b,x"), ["a", "c", "e"], "no duplicates");
    assert!(like("x").is_empty());
    let error = indexer.index("by-parts", &object("ns", "bare", "u", 1)).unwrap_err();
    assert_eq!(error.to_string(), "index \"by-parts\" has no values for ns/bare");
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "it has no label v");
}

#[test]
fn indexer_drops_values_without_objects() {
    // TestThreadSafeStoreDeleteRemovesEmptySetsFromIndex, ...AddKeepsNonEmptySetPostDeleteFromIndex
    let indexer = indexer();
    indexer.add(pod("retain", "one"));
    indexer.add(pod("delete", "one,two"));
    assert_eq!(values(&indexer), ["one", "two"]);
    indexer.delete(&pod("delete", ""));
    assert_eq!((values(&indexer), carriers(&indexer, "one")), (vec!["one".into()], vec!["retain".to_owned()]));
    indexer.delete(&pod("retain", "two"));
    assert!(values(&indexer).is_empty());
}

#[test]
fn multi_value_index_stays_exact_over_updates() {
    // TestThreadSafeStoreIndexingFunctionsWithMultipleValues
    let indexer = indexer();
    let expect = |step: &str, foo: &[&str], bar: &[&str], baz: &[&str]| {
        let found = ["foo", "bar", "baz"].map(|value| carriers(&indexer, value));
        assert_eq!(
            found,
            [foo, bar, baz].map(|names| names.iter().map(ToString::to_string).collect::<Vec<_>>()),
            "{step}"
        );
    };
    indexer.add(pod("key1", "foo"));
    indexer.add(pod("key2", "bar"));
    expect("added", &["key1"], &["key2"], &[]);
    indexer.update(pod("key2", "foo,bar"));
    expect("key2 both", &["key1", "key2"], &["key2"], &[]);
    indexer.update(pod("key1", "foo,bar"));
    expect("key1 both", &["key1", "key2"], &["key1", "key2"], &[]);
    indexer.add(pod("key3", "foo,bar,baz,foo"));
    expect("key3 all", &["key1", "key2", "key3"], &["key1", "key2", "key3"], &["key3"]);
    indexer.update(pod("key1", "foo"));
    expect("key1 foo", &["key1", "key2", "key3"], &["key2", "key3"], &["key3"]);
    indexer.update(pod("key2", "bar"));
    expect("key2 bar", &["key1", "key3"], &["key2", "key3"], &["key3"]);
    indexer.delete(&pod("key1", ""));
    expect("no key1", &["key3"], &["key2", "key3"], &["key3"]);
    indexer.delete(&pod("key3", ""));
    expect("no key3", &[], &["key2"], &[]);
}

#[test]
fn indexer_lists_the_values_of_an_index() {
    // TestGetIndexFuncValues
    let indexer = indexer();
    for (name, v) in [("one", "bar"), ("two", "bar"), ("tre", "biz")] {
        indexer.add(pod(name, v));
    }
    assert_eq!(values(&indexer), ["bar", "biz"]);
    indexer.add(pod("four", ""));
    assert_eq!(values(&indexer), ["", "bar", "biz"], "the empty text is a value");
    assert_eq!(carriers(&indexer, ""), ["four"]);
}

#[test]
fn typed_index_function_returns_several_values() {
    // TestMultiIndexKeys
    let pod = |name: &str, users: &str| {
        Indexer::object_of(&json!({ "metadata": { "name": name, "annotations": { "users": users } } })).unwrap()
    };
    let by_user = IndexFn::typed(|pod: &Value| {
        pod["metadata"]["annotations"]["users"].as_str().unwrap().split(',').map(SharedStr::from).collect()
    });
    let indexer = Indexer::<Value>::new(pods());
    indexer.add_indexers([("by-user", by_user)].into_iter().collect()).unwrap();
    for (name, users) in [("one", "ernie,bert"), ("two", "bert,oscar"), ("tre", "ernie,elmo")] {
        indexer.add(pod(name, users));
    }
    let of = |user: &str| {
        let found = indexer.by_index("by-user", user).unwrap();
        found.iter().map(|pod| pod.decode().unwrap()["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    };
    let expect = |expected: &[(&str, &[&str])]| {
        for (user, names) in expected {
            let found: Vec<String> = of(user);
            assert_eq!(found, *names, "{user}");
        }
    };
    expect(&[("ernie", &["one", "tre"]), ("bert", &["one", "two"]), ("elmo", &["tre"]), ("oscar", &["two"])]);
    expect(&[("elmo1", &[])]);
    indexer.delete(&pod("tre", "ernie,elmo"));
    expect(&[("ernie", &["one"]), ("elmo", &[])]);
    indexer.update(pod("two", "oscar"));
    expect(&[("bert", &["one"]), ("oscar", &["two"])]);
}

#[test]
fn object_of_another_type_is_a_failure_that_does_not_quote_it() {
    let indexer: Indexer = Indexer::new(pods());
    let by_age = IndexFn::typed(|ages: &std::collections::BTreeMap<String, u8>| {
        ages.keys().map(|name| SharedStr::from(name.as_str())).collect()
    });
    indexer.add_indexers(Indexers::new().with("by-age", by_age)).unwrap();
    let secret = Indexer::object_of(&json!({ "metadata": { "name": "a" }, "data": "hunter2" })).unwrap();
    let error = indexer.index("by-age", &secret).unwrap_err();
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "cannot decode object a as the requested type");
    indexer.add(secret);
    assert_eq!(indexer.list().len(), 1);
    assert_eq!(indexer.reader().snapshot().index_failures("by-age"), 1);
}

#[test]
fn failing_index_function_omits_the_object_from_that_index_only() {
    let indexer = indexer();
    let moody = IndexFn::new(|object| match object.labels().get("v") {
        Some("boom") => std::panic::resume_unwind(Box::new("boom")),
        Some(v) => Ok(vec![v.into()]),
        None => Err(IndexError("none".to_owned())),
    });
    indexer.add_indexers(Indexers::new().with("moody", moody)).unwrap();
    let failures = || ["moody", "by-parts", "other"].map(|name| indexer.reader().snapshot().index_failures(name));
    indexer.add(pod("a", "x"));
    let before = indexer.reader().snapshot();
    indexer.add(pod("a", "boom"));
    assert_eq!((failures(), carriers(&indexer, "boom")), ([1, 0, 0], vec!["a".to_owned()]));
    assert!(indexer.list_index_func_values("moody").unwrap().is_empty(), "the old value is removed too");
    indexer.add(object("", "bare", "u", 1));
    assert_eq!(failures(), [2, 1, 0]);
    assert_eq!(before.index_failures("moody"), 2, "counted once for all snapshots");
    assert_eq!(names(&indexer.list()), ["a", "bare"]);
    indexer.update(pod("a", "y"));
    assert_eq!(names(&indexer.by_index("moody", "y").unwrap()), ["a"]);
    let error = indexer.index("moody", &pod("b", "boom")).unwrap_err();
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "the index function panicked");
    assert_eq!(failures(), [2, 1, 0], "a query is not counted");
}

#[test]
fn indices_are_added_atomically_over_existing_objects() {
    let indexer = Indexer::<Marker>::new(pods());
    indexer.add(pod("a", "x"));
    assert!(indexer.get_indexers().is_empty());
    let first = || IndexFn::new(|object| Ok(vec![object.key().name()[..1].into()]));
    indexer.add_indexers(Indexers::new().with("first", first()).with("parts", by_parts())).unwrap();
    assert_eq!(indexer.by_index("first", "a").unwrap().len(), 1);
    assert_eq!(indexer.by_index("parts", "x").unwrap().len(), 1);
    let more = ["parts", "another", "first"].map(|name| (name, first()));
    let error = indexer.add_indexers(more.into_iter().collect()).unwrap_err();
    assert_eq!(error.to_string(), "pods already has an index named first, parts: no index was added");
    let unknown = indexer.by_index("another", "a").unwrap_err();
    assert_eq!(unknown.to_string(), "no index \"another\" is declared for pods; declared: first, parts");
    for error in [
        indexer.index("another", &pod("a", "x")).map(|_| ()).unwrap_err(),
        indexer.index_keys("another", "a").map(|_| ()).unwrap_err(),
        indexer.list_index_func_values("another").map(|_| ()).unwrap_err(),
    ] {
        assert_eq!(error, unknown);
    }
    let indexers = indexer.get_indexers();
    assert_eq!((indexers.len(), indexers.is_empty()), (2, false));
    assert_eq!(indexers.names().collect::<Vec<_>>(), ["first", "parts"]);
    assert!(indexers.get("first").is_some() && indexers.get("another").is_none());
    let again = Indexer::<Value>::new(pods());
    again.add_indexers(indexers).unwrap();
    again.add(pod("b", "y"));
    assert_eq!(again.by_index("first", "b").unwrap().len(), 1, "the functions are copied");
}

/// A type parameter that is never decoded.
struct Marker;

#[test]
fn index_values_are_sorted_and_unique() {
    assert_eq!(by_parts().values(&pod("a", "y,x,,y,x")).unwrap(), ["", "x", "y"]);
}

#[test]
fn later_index_function_of_a_name_wins() {
    let fixed = |value: &'static str| IndexFn::new(move |_| Ok(vec![value.into()]));
    let indexer: Indexer = Indexer::new(pods());
    indexer.add_indexers(Indexers::new().with("x", fixed("1")).with("x", fixed("2"))).unwrap();
    indexer.add(pod("a", ""));
    assert_eq!(indexer.list_index_func_values("x").unwrap(), ["2"]);
}

#[test]
fn index_function_is_called_once_per_state() {
    let calls = Arc::new(AtomicU64::new(0));
    let counted = {
        let calls = Arc::clone(&calls);
        IndexFn::new(move |object| {
            calls.fetch_add(1, Relaxed);
            Ok(vec![object.resource_version().to_string().into()])
        })
    };
    let indexer: Indexer = Indexer::new(pods());
    indexer.add(object("", "a", "u", 1));
    indexer.add(object("", "b", "u", 1));
    indexer.add_indexers(Indexers::new().with("counted", counted)).unwrap();
    assert_eq!(calls.load(Relaxed), 2);
    indexer.update(object("", "a", "u", 2));
    assert_eq!(calls.load(Relaxed), 3);
    indexer.delete(&object("", "a", "u", 3));
    indexer.replace(Vec::<StoredObject>::new(), ResourceVersion::new("4"));
    let _ = (indexer.by_index("counted", "2"), indexer.list());
    assert_eq!(calls.load(Relaxed), 3);
}

#[test]
fn objects_share_the_text_of_a_value() {
    let seen = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let made = {
        let seen = Arc::clone(&seen);
        IndexFn::new(move |_| {
            let value = SharedStr::from("a value of its own".to_owned());
            seen.lock().push(value.clone());
            Ok(vec![value])
        })
    };
    let indexer: Indexer = Indexer::new(pods());
    indexer.add_indexers(Indexers::new().with("made", made)).unwrap();
    for name in ["a", "b", "c"] {
        indexer.add(object("", name, "u", 1));
    }
    let holders: Vec<_> = seen.lock().iter().map(|value| SharedStr::strong_count(value).unwrap()).collect();
    assert_eq!(holders, [5, 1, 1], "the first: this test, the index, and the stored values of three objects");
}

#[test]
fn indexer_version_is_that_of_the_last_write() {
    // TestThreadSafeStoreRV
    let indexer: Indexer = Indexer::new(pods());
    let version = || indexer.resource_version().map(|version| version.to_string());
    assert_eq!(version(), None);
    indexer.add(object("", "a", "u", 10));
    assert_eq!(version().as_deref(), Some("10"));
    indexer.update(object("", "a", "u", 8));
    assert_eq!(version().as_deref(), Some("8"));
    indexer.delete(&object("", "a", "u", 12));
    assert_eq!(version().as_deref(), Some("12"));
    indexer.replace([object("", "b", "u", 3)], ResourceVersion::new("20"));
    assert_eq!(version().as_deref(), Some("20"));
}

#[test]
fn object_without_a_version_keeps_the_indexer_version() {
    // TestThreadSafeStoreRV: an object without metadata, and a deletion without an object.
    let indexer: Indexer = Indexer::new(pods());
    let version = || indexer.resource_version().map(|version| version.to_string());
    let bare = |name: &str| Indexer::object_of(&json!({ "metadata": { "name": name } })).unwrap();
    indexer.add(bare("first"));
    assert_eq!(version(), None);
    indexer.add(object("", "a", "u", 10));
    indexer.add(object("", "b", "u", 10));
    assert_eq!(version().as_deref(), Some("10"));
    indexer.add(bare("c"));
    indexer.delete(&bare("a"));
    assert_eq!((version().as_deref(), indexer.list().len()), (Some("10"), 3));
    for (at, expected) in [(40, "40"), (30, "30"), (50, "50")] {
        indexer.update(object("", "d", "u", at));
        assert_eq!(version().as_deref(), Some(expected));
    }
}

#[test]
fn every_write_publishes_a_snapshot_and_reads_do_not() {
    // TestUpdateCallsPush, TestDeleteCallsPush, TestReplaceCallsPush, TestReadsDoNotCallPush
    let indexer = indexer();
    let mut last = indexer.reader().snapshot();
    let mut expect = |write: &str, expected: &[&str]| {
        let now = indexer.reader().snapshot();
        assert!(!Arc::ptr_eq(&last, &now), "{write}");
        let objects = now.partitions().flat_map(|(_, partition)| partition.iter());
        let found: Vec<_> =
            objects.map(|object| format!("{}@{}", object.key().name(), object.resource_version())).collect();
        assert_eq!(found, expected, "{write}");
        last = now;
    };
    indexer.add(object("", "a", "u", 2));
    expect("an addition", &["a@2"]);
    indexer.update(object("", "a", "u", 1));
    expect("an update", &["a@1"]);
    indexer.add(object("", "b", "u", 3));
    expect("another addition", &["a@1", "b@3"]);
    indexer.delete(&object("", "a", "u", 4));
    expect("a deletion", &["b@3"]);
    indexer.replace([object("", "c", "u", 5)], ResourceVersion::new("6"));
    expect("a replacement", &["c@5"]);
    let before = indexer.reader().snapshot();
    let _ = (indexer.list(), indexer.list_keys(), indexer.get(&object("", "c", "u", 5)), indexer.get_by_key("c"));
    let _ = (indexer.by_index("by-parts", "x"), indexer.index_keys("by-parts", "x"), indexer.resource_version());
    assert!(Arc::ptr_eq(&before, &indexer.reader().snapshot()));
}

#[test]
fn object_of_converts_any_json_value_with_metadata() {
    let whole = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "a", "namespace": "ns", "uid": "u-1", "resourceVersion": "7",
            "labels": { "b": "2", "a": "1" }, "annotations": { "x": "y" },
        },
    });
    let object = Indexer::object_of(&whole).unwrap();
    assert_eq!((object.key().as_str(), object.resource_version().to_string()), ("ns/a", "7".into()));
    assert_eq!(
        (object.uid().to_string(), object.labels().iter().collect::<Vec<_>>()),
        ("u-1".into(), vec![("a", "1"), ("b", "2")])
    );
    assert_eq!(object.typed::<Value>().unwrap(), whole);
    let bare = Indexer::object_of(&json!({ "metadata": { "name": "node", "labels": null } })).unwrap();
    assert_eq!((bare.key().as_str(), bare.resource_version().to_string()), ("node", String::new()));
    assert!(bare.uid().is_empty() && bare.labels().is_empty() && bare.index_values().is_empty());
    for value in
        [json!({ "metadata": {} }), json!({ "metadata": { "name": "" } }), json!({ "metadata": { "name": null } })]
    {
        assert!(matches!(Indexer::object_of(&value), Err(ObjectError::NoName)), "{value}");
    }
    for value in [json!({}), json!("x"), json!({ "metadata": { "name": 7 } })] {
        assert!(matches!(Indexer::object_of(&value), Err(ObjectError::NoMetadata)), "{value}");
    }
    let keyed_by_tuple = std::collections::BTreeMap::from([((1, 2), 3)]);
    assert!(matches!(Indexer::object_of(&keyed_by_tuple), Err(ObjectError::NoJson(_))));
}

#[test]
fn indexer_objects_have_its_cluster_and_answers_are_complete() {
    let indexer = indexer();
    indexer.add(pod("a", "x"));
    assert_eq!(indexer.list()[0].cluster().as_str(), "local");
    assert!(indexer.reader().snapshot().answer(&Query::list()).unwrap().is_complete());
    let eu = ClusterName::new("eu").unwrap();
    let indexer: Indexer = Indexer::of_cluster(eu.clone(), pods());
    indexer.add(object("ns", "a", "u", 1));
    assert_eq!(indexer.list()[0].cluster(), &eu);
    assert!(indexer.get(&object("ns", "a", "", 0)).is_some());
    assert!(indexer.lister().get(&eu, "ns", "a").is_ok());
}

#[test]
fn indexer_supports_concurrent_writes_and_reads() {
    let indexer = Arc::new(indexer());
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let indexer = Arc::clone(&indexer);
            scope.spawn(move || {
                for at in 0..50 {
                    indexer.add(pod(&format!("{thread}-{at}"), "even,odd"));
                    let found = indexer.by_index("by-parts", "odd").unwrap();
                    let mine = found.iter().filter(|pod| pod.name().starts_with(&format!("{thread}-"))).count();
                    assert_eq!(mine, at / 2 + 1 + at % 2, "a thread reads its own writes");
                    if at % 2 == 1 {
                        indexer.delete(&pod(&format!("{thread}-{at}"), ""));
                    }
                }
            });
        }
    });
    assert_eq!((indexer.list().len(), carriers(&indexer, "even").len()), (100, 100));
}

/// Returns a store of two informers, the first of which declares `by-node`.
fn fleet() -> Store {
    let mut store = Store::new(pods());
    for (cluster, declared) in [("c", vec!["by-node".into()]), ("d", vec![])] {
        let entries: &[_] = if declared.is_empty() { &[] } else { &[("by-node", "n1")] };
        let id = store.open(origin(cluster), InformerHealth::new(), declared);
        let mut fifo = DeltaFifo::new(usize::MAX);
        fifo.push(Change::Delta(delta(DeltaKind::Added, object_with("ns", "a", "u", 1, &[("v", "x")], entries))));
        store.apply(id, fifo.pop(usize::MAX)).unwrap();
    }
    store
}

fn clusters_of(store: &Store, index: &str, value: &str) -> Vec<String> {
    let answer = store.published().load().answer(&Query::by_index(index, value)).unwrap();
    answer.items.iter().map(|object| object.cluster().to_string()).collect()
}

#[test]
fn declared_name_is_taken_and_a_computed_index_covers_every_informer() {
    let mut store = fleet();
    let error = store.add_indexers(Indexers::new().with("by-node", by_parts()).with("p", by_parts())).unwrap_err();
    assert_eq!(error.names, ["by-node"]);
    assert_eq!(store.published().load().index_names(), ["by-node"]);
    store.add_indexers(Indexers::new().with("p", by_parts())).unwrap();
    assert_eq!(store.published().load().index_names(), ["by-node", "p"]);
    assert_eq!(
        (clusters_of(&store, "p", "x"), clusters_of(&store, "by-node", "n1")),
        (vec!["c".into(), "d".into()], vec!["c".to_owned()])
    );
    let snapshot = store.published().load_full();
    let missing = |index: &str| {
        let answer = snapshot.answer(&Query::by_index(index, "")).unwrap();
        answer.coverage.iter().filter(|part| part.freshness == informer_hub_types::Freshness::Missing).count()
    };
    assert_eq!((missing("p"), missing("by-node")), (2, 2), "none has synced");
    for (_, partition) in snapshot.partitions() {
        assert!(snapshot.has_index(partition, "p") && !partition.declares("p"));
        assert_eq!(snapshot.has_index(partition, "by-node"), partition.declares("by-node"));
    }
}

#[test]
fn removing_a_computed_index_keeps_declared_ones() {
    let mut store = fleet();
    store.add_indexers(Indexers::new().with("p", by_parts())).unwrap();
    let before = store.published().load_full();
    assert!(!store.remove_indexer("by-node") && !store.remove_indexer("q"));
    assert!(Arc::ptr_eq(&before, &store.published().load_full()), "nothing to publish");
    assert!(store.remove_indexer("p"));
    assert!(!store.remove_indexer("p"));
    assert_eq!(store.published().load().index_names(), ["by-node"]);
    assert_eq!(clusters_of(&store, "by-node", "n1"), ["c"]);
    let gone = store.published().load().answer(&Query::by_index("p", "x")).unwrap_err();
    assert!(matches!(gone, QueryError::UnknownIndex { known, .. } if known == ["by-node"]));
    assert_eq!(before.by_index("p", "x").count(), 2, "an old snapshot keeps it");
    store.add_indexers(Indexers::new().with("p", by_parts())).unwrap();
    assert_eq!(clusters_of(&store, "p", "x"), ["c", "d"]);
}

#[test]
fn computed_index_takes_precedence_over_a_declared_one() {
    let mut store = fleet();
    store.add_indexers(Indexers::new().with("p", by_parts())).unwrap();
    let id = store.open(origin("e"), InformerHealth::new(), vec!["p".into()]);
    let mut fifo = DeltaFifo::new(usize::MAX);
    let declares = object_with("ns", "a", "u", 1, &[("v", "y")], &[("p", "declared")]);
    fifo.push(Change::Delta(delta(DeltaKind::Added, declares)));
    store.apply(id, fifo.pop(usize::MAX)).unwrap();
    assert_eq!((clusters_of(&store, "p", "y"), clusters_of(&store, "p", "declared")), (vec!["e".to_owned()], vec![]));
    store.remove_indexer("p");
    assert_eq!((clusters_of(&store, "p", "y"), clusters_of(&store, "p", "declared")), (vec![], vec!["e".to_owned()]));
}

#[test]
fn debug_output_has_the_resource_and_no_objects() {
    let indexer = indexer();
    indexer.add(pod("secret-name", "x"));
    let lister = indexer.lister();
    let texts = [
        format!("{indexer:?}"),
        format!("{:?}", indexer.reader().clone()),
        format!("{:?}", lister.clone()),
        format!("{:?}", lister.namespace("shop").clone()),
    ];
    let inner = r#"IndexReader { resource: "pods", clusters: All, scope: None, only: None }"#;
    let expected = [
        format!("Indexer({inner})"),
        inner.to_owned(),
        format!("Lister({inner})"),
        format!("NamespaceLister({inner}, \"shop\")"),
    ];
    assert_eq!(texts, expected);
    assert_eq!(format!("{:?}", indexer.get_indexers()), r#"Indexers({"by-parts": IndexFn})"#);
    let all: BTreeSet<_> = lister.list(&LabelSelector::everything()).iter().map(|pod| pod.name().to_owned()).collect();
    assert_eq!(all, BTreeSet::from(["secret-name".to_owned()]));
}
