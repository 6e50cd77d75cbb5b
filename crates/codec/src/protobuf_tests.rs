//! Tests of decoding events and list items in protobuf. The inputs are encoded field by field.

use super::super::paths::omitted;
use super::super::projection::Projection;
use super::*;
use informer_hub_protobuf::{ObjectWriter, Omit};
use informer_hub_types::{ApiResource, Gvr, StoredObject};

/// Encodes a length-delimited field.
pub(crate) fn bytes(number: usize, content: &[u8]) -> Vec<u8> {
    [varint(number << 3 | 2), varint(content.len()), content.to_vec()].concat()
}

pub(crate) fn varint(mut number: usize) -> Vec<u8> {
    let mut out = Vec::new();
    while number >= 0x80 {
        out.push(u8::try_from(number & 0x7f).unwrap() | 0x80);
        number >>= 7;
    }
    out.push(u8::try_from(number).unwrap());
    out
}

/// Encodes the envelope of an object, `runtime.Unknown`.
pub(crate) fn unknown(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let type_meta = [bytes(1, api_version.as_bytes()), bytes(2, kind.as_bytes())].concat();
    [b"k8s\0".to_vec(), bytes(1, &type_meta), bytes(2, raw), bytes(3, b""), bytes(4, b"")].concat()
}

/// Encodes a pod with a label and a node.
pub(crate) fn pod(name: &str, version: &str) -> Vec<u8> {
    let label = bytes(11, &[bytes(1, b"app"), bytes(2, b"web")].concat());
    let managed = bytes(17, &bytes(1, b"kubelet"));
    let metadata =
        [bytes(1, name.as_bytes()), bytes(3, b"ns"), bytes(5, b"u1"), bytes(6, version.as_bytes()), label, managed];
    [bytes(1, &metadata.concat()), bytes(2, &bytes(10, b"n1"))].concat()
}

fn event(kind: &str, object: &[u8]) -> Vec<u8> {
    [bytes(1, kind.as_bytes()), bytes(2, &bytes(1, object))].concat()
}

pub(crate) fn decoder() -> Decoder {
    let by_node = ("by-node".into(), "spec.nodeName".parse().unwrap());
    Decoder::new(pods(), &Projection::default(), vec![by_node])
}

fn pods() -> ApiResource {
    ApiResource { gvr: Gvr::new("", "v1", "pods"), kind: "Pod".into(), namespaced: true }
}

fn decode(decoder: &mut Decoder, frame: &[u8]) -> Result<WatchItem, SourceError> {
    decoder.decode_frame(frame, 1 << 20)
}

fn json(object: &StoredObject) -> String {
    String::from_utf8(object.json().unwrap().to_vec()).unwrap()
}

