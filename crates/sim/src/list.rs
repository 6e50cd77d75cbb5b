//! LIST answers: object selection, resourceVersion rules and paging.

use std::ops::Bound;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use serde_json::{Value, json};

use super::bad_protobuf::{self, BadProtobuf};
use super::collection::Objects;
use super::fault::{AssignedFault, Fault};
use super::http::Status;
use super::object::SimObject;
use super::pump::{Source, Unit};
use super::request::ObjectsRequest;
use super::shared::Shared;
use super::writer::Writer;
use informer_hub_protobuf::EncodeError;
use informer_hub_types::{ApiResource, ObjectKey};

/// Body of a list, generated item by item.
#[derive(Debug)]
pub(super) struct ListSource {
    version: u64,
    partial: bool,
    custom: bool,
    /// Requested API version of the resource, if its objects are stored in another one; `None` otherwise.
    shown_as: Option<ApiResource>,
    writer: Writer,
    head: Option<Bytes>,
    items: Vec<Arc<SimObject>>,
    /// Index of the next item to send.
    next: usize,
    /// Index of the item that has a fault, and that fault.
    fault: Option<(usize, ItemFault)>,
    tail: Option<Bytes>,
}

/// Fault of an item that changes the length of the list.
#[derive(Debug)]
enum ItemFault {
    /// These bytes are sent as an additional item before the item with the fault.
    Insert(Bytes),
    /// The declared length of the item with the fault also covers the next item.
    Swallow,
}

/// State of the resource that a list shows.
enum Requested {
    /// A later page of a list at this version, with the objects after the key `start`.
    Page { version: u64, start: ObjectKey },
    /// The state at exactly this version.
    Exact(u64),
    /// The current state, which must not be older than this version.
    NotOlderThan(u64),
}

impl ListSource {
    /// Creates the body of the answer to a list request. Some faults change the length or the whole of a list. Such a
    /// `fault` is applied here and set to `None`; other faults are left to the caller.
    pub(super) fn open(
        shared: &Shared,
        request: &ObjectsRequest,
        fault: &mut Option<AssignedFault>,
    ) -> Result<Self, Status> {
        let (mut list, metadata) = Self::select(shared, request)?;
        let fault = fault.take_if(|assigned| list.can_take(assigned));
        if let Some(AssignedFault { fault, after }) = &fault {
            shared.record(&request.label, *after, fault);
        }
        let written = list.begin(request, &metadata, fault);
        written.map_err(|error| Status::new(500, "InternalError", format!("cannot encode the list: {error}")))?;
        Ok(list)
    }

    fn select(shared: &Shared, request: &ObjectsRequest) -> Result<(Self, Value), Status> {
        let query = &request.query;
        let limit = query.number("limit")?.filter(|&limit| limit > 0 && shared.config.honour_limit);
        let requested = requested(request, limit.is_some())?;
        let limit = limit.filter(|_| query.get("resourceVersion") != "0" || !query.get("continue").is_empty());
        shared.with_world(|world| {
            let now = world.version();
            let collection = world.collection_mut(&request.def.api.gvr).ok_or_else(|| request.not_found())?;
            let (version, objects, start) = match requested {
                Requested::Page { version, start } => {
                    (version, collection.at(version, now).ok_or_else(token_expired)?, Bound::Excluded(start))
                }
                Requested::Exact(version) | Requested::NotOlderThan(version) if version > now => {
                    return Err(Status::too_large(version, now));
                }
                Requested::Exact(version) => {
                    let objects = collection.at(version, now);
                    let expired = || Status::expired("The resourceVersion for the provided list is too old.");
                    (version, objects.ok_or_else(expired)?, Bound::Unbounded)
                }
                Requested::NotOlderThan(_) => (now, collection.objects().clone(), Bound::Unbounded),
            };
            let (items, rest) = select(&objects, start, request, limit);
            let mut metadata = json!({ "resourceVersion": version.to_string() });
            if let Some(remaining) = rest {
                metadata["continue"] = json!(token(version, items.last()));
                if !request.filter.can_change() {
                    metadata["remainingItemCount"] = json!(remaining);
                }
                if version == now {
                    collection.keep_snapshot(version);
                }
            }
            let stored = &collection.def().api.gvr;
            let list = Self {
                version,
                partial: request.partial,
                custom: request.def.custom,
                shown_as: (*stored != request.def.api.gvr).then(|| request.def.api.clone()),
                writer: request.writer(),
                head: None,
                items,
                next: 0,
                fault: None,
                tail: None,
            };
            Ok((list, metadata))
        })
    }

