//! Tests of answers in protobuf: they have the same content as those in JSON.

use serde_json::json;

use super::super::protobuf;
use super::super::{BadProtobuf, Churn, Fault, Rule, When, WorldConfig};
use super::*;
use informer_hub_protobuf::{Converter, Envelope, Omit, Schema, TypeMeta, WatchEvent};

const LIST: &str = "application/vnd.kubernetes.protobuf";
const WATCH: &str = "application/vnd.kubernetes.protobuf;stream=watch";
const BOTH: (&str, &str) = ("accept", "application/vnd.kubernetes.protobuf,application/json");
const PARTIAL: (&str, &str) =
    ("accept", "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json");

/// Converts an object in its envelope to JSON, as the hub does.
fn converted(object: &[u8]) -> Value {
    let Envelope { api_version, kind, raw } = Envelope::read(object).unwrap();
    let message = Schema::builtin().kind(api_version, kind).unwrap();
    let (mut json, type_meta) = (Vec::new(), Some(TypeMeta { api_version, kind }));
    Converter::default().object(message, type_meta, raw, &Omit::default(), usize::MAX, &mut json).unwrap();
    serde_json::from_slice(&json).unwrap()
}

/// Reads frames of a watch.
fn events(mut body: &[u8]) -> Vec<(String, Value)> {
    let mut events = Vec::new();
    while let Some((length, rest)) = body.split_first_chunk::<4>() {
        let (frame, rest) = rest.split_at(u32::from_be_bytes(*length) as usize);
        let event = WatchEvent::read(frame).unwrap();
        events.push((event.kind.to_owned(), converted(event.object)));
        body = rest;
    }
    events
}

