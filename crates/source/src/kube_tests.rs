use std::time::Duration;

use futures::StreamExt;

use super::super::testserver::{Act, TEST_TIMEOUT, TestServer, failure, head, json};
use super::*;
use informer_hub_codec::Projection;
use informer_hub_reflector::{ErrorClass, ListChunk, WatchItem};
use informer_hub_types::{Gvr, ResourceVersion, View};

const JSON: &str = "Content-Type: application/json\r\n";
const CHUNKED: &str = "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n";

async fn source_with(server: &TestServer, scope: Scope, options: KubeSourceOptions) -> KubeSource {
    let pods = ApiResource { gvr: Gvr::new("", "v1", "pods"), kind: "Pod".into(), namespaced: true };
    let decoder = Decoder::new(pods, &Projection::default(), Vec::new());
    KubeSource::new(server.reloading_client().await, scope, decoder, options, Threads::current())
}

async fn source(server: &TestServer) -> KubeSource {
    source_with(server, Scope::all(), KubeSourceOptions::default()).await
}

fn list() -> ListRequest {
    ListRequest { version: VersionMatch::Any, limit: Some(500), continue_token: None }
}

fn watch() -> WatchRequest {
    let version = VersionMatch::NotOlderThan(ResourceVersion::new("5"));
    WatchRequest { version, timeout: Duration::from_secs(300), initial_events: false }
}

/// Returns the items of a list as text.
async fn run_list(source: &KubeSource) -> (Vec<String>, Result<(), SourceError>) {
    let mut out = Vec::new();
    let run = async {
        let mut stream = source.list(list()).await?;
        while let Some(chunk) = stream.next().await {
            match chunk? {
                ListChunk::Items(items) => out.extend(items.iter().map(|object| object.key().as_str().to_owned())),
                ListChunk::Skipped(skipped) => out.push(format!("skip:{}", skipped.key.unwrap())),
                ListChunk::End { version, .. } => out.push(format!("end:{version}")),
            }
        }
        Ok(())
    };
    let result = tokio::time::timeout(TEST_TIMEOUT, run).await.expect("the list hangs");
    (out, result)
}

/// Returns the events of a watch as text.
async fn run_watch(source: &KubeSource) -> (Vec<String>, Result<(), SourceError>) {
    let mut out = Vec::new();
    let run = async {
        let mut stream = source.watch(watch()).await?;
        while let Some(batch) = stream.next().await {
            out.extend(batch?.items.iter().map(describe));
        }
        Ok(())
    };
    let result = tokio::time::timeout(TEST_TIMEOUT, run).await.expect("the watch hangs");
    (out, result)
}

fn describe(item: &WatchItem) -> String {
    match item {
        WatchItem::Added(object) => format!("+{}", object.key()),
        WatchItem::Modified(object) => format!("~{}", object.key()),
        WatchItem::Deleted(object) => format!("-{}", object.key()),
        WatchItem::Bookmark { version, .. } => format!("@{version}"),
        WatchItem::Skipped(skipped) => format!("skip:{}", skipped.key.as_ref().map_or("", |key| key.as_str())),
    }
}

fn event(kind: &str, name: &str) -> String {
    format!(r#"{{"type":"{kind}","object":{{"metadata":{{"name":"{name}","namespace":"ns","resourceVersion":"7"}}}}}}"#)
        + "\n"
}

fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

const LIST: &str = r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"a","namespace":"ns"}},{"metadata":{"name":"b","namespace":"ns"}}]}"#;

#[tokio::test]
async fn list_is_read_in_chunks_of_any_size() {
    for size in [1, 2, 3, 7, 50, 1000] {
        let mut acts = vec![head("200 OK", CHUNKED)];
        acts.extend(LIST.as_bytes().chunks(size).map(|piece| Act::Send(chunk(piece))));
        acts.push(Act::Send(b"0\r\n\r\n".to_vec()));
        let server = TestServer::always(acts).await;
        let (found, result) = run_list(&source(&server).await).await;
        assert_eq!(found, ["ns/a", "ns/b", "end:9"], "chunks of {size}");
        result.unwrap();
    }
}

#[tokio::test]
async fn watch_is_read_in_small_chunks() {
    let text = event("ADDED", "a") + &event("MODIFIED", "a") + &event("DELETED", "a") + &event("BOOKMARK", "");
    let mut acts = vec![head("200 OK", CHUNKED)];
    acts.extend(text.as_bytes().chunks(1).map(|piece| Act::Send(chunk(piece))));
    acts.push(Act::Send(b"0\r\n\r\n".to_vec()));
    let server = TestServer::always(acts).await;
    let (found, result) = run_watch(&source(&server).await).await;
    assert_eq!(found, ["+ns/a", "~ns/a", "-ns/a", "@7"]);
    result.unwrap();
}

