//! Differences between two versions of an object, as paths with old and new values.
//!
//! Elements of lists are matched by `type`, `name`, `uid` or `ip`: the first of these members that identifies every
//! element. Without such a member, they are matched by position. An object's `resourceVersion` and `managedFields` are
//! ignored.

use std::collections::BTreeSet;
use std::fmt::Write;

use serde_json::{Map, Value};

use super::text::{cut, width_of};
use informer_hub_types::printable;

/// Members that identify the elements of a list.
const KEYS: [&str; 4] = ["type", "name", "uid", "ip"];
/// Fields of `metadata` that change with every write.
const IGNORED: [&str; 2] = ["managedFields", "resourceVersion"];
/// Fields that often change together with others. They are listed last.
const MINOR: [&str; 8] = [
    "generation",
    "observedGeneration",
    "lastTransitionTime",
    "lastUpdateTime",
    "lastHeartbeatTime",
    "lastProbeTime",
    "renewTime",
    "lastTimestamp",
];
/// Maximum width of a shown value, in terminal columns.
const VALUE: usize = 40;

/// A path at which two versions of an object differ.
#[derive(Clone, PartialEq, Debug)]
pub struct Difference {
    /// Path such as `status.conditions[type=Ready].status`.
    pub path: String,
    /// Value in the older version.
    pub old: Option<Value>,
    /// Value in the newer version.
    pub new: Option<Value>,
}

/// Returns the differences between two versions of an object. Fields that often change together with others, such as
/// `generation`, are last.
#[must_use]
pub fn diff(old: &Value, new: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    compare("", old, new, &mut found);
    found.sort_by_key(|difference: &Difference| is_minor(&difference.path));
    found
}

/// Formats the first differences in one line, with the number of those left out: `spec.replicas: 2 → 5, +1 more`.
///
/// The line has at most `most` differences, and fewer if it would be wider than `width`, but at least one. Long values
/// are shortened, unless the width is `usize::MAX`.
#[must_use]
pub fn summary(differences: &[Difference], most: usize, width: usize) -> String {
    let rest = |shown: usize| match differences.len() - shown {
        0 => String::new(),
        more => format!(", +{more} more"),
    };
    let mut text = String::new();
    let mut shown = 0;
    for difference in differences.iter().take(most.max(1)) {
        let separator = if shown == 0 { "" } else { ", " };
        let next = format!("{text}{separator}{}", difference.shown(if width == usize::MAX { width } else { VALUE }));
        if shown > 0 && width_of(&next) + width_of(&rest(shown + 1)) > width {
            break;
        }
        (text, shown) = (next, shown + 1);
    }
    let _ = write!(text, "{}", rest(shown));
    text
}

impl Difference {
    fn shown(&self, most: usize) -> String {
        let value = |side: &Option<Value>| value(side.as_ref(), most);
        format!("{}: {} → {}", printable(&self.path), value(&self.old), value(&self.new))
    }
}

fn value(value: Option<&Value>, most: usize) -> String {
    match value {
        None => "unset".to_owned(),
        Some(Value::String(text)) if text.is_empty() => "\"\"".to_owned(),
        Some(Value::String(text)) => cut(&printable(text), most),
        Some(other) => cut(&printable(&other.to_string()), most),
    }
}

fn is_minor(path: &str) -> bool {
    MINOR.contains(&path.rsplit('.').next().unwrap_or_default())
}

fn compare(path: &str, old: &Value, new: &Value, found: &mut Vec<Difference>) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => members(path, old, new, found),
        (Value::Array(old), Value::Array(new)) => elements(path, old, new, found),
        (old, new) if old == new => {}
        (old, new) => found.push(difference(path.to_owned(), Some(old), Some(new))),
    }
}

fn difference(path: String, old: Option<&Value>, new: Option<&Value>) -> Difference {
    Difference { path, old: old.cloned(), new: new.cloned() }
}

fn members(path: &str, old: &Map<String, Value>, new: &Map<String, Value>, found: &mut Vec<Difference>) {
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    for name in names.into_iter().filter(|name| path != "metadata" || !IGNORED.contains(&name.as_str())) {
        either(member(path, name), old.get(name), new.get(name), found);
    }
}

