//! The schema of built-in types against the Go types, and conversion against apimachinery.

use std::collections::BTreeSet;
use std::io::{BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use informer_hub_protobuf::{Converter, Encoder, Envelope, Omit, Schema, TypeMeta};

use serde_json::Value;

use crate::bed::{protobuf, protobuf_older};

#[test]
fn committed_schema_is_that_of_the_go_types() {
    let output = Command::new(protobuf()).arg("schema").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (found, committed) = (output.stdout, include_bytes!("../../crates/protobuf/src/kubernetes.schema"));
    let first =
        found.split(|byte| *byte == b'\n').zip(committed.split(|byte| *byte == b'\n')).position(|(a, b)| a != b);
    assert!(found == committed, "out of date at line {first:?}: run `make protobuf-schema`");
}

/// Objects of a Go program: `INFORMER_HUB_PROTOBUF_OBJECTS` objects, or 5,000, of the seed `INFORMER_HUB_SEED`, or 1.
struct Objects {
    child: Child,
    output: BufReader<ChildStdout>,
    count: u64,
    seed: u64,
}

impl Objects {
    fn of(program: &Path) -> Self {
        let number = |name: &str, default: u64| std::env::var(name).map_or(default, |text| text.parse().unwrap());
        let (count, seed) = (number("INFORMER_HUB_PROTOBUF_OBJECTS", 5000), number("INFORMER_HUB_SEED", 1));
        println!("INFORMER_HUB_SEED={seed}");
        let mut child = Command::new(program)
            .args(["objects", "--count", &count.to_string(), "--seed", &seed.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::with_capacity(1 << 20, child.stdout.take().unwrap());
        Self { child, output, count, seed }
    }

    /// Returns the next object in protobuf and in JSON.
    fn next(&mut self) -> (Vec<u8>, Vec<u8>) {
        (self.record(), self.record())
    }

    fn record(&mut self) -> Vec<u8> {
        let mut length = [0; 4];
        self.output.read_exact(&mut length).unwrap();
        let mut record = vec![0; u32::from_be_bytes(length) as usize];
        self.output.read_exact(&mut record).unwrap();
        record
    }

    /// Panics with both forms of an object.
    fn differ(&self, object: u64, kind: &str, json: &[u8], expected: &[u8]) -> ! {
        let (json, expected) = (String::from_utf8_lossy(json), String::from_utf8_lossy(expected));
        panic!("object {object} of seed {}, {kind}:\n{json}\n{expected}", self.seed);
    }

    fn end(mut self) {
        assert!(self.child.wait().unwrap().success());
    }
}

#[test]
fn converted_and_encoded_objects_equal_those_of_apimachinery() {
    let mut objects = Objects::of(protobuf());
    let (mut converter, mut encoder) = (Converter::default(), Encoder::default());
    let (mut json, mut raw_again, mut json_again, mut equal) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for object in 0..objects.count {
        let (wire, expected) = objects.next();
        let Envelope { api_version, kind, raw } = Envelope::read(&wire).unwrap();
        let message = Schema::builtin().kind(api_version, kind).unwrap();
        json.clear();
        let type_meta = Some(TypeMeta { api_version, kind });
        converter.object(message, type_meta, raw, &Omit::default(), usize::MAX, &mut json).unwrap();
        if json != expected {
            objects.differ(object, kind, &json, &expected);
        }
        raw_again.clear();
        // Bytes that are not UTF-8 are U+FFFD in JSON. Map keys that contain U+FFFD sort differently, and may become
        // equal.
        let is_exact = !String::from_utf8_lossy(&expected).contains("\\ufffd");
        let outcome = encoder.object(message, &json, usize::MAX, &mut raw_again);
        if !is_exact && outcome.is_err() {
            continue;
        }
        outcome.unwrap();
        json_again.clear();
        converter.object(message, type_meta, &raw_again, &Omit::default(), usize::MAX, &mut json_again).unwrap();
        if json_again != expected && (is_exact || value(&json_again) != value(&expected)) {
            objects.differ(object, kind, &json_again, &expected);
        }
        equal += u64::from(raw_again == raw);
    }
    let count = objects.count;
    objects.end();
    // The other objects differ because JSON loses bytes that are not UTF-8 and the spaces of embedded JSON.
    println!("{equal} of {count} objects have the bytes of apimachinery after their way through JSON");
    assert!(equal * 10 > count, "{equal} of {count}");
}

/// Kinds that got or lost `omitempty` of a member since the older version. The hub writes the empty member as the
/// schema does.
const CHANGED: [&str; 3] = ["CSINode", "DeviceTaintRule", "ResourceSlice"];

/// Objects of an older Kubernetes version are converted to the same JSON, or the conversion fails and the hub requests
/// JSON.
#[test]
fn objects_of_an_older_version_are_converted_or_left_to_json() {
    let mut objects = Objects::of(protobuf_older());
    let (mut converter, mut json) = (Converter::default(), Vec::new());
    let (mut exact, mut fallbacks, mut unknown) = (0, 0, BTreeSet::new());
    for object in 0..objects.count {
        let (wire, expected) = objects.next();
        let Envelope { api_version, kind, raw } = Envelope::read(&wire).unwrap();
        let Some(message) = Schema::builtin().kind(api_version, kind) else {
            // The schema lacks this kind, so the hub does not request protobuf for it.
            unknown.insert(format!("{api_version} {kind}"));
            continue;
        };
        json.clear();
        let type_meta = Some(TypeMeta { api_version, kind });
        match converter.object(message, type_meta, raw, &Omit::default(), usize::MAX, &mut json) {
            Ok(()) if json == expected => exact += 1,
            Ok(()) => {
                let is_changed = CHANGED.contains(&kind.strip_suffix("List").unwrap_or(kind));
                if !is_changed || without_empty(value(&json)) != without_empty(value(&expected)) {
                    objects.differ(object, kind, &json, &expected);
                }
            }
            Err(error) => {
                assert!(error.needs_json(), "object {object} of seed {}, {kind}: {error}", objects.seed);
                fallbacks += 1;
            }
        }
    }
    let count = objects.count;
    objects.end();
    println!("of {count} objects {exact} are the same, {fallbacks} have an unknown field; unknown kinds: {unknown:?}");
    assert!(exact * 10 > count * 9 && fallbacks * 100 < count, "{exact} and {fallbacks} of {count}");
    let is_old = |kind: &String| kind.contains("alpha") || kind.contains("beta") || kind == "v1 PodStatusResult";
    assert!(unknown.iter().all(is_old), "{unknown:?}");
}

fn value(json: &[u8]) -> Value {
    serde_json::from_slice(json).unwrap()
}

/// Drops members that are null, an empty text, or without content of their own.
fn without_empty(mut value: Value) -> Value {
    match &mut value {
        Value::Object(members) => {
            let of = std::mem::take(members).into_iter();
            let kept = of.map(|(name, value)| (name, without_empty(value)));
            *members = kept.filter(|(_, value)| !is_empty(value)).collect();
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = without_empty(item.take())),
        _ => {}
    }
    value
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.iter().all(is_empty),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}
