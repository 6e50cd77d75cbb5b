//! The building blocks of the schema: one for each kind of value that the reader of tables (`table`) takes.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::{ByteSize, HumanDuration};

/// How a duration is written. Without a look ahead, which the expressions of Go do not have: each way begins with another unit.
pub(super) const DURATION: &str = concat!(
    "^\\s*(0",
    "|\\d+d(\\d+h)?(\\d+m)?(\\d+s)?(\\d+ms)?",
    "|\\d+h(\\d+m)?(\\d+s)?(\\d+ms)?",
    "|\\d+m(\\d+s)?(\\d+ms)?",
    "|\\d+s(\\d+ms)?",
    "|\\d+ms",
    ")\\s*$"
);

/// A node with a description, and what else it says.
pub(super) fn node(description: &str, mut rest: Value) -> Value {
    rest["description"] = json!(description);
    rest
}

/// A node with a default, which holds where the key is not given.
pub(super) fn default(mut node: Value, default: impl Into<Value>) -> Value {
    node["default"] = default.into();
    node
}

/// A table in which no other keys may be. One with a default of `{}` is in force where it is not written.
pub(super) fn table(description: &str, properties: Vec<(&str, Value)>) -> Value {
    let properties: Map<_, _> = properties.into_iter().map(|(key, node)| (key.to_owned(), node)).collect();
    node(description, json!({ "type": "object", "additionalProperties": false, "properties": properties }))
}

/// A table whose keys are names.
pub(super) fn named(description: &str, names: &str, each: &Value) -> Value {
    let names = json!({ "pattern": names });
    node(description, json!({ "type": "object", "propertyNames": names, "additionalProperties": each }))
}

/// A text that is not empty.
pub(super) fn text(description: &str) -> Value {
    pattern(description, "\\S")
}

/// A text of a certain form.
pub(super) fn pattern(description: &str, pattern: &str) -> Value {
    node(description, json!({ "type": "string", "pattern": pattern }))
}

/// One of a few words.
pub(super) fn choice(description: &str, words: &[&str]) -> Value {
    node(description, json!({ "enum": words }))
}

pub(super) fn truth(description: &str) -> Value {
    node(description, json!({ "type": "boolean" }))
}

/// A list; of one that may not be empty `at_least` is 1.
pub(super) fn list(description: &str, at_least: usize, items: &Value) -> Value {
    node(description, json!({ "type": "array", "minItems": at_least, "items": items }))
}

pub(super) fn whole(description: &str, bounds: &RangeInclusive<usize>) -> Value {
    let (low, high) = (bounds.start(), bounds.end());
    let description = format!("{description} {low} to {high}.");
    node(&description, json!({ "type": "integer", "minimum": low, "maximum": high }))
}

/// A duration; its bounds can only be described.
pub(super) fn duration(description: &str, bounds: &RangeInclusive<Duration>) -> Value {
    let (low, high) = (HumanDuration(*bounds.start()), HumanDuration(*bounds.end()));
    pattern(&format!("{description} {low} to {high}."), DURATION)
}

/// A size; the bounds of one with a unit can only be described.
pub(super) fn size(description: &str, bounds: &RangeInclusive<u64>) -> Value {
    let (low, high) = (ByteSize(*bounds.start()), ByteSize(*bounds.end()));
    let units = "(TiB|GiB|MiB|KiB|B|Ti|Gi|Mi|Ki|TB|GB|MB|kB|KB)?";
    let text = json!({ "type": "string", "pattern": format!("^\\s*\\d+\\s*{units}\\s*$") });
    let bytes = json!({ "type": "integer", "minimum": bounds.start(), "maximum": bounds.end() });
    node(&format!("{description} {low} to {high}; a bare number counts bytes."), json!({ "anyOf": [text, bytes] }))
}

/// `{ env = … }` or `{ file = … }`.
pub(super) fn secret(description: &str) -> Value {
    let of = |key: &str, description: &str| {
        let mut table = table(description, vec![(key, text(description))]);
        table["required"] = json!([key]);
        table
    };
    let ways = [of("env", "The environment variable that holds it."), of("file", "The file that holds it.")];
    node(&format!("{description} Never the secret itself."), json!({ "oneOf": ways }))
}

/// A map of texts, such as labels.
pub(super) fn labels(description: &str) -> Value {
    node(description, json!({ "type": "object", "additionalProperties": { "type": "string" } }))
}

/// A duration as people write it.
pub(super) fn human(duration: Duration) -> Value {
    json!(HumanDuration(duration).to_string())
}

/// A size as people write it.
pub(super) fn bytes(bytes: u64) -> Value {
    json!(ByteSize(bytes).to_string())
}
