//! Redaction of secret values: those of `Secret` objects, and the paths in a sink's `redact`.
//!
//! Objects are redacted before filters, logs, the journal and transports read them.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use informer_hub_types::{FieldPath, Gvr, Segment};

/// Replacement for a redacted value.
pub const REDACTED: &str = "<redacted>";

/// Members of a Secret with secret values.
const SECRET_MEMBERS: [&str; 2] = ["data", "stringData"];

/// Annotation in which kubectl keeps a copy of the applied object, including values.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Returns whether objects of this resource hold secret values.
pub(super) fn is_secret(gvr: &Gvr) -> bool {
    gvr.group.is_empty() && gvr.resource == "secrets"
}

/// Redaction of a sink: paths whose values must not leave the process, in addition to the values of Secrets.
///
/// A scalar at a path is replaced by `"<redacted>"`. For a list each element is replaced, for an object each member's
/// value; names and lengths remain. Copies of the object in annotations are redacted in the same way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Redaction {
    paths: Arc<[FieldPath]>,
}

impl Redaction {
    /// Creates a redaction of these paths and of the values of Secrets.
    #[must_use]
    pub fn new(paths: Vec<FieldPath>) -> Self {
        Self { paths: paths.into() }
    }

    /// Returns the redacted JSON of an object.
    ///
    /// Cost: none for objects other than Secrets if there are no paths; otherwise the object is parsed and serialized
    /// again. Invalid UTF-8 is replaced. An object that needs redaction but does not parse is replaced by
    /// `"<redacted>"`.
    #[must_use]
    pub fn wire_json<'j>(&self, gvr: &Gvr, json: &'j [u8]) -> Cow<'j, str> {
        if self.paths.is_empty() && !is_secret(gvr) {
            // The lossy conversion works byte by byte. Valid UTF-8, the usual case, is recognized much faster.
            return simdutf8::basic::from_utf8(json).map_or_else(|_| String::from_utf8_lossy(json), Cow::Borrowed);
        }
        match serde_json::from_slice(json) {
            Ok(mut value) => {
                self.apply(gvr, &mut value);
                Cow::Owned(value.to_string())
            }
            Err(_) => Cow::Owned(Value::from(REDACTED).to_string()),
        }
    }

    /// Redacts a parsed object in place.
    pub(super) fn apply(&self, gvr: &Gvr, object: &mut Value) {
        let secret = is_secret(gvr);
        if self.paths.is_empty() && !secret {
            return;
        }
        let redact = |object: &mut Value| {
            if secret {
                redact_members(object);
            }
            self.paths.iter().for_each(|path| redact_at(object, path.segments()));
        };
        // Copies first: the paths may redact the annotations themselves.
        redact_copies(object, redact);
        redact(object);
    }
}

/// Returns the JSON of an object with only the values of Secrets redacted.
#[cfg(test)]
fn wire_json<'j>(gvr: &Gvr, json: &'j [u8]) -> Cow<'j, str> {
    Redaction::default().wire_json(gvr, json)
}

/// Applies `redact` to each annotation that is a copy of the object in JSON.
fn redact_copies(object: &mut Value, redact: impl Fn(&mut Value)) {
    let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) else { return };
    for (name, annotation) in annotations {
        let copy = annotation.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
        match copy {
            Some(mut copy) if copy.is_object() => {
                let before = copy.clone();
                redact(&mut copy);
                // A copy without secret values keeps its formatting.
                if copy != before {
                    *annotation = copy.to_string().into();
                }
            }
            // If kubectl's copy does not parse, the whole annotation is redacted.
            _ if name == LAST_APPLIED => *annotation = REDACTED.into(),
            _ => {}
        }
    }
}

/// Redacts all values at `path`, which is relative to `value`.
fn redact_at(value: &mut Value, path: &[Segment]) {
    match (path, value) {
        (_, Value::Null) => {}
        ([], Value::Object(members)) => members.values_mut().for_each(|value| *value = REDACTED.into()),
        ([], Value::Array(elements)) => elements.iter_mut().for_each(|value| *value = REDACTED.into()),
        ([], value) => *value = REDACTED.into(),
        ([Segment::Field(name), rest @ ..], Value::Object(members)) => {
            if let Some(value) = members.get_mut(name.as_str()) {
                redact_at(value, rest);
            }
        }
        ([Segment::Each, rest @ ..], Value::Array(elements)) => {
            for value in elements {
                redact_at(value, rest);
            }
        }
        // The value has another type than the path expects, e.g. a string instead of an object: redact the whole value.
        ([_, ..], value) => redact_at(value, &[]),
    }
}

