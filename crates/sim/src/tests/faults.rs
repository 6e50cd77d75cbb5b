//! Tests of each fault on lists, watches and discovery.

use serde_json::json;

use super::super::{Fault, RawAnswer, Rule, When};
use super::*;

/// Opens a watch that `fault` strikes after one event, and reads that event.
async fn struck_watch(fault: Fault) -> (SimCluster, Answer) {
    let cluster = faulty_cluster(FaultScript::one(Rule::new(When::Watch, fault).after(1)));
    let mut watch = watch_now(&cluster).await;
    let (key, version) = touch(&cluster);
    assert_eq!(watch.event().await, ("MODIFIED".into(), key, version));
    (cluster, watch)
}

async fn struck_list(fault: Fault) -> (SimCluster, Result<Vec<u8>, Failure>) {
    let cluster = faulty_cluster(FaultScript::one(Rule::new(When::List, fault).after(2)));
    let answer = get(&cluster, "/api/v1/pods").await;
    let body = answer.whole().await;
    (cluster, body)
}

fn assert_logged(cluster: &SimCluster, fault: &Fault) {
    let log = cluster.fault_log();
    assert_eq!(log.len(), 1, "{log:?}");
    assert_eq!(&log[0].fault, fault);
    assert!(cluster.faults_over());
}

fn is_json(body: &[u8]) -> bool {
    serde_json::from_slice::<Value>(body).is_ok()
}

#[tokio::test]
async fn fault_before_the_first_byte_replaces_the_answer() {
    for (fault, code) in [
        (Fault::HttpGone, 410),
        (Fault::Throttle(1), 429),
        (Fault::InternalError, 500),
        (Fault::Unavailable, 503),
        (Fault::WrongContentType, 200),
    ] {
        for path in ["/api/v1/pods", "/api/v1/pods?watch=true", "/apis"] {
            let cluster = faulty_cluster(FaultScript::one(Rule::new(When::Any, fault.clone())));
            let answer = get(&cluster, path).await;
            assert_eq!(answer.status, code, "{fault:?}");
            let header = |name: &str| answer.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
            let json = header("content-type").as_deref() == Some("application/json");
            assert_eq!(json, fault != Fault::WrongContentType);
            assert_eq!(header("retry-after").is_some(), code == 429);
            assert_logged(&cluster, &fault);
            assert_eq!(get(&cluster, "/apis").await.status, 200, "the fault struck a second request");
        }
    }
}

#[tokio::test]
async fn reset_cuts_watch_list_and_request() {
    let cluster = faulty_cluster(FaultScript::one(Rule::new(When::Watch, Fault::Reset).after(1)));
    let mut watch = watch_now(&cluster).await;
    touch(&cluster);
    // The reset can overtake the event sent before it.
    assert!(watch.line().await.is_err() || watch.line().await.is_err());
    assert_logged(&cluster, &Fault::Reset);
    let (cluster, body) = struck_list(Fault::Reset).await;
    assert!(body.is_err());
    assert_logged(&cluster, &Fault::Reset);
    let cluster = faulty_cluster(FaultScript::one(Rule::new(When::Any, Fault::Reset)));
    assert!(within(try_get(cluster.address(), "/apis", &[])).await.is_err());
    eventually("no connection left", || cluster.stats().open_connections == 0).await;
}

#[tokio::test]
async fn stall_delays_an_answer_until_healed_and_loses_nothing() {
    let hour = Duration::from_secs(3600);
    let (cluster, mut watch) = struck_watch(Fault::Stall(hour)).await;
    let (key, version) = touch(&cluster);
    eventually("the stall", || cluster.fault_log().len() == 1).await;
    assert_eq!(cluster.stats().open_watches, 1);
    cluster.heal();
    assert_eq!(watch.event().await, ("MODIFIED".into(), key, version));
    for after in [0, 2] {
        let cluster = faulty_cluster(FaultScript::one(Rule::new(When::List, Fault::Stall(hour)).after(after)));
        let list = async { json(&cluster, "/api/v1/pods").await };
        let heal = async {
            eventually("the stall", || cluster.fault_log().len() == 1).await;
            cluster.heal();
        };
        let ((status, list), ()) = tokio::join!(list, heal);
        assert_eq!((status, list["items"].as_array().unwrap().len()), (200, 20));
    }
    let (cluster, body) = struck_list(Fault::Stall(Duration::from_millis(1))).await;
    assert!(is_json(&body.unwrap()), "a stall ends by itself, too");
    assert_logged(&cluster, &Fault::Stall(Duration::from_millis(1)));
}

#[tokio::test]
async fn half_line_ends_the_answer_with_invalid_json() {
    let (cluster, mut watch) = struck_watch(Fault::Cut(500)).await;
    touch(&cluster);
    let line = within(watch.raw_line()).await.unwrap().unwrap();
    assert!(line.len() > 50 && !is_json(&line));
    assert!(within(watch.raw_line()).await.unwrap().is_none());
    let (_, body) = struck_list(Fault::Cut(500)).await;
    assert!(!is_json(&body.unwrap()));
}

