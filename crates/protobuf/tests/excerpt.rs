//! Excerpts and stripped messages beside the full conversion of the same objects.
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::BTreeSet;

use informer_hub_protobuf::{ConvertError, Converter, Envelope, Excerpt, ObjectWriter, Omit, Picked, Schema, TypeMeta};
use serde_json::Value;

#[path = "reference/objects.rs"]
mod objects;

use objects::objects;

const LIMIT: usize = 1 << 26;

/// Paths of members, with values of all forms.
const PATHS: &[&[&str]] = &[
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "labels"],
    &["metadata", "resourceVersion"],
    &["metadata", "ownerReferences", "uid"],
    &["metadata", "annotations"],
    &["metadata", "creationTimestamp"],
    &["spec", "nodeName"],
    &["spec", "replicas"],
    &["spec", "containers", "image"],
    &["spec", "containers", "resources"],
    &["spec", "template", "spec", "serviceAccountName"],
    &["spec", "ports"],
    &["status", "phase"],
    &["status", "conditions", "type"],
    &["involvedObject", "uid"],
    &["endpoints", "targetRef", "name"],
    &["data"],
    &["noSuchMember", "x"],
    &["type"],
];

fn omit() -> Omit {
    let mut omit = Omit::default();
    omit.add(["metadata", "managedFields"]);
    omit
}

fn full(wire: &[u8], omit: &Omit) -> Result<Vec<u8>, ConvertError> {
    let Envelope { api_version, kind, raw } = Envelope::read(wire)?;
    let message = Schema::builtin().kind(api_version, kind).ok_or(ConvertError::Malformed("an unknown kind"))?;
    let mut json = Vec::new();
    Converter::default().object(message, Some(TypeMeta { api_version, kind }), raw, omit, LIMIT, &mut json)?;
    Ok(json)
}

/// Returns excerpt and stored envelope.
fn excerpt(wire: &[u8], omit: &Omit) -> Result<(Vec<u8>, Vec<u8>), ConvertError> {
    let Envelope { api_version, kind, raw } = Envelope::read(wire)?;
    let message = Schema::builtin().kind(api_version, kind).ok_or(ConvertError::Malformed("an unknown kind"))?;
    let paths = PATHS.iter().map(|path| path.iter().copied());
    let excerpt = Excerpt::new(message, paths, omit).unwrap();
    let (mut json, mut stored) = (Vec::new(), Vec::new());
    let type_meta = TypeMeta { api_version, kind };
    excerpt.read(&mut Converter::default(), Some(type_meta), raw, &mut json)?;
    excerpt.write(type_meta, raw, &mut stored)?;
    Ok((json, stored))
}

/// Returns the values at a path, within each element of arrays.
fn values<'v>(value: &'v Value, path: &[&str], found: &mut Vec<&'v Value>) {
    match (value, path) {
        (Value::Array(elements), [_, ..]) => elements.iter().for_each(|element| values(element, path, found)),
        (Value::Object(members), [name, rest @ ..]) => {
            if let Some(value) = members.get(*name) {
                values(value, rest, found);
            }
        }
        (value, []) => found.push(value),
        _ => {}
    }
}

#[test]
fn excerpt_has_the_values_of_the_whole_object() {
    let (mut compared, mut refused) = (0, 0);
    for (wire, _) in objects() {
        let whole: Value = serde_json::from_slice(&full(wire, &Omit::default()).unwrap()).unwrap();
        let Ok((json, _)) = excerpt(wire, &omit()) else {
            assert_eq!(whole["kind"], "CustomResourceDefinition", "only its schemas are not checked");
            refused += 1;
            continue;
        };
        let excerpt: Value = serde_json::from_slice(&json).unwrap();
        assert_eq!((&excerpt["kind"], &excerpt["apiVersion"]), (&whole["kind"], &whole["apiVersion"]));
        for path in PATHS {
            let (mut of_excerpt, mut of_whole) = (Vec::new(), Vec::new());
            values(&excerpt, path, &mut of_excerpt);
            values(&whole, path, &mut of_whole);
            assert_eq!(of_excerpt, of_whole, "{path:?} of {}", whole["kind"]);
            compared += of_whole.len();
        }
    }
    assert!(compared > 200 && refused < 5, "{compared}, {refused}");
}

/// Adds the paths of all scalars in a value, without the steps into elements of arrays.
fn scalar_paths(value: &Value, path: &mut Vec<String>, found: &mut BTreeSet<Vec<String>>) {
    match value {
        Value::Array(elements) => elements.iter().for_each(|element| scalar_paths(element, path, found)),
        Value::Object(members) => {
            for (name, value) in members {
                path.push(name.clone());
                scalar_paths(value, path, found);
                path.pop();
            }
        }
        _ => drop(found.insert(path.clone())),
    }
}