fn redact_members(object: &mut Value) {
    for member in SECRET_MEMBERS {
        match object.get_mut(member) {
            None | Some(Value::Null) => {}
            Some(Value::Object(values)) => values.values_mut().for_each(|value| *value = REDACTED.into()),
            Some(other) => *other = REDACTED.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets() -> Gvr {
        Gvr::new("", "v1", "secrets")
    }

    #[test]
    fn secret_values_are_replaced_everywhere() {
        let applied = serde_json::json!({"kind": "Secret", "data": {"k": "hunter2"}, "stringData": {"s": "hunter2"}});
        let json = serde_json::json!({
            "kind": "Secret",
            "metadata": {"name": "s", "annotations": {
                LAST_APPLIED: applied.to_string(),
                "kapp.k14s.io/original": applied.to_string(),
                "plain": "kept"
            }},
            "data": {"k": "hunter2"},
            "stringData": {"s": "hunter2"},
            "type": "Opaque"
        });
        let wire = wire_json(&secrets(), json.to_string().as_bytes()).into_owned();
        assert!(!wire.contains("hunter2"), "{wire}");
        let wire: Value = serde_json::from_str(&wire).unwrap();
        assert_eq!(wire["data"]["k"], REDACTED);
        assert_eq!(wire["metadata"]["annotations"]["plain"], "kept");
        assert_eq!(wire["type"], "Opaque");
    }

    #[test]
    fn malformed_secret_is_replaced_whole() {
        for json in [
            r#"{"data":"hunter2"}"#,
            r#"{"data":["hunter2"]}"#,
            r#"{"data":{"k":"hunter2""#,
            r#"{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"data\": hunter2"}}}"#,
        ] {
            assert!(!wire_json(&secrets(), json.as_bytes()).contains("hunter2"), "{json}");
        }
    }

    #[test]
    fn other_objects_are_unchanged() {
        let json = br#"{ "data": {"k": "v"} }"#;
        assert!(matches!(wire_json(&Gvr::new("", "v1", "configmaps"), json), Cow::Borrowed(_)));
        assert!(!is_secret(&Gvr::new("example.com", "v1", "secrets")));
    }

    fn redaction(paths: &[&str]) -> Redaction {
        Redaction::new(paths.iter().map(|path| path.parse().unwrap()).collect())
    }

    fn pods() -> Gvr {
        Gvr::new("", "v1", "pods")
    }

    #[test]
    fn values_at_a_path_are_replaced_everywhere() {
        let spec = serde_json::json!({"containers": [
            {"name": "a", "env": [{"name": "TOKEN", "value": "hunter2"}, {"name": "PORT", "value": 80}]},
            {"name": "b"},
        ]});
        let applied = serde_json::json!({"spec": spec}).to_string();
        let pod = serde_json::json!({
            "metadata": {"name": "p", "annotations": {LAST_APPLIED: applied, "other": "{\"x\": 1}"}}, "spec": spec
        });
        let pod = pod.to_string();
        let wire = redaction(&["spec.containers[*].env[*].value"]).wire_json(&pods(), pod.as_bytes());
        assert!(!wire.contains("hunter2") && wire.contains("TOKEN"), "{wire}");
        let wire: Value = serde_json::from_str(&wire).unwrap();
        assert_eq!(wire["spec"]["containers"][0]["env"][1]["value"], REDACTED);
        assert_eq!(wire["spec"]["containers"][1], serde_json::json!({"name": "b"}));
        assert_eq!(wire["metadata"]["annotations"]["other"], "{\"x\": 1}");
    }

    #[test]
    fn maps_keep_names_and_lists_keep_lengths() {
        let pod = br#"{"metadata":{"name":"p","annotations":{"a":"hunter2","b":"hunter2"}},"spec":{"args":["hunter2",{"x":"hunter2"}],"n":null}}"#;
        let wire = redaction(&["metadata.annotations", "spec.args", "spec.n", "spec.nothing"]).wire_json(&pods(), pod);
        let wire: Value = serde_json::from_str(&wire).unwrap();
        assert_eq!(wire["metadata"]["annotations"], serde_json::json!({"a": REDACTED, "b": REDACTED}));
        assert_eq!(wire["spec"], serde_json::json!({"args": [REDACTED, REDACTED], "n": null}));
        assert_eq!(wire["metadata"]["name"], "p");
    }

    #[test]
    fn unexpected_form_at_a_path_is_redacted_whole() {
        for json in [
            r#"{"spec":{"containers":{"env":"hunter2"}}}"#,
            r#"{"spec":{"containers":"hunter2"}}"#,
            r#"{"spec":{"containers":[{"env":"hunter2"}]}}"#,
            r#"{"spec":{"containers":[{"env":[["hunter2"]]}]}}"#,
            r#"{"spec":"hunter2""#,
            r#"{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"hunter2"}}}"#,
        ] {
            let wire = redaction(&["spec.containers[*].env[*].value"]).wire_json(&pods(), json.as_bytes());
            assert!(!wire.contains("hunter2"), "{wire}");
        }
    }

    #[test]
    fn paths_add_to_the_redaction_of_secrets() {
        let json = br#"{"data":{"k":"hunter2"},"metadata":{"labels":{"l":"hunter3"}}}"#;
        let wire = redaction(&["metadata.labels"]).wire_json(&secrets(), json);
        assert!(!wire.contains("hunter"), "{wire}");
    }
}
