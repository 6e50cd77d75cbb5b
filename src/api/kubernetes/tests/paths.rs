//! Documents, refusals and limits.

use super::*;

#[tokio::test]
async fn discovery_lists_what_is_cached() {
    let mut bench = Bench::with_pods();
    let secrets = ApiResource { gvr: Gvr::new("", "v1", "secrets"), kind: "Secret".into(), namespaced: true };
    bench.list(&secrets, "a", Vec::new(), 10);
    let (code, resources) = bench.json("/clusters/a/api/v1").await;
    assert_eq!(code, 200);
    let names: Vec<_> = resources["resources"].as_array().unwrap().iter().map(|it| it["name"].clone()).collect();
    assert_eq!(names, ["pods"], "secrets are not served");
    assert_eq!(resources["resources"][0]["verbs"], json!(["get", "list", "watch"]));
    assert_eq!(bench.json("/clusters/a/api/v1/secrets").await.0, 404);
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    let (_, headers, body) = bench.ask("/clusters/*/api", aggregated).await;
    assert!(headers["content-type"].to_str().unwrap().contains("APIGroupDiscoveryList"));
    let groups: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(groups["items"][0]["versions"][0]["resources"][0]["resource"], "pods");
    assert_eq!(bench.json("/clusters/b/version").await.1["gitVersion"], "v1.36.3");
    let (code, openapi) = bench.json("/clusters/a/openapi/v3").await;
    assert_eq!((code, openapi), (200, json!({ "paths": {} })));
}

#[tokio::test]
async fn discovery_lists_resources_of_clusters_that_have_not_answered_or_are_not_selected_yet() {
    let mut bench = Bench::new(ReadApiOptions { requests: 10, watches: 10, secrets: false });
    bench.open(&pods(), "a");
    let b = ClusterName::new("b").unwrap();
    bench.fleet.stores.lock().get_mut(&pods().gvr).unwrap().expect(b, Some(ClusterLabels::new()));
    bench.list(&pods(), "a", Vec::new(), 10);
    for root in ["/clusters/a", "/clusters/b", "/clusters/*", "/clusters/tier=none", "/unique/*"] {
        let (code, resources) = bench.json(&format!("{root}/api/v1")).await;
        assert_eq!((code, &resources["resources"][0]["name"]), (200, &json!("pods")), "{root}");
    }
    assert_eq!(bench.json("/clusters/b/api/v1/pods").await.0, 503);
    let (code, list) = bench.json("/clusters/tier=none/api/v1/pods").await;
    assert_eq!((code, items(&list).len()), (200, 0));
}

#[tokio::test]
async fn documents_of_a_cluster_that_does_not_answer_are_those_of_before_or_503() {
    let bench = Bench::with_pods();
    let known = bench.json("/clusters/a/openapi/v3").await;
    bench.fleet.is_down.store(true, Relaxed);
    assert_eq!(bench.json("/clusters/a/openapi/v3").await, known);
    for path in ["/clusters/a/version", "/clusters/*/version", "/clusters/a/openapi/v2", "/clusters/b/openapi/v3"] {
        let (code, headers, _) = bench.ask(path, "application/json").await;
        assert_eq!((code, &headers["retry-after"]), (StatusCode::SERVICE_UNAVAILABLE, &"5".parse().unwrap()), "{path}");
    }
}

