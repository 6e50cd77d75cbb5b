//! An event as a sink sends it: CloudEvents 1.0 as structured JSON. It is serialized once and then shared.

use std::borrow::Cow;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::Redaction;
use informer_hub_types::{
    ApiResource, ClusterLabels, ClusterName, DecodeError, EventType, Notification, Object, Origin, ResourceVersion,
    TraceParent,
};

mod data;
mod merge;
mod record;

pub use data::{EventData, EventResource};
pub use record::InvalidRecord;

/// Options for building a sink's events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventOptions {
    /// Whether an update includes the previous state. Default: yes.
    pub include_old: bool,
    /// Redaction of secret values in the objects.
    pub redaction: Redaction,
    /// Whether the JSON has the attribute `sequence`, whose digits [`Event::set_sequence`] replaces. Default: no.
    pub sequence: bool,
    /// The resourceVersion of the first list after the cluster's resourceVersions went back, as after a restore of
    /// etcd. Event ids then include it, since an earlier event may have the same resourceVersion. `None`, the default,
    /// leaves it out.
    pub rewound: Option<ResourceVersion>,
}

impl Default for EventOptions {
    fn default() -> Self {
        Self { include_old: true, redaction: Redaction::default(), sequence: false, rewound: None }
    }
}

/// Serialized CloudEvent. Cloning increments a reference count.
///
/// # Identity
/// The id is a hash of cluster, GVR, UID, resourceVersion and event type. It is the same over retries, restarts and
/// replicas. A resync has the id of an update to the same state. A `synced` event describes the first list of one
/// informer in one process, so its id includes the time and is stable over retries only.
///
/// # Subject
/// Always five parts, `<group>/<version>/<resource>/<namespace>/<name>`. Parts that do not apply are empty: the core
/// group, the namespace of a cluster-scoped object, the name of `synced`.
///
/// # Sequence
/// If the sink has a journal, the attribute `sequence` is the event's number in the journal. It has twenty digits, so
/// that it sorts as text too. Numbers increase and may have gaps.
#[derive(Clone)]
pub struct Event(Arc<Parts>);

/// Number of digits of a sequence number: enough for any `u64`.
const SEQUENCE_DIGITS: usize = 20;

#[derive(Clone)]
struct Parts {
    id: Box<str>,
    event_type: EventType,
    cluster: Box<str>,
    subject: Box<str>,
    /// UID of the object; empty if the event has no object.
    uid: Box<str>,
    version: ResourceVersion,
    lane_hash: u64,
    sequence: Option<u64>,
    /// Offset of the sequence digits in `body`, the event's JSON; zero if none are reserved.
    sequence_at: u32,
    /// Whether `body` has the attribute `traceparent`.
    is_traced: bool,
    /// Whether the event is a replayed dead letter.
    is_replayed: bool,
    body: Box<str>,
}

/// Failure to convert a notification into an event.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EventError {
    /// The object's stored bytes are damaged: a bug or a hardware fault.
    #[error("cannot decode the object")]
    Object(#[from] DecodeError),
    /// The attributes do not serialize: a bug.
    #[error("cannot serialize event attributes")]
    Attributes(#[from] serde_json::Error),
}

/// Attributes of the CloudEvent, in the order of the JSON; `data` follows.
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
    #[serde(rename = "traceparent", skip_serializing_if = "Option::is_none")]
    trace_parent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence: Option<&'static str>,
}

const TRACE_PARENT: &str = ",\"traceparent\":\"";

/// Placeholder digits, which [`Event::set_sequence`] replaces.
const NO_SEQUENCE: &str = "00000000000000000000";

