//! The scalars that a path leads to, read off an object's head or its JSON bytes.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::types::{FieldPath, Segment, SharedStr, StoredObject};

/// Where the head of an object has what a path leads to, that; whether it is there that one has to look.
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

/// Calls `found` with each scalar that the path leads to: strings as they are, numbers and booleans as they are written.
/// One pass over the bytes, which builds nothing of what lies beside the path.
///
/// # Errors
/// The bytes are not JSON.
pub(super) fn scalars_at(path: &FieldPath, json: &[u8], mut found: impl FnMut(&str)) -> Result<(), serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    Step { rest: path.segments(), found: &mut found }.deserialize(&mut deserializer)
}

/// The value at the beginning of the rest of a path.
struct Step<'s, F> {
    rest: &'s [Segment],
    found: &'s mut F,
}

impl<'de, F: FnMut(&str)> DeserializeSeed<'de> for Step<'_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if !self.rest.is_empty() {
            return deserializer.deserialize_any(self);
        }
        let raw: &RawValue = serde::Deserialize::deserialize(deserializer)?;
        let text = raw.get();
        match text.as_bytes().first() {
            Some(b'"') => (self.found)(&string(text).ok_or_else(|| D::Error::custom("a string that is none"))?),
            Some(b'{' | b'[' | b'n') | None => {}
            Some(_) => (self.found)(text),
        }
        Ok(())
    }
}

/// The string that a JSON text is.
fn string(text: &str) -> Option<Cow<'_, str>> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
        return Some(Cow::Borrowed(inner));
    }
    serde_json::from_str(text).ok().map(Cow::Owned)
}

impl<'de, F: FnMut(&str)> Visitor<'de> for Step<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let wanted = match self.rest.first() {
            Some(Segment::Field(name)) => Some(name.as_str()),
            Some(Segment::Each) | None => None,
        };
        while let Some(is_it) = map.next_key_seed(Key { wanted })? {
            if is_it {
                map.next_value_seed(Step { rest: &self.rest[1..], found: &mut *self.found })?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        if self.rest.first() != Some(&Segment::Each) {
            while seq.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(());
        }
        loop {
            let step = Step { rest: &self.rest[1..], found: &mut *self.found };
            if seq.next_element_seed(step)?.is_none() {
                return Ok(());
            }
        }
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// Whether a key is the one that is wanted.
struct Key<'s> {
    wanted: Option<&'s str>,
}

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<bool, E> {
        Ok(self.wanted == Some(key))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::cache::IndexFn;
    use crate::cache::testing::{object_with, properties};

    fn read(path: &str, json: &str) -> Vec<String> {
        let mut found = Vec::new();
        scalars_at(&path.parse().unwrap(), json.as_bytes(), |value| found.push(value.to_owned())).unwrap();
        found
    }

    #[test]
    fn a_path_gives_what_a_declared_index_of_it_would() {
        let json = r#"{"a": {"b": [{"c": "x"}, {"c": 1.50}, {"c": true}, {"c": null}, {"c": {}}, "c", {"d": 1}, {"c": "\u00e9\n"}]}}"#;
        assert_eq!(read("a.b[*].c", json), ["x", "1.50", "true", "é\n"]);
        for nowhere in ["a", "a.b", "a.b.c", "a[*]", "b", "a.b[*].c.d"] {
            assert_eq!(read(nowhere, json), [""; 0], "{nowhere}");
        }
        assert_eq!(read("a", r#"{"a": 1, "\u0061": 2}"#), ["1", "2"], "each time");
    }

    #[test]
    fn bytes_that_are_no_json_are_an_error_and_never_a_panic() {
        let path: FieldPath = "a.b".parse().unwrap();
        for broken in ["", "{", r#"{"a": {"b""#, r#"{"a": {"b": tru}}"#, "\u{0}", r#"{"a": [}"#] {
            assert!(scalars_at(&path, broken.as_bytes(), |_| {}).is_err(), "{broken}");
        }
        assert!(scalars_at(&path, &[b'{', b'"', b'a', 0xff, b'"', b':', b'1', b'}'], |_| {}).is_err());
    }

    #[test]
    fn what_the_head_has_is_read_there() {
        // Its bytes have the name and the version, and nothing of the rest.
        let pod = object_with("ns", "web", "u", 7, &[("app", "shop")], &[]);
        let values = |path: &str| IndexFn::path(path.parse().unwrap()).values(&pod).unwrap();
        assert_eq!(values("metadata.namespace"), ["ns"]);
        assert_eq!(values("metadata.name"), ["web"]);
        assert_eq!(values("metadata.labels['app']"), ["shop"]);
        assert_eq!(values("metadata.labels['tier']"), [""; 0]);
        assert_eq!(values("metadata.resourceVersion"), ["7"]);
        assert_eq!(values("metadata.labels"), [""; 0]);
    }

    /// JSON with few names, so that paths meet something.
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
        fn one_pass_finds_what_a_walk_over_the_parsed_value_finds(value in arb_json(), path in "[abc]((\\.[abc])|(\\[\\*\\])){0,4}") {
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