#[tokio::test]
async fn unknown_clusters_resources_and_objects_are_not_found() {
    let bench = Bench::with_pods();
    for path in [
        "/clusters",
        "/unique/",
        "/clusters/c/api/v1/pods",
        "/clusters/c/version",
        "/clusters/a/api/v1/nodes",
        "/clusters/a/api/v2/pods",
        "/clusters/a/apis/apps/v1/deployments",
        "/clusters/a/apis/apps/v1",
        "/clusters/a/api/v1/namespaces/shop/pods/none",
        "/clusters/a/api/v1/pods/x",
        "/clusters/a/api/v1/namespaces/shop/pods/x/log",
        "/clusters/a/nothing",
    ] {
        let (code, status) = bench.json(path).await;
        assert_eq!((code, &status["kind"], &status["reason"]), (404, &json!("Status"), &json!("NotFound")), "{path}");
    }
    let (_, status) = bench.json("/clusters/a/api/v1/namespaces/shop/pods/none").await;
    assert_eq!(status["message"], r#"pods "none" not found"#);
    assert_eq!(status["details"], json!({ "name": "none", "kind": "pods" }));
}

#[tokio::test]
async fn hub_that_starts_is_unavailable_except_for_listed_clusters() {
    let bench = Bench::with_pods();
    bench.fleet.is_starting.store(true, Relaxed);
    for path in [
        "/clusters/*/api/v1/pods",
        "/unique/*/api/v1/pods?watch=1",
        "/clusters/tier=prod/api/v1/namespaces/shop/pods/x",
        "/clusters/a/api/v1/nodes",
        "/clusters/a/api",
        "/clusters/a/openapi/v3",
    ] {
        let (code, status) = bench.json(path).await;
        assert_eq!((code, &status["details"]["retryAfterSeconds"]), (503, &json!(1)), "{path}: {status}");
    }
    for path in ["/clusters/a/api/v1/pods", "/clusters/*/version"] {
        assert_eq!(bench.json(path).await.0, 200, "{path}");
    }
}

#[tokio::test]
async fn writes_are_not_allowed() {
    let bench = Bench::with_pods();
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        let request = Request::builder().method(method).uri("/clusters/a/api/v1/namespaces/shop/pods/x");
        let (head, body) = bench.send(request.body(Body::from("{}")).unwrap()).await.into_parts();
        let status: Value = serde_json::from_slice(&to_bytes(body, 4096).await.unwrap()).unwrap();
        assert_eq!((head.status.as_u16(), &status["reason"]), (405, &json!("MethodNotAllowed")), "{method}");
        assert!(status["message"].as_str().unwrap().contains("the hub only reads"), "{status}");
        assert_eq!(head.headers["allow"], "GET, HEAD");
    }
}

#[tokio::test]
async fn requests_above_the_limits_are_refused_with_a_time_to_retry() {
    let mut bench = Bench::new(ReadApiOptions { requests: 2, watches: 1, secrets: false });
    let many = (0..3000).map(|i| pod("shop", &format!("p{i:04}"), i + 1, "web", "n1")).collect();
    bench.list(&pods(), "a", many, 5000);
    let watch = bench.watch("/clusters/a/api/v1/pods?watch=1").await;
    let (status, headers, _) = bench.ask("/clusters/a/api/v1/pods?watch=1", "*/*").await;
    assert_eq!((status.as_u16(), &headers["retry-after"]), (429, &"5".parse().unwrap()));
    drop(watch);
    drop(bench.watch("/clusters/a/api/v1/pods?watch=1").await);
    // A list that its client does not read stays in progress.
    let slow = bench.send(Request::get("/clusters/a/api/v1/pods").body(Body::empty()).unwrap()).await;
    let (status, headers, _) = bench.ask("/clusters/a/api/v1/pods", "*/*").await;
    assert_eq!((status.as_u16(), &headers["retry-after"]), (429, &"1".parse().unwrap()), "half of two for one reader");
    drop(slow);
    assert_eq!(bench.ask("/clusters/a/api/v1/pods", "*/*").await.0.as_u16(), 200);
}

#[tokio::test]
async fn cluster_without_a_complete_list_is_unavailable_alone_and_missing_in_the_fleet() {
    let mut bench = Bench::with_pods();
    let nodes = ApiResource { gvr: Gvr::new("", "v1", "nodes"), kind: "Node".into(), namespaced: false };
    bench.list(&nodes, "a", Vec::new(), 10);
    bench.open(&nodes, "b");
    let (code, status) = bench.json("/clusters/b/api/v1/nodes").await;
    assert_eq!((code, &status["reason"]), (503, &json!("ServiceUnavailable")));
    let (status, headers, body) = bench.ask("/clusters/*/api/v1/nodes", "*/*").await;
    assert_eq!(status.as_u16(), 200);
    let warnings: Vec<_> = headers.get_all("warning").iter().map(|value| value.to_str().unwrap()).collect();
    assert!(warnings.iter().any(|text| text.contains("missing, first list not complete: b")), "{warnings:?}");
    let list: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(list["metadata"]["informerHub"]["missingClusters"], json!(["b"]));
}
