//! Answers in Kubernetes protobuf.

use axum::body::BodyDataStream;

use super::*;
use crate::api::notes::Notes;
use informer_hub_kubeapi::{Cause, Reason, Status, Subject};
use informer_hub_protobuf::{Converter, Envelope, Omit, Schema, TypeMeta, WatchEvent};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const BOTH: &str = "application/vnd.kubernetes.protobuf,application/json";
const METADATA: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// Converts an object in protobuf to JSON.
fn converted(object: &[u8]) -> Value {
    let Envelope { api_version, kind, raw } = Envelope::read(object).unwrap();
    let message = Schema::builtin().kind(api_version, kind).unwrap();
    let (mut json, type_meta) = (Vec::new(), Some(TypeMeta { api_version, kind }));
    Converter::default().object(message, type_meta, raw, &Omit::default(), usize::MAX, &mut json).unwrap();
    let mut object: Value = serde_json::from_slice(&json).unwrap();
    // Protobuf has no empty lists.
    if let Some(items) = object.get_mut("items").filter(|items| items.is_null()) {
        *items = json!([]);
    }
    object
}

/// Adds `resources`, which pods converted from protobuf always have, to the first container of pods in JSON.
fn with_zeros(mut pods: Value) -> Value {
    let add = |pod: &mut Value| {
        if let Some(container) = pod.pointer_mut("/spec/containers/0") {
            container["resources"] = json!({});
        }
    };
    if let Some(items) = pods.get_mut("items").and_then(Value::as_array_mut) {
        items.iter_mut().for_each(add);
    } else {
        add(&mut pods);
    }
    pods
}

/// A pod with a member that the schema lacks.
fn newer_pod(name: &str, version: u64) -> StoredObject {
    let pod = pod("shop", name, version, "web", "n1");
    let mut json: Value = serde_json::from_slice(&pod.json().unwrap()).unwrap();
    json["spec"]["fromTheFuture"] = json!(true);
    StoredObject::new(StoredObjectParts {
        key: pod.key().clone(),
        uid: pod.uid().clone(),
        resource_version: pod.resource_version().clone(),
        labels: pod.labels().clone(),
        index_values: Vec::<IndexEntry>::new(),
        json: json.to_string().into_bytes(),
    })
}

#[tokio::test]
async fn answers_in_protobuf_equal_those_in_json() {
    let bench = Bench::with_pods();
    for path in [
        "/clusters/a/api/v1/pods",
        "/clusters/a/api/v1/pods?limit=1",
        "/clusters/*/api/v1/pods",
        "/unique/*/api/v1/pods",
        "/clusters/a/api/v1/namespaces/none/pods",
        "/clusters/a/api/v1/namespaces/shop/pods/x",
        "/unique/*/api/v1/namespaces/shop/pods/b:x",
    ] {
        for accept in [PROTOBUF, BOTH] {
            let (code, headers, body) = bench.ask(path, accept).await;
            assert_eq!((code.as_u16(), &headers["content-type"]), (200, &PROTOBUF.parse().unwrap()), "{path}");
            let (_, mut json) = bench.json(path).await;
            json["metadata"].as_object_mut().unwrap().remove("informerHub");
            assert_eq!(converted(&body), with_zeros(json), "{path}");
        }
    }
    let (_, headers, body) = bench.ask("/clusters/*/api/v1/pods?limit=3", METADATA).await;
    let metadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let (_, mut json) = bench.json_of("/clusters/*/api/v1/pods?limit=3", metadata).await;
    json["metadata"].as_object_mut().unwrap().remove("informerHub");
    let mut found = converted(&body);
    for item in found["items"].as_array_mut().unwrap() {
        item["kind"] = json!("PartialObjectMetadata");
        item["apiVersion"] = json!("meta.k8s.io/v1");
    }
    assert_eq!((headers["content-type"].as_bytes(), &found), (PROTOBUF.as_bytes(), &json));
    assert_eq!(found["metadata"]["remainingItemCount"], 1);
    assert!(found["metadata"]["continue"].is_string());
}

#[tokio::test]
async fn custom_resources_are_json_and_their_metadata_is_protobuf() {
    let mut bench = Bench::new(ReadApiOptions { requests: 10, watches: 10, secrets: false });
    let shops = ApiResource { gvr: Gvr::new("example.com", "v1", "shops"), kind: "Shop".into(), namespaced: true };
    bench.list(&shops, "a", vec![pod("shop", "x", 3, "web", "n1")], 10);
    let path = "/clusters/a/apis/example.com/v1/shops";
    let (code, headers, _) = bench.ask(path, BOTH).await;
    assert_eq!((code.as_u16(), headers["content-type"].as_bytes()), (200, &b"application/json"[..]));
    let (code, headers, body) = bench.ask(path, PROTOBUF).await;
    assert_eq!((code.as_u16(), headers["content-type"].as_bytes()), (406, PROTOBUF.as_bytes()));
    assert_eq!(converted(&body)["reason"], "NotAcceptable");
    let (code, headers, body) = bench.ask(path, METADATA).await;
    assert_eq!((code.as_u16(), headers["content-type"].as_bytes()), (200, PROTOBUF.as_bytes()));
    assert_eq!(items(&converted(&body)), ["x@3"]);
    let table = "application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1,application/json";
    let (_, headers, _) = bench.ask("/clusters/a/apis/example.com/v1/shops", table).await;
    assert_eq!(headers["content-type"], "application/json");
}

