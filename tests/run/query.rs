//! Tests of `query` against a running hub.

use serde_json::{Value, json};

use crate::client::Fleet;

fn lines(text: &str) -> Vec<String> {
    text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_output_of_the_language_has_its_table() {
    let fleet = Fleet::start("").await;
    for (text, rows) in [
        (
            "name = web-0 order by cluster",
            &[
                "CLUSTER NAMESPACE NAME READY STATUS RESTARTS AGE",
                "dev web web-0 0/1 ImagePullBackOff 0 3d12h",
                "prod-us web web-0 1/1 Running 1 3d12h",
            ][..],
        ),
        (
            "status.containerStatuses[*].restartCount > 5 select cluster, name, status.containerStatuses[*].restartCount",
            &["CLUSTER NAME RESTARTCOUNT", "dev web-9 7", "prod-eu payments-api-7d9c5b8f64-zl2mw 41"],
        ),
        ("count by cluster", &["CLUSTER COUNT", "dev 3", "prod-eu 3", "prod-us 1"]),
        ("distinct namespace", &["NAMESPACE", "checkout", "kube-system", "web"]),
        ("count", &["COUNT", "7"]),
    ] {
        let found = fleet.run(&["query", text]);
        let mut sorted = lines(&found.out);
        sorted[1..].sort();
        assert_eq!((found.code, found.err.as_str()), (0, ""), "{text}");
        assert_eq!(sorted, rows, "{text}");
    }
    let names = fleet.run(&["query", "name", "=", "web-0", "-o", "name", "--clusters", "tier=prod"]);
    assert_eq!(names.out, "pod/web-0\n", "{names:?}");
    let csv = fleet.run(&["query", "select cluster, spec.containers[*].image limit 1", "-o", "csv"]);
    let (title, rest) = csv.out.split_once("\r\n").unwrap();
    assert_eq!(title, "cluster,spec.containers[*].image");
    assert!(rest.ends_with(",registry.example.com/web:1.27\r\n"), "{csv:?}");
    assert!(csv.err.starts_with("informer-hub: there are more results: query again with --continue "), "{csv:?}");
    let token = csv.err.trim().rsplit(' ').next().unwrap();
    let rest = fleet.run(&[
        "query",
        "select cluster, spec.containers[*].image",
        "--continue",
        token,
        "-o",
        "csv",
        "--no-headers",
    ]);
    assert_eq!(rest.out.lines().count(), 6, "{rest:?}");
    let nodes: Value = serde_json::from_str(&fleet.run(&["query", "-r", "no", "count", "-o", "json"]).out).unwrap();
    assert_eq!((&nodes["count"], &nodes["resource"], &nodes["complete"]), (&json!(9), &json!("nodes"), &json!(true)));
    let path = fleet.run(&["query", "count by cluster", "-o", "jsonpath={.groups[?(@.value==\"dev\")].count}"]);
    assert_eq!(path.out, "3", "{path:?}");
    let none = fleet.run(&["query", "status.phse = Running"]);
    assert_eq!((none.code, none.out.as_str()), (0, ""));
    assert_eq!(
        none.err,
        "informer-hub: no pods match\ninformer-hub: no examined object has status.phse; check the spelling\n"
    );
    let name = fleet.run(&["query", "uid = web-0"]);
    let hint = "\"web-0\" does not have the form of a uid; a condition on a name is name = web-0\n";
    assert!(name.code == 0 && name.err.ends_with(hint), "{name:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mistakes_point_at_their_position_and_plans_are_readable() {
    let fleet = Fleet::start("").await;
    let wrong = fleet.run(&["query", "namespace = shop lmit 5"]);
    assert_eq!((wrong.code, wrong.out.as_str()), (2, ""));
    let mark = "\n  namespace = shop lmit 5\n                   ^\n";
    assert!(wrong.err.contains("did you mean \"limit\"?") && wrong.err.ends_with(mark), "{}", wrong.err);
    for (arguments, code, text) in [
        (&["query", "index nope = 1"][..], 2, "no index \"nope\" is declared for pods"),
        (&["query", "count", "-r", "podz"], 1, "did you mean \"pods\"?"),
        (&["query", "count", "-o", "name"], 2, "-o name prints objects"),
        (&["query", "limit 1", "--limit", "2"], 2, "limit is given twice"),
        (&["query", "count", "--continue", "abc"], 2, "the continue token was not issued by this process"),
        (&["query", "count", "--timeout", "1h"], 2, "expected 1ms to 25s"),
    ] {
        let found = fleet.run(arguments);
        assert!(found.code == code && found.err.contains(text) && found.out.is_empty(), "{arguments:?}: {found:?}");
    }
    let plan = fleet.run(&["query", "namespace = web and name = web-0 and spec.nodeName = node-0", "--explain"]);
    let expected = "Plan for pods in 3 clusters:\n  1. candidates: key web/web-0\n  2. examined: about 3 objects\n";
    assert!(plan.out.starts_with(expected) && plan.code == 0, "{plan:?}");
}
