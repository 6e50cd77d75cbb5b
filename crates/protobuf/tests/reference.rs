//! Conversion of objects whose protobuf and JSON apimachinery wrote. `tests/real` compares many more.
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::BTreeSet;

use informer_hub_protobuf::{
    ConvertError, Converter, END_OF_ENVELOPE, EncodeError, Encoder, Envelope, Omit, Schema, TypeMeta, begin_envelope,
};

#[path = "reference/objects.rs"]
mod objects;

use objects::objects;

fn convert(wire: &[u8], omit: &Omit, limit: usize) -> Result<Vec<u8>, ConvertError> {
    let envelope = Envelope::read(wire)?;
    let Envelope { api_version, kind, raw } = envelope;
    let message = Schema::builtin().kind(api_version, kind).ok_or(ConvertError::Malformed("an unknown kind"))?;
    let mut json = Vec::new();
    Converter::default().object(message, Some(TypeMeta { api_version, kind }), raw, omit, limit, &mut json)?;
    Ok(json)
}

#[test]
fn objects_equal_those_of_apimachinery() {
    let objects = objects();
    let mut kinds = BTreeSet::new();
    for (wire, json) in &objects {
        let converted = convert(wire, &Omit::default(), usize::MAX).unwrap();
        assert_eq!(String::from_utf8_lossy(&converted), String::from_utf8_lossy(json));
        let envelope = Envelope::read(wire).unwrap();
        kinds.insert((envelope.api_version, envelope.kind));
    }
    assert!(kinds.len() > 90, "{} kinds", kinds.len());
}

#[test]
fn extents_are_those_of_members_near_the_root() {
    let mut omit = Omit::default();
    omit.add(["metadata", "labels"]);
    omit.add(["status"]);
    let mut converter = Converter::default();
    for (wire, _) in objects() {
        let Envelope { api_version, kind, raw } = Envelope::read(wire).unwrap();
        let (message, mut json) = (Schema::builtin().kind(api_version, kind).unwrap(), Vec::new());
        converter.object(message, Some(TypeMeta { api_version, kind }), raw, &omit, usize::MAX, &mut json).unwrap();
        let mut outer_end = 0;
        let (mut members, mut metadata) = (vec!["kind".to_owned(), "apiVersion".to_owned()], Vec::new());
        for extent in converter.extents() {
            let member = [b"{", &json[extent.key..extent.end], b"}"].concat();
            let member: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&member).unwrap();
            let name = member.keys().next().unwrap().clone();
            if extent.key >= outer_end {
                outer_end = extent.end;
                members.push(name);
            } else if members.last().unwrap() == "metadata" {
                metadata.push(name);
            }
        }
        let object: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&json).unwrap();
        let names = |value: &serde_json::Map<String, serde_json::Value>| value.keys().cloned().collect::<BTreeSet<_>>();
        assert_eq!(members.into_iter().collect::<BTreeSet<_>>(), names(&object), "{kind}");
        if let Some(found) = object.get("metadata").and_then(|metadata| metadata.as_object()) {
            assert_eq!(metadata.into_iter().collect::<BTreeSet<_>>(), names(found), "{kind}");
        }
    }
}

#[test]
fn omitted_members_are_missing_and_nothing_else() {
    let mut omit = Omit::default();
    omit.add(["metadata", "managedFields"]);
    omit.add(["spec"]);
    let mut had = 0;
    for (wire, json) in objects() {
        let mut expected: serde_json::Value = serde_json::from_slice(json).unwrap();
        let object = expected.as_object_mut().unwrap();
        had += usize::from(object.remove("spec").is_some());
        if let Some(metadata) = object.get_mut("metadata").and_then(|metadata| metadata.as_object_mut()) {
            had += usize::from(metadata.remove("managedFields").is_some());
        }
        let converted = convert(wire, &omit, usize::MAX).unwrap();
        assert_eq!(serde_json::from_slice::<serde_json::Value>(&converted).unwrap(), expected);
    }
    assert!(had > 30, "{had}");
}

