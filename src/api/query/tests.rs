//! Queries over HTTP against two clusters in memory.

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use serde_json::{Value, json};

use crate::api::ReadApiOptions;
use crate::api::kubernetes::tests::{Bench, pod, pods};
use informer_hub_types::{ApiResource, Gvr};

const JSON: &str = "application/json";

/// Pods `x` on node n1 and `y` on node n2, in namespace `shop` of the clusters `a` (tier prod) and `b` (tier dev).
fn bench() -> Bench {
    Bench::with_pods()
}

fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |text, byte| text + &format!("%{byte:02X}"))
}

/// Sends a query as `GET`; returns code, content type and text.
async fn get(bench: &Bench, query: &str, rest: &str, accept: &str) -> (u16, String, String) {
    let path = format!("/v1/query?q={}{rest}", encoded(query));
    let (status, headers, body) = bench.ask(&path, accept).await;
    let content_type = headers["content-type"].to_str().unwrap().to_owned();
    (status.as_u16(), content_type, String::from_utf8(body.to_vec()).unwrap())
}

async fn json_of(bench: &Bench, query: &str, rest: &str) -> (u16, Value) {
    let (code, content_type, text) = get(bench, query, rest, JSON).await;
    assert_eq!(content_type, JSON, "{text}");
    (code, serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}")))
}

#[tokio::test]
async fn objects_are_listed_with_their_clusters_and_the_plan() {
    let (code, answer) = json_of(&bench(), "spec.nodeName = n1", "&resource=pods").await;
    assert_eq!(code, 200, "{answer}");
    let found: Vec<_> =
        answer["items"].as_array().unwrap().iter().map(|item| &item["object"]["spec"]["nodeName"]).collect();
    assert_eq!(found, ["n1", "n1"]);
    assert_eq!(
        (&answer["items"][1]["cluster"], &answer["items"][1]["object"]["metadata"]["name"]),
        (&json!("b"), &json!("x"))
    );
    let head = ["resource", "apiVersion", "kind", "more"].map(|member| answer[member].to_string());
    assert_eq!(head, ["\"pods\"", "\"v1\"", "\"Pod\"", "false"]);
    assert_eq!(answer["cost"], json!({ "examined": 4, "read": 4 }));
    assert!(answer["plan"].as_str().unwrap().starts_with("all objects"), "{answer}");
    assert_eq!(answer["coverage"]["clusters"], 2);
    assert_eq!(answer["coverage"]["missing"], json!(["a", "b"]), "the informers of the test have no watches");
    let (_, answer) = json_of(&bench(), "select cluster, name limit 1", "&resource=pods").await;
    assert_eq!((&answer["columns"], &answer["rows"]), (&json!(["cluster", "metadata.name"]), &json!([["a", "x"]])));
}

#[tokio::test]
async fn each_output_has_its_member_in_json_and_its_cells_in_text() {
    let bench = bench();
    for (query, member, expected, lines, csv, text) in [
        (
            "cluster = a",
            "",
            json!(null),
            "",
            "cluster,namespace,name\r\na,shop,x\r\na,shop,y\r\n",
            "CLUSTER   NAMESPACE   NAME\na         shop        x\na         shop        y\n",
        ),
        (
            "name = x select cluster, spec.containers[*].image, status.none",
            "rows",
            json!([["a", "i", null], ["b", "i", null]]),
            "{\"cluster\":\"a\",\"spec.containers[*].image\":\"i\",\"status.none\":null}\n\
             {\"cluster\":\"b\",\"spec.containers[*].image\":\"i\",\"status.none\":null}\n",
            "cluster,spec.containers[*].image,status.none\r\na,i,\r\nb,i,\r\n",
            "CLUSTER   SPEC.CONTAINERS[*].IMAGE   STATUS.NONE\na         i\nb         i\n",
        ),
        ("count", "count", json!(4), "{\"count\":4}\n", "count\r\n4\r\n", "COUNT\n4\n"),
        (
            "count by spec.nodeName",
            "groups",
            json!([{ "value": "n1", "count": 2 }, { "value": "n2", "count": 2 }]),
            "{\"count\":2,\"value\":\"n1\"}\n{\"count\":2,\"value\":\"n2\"}\n",
            "spec.nodeName,count\r\nn1,2\r\nn2,2\r\n",
            "SPEC.NODENAME   COUNT\nn1              2\nn2              2\n",
        ),
        (
            "distinct spec.nodeName",
            "values",
            json!(["n1", "n2"]),
            "{\"value\":\"n1\"}\n{\"value\":\"n2\"}\n",
            "spec.nodeName\r\nn1\r\nn2\r\n",
            "SPEC.NODENAME\nn1\nn2\n",
        ),
    ] {
        let pods = "&resource=pods";
        if !member.is_empty() {
            assert_eq!(json_of(&bench, query, pods).await.1[member], expected, "{query}");
            assert_eq!(get(&bench, query, pods, "application/x-ndjson").await.2, lines, "{query}");
        }
        let (_, content_type, found) = get(&bench, query, pods, "text/csv").await;
        assert_eq!((content_type.as_str(), found.as_str()), ("text/csv; charset=utf-8", csv), "{query}");
        let (_, content_type, found) = get(&bench, query, pods, "text/html, text/plain;q=0.5").await;
        assert_eq!((content_type.as_str(), found.as_str()), ("text/plain; charset=utf-8", text), "{query}");
    }
}