/// Members of the CloudEvent's `data`, except the objects, which follow as raw JSON.
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
    /// Converts a notification into an event. `seen` becomes the event's attribute `time`.
    ///
    /// Copies each object's JSON once. Only redacted objects are parsed.
    ///
    /// # Errors
    /// [`EventError`] if the object's stored bytes are damaged.
    pub fn new<K>(
        notification: &Notification<K>,
        seen: jiff::Timestamp,
        options: &EventOptions,
    ) -> Result<Self, EventError> {
        Self::in_trace(notification, seen, options, None)
    }

    /// Converts a notification into an event like [`Event::new`], with `parent` as the attribute `traceparent`. With
    /// this attribute, receivers can continue the trace of the change.
    ///
    /// # Errors
    /// [`EventError`] if the object's stored bytes are damaged.
    pub fn in_trace<K>(
        notification: &Notification<K>,
        seen: jiff::Timestamp,
        options: &EventOptions,
        parent: Option<TraceParent>,
    ) -> Result<Self, EventError> {
        let origin = notification.origin();
        let event_type = EventType::of(notification);
        let object = notification.object();
        let id = event_id(origin, event_type, object, seen, options.rewound.as_ref());
        let subject = subject(origin, object);
        let attributes = Attributes {
            spec_version: "1.0",
            id: &id,
            source: format!("/clusters/{}", origin.cluster),
            event_type: type_attribute(event_type),
            subject: &subject,
            time: seen.to_string(),
            data_content_type: "application/json",
            trace_parent: parent.map(|parent| parent.to_string()),
            sequence: options.sequence.then_some(NO_SEQUENCE),
        };
        let (body, sequence_at) = write_body(&attributes, notification, options)?;
        let uid = object.map(|object| object.uid().to_string()).unwrap_or_default();
        Ok(Self(Arc::new(Parts {
            event_type,
            cluster: origin.cluster.as_str().into(),
            lane_hash: lane_hash(origin.cluster.as_str(), &subject),
            uid: uid.into(),
            version: object.map_or_else(|| ResourceVersion::new(""), |object| object.resource_version().clone()),
            sequence: None,
            sequence_at,
            is_traced: parent.is_some(),
            is_replayed: false,
            body: body.into(),
            id: id.into(),
            subject: subject.into(),
        })))
    }

    /// Returns the CloudEvents id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.0.id
    }

    /// Returns the event type.
    #[must_use]
    pub fn event_type(&self) -> EventType {
        self.0.event_type
    }

    /// Returns the name of the cluster.
    #[must_use]
    pub fn cluster(&self) -> &str {
        &self.0.cluster
    }

    /// Returns the CloudEvents subject.
    #[must_use]
    pub fn subject(&self) -> &str {
        &self.0.subject
    }

    /// Returns group, version, resource, namespace and name from the subject; `None` if it has fewer parts.
    #[must_use]
    pub fn subject_parts(&self) -> Option<[&str; 5]> {
        subject_parts(&self.0.subject)
    }

    /// Returns the object's UID; empty if the event has no object, or the object has no UID.
    #[must_use]
    pub fn uid(&self) -> &str {
        &self.0.uid
    }

    /// Returns the resourceVersion of the object's state; empty if the event has no object.
    #[must_use]
    pub fn version(&self) -> &ResourceVersion {
        &self.0.version
    }

    /// Returns the whole event as JSON.
    #[must_use]
    pub fn json(&self) -> &str {
        &self.0.body
    }

    /// Returns the event's number in the sink's journal; `None` without a journal.
    #[must_use]
    pub fn sequence(&self) -> Option<u64> {
        self.0.sequence
    }

    /// Returns the attribute `traceparent`; `None` if the change is not traced.
    #[must_use]
    pub fn trace_parent(&self) -> Option<TraceParent> {
        if self.0.is_traced { trace_parent_of(&self.0.body) } else { None }
    }

    /// Sets the event's number in the journal, also in the JSON if digits are reserved there. Copies the event if it is
    /// shared.
    pub fn set_sequence(&mut self, sequence: u64) {
        let parts = Arc::make_mut(&mut self.0);
        parts.sequence = Some(sequence);
        let at = parts.sequence_at as usize;
        if at > 0 {
            let mut body = std::mem::take(&mut parts.body).into_string();
            body.replace_range(at..at + SEQUENCE_DIGITS, &format!("{sequence:020}"));
            parts.body = body.into();
        }
    }

    /// Returns a copy without the JSON. The copy still has the event's id, subject, UID and resourceVersion.
    #[must_use]
    pub fn without_body(&self) -> Self {
        Self(Arc::new(Parts { body: Box::default(), sequence_at: 0, ..Parts::clone(&self.0) }))
    }

    /// Marks the event as a replayed dead letter. It may be delivered after newer events of its object, so it does not
    /// describe the object's last state.
    #[must_use]
    pub fn replayed(mut self) -> Self {
        Arc::make_mut(&mut self.0).is_replayed = true;
        self
    }

    /// Returns whether the event is a replayed dead letter.
    #[must_use]
    pub fn is_replayed(&self) -> bool {
        self.0.is_replayed
    }

    /// Returns the bytes of memory that the event takes. Size limits of queues use this number.
    #[must_use]
    pub fn size(&self) -> usize {
        let Parts { id, cluster, subject, uid, body, .. } = &*self.0;
        body.len() + id.len() + cluster.len() + subject.len() + uid.len() + size_of::<Parts>()
    }

    /// Returns a hash that is equal for all events of one object, so that they share a lane (an ordered queue of
    /// events).
    #[must_use]
    pub fn lane_hash(&self) -> u64 {
        self.0.lane_hash
    }
}

impl fmt::Debug for Event {
    /// Omits the body, which is large and may be confidential.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").field("id", &self.id()).field("subject", &self.subject()).finish_non_exhaustive()
    }
}

/// Returns the CloudEvents id: a hash of 128 bits, short enough for a header.
fn event_id<K>(
    origin: &Origin,
    event_type: EventType,
    object: Option<&Object<K>>,
    seen: jiff::Timestamp,
    rewound: Option<&ResourceVersion>,
) -> String {
    let gvr = &origin.resource.gvr;
    let (what, version) = match object {
        Some(object) => (object.uid().to_string(), object.resource_version().to_string()),
        None => (origin.scope.to_string(), seen.as_nanosecond().to_string()),
    };
    let version = match rewound {
        Some(rewound) => format!("{version} after {rewound}"),
        None => version,
    };
    let resource = [&*gvr.group, &gvr.version, &gvr.resource];
    hash_of(origin.cluster.as_str(), resource, &what, &version, event_type)
}

