//! Scalars at a path, read from an object's head or its JSON bytes.

use super::index_errors::IndexError;
use informer_hub_codec::scan::{self, Scanned};
use informer_hub_types::{FieldPath, Segment, SharedStr, StoredObject};

/// Returns whether a path may be read from an object's head (parsed metadata).
pub(super) fn is_of_head(path: &FieldPath) -> bool {
    let [Segment::Field(first), Segment::Field(second), ..] = path.segments() else { return false };
    first == "metadata" && matches!(second.as_str(), "name" | "namespace" | "labels")
}

/// Reads a path from an object's head (parsed metadata) into `found`. Returns false if the path is not in the head, so
/// that the body must be read.
pub(super) fn from_head(path: &FieldPath, object: &StoredObject, found: &mut Vec<SharedStr>) -> bool {
    let [Segment::Field(first), rest @ ..] = path.segments() else { return false };
    if first != "metadata" {
        return false;
    }
    let value = match rest {
        [Segment::Field(name)] if name == "name" => Some(object.key().name()),
        [Segment::Field(name)] if name == "namespace" => object.key().namespace(),
        [Segment::Field(labels), Segment::Field(label)] if labels == "labels" => object.labels().get(label),
        _ => return false,
    };
    found.extend(value.map(SharedStr::from));
    true
}

/// Calls `found` with each scalar at the path: strings as they are, numbers and booleans as written. Makes one pass
/// over the bytes and builds no other values.
///
/// # Errors
/// If the bytes are not JSON.
pub(super) fn scalars_at(path: &FieldPath, json: &[u8], mut found: impl FnMut(&str)) -> Result<(), IndexError> {
    let is_read = std::str::from_utf8(json).is_ok() && value(json, 0, path.segments(), &mut found).is_ok();
    if is_read { Ok(()) } else { Err(IndexError("the stored bytes are not JSON".to_owned())) }
}

/// Scans the JSON value at offset `at` of `input` for `path`, and calls `found` with each scalar there. Returns the
/// offset at which the value ends.
fn value(input: &[u8], at: usize, path: &[Segment], found: &mut dyn FnMut(&str)) -> Scanned {
    let (byte, start) = scan::token(input, at)?;
    match (path.split_first(), byte) {
        (None, _) => {
            let end = scan::value(input, start)?;
            match scan::scalar_of(&input[start..end]) {
                Some(scalar) => found(&scalar),
                // The string cannot be decoded, for example because of a lone surrogate.
                None if byte == b'"' => return Err(start),
                None => {}
            }
            Ok(end)
        }
        (Some((Segment::Field(wanted), rest)), b'{') => {
            let (mut more, mut at) = scan::first(input, start + 1, b'}')?;
            while more {
                let key = scan::key(input, at)?;
                let is_it = key.name(input).is_some_and(|name| *name == *wanted.as_bytes());
                let end = if is_it { value(input, key.value, rest, found)? } else { scan::value(input, key.value)? };
                (more, at) = scan::next(input, end, b'}')?;
            }
            Ok(at)
        }
        (Some((Segment::Each, rest)), b'[') => {
            let (mut more, mut at) = scan::first(input, start + 1, b']')?;
            while more {
                let end = value(input, at, rest, found)?;
                (more, at) = scan::next(input, end, b']')?;
            }
            Ok(at)
        }
        (Some(_), _) => scan::value(input, start),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::IndexFn;
    use crate::testing::{object_with, properties};

    fn read(path: &str, json: &str) -> Vec<String> {
        let mut found = Vec::new();
        scalars_at(&path.parse().unwrap(), json.as_bytes(), |value| found.push(value.to_owned())).unwrap();
        found
    }

    #[test]
    fn path_index_equals_a_declared_index() {
        let json = r#"{"a": {"b": [{"c": "x"}, {"c": 1.50}, {"c": true}, {"c": null}, {"c": {}}, "c", {"d": 1}, {"c": "\u00e9\n"}]}}"#;
        assert_eq!(read("a.b[*].c", json), ["x", "1.50", "true", "é\n"]);
        for nowhere in ["a", "a.b", "a.b.c", "a[*]", "b", "a.b[*].c.d"] {
            assert_eq!(read(nowhere, json), [""; 0], "{nowhere}");
        }
        assert_eq!(read("a", r#"{"a": 1, "\u0061": 2}"#), ["1", "2"], "duplicate keys each count");
    }

    #[test]
    fn scalars_at_fails_without_a_panic_on_invalid_json() {
        let path: FieldPath = "a.b".parse().unwrap();
        for broken in ["", "{", r#"{"a": {"b""#, r#"{"a": {"b": tru}}"#, "\u{0}", r#"{"a": [}"#] {
            assert!(scalars_at(&path, broken.as_bytes(), |_| {}).is_err(), "{broken}");
        }
        assert!(scalars_at(&path, &[b'{', b'"', b'a', 0xff, b'"', b':', b'1', b'}'], |_| {}).is_err());
    }

    #[test]
    fn path_index_reads_from_the_head() {
        // The body has the name and the version only.
        let pod = object_with("ns", "web", "u", 7, &[("app", "shop")], &[]);
        let values = |path: &str| IndexFn::path(path.parse().unwrap()).values(&pod).unwrap();
        assert_eq!(values("metadata.namespace"), ["ns"]);
        assert_eq!(values("metadata.name"), ["web"]);
        assert_eq!(values("metadata.labels['app']"), ["shop"]);
        assert_eq!(values("metadata.labels['tier']"), [""; 0]);
        assert_eq!(values("metadata.resourceVersion"), ["7"]);
        assert_eq!(values("metadata.labels"), [""; 0]);
    }

    /// Generates JSON with few field names, so that paths match.
    fn arb_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            "[a-c\"\\\\é\n]{0,4}".prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 40, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[abc]", inner, 0..4).prop_map(|map| json!(map)),
            ]
        })
    }

    proptest! {
        #![proptest_config(properties(512))]

        #[test]
        fn scalars_at_equals_selection_on_the_parsed_value(value in arb_json(), path in "[abc]((\\.[abc])|(\\[\\*\\])){0,4}") {
            let path: FieldPath = path.parse().unwrap();
            let expected: Vec<_> = path.select(&value).into_iter().filter_map(|value| match value {
                Value::String(text) => Some(text.clone()),
                Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
                _ => None,
            }).collect();
            let mut found = Vec::new();
            scalars_at(&path, value.to_string().as_bytes(), |value| found.push(value.to_owned())).unwrap();
            prop_assert_eq!(found, expected);
        }
    }
}
