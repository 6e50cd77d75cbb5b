//! Tests of filter results, error texts and evaluation cost.

use super::super::event::tests::{added, pod, secret, updated};
use super::super::redact::Redaction;
use super::*;

fn passes(filter: &str, notification: &Notification) -> Result<bool, String> {
    Filter::compile(filter).unwrap().passes(notification, &Redaction::default())
}

#[test]
fn filter_reads_object_old_object_cluster_and_event() {
    let update = updated(pod("web", "1", "Pending"), pod("web", "2", "Failed"));
    for yes in [
        "object.status.phase == 'Failed'",
        "oldObject.status.phase != object.status.phase",
        "cluster.name == 'prod-eu' && cluster.labels.tier == 'prod'",
        "event.type == 'updated' && !event.initial && !event.tombstone",
        "object.spec.containers.exists(c, c.image.startsWith('web:'))",
        "!has(object.metadata.annotations)",
    ] {
        assert_eq!(passes(yes, &update), Ok(true), "{yes}");
    }
    assert_eq!(passes("object.status.phase == 'Running'", &update), Ok(false));
    assert_eq!(passes("oldObject == null && event.initial", &added(pod("web", "1", "Failed"), true)), Ok(true));
}

#[test]
fn evaluation_error_has_a_reason_without_values() {
    let add = added(pod("web", "1", "hunter2"), false);
    let error = passes("object.status.nothing == 1", &add).unwrap_err();
    assert!(error.contains("nothing"), "{error}");
    for filter in ["object.status.phase / 2 == 1", "object.status.phase > 1", "object.status.phase", "1 / 0 == 1"] {
        let error = passes(filter, &add).unwrap_err();
        assert!(!error.contains("hunter2"), "{error}");
    }
}

#[test]
fn filter_reads_secrets_redacted() {
    assert_eq!(passes("object.data.password == '<redacted>'", &added(secret("1"), false)), Ok(true));
}

#[test]
fn compile_error_has_line_and_column() {
    let error = Filter::compile("object.status.phase ==\n 'Failed' &&").unwrap_err();
    assert_eq!((error.line, error.column), (2, 13), "{error}");
    let error = Filter::compile("event.initial ||\n  pod.status == 1").unwrap_err();
    assert!(error.problem.contains("unknown variable \"pod\""), "{error}");
    assert_eq!((error.line, error.column), (2, 3), "{error}");
    assert!(Filter::compile("[1].exists(c, c == 1) && c == 1").is_err());
    assert!(Filter::compile("type(object) == map").is_ok());
    assert!(Filter::compile("").is_err());
}

#[test]
fn hostile_expressions_do_not_overflow_a_small_stack() {
    let mut hostile = vec!["a".repeat(MAX_LENGTH + 1)];
    for n in [MAX_BRACKETS, MAX_DEPTH, 100, 1000] {
        hostile.extend([
            format!("{}1{}", "(".repeat(n), ")".repeat(n)),
            format!("{}1{}", "[".repeat(n), "]".repeat(n)),
            format!("{}1{}", "{1:".repeat(n), "}".repeat(n)),
            format!("{}1{}", "size(".repeat(n), ")".repeat(n)),
            format!("{}1", "true?1:".repeat(n)),
            format!("{}true", "!".repeat(n)),
            format!("1{} == 1", "+1".repeat(n)),
            format!("true{}", " && true".repeat(n)),
            format!("object{}", "[0]".repeat(n)),
            format!("object{}", ".a".repeat(n)),
            format!("object{}", ".a()".repeat(n)),
        ]);
    }
    let inside = (0..20).fold("true".to_owned(), |inside, i| format!("[1].all(x{i}, {inside})"));
    hostile.push(inside);
    // An actor's stack, minus the part used by the actor itself.
    let thread = std::thread::Builder::new().stack_size(3 * 512 * 1024).spawn(move || {
        let add = added(pod("web", "1", "Failed"), false);
        let compiled = hostile.iter().filter_map(|text| Filter::compile(text).ok());
        compiled.map(|filter| filter.passes(&add, &Redaction::default())).filter(Result::is_err).count()
    });
    assert!(thread.unwrap().join().unwrap() > 0);
}

#[test]
fn loops_nest_at_most_twice() {
    assert!(Filter::compile("[1].all(x, [2].all(y, x < y))").is_ok());
    assert!(Filter::compile("[1].all(x, [2].all(y, [3].all(z, x < y)))").is_err());
}

/// Evaluates an expression on an object. Returns the result, and the time that the evaluation took.
fn evaluate(text: &str, object: serde_json::Value) -> (Result<bool, String>, std::time::Duration) {
    let filter = Filter::compile(text).unwrap();
    let variables = [object, serde_json::Value::Null, serde_json::Value::Null, serde_json::Value::Null];
    let start = informer_hub_types::clock::now();
    let found = filter.evaluate(&variables);
    (found, informer_hub_types::clock::now().duration_since(start))
}

