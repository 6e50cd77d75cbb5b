//! The schema of built-in types against the Go types, and conversion against apimachinery.

use std::io::{BufReader, Read};
use std::process::{Command, Stdio};

use informer_hub_protobuf::{Converter, Encoder, Envelope, Omit, Schema, TypeMeta};

use crate::bed::protobuf;

#[test]
fn committed_schema_is_that_of_the_go_types() {
    let output = Command::new(protobuf()).arg("schema").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (found, committed) = (output.stdout, include_bytes!("../../crates/protobuf/src/kubernetes.schema"));
    let first =
        found.split(|byte| *byte == b'\n').zip(committed.split(|byte| *byte == b'\n')).position(|(a, b)| a != b);
    assert!(found == committed, "out of date at line {first:?}: run `make protobuf-schema`");
}

/// Compares `INFORMER_HUB_PROTOBUF_OBJECTS` objects, or 5,000, of the seed `INFORMER_HUB_SEED`, or 1.
#[test]
fn converted_and_encoded_objects_equal_those_of_apimachinery() {
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (count, seed) = (number("INFORMER_HUB_PROTOBUF_OBJECTS", 5000), number("INFORMER_HUB_SEED", 1));
    println!("INFORMER_HUB_SEED={seed}");
    let mut child = Command::new(protobuf())
        .args(["objects", "--count", &count.to_string(), "--seed", &seed.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::with_capacity(1 << 20, child.stdout.take().unwrap());
    let (mut converter, mut encoder) = (Converter::default(), Encoder::default());
    let (mut json, mut raw_again, mut json_again, mut equal) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for object in 0..count {
        let (wire, expected) = (record(&mut output), record(&mut output));
        let Envelope { api_version, kind, raw } = Envelope::read(&wire).unwrap();
        let message = Schema::builtin().kind(api_version, kind).unwrap();
        json.clear();
        let type_meta = Some(TypeMeta { api_version, kind });
        converter.object(message, type_meta, raw, &Omit::default(), usize::MAX, &mut json).unwrap();
        if json != expected {
            let (json, expected) = (String::from_utf8_lossy(&json), String::from_utf8_lossy(&expected));
            panic!("object {object} of seed {seed}, {kind} of {api_version}:\n{json}\n{expected}");
        }
        raw_again.clear();
        let expected = String::from_utf8(expected).unwrap();
        // Bytes that are not UTF-8 are U+FFFD in JSON. Keys of maps with it have another order, and may be equal.
        let is_exact = !expected.contains("\\ufffd");
        let outcome = encoder.object(message, &json, usize::MAX, &mut raw_again);
        if !is_exact && outcome.is_err() {
            continue;
        }
        outcome.unwrap();
        json_again.clear();
        converter.object(message, type_meta, &raw_again, &Omit::default(), usize::MAX, &mut json_again).unwrap();
        let is_equal = if is_exact {
            json_again == expected.as_bytes()
        } else {
            let value = |text: &[u8]| serde_json::from_slice::<serde_json::Value>(text).unwrap();
            value(&json_again) == value(expected.as_bytes())
        };
        assert!(is_equal, "object {object} of seed {seed}, {kind}:\n{expected}");
        equal += u64::from(raw_again == raw);
    }
    assert!(child.wait().unwrap().success());
    // The JSON of the others has lost something: bytes that are not UTF-8, or spaces of embedded JSON.
    println!("{equal} of {count} objects have the bytes of apimachinery after their way through JSON");
    assert!(equal * 10 > count, "{equal} of {count}");
}

fn record(output: &mut impl Read) -> Vec<u8> {
    let mut length = [0; 4];
    output.read_exact(&mut length).unwrap();
    let mut record = vec![0; u32::from_be_bytes(length) as usize];
    output.read_exact(&mut record).unwrap();
    record
}
