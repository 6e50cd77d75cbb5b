//! Lines of `/v1/events`: CloudEvents, each of which is a change of an object or a notice about the stream.

use serde::Deserialize;
use serde_json::Value;

use super::deep::parse_deep;

/// CloudEvents type of an object's change: the texts before and after the change's name, such as `added`.
const CHANGE: [&str; 2] = ["io.informer-hub.resource.", ".v1"];
/// CloudEvents type of a notice about the stream: the texts before and after the notice's name, such as `synced`.
const NOTICE: [&str; 2] = ["io.informer-hub.stream.", ".v1"];

/// A line of the stream: a change of an object, or a notice about the stream.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct StreamEvent {
    /// Type of the CloudEvent.
    #[serde(rename = "type")]
    kind: String,
    /// Time at which the hub saw the change or wrote the notice, in RFC 3339; empty if the line has none.
    #[serde(default)]
    pub time: String,
    /// Position in the stream after this event; a later request can continue there. `None` if the line has none.
    #[serde(default)]
    pub position: Option<String>,
    /// Data of the change or the notice.
    #[serde(default)]
    pub data: ChangeData,
}

/// Data of a change or a notice.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ChangeData {
    /// Cluster of the object.
    pub cluster: String,
    /// Resource of the object.
    pub resource: ChangeResource,
    /// Namespace of the object.
    pub namespace: Option<String>,
    /// Name of the object.
    pub name: Option<String>,
    /// Whether an `added` object was not created now, but existed before. Either it existed when the stream began, or
    /// it joined the stream later, for example because its cluster was added.
    pub initial: bool,
    /// For a `deleted` object, whether `object` may be older than the object's last state, which the hub did not
    /// receive. Also true if the object was not deleted, but left the stream, for example because its cluster was
    /// removed.
    pub tombstone: bool,
    /// The object; for a deletion, its last known state.
    pub object: Value,
    /// Changed paths; if there are too many, only some of them.
    pub changed: Vec<ChangedPath>,
    /// Number of changed paths that are not in `changed`.
    pub changed_more: usize,
    /// Resources that a notice (a message about the stream) is about.
    pub resources: Vec<String>,
    /// Text of a notice (a message about the stream); empty for a change of an object.
    pub message: String,
}

/// Resource of a changed object.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ChangeResource {
    /// API group; empty for the core group.
    pub group: String,
    /// Kind of the object.
    pub kind: String,
}

/// A changed field of an object, with its old and new value.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct ChangedPath {
    /// Path such as `spec.replicas`.
    pub path: String,
    /// Value before the change; `None` if it was not set.
    #[serde(default, deserialize_with = "present")]
    pub old: Option<Value>,
    /// Value after the change; `None` if it is not set.
    #[serde(default, deserialize_with = "present")]
    pub new: Option<Value>,
}

/// Deserializes a member's value as `Some`, even if it is `null`. With `serde(default)`, only an absent member is
/// `None`.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

impl StreamEvent {
    /// Parses a line of the stream.
    ///
    /// # Errors
    /// The line is not a CloudEvent.
    pub fn parse(line: &[u8]) -> Result<Self, serde_json::Error> {
        parse_deep(line)
    }

    /// Returns the name of a change: `added`, `updated` or `deleted`; `None` for a notice.
    #[must_use]
    pub fn change(&self) -> Option<&str> {
        self.kind.strip_prefix(CHANGE[0])?.strip_suffix(CHANGE[1])
    }

    /// Returns the name of a notice: `synced`, `expired`, `warning`, `end` or `heartbeat`; `None` for a change.
    #[must_use]
    pub fn notice(&self) -> Option<&str> {
        self.kind.strip_prefix(NOTICE[0])?.strip_suffix(NOTICE[1])
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn changes_and_notices_are_told_apart() {
        let line = br#"{"specversion":"1.0","type":"io.informer-hub.resource.updated.v1","time":"t","position":"p","data":{"cluster":"a",
            "resource":{"group":"","version":"v1","resource":"pods","kind":"Pod"},"namespace":"shop","name":"web","uid":"u","initial":false,
            "tombstone":false,"object":{},"oldObject":{},"changed":[{"path":"a","old":null,"new":1},{"path":"b","new":2}],"changedMore":3}}"#;
        let event = StreamEvent::parse(line).unwrap();
        assert_eq!((event.change(), event.notice(), event.position.as_deref()), (Some("updated"), None, Some("p")));
        let data = &event.data;
        assert_eq!((data.resource.kind.as_str(), data.name.as_deref(), data.changed_more), ("Pod", Some("web"), 3));
        assert_eq!(data.changed[0].old, Some(Value::Null), "null is a value");
        assert_eq!((&data.changed[1].old, &data.changed[1].new), (&None, &Some(json!(2))));
        let line = br#"{"type":"io.informer-hub.stream.expired.v1","data":{"resources":["pods"],"reason":"gap","message":"m"}}"#;
        let event = StreamEvent::parse(line).unwrap();
        assert_eq!((event.change(), event.notice(), event.data.message.as_str()), (None, Some("expired"), "m"));
        let line = br#"{"type":"io.informer-hub.stream.heartbeat.v1","position":"q"}"#;
        assert_eq!(StreamEvent::parse(line).unwrap().notice(), Some("heartbeat"));
        assert!(StreamEvent::parse(b"<html>").is_err());
    }
}
