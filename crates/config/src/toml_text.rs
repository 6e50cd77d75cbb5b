//! TOML notation of JSON values, on one line.

use serde_json::Value;

/// Writes a value as TOML on one line, so that a comment can follow it.
pub(super) fn toml(value: &Value) -> String {
    match value {
        // JSON escapes are valid in TOML. Only U+007F is not escaped by JSON.
        Value::String(text) => Value::from(text.as_str()).to_string().replace('\u{7f}', "\\u007f"),
        Value::Array(values) => format!("[{}]", values.iter().map(toml).collect::<Vec<_>>().join(", ")),
        Value::Object(map) => {
            let entry = |(key, value): (&String, &Value)| format!("{} = {}", toml_edit::Key::new(key), toml(value));
            format!("{{ {} }}", map.iter().map(entry).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}
