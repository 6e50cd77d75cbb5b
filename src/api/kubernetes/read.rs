//! Answers of `get` and `list`.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::response::Response;
use futures::stream;

use super::ReadApi;
use super::definitions::Definition;
use super::encode::{Encoder, Place, to_media};
use super::freshness::Coverage;
use super::listing::{Head, Items, Listing, Scan};
use super::objects::{Candidates, ListPosition, ObjectWithOrigin, State};
use super::queue::{Admission, ReaderId};
use super::read_request::ReadRequest;
use super::respond::{Gzip, mark_gzip, stream_response, whole_response};
use super::scope::{Clusters, Scope};
use super::selection::{Selection, SelectionRequest};
use crate::cache::{HistoryCursor, Snapshot};
use informer_hub_kubeapi::{Continuation, Form, ListAt, Media, Printer, Reason, Status, list_at};
use informer_hub_protobuf::EncodeError;
use informer_hub_types::{LabelNeeds, clock};

/// Minimum length of an answer that is compressed, in bytes, as in kube-apiserver.
const GZIP_FROM: usize = 128 << 10;

/// Page size that kubectl requests by default. The hub then sends up to [`LONG_PAGE`] rows.
const KUBECTL_PAGE: usize = 500;
const LONG_PAGE: usize = 10_000;

/// Maximum number of changes that are undone to answer from an earlier state of the cache. An added or removed
/// partition counts as many changes as it has objects.
const MAX_UNDONE: usize = 100_000;

/// Maximum number of times that one answer repeats access reviews, because new namespaces have appeared meanwhile.
const MAX_REVIEWS: usize = 3;

/// State of the cache and resource version that a request is answered from.
struct At {
    state: State,
    version: u64,
    coverage: Coverage,
}

/// Answers a list or a request for one object.
pub(super) async fn answer(
    api: &Arc<ReadApi>,
    mut scope: Scope,
    definition: Definition,
    mut asked: ReadRequest,
) -> Result<Response, Status> {
    let admission = api.admit(&asked.reader, &asked.user)?;
    let selection = selection_of(&scope, &definition, &asked)?;
    let is_get = asked.path.name.is_some();
    let mut found = state_of(&scope, &asked, is_get).await?;
    // A namespace may have appeared since the reader's rights were reviewed.
    for _ in 0..MAX_REVIEWS {
        if scope.is_reviewed(found.0.state.snapshot(), &asked.path) {
            break;
        }
        scope.review(&scope.snapshot(), (&api.rights, &asked.user), asked.access_verb(), &asked.path).await;
        found = state_of(&scope, &asked, is_get).await?;
    }
    let (at, after) = found;
    let protobuf = api.protobuf_of(&mut asked, &scope)?;
    let mut encoder = Encoder { protobuf, ..encoder_of(&scope, &definition, &asked) };
    let is_unique = encoder.naming == super::encode::Naming::Unique;
    let state = Arc::new(at.state);
    let scan = Scan::new(Arc::clone(&state), Arc::clone(&selection), is_unique, after);
    if is_get {
        let found = one(api, scan, &asked).await?;
        note(&asked, &found);
        check_form(&asked, Form::MetadataList, "PartialObjectMetadataList, but the requested object is not a list")?;
        return object_response(&found, &mut encoder, &mut asked, &at.coverage, admission);
    }
    scope.record_answer(api, &asked, &selection, (state.snapshot(), at.version));
    asked.notes.clusters(scope.partitions(state.snapshot()).map(|(_, partition)| &partition.origin().cluster));
    check_form(&asked, Form::Metadata, "PartialObjectMetadata, but the requested object is a list")?;
    mark_defaults(&scope, &state, &mut encoder);
    let (kind, api_version) = encoder.list_type(&definition.list_kind, &scope.cache.resource.gvr.api_version());
    let mut head = Head {
        kind,
        api_version,
        resource_version: at.version.to_string(),
        // kube-apiserver writes an empty continue token for custom resources.
        continuation: (definition.is_custom && asked.accepted.form == Form::Object).then(String::new),
        remaining: None,
        freshness: scope.naming.is_fleet().then(|| at.coverage.summary()).flatten(),
    };
    let items = match page_limit(&asked) {
        Some(limit) => {
            let page = page(api, scan, limit, &asked).await;
            if page.has_more
                && let Some((last, origin)) = page.objects.last()
            {
                head.continuation = Some(
                    Continuation {
                        version: at.version,
                        list: fingerprint(&asked),
                        cluster: origin.cluster.clone(),
                        key: last.key().clone(),
                    }
                    .token(),
                );
                head.remaining = remaining(&state, &selection, &page.objects, &asked);
            }
            Items::Page(page.objects.into_iter())
        }
        None => Items::All(scan),
    };
    let mut listing = Listing::new(head, items, encoder, (asked.accepted.media, asked.is_pretty), asked.notes.clone());
    if measure(api, &mut listing, &asked).await.is_err() {
        asked.refuse_protobuf()?;
        listing = listing.in_text((asked.accepted.media, asked.is_pretty));
    }
    Ok(list_response(api, listing, &asked, &at.coverage, admission).await)
}

