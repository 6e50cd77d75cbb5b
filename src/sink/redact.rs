//! Keeps the values of `Secret` objects inside the process.
//!
//! Applied to an object before a filter, a log line or the wire can see it.

use std::borrow::Cow;

use serde_json::Value;

use crate::types::Gvr;

/// What stands in the place of a value.
pub(super) const REDACTED: &str = "<redacted>";

/// The members of a Secret whose values are secret.
const SECRET_MEMBERS: [&str; 2] = ["data", "stringData"];

/// Where kubectl keeps a copy of what was applied, values included.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Whether objects of this resource hold secret values.
pub(super) fn is_secret(gvr: &Gvr) -> bool {
    gvr.group.is_empty() && gvr.resource == "secrets"
}

/// The JSON of an object as it may leave the process: as it is, or redacted for a Secret.
///
/// Text that is not UTF-8 is repaired lossily. A Secret that does not parse is withheld altogether.
pub(super) fn wire_json<'j>(gvr: &Gvr, json: &'j [u8]) -> Cow<'j, str> {
    if !is_secret(gvr) {
        return String::from_utf8_lossy(json);
    }
    match serde_json::from_slice(json) {
        Ok(mut value) => {
            redact(&mut value);
            Cow::Owned(value.to_string())
        }
        Err(_) => Cow::Owned(Value::from(REDACTED).to_string()),
    }
}

/// Replaces the secret values of a Secret: in its data, and in copies of it that tools keep in annotations.
pub(super) fn redact(secret: &mut Value) {
    redact_members(secret);
    let Some(annotations) = secret.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) else { return };
    for (name, annotation) in annotations {
        let copy = annotation.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
        match copy {
            Some(mut copy) if copy.is_object() => {
                redact_members(&mut copy);
                *annotation = copy.to_string().into();
            }
            // kubectl's own copy, in a form not understood, is not let through on trust.
            _ if name == LAST_APPLIED => *annotation = REDACTED.into(),
            _ => {}
        }
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
    fn values_of_a_secret_are_replaced_wherever_they_are() {
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
    fn a_malformed_secret_is_withheld() {
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
    fn other_objects_are_left_alone() {
        let json = br#"{ "data": {"k": "v"} }"#;
        assert!(matches!(wire_json(&Gvr::new("", "v1", "configmaps"), json), Cow::Borrowed(_)));
        assert!(!is_secret(&Gvr::new("example.com", "v1", "secrets")));
    }
}
