//! Compares excerpts and stripped messages with the full conversion of the same objects.
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use informer_hub_protobuf::{
    ConvertError, Converter, Envelope, Excerpt, Found, MessageId, ObjectWriter, Omit, Picked, Schema, Step, TypeMeta,
};
use informer_hub_protobuf::{Reader, Value as Wire};
use serde_json::Value;

#[path = "reference/objects.rs"]
mod objects;

use objects::objects;

const LIMIT: usize = 1 << 26;

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

/// Checks an object and returns its stored envelope.
fn stored(wire: &[u8], omit: &Omit) -> Result<Vec<u8>, ConvertError> {
    let Envelope { api_version, kind, raw } = Envelope::read(wire)?;
    let message = Schema::builtin().kind(api_version, kind).ok_or(ConvertError::Malformed("an unknown kind"))?;
    let excerpt = Excerpt::new(message, [[Step::Member("metadata"), Step::Member("name")]], omit).unwrap();
    excerpt.read(raw, &mut |_, _| ())?;
    let mut stored = Vec::new();
    excerpt.write(TypeMeta { api_version, kind }, raw, &mut stored)?;
    Ok(stored)
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

/// A path: names of members, and `None` for each element of a list.
type Path = Vec<Option<String>>;

/// Adds the scalars in a value, as text, in the order of the JSON.
fn scalars(value: &Value, path: &mut Path, found: &mut BTreeMap<Path, Vec<String>>) {
    let text = match value {
        Value::Array(elements) => {
            path.push(None);
            for element in elements {
                scalars(element, path, found);
            }
            path.pop();
            return;
        }
        Value::Object(members) => {
            for (name, value) in members {
                path.push(Some(name.clone()));
                scalars(value, path, found);
                path.pop();
            }
            return;
        }
        Value::Null => return,
        Value::String(text) => text.clone(),
        number => number.to_string(),
    };
    found.entry(path.clone()).or_default().push(text);
}

fn steps(path: &Path) -> Vec<Step<'_>> {
    path.iter().map(|name| name.as_deref().map_or(Step::Each, Step::Member)).collect()
}

fn excerpt_of(message: MessageId, paths: &[&Path], omit: &Omit) -> Option<Excerpt> {
    Excerpt::new(message, paths.iter().map(|path| steps(path)), omit)
}

#[test]
fn excerpt_finds_the_scalars_of_the_json() {
    let (mut present, mut absent, mut refused, mut unsupported) = (0, 0, 0, BTreeSet::new());
    for (wire, _) in objects() {
        let Envelope { api_version, kind, raw } = Envelope::read(wire).unwrap();
        let message = Schema::builtin().kind(api_version, kind).unwrap();
        let whole = scalars_of(message, raw);
        let mut readable = Vec::new();
        for path in whole.keys() {
            match excerpt_of(message, &[path], &Omit::default()) {
                None => drop(unsupported.insert(path.iter().flatten().cloned().collect::<Vec<_>>().join("."))),
                // The value is not UTF-8, or has an escape in JSON.
                Some(excerpt) if excerpt.read(raw, &mut |_, _| ()).is_err() => refused += 1,
                Some(_) => readable.push(path),
            }
        }
        for paths in readable.iter().map(std::slice::from_ref).chain([&*readable]) {
            let excerpt = excerpt_of(message, paths, &Omit::default()).unwrap();
            let objects = if paths.len() > 1 { lacking(raw) } else { vec![raw.to_vec()] };
            for raw in objects {
                let mut found: BTreeMap<&Path, Vec<String>> = BTreeMap::new();
                let mut add = |path: usize, value| {
                    let Found::Scalar(text) = value else { panic!("no path leads to a whole map") };
                    found.entry(paths[path]).or_default().push(text.into_owned());
                };
                excerpt.read(&raw, &mut add).unwrap();
                let expected = scalars_of(message, &raw);
                for path in paths {
                    assert_eq!(found.get(path), expected.get(*path), "{path:?} of {kind}, {raw:?}");
                    *if found.contains_key(path) { &mut present } else { &mut absent } += 1;
                }
            }
        }
    }
    assert!(present > 20_000 && absent > 5_000 && refused < 300, "{present}, {absent}, {refused}");
    let is_expected = |path: &String| path.contains("fieldsV1") || path.contains("extra");
    assert!(unsupported.iter().all(is_expected), "{unsupported:?}");
}

/// Returns the scalars of an object's JSON, without `kind` and `apiVersion`, which its message lacks.
fn scalars_of(message: MessageId, raw: &[u8]) -> BTreeMap<Path, Vec<String>> {
    let (mut json, mut found) = (Vec::new(), BTreeMap::new());
    Converter::default().object(message, None, raw, &Omit::default(), LIMIT, &mut json).unwrap();
    scalars(&serde_json::from_slice(&json).unwrap(), &mut Path::new(), &mut found);
    found
}