#[tokio::test]
async fn requests_have_expected_parameters() {
    let server = TestServer::always(json(LIST)).await;
    let scope = Scope {
        namespace: Some("sh op".into()),
        label_selector: Some("app in (a,b)".into()),
        field_selector: Some("status.phase=Running".into()),
        view: View::Metadata,
    };
    let options = KubeSourceOptions { metadata_only: true, ..KubeSourceOptions::default() };
    let source = source_with(&server, scope, options).await;
    let _ = run_list(&source).await;
    let _ = run_watch(&source).await;
    let streaming = WatchRequest { version: VersionMatch::MostRecent, initial_events: true, ..watch() };
    drop(source.watch(streaming).await);
    let page = ListRequest { continue_token: Some("t/=".to_owned()), ..list() };
    drop(source.list(page).await);
    let requests = server.requests();
    let selectors = "labelSelector=app%20in%20%28a%2Cb%29&fieldSelector=status.phase%3DRunning";
    let line = |request: &str| request.lines().next().unwrap().to_owned();
    let path = format!("GET /api/v1/namespaces/sh%20op/pods?{selectors}");
    assert_eq!(line(&requests[0]), format!("{path}&limit=500&resourceVersion=0 HTTP/1.1"));
    let timed = format!("{path}&watch=true&allowWatchBookmarks=true&timeoutSeconds=300");
    assert_eq!(line(&requests[1]), format!("{timed}&resourceVersion=5 HTTP/1.1"));
    assert_eq!(
        line(&requests[2]),
        format!("{timed}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan HTTP/1.1")
    );
    assert_eq!(line(&requests[3]), format!("{path}&limit=500&continue=t%2F%3D HTTP/1.1"));
    let lower: Vec<String> = requests.iter().map(|request| request.to_lowercase()).collect();
    let both = "accept: application/vnd.kubernetes.protobuf;as=partialobjectmetadatalist;g=meta.k8s.io;v=v1,\
                application/json;as=partialobjectmetadatalist;g=meta.k8s.io;v=v1,application/json\r\n";
    assert!(lower[0].contains(both), "{}", lower[0]);
    assert!(lower[0].contains("accept-encoding: gzip"), "{}", lower[0]);
    assert!(lower[0].contains(concat!("user-agent: informer-hub/", env!("CARGO_PKG_VERSION"))), "{}", lower[0]);
    assert!(lower[1].contains("accept: application/json;as=partialobjectmetadata;"), "{}", lower[1]);
    assert!(lower[1].contains("accept-encoding: identity"), "{}", lower[1]);
}

/// Encodes a length-delimited protobuf field with at most 127 bytes of content.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, u8::try_from(content.len()).unwrap()], content].concat()
}

/// Encodes a Kubernetes protobuf object of this kind, in the envelope that an apiserver sends.
fn unknown(kind: &str, raw: &[u8]) -> Vec<u8> {
    [b"k8s\0".to_vec(), field(1, &[field(1, b"v1"), field(2, kind.as_bytes())].concat()), field(2, raw)].concat()
}

fn pod(name: &str) -> Vec<u8> {
    field(1, &[field(1, name.as_bytes()), field(3, b"ns"), field(6, b"7")].concat())
}

const PROTOBUF: &str = "Content-Type: application/vnd.kubernetes.protobuf\r\n";
const FRAMES: &str = "Content-Type: application/vnd.kubernetes.protobuf;stream=watch\r\n";

fn frame(kind: &str, object: &[u8]) -> Vec<u8> {
    let event = [field(1, kind.as_bytes()), field(2, &field(1, object))].concat();
    [u32::try_from(event.len()).unwrap().to_be_bytes().to_vec(), event].concat()
}

fn accepts(request: &str) -> &str {
    let line = request.lines().find(|line| line.to_lowercase().starts_with("accept:")).unwrap_or_default();
    line.split_once(": ").map_or("", |(_, value)| value)
}

