//! The event as it goes over the wire: CloudEvents 1.0, structured JSON, made once and then only copied.

use std::borrow::Cow;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::redact;
use crate::types::{ApiResource, ClusterLabels, ClusterName, DecodeError, Notification, Object, Origin};

/// The types of event a sink can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// An object appeared.
    Added,
    /// An object changed.
    Updated,
    /// An object is gone.
    Deleted,
    /// A first list is complete.
    Synced,
}

impl EventType {
    /// The type of a notification.
    #[must_use]
    pub fn of<K>(notification: &Notification<K>) -> Self {
        match notification {
            Notification::Added { .. } => Self::Added,
            Notification::Updated { .. } => Self::Updated,
            Notification::Deleted { .. } => Self::Deleted,
            Notification::Synced(_) => Self::Synced,
        }
    }

    /// The word in the configuration and inside the CloudEvents type.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Updated => "updated",
            Self::Deleted => "deleted",
            Self::Synced => "synced",
        }
    }
}

/// One CloudEvent, serialised.
///
/// # Identity
/// The id of an object's event is a hash of cluster, GVR, UID, resourceVersion and event type, so that it is the same
/// over retries, restarts and replicas; a resync repeats the id of the state that it repeats. A `synced` event tells
/// of one first list of one informer of one process, so its id also takes in the moment: stable over retries only.
///
/// # Subject
/// Always five parts, `<group>/<version>/<resource>/<namespace>/<name>`; what does not apply is empty (the core
/// group, the namespace of a cluster-scoped object, the name of `synced`).
#[derive(Clone)]
pub struct Event {
    id: Box<str>,
    subject: Box<str>,
    lane_hash: u64,
    body: Box<str>,
}

/// A notification of which no event could be made.
#[derive(Debug, thiserror::Error)]
pub enum EventError {
    /// The stored bytes are damaged: a fault of this program or of the machine.
    #[error("object could not be read")]
    Object(#[from] DecodeError),
    /// The attributes did not serialise: a fault of this program.
    #[error("attributes could not be written")]
    Attributes(#[from] serde_json::Error),
}

/// The attributes, in the order in which they are written; `data` follows.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
struct Attributes<'a> {
    #[serde(rename = "specversion")]
    spec_version: &'static str,
    id: &'a str,
    source: String,
    #[serde(rename = "type")]
    event_type: String,
    subject: &'a str,
    time: String,
    #[serde(rename = "datacontenttype")]
    data_content_type: &'static str,
}

/// The members of `data` that are small; the objects follow, as they are.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Data<'a> {
    cluster: &'a ClusterName,
    cluster_labels: &'a ClusterLabels,
    resource: Resource<'a>,
    namespace: Option<&'a str>,
    name: Option<&'a str>,
    uid: Option<String>,
    resource_version: Option<String>,
    initial: bool,
    tombstone: bool,
}

#[derive(Serialize)]
#[expect(clippy::struct_field_names, reason = "the names on the wire")]
struct Resource<'a> {
    group: &'a str,
    version: &'a str,
    resource: &'a str,
    kind: &'a str,
}

impl<'a> From<&'a ApiResource> for Resource<'a> {
    fn from(resource: &'a ApiResource) -> Self {
        let gvr = &resource.gvr;
        Self { group: &gvr.group, version: &gvr.version, resource: &gvr.resource, kind: &resource.kind }
    }
}

impl Event {
    /// Makes the event of a notification that the hub saw at `seen`.
    ///
    /// Copies each object's JSON once; only Secrets are parsed (and redacted).
    ///
    /// # Errors
    /// [`EventError`] when the object's stored bytes are damaged.
    pub fn new<K>(notification: &Notification<K>, seen: jiff::Timestamp) -> Result<Self, EventError> {
        let origin = notification.origin();
        let event_type = EventType::of(notification);
        let object = notification.object();
        let id = event_id(origin, event_type, object, seen);
        let subject = subject(origin, object);
        let attributes = Attributes {
            spec_version: "1.0",
            id: &id,
            source: format!("/clusters/{}", origin.cluster),
            event_type: format!("io.informer-hub.resource.{}.v1", event_type.as_str()),
            subject: &subject,
            time: seen.to_string(),
            data_content_type: "application/json",
        };
        let body = write_body(&attributes, notification)?;
        Ok(Self { lane_hash: lane_hash(origin, &subject), body: body.into(), id: id.into(), subject: subject.into() })
    }

