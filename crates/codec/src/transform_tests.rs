use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use serde_json::json;

use super::*;
use crate::decode::{Decoded, Decoder};
use crate::{Projection, WatchItem};
use informer_hub_types::{ApiResource, Gvr, StoredObject};

const POD: &str = r#"{"metadata":{"name":"web","namespace":"shop","uid":"u1","resourceVersion":"7","labels":{"app":"web"},
    "managedFields":[1]},"spec":{"nodeName":"n1"},"data":"hunter2"}"#;

fn decoder(transform: Transform) -> Decoder {
    let pods = ApiResource { gvr: Gvr::new("", "v1", "pods"), kind: "Pod".into(), namespaced: true };
    let indexes = vec![("by-node".into(), "spec.nodeName".parse().unwrap())];
    Decoder::new(pods, &Projection::default(), indexes).with_transform(Some(transform))
}

fn changing(change: impl Fn(&mut Value) + Send + Sync + 'static) -> Decoder {
    decoder(Transform::json(move |object| {
        change(object);
        Ok::<_, String>(())
    }))
}

fn object(decoder: &mut Decoder) -> Arc<StoredObject> {
    match decoder.decode_object(POD.as_bytes()).unwrap() {
        Decoded::Object(object) => object,
        Decoded::Skipped(skipped) => panic!("{}", skipped.reason),
    }
}

fn skipped(decoder: &mut Decoder) -> (String, String) {
    match decoder.decode_object(POD.as_bytes()).unwrap() {
        Decoded::Object(object) => panic!("{object:?} was decoded"),
        Decoded::Skipped(skipped) => (skipped.key.unwrap().as_str().to_owned(), skipped.reason),
    }
}

#[test]
fn store_indices_and_labels_use_the_result() {
    let mut decoder = changing(|object| {
        object["data"] = json!("***");
        object["spec"]["nodeName"] = json!("n2");
        object["metadata"]["labels"] = json!({"tier": "front"});
    });
    let object = object(&mut decoder);
    let stored: Value = object.typed().unwrap();
    assert_eq!((&stored["data"], &stored["kind"], &stored["apiVersion"]), (&json!("***"), &json!("Pod"), &json!("v1")));
    assert_eq!(stored["metadata"].get("managedFields"), None);
    assert_eq!((object.labels().get("tier"), object.labels().get("app")), (Some("front"), None));
    assert_eq!(object.index_values().iter().map(|entry| entry.value.as_str()).collect::<Vec<_>>(), ["n2"]);
    assert!(!object.json_text().unwrap().contains("hunter2"));
}

#[test]
fn transform_runs_once_per_received_object() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let mut decoder = changing(move |object| {
        counted.fetch_add(1, SeqCst);
        // The input is the object as received, not the previous output.
        assert_eq!(object["seen"], Value::Null);
        object["seen"] = json!(true);
    });
    for times in 1..=3 {
        assert_eq!(object(&mut decoder).typed::<Value>().unwrap()["seen"], json!(true));
        assert_eq!(calls.load(SeqCst), times);
    }
}

#[test]
fn identity_is_that_of_the_apiserver() {
    let mut decoder = changing(|object| {
        object["metadata"]["uid"] = json!("u2");
        object["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    });
    let object = object(&mut decoder);
    assert_eq!((object.uid().to_string(), object.resource_version().to_string()), ("u1".to_owned(), "7".to_owned()));
}

#[test]
fn failed_transform_skips_the_object_with_a_reason() {
    let mut fails = decoder(Transform::json(|_| Err("no")));
    assert_eq!(skipped(&mut fails), ("shop/web".into(), "transform failed: no".into()));
    let mut panics = changing(|_| panic!("on purpose"));
    assert_eq!(skipped(&mut panics).1, "transform failed: it panicked");
    let mut renames = changing(|object| object["metadata"]["name"] = json!("other"));
    let reason =
        "transform failed: the result has another key, \"shop/other\"; a transform must not change name or namespace";
    assert_eq!(skipped(&mut renames), ("shop/web".into(), reason.into()));
    let mut moves = changing(|object| drop(object["metadata"].as_object_mut().unwrap().remove("namespace")));
    assert!(skipped(&mut moves).1.contains("another key, \"web\""));
    let mut replaces = changing(|object| *object = json!([]));
    assert_eq!(skipped(&mut replaces).1, "transform failed: the result is not an object");
    let mut mistyped = decoder(Transform::typed(|_: &mut Vec<u8>| Ok::<_, String>(())));
    assert_eq!(skipped(&mut mistyped).1, "transform failed: the object does not fit the transform's Rust type");
    let mut unwritable = decoder(Transform::typed(|_: &mut Unwritable| Ok::<_, String>(())));
    assert_eq!(skipped(&mut unwritable).1, "transform failed: cannot serialize the result as JSON");
}

/// Type that deserializes from every object and cannot be serialized.
#[derive(serde::Deserialize)]
struct Unwritable {}

impl Serialize for Unwritable {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("hunter2"))
    }
}

#[test]
fn transform_may_change_the_kind() {
    let mut renames = changing(|object| object["kind"] = json!("Summary"));
    assert!(object(&mut renames).json_text().unwrap().contains(r#""kind":"Summary""#));
}

#[test]
fn deletion_counts_if_transform_fails() {
    let mut decoder = decoder(Transform::json(|_| Err("no")));
    let event = |kind: &str| format!("{{\"type\":\"{kind}\",\"object\":{}}}", POD.replace('\n', " "));
    let deleted = decoder.decode_event(event("DELETED").as_bytes()).unwrap();
    let WatchItem::Deleted(head) = deleted else { panic!("{deleted:?}") };
    assert!(head.is_head_only() && head.body_size() == 0);
    assert_eq!((head.key().as_str(), head.uid().to_string()), ("shop/web", "u1".to_owned()));
    assert_eq!(head.resource_version().to_string(), "7");
    let modified = decoder.decode_event(event("MODIFIED").as_bytes()).unwrap();
    assert!(matches!(modified, WatchItem::Skipped(_)), "{modified:?}");
}

#[test]
fn oversized_deletion_counts_if_key_is_certain() {
    let mut decoder = changing(|_| {});
    let head = r#"{"type":"DELETED","object":{"metadata":{"name":"web","namespace":"shop","uid":"u1","resourceVersion":"9","x":"#;
    let item = decoder.skip_event(head.as_bytes(), "large".to_owned());
    let WatchItem::Deleted(object) = item else { panic!("{item:?}") };
    assert_eq!((object.key().as_str(), object.resource_version().to_string()), ("shop/web", "9".to_owned()));
    let item = decoder.skip_event(br#"{"type":"DELETED","object":{"metadata":{"name":"web","#, "large".to_owned());
    assert!(matches!(item, WatchItem::Skipped(_)), "{item:?}");
}

#[test]
fn transforms_are_equal_only_if_identical() {
    let one = Transform::json(|_| Ok::<_, String>(()));
    assert_eq!(one, one.clone());
    assert_ne!(one, Transform::json(|_| Ok::<_, String>(())));
    assert_eq!(format!("{one:?}"), "Transform { .. }");
}