#[tokio::test]
async fn protobuf_is_requested_and_read() {
    let list = [field(1, &field(2, b"9")), field(2, &pod("a")), field(2, &pod("b"))].concat();
    let server = TestServer::always(vec![head("200 OK", PROTOBUF), Act::Send(unknown("PodList", &list))]).await;
    let (found, result) = run_list(&source(&server).await).await;
    assert_eq!((found, result), (["ns/a", "ns/b", "end:9"].map(ToOwned::to_owned).to_vec(), Ok(())));
    let both = "application/vnd.kubernetes.protobuf,application/json";
    assert_eq!(accepts(&server.requests()[0]), both);

    let events: Vec<u8> = ["ADDED", "MODIFIED", "BOOKMARK", "DELETED"]
        .iter()
        .flat_map(|kind| frame(kind, &unknown("Pod", &pod("a"))))
        .collect();
    let server = TestServer::always(vec![head("200 OK", FRAMES), Act::Send(events.clone())]).await;
    let watching = source(&server).await;
    let (found, result) = run_watch(&watching).await;
    assert_eq!((found, result), (["+ns/a", "~ns/a", "@7", "-ns/a"].map(ToOwned::to_owned).to_vec(), Ok(())));
    let _ = run_watch(&watching).await;
    assert_eq!(accepts(&server.requests()[1]), both, "it is requested again");

    let server = TestServer::always(vec![head("200 OK", FRAMES), Act::Send(events[..events.len() - 3].to_vec())]).await;
    let (found, result) = run_watch(&source(&server).await).await;
    assert!(found.len() == 3 && result.unwrap_err().message.ends_with("the watch ended inside an event"));
}

#[tokio::test]
async fn json_is_requested_once_protobuf_does_not_work() {
    let newer = frame("ADDED", &unknown("Pod", &[pod("a"), field(15, b"new")].concat()));
    let list = [field(1, &field(2, b"9")), field(2, &pod("a"))].concat();
    let well = TestServer::always(vec![head("200 OK", PROTOBUF), Act::Send(unknown("PodList", &list))]).await;
    let elsewhere = source(&well).await;
    assert_eq!(elsewhere.encoding(), None, "before the first answer");
    for (acts, error, after, reason) in [
        (json(LIST), "", 1, JsonReason::Refused),
        (
            vec![head("200 OK", PROTOBUF), Act::Send(LIST.as_bytes().to_vec())],
            "list: the answer is not Kubernetes protobuf",
            3,
            JsonReason::Faulty,
        ),
        (
            vec![head("200 OK", FRAMES), Act::Send(newer)],
            "field 15 of core/v1.Pod is not in the hub's schema",
            1,
            JsonReason::Schema,
        ),
    ] {
        let server = TestServer::always(acts).await;
        let source = source(&server).await;
        let is_watch = error.starts_with("field");
        for _ in 0..after {
            let (_, result) = if is_watch { run_watch(&source).await } else { run_list(&source).await };
            assert_eq!(result.is_err(), !error.is_empty());
            if let Err(found) = result {
                assert!(found.message.contains(error), "{found}");
            }
            assert!(accepts(server.requests().last().unwrap()).contains("protobuf"), "after {error:?}");
        }
        let in_use = source.encoding().unwrap();
        assert_eq!((in_use.fallback(), in_use.until.is_some()), (Some(reason), true));
        let _ = run_list(&source).await;
        assert_eq!(accepts(server.requests().last().unwrap()), "application/json", "after {error:?}");
        // The same resource of another cluster is still read as protobuf.
        run_list(&elsewhere).await.1.unwrap();
        assert_eq!(elsewhere.encoding(), Some(EncodingInUse::protobuf()));
        assert!(accepts(well.requests().last().unwrap()).contains("protobuf"));
    }
}

#[tokio::test]
async fn json_is_requested_at_once_after_406() {
    let server = TestServer::always(failure(406, "NotAcceptable", "")).await;
    let (_, result) = run_list(&source(&server).await).await;
    assert!(result.unwrap_err().message.contains("answered 406"));
    let requests = server.requests();
    let accepted: Vec<&str> = requests.iter().map(|request| accepts(request)).collect();
    assert_eq!(accepted, ["application/vnd.kubernetes.protobuf,application/json", "application/json"]);
}

#[tokio::test]
async fn resource_without_a_message_is_requested_as_json() {
    let server = TestServer::always(json(LIST)).await;
    let shops = ApiResource { gvr: Gvr::new("example.com", "v1", "shops"), kind: "Shop".into(), namespaced: true };
    let decoder = Decoder::new(shops, &Projection::default(), Vec::new());
    let options = KubeSourceOptions::default();
    let client = server.reloading_client().await;
    let source = KubeSource::new(client, Scope::all(), decoder, options, Threads::current());
    let _ = run_list(&source).await;
    assert_eq!(accepts(&server.requests()[0]), "application/json");
}