#[tokio::test]
async fn failures_are_protobuf() {
    let bench = Bench::with_pods();
    let (code, headers, body) = bench.ask("/clusters/a/api/v1/namespaces/shop/pods/none", PROTOBUF).await;
    assert_eq!((code.as_u16(), headers["content-type"].as_bytes()), (404, PROTOBUF.as_bytes()));
    let (_, json) = bench.json("/clusters/a/api/v1/namespaces/shop/pods/none").await;
    assert_eq!(converted(&body), json);
    // All members that a failure can have.
    let cause = Cause { reason: "FieldValueInvalid", message: "no".to_owned(), field: "limit".to_owned() };
    let about = Subject { group: "g".into(), kind: "k".into(), name: "n".into() };
    let failure = Status {
        about: Some(Box::new(about)),
        causes: vec![cause],
        retry_after: Some(5),
        ..Status::new(422, Reason::Invalid, "wrong")
    };
    let json: Value = serde_json::from_slice(&failure.json()).unwrap();
    assert_eq!(converted(&super::super::protobuf::status(&failure)), json);
}

#[tokio::test]
async fn long_list_is_streamed_with_its_length_first() {
    let mut bench = Bench::new(ReadApiOptions { requests: 10, watches: 10, secrets: false });
    // The encoded items exceed `MAX_KEPT`, so they are encoded again while the list is sent.
    let large = "n".repeat(1000);
    let many = (0..4000).map(|i| pod("shop", &format!("p{i:04}"), i + 1, "web", &large)).collect();
    bench.list(&pods(), "a", many, 5000);
    let request = Request::get("/clusters/a/api/v1/pods").header(ACCEPT, PROTOBUF).body(Body::empty()).unwrap();
    let mut body = bench.send(request).await.into_body().into_data_stream();
    let (mut bytes, mut most) = (Vec::new(), 0);
    while let Some(chunk) = body.next().await {
        let chunk = chunk.unwrap();
        most = most.max(chunk.len());
        bytes.extend_from_slice(&chunk);
    }
    assert!(bytes.len() > 4 << 20 && most < 512 << 10, "{} bytes, {most} at once", bytes.len());
    let (_, json) = bench.json("/clusters/a/api/v1/pods").await;
    assert_eq!(converted(&bytes), with_zeros(json));
    assert_eq!(bench.api.queue.in_progress(), 0);
}

/// Returns type, name and version of the next event in protobuf, and its object.
async fn next(body: &mut BodyDataStream, buffer: &mut Vec<u8>) -> (String, Value) {
    loop {
        if let Some((length, rest)) = buffer.split_first_chunk::<4>()
            && let Some(frame) = rest.get(..u32::from_be_bytes(*length) as usize)
        {
            let event = WatchEvent::read(frame).unwrap();
            let event = json!({ "type": event.kind, "object": converted(event.object) });
            let used = 4 + frame.len();
            buffer.drain(..used);
            return (line(&event), event["object"].clone());
        }
        let chunk = tokio::time::timeout(PATIENCE, body.next()).await.expect("an event").expect("no end");
        buffer.extend_from_slice(&chunk.unwrap());
    }
}