/// Encodes all items of a protobuf list once to learn their total length, which must be sent before the items.
async fn measure(api: &Arc<ReadApi>, listing: &mut Listing, asked: &ReadRequest) -> Result<(), EncodeError> {
    while listing.is_unmeasured() {
        let _turn = api.turn(&asked.reader).await;
        listing.measure()?;
    }
    Ok(())
}

/// Records for the audit log that the answer contains one object, and the cluster of that object.
fn note(asked: &ReadRequest, (_, origin): &ObjectWithOrigin) {
    asked.notes.clusters([&origin.cluster]);
    asked.notes.served(1);
}

/// Returns the maximum number of objects in the answer; `None` for all.
///
/// This is the request's `limit`, except for tables that kubectl requests with its default limit of 500: they get
/// [`LONG_PAGE`] rows. kubectl sends only five requests per second after the first ten, so short pages make large
/// tables slow. A server may return more objects than `limit`.
fn page_limit(asked: &ReadRequest) -> Option<usize> {
    let limit = usize::try_from(asked.options.limit).ok().filter(|limit| *limit > 0)?;
    let is_default_of_kubectl =
        limit == KUBECTL_PAGE && asked.accepted.form == Form::Table && asked.client == "kubectl";
    Some(if is_default_of_kubectl { LONG_PAGE } else { limit })
}

/// For a table of storage classes, makes the encoder mark the default class of each cluster.
fn mark_defaults(scope: &Scope, state: &Arc<State>, encoder: &mut Encoder) {
    let gvr = &scope.cache.resource.gvr;
    let is_marked = gvr.group == "storage.k8s.io" && gvr.resource == "storageclasses";
    if !is_marked || encoder.printer.is_none() {
        return;
    }
    for cluster in state.clusters_from(None) {
        let mut objects = Vec::new();
        let everything = Candidates { namespace: None, needs: &LabelNeeds::default(), field: None };
        state.objects(cluster, None, everything, usize::MAX, &mut objects);
        let bodies: Vec<_> = objects.iter().filter_map(|(object, _)| object.json().ok()).collect();
        let mut printer = Printer::new(&scope.cache.resource, None);
        printer.read_list(bodies.iter().map(|body| &**body));
        encoder.printers.insert(cluster.clone(), Arc::new(printer));
    }
}

/// Returns an error of code 406 if the client asked for the form `unfit`, which this answer cannot have. `problem`
/// describes that request in the error text.
fn check_form(asked: &ReadRequest, unfit: Form, problem: &str) -> Result<(), Status> {
    if asked.accepted.form == unfit {
        return Err(Status::new(406, Reason::NotAcceptable, format!("you requested {problem}")));
    }
    Ok(())
}

/// Prepares the conditions of a request on objects: namespace, name, labels and fields.
pub(super) fn selection_of(
    scope: &Scope,
    definition: &Definition,
    asked: &ReadRequest,
) -> Result<Arc<Selection>, Status> {
    let wanted = SelectionRequest {
        namespace: asked.path.namespace.as_ref(),
        name: asked.path.name.as_ref(),
        labels: &asked.options.labels,
        fields: &asked.options.fields,
        is_fleet: scope.naming.is_fleet(),
        selectable: &definition.selectable,
    };
    Selection::new(wanted, &scope.snapshot()).map(Arc::new)
}

/// Returns the encoder of a request.
pub(super) fn encoder_of(scope: &Scope, definition: &Definition, asked: &ReadRequest) -> Encoder {
    let is_table = asked.accepted.form == Form::Table;
    Encoder {
        form: asked.accepted.form,
        naming: scope.naming,
        include: asked.include,
        bare_items: !definition.is_custom,
        printer: is_table.then(|| Arc::clone(&definition.printer)),
        printers: BTreeMap::new(),
        protobuf: None,
        now: clock::wall().as_second(),
    }
}