#[tokio::test]
async fn failures_are_classified_by_answer() {
    for (acts, class) in [
        (failure(410, "Expired", ""), ErrorClass::Expired),
        (failure(429, "TooManyRequests", "Retry-After: 3\r\n"), ErrorClass::Throttled(Some(Duration::from_secs(3)))),
        (failure(403, "Forbidden", ""), ErrorClass::Forbidden),
        (failure(401, "Unauthorized", ""), ErrorClass::Unauthorized),
        (failure(404, "NotFound", ""), ErrorClass::NotFound),
        (failure(500, "InternalError", ""), ErrorClass::Transient),
        (vec![head("200 OK", "Content-Type: text/html\r\n"), Act::Send(b"<html>".to_vec())], ErrorClass::Malformed),
        (vec![head("200 OK", JSON), Act::Send(b"garbage\n".to_vec())], ErrorClass::Malformed),
        (vec![Act::Send(b"SSH-2.0-OpenSSH\r\n\r\n".to_vec())], ErrorClass::Transient),
        (vec![], ErrorClass::Transient),
    ] {
        let server = TestServer::always(acts.clone()).await;
        let source = source(&server).await;
        let error = run_list(&source).await.1.unwrap_err();
        assert_eq!(error.class, class, "list: {error} {acts:?}");
        let error = run_watch(&source).await.1.unwrap_err();
        assert_eq!(error.class, class, "watch: {error} {acts:?}");
    }
}