#[test]
fn watch_event_equals_that_of_json() {
    let mut decoder = decoder();
    let item = decode(&mut decoder, &event("MODIFIED", &unknown("v1", "Pod", &pod("a", "7")))).unwrap();
    let WatchItem::Modified(object) = item else { panic!("{item:?}") };
    assert_eq!((object.key().as_str(), object.resource_version().to_string().as_str()), ("ns/a", "7"));
    let line = format!(r#"{{"type":"MODIFIED","object":{}}}"#, json(&object));
    let WatchItem::Modified(same) = decoder.decode_event(line.as_bytes()).unwrap() else { panic!() };
    assert_eq!(
        (json(&same), same.labels(), same.index_values()),
        (json(&object), object.labels(), object.index_values())
    );
    assert!(
        json(&object).starts_with(r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","#),
        "{}",
        json(&object)
    );
    assert!(!json(&object).contains("managedFields") && object.index_values().len() == 1);
}

#[test]
fn index_values_are_those_of_the_json() {
    let object = br#"{"metadata":{"name":"a","namespace":"ns","labels":{"app":"web","tier":"x=y"},"ownerReferences":[
        {"apiVersion":"v1","kind":"Job","name":"j","uid":"u-1"},{"apiVersion":"v1","kind":"Job","name":"k","uid":"u-2"}]},
        "spec":{"nodeName":"","hostNetwork":true,"terminationGracePeriodSeconds":30,"containers":[
        {"name":"c","image":"nginx","ports":[{"containerPort":80}]},{"name":"d","image":"redis","resources":{
        "limits":{"cpu":"2"}}}]},"status":{"phase":"Running","startTime":"2024-11-24T08:21:23Z"}}"#;
    let paths = [
        "metadata.labels.app",
        "metadata.labels.none",
        "metadata.ownerReferences[*].uid",
        "metadata.ownerReferences.uid",
        "metadata.labels",
        "metadata.creationTimestamp",
        "spec.containers[*].image",
        "spec.containers[*].name",
        "spec.containers[*].ports[*].containerPort",
        "spec.containers[*].resources.limits.cpu",
        "spec.containers",
        "spec.hostNetwork",
        "spec.nodeName",
        "spec.terminationGracePeriodSeconds",
        "spec.noSuchMember",
        "status.phase",
        "status.startTime",
    ];
    for kind in [None, Some("kind")] {
        let indexes = paths.into_iter().chain(kind).map(|path| (path.into(), path.parse().unwrap())).collect();
        let mut decoder = Decoder::new(pods(), &Projection::default(), indexes);
        let type_meta = TypeMeta { api_version: "v1", kind: "Pod" };
        let message = ObjectWriter::new(type_meta, 1 << 20).unwrap().message(object).unwrap().to_vec();
        let item = decode(&mut decoder, &event("ADDED", &unknown("v1", "Pod", &message))).unwrap();
        let WatchItem::Added(received) = item else { panic!("{item:?}") };
        assert_eq!(received.protobuf().unwrap().is_some(), kind.is_none(), "a message does not have its kind");
        let line = format!(r#"{{"type":"ADDED","object":{}}}"#, json(&received));
        let WatchItem::Added(same) = decoder.decode_event(line.as_bytes()).unwrap() else { panic!() };
        let sorted = |object: &StoredObject| {
            let mut values = object.index_values().to_vec();
            values.sort_by_key(|entry| entry.index.clone());
            values
        };
        assert_eq!(sorted(&received), sorted(&same));
        assert_eq!(received.index_values().len(), 13 + usize::from(kind.is_some()));
        assert_eq!(received.labels(), same.labels());
    }
}

#[test]
fn bookmark_frees_the_scratch_buffers() {
    let mut decoder = decoder();
    // The low limit forces a conversion at arrival, since the JSON might exceed it.
    decoder.decode_frame(&event("ADDED", &unknown("v1", "Pod", &pod("a", "7"))), 4_000).unwrap();
    assert!(decoder.protobuf.json.capacity() > 0);
    let bookmark = event("BOOKMARK", &unknown("v1", "Pod", &bytes(1, &bytes(6, b"8"))));
    decode(&mut decoder, &bookmark).unwrap();
    assert_eq!(decoder.protobuf.json.capacity(), 0);
    decode(&mut decoder, &event("MODIFIED", &unknown("v1", "Pod", &pod("a", "9")))).unwrap();
}

#[test]
fn bookmarks_and_errors_are_read() {
    let mut decoder = decoder();
    let annotation = bytes(12, &[bytes(1, b"k8s.io/initial-events-end"), bytes(2, b"true")].concat());
    let bookmark = bytes(1, &[bytes(6, b"99"), annotation].concat());
    match decode(&mut decoder, &event("BOOKMARK", &unknown("v1", "Pod", &bookmark))).unwrap() {
        WatchItem::Bookmark { version, initial_events_end: true } => assert_eq!(version.to_string(), "99"),
        other => panic!("{other:?}"),
    }
    let status = [bytes(3, b"too old"), bytes(4, b"Expired"), vec![6 << 3, 0x9a, 3]].concat();
    let error = decode(&mut decoder, &event("ERROR", &unknown("v1", "Status", &status))).unwrap_err();
    assert_eq!((error.class, error.message.as_str()), (ErrorClass::Expired, "answered 410 Expired: too old"));
    assert!(decoder.wants_protobuf(false));
}

