//! Answers in a form that can be compared: without what legitimately differs from server to server.

use informer_hub_protobuf::{Converter, Envelope, Omit, Schema, TypeMeta, WatchEvent};
use serde_json::{Value, json};

use super::request::{Request, Verb};
use crate::read_api::endpoint::RawAnswer;

/// Annotation of the bookmark after the initial events.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// An answer to compare.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) content_type: String,
    pub(super) retry_after: String,
    pub(super) warnings: Vec<String>,
    /// Whether the JSON is indented.
    pub(super) is_pretty: bool,
    pub(super) body: Body,
    /// `metadata.continue` of a list; empty if there is none.
    pub(super) continuation: String,
}

/// The body of an answer.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Body {
    /// An object, a list, a table or a status.
    Document(Value),
    /// The events of a watch.
    Events(Vec<Value>),
    /// Anything else.
    Text(String),
}

impl Answer {
    /// Parses an answer and drops what may differ: versions of lists, continue tokens, managed fields, and bookmarks,
    /// which a server sends at any time.
    pub(super) fn new(request: &Request, raw: &RawAnswer) -> Self {
        let header = |name| raw.header(name).unwrap_or_default().to_owned();
        let warnings = raw.headers.get_all("warning").iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
        let content_type = header("content-type");
        let mut continuation = String::new();
        let body = match documents(raw, &content_type) {
            None => Body::Text(raw.body.clone()),
            Some(documents) if is_stream(request, raw, &documents) => {
                let events = documents.into_iter().map(comparable_event);
                Body::Events(events.filter(|event| !is_plain_bookmark(event)).collect())
            }
            Some(documents) => {
                let document = documents.into_iter().next().unwrap_or_default();
                let token = document.pointer("/metadata/continue").and_then(Value::as_str).unwrap_or_default();
                token.clone_into(&mut continuation);
                Body::Document(comparable(document))
            }
        };
        Self {
            status: raw.status.as_u16(),
            retry_after: header("retry-after"),
            warnings: warnings.map(std::borrow::Cow::into_owned).collect(),
            is_pretty: content_type.starts_with("application/json") && raw.body.starts_with("{\n"),
            content_type,
            body,
            continuation,
        }
    }
}

/// Returns whether an answer is the events of a watch.
fn is_stream(request: &Request, raw: &RawAnswer, documents: &[Value]) -> bool {
    let is_event = |document: &Value| document.get("type").is_some() && document.get("object").is_some();
    let is_watch = request.verb == Verb::Watch && raw.status.is_success();
    is_watch && documents.iter().all(is_event)
}

/// Parses the documents of a body: a single one, or one for each event of a watch. `None` if it is neither JSON nor
/// YAML.
fn documents(raw: &RawAnswer, content_type: &str) -> Option<Vec<Value>> {
    let body = raw.body.as_str();
    match content_type {
        "application/vnd.kubernetes.protobuf" => return Some(vec![converted(&raw.bytes)?]),
        "application/vnd.kubernetes.protobuf;stream=watch" => return events(&raw.bytes),
        _ => {}
    }
    if content_type.starts_with("application/yaml") {
        // Each event of a stream begins or ends with a separator.
        let parts = body.split("---\n").filter(|part| !part.trim().is_empty());
        return parts.map(|part| serde_saphyr::from_str(part).ok()).collect();
    }
    if !content_type.starts_with("application/json") {
        return None;
    }
    serde_json::Deserializer::from_str(body).into_iter::<Value>().map(Result::ok).collect()
}

/// Converts an object in protobuf to JSON. `None` if it is not protobuf.
fn converted(object: &[u8]) -> Option<Value> {
    let Envelope { api_version, kind, raw } = Envelope::read(object).ok()?;
    let message = Schema::builtin().kind(api_version, kind)?;
    let mut json = Vec::new();
    let type_meta = Some(TypeMeta { api_version, kind });
    Converter::default().object(message, type_meta, raw, &Omit::default(), usize::MAX, &mut json).ok()?;
    serde_json::from_slice(&json).ok()
}