fn hash_of(cluster: &str, resource: [&str; 3], what: &str, version: &str, event_type: EventType) -> String {
    let [group, api_version, plural] = resource;
    let mut hash = Sha256::new();
    for part in [cluster, group, api_version, plural, what, version, event_type.as_str()] {
        // The length prefix separates ("a", "bc") from ("ab", "c").
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    URL_SAFE_NO_PAD.encode(&hash.finalize()[..16])
}

fn type_attribute(event_type: EventType) -> String {
    format!("io.informer-hub.resource.{}.v1", event_type.as_str())
}

fn subject<K>(origin: &Origin, object: Option<&Object<K>>) -> String {
    let gvr = &origin.resource.gvr;
    let (namespace, name) = match object {
        Some(object) => (object.namespace(), object.name()),
        None => (origin.scope.namespace.as_deref(), ""),
    };
    format!("{}/{}/{}/{}/{name}", gvr.group, gvr.version, gvr.resource, namespace.unwrap_or_default())
}

/// Splits a subject into group, version, resource, namespace and name; `None` if it has fewer parts.
pub(crate) fn subject_parts(subject: &str) -> Option<[&str; 5]> {
    let mut parts = subject.splitn(5, '/');
    Some([parts.next()?, parts.next()?, parts.next()?, parts.next()?, parts.next()?])
}

/// Returns the attribute `traceparent` of an event's JSON; `None` if there is none. Searches only the attributes before
/// `data`.
fn trace_parent_of(body: &str) -> Option<TraceParent> {
    let (attributes, _) = body.split_once(",\"data\":")?;
    let (_, value) = attributes.split_once(TRACE_PARENT)?;
    value.get(..TraceParent::LENGTH)?.parse().ok()
}

/// Returns a hash of the object's identity without the API version, so that an object keeps its lane (queue of events)
/// if that version changes.
fn lane_hash(cluster: &str, subject: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    cluster.hash(&mut hasher);
    match subject_parts(subject) {
        Some([group, _, resource, namespace, name]) => (group, resource, namespace, name).hash(&mut hasher),
        None => subject.hash(&mut hasher),
    }
    hasher.finish()
}

/// Serializes attributes, data and objects into one JSON object. Also returns the offset of the digits of the attribute
/// `sequence`; zero if there is no such attribute.
fn write_body<K>(
    attributes: &Attributes<'_>,
    notification: &Notification<K>,
    options: &EventOptions,
) -> Result<(String, u32), EventError> {
    let (initial, tombstone, old) = match notification {
        Notification::Added { initial, .. } => (*initial, false, None),
        Notification::Updated { old, .. } => (false, false, options.include_old.then_some(old)),
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
    let (head, data) = (text_of(attributes)?, text_of(&data)?);
    // An object whose body is not in memory is written as `null`; `data` still has its name, UID and version.
    let json = |object: &&Object<K>| object.is_kept().then(|| object.json());
    let object = object.as_ref().and_then(json).transpose()?;
    let old = old.as_ref().and_then(json).transpose()?;
    let wire = |json| options.redaction.wire_json(&origin.resource.gvr, json);
    let null = || Cow::Borrowed("null");
    let (object, old) = (object.as_deref().map_or_else(null, wire), old.as_deref().map_or_else(null, wire));
    // Both texts are non-empty JSON objects. Their closing braces are removed, so that members can be appended.
    let (head, data) = (head.trim_end_matches('}'), data.strip_suffix('}').unwrap_or(&data));
    // Concatenated in one allocation: appending part by part would copy a large event three times.
    let body = [head, ",\"data\":", data, ",\"object\":", &*object, ",\"oldObject\":", &*old, "}}"].concat();
    Ok((body, sequence_at(head)))
}

/// Serializes to JSON in a buffer that is large enough for typical attributes, since growing the buffer would cost as
/// much as writing.
fn text_of(value: &impl Serialize) -> Result<String, serde_json::Error> {
    let mut json = Vec::with_capacity(1024);
    serde_json::to_writer(&mut json, value)?;
    String::from_utf8(json).map_err(serde::ser::Error::custom)
}

/// Returns the offset of the sequence digits in `head`, the JSON of the attributes, which ends with these digits and a
/// quotation mark. Returns zero if it does not.
fn sequence_at(head: &str) -> u32 {
    let at = head.len().checked_sub(SEQUENCE_DIGITS + 1).filter(|at| head[*at..].starts_with(NO_SEQUENCE));
    at.and_then(|at| u32::try_from(at).ok()).unwrap_or_default()
}

#[cfg(any(test, feature = "testing"))]
pub mod tests;