#[tokio::test]
async fn request_may_be_a_body_and_select_clusters() {
    let bench = bench();
    for (clusters, expected) in [("a", 2), ("tier=dev", 2), ("tier in (dev,prod)", 4), ("tier=none", 0), ("*", 4)] {
        let body = json!({ "resource": "Pod", "q": "count", "clusters": clusters, "timeout": "5s" });
        let request = Request::post("/v1/query").body(Body::from(body.to_string())).unwrap();
        let response = bench.send(request).await;
        assert_eq!(response.status(), StatusCode::OK);
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        let answer: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(answer["count"], expected, "{clusters}");
    }
}

#[tokio::test]
async fn explained_query_is_not_run() {
    let (code, answer) = json_of(&bench(), "namespace = shop and name = x", "&resource=pods&explain=true").await;
    assert_eq!((code, &answer["steps"]), (200, &json!(["key shop/x"])), "{answer}");
    assert!(answer.get("items").is_none() && answer.get("cost").is_none(), "{answer}");
}

#[tokio::test]
async fn limit_beside_the_text_limits_and_says_so() {
    let (_, answer) = json_of(&bench(), "order by metadata.name", "&resource=v1.pods&limit=1").await;
    assert_eq!(answer["error"], "the hub has no resource \"v1.pods\"; it has: pods");
    let (_, answer) = json_of(&bench(), "order by metadata.name", "&resource=pods.v1.&limit=1").await;
    assert_eq!((answer["items"].as_array().unwrap().len(), &answer["more"]), (1, &json!(true)), "{answer}");
}

#[tokio::test]
async fn mistakes_say_what_where_and_what_would_be_right() {
    let bench = bench();
    for (query, rest, code, error) in [
        (
            "namespce = shop",
            "&resource=pods",
            400,
            "expected a condition, found \"namespce\"; did you mean \"namespace\"? (at position 1)",
        ),
        ("", "", 400, "resource is missing; write e.g. resource=pods"),
        ("", "&resource=podz", 404, "the hub has no resource \"podz\"; did you mean \"pods\"? It has: pods"),
        ("", "&resource=pods&clusters=aa", 404, "the hub has no cluster \"aa\"; did you mean \"a\"?"),
        ("", "&resource=pods&clusters=tier=", 200, ""),
        ("", "&resource=pods&clusters=,", 400, "clusters: \",\" is neither a cluster's name nor a label selector"),
        ("limit 1", "&resource=pods&limit=2", 400, "limit is given twice: in q and outside q; keep one of them"),
        ("", "&resource=pods&limit=0", 400, "limit is not a positive integer"),
        ("", "&resource=pods&limits=1", 400, "unknown parameter \"limits\"; did you mean \"limit\"?"),
        ("", "&resource=pods&timeout=1", 400, "timeout: \"1\" is not a duration"),
        ("", "&resource=pods&timeout=1h", 400, "timeout is \"1h\", expected 1ms to 25s"),
        ("index nope = 1", "&resource=pods", 400, "no index \"nope\" is declared for pods"),
        ("", "&resource=pods&continue=abc", 400, "a continue token"),
    ] {
        let (found, answer) = json_of(&bench, query, rest).await;
        let text = answer["error"].as_str().unwrap_or_default();
        assert!(found == code && text.starts_with(error), "{query} {rest}: {found} {answer}");
    }
    let (_, answer) = json_of(&bench, "name = x lmit 5", "&resource=pods").await;
    assert_eq!(
        (&answer["position"], &answer["found"], &answer["suggestion"]),
        (&json!(10), &json!("\"lmit\""), &json!("limit"))
    );
    assert!(answer["excerpt"].as_str().unwrap().ends_with("\n           ^"), "{answer}");
    let (code, _, text) = get(&bench, "", "&resource=pods", "image/png").await;
    assert_eq!(code, 406, "{text}");
    let request = Request::post("/v1/query").body(Body::from("{\"resource\":\"pods\",\"limt\":1}")).unwrap();
    assert_eq!(bench.send(request).await.status(), StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn secrets_do_not_exist_unless_they_are_served() {
    let secrets = ApiResource { gvr: Gvr::new("", "v1", "secrets"), kind: "Secret".into(), namespaced: true };
    for (served, code) in [(false, 404), (true, 200)] {
        let mut bench = Bench::new(ReadApiOptions { requests: 10, watches: 10, secrets: served });
        bench.list(&secrets, "a", vec![pod("shop", "key", 3, "web", "n1")], 10);
        bench.list(&pods(), "a", Vec::new(), 10);
        let (found, answer) = json_of(&bench, "count", "&resource=secrets").await;
        assert_eq!(found, code, "{answer}");
        assert_eq!(answer.to_string().contains("it has: pods"), !served, "{answer}");
    }
}

#[tokio::test]
async fn hub_that_has_just_started_refuses() {
    let bench = bench();
    bench.fleet.is_starting.store(true, std::sync::atomic::Ordering::Relaxed);
    let (code, answer) = json_of(&bench, "count", "&resource=pods").await;
    assert_eq!(code, 503, "{answer}");
}