/// Converts the events of a watch in protobuf to JSON.
fn events(mut frames: &[u8]) -> Option<Vec<Value>> {
    let mut events = Vec::new();
    while let Some((length, rest)) = frames.split_first_chunk::<4>() {
        let (frame, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        let event = WatchEvent::read(frame).ok()?;
        events.push(json!({ "type": event.kind, "object": converted(event.object)? }));
        frames = rest;
    }
    frames.is_empty().then_some(events)
}

fn is_plain_bookmark(event: &Value) -> bool {
    let object = event.pointer("/object/rows/0/object").or(event.get("object"));
    let annotations = object.and_then(|object| object.pointer("/metadata/annotations"));
    event["type"] == "BOOKMARK" && annotations.is_none_or(|all| all.get(INITIAL_EVENTS_END).is_none())
}

/// Applies [`comparable`] to the object of an event. Of a bookmark, keeps only the metadata, with the version masked.
fn comparable_event(mut event: Value) -> Value {
    let object = event["object"].take();
    event["object"] = comparable(object);
    if event["type"] == "BOOKMARK" {
        let is_table = event["object"]["kind"] == "Table";
        if let Some(object) = event.pointer_mut("/object").and_then(Value::as_object_mut).filter(|_| !is_table) {
            object.retain(|key, _| matches!(&**key, "kind" | "apiVersion" | "metadata"));
        }
        if let Some(object) = event.pointer_mut("/object/rows/0/object").and_then(Value::as_object_mut) {
            object.retain(|key, _| key == "metadata");
        }
        if let Some(row) = event.pointer_mut("/object/rows/0").and_then(Value::as_object_mut) {
            row.remove("cells");
        }
        for at in ["/object/metadata", "/object/rows/0/object/metadata"] {
            if let Some(metadata) = event.pointer_mut(at).filter(|metadata| metadata.is_object()) {
                metadata["resourceVersion"] = json!("<version>");
            }
        }
    }
    event
}

/// Drops what may differ of an object, a list, a table or a status.
fn comparable(mut document: Value) -> Value {
    let kind = document["kind"].as_str().unwrap_or_default().to_owned();
    if kind == "Status" {
        mask_numbers(&mut document["message"]);
        if let Some(causes) = document.pointer_mut("/details/causes").and_then(Value::as_array_mut) {
            for cause in causes {
                mask_numbers(&mut cause["message"]);
            }
        }
        return document;
    }
    let is_list = kind.ends_with("List") && document.get("items").is_some();
    if is_list || kind == "Table" {
        mask_list(&mut document["metadata"]);
    } else {
        drop_fields(&mut document);
    }
    for (items, at) in [("items", ""), ("rows", "/object")] {
        let Some(items) = document.get_mut(items).and_then(Value::as_array_mut) else { continue };
        items.iter_mut().filter_map(|item| item.pointer_mut(at)).for_each(drop_fields);
    }
    document
}

/// Masks a list's version and token. Their presence and form is still compared.
fn mask_list(metadata: &mut Value) {
    let is_number =
        |value: &Value| value.as_str().is_some_and(|text| text.parse::<u64>().is_ok_and(|number| number > 0));
    if metadata.get("resourceVersion").is_some_and(is_number) {
        metadata["resourceVersion"] = json!("<version>");
    }
    if metadata.get("continue").and_then(Value::as_str).is_some_and(|token| !token.is_empty()) {
        metadata["continue"] = json!("<token>");
    }
}

fn drop_fields(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        metadata.remove("selfLink");
        // The apiserver adds this annotation when it converts a whole object.
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove("deprecated.daemonset.template.generation");
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
    }
}

/// Masks the server's own version in a message such as `too old resource version: 5 (70)`.
fn mask_numbers(message: &mut Value) {
    let Some(text) = message.as_str() else { return };
    let mut masked = text.to_owned();
    for before in ["current: ", " ("] {
        if let Some((head, tail)) = masked.split_once(before) {
            let rest = tail.trim_start_matches(|letter: char| letter.is_ascii_digit());
            if rest.len() < tail.len() {
                masked = format!("{head}{before}<version>{rest}");
            }
        }
    }
    *message = json!(masked);
}