/// Returns the state of the cache that a request asks for. For a request with a continue token, also returns the
/// position after which the list goes on.
async fn state_of(scope: &Scope, asked: &ReadRequest, is_get: bool) -> Result<(At, Option<ListPosition>), Status> {
    match list_at(&asked.options, is_get)? {
        ListAt::Present => Ok((present(scope, scope.snapshot())?, None)),
        ListAt::NotOlderThan(version) => Ok((present(scope, scope.not_older_than(version).await?)?, None)),
        ListAt::Exact(version) => Ok((exact(scope, version, Status::list_expired).await?, None)),
        ListAt::Continued => {
            let token = Continuation::parse(&asked.options.continuation)?;
            token.check(fingerprint(asked))?;
            let at = exact(scope, token.version, Status::continue_expired).await?;
            Ok((at, Some(ListPosition { cluster: token.cluster, key: token.key })))
        }
    }
}

fn present(scope: &Scope, snapshot: Arc<Snapshot>) -> Result<At, Status> {
    let version = scope.known_version(&snapshot)?;
    let coverage = scope.coverage(&snapshot);
    Ok(At { state: State::present(scope, snapshot), version, coverage })
}

/// Returns the state at exactly `version`: the present state, with all later changes undone.
async fn exact(scope: &Scope, version: u64, expired: fn() -> Status) -> Result<At, Status> {
    // Changes that are recorded after this snapshot are not in it; they are dropped below and not undone.
    let snapshot = scope.reached(version).await?;
    let history = &scope.cache.history;
    let mut cursor = match &scope.clusters {
        Clusters::One(cluster) => snapshot.locate(cluster, version).map_err(|_| expired())?,
        Clusters::Matching(_) => HistoryCursor::after(version),
    };
    let mut changes = Vec::new();
    history.read(&scope.changes(), &mut cursor, MAX_UNDONE + 1, &mut changes).map_err(|_| expired())?;
    if changes.len() > MAX_UNDONE {
        return Err(expired());
    }
    changes.retain(|change| change.version <= snapshot.version());
    let coverage = scope.coverage(&snapshot);
    Ok(At { state: State::before(scope, snapshot, &changes), version, coverage })
}

/// Returns the object that a `get` selects. Fails with 404 if there is none, with 409 if several clusters have it.
async fn one(api: &Arc<ReadApi>, mut scan: Scan, asked: &ReadRequest) -> Result<ObjectWithOrigin, Status> {
    let mut found = Vec::new();
    loop {
        let _turn = api.turn(&asked.reader).await;
        let has_more = scan.advance(|object| {
            found.push(object.clone());
            found.len() < 2
        });
        if !has_more || found.len() > 1 {
            break;
        }
    }
    let path = &asked.path;
    let name = path.name.as_deref().unwrap_or_default();
    match found.len() {
        0 => Err(Status::object_not_found(&path.group, &path.resource, name)),
        1 => Ok(found.remove(0)),
        _ => {
            let clusters: Vec<_> = found.iter().map(|(_, origin)| origin.cluster.as_str()).collect();
            let text = format!(
                "{name:?} exists in several clusters, among them {}: ask /clusters/<name> or /unique/*",
                clusters.join(" and ")
            );
            Err(Status::new(409, Reason::Conflict, text))
        }
    }
}

struct Page {
    objects: Vec<ObjectWithOrigin>,
    has_more: bool,
}

/// Reads one page of a list, and checks whether another object follows it.
async fn page(api: &Arc<ReadApi>, mut scan: Scan, limit: usize, asked: &ReadRequest) -> Page {
    let (mut objects, mut has_more) = (Vec::new(), false);
    loop {
        let _turn = api.turn(&asked.reader).await;
        let more = scan.advance(|found| {
            has_more = objects.len() == limit;
            if !has_more {
                objects.push(found.clone());
            }
            !has_more
        });
        if !more || has_more {
            return Page { objects, has_more };
        }
    }
}

/// Returns how many objects follow the first page of a list.
///
/// As in kube-apiserver, `None` for later pages and for requests with selectors. Also `None` if counting would visit
/// each object.
fn remaining(state: &State, selection: &Selection, page: &[ObjectWithOrigin], asked: &ReadRequest) -> Option<usize> {
    let is_first = asked.options.continuation.is_empty();
    let all = if is_first && selection.is_everything() { state.len() } else { None };
    all.map(|all| all.saturating_sub(page.len()))
}

/// Returns a hash of the URL root, path and selectors of a list request. A continue token contains the hash, and is
/// valid only for requests with the same one.
fn fingerprint(asked: &ReadRequest) -> u64 {
    Continuation::fingerprint(&asked.root, &asked.path, &asked.options)
}

