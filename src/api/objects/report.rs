//! Answer of `/v1/objects` as JSON.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::children::Children;
use super::object_events::ObjectEvents;
use crate::api::kubernetes::head_only;
use crate::api::v1::{changed_members, short_name};
use crate::cache::{ChangeKind, RecordedChange};
use informer_hub_screen::diff;
use informer_hub_types::{EventType, Freshness, Object, StoredObject};

/// Paths of a one-word status, in order of preference.
const STATUS: [&str; 3] = ["/status/phase", "/status/state", "/type"];

/// Pairs of paths: to the number of ready replicas, and to the number of wanted replicas.
const REPLICAS: [(&str, &str); 2] =
    [("/status/readyReplicas", "/spec/replicas"), ("/status/numberReady", "/status/desiredNumberScheduled")];

/// Parts of an answer: an object with its surroundings.
#[derive(Debug)]
pub(super) struct ObjectReport {
    pub(super) object: Object,
    pub(super) freshness: Freshness,
    /// Owners, nearest first.
    pub(super) owners: Vec<Object>,
    pub(super) owners_end: Option<String>,
    pub(super) children: Children,
    pub(super) events: Option<ObjectEvents>,
    /// The last change of the object and its time; `None` if it is no longer in the window of recent changes.
    pub(super) change: Option<(Arc<RecordedChange>, jiff::Timestamp)>,
    /// Whether each owner in the answer includes its whole object.
    pub(super) with_objects: bool,
}

/// Writes the answer.
pub(super) fn write(shown: &ObjectReport) -> Vec<u8> {
    let object = &shown.object;
    let mut answer = identity(object);
    let mut put = |name: &str, value: Value| answer.insert(name.to_owned(), value);
    put("cluster", json!(object.cluster()));
    put("freshness", json!(shown.freshness));
    put("object", body(object));
    let owner = |owner: &Object| {
        let mut members = identity(owner);
        if shown.with_objects {
            members.insert("object".to_owned(), body(owner));
        }
        Value::Object(members)
    };
    put("owners", shown.owners.iter().map(owner).collect());
    put("ownersEnd", json!(shown.owners_end));
    put("children", children(object, &shown.children));
    put("childrenMore", json!(shown.children.more));
    put("events", json!(shown.events));
    put("lastChange", shown.change.as_ref().map_or(Value::Null, |(change, time)| last_change(change, *time)));
    let mut json = Value::Object(answer).to_string().into_bytes();
    json.push(b'\n');
    json
}

/// Returns JSON members that identify an object within its cluster.
fn identity(object: &Object) -> Map<String, Value> {
    let resource = &object.origin().resource;
    let members = json!({
        "resource": short_name(&resource.gvr),
        "apiVersion": resource.gvr.api_version(),
        "kind": resource.kind.as_str(),
        "namespace": object.namespace(),
        "name": object.name(),
        "uid": object.uid().to_string(),
    });
    match members {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

/// Returns the object, or only its metadata if its body is not in memory.
fn body(object: &Object) -> Value {
    let stored = object.stored();
    let json = stored.json().ok().and_then(|json| serde_json::from_slice(&json).ok());
    json.or_else(|| serde_json::from_slice(&head_only(stored, object.origin())).ok()).unwrap_or_default()
}

/// Returns the children of an object, each with its own children.
fn children(owner: &Object, all: &Children) -> Value {
    let of_owner = all.of.get(owner.uid()).into_iter().flatten();
    let child = |child: &Object| {
        let mut members = identity(child);
        members.insert("status".to_owned(), json!(status(child)));
        members.insert("children".to_owned(), children(child, all));
        Value::Object(members)
    };
    of_owner.map(child).collect()
}

/// Returns the status of an object in one word, or its ready and wanted replicas.
fn status(object: &Object) -> Option<String> {
    let body = body(object);
    let word = STATUS.iter().find_map(|path| body.pointer(path)?.as_str().map(str::to_owned));
    word.or_else(|| {
        let (ready, wanted) = REPLICAS.iter().find(|(_, wanted)| body.pointer(wanted).is_some_and(Value::is_u64))?;
        let number = |path: &str| body.pointer(path).and_then(Value::as_u64).unwrap_or_default();
        Some(format!("{}/{}", number(ready), number(wanted)))
    })
}

fn last_change(change: &RecordedChange, time: jiff::Timestamp) -> Value {
    let event = match change.kind {
        ChangeKind::Added => EventType::Added,
        ChangeKind::Modified => EventType::Updated,
        ChangeKind::Deleted => EventType::Deleted,
    };
    let mut members = json!({
        "event": event.as_str(),
        "time": time.to_string(),
        "resourceVersion": change.object.resource_version().to_string(),
    });
    let read = |object: &StoredObject| serde_json::from_slice::<Value>(&object.json().ok()?).ok();
    let old = change.old.as_deref().filter(|_| change.kind == ChangeKind::Modified);
    if let Some((old, new)) = old.and_then(read).zip(read(&change.object)) {
        for (name, value) in changed_members(&diff(&old, &new)) {
            members[name] = value;
        }
    }
    members
}
