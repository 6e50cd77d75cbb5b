//! Access to the members of a status document. Missing members and members of another type read as empty.

use serde_json::Value;

use informer_hub_types::printable;

/// Returns a text member; empty if there is none.
pub(super) fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_default()
}

/// Returns a number member; zero if there is none.
pub(super) fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_default()
}

/// Returns a list member; empty if there is none.
pub(super) fn list<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value[key].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Returns the first line that is not blank, printable.
pub(super) fn line(text: &str) -> String {
    let line = text.lines().map(str::trim_end).find(|line| !line.is_empty()).unwrap_or_default();
    printable(line)
}

/// Returns the name of an informer in its cluster: the resource, and the scope unless it is the whole cluster.
pub(super) fn informer_name(informer: &Value) -> String {
    let (name, scope) = (text(informer, "resource"), text(informer, "scope"));
    if scope == "*" { name.to_owned() } else { format!("{name} ({scope})") }
}
