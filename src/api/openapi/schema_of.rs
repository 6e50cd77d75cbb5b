//! Schemas of parameters.

use serde_json::{Value, json};

use crate::api::v1::{Kind, Parameter};

/// Returns the schema of a parameter's value. For a parameter that may be repeated, it is an array; clients may also
/// separate the values with commas.
pub(super) fn schema_of(parameter: &Parameter) -> Value {
    let one = match parameter.kind {
        Kind::Text => json!({ "type": "string" }),
        Kind::Count => json!({ "type": "integer", "minimum": 1 }),
        Kind::Flag => json!({ "type": "boolean" }),
        Kind::Duration => json!({ "type": "string", "examples": ["10s"] }),
        Kind::OneOf(words) | Kind::SomeOf(words) => json!({ "type": "string", "enum": words }),
    };
    if parameter.is_repeated { json!({ "type": "array", "items": one }) } else { one }
}
