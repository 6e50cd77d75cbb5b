//! The event as it goes over the wire: CloudEvents 1.0, structured JSON, made once and then only copied.

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

/// How a sink's events are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventOptions {
    /// Whether an update carries the state before it too. Default: yes.
    pub include_old: bool,
    /// What of objects stays in the process.
    pub redaction: Redaction,
    /// Whether there is room for a journal's number. Default: no.
    pub sequence: bool,
}

impl Default for EventOptions {
    fn default() -> Self {
        Self { include_old: true, redaction: Redaction::default(), sequence: false }
    }
}

/// One CloudEvent, serialised. Cloning counts a reference.
///
/// # Identity
/// The id of an object's event is a hash of cluster, GVR, UID, resourceVersion and event type, so that it is the same
/// over retries, restarts and replicas; a resync repeats the id of the state that it repeats. A `synced` event tells
/// of one first list of one informer of one process, so its id also takes in the moment: stable over retries only.
///
/// # Subject
/// Always five parts, `<group>/<version>/<resource>/<namespace>/<name>`; what does not apply is empty (the core
/// group, the namespace of a cluster-scoped object, the name of `synced`).
///
/// # Sequence
/// Where a sink has a journal, the event's number in it is the attribute `sequence`: twenty digits, so that it orders
/// as a text too. Numbers grow, and have gaps.
#[derive(Clone)]
pub struct Event(Arc<Parts>);

/// Digits of a sequence number: all of a `u64`'s.
const SEQUENCE_DIGITS: usize = 20;

#[derive(Clone)]
struct Parts {
    id: Box<str>,
    event_type: EventType,
    cluster: Box<str>,
    subject: Box<str>,
    /// Empty where there is no object.
    uid: Box<str>,
    version: ResourceVersion,
    lane_hash: u64,
    sequence: Option<u64>,
    /// Where the digits of the sequence are in `body`; zero where there are none.
    sequence_at: u32,
    /// Whether `body` says where it is in a trace.
    is_traced: bool,
    /// Whether it was a dead letter.
    is_again: bool,
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
    #[serde(rename = "traceparent", skip_serializing_if = "Option::is_none")]
    trace_parent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence: Option<&'static str>,
}

/// How the extension begins.
const TRACE_PARENT: &str = ",\"traceparent\":\"";

/// What stands in the place of a sequence number until there is one.
const NO_SEQUENCE: &str = "00000000000000000000";

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
    /// Copies each object's JSON once; only what is redacted is parsed.
    ///
    /// # Errors
    /// [`EventError`] when the object's stored bytes are damaged.
    pub fn new<K>(
        notification: &Notification<K>,
        seen: jiff::Timestamp,
        options: &EventOptions,
    ) -> Result<Self, EventError> {
        Self::in_trace(notification, seen, options, None)
    }

    /// The same of a notification whose change has a trace: receivers may go on from `parent`.
    ///
    /// # Errors
    /// As [`Event::new`].
    pub fn in_trace<K>(
        notification: &Notification<K>,
        seen: jiff::Timestamp,
        options: &EventOptions,
        parent: Option<TraceParent>,
    ) -> Result<Self, EventError> {
        let origin = notification.origin();
        let event_type = EventType::of(notification);
        let object = notification.object();
        let id = event_id(origin, event_type, object, seen);
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
            is_again: false,
            body: body.into(),
            id: id.into(),
            subject: subject.into(),
        })))
    }

    /// The CloudEvents id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.0.id
    }

    /// What happened.
    #[must_use]
    pub fn event_type(&self) -> EventType {
        self.0.event_type
    }

    /// The cluster that it happened in.
    #[must_use]
    pub fn cluster(&self) -> &str {
        &self.0.cluster
    }

    /// The CloudEvents subject.
    #[must_use]
    pub fn subject(&self) -> &str {
        &self.0.subject
    }

    /// Group, version, resource, namespace and name that the subject is made of.
    #[must_use]
    pub fn subject_parts(&self) -> Option<[&str; 5]> {
        subject_parts(&self.0.subject)
    }

    /// The object's UID; empty where there is no object, or none.
    #[must_use]
    pub fn uid(&self) -> &str {
        &self.0.uid
    }

    /// The version of the state that it tells of; empty where there is no object.
    #[must_use]
    pub fn version(&self) -> &ResourceVersion {
        &self.0.version
    }

    /// The whole event as JSON.
    #[must_use]
    pub fn json(&self) -> &str {
        &self.0.body
    }

    /// The journal's number, where it has one.
    #[must_use]
    pub fn sequence(&self) -> Option<u64> {
        self.0.sequence
    }

    /// The extension `traceparent`, where the change has a trace.
    #[must_use]
    pub fn trace_parent(&self) -> Option<TraceParent> {
        if self.0.is_traced { trace_parent_of(&self.0.body) } else { None }
    }

    /// Gives it a number, in its JSON too where there is room for one. Copies the event if somebody shares it.
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

    /// The same without its JSON: what it is about, and no more.
    #[must_use]
    pub fn without_body(&self) -> Self {
        Self(Arc::new(Parts { body: Box::default(), sequence_at: 0, ..Parts::clone(&self.0) }))
    }

    /// The same as a dead letter that is delivered again: it comes behind what is newer than it is, and so says nothing of how
    /// its object was left.
    #[must_use]
    pub fn again(mut self) -> Self {
        Arc::make_mut(&mut self.0).is_again = true;
        self
    }

    /// Whether it is what [`Self::again`] made.
    #[must_use]
    pub fn is_again(&self) -> bool {
        self.0.is_again
    }

    /// What the event counts against bounds in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        let Parts { id, cluster, subject, uid, body, .. } = &*self.0;
        body.len() + id.len() + cluster.len() + subject.len() + uid.len() + size_of::<Parts>()
    }

    /// Equal for all events of one object, so that they share a lane.
    #[must_use]
    pub fn lane_hash(&self) -> u64 {
        self.0.lane_hash
    }
}

