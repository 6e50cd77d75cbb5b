//! Conversion of objects whose protobuf and JSON apimachinery wrote. `tests/real` compares many more.
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::BTreeSet;

use informer_hub_protobuf::{ConvertError, Converter, Envelope, Omit, Schema, TypeMeta};

/// One object in a hundred of `protobuf objects --small` (tests/testbed).
const OBJECTS: &[u8] = include_bytes!("objects.bin");

/// Returns protobuf and JSON of each object.
fn objects() -> Vec<(&'static [u8], &'static [u8])> {
    let (mut rest, mut objects) = (OBJECTS, Vec::new());
    let mut record = || {
        let (length, tail) = rest.split_first_chunk::<4>()?;
        let (record, tail) = tail.split_at(u32::from_be_bytes(*length) as usize);
        rest = tail;
        Some(record)
    };
    while let Some(wire) = record() {
        objects.push((wire, record().unwrap()));
    }
    objects
}

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
        // Each object at other places, so that the test takes a second.
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
    // 8 M containers of two bytes each have 34 bytes of JSON each.
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
