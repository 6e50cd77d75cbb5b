//! Tests of the splitter of lists in protobuf. The list bodies arrive in pieces of any size.

use super::*;
use crate::protobuf::tests::{bytes, decoder, pod, unknown, varint as encoded};

fn list(items: &[Vec<u8>]) -> Vec<u8> {
    let metadata = [bytes(1, b""), bytes(2, b"42"), bytes(3, b"token"), vec![4 << 3, 9]].concat();
    let items: Vec<u8> = items.iter().flat_map(|item| bytes(2, item)).collect();
    unknown("v1", "PodList", &[bytes(1, &metadata), items].concat())
}

fn read(limit: usize, body: &[u8], piece: usize) -> (Vec<String>, Result<(), SourceError>) {
    let (mut splitter, mut decoder, mut steps) = (ProtobufListSplitter::new(limit), decoder(), Vec::new());
    let mut all = || {
        for chunk in body.chunks(piece.max(1)) {
            splitter.feed(chunk);
            loop {
                match splitter.next(&mut decoder)? {
                    ListStep::NeedMore => break,
                    step => steps.push(step),
                }
            }
            assert!(splitter.buffered() <= 4 * (limit + piece + MAX_MEMBER), "{}", splitter.buffered());
        }
        while !splitter.is_done() {
            steps.push(splitter.finish(&mut decoder)?);
        }
        Ok(())
    };
    let result = all();
    let name = |step: &ListStep| match step {
        ListStep::Object(object) => {
            assert!(object.json().unwrap().starts_with(br#"{"apiVersion":"v1","kind":"Pod","metadata":{"#));
            object.key().as_str().to_owned()
        }
        ListStep::Skipped(skipped) => format!("skipped {}", skipped.key.as_ref().map_or("", |key| key.as_str())),
        ListStep::End { version, continue_token, remaining } => {
            format!("end {version} {continue_token:?} {remaining:?}")
        }
        ListStep::NeedMore => "need more".to_owned(),
    };
    (steps.iter().map(name).collect(), result)
}

#[test]
fn items_are_found_for_any_split() {
    let large = [pod("large", "2"), bytes(3, &[0; 3000])].concat();
    let body = list(&[pod("a", "1"), large, vec![], pod("b", "4")]);
    let expected = ["ns/a", "skipped ns/large", "skipped ", "ns/b", r#"end 42 Some("token") Some(9)"#];
    for piece in (1..40).chain([1000, body.len()]) {
        let (steps, result) = read(2000, &body, piece);
        assert_eq!((steps, result), (expected.map(ToOwned::to_owned).to_vec(), Ok(())), "in pieces of {piece}");
    }
}

#[test]
fn empty_list_ends() {
    let (steps, result) = read(2000, &unknown("v1", "PodList", b""), 3);
    assert_eq!((steps, result), (vec!["end  None None".to_owned()], Ok(())));
}

#[test]
fn truncated_list_is_transient() {
    let body = list(&[pod("a", "1"), pod("b", "2")]);
    for end in 0..body.len() - 4 {
        let (steps, result) = read(2000, &body[..end], 7);
        assert_eq!(result.unwrap_err().class, ErrorClass::Transient, "at {end}");
        assert!(steps.len() < 3);
    }
}

#[test]
fn something_else_than_a_list_is_malformed() {
    let refused = |body: &[u8]| {
        let (steps, result) = read(2000, body, 5);
        let error = result.unwrap_err();
        assert!(steps.is_empty() && error.class == ErrorClass::Malformed, "{error}");
        error.message
    };
    assert_eq!(refused(br#"{"kind":"PodList"}"#), "list: the answer is not Kubernetes protobuf");
    assert_eq!(refused(b"\x1f\x8b\x08\0"), "list: the answer is not Kubernetes protobuf");
    assert_eq!(refused(&unknown("v1", "Status", b"")), "list: the server answered 200 with a Status instead of a list");
    assert_eq!(
        refused(&unknown("v1", "NodeList", b"")),
        r#"list: unexpected kind "NodeList" of "v1", expected "PodList" of "v1""#
    );
    assert_eq!(
        refused(&unknown("v1", "Pod", b"")),
        r#"list: unexpected kind "Pod" of "v1", expected "PodList" of "v1""#
    );
    assert_eq!(
        refused(&[b"k8s\0".to_vec(), bytes(2, &bytes(2, &pod("a", "1")))].concat()),
        "list: the answer has no kind"
    );
    let lies = |raw: &[u8]| refused(&unknown("v1", "PodList", raw));
    assert_eq!(lies(&[0x12, 200, 1, 0]), "list: invalid protobuf: a field is longer than the list");
    assert_eq!(
        lies(&[0x12, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1]),
        "list: invalid protobuf: a field is longer than the list"
    );
    assert!(lies(&[0x12, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1]).contains("varint"));
    assert_eq!(lies(&[0x13, 0x14]), "list: invalid protobuf: a group or an unknown wire type");
    assert_eq!(lies(&[0x10, 1]), "list: invalid protobuf: field 2 has an unexpected wire type");
    assert_eq!(lies(&[0x00, 1]), "list: invalid protobuf: a field number out of range");
}

#[test]
fn metadata_of_any_resource_is_read() {
    let items = [bytes(1, &[bytes(2, b"5")].concat()), bytes(2, &pod("a", "1")[..pod("a", "1").len() - 6])].concat();
    let body = unknown("meta.k8s.io/v1", "PartialObjectMetadataList", &items);
    let (mut splitter, mut decoder) = (ProtobufListSplitter::default(), decoder());
    splitter.feed(&body);
    let ListStep::Object(object) = splitter.next(&mut decoder).unwrap() else { panic!() };
    let start = br#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a""#;
    assert!(object.json().unwrap().starts_with(start), "{}", String::from_utf8_lossy(&object.json().unwrap()));
}

/// If a list ends without an error, it must contain all objects: the reflector deletes objects that a list lacks.
#[test]
fn list_with_a_lying_length_is_never_complete() {
    let items = [pod("a", "1"), pod("b", "2"), pod("c", "3")];
    let metadata = bytes(1, &bytes(2, b"42"));
    for (at, item) in items.iter().enumerate() {
        for length in 0..items.len() * item.len() + 8 {
            if length == item.len() {
                continue;
            }
            let mut raw = metadata.clone();
            for (other, item) in items.iter().enumerate() {
                raw.extend(bytes(2, if other == at { &[] } else { item }));
                if other == at {
                    raw.pop();
                    raw.extend(encoded(length));
                    raw.extend(item);
                }
            }
            let (steps, result) = read(2000, &unknown("v1", "PodList", &raw), 1000);
            assert!(result.is_err(), "length {length} of item {at}: {steps:?}");
        }
    }
}
