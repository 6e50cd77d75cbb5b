//! Lists and single objects.

use super::super::WITHOUT_BODIES;
use super::*;
use informer_hub_types::MemoryStep;

#[tokio::test]
async fn cluster_root_lists_with_the_clusters_own_versions() {
    let bench = Bench::with_pods();
    let (code, list) = bench.json("/clusters/a/api/v1/pods").await;
    assert_eq!((code, &list["kind"], &list["apiVersion"]), (200, &json!("PodList"), &json!("v1")));
    assert_eq!(list["metadata"], json!({ "resourceVersion": "10" }));
    assert_eq!(items(&list), ["x@3", "y@5"]);
    assert!(list["items"][0].get("kind").is_none(), "items of built-in kinds have no kind");
    let (code, x) = bench.json("/clusters/a/api/v1/namespaces/shop/pods/x").await;
    assert_eq!((code, &x["kind"], &x["metadata"]["resourceVersion"]), (200, &json!("Pod"), &json!("3")));
    assert!(x["metadata"].get("annotations").is_none());
}

#[tokio::test]
async fn fleet_root_names_the_cluster_and_has_fleet_versions() {
    let bench = Bench::with_pods();
    let (code, list) = bench.json("/clusters/*/api/v1/pods").await;
    assert_eq!(code, 200);
    assert_eq!(items(&list), ["x@1001", "y@1002", "x@1003", "y@1004"]);
    assert_eq!(list["metadata"]["resourceVersion"], "1004");
    let of = |at: usize| &list["items"][at]["metadata"];
    assert_eq!(of(2)["labels"], json!({ "app": "web", "informer-hub.io/cluster": "b" }));
    assert_eq!(of(0)["annotations"]["informer-hub.io/cluster"], "a");
}

#[tokio::test]
async fn selected_root_has_the_clusters_whose_labels_match() {
    let bench = Bench::with_pods();
    let (_, list) = bench.json("/clusters/tier=dev/api/v1/pods").await;
    assert_eq!(items(&list), ["x@1003", "y@1004"]);
    let (_, none) = bench.json("/clusters/tier=none/api/v1/pods").await;
    assert_eq!(items(&none), Vec::<String>::new());
}

#[tokio::test]
async fn unique_root_has_a_key_for_each_object() {
    let bench = Bench::with_pods();
    let (_, list) = bench.json("/unique/*/api/v1/pods").await;
    assert_eq!(items(&list), ["a:x@1001", "a:y@1002", "b:x@1003", "b:y@1004"]);
    let (code, x) = bench.json("/unique/*/api/v1/namespaces/shop/pods/b:x").await;
    assert_eq!((code, &x["metadata"]["name"]), (200, &json!("b:x")));
    let (code, _) = bench.json("/unique/*/api/v1/namespaces/shop/pods/x").await;
    assert_eq!(code, 404);
}

#[tokio::test]
async fn object_in_two_clusters_is_a_conflict_at_the_fleet_root() {
    let mut bench = Bench::with_pods();
    let (code, status) = bench.json("/clusters/*/api/v1/namespaces/shop/pods/x").await;
    assert_eq!((code, &status["reason"]), (409, &json!("Conflict")));
    assert!(status["message"].as_str().unwrap().contains("among them a and b"), "{status}");
    bench.list(&pods(), "a", vec![pod("shop", "y", 5, "web", "n2")], 12);
    let (code, x) = bench.json("/clusters/*/api/v1/namespaces/shop/pods/x").await;
    assert_eq!((code, &x["metadata"]["annotations"]["informer-hub.io/cluster"]), (200, &json!("b")));
}

#[tokio::test]
async fn selectors_choose_objects() {
    let bench = Bench::with_pods();
    bench.event("a", DeltaKind::Added, pod("pay", "z", 11, "db", "n1"));
    for (query, expected) in [
        ("labelSelector=app%3Dweb", vec!["x@3", "y@5"]),
        ("labelSelector=app%20notin%20(web)", vec!["z@11"]),
        ("fieldSelector=spec.nodeName%3Dn1", vec!["z@11", "x@3"]),
        ("fieldSelector=spec.nodeName!%3Dn1", vec!["y@5"]),
        ("fieldSelector=metadata.name%3Dx", vec!["x@3"]),
        ("fieldSelector=metadata.namespace%3Dpay", vec!["z@11"]),
        ("fieldSelector=status.phase%3DRunning,spec.hostNetwork%3Dfalse", vec!["z@11", "x@3", "y@5"]),
        ("labelSelector=app%3Ddb&fieldSelector=spec.nodeName%3Dn2", vec![]),
    ] {
        let (code, list) = bench.json(&format!("/clusters/a/api/v1/pods?{query}")).await;
        assert_eq!(code, 200, "{query}: {list}");
        assert_eq!(items(&list), expected, "{query}");
    }
    let (_, shop) = bench.json("/clusters/a/api/v1/namespaces/shop/pods").await;
    assert_eq!(items(&shop), ["x@3", "y@5"]);
    let (_, of_b) = bench.json("/clusters/*/api/v1/pods?fieldSelector=metadata.cluster%3Db").await;
    assert_eq!(items(&of_b), ["x@1003", "y@1004"]);
    let (_, of_b) = bench.json("/clusters/*/api/v1/pods?labelSelector=informer-hub.io%2Fcluster%3Db").await;
    assert_eq!(items(&of_b), ["x@1003", "y@1004"]);
    let (code, status) = bench.json("/clusters/a/api/v1/pods?fieldSelector=spec.color%3Dred").await;
    assert_eq!((code, &status["message"]), (400, &json!("field label not supported: spec.color")));
}