#[test]
fn each_scalar_of_an_object_can_be_picked_alone() {
    let mut compared = 0;
    for (wire, _) in objects() {
        let Envelope { api_version, kind, raw } = Envelope::read(wire).unwrap();
        let (message, type_meta) = (Schema::builtin().kind(api_version, kind).unwrap(), TypeMeta { api_version, kind });
        let whole: Value = serde_json::from_slice(&full(wire, &Omit::default()).unwrap()).unwrap();
        let mut paths = BTreeSet::new();
        scalar_paths(&whole, &mut Vec::new(), &mut paths);
        for path in paths {
            let names: Vec<&str> = path.iter().map(String::as_str).collect();
            let picked = Picked::new(message, [names.iter().copied()]);
            let mut json = Vec::new();
            Converter::default().picked(message, Some(type_meta), raw, &picked, &mut json).unwrap();
            let alone: Value = serde_json::from_slice(&json).unwrap();
            let (mut of_alone, mut of_whole) = (Vec::new(), Vec::new());
            values(&alone, &names, &mut of_alone);
            values(&whole, &names, &mut of_whole);
            assert_eq!(of_alone, of_whole, "{names:?} of {kind}");
            compared += 1;
        }
    }
    assert!(compared > 2_000, "{compared}");
}

#[test]
fn members_of_messages_inlined_twice_are_picked() {
    let json = br#"{"spec":{"matchConstraints":{"resourceRules":[{"operations":["CREATE"],"apiGroups":["apps"],"resources":["deployments"]}]}}}"#;
    let kind = TypeMeta { api_version: "admissionregistration.k8s.io/v1", kind: "ValidatingAdmissionPolicy" };
    let message = Schema::builtin().kind(kind.api_version, kind.kind).unwrap();
    let raw = ObjectWriter::new(kind, LIMIT).unwrap().message(json).unwrap().to_vec();
    let picked = Picked::new(message, [["spec", "matchConstraints", "resourceRules", "resources"]]);
    let mut out = Vec::new();
    Converter::default().picked(message, None, &raw, &picked, &mut out).unwrap();
    let expected = r#"{"spec":{"matchConstraints":{"resourceRules":[{"resources":["deployments"]}]}}}"#;
    assert_eq!(String::from_utf8_lossy(&out), expected);
}

#[test]
fn embedded_json_that_is_not_utf8_has_no_excerpt() {
    let kind = TypeMeta { api_version: "apps/v1", kind: "ControllerRevision" };
    let message = Schema::builtin().kind(kind.api_version, kind.kind).unwrap();
    let mut raw =
        ObjectWriter::new(kind, LIMIT).unwrap().message(br#"{"data":{"a":"@"},"revision":1}"#).unwrap().to_vec();
    let excerpt = Excerpt::new(message, [["metadata", "name"]], &Omit::default()).unwrap();
    let read = |raw: &[u8]| excerpt.read(&mut Converter::default(), Some(kind), raw, &mut Vec::new()).is_ok();
    assert!(read(&raw));
    let at = raw.iter().position(|byte| *byte == b'@').unwrap();
    raw[at] = 0xff;
    assert!(!read(&raw));
}

#[test]
fn stored_object_is_converted_like_the_received_one() {
    let mut shorter = 0;
    for (wire, _) in objects() {
        let Ok((_, stored)) = excerpt(wire, &omit()) else { continue };
        assert_eq!(full(&stored, &Omit::default()), full(wire, &omit()));
        shorter += usize::from(stored.len() < wire.len());
        let Ok((_, whole)) = excerpt(wire, &Omit::default()) else { continue };
        assert_eq!(full(&whole, &Omit::default()), full(wire, &Omit::default()));
    }
    assert!(shorter > 10, "{shorter}");
}

#[test]
fn object_with_an_excerpt_can_be_converted_in_full() {
    let (mut accepted, mut refused) = (0, 0);
    for (number, (wire, _)) in objects().into_iter().enumerate() {
        // Each object at other places, so that the test takes a second.
        for at in (number % 17..wire.len()).step_by(17) {
            for change in [0x00, 0x01, 0x02, 0x08, 0x80, 0xff] {
                let mut broken = wire[..if change == 0 { at } else { wire.len() }].to_vec();
                if let Some(byte) = broken.get_mut(at) {
                    *byte ^= change;
                }
                let Ok((_, stored)) = excerpt(&broken, &omit()) else {
                    refused += 1;
                    continue;
                };
                let expected = full(&broken, &omit());
                assert!(expected.is_ok(), "object {number}, {change} at {at}: {expected:?}");
                assert_eq!(full(&stored, &Omit::default()), expected, "object {number}, {change} at {at}");
                accepted += 1;
            }
        }
    }
    assert!(accepted > 5_000 && refused > 5_000, "{accepted}, {refused}");
}

#[test]
fn members_that_leave_a_trace_are_not_stripped() {
    let excerpt = |kind: (&str, &str), path: &[&str]| {
        let mut omit = Omit::default();
        omit.add(path.iter().copied());
        let message = Schema::builtin().kind(kind.0, kind.1).unwrap();
        Excerpt::new(message, [["metadata", "name"]], &omit).is_some()
    };
    let pod = ("v1", "Pod");
    assert!(excerpt(pod, &["metadata", "managedFields"]));
    assert!(excerpt(pod, &["spec", "nodeName"]));
    assert!(excerpt(pod, &["noSuchMember"]));
    // Go writes `status: {}` and `containers: null`.
    assert!(!excerpt(pod, &["status"]));
    assert!(!excerpt(pod, &["spec", "containers"]));
    // Paths through lists and maps.
    assert!(!excerpt(pod, &["spec", "volumes", "name"]));
    assert!(!excerpt(pod, &["metadata", "annotations", "a"]));
    // Members of an inlined message.
    assert!(!excerpt(("v1", "PersistentVolume"), &["spec", "nfs"]));
}
