//! Building blocks of the schema, one for each kind of value that the parser of a table (`table`) reads.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::{ByteSize, HumanDuration};

/// Regular expression of durations, with one alternative for each unit that may come first. It avoids lookahead, which
/// Go's regular expressions lack.
pub(super) const DURATION: &str = concat!(
    "^\\s*(0",
    "|\\d+d(\\d+h)?(\\d+m)?(\\d+s)?(\\d+ms)?",
    "|\\d+h(\\d+m)?(\\d+s)?(\\d+ms)?",
    "|\\d+m(\\d+s)?(\\d+ms)?",
    "|\\d+s(\\d+ms)?",
    "|\\d+ms",
    ")\\s*$"
);

/// Last sentence of the description of each secret.
pub(super) const SECRET: &str = "A reference, never the secret itself.";

/// Adds a description to a schema node.
pub(super) fn node(description: &str, mut rest: Value) -> Value {
    rest["description"] = json!(description);
    rest
}

/// Adds a default to a schema node.
pub(super) fn default(mut node: Value, default: impl Into<Value>) -> Value {
    node["default"] = default.into();
    node
}

/// Returns the schema of a table that accepts only the keys in `properties`.
///
/// If the caller adds the default `{}` for the table, the defaults of its keys also apply to a missing table.
pub(super) fn table(description: &str, properties: Vec<(&str, Value)>) -> Value {
    let properties: Map<_, _> = properties.into_iter().map(|(key, node)| (key.to_owned(), node)).collect();
    node(description, json!({ "type": "object", "additionalProperties": false, "properties": properties }))
}

/// Returns the schema of a table with user-defined keys. Keys match the pattern `names`, and values the schema `each`.
pub(super) fn named(description: &str, names: &str, each: &Value) -> Value {
    let names = json!({ "pattern": names });
    node(description, json!({ "type": "object", "propertyNames": names, "additionalProperties": each }))
}

/// Returns the schema of a non-empty string.
pub(super) fn text(description: &str) -> Value {
    pattern(description, "\\S")
}

/// Returns the schema of a string that matches a pattern.
pub(super) fn pattern(description: &str, pattern: &str) -> Value {
    node(description, json!({ "type": "string", "pattern": pattern }))
}

/// Returns the schema of a string that is one of several words.
pub(super) fn choice(description: &str, words: &[&str]) -> Value {
    node(description, json!({ "enum": words }))
}

pub(super) fn boolean(description: &str) -> Value {
    node(description, json!({ "type": "boolean" }))
}

/// Returns the schema of a list of at least `at_least` items.
pub(super) fn list(description: &str, at_least: usize, items: &Value) -> Value {
    node(description, json!({ "type": "array", "minItems": at_least, "items": items }))
}

pub(super) fn whole(description: &str, bounds: &RangeInclusive<usize>) -> Value {
    let (low, high) = (bounds.start(), bounds.end());
    let description = format!("{description} {low} to {high}.");
    node(&description, json!({ "type": "integer", "minimum": low, "maximum": high }))
}

/// Returns the schema of a duration. JSON Schema cannot compare durations, so only the description names the bounds.
pub(super) fn duration(description: &str, bounds: &RangeInclusive<Duration>) -> Value {
    let (low, high) = (HumanDuration(*bounds.start()), HumanDuration(*bounds.end()));
    pattern(&format!("{description} {low} to {high}."), DURATION)
}

/// Returns the schema of a size. It checks the bounds of a bare number of bytes. For a size with a unit, only the
/// description names the bounds.
pub(super) fn size(description: &str, bounds: &RangeInclusive<u64>) -> Value {
    let (low, high) = (ByteSize(*bounds.start()), ByteSize(*bounds.end()));
    let units = "(TiB|GiB|MiB|KiB|B|Ti|Gi|Mi|Ki|TB|GB|MB|kB|KB)?";
    let text = json!({ "type": "string", "pattern": format!("^\\s*\\d+\\s*{units}\\s*$") });
    let bytes = json!({ "type": "integer", "minimum": bounds.start(), "maximum": bounds.end() });
    node(&format!("{description} {low} to {high}; a bare number counts bytes."), json!({ "anyOf": [text, bytes] }))
}

/// Returns the schema of a secret: `{ env = … }` or `{ file = … }`.
pub(super) fn secret(description: &str) -> Value {
    let of = |key: &str, description: &str| {
        let mut table = table(description, vec![(key, text(description))]);
        table["required"] = json!([key]);
        table
    };
    let ways = [of("env", "Environment variable with the secret."), of("file", "File with the secret.")];
    node(&format!("{description} {SECRET}"), json!({ "oneOf": ways }))
}

/// Returns the schema of a map of strings, such as labels.
pub(super) fn labels(description: &str) -> Value {
    node(description, json!({ "type": "object", "additionalProperties": { "type": "string" } }))
}

/// Formats a duration as in the configuration, such as `1h30m`.
pub(super) fn human(duration: Duration) -> Value {
    json!(HumanDuration(duration).to_string())
}

/// Formats a size as in the configuration, such as `64MiB`.
pub(super) fn bytes(bytes: u64) -> Value {
    json!(ByteSize(bytes).to_string())
}