#[tokio::test]
async fn closed_port_is_classified_as_refused() {
    let server = TestServer::always(vec![]).await;
    let source = source(&server).await;
    let expected = format!("cannot connect to {}: connection refused", server.url());
    drop(server);
    // The listener closes with its task, which ends when it is next polled.
    for _ in 0..1000 {
        let error = run_list(&source).await.1.unwrap_err();
        if error.class == ErrorClass::Refused {
            assert_eq!(error.message, expected);
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("never refused");
}

#[tokio::test]
async fn error_event_ends_watch_after_earlier_events() {
    let text = event("ADDED", "a")
        + r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}"#
        + "\n";
    let server = TestServer::always(json(&text)).await;
    let (found, result) = run_watch(&source(&server).await).await;
    assert_eq!(found, ["+ns/a"]);
    assert_eq!(result.unwrap_err().class, ErrorClass::Expired);
}

// client-go: TestCloseWatchChannelOnError.
#[tokio::test]
async fn error_event_ends_watch_and_closes_its_connection() {
    let status = r#"{"kind":"Status","code":500,"reason":"InternalError","message":"m"}"#;
    let text = event("ADDED", "a") + &format!("{{\"type\":\"ERROR\",\"object\":{status}}}\n");
    let server = TestServer::always(vec![head("200 OK", JSON), Act::Send(text.into()), Act::Hold]).await;
    let (found, result) = run_watch(&source(&server).await).await;
    assert_eq!(found, ["+ns/a"]);
    assert_eq!(result.unwrap_err().class, ErrorClass::Transient);
    server.closed().await;
}

#[tokio::test]
async fn watch_that_ends_inside_a_line_fails_after_earlier_events() {
    let half = &event("ADDED", "b")[..30];
    let close = json(&(event("ADDED", "a") + half));
    let chunked = vec![head("200 OK", CHUNKED), Act::Send(chunk((event("ADDED", "a") + half).as_bytes()))];
    for acts in [close, chunked] {
        let server = TestServer::always(acts).await;
        let (found, result) = run_watch(&source(&server).await).await;
        assert_eq!(found, ["+ns/a"]);
        assert_eq!(result.unwrap_err().class, ErrorClass::Transient);
    }
    let server = TestServer::always(json(event("ADDED", "a").trim_end())).await;
    let (found, result) = run_watch(&source(&server).await).await;
    assert_eq!(found, ["+ns/a"], "a last line may lack its newline");
    result.unwrap();
}

#[tokio::test]
async fn truncated_list_fails() {
    let half = &LIST.as_bytes()[..LIST.len() - 5];
    for acts in [
        vec![head("200 OK", JSON), Act::Send(half.to_vec())],
        vec![head("200 OK", CHUNKED), Act::Send(chunk(half))],
        vec![head("200 OK", &format!("{JSON}Content-Length: 10000\r\n")), Act::Send(half.to_vec())],
    ] {
        let server = TestServer::always(acts).await;
        let (_, result) = run_list(&source(&server).await).await;
        assert_eq!(result.unwrap_err().class, ErrorClass::Transient);
    }
}

#[tokio::test]
async fn oversized_object_is_skipped_by_name_in_list_and_watch() {
    let piece = vec![b'x'; 1024 * 1024];
    let big = r#"{"metadata":{"name":"big","namespace":"ns"},"data":""#;
    let small = r#"{"metadata":{"name":"a","namespace":"ns"}}"#;
    let server = TestServer::start(move |request| {
        let (before, after) = if request.contains("watch=true") {
            (format!(r#"{{"type":"ADDED","object":{big}"#), "\"}}\n".to_owned() + &event("ADDED", "a"))
        } else {
            (format!(r#"{{"items":[{big}"#), format!(r#""}},{small}],"metadata":{{"resourceVersion":"9"}}}}"#))
        };
        let body = [Act::Send(before.into()), Act::Repeat(piece.clone(), 50), Act::Send(after.into())];
        [vec![head("200 OK", JSON)], body.to_vec()].concat()
    })
    .await;
    let source = source(&server).await;
    let (found, result) = run_list(&source).await;
    assert_eq!(found, ["skip:ns/big", "ns/a", "end:9"]);
    result.unwrap();
    let (found, result) = run_watch(&source).await;
    assert_eq!(found, ["skip:ns/big", "+ns/a"]);
    result.unwrap();
}

#[tokio::test]
async fn endless_line_ends_watch_and_connection() {
    let acts = vec![head("200 OK", JSON), Act::Repeat(vec![b'x'; 64 * 1024], usize::MAX)];
    let server = TestServer::always(acts).await;
    let options = KubeSourceOptions { max_object_bytes: 1024 * 1024, ..KubeSourceOptions::default() };
    let source = source_with(&server, Scope::all(), options).await;
    let (_, result) = run_watch(&source).await;
    assert_eq!(result.unwrap_err().class, ErrorClass::Malformed);
    server.closed().await;
}

#[tokio::test]
async fn dropped_stream_or_future_closes_the_connection() {
    let open = vec![head("200 OK", JSON), Act::Send(event("ADDED", "a").into()), Act::Hold];
    let server = TestServer::always(open).await;
    let source = source(&server).await;
    let mut stream = source.watch(watch()).await.unwrap();
    assert_eq!(stream.next().await.unwrap().unwrap().items.len(), 1);
    drop(stream);
    server.closed().await;

    let server = TestServer::always(vec![Act::Hold]).await;
    let source = self::source(&server).await;
    let mut waiting = source.list(list());
    while server.requests().is_empty() {
        assert!(futures::poll!(&mut waiting).is_pending());
        tokio::task::yield_now().await;
    }
    drop(waiting);
    server.closed().await;
}

#[tokio::test]
async fn silent_server_stalls() {
    let short = Duration::from_millis(50);
    let stall = StallPolicy { watch_head: short, list_head: short, list_chunk: short, ..StallPolicy::default() };
    let options = KubeSourceOptions { stall, ..KubeSourceOptions::default() };
    let silent = TestServer::always(vec![Act::Hold]).await;
    let source = source_with(&silent, Scope::all(), options.clone()).await;
    assert_eq!(run_list(&source).await.1.unwrap_err().class, ErrorClass::Stalled);
    assert_eq!(run_watch(&source).await.1.unwrap_err().class, ErrorClass::Stalled);
    let half = TestServer::always(vec![head("200 OK", JSON), Act::Send(LIST[..100].into()), Act::Hold]).await;
    let source = source_with(&half, Scope::all(), options).await;
    assert_eq!(run_list(&source).await.1.unwrap_err().class, ErrorClass::Stalled);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_reader_gets_larger_batches() {
    let count = 5000;
    let acts = vec![head("200 OK", JSON), Act::Repeat(event("MODIFIED", "a").into(), count)];
    let server = TestServer::always(acts).await;
    let source = source(&server).await;
    let mut stream = source.watch(watch()).await.unwrap();
    let (mut total, mut batches) = (0, 0);
    while let Some(batch) = stream.next().await {
        total += batch.unwrap().items.len();
        batches += 1;
        tokio::task::yield_now().await;
    }
    assert_eq!(total, count);
    assert!(batches < count / 4, "{batches} batches");
}