#[tokio::test(start_paused = true)]
async fn unknown_field_leads_to_json_for_six_hours() {
    let mut decoder = decoder();
    let newer = [pod("a", "7"), bytes(15, b"")].concat();
    assert!(decode(&mut decoder, &event("ADDED", &unknown("v1", "Pod", &newer))).is_ok(), "it is empty");
    let newer = [pod("a", "7"), bytes(15, b"x")].concat();
    let error = decode(&mut decoder, &event("ADDED", &unknown("v1", "Pod", &newer))).unwrap_err();
    assert_eq!(error.class, ErrorClass::Transient);
    assert!(error.message.starts_with("field 15 of core/v1.Pod is not in the hub's schema"), "{}", error.message);
    assert!(!decoder.wants_protobuf(false) && decoder.encoding(false).message.as_ref() == Some(&error.message));
    assert!(decoder.encoding(false).until.is_some());
    tokio::time::advance(std::time::Duration::from_secs(6 * 3_600 - 1)).await;
    assert!(!decoder.wants_protobuf(false));
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    assert!(decoder.wants_protobuf(false));
}

#[test]
fn oversized_object_is_skipped_and_its_deletion_counts() {
    let mut decoder = decoder();
    let mut small = |kind| decoder.decode_frame(&event(kind, &unknown("v1", "Pod", &pod("a", "7"))), 20).unwrap();
    match small("ADDED") {
        WatchItem::Skipped(skipped) => assert_eq!(skipped.reason, "larger than the limit of 20 bytes"),
        other => panic!("{other:?}"),
    }
    let large = [pod("a", "7"), bytes(3, &bytes(3, &[b'x'; 3000]))].concat();
    match decoder.decode_frame(&event("DELETED", &unknown("v1", "Pod", &large)), 1000).unwrap() {
        WatchItem::Deleted(object) => assert_eq!(object.key().as_str(), "ns/a"),
        other => panic!("{other:?}"),
    }
    assert!(decoder.wants_protobuf(false));
}