#[tokio::test]
async fn error_events_end_a_watch() {
    for (fault, code) in [(Fault::ExpireWatch, 410), (Fault::ErrorEvent, 500)] {
        let (cluster, mut watch) = struck_watch(fault.clone()).await;
        let event = watch.line().await.unwrap().unwrap();
        assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(code)));
        assert_eq!(event["object"]["kind"], "Status");
        assert_eq!(watch.line().await.unwrap(), None);
        assert_logged(&cluster, &fault);
    }
}

#[tokio::test]
async fn garbage_is_not_json() {
    let (_, mut watch) = struck_watch(Fault::Garbage).await;
    assert!(watch.line().await.is_err());
    let (_, body) = struck_list(Fault::Garbage).await;
    let body = body.unwrap();
    assert!(!is_json(&body) && std::str::from_utf8(&body).is_err());
}

#[tokio::test]
async fn slow_drip_sends_the_complete_answer_in_small_frames() {
    let (cluster, mut watch) = struck_watch(Fault::SlowDrip).await;
    let (key, version) = touch(&cluster);
    let mut frames = 0;
    while memchr::memchr(b'\n', &watch.buffer).is_none() {
        assert!(within(watch.more()).await.unwrap());
        frames += 1;
    }
    assert!(frames > 5, "{frames} frames");
    assert_eq!(watch.event().await, ("MODIFIED".into(), key, version));
    let (_, body) = struck_list(Fault::SlowDrip).await;
    assert!(is_json(&body.unwrap()));
}

#[tokio::test]
async fn dropped_events_expire_the_watch() {
    let (cluster, mut watch) = struck_watch(Fault::DropEvents).await;
    let before = version(&cluster);
    touch(&cluster);
    assert_eq!(watch.line().await.unwrap(), None, "the watch closes without an event");
    let mut again = get(&cluster, &format!("/api/v1/pods?watch=true&resourceVersion={before}")).await;
    assert_eq!(again.line().await.unwrap().unwrap()["object"]["code"], 410);
    assert_logged(&cluster, &Fault::DropEvents);
}

#[tokio::test]
async fn early_close_ends_a_watch_regularly_and_truncates_a_list() {
    let (cluster, mut watch) = struck_watch(Fault::EarlyClose).await;
    assert_eq!(watch.line().await.unwrap(), None);
    assert_logged(&cluster, &Fault::EarlyClose);
    let (_, body) = struck_list(Fault::EarlyClose).await;
    assert!(!is_json(&body.unwrap()), "a list is cut short");
}

#[tokio::test]
async fn fault_withholds_bookmarks() {
    let fast = || start(SimConfig { bookmark_every: Duration::from_millis(1), ..SimConfig::default() });
    let cluster = fast();
    cluster.set_faults(FaultScript::one(Rule::new(When::Watch, Fault::NoBookmarks)));
    let mut watch = get(&cluster, "/api/v1/nodes?watch=true&allowWatchBookmarks=true&timeoutSeconds=1").await;
    while let Some(event) = watch.line().await.unwrap() {
        assert_eq!(event["type"], "ADDED");
    }
    assert_logged(&cluster, &Fault::NoBookmarks);
    let cluster = fast();
    cluster.set_faults(FaultScript::one(Rule::new(When::Streaming, Fault::WithholdMarker)));
    let path =
        "/api/v1/nodes?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = get(&cluster, path).await;
    for i in 0..10 {
        let event = watch.line().await.unwrap().unwrap();
        assert_eq!(event["type"], if i < 3 { "ADDED" } else { "BOOKMARK" });
        assert!(event["object"]["metadata"]["annotations"].get("k8s.io/initial-events-end").is_none());
    }
}

#[tokio::test]
async fn fault_refuses_or_ignores_one_streaming_list() {
    let path = "/api/v1/nodes?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1";
    let script = FaultScript::none()
        .with(Rule::new(When::Streaming, Fault::RefuseStreaming))
        .with(Rule::new(When::Streaming, Fault::IgnoreStreaming));
    let cluster = faulty_cluster(script);
    assert_eq!(json(&cluster, path).await.0, 422);
    let marked = async || {
        let mut watch = get(&cluster, path).await;
        let mut marked = false;
        while let Some(event) = watch.line().await.unwrap() {
            marked |= event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true";
        }
        marked
    };
    assert!(!marked().await);
    assert!(marked().await);
}