#[test]
fn any_prefix_or_changed_byte_is_converted_or_refused() {
    for (number, (wire, _)) in objects().into_iter().enumerate() {
        // Tests every 17th offset, at a different start per object, so that the test takes only a second.
        for at in (number % 17..wire.len()).step_by(17) {
            let _ = convert(&wire[..at], &Omit::default(), 1 << 20);
            for change in [0x01, 0x08, 0x80, 0xff] {
                let mut broken = wire.to_vec();
                broken[at] ^= change;
                if let Ok(json) = convert(&broken, &Omit::default(), 1 << 20) {
                    assert!(serde_json::from_slice::<serde::de::IgnoredAny>(&json).is_ok(), "object {number} at {at}");
                }
            }
        }
    }
}

#[test]
fn json_is_bounded() {
    for (wire, json) in objects() {
        assert_eq!(convert(wire, &Omit::default(), json.len()).unwrap().len(), json.len());
        assert_eq!(convert(wire, &Omit::default(), json.len() - 1), Err(ConvertError::TooLarge));
    }
    // 8 Mi containers of two bytes, each of which has 34 bytes of JSON.
    let containers = [0x12, 0].repeat(8 << 20);
    let pod = Schema::builtin().kind("v1", "Pod").unwrap();
    let spec = [&[0x12, 0x80, 0x80, 0x80, 0x08], containers.as_slice()].concat();
    let mut json = Vec::new();
    let result = Converter::default().object(pod, None, &spec, &Omit::default(), 1 << 20, &mut json);
    assert_eq!(result, Err(ConvertError::TooLarge));
    assert!(json.len() < (1 << 20) + 100, "{}", json.len());
}

#[test]
fn nesting_is_bounded() {
    let definition = Schema::builtin().kind("apiextensions.k8s.io/v1", "CustomResourceDefinition").unwrap();
    let field = |number: usize, content: &[u8]| {
        let (mut out, mut rest) = (Vec::new(), number << 3 | 2);
        for mut part in [std::mem::take(&mut rest), content.len()] {
            while part >= 0x80 {
                out.push(u8::try_from(part & 0x7f).unwrap() | 0x80);
                part >>= 7;
            }
            out.push(u8::try_from(part).unwrap());
        }
        [out, content.to_vec()].concat()
    };
    let nested = |depth: usize| {
        // `not` is field 28 of JSONSchemaProps.
        let schema = (0..depth).fold(Vec::new(), |inner, _| field(28, &inner));
        let version = field(4, &field(1, &schema));
        let raw = field(2, &field(7, &version));
        let mut json = Vec::new();
        Converter::default().object(definition, None, &raw, &Omit::default(), 1 << 20, &mut json).map(|()| json.len())
    };
    assert!(nested(80).unwrap() > 80 * 8);
    assert_eq!(nested(200), Err(ConvertError::TooDeep));
    assert_eq!(nested(5_000), Err(ConvertError::TooDeep));
}

/// Encodes an object with its envelope.
fn encode(json: &[u8], api_version: &str, kind: &str, limit: usize) -> Result<Vec<u8>, EncodeError> {
    let message = Schema::builtin().kind(api_version, kind).unwrap();
    let (mut raw, mut wire) = (Vec::new(), Vec::new());
    Encoder::default().object(message, json, limit, &mut raw)?;
    begin_envelope(&mut wire, TypeMeta { api_version, kind }, raw.len());
    wire.extend_from_slice(&raw);
    wire.extend_from_slice(END_OF_ENVELOPE);
    Ok(wire)
}