/// Returns variants of an object: unchanged, empty, without one field of the first two levels, and with one field of
/// the first level emptied.
fn lacking(raw: &[u8]) -> Vec<Vec<u8>> {
    let mut objects = vec![raw.to_vec(), Vec::new()];
    let mut reader = Reader::new(raw);
    while let Some(field) = reader.field().unwrap() {
        let (before, after) = (&raw[..field.start], &raw[reader.at()..]);
        objects.push([before, after].concat());
        let Wire::Bytes(content) = field.value else { continue };
        let with = |content: &[u8]| {
            let mut object = before.to_vec();
            write_field(&mut object, field.number, content);
            [&*object, after].concat()
        };
        objects.push(with(&[]));
        let mut inner = Reader::new(content);
        while let Ok(Some(field)) = inner.field() {
            objects.push(with(&[&content[..field.start], &content[inner.at()..]].concat()));
        }
    }
    objects
}

fn write_field(out: &mut Vec<u8>, number: u32, content: &[u8]) {
    for mut rest in [u64::from(number) << 3 | 2, content.len() as u64] {
        while rest >= 0x80 {
            out.push((rest % 0x80) as u8 | 0x80);
            rest >>= 7;
        }
        out.push((rest % 0x80) as u8);
    }
    out.extend_from_slice(content);
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
fn entries_of_maps_are_found_if_they_are_sorted() {
    let message = Schema::builtin().kind("v1", "Pod").unwrap();
    let labels = [Step::Member("metadata"), Step::Member("labels")];
    let one = [labels.as_slice(), &[Step::Member("b")]].concat();
    let excerpt = Excerpt::new(message, [labels.to_vec(), one], &Omit::default()).unwrap();
    let found = |labels: &[(&str, &str)]| {
        let mut metadata = Vec::new();
        for (key, value) in labels {
            let mut entry = Vec::new();
            write_field(&mut entry, 1, key.as_bytes());
            write_field(&mut entry, 2, value.as_bytes());
            write_field(&mut metadata, 11, &entry);
        }
        let (mut pod, mut found) = (Vec::new(), Vec::new());
        write_field(&mut pod, 1, &metadata);
        let mut add = |path, value: Found<'_>| {
            found.push(match value {
                Found::Entry(key, value) => format!("{path}: {key}={value}"),
                Found::Scalar(text) => format!("{path}: {text}"),
            });
        };
        excerpt.read(&pod, &mut add).is_ok().then_some(found)
    };
    assert_eq!(found(&[("a", "1"), ("b", "2")]).unwrap(), ["0: a=1", "0: b=2", "1: 2"]);
    assert_eq!(found(&[]).unwrap(), [""; 0]);
    // If keys are equal, only the last entry would count. Such maps are refused, and unsorted ones.
    assert_eq!(found(&[("b", "1"), ("b", "2")]), None);
    assert_eq!(found(&[("b", "1"), ("a", "2")]), None);
}

#[test]
fn embedded_json_that_is_not_utf8_has_no_excerpt() {
    let kind = TypeMeta { api_version: "apps/v1", kind: "ControllerRevision" };
    let message = Schema::builtin().kind(kind.api_version, kind.kind).unwrap();
    let mut raw =
        ObjectWriter::new(kind, LIMIT).unwrap().message(br#"{"data":{"a":"@"},"revision":1}"#).unwrap().to_vec();
    let excerpt = excerpt_of(message, &[], &Omit::default()).unwrap();
    let read = |raw: &[u8]| excerpt.read(raw, &mut |_, _| ()).is_ok();
    assert!(read(&raw));
    let at = raw.iter().position(|byte| *byte == b'@').unwrap();
    raw[at] = 0xff;
    assert!(!read(&raw));
}

#[test]
fn stored_object_is_converted_like_the_received_one() {
    let mut shorter = 0;
    for (wire, _) in objects() {
        let Ok(stripped) = stored(wire, &omit()) else { continue };
        assert_eq!(full(&stripped, &Omit::default()), full(wire, &omit()));
        shorter += usize::from(stripped.len() < wire.len());
        let Ok(whole) = stored(wire, &Omit::default()) else { continue };
        assert_eq!(full(&whole, &Omit::default()), full(wire, &Omit::default()));
    }
    assert!(shorter > 10, "{shorter}");
}

#[test]
fn object_with_an_excerpt_can_be_converted_in_full() {
    let (mut accepted, mut refused) = (0, 0);
    for (number, (wire, _)) in objects().into_iter().enumerate() {
        // Tests every 17th offset, at a different start per object, so that the test takes only a second.
        for at in (number % 17..wire.len()).step_by(17) {
            for change in [0x00, 0x01, 0x02, 0x08, 0x80, 0xff] {
                let mut broken = wire[..if change == 0 { at } else { wire.len() }].to_vec();
                if let Some(byte) = broken.get_mut(at) {
                    *byte ^= change;
                }
                let Ok(stripped) = stored(&broken, &omit()) else {
                    refused += 1;
                    continue;
                };
                let expected = full(&broken, &omit());
                assert!(expected.is_ok(), "object {number}, {change} at {at}: {expected:?}");
                assert_eq!(full(&stripped, &Omit::default()), expected, "object {number}, {change} at {at}");
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
        excerpt_of(message, &[], &omit).is_some()
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
    // Members of an inlined message (the volume source).
    assert!(!excerpt(("v1", "PersistentVolume"), &["spec", "nfs"]));
}