    /// Returns whether a fault must be applied while the list is built. Other faults are applied while the list is
    /// sent.
    fn can_take(&self, assigned: &AssignedFault) -> bool {
        let is_protobuf = matches!(self.writer, Writer::Protobuf(_));
        match &assigned.fault {
            Fault::Insert(_) | Fault::NamelessObject => assigned.after < self.items.len(),
            Fault::BadProtobuf(BadProtobuf::UnknownField | BadProtobuf::HalfObject | BadProtobuf::Swallow) => {
                is_protobuf && assigned.after < self.items.len()
            }
            Fault::BadProtobuf(bad) => is_protobuf && bad.is_of_list(),
            _ => false,
        }
    }

    /// Creates the bytes that precede and follow the items of the list. In protobuf, the total size of the items
    /// precedes them, so each item is encoded twice.
    fn begin(
        &mut self,
        request: &ObjectsRequest,
        metadata: &Value,
        fault: Option<AssignedFault>,
    ) -> Result<(), EncodeError> {
        let mut of_list = None;
        if let Some(AssignedFault { fault, after }) = fault {
            let nameless = || Bytes::from(json!({ "metadata": { "resourceVersion": "1" } }).to_string());
            let item = match (fault, &mut self.writer) {
                (Fault::Insert(bytes), _) => Some(ItemFault::Insert(bytes)),
                (Fault::NamelessObject, writer) => Some(ItemFault::Insert(writer.content(nameless())?)),
                (Fault::BadProtobuf(BadProtobuf::Swallow), _) => Some(ItemFault::Swallow),
                (Fault::BadProtobuf(bad), Writer::Protobuf(writer)) => {
                    of_list = Some(bad);
                    bad_protobuf::additional_item(bad, writer).map(|item| ItemFault::Insert(item.into()))
                }
                _ => None,
            };
            self.fault = item.map(|item| (after, item));
        }
        let mut length = 0;
        if matches!(self.writer, Writer::Protobuf(_)) {
            for at in 0..self.items.len() {
                length += self.item(at)?.len();
            }
        }
        match &mut self.writer {
            Writer::Protobuf(writer) if of_list != Some(BadProtobuf::Json) => {
                let (head, tail) = bad_protobuf::list(of_list, writer, metadata, length)?;
                (self.head, self.tail) = (Some(head.into()), Some(tail));
            }
            writer => {
                *writer = Writer::Json;
                let (kind, api_version) = kind_of(request);
                let head = format!(
                    "{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata},\"items\":["
                );
                (self.head, self.tail) = (Some(head.into()), Some(Bytes::from_static(b"]}\n")));
            }
        }
        if of_list == Some(BadProtobuf::Status) {
            self.items.clear();
        }
        Ok(())
    }

    /// Encodes the item at index `at`, with its fault if it has one.
    fn item(&mut self, at: usize) -> Result<Bytes, EncodeError> {
        let mut out = Vec::new();
        match &self.fault {
            Some((place, ItemFault::Insert(item))) if *place == at => self.writer.item(item, at == 0, &mut out),
            Some((place, ItemFault::Swallow)) if place + 1 == at => return Ok(Bytes::new()),
            _ => {}
        }
        let mut content = self.writer.content(self.object(at))?;
        if matches!(self.fault, Some((place, ItemFault::Swallow)) if place == at) && at + 1 < self.items.len() {
            let mut both = content.to_vec();
            let next = self.writer.content(self.object(at + 1))?;
            self.writer.item(&next, false, &mut both);
            content = both.into();
        }
        self.writer.item(&content, at == 0 && out.is_empty(), &mut out);
        Ok(out.into())
    }