#[tokio::test]
async fn watch_is_sent_in_frames() {
    let bench = Bench::with_pods();
    let path = "/clusters/a/api/v1/pods?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
                &allowWatchBookmarks=true";
    let request = Request::get(path).header(ACCEPT, BOTH).body(Body::empty()).unwrap();
    let response = bench.send(request).await;
    assert_eq!(response.headers()["content-type"], "application/vnd.kubernetes.protobuf;stream=watch");
    let (mut body, mut buffer) = (response.into_body().into_data_stream(), Vec::new());
    let (event, object) = next(&mut body, &mut buffer).await;
    assert_eq!((&*event, &object["kind"], &object["spec"]["nodeName"]), ("ADDED x@3", &json!("Pod"), &json!("n1")));
    assert_eq!(next(&mut body, &mut buffer).await.0, "ADDED y@5");
    let (event, object) = next(&mut body, &mut buffer).await;
    assert_eq!((&*event, &object["kind"]), ("BOOKMARK -@10", &json!("Pod")));
    assert_eq!(object["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    bench.event("a", DeltaKind::Updated, pod("shop", "x", 11, "web", "n3"));
    bench.event("a", DeltaKind::Deleted, pod("shop", "y", 12, "web", "n2"));
    assert_eq!(next(&mut body, &mut buffer).await.0, "MODIFIED x@11");
    assert_eq!(next(&mut body, &mut buffer).await.0, "DELETED y@12");

    let path = "/clusters/a/api/v1/pods?watch=1&resourceVersion=1";
    let request = Request::get(path).header(ACCEPT, PROTOBUF).body(Body::empty()).unwrap();
    let (mut body, mut buffer) = (bench.send(request).await.into_body().into_data_stream(), Vec::new());
    let (event, object) = next(&mut body, &mut buffer).await;
    assert_eq!((&*event, &object["code"]), ("ERROR Expired@-", &json!(410)), "{object}");
}

#[tokio::test]
async fn watches_in_two_encodings_share_no_event() {
    let bench = Bench::with_pods();
    let path = "/clusters/a/api/v1/pods?watch=1&resourceVersion=10";
    let mut json = bench.watch(path).await;
    let request = || Request::get(path).header(ACCEPT, PROTOBUF).body(Body::empty()).unwrap();
    let mut first = bench.send(request()).await.into_body().into_data_stream();
    let mut second = bench.send(request()).await.into_body().into_data_stream();
    let mut buffers = [Vec::new(), Vec::new()];
    for version in 11..14 {
        bench.event("a", DeltaKind::Updated, pod("shop", "x", version, "web", "n1"));
        let expected = format!("MODIFIED x@{version}");
        assert_eq!(next(&mut first, &mut buffers[0]).await.0, expected);
        assert_eq!(json.line().await, expected);
        assert_eq!(next(&mut second, &mut buffers[1]).await.0, expected);
    }
    // Each protobuf watch ends, because it cannot encode the object; the failure is not shared.
    bench.event("a", DeltaKind::Updated, newer_pod("x", 14));
    assert_eq!(next(&mut first, &mut buffers[0]).await.0, "ERROR Expired@-");
    assert_eq!(next(&mut second, &mut buffers[1]).await.0, "ERROR Expired@-");
    assert_eq!(json.line().await, "MODIFIED x@14");
}

#[tokio::test]
async fn objects_that_protobuf_would_change_are_json() {
    let bench = Bench::with_pods();
    let path = "/clusters/a/api/v1/pods?watch=1&resourceVersion=10";
    let request = Request::get(path).header(ACCEPT, BOTH).body(Body::empty()).unwrap();
    let (mut body, mut buffer) = (bench.send(request).await.into_body().into_data_stream(), Vec::new());
    bench.event("a", DeltaKind::Updated, newer_pod("x", 11));
    let (event, object) = next(&mut body, &mut buffer).await;
    assert_eq!((&*event, &object["code"]), ("ERROR Expired@-", &json!(410)), "{object}");
    assert!(object["message"].as_str().unwrap().contains("a member of core/v1.PodSpec"), "{object}");

    for (path, at) in [
        ("/clusters/a/api/v1/pods", "/items/0/spec/fromTheFuture"),
        ("/clusters/a/api/v1/namespaces/shop/pods/x", "/spec/fromTheFuture"),
    ] {
        // The first hub already knows that the resource has such an object, the second does not.
        for bench in [&bench, &Bench::with_pods()] {
            bench.event("a", DeltaKind::Updated, newer_pod("x", 12));
            let (code, headers, body) = bench.ask(path, BOTH).await;
            assert_eq!((code.as_u16(), headers["content-type"].as_bytes()), (200, &b"application/json"[..]), "{path}");
            assert_eq!(serde_json::from_slice::<Value>(&body).unwrap().pointer(at), Some(&json!(true)));
            let (code, _, body) = bench.ask(path, PROTOBUF).await;
            assert_eq!((code.as_u16(), &converted(&body)["reason"]), (406, &json!("NotAcceptable")));
        }
    }
    // Other clusters are not affected; roots that include the cluster are.
    for (path, expected) in [("/clusters/b/api/v1/pods", PROTOBUF), ("/clusters/*/api/v1/pods", "application/json")] {
        assert_eq!(bench.ask(path, BOTH).await.1["content-type"], expected, "{path}");
    }
    // A new watch of the resource is JSON, so that it does not end immediately.
    let request = Request::get("/clusters/a/api/v1/pods?watch=1").header(ACCEPT, BOTH).body(Body::empty()).unwrap();
    assert_eq!(bench.send(request).await.headers()["content-type"], "application/json");
}

#[tokio::test]
async fn objects_of_a_short_list_are_counted_for_the_audit_log() {
    let bench = Bench::with_pods();
    for accept in [PROTOBUF, "application/json"] {
        let notes = Notes::default();
        let mut request = Request::get("/clusters/a/api/v1/pods").header(ACCEPT, accept).body(Body::empty()).unwrap();
        request.extensions_mut().insert(notes.clone());
        to_bytes(bench.send(request).await.into_body(), usize::MAX).await.unwrap();
        assert_eq!(notes.objects(), 2, "{accept}");
    }
}