impl fmt::Debug for Event {
    /// Without the body, which may be large and is nobody's business in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").field("id", &self.id()).field("subject", &self.subject()).finish_non_exhaustive()
    }
}

/// Hash of what identifies the event, short enough for a header and long enough never to collide (128 bits).
fn event_id<K>(origin: &Origin, event_type: EventType, object: Option<&Object<K>>, seen: jiff::Timestamp) -> String {
    let gvr = &origin.resource.gvr;
    let (what, version) = match object {
        Some(object) => (object.uid().to_string(), object.resource_version().to_string()),
        None => (origin.scope.to_string(), seen.as_nanosecond().to_string()),
    };
    let resource = [&*gvr.group, &gvr.version, &gvr.resource];
    hash_of(origin.cluster.as_str(), resource, &what, &version, event_type)
}

fn hash_of(cluster: &str, resource: [&str; 3], what: &str, version: &str, event_type: EventType) -> String {
    let [group, api_version, plural] = resource;
    let mut hash = Sha256::new();
    for part in [cluster, group, api_version, plural, what, version, event_type.as_str()] {
        // The length in front keeps ("a", "bc") apart from ("ab", "c").
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

/// Group, version, resource, namespace and name of a subject; `None` for what is none.
pub(crate) fn subject_parts(subject: &str) -> Option<[&str; 5]> {
    let mut parts = subject.splitn(5, '/');
    Some([parts.next()?, parts.next()?, parts.next()?, parts.next()?, parts.next()?])
}

/// Without the version: an object goes on under the next one.
/// Where an event's JSON says that it is in a trace: attributes come before the data.
fn trace_parent_of(body: &str) -> Option<TraceParent> {
    let (attributes, _) = body.split_once(",\"data\":")?;
    let (_, value) = attributes.split_once(TRACE_PARENT)?;
    value.get(..TraceParent::LENGTH)?.parse().ok()
}

fn lane_hash(cluster: &str, subject: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    cluster.hash(&mut hasher);
    match subject_parts(subject) {
        Some([group, _, resource, namespace, name]) => (group, resource, namespace, name).hash(&mut hasher),
        None => subject.hash(&mut hasher),
    }
    hasher.finish()
}

/// Writes attributes, data and objects into one JSON object. Also where in it the digits of the sequence are.
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
    // Of a state whose body is not kept, what its head has is told, and `null` for the rest.
    let json = |object: &&Object<K>| object.is_kept().then(|| object.json());
    let object = object.as_ref().and_then(json).transpose()?;
    let old = old.as_ref().and_then(json).transpose()?;
    let wire = |json| options.redaction.wire_json(&origin.resource.gvr, json);
    let null = || Cow::Borrowed("null");
    let (object, old) = (object.as_deref().map_or_else(null, wire), old.as_deref().map_or_else(null, wire));
    // Both texts end in the brace of a non-empty object, in whose place more members go.
    let (head, data) = (head.trim_end_matches('}'), data.strip_suffix('}').unwrap_or(&data));
    // As one piece: put together member by member, an event of some size would be copied three times.
    let body = [head, ",\"data\":", data, ",\"object\":", &*object, ",\"oldObject\":", &*old, "}}"].concat();
    Ok((body, sequence_at(head)))
}

/// JSON with room from the start for what attributes and small members take: growing there costs as much as writing.
fn text_of(value: &impl Serialize) -> Result<String, serde_json::Error> {
    let mut json = Vec::with_capacity(1024);
    serde_json::to_writer(&mut json, value)?;
    String::from_utf8(json).map_err(serde::ser::Error::custom)
}

/// The sequence is the last attribute before the data, and so ends in a quotation mark.
fn sequence_at(head: &str) -> u32 {
    let at = head.len().checked_sub(SEQUENCE_DIGITS + 1).filter(|at| head[*at..].starts_with(NO_SEQUENCE));
    at.and_then(|at| u32::try_from(at).ok()).unwrap_or_default()
}

#[cfg(any(test, feature = "testing"))]
pub mod tests;