/// Returns whether an object's JSON shows that nothing of its protobuf was lost. A conversion to JSON loses bytes that
/// are not UTF-8, and the white space and escapes of embedded JSON.
fn keeps_all(json: &[u8]) -> bool {
    const LOST: [&str; 5] =
        ["\\ufffd", r#""a":[1,2.50,null]"#, r"f:a\u003cb", r"x\u003cy \u0026 z", r#"{"u":"\u2028"}"#];
    let json = std::str::from_utf8(json).unwrap();
    !LOST.iter().any(|lost| json.contains(lost))
}

#[test]
fn encoded_objects_equal_those_of_apimachinery() {
    let mut equal = 0;
    for (wire, json) in objects() {
        let Envelope { api_version, kind, .. } = Envelope::read(wire).unwrap();
        let encoded = encode(json, api_version, kind, usize::MAX).unwrap_or_else(|error| panic!("{kind}: {error}"));
        let converted = convert(&encoded, &Omit::default(), usize::MAX).unwrap();
        // Bytes that are not UTF-8 become U+FFFD in the encoded message. Converted back, this character is not escaped.
        let expected = String::from_utf8(json.to_vec()).unwrap().replace("\\ufffd", "\u{fffd}");
        assert_eq!(String::from_utf8_lossy(&converted), expected);
        if keeps_all(json) {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).escape_debug().to_string();
            assert_eq!(text(&encoded), text(wire), "{kind}: {expected}");
            assert!(encoded == wire, "{kind}");
            equal += 1;
        }
    }
    assert!(equal > 30, "{equal}");
}

#[test]
fn members_in_any_order_are_encoded_alike() {
    fn shuffled(value: &mut serde_json::Value) -> String {
        match value {
            serde_json::Value::Object(members) => {
                let members = members.iter_mut().rev();
                let members = members.map(|(key, value)| format!(" {:?} : {}", key, shuffled(value)));
                format!("{{{} }}", members.collect::<Vec<_>>().join(" ,"))
            }
            serde_json::Value::Array(values) => {
                format!("[ {} ]", values.iter_mut().map(shuffled).collect::<Vec<_>>().join(" , "))
            }
            other => other.to_string(),
        }
    }
    let mut compared = 0;
    for (wire, json) in objects() {
        let text = std::str::from_utf8(json).unwrap();
        // Skip objects that this test cannot shuffle: it escapes keys by Rust's rules, and the encoder keeps the order
        // of embedded JSON.
        if !keeps_all(json) || text.contains('\\') || text.contains("f:metadata") {
            continue;
        }
        let Envelope { api_version, kind, .. } = Envelope::read(wire).unwrap();
        let shuffled = shuffled(&mut serde_json::from_slice(json).unwrap());
        assert_eq!(encode(shuffled.as_bytes(), api_version, kind, usize::MAX).as_deref(), Ok(wire), "{shuffled}");
        compared += 1;
    }
    assert!(compared > 5, "{compared}");
}

#[test]
fn any_prefix_or_changed_byte_of_json_is_encoded_or_refused() {
    let mut encoded = 0;
    for (number, (wire, json)) in objects().into_iter().enumerate() {
        let Envelope { api_version, kind, .. } = Envelope::read(wire).unwrap();
        for at in (number % 17..json.len()).step_by(17) {
            assert!(encode(&json[..at], api_version, kind, 1 << 20).is_err(), "object {number} ends at {at}");
            for change in [0x01, 0x04, 0x10, 0x80] {
                let mut broken = json.to_vec();
                broken[at] ^= change;
                if let Ok(wire) = encode(&broken, api_version, kind, 1 << 20) {
                    // Each message that the encoder writes must be convertible.
                    convert(&wire, &Omit::default(), 1 << 24)
                        .unwrap_or_else(|error| panic!("{number} at {at}: {error}"));
                    encoded += 1;
                }
            }
        }
    }
    assert!(encoded > 1000, "{encoded}");
}