#[test]
fn charges_do_not_change_results() {
    let object = serde_json::json!({
        "n": 3, "f": 1.5, "big": u64::MAX, "text": "hello world", "none": null, "yes": true,
        "list": [1, 2, 3], "names": ["a", "b"], "map": {"a": 1, "b": {"c": [1, {"d": "e"}]}},
        "items": [{"k": "a", "v": 1}, {"k": "b", "v": 2}, {"k": "c"}],
    });
    for text in [
        "object.n + 1 == 4 && object.f < 2.0 && object.big == 18446744073709551615u",
        "object.text.startsWith('hello') && object.text.endsWith('world') && object.text.contains('o w')",
        "object.text.matches('^hel+o') && matches(object.text, 'w.rld$') && !object.text.matches('^world')",
        "size(object.text) == 11 && object.list.size() == 3 && size(object.map) == 2",
        "object.list.map(x, x * 2) == [2, 4, 6] && object.list.map(x, x > 1, x) == [2, 3]",
        "object.list.filter(x, x > 1) == [2, 3] && object.list.exists_one(x, x == 2)",
        "object.items.all(x, has(x.k)) && object.items.exists(x, x.v == 2) && !object.items.all(x, has(x.v))",
        "object.items.exists(x, x.v == 2) || object.nothing",
        "object.map.all(k, k in ['a', 'b']) && 'a' in object.map && !('z' in object.names)",
        "object.map.b.c[1].d == 'e' && object['map']['a'] == 1 && object.list[object.list[0]] == 2",
        "object == object && object.map != object.list && [object.n, 1] == [3, 1] && {'a': object.n} == {'a': 3}",
        "(object.yes ? object.names : object.list) == ['a', 'b'] && object.none == null && !has(object.nothing)",
        "object.items.exists(x, object.list.exists(y, has(x.v) && x.v == y))",
        "string(object.n) == '3' && int('7') == 7 && type(object.map) == map && dyn(object.n) == 3",
        "timestamp('2024-01-01T00:00:00Z') < timestamp('2024-01-02T00:00:00Z') && duration('1h') > duration('1m')",
        "object.text + '!' == 'hello world!' && object.list + [4] == [1, 2, 3, 4]",
    ] {
        assert_eq!(evaluate(text, object.clone()).0, Ok(true), "{text}");
    }
}

#[test]
fn matches_pattern_must_be_a_valid_literal() {
    for (text, problem) in [
        ("object.a.matches(object.b)", "must be a text in quotes"),
        ("object.a.matches('(')", "not a pattern: unclosed group"),
        ("object.a.matches('(a{1000}){1000}')", "too large"),
        ("object.a.matches('a', 'b')", "takes a text and a pattern"),
    ] {
        let error = Filter::compile(text).unwrap_err();
        assert!(error.problem.contains(problem), "{error}");
    }
    assert_eq!(Filter::compile("true &&\n object.a.matches('(')").unwrap_err().line, 2);
    let (found, _) = evaluate("object.a.matches('a')", serde_json::json!({"a": 1}));
    assert_eq!(found, Err("function matches failed".to_owned()));
}

/// Returns an object of about `bytes` bytes as JSON, with the members whose evaluation costs most: long lists, a large
/// map and a long text.
fn large(bytes: usize) -> serde_json::Value {
    let n = bytes / 4;
    serde_json::json!({
        "ints": (0..n / 4).collect::<Vec<_>>(),
        "maps": (0..n / 16).map(|i| serde_json::json!({"k": i.to_string()})).collect::<Vec<_>>(),
        "keys": (0..n / 12).map(|i| (i.to_string(), i.into())).collect::<serde_json::Map<_, _>>(),
        "text": "ab ".repeat(n / 3),
    })
}

#[test]
fn expensive_evaluation_exceeds_the_budget() {
    let object = large(4 << 20);
    for text in [
        "object == object && object == object",
        "object.maps.all(x, object.maps.all(y, x != y))",
        "object.ints.all(x, object.ints.exists(y, x == y))",
        "object.keys.all(k, object.keys.all(l, object.keys[k] != object.keys[l]))",
        "object.ints.all(x, x in object.ints)",
        "object.ints.map(x, object.maps).size() > 1",
        "object.ints.map(x, [object.maps, object.maps]).size() > 1",
        "object.ints.all(x, true || object)",
        "object.ints.exists(x, object.text.contains('zz'))",
        "object.ints.exists(x, size(object.text + object.text) == x)",
        "object.ints.exists(x, object.text.matches('(a|b|ab)*( a| b)*c'))",
        "object.ints.exists(x, object.maps < object.maps)",
        "object.ints.exists(x, object.maps[1.5])",
        "object.ints.exists(x, [1, 2].exists(y, object.maps == object.maps)) || true",
    ] {
        let (found, took) = evaluate(text, object.clone());
        assert!(found.as_ref().is_err_and(|error| error.contains("exceeds its budget")), "{text}: {found:?}");
        // Includes decoding the object. A release build takes a tenth of this limit.
        assert!(took.as_secs() < 20, "{text}: {took:?}");
    }
    for text in
        ["object.text.startsWith('ab')", "object.keys['17'] == 17", "'17' in object.keys", "size(object.text) > 1"]
    {
        assert_eq!(evaluate(text, object.clone()).0, Ok(true), "{text}");
    }
}

#[test]
fn each_evaluation_has_the_same_budget() {
    let filter = Filter::compile("object.list.exists(x, x.name == 'nobody')").unwrap();
    let list = (0..50).map(|i| serde_json::json!({"name": format!("name-{i}"), "value": i})).collect::<Vec<_>>();
    let null = serde_json::Value::Null;
    let variables = [serde_json::json!({ "list": list }), null.clone(), null.clone(), null];
    for _ in 0..10_000 {
        assert_eq!(filter.evaluate(&variables), Ok(false));
    }
}