/// Returns status, content type and body.
async fn answer(cluster: &SimCluster, path: &str, accept: (&'static str, &str)) -> (u16, String, Vec<u8>) {
    let answer = within(try_get(cluster.address(), path, &[accept])).await.unwrap();
    let content_type = answer.headers["content-type"].to_str().unwrap().to_owned();
    (answer.status.as_u16(), content_type, answer.whole().await.unwrap())
}

#[test]
fn every_object_of_a_changing_world_is_the_same_in_protobuf() {
    for small in [true, false] {
        let mut world = World::typed(&WorldConfig { small, ..WorldConfig::default() });
        let mut churn = Churn::new(1);
        for _ in 0..300 {
            churn.step(&mut world);
        }
        for gvr in [World::pods(), World::nodes(), World::definitions()] {
            let mut writer = protobuf::writer_of(&world.served_as(&gvr).unwrap().api, false).unwrap();
            assert!(world.count(&gvr) > 0);
            for object in world.objects(&gvr) {
                let frame = protobuf::event(&mut writer, "MODIFIED", object.json()).unwrap();
                assert_eq!(events(&frame), [("MODIFIED".to_owned(), object.value())]);
            }
        }
    }
}

#[tokio::test]
async fn pages_streaming_lists_and_watches_have_the_same_objects() {
    let cluster = cluster();
    for path in ["/api/v1/pods?limit=7", "/api/v1/nodes", "/api/v1/pods?limit=7&resourceVersion=0"] {
        let (status, content_type, body) = answer(&cluster, path, BOTH).await;
        assert_eq!((status, content_type.as_str()), (200, LIST));
        assert_eq!(converted(&body), json(&cluster, path).await.1, "{path}");
    }
    let (_, content_type, body) = answer(&cluster, "/api/v1/pods", PARTIAL).await;
    let list = converted(&body);
    assert_eq!((content_type.as_str(), &list["kind"]), (LIST, &json!("PartialObjectMetadataList")));
    assert_eq!(list["items"].as_array().unwrap().len(), 20);
    let path = "/api/v1/pods?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&\
                allowWatchBookmarks=true&timeoutSeconds=1";
    let (_, content_type, body) = answer(&cluster, path, BOTH).await;
    let events = events(&body);
    assert_eq!((content_type.as_str(), events[0].0.as_str(), events[20].0.as_str()), (WATCH, "ADDED", "BOOKMARK"));
    assert_eq!(events[20].1["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    let key = &events[0].1["metadata"];
    let path =
        format!("/api/v1/namespaces/{}/pods/{}", key["namespace"].as_str().unwrap(), key["name"].as_str().unwrap());
    let (_, content_type, body) = answer(&cluster, &path, BOTH).await;
    assert_eq!((content_type.as_str(), converted(&body)), (LIST, events[0].1.clone()));
}

#[tokio::test]
async fn errors_are_statuses_in_protobuf() {
    let cluster = cluster();
    for (path, code) in [("/api/v1/pods?resourceVersion=x", 422), ("/api/v1/pods?watch=1&fieldSelector=a", 400)] {
        let (status, content_type, body) = answer(&cluster, path, BOTH).await;
        let body = converted(&body);
        assert_eq!((status, content_type.as_str(), &body["code"]), (code, LIST, &json!(code)), "{body}");
    }
    cluster.with_world(World::compact);
    let (_, content_type, body) = answer(&cluster, "/api/v1/pods?watch=true&resourceVersion=1", BOTH).await;
    let events = events(&body);
    assert_eq!((content_type.as_str(), events.len(), events[0].0.as_str()), (WATCH, 1, "ERROR"));
    assert_eq!(events[0].1["code"], 410);
}

#[tokio::test]
async fn custom_resources_and_clusters_without_protobuf_answer_json() {
    const WIDGETS: &str = "/apis/example.com/v1/widgets";
    let without = start(SimConfig { protobuf: false, ..SimConfig::default() });
    for (cluster, path) in [(&cluster(), WIDGETS), (&without, WIDGETS), (&without, "/api/v1/pods")] {
        let (status, content_type, _) = answer(cluster, path, BOTH).await;
        assert_eq!((status, content_type.as_str()), (200, "application/json"), "{path}");
        assert_eq!(answer(cluster, path, ("accept", LIST)).await.0, 406, "{path}");
    }
}

/// Returns the list or watch that a fault strikes after one item or event.
async fn struck(fault: BadProtobuf, is_watch: bool) -> (String, Vec<u8>) {
    let when = if is_watch { When::Watch } else { When::List };
    let cluster = faulty_cluster(FaultScript::one(Rule::new(when, Fault::BadProtobuf(fault)).after(1)));
    let query = if is_watch { "?watch=true&timeoutSeconds=1" } else { "" };
    let (_, content_type, body) = answer(&cluster, &format!("/api/v1/pods{query}"), BOTH).await;
    assert_eq!(cluster.fault_log().len(), 1, "{fault:?}");
    (content_type, body)
}

#[tokio::test]
async fn every_fault_spoils_a_list_and_a_watch() {
    let good = answer(&cluster(), "/api/v1/pods", BOTH).await.2;
    let good_watch = answer(&cluster(), "/api/v1/pods?watch=true&timeoutSeconds=1", BOTH).await.2;
    for fault in BadProtobuf::ALL {
        let (content_type, body) = struck(fault, false).await;
        assert_eq!(content_type == LIST, fault != BadProtobuf::LabelledJson, "{fault:?}");
        assert_eq!(body == good, fault == BadProtobuf::LabelledJson, "{fault:?}");
        let (content_type, body) = struck(fault, true).await;
        assert_eq!(content_type == WATCH, fault != BadProtobuf::LabelledJson, "{fault:?}");
        assert_eq!(body == good_watch, fault == BadProtobuf::LabelledJson, "{fault:?}");
    }
    // The envelope's length includes the additional item.
    let (_, body) = struck(BadProtobuf::HalfObject, false).await;
    assert!(Envelope::read(&body).is_ok_and(|list| list.raw.len() > Envelope::read(&good).unwrap().raw.len()));
    let (_, body) = struck(BadProtobuf::Swallow, false).await;
    assert!(Envelope::read(&body).is_ok_and(|list| !list.raw.is_empty()), "the lengths add up");
}
