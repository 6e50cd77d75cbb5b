//! Reference JSON reader on serde_json, to compare the decoder with.

use std::collections::BTreeSet;
use std::fmt;

use informer_hub_types::Segment;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// JSON without duplicate keys. Readers may legitimately differ on duplicates.
struct Distinct;

impl<'de> Deserialize<'de> for Distinct {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Distinct {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON without duplicate keys")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self, A::Error> {
        while elements.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self, A::Error> {
        let mut known = BTreeSet::new();
        while let Some(key) = members.next_key::<String>()? {
            members.next_value::<Self>()?;
            if !known.insert(key) {
                return Err(A::Error::custom("duplicate key"));
            }
        }
        Ok(self)
    }
}

/// Parses JSON with serde_json if only one reading is possible: no duplicate keys, and no escapes that could spell a
/// known key in another way.
pub(crate) fn unambiguous(bytes: &[u8]) -> Option<Value> {
    if bytes.windows(2).any(|two| matches!(two, br"\u" | br"\/")) {
        return None;
    }
    serde_json::from_slice::<Distinct>(bytes).ok()?;
    serde_json::from_slice(bytes).ok()
}

/// Returns whether the bytes are JSON of any depth. String contents are not validated.
pub(crate) fn is_json(bytes: &[u8]) -> bool {
    serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_ok()
}

/// Removes the values that a path selects.
pub(crate) fn remove(value: &mut Value, path: &[Segment]) {
    match (path, value) {
        ([Segment::Field(name)], Value::Object(map)) => drop(map.remove(name.as_str())),
        ([Segment::Each], Value::Array(items)) => items.clear(),
        ([Segment::Field(name), rest @ ..], Value::Object(map)) => {
            if let Some(inner) = map.get_mut(name.as_str()) {
                remove(inner, rest);
            }
        }
        ([Segment::Each, rest @ ..], Value::Array(items)) => items.iter_mut().for_each(|item| remove(item, rest)),
        _ => {}
    }
}