#[test]
fn object_of_another_kind_is_skipped_whatever_it_contains() {
    let mut decoder = decoder();
    for (api_version, kind) in [("v1", "Node"), ("v1", "Status"), ("apps/v1", "Deployment"), ("example.com/v1", "Pod")]
    {
        for raw in [pod("a", "7"), bytes(99, b"x"), vec![0x0b]] {
            match decode(&mut decoder, &event("DELETED", &unknown(api_version, kind, &raw))).unwrap() {
                WatchItem::Skipped(skipped) => {
                    assert!(skipped.reason.contains(&format!("unexpected kind {kind:?}")), "{}", skipped.reason);
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(decoder.wants_protobuf(false));
}

#[tokio::test(start_paused = true)]
async fn malformed_object_leads_to_json_for_a_while() {
    let broken = unknown("v1", "Pod", &[pod("a", "7"), bytes(2, b"")].concat());
    let mut decoder = decoder();
    for kind in ["ADDED", "DELETED"] {
        decode(&mut decoder, &event("ADDED", &unknown("v1", "Pod", &pod("b", "6")))).unwrap();
        assert!(decoder.wants_protobuf(false));
        let error = decode(&mut decoder, &event(kind, &broken)).unwrap_err();
        assert_eq!(error.class, ErrorClass::Transient);
        assert!(error.message.starts_with("invalid protobuf: a field that occurs twice; reading"), "{}", error.message);
        assert!(!decoder.wants_protobuf(false));
        tokio::time::advance(std::time::Duration::from_secs(600)).await;
    }
}

#[test]
fn something_else_than_an_event_ends_the_watch() {
    let pod = pod("a", "7");
    for frame in [
        br#"{"type":"ADDED","object":{}}"#.to_vec(),
        b"\x1f\x8b\x08\0\0\0\0\0".to_vec(),
        event("ADDED", &pod),
        event("", &unknown("v1", "Pod", &pod)),
        event("ADDED", b""),
        [event("ADDED", &unknown("v1", "Pod", &pod)), bytes(2, &bytes(1, b"x"))].concat(),
        [unknown("v1", "Pod", &pod), bytes(4, b"application/json")].concat(),
    ] {
        let mut decoder = decoder();
        let errors = [(); 3].map(|()| decode(&mut decoder, &frame).unwrap_err());
        assert!(errors.iter().all(|error| error.class == ErrorClass::Malformed), "{errors:?} for {frame:?}");
        assert!(!decoder.wants_protobuf(false), "after {errors:?} for {frame:?}");
    }
}

#[test]
fn truncated_event_has_its_key() {
    let mut decoder = decoder();
    let long = [pod("a", "7"), bytes(3, &[0; 5000])].concat();
    let frame = event("DELETED", &unknown("v1", "Pod", &long));
    match decoder.skip_frame(&frame[..400], "too long".to_owned()) {
        WatchItem::Deleted(object) => assert_eq!(object.key().as_str(), "ns/a"),
        other => panic!("{other:?}"),
    }
    for end in 0..frame.len().min(200) {
        let _ = decoder.skip_frame(&frame[..end], String::new());
    }
}

#[test]
fn any_prefix_or_flipped_byte_is_handled() {
    let frame = event("ADDED", &unknown("v1", "Pod", &pod("a", "7")));
    for at in 0..frame.len() {
        let _ = decode(&mut decoder(), &frame[..at]);
        for bit in 0..8 {
            let mut broken = frame.clone();
            broken[at] ^= 1 << bit;
            let _ = decode(&mut decoder(), &broken);
        }
    }
}

#[test]
fn read_members_are_converted_even_if_they_are_dropped() {
    let paths = |texts: &[&str]| Projection::Drop(texts.iter().map(|text| text.parse().unwrap()).collect());
    let index = vec![("by-node".into(), "spec.nodeName".parse().unwrap())];
    let omits = |text: &str| omitted(&paths(&[text]), &index).0 != Omit::default();
    for (path, expected) in [
        ("metadata.managedFields", true),
        ("status", true),
        ("spec.containers", true),
        ("spec", false),
        ("spec.nodeName", false),
        ("metadata", false),
        ("metadata.uid", false),
        ("metadata.annotations", false),
        ("metadata.labels", false),
        ("spec.containers[*].image", false),
    ] {
        assert_eq!(omits(path), expected, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn answers_that_are_not_protobuf_lead_to_json_for_a_while() {
    use std::time::Duration;
    let mut decoder = decoder();
    let fails = |decoder: &mut Decoder| decode(decoder, b"\x0a").unwrap_err();
    let works = |decoder: &mut Decoder| {
        decode(decoder, &event("ADDED", &unknown("v1", "Pod", &pod("a", "1")))).unwrap();
    };
    for _ in 0..2 {
        fails(&mut decoder);
        fails(&mut decoder);
        assert!(decoder.wants_protobuf(false), "two in a row may be an accident");
        works(&mut decoder);
    }
    fails(&mut decoder);
    fails(&mut decoder);
    let error = fails(&mut decoder);
    assert!(!decoder.wants_protobuf(false) && decoder.encoding(false).message == Some(error.message));
    let in_use = decoder.encoding(false);
    assert_eq!((in_use.reason, in_use.until.is_some()), (Some(JsonReason::Faulty), true));
    tokio::time::advance(Duration::from_secs(600)).await;
    assert!(decoder.wants_protobuf(false));
    fails(&mut decoder);
    assert!(!decoder.wants_protobuf(false), "it still does not work");
    tokio::time::advance(Duration::from_secs(600)).await;
    works(&mut decoder);
    assert!(decoder.wants_protobuf(false) && decoder.encoding(false) == EncodingInUse::protobuf());
}

#[tokio::test(start_paused = true)]
async fn refused_protobuf_is_requested_again_after_an_hour() {
    use std::time::Duration;
    let mut decoder = decoder();
    for _ in 0..2 {
        decoder.refuse_protobuf(JsonReason::Refused, "the server answered with JSON");
        let in_use = decoder.encoding(false);
        assert_eq!((in_use.reason, in_use.until.is_some()), (Some(JsonReason::Refused), true));
        tokio::time::advance(Duration::from_secs(3_599)).await;
        assert!(!decoder.wants_protobuf(false));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(decoder.wants_protobuf(false));
    }
    decode(&mut decoder, &event("ADDED", &unknown("v1", "Pod", &pod("a", "1")))).unwrap();
    assert_eq!(decoder.encoding(false), EncodingInUse::protobuf());
}