    /// Returns the object at index `at` as JSON, in the requested form.
    fn object(&self, at: usize) -> Bytes {
        let object = &self.items[at];
        match &self.shown_as {
            _ if self.partial => object.partial(),
            Some(shown_as) => object.read_as(&shown_as.gvr, &shown_as.kind).json().clone(),
            None if self.custom => object.json().clone(),
            None => object.untyped(),
        }
    }
}

fn kind_of(request: &ObjectsRequest) -> (String, String) {
    let api = &request.def.api;
    if request.partial {
        return ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1".to_owned());
    }
    (format!("{}List", api.kind), api.gvr.api_version())
}

impl Source for ListSource {
    const WATCH: bool = false;

    async fn next(&mut self) -> Option<Unit> {
        if let Some(head) = self.head.take() {
            return Some(Unit::Edge(head));
        }
        if self.next < self.items.len() {
            self.next += 1;
            // Cannot fail: every item was encoded when the list began, or needs no encoding.
            return Some(Unit::Item(self.item(self.next - 1).unwrap_or_default()));
        }
        self.tail.take().map(Unit::Edge)
    }

    fn position(&self) -> u64 {
        self.version
    }
}

/// Returns up to `limit` selected objects from `start` on, and the number of selected objects after them, if any.
fn select(
    objects: &Objects,
    start: Bound<ObjectKey>,
    request: &ObjectsRequest,
    limit: Option<u64>,
) -> (Vec<Arc<SimObject>>, Option<usize>) {
    let limit = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let mut selected = objects.range((start, Bound::Unbounded)).filter(|(_, object)| request.filter.matches(object));
    let items: Vec<_> = selected.by_ref().take(limit).map(|(_, object)| Arc::clone(object)).collect();
    let rest = selected.count();
    (items, (rest > 0).then_some(rest))
}

/// Evaluates `resourceVersion`, `resourceVersionMatch` and `continue` by the apiserver's rules.
fn requested(request: &ObjectsRequest, limited: bool) -> Result<Requested, Status> {
    let query = &request.query;
    let (version, matching, token) =
        (query.get("resourceVersion"), query.get("resourceVersionMatch"), query.get("continue"));
    if !token.is_empty() {
        if !matching.is_empty() {
            return Err(Status::invalid_options(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden for continue",
            ));
        }
        if !matches!(version, "" | "0") {
            return Err(Status::bad_request("specifying resource version is not allowed when using continue"));
        }
        return parse_token(token).ok_or_else(|| Status::bad_request("continue key is not valid"));
    }
    let number = request.version()?;
    match (matching, number) {
        ("", Some(version)) if limited && version > 0 => Ok(Requested::Exact(version)),
        ("" | "NotOlderThan", Some(version)) => Ok(Requested::NotOlderThan(version)),
        ("", None) => Ok(Requested::NotOlderThan(0)),
        ("Exact", Some(version)) if version > 0 => Ok(Requested::Exact(version)),
        ("Exact", Some(_)) => Err(Status::invalid_options(
            "resourceVersionMatch",
            "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
        )),
        (_, None) => Err(Status::invalid_options(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
        )),
        _ => Err(Status::invalid_options("resourceVersionMatch", "supported values: Exact, NotOlderThan")),
    }
}

fn token(version: u64, last: Option<&Arc<SimObject>>) -> String {
    let start = last.map_or("", |object| object.key().as_str());
    URL_SAFE_NO_PAD.encode(json!({ "v": "meta.k8s.io/v1", "rv": version, "start": start }).to_string())
}

fn parse_token(token: &str) -> Option<Requested> {
    let token: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(token).ok()?).ok()?;
    let start = token["start"].as_str()?;
    let (namespace, name) = start.split_once('/').unwrap_or(("", start));
    Some(Requested::Page { version: token["rv"].as_u64()?, start: ObjectKey::new(namespace, name) })
}

fn token_expired() -> Status {
    Status::expired(
        "The provided continue parameter is too old to display a consistent list result. \
         You can start a new list without the continue parameter.",
    )
}
