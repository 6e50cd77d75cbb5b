//! Tests of watches.

use super::*;

#[tokio::test]
async fn watch_continues_after_the_version_of_a_list() {
    let bench = Bench::with_pods();
    for (root, version, expected) in [
        ("/clusters/a", "10", ["MODIFIED x@11", "ADDED z@12", "DELETED y@13"]),
        ("/clusters/*", "1004", ["MODIFIED x@1005", "ADDED z@1006", "DELETED y@1007"]),
        ("/unique/*", "1004", ["MODIFIED a:x@1005", "ADDED a:z@1006", "DELETED a:y@1007"]),
        ("/clusters/tier=prod", "1004", ["MODIFIED x@1005", "ADDED z@1006", "DELETED y@1007"]),
    ] {
        let mut events = bench.watch(&format!("{root}/api/v1/pods?watch=true&resourceVersion={version}")).await;
        if root == "/clusters/a" {
            bench.event("b", DeltaKind::Updated, pod("shop", "x", 3, "web", "n1"));
            bench.event("a", DeltaKind::Updated, pod("shop", "x", 11, "web", "n1"));
            bench.event("a", DeltaKind::Added, pod("shop", "z", 12, "web", "n1"));
            bench.event("a", DeltaKind::Deleted, pod("shop", "y", 13, "web", "n2"));
        }
        for expected in expected {
            assert_eq!(events.line().await, expected, "{root}");
        }
    }
}