    /// The CloudEvents id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The CloudEvents subject.
    #[must_use]
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// The whole event as JSON.
    #[must_use]
    pub fn json(&self) -> &str {
        &self.body
    }

    /// What the event counts against bounds in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.body.len() + self.id.len() + self.subject.len() + size_of::<Self>()
    }

    /// Equal for all events of one object, so that they share a lane.
    #[must_use]
    pub fn lane_hash(&self) -> u64 {
        self.lane_hash
    }
}

impl fmt::Debug for Event {
    /// Without the body, which may be large and is nobody's business in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").field("id", &self.id).field("subject", &self.subject).finish_non_exhaustive()
    }
}

/// Hash of what identifies the event, short enough for a header and long enough never to collide (128 bits).
fn event_id<K>(origin: &Origin, event_type: EventType, object: Option<&Object<K>>, seen: jiff::Timestamp) -> String {
    let gvr = &origin.resource.gvr;
    let (what, version) = match object {
        Some(object) => (object.uid().to_string(), object.resource_version().to_string()),
        None => (origin.scope.to_string(), seen.as_nanosecond().to_string()),
    };
    let mut hash = Sha256::new();
    let parts =
        [origin.cluster.as_str(), &gvr.group, &gvr.version, &gvr.resource, &what, &version, event_type.as_str()];
    for part in parts {
        // The length in front keeps ("a", "bc") apart from ("ab", "c").
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    URL_SAFE_NO_PAD.encode(&hash.finalize()[..16])
}

fn subject<K>(origin: &Origin, object: Option<&Object<K>>) -> String {
    let gvr = &origin.resource.gvr;
    let (namespace, name) = match object {
        Some(object) => (object.namespace(), object.name()),
        None => (origin.scope.namespace.as_deref(), ""),
    };
    format!("{}/{}/{}/{}/{name}", gvr.group, gvr.version, gvr.resource, namespace.unwrap_or_default())
}

fn lane_hash(origin: &Origin, subject: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    origin.cluster.hash(&mut hasher);
    subject.hash(&mut hasher);
    hasher.finish()
}

/// Writes attributes, data and objects into one JSON object.
fn write_body<K>(attributes: &Attributes<'_>, notification: &Notification<K>) -> Result<String, EventError> {
    let (initial, tombstone, old) = match notification {
        Notification::Added { initial, .. } => (*initial, false, None),
        Notification::Updated { old, .. } => (false, false, Some(old)),
        Notification::Deleted { tombstone, .. } => (false, *tombstone, None),
        Notification::Synced(_) => (false, false, None),
    };
    let origin = notification.origin();
    let object = notification.object();
    let data = Data {
        cluster: &origin.cluster,
        cluster_labels: &origin.cluster_labels,
        resource: (&origin.resource).into(),
        namespace: object.map_or(origin.scope.namespace.as_deref(), Object::namespace),
        name: object.map(Object::name),
        uid: object.map(|object| object.uid().to_string()),
        resource_version: object.map(|object| object.resource_version().to_string()),
        initial,
        tombstone,
    };
    let head = serde_json::to_string(attributes)?;
    let data = serde_json::to_string(&data)?;
    // Of a state whose body is not kept, what its head has is told, and `null` for the rest.
    let json = |object: &&Object<K>| object.is_kept().then(|| object.json());
    let object = object.as_ref().and_then(json).transpose()?;
    let old = old.as_ref().and_then(json).transpose()?;
    let wire = |json: Option<&[u8]>| -> String {
        json.map_or(Cow::Borrowed("null"), |json| redact::wire_json(&origin.resource.gvr, json)).into_owned()
    };
    let (object, old) = (wire(object.as_deref()), wire(old.as_deref()));
    // Both texts end in the brace of a non-empty object, in whose place more members go.
    let (head, data) = (head.trim_end_matches('}'), data.strip_suffix('}').unwrap_or(&data));
    Ok(format!(r#"{head},"data":{data},"object":{object},"oldObject":{old}}}}}"#))
}

#[cfg(test)]
pub(crate) mod tests;