#[test]
fn unknown_and_wrong_members_are_refused() {
    let pod = |json: &str| encode(json.as_bytes(), "v1", "Pod", 1 << 20).unwrap_err().to_string();
    assert_eq!(pod(r#"{"spec":{"nodeNme":"a"}}"#), "a member of core/v1.PodSpec is not in the hub's schema");
    assert_eq!(pod(r#"{"metadata":{"kind":"a"}}"#), "a member of meta/v1.ObjectMeta is not in the hub's schema");
    assert_eq!(pod(r#"{"spec":{"nodeName":"a","nodeName":"b"}}"#), "invalid object: a member that occurs twice");
    assert_eq!(pod(r#"{"spec":{"nodeName":1}}"#), "invalid object: a value with an unexpected type");
    assert_eq!(pod(r#"{"spec":{"priority":2147483648}}"#), "invalid object: a number out of range");
    assert_eq!(pod(r#"{"spec":{"priority":1.0}}"#), "invalid object: a number out of range");
    assert_eq!(pod(r#"{"metadata":{"creationTimestamp":"today"}}"#), "invalid object: not a time");
    for json in ["", "[]", "null", "{}{}", "{,}", r#"{"spec":{},}"#, r#"{"spec":{"containers":[,]}}"#, r#"{"spec" {}}"#]
    {
        assert!(pod(json).starts_with("invalid object: "), "{json}");
    }
    let secret = |json: &str| encode(json.as_bytes(), "v1", "Secret", 1 << 20);
    assert!(secret(r#"{"data":{"a":"YQ==","b":"","c":null}}"#).is_ok());
    assert_eq!(secret(r#"{"data":{"a":"?"}}"#), Err(EncodeError::Malformed("not base64")));
    let claim = |kind: &str| {
        let json = format!(r#"{{"spec":{{"volumeClaimTemplates":[{{"kind":"{kind}","apiVersion":"v1"}}]}}}}"#);
        encode(json.as_bytes(), "apps/v1", "StatefulSet", 1 << 20)
    };
    assert!(claim("PersistentVolumeClaim").is_ok() && claim("Claim").is_err());
}

#[test]
fn protobuf_is_bounded() {
    for (wire, json) in objects() {
        let Envelope { api_version, kind, raw } = Envelope::read(wire).unwrap();
        if keeps_all(json) {
            assert!(encode(json, api_version, kind, raw.len()).is_ok());
            assert_eq!(encode(json, api_version, kind, raw.len() - 1), Err(EncodeError::TooLarge), "{kind}");
        }
    }
    // 4 Mi containers of three bytes, each of which has 30 bytes of protobuf.
    let containers = format!(r#"{{"spec":{{"containers":[{}{{}}]}}}}"#, "{},".repeat(4 << 20));
    let (pod, mut out) = (Schema::builtin().kind("v1", "Pod").unwrap(), Vec::new());
    let result = Encoder::default().object(pod, containers.as_bytes(), 1 << 20, &mut out);
    assert_eq!(result, Err(EncodeError::TooLarge));
    assert!(out.len() < (1 << 20) + 100, "{}", out.len());
}

#[test]
fn nesting_of_json_is_bounded() {
    let nested = |depth: usize| {
        let schema = r#"{"not":"#.repeat(depth) + "{}" + &"}".repeat(depth);
        let json = format!(r#"{{"spec":{{"versions":[{{"schema":{{"openAPIV3Schema":{schema}}}}}]}}}}"#);
        encode(json.as_bytes(), "apiextensions.k8s.io/v1", "CustomResourceDefinition", 1 << 20).map(|wire| wire.len())
    };
    assert!(nested(80).unwrap() > 80 * 4);
    assert_eq!(nested(200), Err(EncodeError::TooDeep));
    assert_eq!(nested(100_000), Err(EncodeError::TooDeep));
}

#[test]
fn entries_of_maps_are_sorted_by_their_keys() {
    let labels =
        |labels: &str| encode(format!(r#"{{"metadata":{{"labels":{{{labels}}}}}}}"#).as_bytes(), "v1", "Pod", 1 << 20);
    let sorted = labels(r#""a":"1","aa":"2","b":"3""#);
    assert!(sorted.is_ok());
    assert_eq!(labels(r#""b":"3","a":"1","aa":"2""#), sorted);
}

#[test]
fn unset_times_of_a_map_are_encoded_as_empty_messages() {
    let json = br#"{"kind":"PodDisruptionBudget","apiVersion":"policy/v1","status":{"disruptedPods":{"a":null,"b":"2024-11-24T08:21:23Z"}}}"#;
    let wire = encode(json, "policy/v1", "PodDisruptionBudget", 1 << 20).unwrap();
    let converted = String::from_utf8(convert(&wire, &Omit::default(), usize::MAX).unwrap()).unwrap();
    assert!(converted.contains(r#""disruptedPods":{"a":null,"b":"2024-11-24T08:21:23Z"}"#), "{converted}");
    assert!(wire.windows(5).any(|bytes| bytes == b"\x0a\x01a\x12\x00"), "Go writes an empty message");
}