#[tokio::test]
async fn unknown_events_keep_the_resource_version() {
    for (fault, kind) in [(Fault::NamelessObject, "MODIFIED"), (Fault::UnknownEventType, "SPARKLED")] {
        let (cluster, mut watch) = struck_watch(fault).await;
        let before = version(&cluster);
        let (key, version) = touch(&cluster);
        let strange = watch.event().await;
        assert_eq!((strange.0.as_str(), strange.2), (kind, before));
        assert_ne!(strange.1, key);
        assert_eq!(watch.event().await, ("MODIFIED".into(), key, version));
    }
    for after in [0, 2] {
        let cluster = faulty_cluster(FaultScript::one(Rule::new(When::List, Fault::NamelessObject).after(after)));
        let (_, list) = json(&cluster, "/api/v1/pods").await;
        let items = list["items"].as_array().unwrap();
        assert_eq!(items.len(), 21);
        assert_eq!(items.iter().position(|item| item["metadata"].get("name").is_none()), Some(after));
    }
}

#[tokio::test]
async fn reordered_event_has_object_before_type() {
    let (cluster, mut watch) = struck_watch(Fault::ReorderedKeys).await;
    let (key, version) = touch(&cluster);
    let line = within(watch.raw_line()).await.unwrap().unwrap();
    assert!(line.starts_with(b"{\"object\":") && line.ends_with(b"\n"));
    assert_eq!(summary(&serde_json::from_slice(&line).unwrap()), ("MODIFIED".into(), key, version));
}

#[tokio::test]
async fn huge_object_is_padded_and_forces_a_relist() {
    let (cluster, mut watch) = struck_watch(Fault::HugeObject(1 << 20)).await;
    let (key, version) = touch(&cluster);
    let line = within(watch.raw_line()).await.unwrap().unwrap();
    assert!(line.len() >= 1 << 20);
    assert_eq!(summary(&serde_json::from_slice(&line).unwrap()), ("MODIFIED".into(), key, version));
    assert_eq!(watch.line().await.unwrap().unwrap()["object"]["code"], 410);
    assert_eq!(watch.line().await.unwrap(), None);
}

#[tokio::test]
async fn down_cluster_cuts_all_connections_until_healed() {
    let rule = Rule::new(When::List, Fault::Down(Duration::from_secs(3600)));
    let cluster = faulty_cluster(FaultScript::one(rule));
    let mut watch = watch_now(&cluster).await;
    assert!(within(try_get(cluster.address(), "/api/v1/pods", &[])).await.is_err());
    assert!(watch.line().await.is_err());
    assert!(TcpStream::connect(cluster.address()).await.is_err());
    cluster.heal();
    cluster.restart().await;
    assert_eq!(json(&cluster, "/api/v1/pods").await.0, 200);
    let rule = Rule::new(When::List, Fault::Down(Duration::from_millis(5)));
    let cluster = faulty_cluster(FaultScript::one(rule));
    assert!(within(try_get(cluster.address(), "/api/v1/pods", &[])).await.is_err());
    let back = async {
        while try_get(cluster.address(), "/api", &[]).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    within(back).await;
}

#[tokio::test]
async fn raw_answer_replaces_the_answer() {
    let raw = RawAnswer::new(418, "teapot").header("content-type", "text/plain").header("retry-after", "soon");
    let fault = Fault::Answer(raw.filled("ab", 100_000));
    for (when, path) in [(When::List, "/api/v1/pods"), (When::Watch, "/api/v1/pods?watch=true"), (When::Any, "/apis")] {
        let cluster = faulty_cluster(FaultScript::one(Rule::new(when, fault.clone())));
        let answer = get(&cluster, path).await;
        assert_eq!(answer.status, 418);
        assert_eq!(answer.headers["content-type"], "text/plain");
        assert_eq!(answer.headers["retry-after"], "soon");
        let body = answer.whole().await.unwrap();
        assert!(body.starts_with(b"teapotabab") && body.len() >= 100_000 && body.len() < 200_000, "{}", body.len());
        assert_logged(&cluster, &fault);
        assert_eq!(get(&cluster, path).await.status, 200, "the fault struck a second request");
    }
}

#[tokio::test]
async fn silent_raw_answer_ends_when_healed() {
    let fault = Fault::Answer(RawAnswer::new(200, "{").then_silence());
    let cluster = faulty_cluster(FaultScript::one(Rule::new(When::List, fault)));
    let mut answer = get(&cluster, "/api/v1/pods").await;
    assert!(within(answer.more()).await.unwrap());
    assert!(tokio::time::timeout(Duration::from_millis(50), answer.more()).await.is_err(), "the answer continued");
    cluster.heal();
    assert_eq!(answer.whole().await.unwrap(), b"{");
}

#[tokio::test]
async fn insert_adds_bytes_between_events_and_items() {
    let (_, mut watch) = struck_watch(Fault::Insert("what\n".into())).await;
    // The line is sent without waiting for an event.
    assert_eq!(within(watch.raw_line()).await.unwrap().unwrap(), b"what\n");
    for after in [0, 2] {
        let cluster = faulty_cluster(FaultScript::one(Rule::new(When::List, Fault::Insert("17".into())).after(after)));
        let (_, list) = json(&cluster, "/api/v1/pods").await;
        let items = list["items"].as_array().unwrap();
        assert_eq!((items.len(), items.iter().position(Value::is_number)), (21, Some(after)));
    }
}