fn elements(path: &str, old: &[Value], new: &[Value], found: &mut Vec<Difference>) {
    if old == new {
        return;
    }
    let key = KEYS.into_iter().find(|key| identifies(key, old) && identifies(key, new));
    let Some(key) = key.filter(|_| !old.is_empty() || !new.is_empty()) else {
        for at in 0..old.len().max(new.len()) {
            either(format!("{path}[{at}]"), old.get(at), new.get(at), found);
        }
        return;
    };
    let of = |list: &'_ [Value], id: &str| list.iter().find(|element| element[key] == id).cloned();
    let ids = old.iter().chain(new).filter_map(|element| element[key].as_str()).collect::<BTreeSet<_>>();
    for id in ids {
        either(format!("{path}[{key}={id}]"), of(old, id).as_ref(), of(new, id).as_ref(), found);
    }
}

fn either(path: String, old: Option<&Value>, new: Option<&Value>, found: &mut Vec<Difference>) {
    match (old, new) {
        (Some(old), Some(new)) => compare(&path, old, new, found),
        (None, None) => {}
        (old, new) => found.push(difference(path, old, new)),
    }
}

/// Returns whether `key` identifies the elements of a list: each element has a text at `key`, and all these texts
/// differ.
fn identifies(key: &str, list: &[Value]) -> bool {
    let mut seen = BTreeSet::new();
    list.iter().all(|element| element[key].as_str().is_some_and(|id| seen.insert(id)))
}

fn member(path: &str, name: &str) -> String {
    match (path.is_empty(), name.contains(['.', '/', '['])) {
        (true, false) => name.to_owned(),
        (_, true) => format!("{path}['{name}']"),
        (false, false) => format!("{path}.{name}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(old: &Value, new: &Value) -> String {
        summary(&diff(old, new), 3, 1000)
    }

    #[test]
    fn summary_names_changed_added_and_removed_fields() {
        let old = json!({ "metadata": { "resourceVersion": "1", "managedFields": [1], "labels": { "a.b/c": "x" } }, "spec": { "replicas": 2, "gone": true } });
        let new = json!({ "metadata": { "resourceVersion": "2", "managedFields": [2], "labels": { "a.b/c": "y" } }, "spec": { "replicas": 5, "paused": true } });
        assert_eq!(
            line(&old, &new),
            "metadata.labels['a.b/c']: x → y, spec.gone: true → unset, spec.paused: unset → true, +1 more"
        );
        assert_eq!(summary(&diff(&old, &new), 9, 45), "metadata.labels['a.b/c']: x → y, +3 more");
        assert_eq!(line(&old, &old), "");
    }

    #[test]
    fn elements_are_matched_by_their_key_and_times_are_last() {
        let condition = |kind: &str, status: &str, time: &str| json!({ "type": kind, "status": status, "lastTransitionTime": time });
        let old =
            json!({ "status": { "conditions": [condition("Ready", "True", "1"), condition("Disk", "False", "1")] } });
        let new =
            json!({ "status": { "conditions": [condition("Disk", "False", "1"), condition("Ready", "False", "2")] } });
        assert_eq!(
            line(&old, &new),
            "status.conditions[type=Ready].status: True → False, \
             status.conditions[type=Ready].lastTransitionTime: 1 → 2"
        );
        assert_eq!(line(&json!({ "a": [1, 2] }), &json!({ "a": [1, 3, 4] })), "a[1]: 2 → 3, a[2]: unset → 4");
        assert_eq!(
            line(&json!({ "a": [] }), &json!({ "a": [{ "name": "x" }] })),
            "a[name=x]: unset → {\"name\":\"x\"}"
        );
    }

    #[test]
    fn long_and_untrusted_values_are_shortened_and_printable() {
        let text = line(&json!({ "a": "" }), &json!({ "a": format!("\x1b[2J{}", "x".repeat(100)) }));
        assert!(text.starts_with("a: \"\" → x") && text.ends_with('…') && !text.contains('\x1b'), "{text}");
        assert!(width_of(&text) <= 60, "{text}");
    }
}
