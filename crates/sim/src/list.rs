//! LIST answers: object selection, resourceVersion rules and paging.

use std::ops::Bound;
use std::sync::Arc;
use std::vec;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use serde_json::{Value, json};

use super::collection::Objects;
use super::http::Status;
use super::object::SimObject;
use super::pump::{Source, Unit};
use super::request::ObjectsRequest;
use super::shared::Shared;
use informer_hub_types::{ApiResource, ObjectKey};

/// Body of a list, generated item by item.
#[derive(Debug)]
pub(super) struct ListSource {
    version: u64,
    partial: bool,
    custom: bool,
    /// Requested resource version, if objects are stored as another one.
    shown_as: Option<ApiResource>,
    head: Option<Bytes>,
    items: vec::IntoIter<Arc<SimObject>>,
    first: bool,
    tail: Option<Bytes>,
}

/// State of the resource that a list shows.
enum Requested {
    /// The next page of a list at this version.
    Page { version: u64, start: ObjectKey },
    /// Exactly this version.
    Exact(u64),
    /// The current state, which must not be older than this.
    NotOlderThan(u64),
}

impl ListSource {
    /// Selects the objects that the request covers.
    pub(super) fn open(shared: &Shared, request: &ObjectsRequest) -> Result<Self, Status> {
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
            let token = rest.map(|remaining| (token(version, items.last()), remaining));
            if token.is_some() && version == now {
                collection.keep_snapshot(version);
            }
            let stored = &collection.def().api.gvr;
            let shown_as = (*stored != request.def.api.gvr).then(|| request.def.api.clone());
            Ok(Self { shown_as, ..Self::new(version, request, items, token) })
        })
    }

    fn new(version: u64, request: &ObjectsRequest, items: Vec<Arc<SimObject>>, next: Option<(String, usize)>) -> Self {
        let mut metadata = json!({ "resourceVersion": version.to_string() });
        if let Some((token, remaining)) = next {
            metadata["continue"] = json!(token);
            if !request.filter.can_change() {
                metadata["remainingItemCount"] = json!(remaining);
            }
        }
        let api = &request.def.api;
        let (kind, api_version) = if request.partial {
            ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1".to_owned())
        } else {
            (format!("{}List", api.kind), api.gvr.api_version())
        };
        let head =
            format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata},\"items\":[");
        Self {
            version,
            partial: request.partial,
            custom: request.def.custom,
            shown_as: None,
            head: Some(head.into()),
            items: items.into_iter(),
            first: true,
            tail: Some(Bytes::from_static(b"]}\n")),
        }
    }

    fn item(&mut self, object: &SimObject) -> Bytes {
        let mut out = Vec::with_capacity(object.json().len() + 1);
        if !std::mem::take(&mut self.first) {
            out.push(b',');
        }
        if self.partial {
            out.extend_from_slice(&object.partial());
        } else if let Some(shown_as) = &self.shown_as {
            out.extend_from_slice(object.read_as(&shown_as.gvr, &shown_as.kind).json());
        } else if self.custom {
            out.extend_from_slice(object.json());
        } else {
            object.write_untyped(&mut out);
        }
        out.into()
    }
}

impl Source for ListSource {
    const WATCH: bool = false;

    async fn next(&mut self) -> Option<Unit> {
        if let Some(bytes) = self.head.take() {
            return Some(Unit { bytes, object: false });
        }
        if let Some(object) = self.items.next() {
            return Some(Unit { bytes: self.item(&object), object: true });
        }
        self.tail.take().map(|bytes| Unit { bytes, object: false })
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