#[tokio::test]
async fn pages_continue_at_the_state_of_the_first() {
    let bench = Bench::with_pods();
    for root in ["/clusters/a", "/clusters/*"] {
        let (_, first) = bench.json(&format!("{root}/api/v1/pods?limit=1")).await;
        let token = first["metadata"]["continue"].as_str().expect("another page").to_owned();
        // The root of the second round also has the object that the first round adds.
        let all = if root.ends_with('a') { 2 } else { 5 };
        assert_eq!(first["metadata"]["remainingItemCount"], json!(all - 1), "{root}");
        let number = 100 + all;
        bench.event("a", DeltaKind::Updated, pod("shop", "y", number, "web", "n9"));
        bench.event("a", DeltaKind::Added, pod("shop", "zz", number + 1, "web", "n9"));
        let (_, next) = bench.json(&format!("{root}/api/v1/pods?limit=5&continue={token}")).await;
        assert_eq!(next["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
        let names: Vec<_> = items(&next).iter().map(|item| item.split('@').next().unwrap().to_owned()).collect();
        let expected: &[&str] = if all == 2 { &["y"] } else { &["y", "zz", "x", "y"] };
        assert_eq!(names, expected, "{root}");
        assert_ne!(next["items"][0]["spec"]["nodeName"], "n9", "the state of the first page");
        bench.event("a", DeltaKind::Updated, pod("shop", "y", number + 2, "web", "n2"));
        let (code, status) = bench.json(&format!("{root}/api/v1/namespaces/shop/pods?continue={token}")).await;
        assert_eq!(code, 400, "a token of another list: {status}");
    }
}

#[tokio::test]
async fn exact_version_is_served_from_the_window_and_a_newer_one_is_waited_for() {
    let bench = Bench::with_pods();
    bench.event("a", DeltaKind::Updated, pod("shop", "x", 12, "web", "n7"));
    bench.event("a", DeltaKind::Deleted, pod("shop", "y", 14, "web", "n2"));
    for (version, expected) in
        [("10", vec!["x@3", "y@5"]), ("12", vec!["x@12", "y@5"]), ("13", vec!["x@12", "y@5"]), ("14", vec!["x@12"])]
    {
        let path = format!("/clusters/a/api/v1/pods?resourceVersion={version}&resourceVersionMatch=Exact");
        let (code, list) = bench.json(&path).await;
        assert_eq!(code, 200, "{version}");
        assert_eq!(items(&list), expected, "{version}");
        assert_eq!(list["metadata"]["resourceVersion"], version);
    }
    let (code, status) = bench.json("/clusters/a/api/v1/pods?resourceVersion=9&resourceVersionMatch=Exact").await;
    assert_eq!((code, &status["reason"]), (410, &json!("Expired")));
    let newer = bench.json("/clusters/a/api/v1/pods?resourceVersion=20&resourceVersionMatch=NotOlderThan");
    let change = async {
        tokio::task::yield_now().await;
        bench.event("a", DeltaKind::Updated, pod("shop", "x", 20, "web", "n7"));
    };
    let ((code, list), ()) = tokio::join!(newer, change);
    assert_eq!((code, items(&list)), (200, vec!["x@20".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn made_up_version_after_a_kill_is_no_state_of_the_cluster() {
    let mut bench = Bench::with_pods();
    bench.restart_at(10, 12, vec![pod("shop", "x", 3, "web", "n1")]);
    let (code, list) = bench.json("/clusters/a/api/v1/pods").await;
    assert_eq!((code, &list["metadata"]["resourceVersion"]), (200, &json!("13")), "above those of all readers");
    // The hub made up version 13 when it restarted. It has the cluster's changes only up to version 10, so it waits for
    // those up to 13.
    let path = "/clusters/a/api/v1/pods?resourceVersionMatch=NotOlderThan&resourceVersion=13";
    let (code, status) = bench.json(path).await;
    assert_eq!((code, &status["reason"]), (504, &json!("Timeout")));
    let continued = "/clusters/a/api/v1/pods?resourceVersionMatch=Exact&resourceVersion=13";
    assert_eq!(bench.json(continued).await.0, 200);
    bench.event("a", DeltaKind::Updated, pod("shop", "x", 13, "web", "n2"));
    let (code, list) = bench.json(path).await;
    assert_eq!((code, items(&list)), (200, vec!["x@13".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn version_from_the_future_times_out_after_three_seconds() {
    let bench = Bench::with_pods();
    let (code, status) =
        bench.json("/clusters/a/api/v1/pods?resourceVersion=99&resourceVersionMatch=NotOlderThan").await;
    assert_eq!((code, &status["reason"]), (504, &json!("Timeout")));
    assert_eq!(status["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    assert_eq!(status["details"]["retryAfterSeconds"], 1);
}

#[tokio::test]
async fn forms_follow_the_accept_header() {
    let bench = Bench::with_pods();
    let path = "/clusters/*/api/v1/pods?limit=1";
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let (_, headers, body) = bench.ask(path, table).await;
    let table: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(headers["content-type"], "application/json");
    assert_eq!((&table["kind"], &table["columnDefinitions"][0]["name"]), (&json!("Table"), &json!("Cluster")));
    assert_eq!(table["rows"][0]["cells"][0], "a");
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    let metadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let (_, _, body) = bench.ask(path, metadata).await;
    let list: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        (&list["kind"], &list["items"][0]["kind"]),
        (&json!("PartialObjectMetadataList"), &json!("PartialObjectMetadata"))
    );
    assert!(list["items"][0].get("spec").is_none());
    let (_, headers, body) = bench.ask("/clusters/a/api/v1/namespaces/shop/pods/x", "application/yaml").await;
    assert_eq!(headers["content-type"], "application/yaml");
    assert!(body.starts_with(b"apiVersion: v1\nkind: Pod\n"), "{body:?}");
    let (code, _, _) = bench.ask(path, "application/cbor").await;
    assert_eq!(code.as_u16(), 406);
}

#[tokio::test]
async fn large_list_is_streamed_and_compressed_if_asked() {
    use std::io::Read as _;
    let mut bench = Bench::new(ReadApiOptions { requests: 10, watches: 10, secrets: false });
    let many = (0..3000).map(|i| pod("shop", &format!("p{i:04}"), i + 1, "web", "n1")).collect();
    bench.list(&pods(), "a", many, 5000);
    let (_, plain) = bench.json("/clusters/a/api/v1/pods").await;
    assert_eq!(plain["items"].as_array().unwrap().len(), 3000);
    let request =
        Request::get("/clusters/a/api/v1/pods").header("accept-encoding", "gzip").body(Body::empty()).unwrap();
    let (head, body) = bench.send(request).await.into_parts();
    assert_eq!(head.headers["content-encoding"], "gzip");
    let body = to_bytes(body, usize::MAX).await.unwrap();
    let mut text = Vec::new();
    flate2::read::GzDecoder::new(&body[..]).read_to_end(&mut text).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&text).unwrap(), plain);
    assert_eq!(bench.api.queue.in_progress(), 0);
}

#[tokio::test]
async fn lists_in_yaml_and_indented_json_are_streamed_too() {
    let mut bench = Bench::new(ReadApiOptions { requests: 10, watches: 10, secrets: false });
    let many = (0..3000).map(|i| pod("shop", &format!("p{i:04}"), i + 1, "web", "n1")).collect();
    bench.list(&pods(), "a", many, 5000);
    bench.list(&pods(), "b", Vec::new(), 5000);
    let table = "as=Table;v=v1;g=meta.k8s.io";
    for path in ["/clusters/a/api/v1/pods", "/clusters/*/api/v1/pods", "/clusters/b/api/v1/pods"] {
        for form in ["", table] {
            let json = bench.ask(path, &format!("application/json;{form}")).await.2;
            for (accept, query, expected) in [
                (format!("application/yaml;{form}"), "", informer_hub_kubeapi::to_yaml(&json)),
                (format!("application/json;{form}"), "?pretty=1", informer_hub_kubeapi::pretty(&json)),
            ] {
                let (status, _, body) = bench.ask(&format!("{path}{query}"), &accept).await;
                assert_eq!(status, StatusCode::OK, "{path}, {accept}");
                assert!(body == expected, "{path}, {accept}: {:.300?}", String::from_utf8_lossy(&body));
            }
        }
    }
    let request = Request::get("/clusters/a/api/v1/pods").header(ACCEPT, "application/yaml");
    let mut body = bench.send(request.body(Body::empty()).unwrap()).await.into_body().into_data_stream();
    let mut parts = Vec::new();
    while let Some(part) = body.next().await {
        parts.push(part.unwrap().len());
    }
    assert!(parts.len() > 5 && parts.iter().all(|length| *length < 256 << 10), "{parts:?}");
}

#[tokio::test]
async fn tables_of_storage_classes_mark_the_default_of_each_cluster() {
    let gvr = Gvr::new("storage.k8s.io", "v1", "storageclasses");
    let classes = ApiResource { gvr, kind: "StorageClass".into(), namespaced: false };
    let class = |name: &str, is_default: bool| {
        let json = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "p",
            "metadata": {
                "name": name, "uid": name, "resourceVersion": "3",
                "annotations": { "storageclass.kubernetes.io/is-default-class": is_default.to_string() },
            },
        });
        StoredObject::new(StoredObjectParts {
            key: ObjectKey::new("", name),
            uid: Uid::new(name),
            resource_version: ResourceVersion::new("3"),
            labels: Labels::new(Vec::new()),
            index_values: Vec::<IndexEntry>::new(),
            json: json.to_string().into_bytes(),
        })
    };
    let mut bench = Bench::new(ReadApiOptions { requests: 10, watches: 10, secrets: false });
    bench.list(&classes, "a", vec![class("fast", true), class("slow", false)], 10);
    bench.list(&classes, "b", vec![class("fast", false), class("slow", true)], 10);
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    for (root, at, expected) in [
        ("/clusters/*", 1, ["fast (default)", "slow", "fast", "slow (default)"].as_slice()),
        ("/clusters/b", 0, ["fast", "slow (default)"].as_slice()),
    ] {
        let (_, _, body) = bench.ask(&format!("{root}/apis/storage.k8s.io/v1/storageclasses"), table).await;
        let table: Value = serde_json::from_slice(&body).unwrap();
        let names: Vec<_> = table["rows"].as_array().unwrap().iter().map(|row| row["cells"][at].clone()).collect();
        assert_eq!(names, expected, "{root}");
    }
}

#[tokio::test]
async fn default_pages_of_kubectl_have_more_rows() {
    let mut bench = Bench::new(ReadApiOptions { requests: 10, watches: 10, secrets: false });
    let many = (0..1200).map(|i| pod("shop", &format!("p{i:04}"), i + 1, "web", "n1")).collect();
    bench.list(&pods(), "a", many, 5000);
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    for (agent, accept, limit, expected) in [
        ("kubectl/v1.37.2 (linux/amd64)", table, 500, 1200),
        ("kubectl/v1.37.2 (linux/amd64)", table, 400, 400),
        ("kubectl/v1.37.2 (linux/amd64)", "application/json", 500, 500),
        ("dashboard/1", table, 500, 500),
    ] {
        let request = Request::get(format!("/clusters/a/api/v1/pods?limit={limit}"))
            .header(ACCEPT, accept)
            .header("user-agent", agent)
            .body(Body::empty())
            .unwrap();
        let body = to_bytes(bench.send(request).await.into_body(), usize::MAX).await.unwrap();
        let list: Value = serde_json::from_slice(&body).unwrap();
        let found = list["rows"].as_array().or(list["items"].as_array()).unwrap().len();
        let has_more = list["metadata"]["continue"].is_string();
        assert_eq!((found, has_more), (expected, expected < 1200), "{agent}, {accept}, {limit}");
    }
}

#[tokio::test]
async fn only_an_informer_that_keeps_no_bodies_adds_a_warning() {
    let bench = Bench::with_pods();
    let warnings = async |step: MemoryStep| {
        let partition = bench.partitions[&("a".to_owned(), pods().gvr)];
        let snapshot = bench.fleet.stores.lock()[&pods().gvr].published().load_full();
        snapshot.partition(partition).unwrap().health().memory.set_step(step, None);
        let response = bench.send(Request::get("/clusters/a/api/v1/pods").body(Body::empty()).unwrap()).await;
        let warnings = response.headers().get_all("warning").iter().map(|text| text.to_str().unwrap());
        warnings.filter(|text| text.contains(WITHOUT_BODIES)).count()
    };
    assert_eq!(warnings(MemoryStep::Full).await, 0);
    assert_eq!(warnings(MemoryStep::Packed).await, 0);
    assert_eq!(warnings(MemoryStep::Heads).await, 1);
}