fn object_response(
    (object, origin): &ObjectWithOrigin,
    encoder: &mut Encoder,
    asked: &mut ReadRequest,
    coverage: &Coverage,
    admission: Admission,
) -> Result<Response, Status> {
    if encoder.protobuf.is_some()
        && let Some(stored) = encoder.stored_protobuf(object, None)
    {
        let body = Bytes::from_owner(stored);
        let mut response = whole_response(asked.accepted.content_type(), body, admission);
        coverage.warn(response.headers_mut());
        return Ok(response);
    }
    let mut json = Vec::new();
    if encoder.form == Form::Table {
        json.extend_from_slice(
            b"{\"kind\":\"Table\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":{\"resourceVersion\":",
        );
        let version = if encoder.naming.is_fleet() {
            object.fleet_version().to_string()
        } else {
            object.resource_version().to_string()
        };
        super::encode::append(&mut json, &version);
        json.extend_from_slice(b"},\"columnDefinitions\":");
        json.extend_from_slice(&encoder.columns());
        json.extend_from_slice(b",\"rows\":[");
        encoder.write(object, origin, None, Place::Single, &mut json);
        json.extend_from_slice(b"]}");
    } else {
        encoder.write(object, origin, None, Place::Single, &mut json);
    }
    let protobuf = encoder.protobuf.as_mut().and_then(|writer| writer.object(Some(&origin.cluster), &json).ok());
    let body = if let Some(object) = protobuf {
        object.to_vec()
    } else {
        if asked.accepted.media == Media::Protobuf {
            asked.refuse_protobuf()?;
        }
        json.push(b'\n');
        to_media(json, asked.accepted.media, asked.is_pretty)
    };
    let mut response = whole_response(asked.accepted.content_type(), body.into(), admission);
    coverage.warn(response.headers_mut());
    Ok(response)
}

async fn list_response(
    api: &Arc<ReadApi>,
    mut listing: Listing,
    asked: &ReadRequest,
    coverage: &Coverage,
    admission: Admission,
) -> Response {
    let mut first = Vec::new();
    while !listing.is_done() && first.len() < GZIP_FROM {
        let _turn = api.turn(&asked.reader).await;
        listing.write(&mut first);
    }
    let is_gzip = asked.gzip && first.len() >= GZIP_FROM;
    let content_type = asked.accepted.content_type();
    let mut response = if listing.is_done() {
        let whole: Bytes = if is_gzip { Gzip::new().write(&first, true) } else { first.into() };
        api.metrics.sent(whole.len());
        whole_response(content_type, whole, admission)
    } else {
        let gzip = is_gzip.then(Gzip::new);
        let rest =
            Rest { api: Arc::clone(api), listing, first: Some(first), gzip, reader: asked.reader.clone(), admission };
        let body = Body::from_stream(stream::unfold(rest, |mut rest| async {
            let chunk = rest.next().await?;
            Some((chunk, rest))
        }));
        stream_response(content_type, body)
    };
    if is_gzip {
        mark_gzip(response.headers_mut());
    }
    coverage.warn(response.headers_mut());
    response
}

/// The rest of a list that is sent as a stream.
struct Rest {
    api: Arc<ReadApi>,
    listing: Listing,
    first: Option<Vec<u8>>,
    gzip: Option<Gzip>,
    reader: ReaderId,
    /// Admission of the request, dropped when the client has taken the whole list.
    #[expect(dead_code, reason = "ends with the list")]
    admission: Admission,
}

/// Error of a protobuf list whose items do not have the announced length, because an object could not be read any more.
#[derive(Debug, thiserror::Error)]
#[error("an object changed while the list was sent: read the list again")]
struct ListChanged;

impl Rest {
    /// Returns the next part of the list; `None` at the end. An error ends the connection, so that the client does not
    /// take an incomplete list for the whole.
    async fn next(&mut self) -> Option<Result<Bytes, ListChanged>> {
        loop {
            let chunk = match self.first.take() {
                Some(first) => first,
                None if self.listing.is_done() => return None,
                None => {
                    let _turn = self.api.turn(&self.reader).await;
                    let mut chunk = Vec::new();
                    self.listing.write(&mut chunk);
                    if self.listing.has_failed() {
                        return Some(Err(ListChanged));
                    }
                    chunk
                }
            };
            let is_last = self.listing.is_done();
            let chunk = match &mut self.gzip {
                Some(gzip) => gzip.write(&chunk, is_last),
                None => chunk.into(),
            };
            if !chunk.is_empty() {
                self.api.metrics.sent(chunk.len());
                return Some(Ok(chunk));
            }
            if is_last {
                return None;
            }
        }
    }
}