#[tokio::test]
async fn watch_without_a_version_begins_with_the_present_state() {
    let bench = Bench::with_pods();
    let mut events = bench.watch("/clusters/a/api/v1/pods?watch=true").await;
    assert_eq!([events.line().await, events.line().await], ["ADDED x@3", "ADDED y@5"]);
    bench.event("a", DeltaKind::Deleted, pod("shop", "x", 11, "web", "n1"));
    assert_eq!(events.line().await, "DELETED x@11");
    let path = "/clusters/*/api/v1/pods?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
                &allowWatchBookmarks=true";
    let mut events = bench.watch(path).await;
    let lines = [events.line().await, events.line().await, events.line().await];
    assert_eq!(lines, ["ADDED y@1002", "ADDED x@1003", "ADDED y@1004"]);
    let bookmark = events.next().await.unwrap();
    assert_eq!(line(&bookmark), "BOOKMARK -@1005");
    assert_eq!(bookmark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
}

#[tokio::test]
async fn initial_events_end_with_a_bookmark_although_the_state_changes() {
    let bench = Bench::with_pods();
    let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    for (root, expected) in [
        ("/clusters/a", ["ADDED x@3", "ADDED y@5", "BOOKMARK -@10", "MODIFIED x@11"]),
        ("/clusters/tier=prod", ["ADDED x@1005", "ADDED y@1002", "BOOKMARK -@1005", "MODIFIED x@1006"]),
    ] {
        let mut events = bench.watch(&format!("{root}/api/v1/pods?{query}")).await;
        // The watch has not read any event yet.
        let version = if root == "/clusters/a" { 11 } else { 12 };
        bench.event("a", DeltaKind::Updated, pod("shop", "x", version, "web", "n1"));
        for expected in expected {
            assert_eq!(events.line().await, expected, "{root}");
        }
    }
}

#[tokio::test]
async fn object_that_begins_or_ceases_to_match_is_added_or_deleted() {
    let bench = Bench::with_pods();
    let mut events = bench.watch("/clusters/a/api/v1/pods?watch=1&resourceVersion=10&labelSelector=app%3Ddb").await;
    bench.event("a", DeltaKind::Updated, pod("shop", "x", 11, "db", "n1"));
    bench.event("a", DeltaKind::Updated, pod("shop", "x", 12, "db", "n2"));
    bench.event("a", DeltaKind::Updated, pod("shop", "x", 13, "web", "n3"));
    let last = [events.next().await.unwrap(), events.next().await.unwrap(), events.next().await.unwrap()];
    assert_eq!(last.each_ref().map(line), ["ADDED x@11", "MODIFIED x@12", "DELETED x@13"]);
    assert_eq!(last[2]["object"]["spec"]["nodeName"], "n2", "the last state that matched");
}

#[tokio::test]
async fn fleet_watch_follows_clusters_that_join_and_leave() {
    let mut bench = Bench::with_pods();
    let mut events = bench.watch("/clusters/*/api/v1/pods?watch=1&resourceVersion=1004").await;
    let id = bench.partitions[&("a".to_owned(), pods().gvr)];
    bench.fleet.stores.lock().get_mut(&pods().gvr).unwrap().close(id);
    assert_eq!([events.line().await, events.line().await], ["DELETED x@1005", "DELETED y@1006"]);
    bench.partitions.clear();
    bench.list(&pods(), "a", vec![pod("shop", "x", 3, "web", "n1")], 10);
    assert_eq!(events.line().await, "ADDED x@1007");
}

#[tokio::test]
async fn watch_of_a_cluster_that_is_removed_ends_with_an_error() {
    let bench = Bench::with_pods();
    let mut events = bench.watch("/clusters/a/api/v1/pods?watch=1&resourceVersion=10").await;
    let id = bench.partitions[&("a".to_owned(), pods().gvr)];
    bench.fleet.stores.lock().get_mut(&pods().gvr).unwrap().close(id);
    let error = events.next().await.unwrap();
    assert_eq!((&error["type"], &error["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(events.line().await, "end");
}

#[tokio::test]
async fn watch_from_before_the_window_is_an_error_event() {
    let bench = Bench::with_pods();
    for path in
        ["/clusters/a/api/v1/pods?watch=1&resourceVersion=9", "/clusters/*/api/v1/pods?watch=1&resourceVersion=999"]
    {
        let mut events = bench.watch(path).await;
        let error = events.next().await.unwrap();
        assert_eq!((&error["type"], &error["object"]["reason"]), (&json!("ERROR"), &json!("Expired")), "{path}");
        assert_eq!(events.line().await, "end");
    }
}

#[tokio::test]
async fn watch_from_a_version_that_the_hub_has_not_reached_leaves_out_what_the_client_knows() {
    let bench = Bench::with_pods();
    let mut events = bench.watch("/clusters/a/api/v1/pods?watch=1&resourceVersion=12").await;
    for version in 11..=13 {
        bench.event("a", DeltaKind::Updated, pod("shop", "x", version, "web", "n1"));
    }
    assert_eq!(events.line().await, "MODIFIED x@13");
}

#[tokio::test(start_paused = true)]
async fn watch_sends_bookmarks_and_ends_with_one() {
    let bench = Bench::with_pods();
    let path = "/clusters/a/api/v1/pods?watch=1&resourceVersion=10&allowWatchBookmarks=true&timeoutSeconds=70";
    let mut events = bench.watch(path).await;
    let mut lines = Vec::new();
    while let Ok(Some(event)) = tokio::time::timeout(Duration::from_secs(100), next_of(&mut events)).await {
        lines.push(line(&event));
    }
    assert_eq!(lines, ["BOOKMARK -@10", "BOOKMARK -@10"]);
    let mut silent = bench.watch("/clusters/a/api/v1/pods?watch=1&resourceVersion=10&timeoutSeconds=70").await;
    assert!(next_of(&mut silent).await.is_none());
}

/// As [`Events::next`], without a timeout.
async fn next_of(events: &mut Events) -> Option<Value> {
    while !events.buffer.contains(&b'\n') {
        let chunk = events.body.next().await?;
        events.buffer.extend_from_slice(&chunk.unwrap());
    }
    events.next().await
}

#[tokio::test]
async fn table_of_a_deletion_has_the_version_of_the_deletion() {
    let bench = Bench::with_pods();
    let request = Request::get("/clusters/a/api/v1/pods?watch=1&resourceVersion=10&labelSelector=app%3Dweb")
        .header(ACCEPT, "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(Body::empty())
        .unwrap();
    let mut events = Events { body: bench.send(request).await.into_body().into_data_stream(), buffer: Vec::new() };
    bench.event("a", DeltaKind::Updated, pod("shop", "x", 11, "api", "n1"));
    let event = events.next().await.unwrap();
    let version = event.pointer("/object/rows/0/object/metadata/resourceVersion");
    assert_eq!((&event["type"], version), (&json!("DELETED"), Some(&json!("11"))), "{event}");
}

#[tokio::test]
async fn watch_of_tables_sends_the_columns_once() {
    let bench = Bench::with_pods();
    let request = Request::get("/clusters/*/api/v1/pods?watch=1")
        .header(ACCEPT, "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(Body::empty())
        .unwrap();
    let mut events = Events { body: bench.send(request).await.into_body().into_data_stream(), buffer: Vec::new() };
    let (first, second) = (events.next().await.unwrap(), events.next().await.unwrap());
    assert_eq!(first["object"]["columnDefinitions"][0]["name"], "Cluster");
    assert_eq!(
        (&second["object"]["columnDefinitions"], &second["object"]["rows"][0]["cells"][0]),
        (&Value::Null, &json!("a"))
    );
}

#[tokio::test]
async fn shutdown_ends_watches_with_a_bookmark() {
    let bench = Bench::with_pods();
    let mut events = bench.watch("/clusters/*/api/v1/pods?watch=1&resourceVersion=1004&allowWatchBookmarks=true").await;
    bench.api.close();
    assert_eq!([events.line().await, events.line().await], ["BOOKMARK -@1004", "end"]);
}

#[tokio::test(start_paused = true)]
async fn ages_in_a_table_are_those_at_the_time_of_the_event() {
    // The pods are created five minutes after the watch began.
    clock::set_wall(Some("2025-12-31T23:55:00Z".parse().unwrap()));
    let bench = Bench::with_pods();
    let path = "/clusters/a/api/v1/pods?watch=1&resourceVersion=10";
    let request = Request::get(path).header(ACCEPT, "application/json;as=Table;v=v1;g=meta.k8s.io");
    let response = bench.send(request.body(Body::empty()).unwrap()).await;
    let mut events = Events { body: response.into_body().into_data_stream(), buffer: Vec::new() };
    tokio::time::advance(Duration::from_secs(600)).await;
    bench.event("a", DeltaKind::Updated, pod("shop", "x", 11, "web", "n1"));
    let event = events.next().await.unwrap();
    clock::set_wall(None);
    let table = &event["object"];
    let columns = table["columnDefinitions"].as_array().unwrap();
    let age = columns.iter().position(|column| column["name"] == "Age").unwrap();
    assert_eq!(table["rows"][0]["cells"][age], "5m", "{table}");
}
