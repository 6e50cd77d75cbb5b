//! Access to the members of a status document. Missing members and members of another type read as empty.

use serde_json::Value;

use informer_hub_types::printable;

/// Returns the text in the member `key`; empty if the member is missing or not a text.
pub(super) fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_default()
}

/// Returns the number in the member `key`; zero if the member is missing or not a number.
pub(super) fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_default()
}

/// Formats the number in the member `key` for a table. Empty if there is none: the user may not be allowed to see it.
pub(super) fn cell(value: &Value, key: &str, shown: impl Fn(u64) -> String) -> String {
    value[key].as_u64().map(shown).unwrap_or_default()
}

/// Returns the sum of the number `key` over all informers that have it. Returns zero without informers, and `None` if
/// no informer has the number.
pub(super) fn sum<'v>(informers: impl IntoIterator<Item = &'v Value>, key: &str) -> Option<u64> {
    let mut all = informers.into_iter().peekable();
    if all.peek().is_none() {
        return Some(0);
    }
    all.filter_map(|informer| informer[key].as_u64()).reduce(u64::saturating_add)
}

/// Returns the list in the member `key`; empty if the member is missing or not a list.
pub(super) fn list<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value[key].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Returns the first line of a text that is not blank, with control characters replaced.
pub(super) fn line(text: &str) -> String {
    let line = text.lines().map(str::trim_end).find(|line| !line.is_empty()).unwrap_or_default();
    printable(line)
}

/// Returns the name of an informer in its cluster: the resource, and the scope unless it is the whole cluster.
pub(super) fn informer_name(informer: &Value) -> String {
    let (name, scope) = (text(informer, "resource"), text(informer, "scope"));
    if scope == "*" { name.to_owned() } else { format!("{name} ({scope})") }
}
