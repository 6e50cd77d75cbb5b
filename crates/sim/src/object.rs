//! Objects of a simulated cluster, each at one resourceVersion, and the watch events in which they change. An object is
//! encoded once, and all answers share the bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use informer_hub_types::{Gvr, ObjectKey, ResourceVersion, Uid};

/// Object as stored at one resourceVersion.
#[derive(Clone, Debug)]
pub struct SimObject {
    key: ObjectKey,
    uid: Uid,
    version: u64,
    labels: BTreeMap<String, String>,
    node: String,
    phase: String,
    json: Bytes,
    /// Length of `{"kind":…,"apiVersion":…,` at the start of `json`. Items in lists of built-in types lack these
    /// fields.
    type_meta: usize,
}

impl SimObject {
    /// Creates an object from `body` and encodes it as JSON. The metadata in `body` must be complete. `kind` and
    /// `apiVersion` are set here.
    pub(super) fn encode(gvr: &Gvr, kind: &str, version: u64, mut body: Value) -> Self {
        if let Some(fields) = body.as_object_mut() {
            fields.remove("apiVersion");
            fields.remove("kind");
        }
        let text = |path: &str| body.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let labels = body.pointer("/metadata/labels").and_then(Value::as_object);
        let pairs = labels.into_iter().flatten();
        let labels = pairs.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect();
        let head = format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{}\",", gvr.api_version());
        let plain = body.to_string();
        Self {
            key: ObjectKey::new(text("/metadata/namespace"), text("/metadata/name")),
            uid: Uid::new(text("/metadata/uid")),
            version,
            labels,
            node: text("/spec/nodeName").to_owned(),
            phase: text("/status/phase").to_owned(),
            type_meta: head.len(),
            json: Bytes::from(head + plain.strip_prefix('{').unwrap_or(&plain)),
        }
    }

    /// Namespace and name.
    #[must_use]
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// `metadata.uid`.
    #[must_use]
    pub fn uid(&self) -> &Uid {
        &self.uid
    }

    /// `metadata.resourceVersion` as a number.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// `metadata.resourceVersion`.
    #[must_use]
    pub fn resource_version(&self) -> ResourceVersion {
        ResourceVersion::new(&self.version.to_string())
    }

    /// Returns the value of one label; `None` if the object lacks the label.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(String::as_str)
    }

    /// `spec.nodeName`; empty if absent.
    #[must_use]
    pub fn node(&self) -> &str {
        &self.node
    }

    /// `status.phase`; empty if absent.
    #[must_use]
    pub fn phase(&self) -> &str {
        &self.phase
    }

    /// Returns the whole object with its type, as in a watch event or a GET answer.
    #[must_use]
    pub fn json(&self) -> &Bytes {
        &self.json
    }

    /// Returns the parsed object. Costs a parse.
    #[must_use]
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.json).unwrap_or_default()
    }

    /// Returns the object without `kind` and `apiVersion`, as it is in a list of a built-in type.
    pub(super) fn untyped(&self) -> Bytes {
        [b"{", &self.json[self.type_meta..]].concat().into()
    }

    /// Returns the object as `PartialObjectMetadata`. Costs a parse and an encode.
    pub(super) fn partial(&self) -> Bytes {
        let value = self.value();
        let metadata = &value["metadata"];
        let partial = json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata });
        Bytes::from(partial.to_string())
    }

    /// Returns the object in another API version (`gvr`) in which its resource is served. Costs a parse and an encode.
    pub(super) fn read_as(&self, gvr: &Gvr, kind: &str) -> Self {
        Self::encode(gvr, kind, self.version, self.value())
    }

    /// Returns the same state with a later resourceVersion, as in a DELETED event.
    pub(super) fn at_version(&self, gvr: &Gvr, kind: &str, version: u64) -> Self {
        let mut value = self.value();
        value["metadata"]["resourceVersion"] = json!(version.to_string());
        Self::encode(gvr, kind, version, value)
    }
}

/// Type of a watch event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind {
    /// ADDED.
    Added,
    /// MODIFIED.
    Modified,
    /// DELETED.
    Deleted,
}

impl EventKind {
    /// Returns the JSON value of `type`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// Entry of a resource's history.
#[derive(Debug)]
pub struct Event {
    /// Type of the event.
    pub kind: EventKind,
    /// The object after the event. For a deletion, its last state with the resourceVersion of the deletion.
    pub object: Arc<SimObject>,
    /// The object before the event.
    pub previous: Option<Arc<SimObject>>,
}

impl Event {
    pub(super) fn new(kind: EventKind, object: Arc<SimObject>, previous: Option<Arc<SimObject>>) -> Self {
        Self { kind, object, previous }
    }
}

/// Returns `{"type":…,"object":…}` and a newline.
pub(super) fn event_line(kind: &str, object: &[u8]) -> Bytes {
    let mut line = Vec::with_capacity(object.len() + kind.len() + 24);
    line.extend_from_slice(b"{\"type\":\"");
    line.extend_from_slice(kind.as_bytes());
    line.extend_from_slice(b"\",\"object\":");
    line.extend_from_slice(object);
    line.extend_from_slice(b"}\n");
    line.into()
}
