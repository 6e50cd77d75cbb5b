//! One request: parsing, rights, admission, and the choice of the answer.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, USER_AGENT};
use axum::http::request::Parts;
use axum::http::{Method, Request};
use axum::response::Response;
use smol_str::{SmolStr, format_smolstr};

use super::ReadApi;
use super::fleet::Fleet;
use super::queue::ReaderId;
use super::respond::status_response;
use super::scope::Scope;
use crate::api::serve::PeerAddress;
use informer_hub_kubeapi::{
    Accepted, Form, IncludeObject, Options, Reason, ResourcePath, Root, Status, Target, negotiate, parse_path,
};

/// A request for a resource, parsed.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) root: Root,
    pub(super) path: ResourcePath,
    pub(super) options: Options,
    pub(super) accepted: Accepted,
    pub(super) include: IncludeObject,
    /// Whether JSON is indented.
    pub(super) is_pretty: bool,
    /// Whether the client accepts gzip.
    pub(super) gzip: bool,
    pub(super) reader: ReaderId,
}

/// Answers one request below the roots.
pub(super) async fn handle<B>(State(api): State<Arc<ReadApi>>, request: Request<B>) -> Response {
    let (parts, _) = request.into_parts();
    match answer(&api, &parts).await {
        Ok(response) => response,
        Err(status) => status_response(&status),
    }
}

async fn answer(api: &Arc<ReadApi>, parts: &Parts) -> Result<Response, Status> {
    let Some((root, target)) = parse_path(parts.uri.path())? else { return Err(Status::path_not_found()) };
    if parts.method != Method::GET && parts.method != Method::HEAD {
        return Err(read_only(&target));
    }
    let Some(fleet) = (api.find)() else {
        let status = Status::service_unavailable("the hub is starting or shutting down");
        return Err(Status { retry_after: Some(1), ..status });
    };
    let path = match target {
        Target::Document(document) => {
            return api.documents.answer(api, &*fleet, &root, &document, accept_of(parts).as_deref()).await;
        }
        Target::Resource(path) => path,
    };
    let began = informer_hub_types::clock::now();
    let resource = super::metrics::resource_of(&path);
    let asked = asked(parts, root, path)?;
    let verb = verb_of(&asked);
    let outcome = answer_resource(api, &fleet, asked).await;
    let code = outcome.as_ref().map_or_else(|status| status.code, |response| response.status().as_u16());
    api.metrics.answered(verb, &resource, code, informer_hub_types::clock::now() - began);
    outcome
}

async fn answer_resource(api: &Arc<ReadApi>, fleet: &Arc<dyn Fleet>, asked: Asked) -> Result<Response, Status> {
    if let Some(subresource) = &asked.path.subresource {
        let resource = &asked.path.resource;
        let text = format!("the hub does not serve {resource}/{subresource}: ask the cluster");
        return Err(Status::new(404, Reason::NotFound, text));
    }
    let scope = Scope::find(&**fleet, &asked.root, &asked.path, api.rights)?;
    let definition = api.definitions.of(&**fleet, &scope).await;
    if is_watch(&asked) {
        super::watch_request::answer(api, scope, definition, asked).await
    } else {
        super::read::answer(api, scope, definition, asked).await
    }
}

/// Returns 405: the hub changes nothing.
fn read_only(target: &Target) -> Status {
    let status = Status::method_not_allowed();
    let what = match target {
        Target::Resource(path) => path.resource.as_str(),
        Target::Document(_) => "this path",
    };
    Status { message: format!("the hub only reads: send changes of {what} to the cluster's own apiserver"), ..status }
}

fn is_watch(asked: &Asked) -> bool {
    (asked.options.watch && asked.path.name.is_none()) || asked.path.is_watch
}

fn verb_of(asked: &Asked) -> &'static str {
    match (is_watch(asked), &asked.path.name) {
        (true, _) => "watch",
        (false, Some(_)) => "get",
        (false, None) => "list",
    }
}

/// Parses options and negotiates the form.
fn asked(parts: &Parts, root: Root, path: ResourcePath) -> Result<Asked, Status> {
    let options = Options::of(&path, parts.uri.query().unwrap_or_default())?;
    let is_stream = options.watch || path.is_watch;
    let is_list = path.name.is_none() && !is_stream;
    let offered: &[Form] = if is_list { &[Form::Table, Form::MetadataList] } else { &[Form::Table, Form::Metadata] };
    let accepted = negotiate(accept_of(parts).as_deref(), offered, is_stream)?;
    let include = if accepted.form == Form::Table { options.table_objects()? } else { IncludeObject::Metadata };
    let is_pretty = options.pretty.unwrap_or_else(|| accepted.pretty || is_read_by_people(parts));
    Ok(Asked { root, path, options, accepted, include, is_pretty, gzip: accepts_gzip(parts), reader: reader_of(parts) })
}

fn accept_of(parts: &Parts) -> Option<String> {
    let all: Vec<_> = parts.headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    (!all.is_empty()).then(|| all.join(","))
}

/// Returns whether the client is a browser, curl or wget, to which kube-apiserver sends indented JSON.
fn is_read_by_people(parts: &Parts) -> bool {
    let agent = parts.headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    ["curl", "Wget", "Mozilla/5.0"].iter().any(|start| agent.starts_with(start))
}

fn accepts_gzip(parts: &Parts) -> bool {
    let all = parts.headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let mut codings = all.flat_map(|value| value.split(','));
    codings.any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        name.trim() == "gzip" && weight.trim().replace(' ', "") != "q=0"
    })
}

/// Returns the identity of a reader for fairness: its credential if it has one, and its address.
fn reader_of(parts: &Parts) -> ReaderId {
    let address =
        parts.extensions.get::<PeerAddress>().map_or(SmolStr::default(), |peer| format_smolstr!("{}", peer.0));
    match parts.headers.contains_key(AUTHORIZATION) {
        true => format_smolstr!("token@{address}"),
        false => address,
    }
}
