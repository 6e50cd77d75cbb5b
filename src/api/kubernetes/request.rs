//! One request: parsing, rights, admission, and the choice of the answer.

use std::fmt::Display;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::ALLOW;
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, Request, StatusCode};
use axum::response::Response;
use smol_str::SmolStr;
use tracing::Instrument;

use super::ReadApi;
use super::fleet::Fleet;
use super::read_request::{ReadRequest, accept_of, asked, form_of_failures, trace_parent_of};
use super::respond::failure_response;
use super::scope::Scope;
use super::self_subject::{self, SelfReview};
use crate::api::notes::Notes;
use crate::api::rights::reader_of;
use informer_hub_kubeapi::{Document, Reason, Root, Status, Target, parse_path};
use informer_hub_telemetry::spans;

/// Answers one request below the Kubernetes roots `/clusters` and `/unique`.
pub(super) async fn handle(State(api): State<Arc<ReadApi>>, request: Request<Body>) -> Response {
    let (parts, body) = request.into_parts();
    match answer(&api, &parts, body).await {
        Ok(response) => response,
        Err(status) => {
            let (media, is_pretty) = form_of_failures(&parts);
            let mut response = failure_response(&status, media, is_pretty);
            if response.status() == StatusCode::METHOD_NOT_ALLOWED {
                response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            }
            response
        }
    }
}

async fn answer(api: &Arc<ReadApi>, parts: &Parts, body: Body) -> Result<Response, Status> {
    let Some((root, target)) = parse_path(parts.uri.path())? else { return Err(Status::path_not_found()) };
    if parts.method != Method::GET && parts.method != Method::HEAD {
        if let Target::Resource(path) = &target
            && parts.method == Method::POST
            && let Some(review) = SelfReview::of(path)
        {
            return self_subject::answer(api, parts, body, &root, review).await;
        }
        return Err(read_only(&target));
    }
    let fleet = api.fleet()?;
    let path = match target {
        Target::Document(document) => {
            // Clients cache discovery documents for hours, so these must be complete.
            if !matches!(document, Document::Health | Document::Version) {
                check_started(&*fleet)?;
            }
            let (reader, accept) = (reader_of(parts), accept_of(parts));
            let notes = Notes::of(parts);
            return api.documents.answer(api, &*fleet, &root, &document, (&reader, accept.as_deref(), &notes)).await;
        }
        Target::Resource(path) => path,
    };
    let began = informer_hub_types::clock::now();
    let resource = super::metrics::resource_of(&path);
    let asked = asked(parts, root, path)?;
    let verb = asked.access_verb().as_str();
    let client = asked.client.clone();
    let span = spans::read(verb, &resource, &root_of(&asked.root), &client, trace_parent_of(parts));
    let outcome = answer_resource(api, &fleet, asked).instrument(span.clone()).await;
    let code = outcome.as_ref().map_or_else(|status| status.code, |response| response.status().as_u16());
    spans::end_read(&span, code, outcome.as_ref().err().map(|status| &status.message as &dyn Display));
    api.metrics.answered_client(&client, code);
    api.metrics.answered(verb, &resource, code, informer_hub_types::clock::now() - began);
    outcome
}

/// Returns the URL root of a request as text for traces: the name of a cluster, or a selection such as `*`.
fn root_of(root: &Root) -> SmolStr {
    match root {
        Root::Cluster(name) => name.as_str().into(),
        Root::Fleet(selector) if selector.is_empty() => "*".into(),
        Root::Unique(selector) if selector.is_empty() => "unique/*".into(),
        Root::Fleet(_) => "selected".into(),
        Root::Unique(_) => "unique/selected".into(),
    }
}

async fn answer_resource(api: &Arc<ReadApi>, fleet: &Arc<dyn Fleet>, asked: ReadRequest) -> Result<Response, Status> {
    if let Some(subresource) = &asked.path.subresource {
        let resource = &asked.path.resource;
        let text = format!("the hub does not serve {resource}/{subresource}: ask the cluster");
        return Err(Status::new(404, Reason::NotFound, text));
    }
    if matches!(asked.root, Root::Fleet(_) | Root::Unique(_)) {
        // A list without some of the clusters would make informers of clients delete the objects of these clusters.
        check_started(&**fleet)?;
    }
    let scope = Scope::find(&**fleet, &asked.root, &asked.path, (&api.rights, &asked.user, &asked.notes));
    let mut scope = scope.or_else(|status| check_started(&**fleet).and(Err(status)))?;
    scope.review(&scope.snapshot(), (&api.rights, &asked.user), asked.access_verb(), &asked.path).await;
    scope.check_access(&asked.user, asked.access_verb(), &asked.path)?;
    let definition = api.definitions.of(&**fleet, &scope, &asked.user).await;
    if asked.is_watch() {
        super::watch_request::answer(api, scope, definition, asked).await
    } else {
        super::read::answer(api, scope, definition, asked).await
    }
}

/// Refuses an answer that would be incomplete because the hub has just started.
pub(super) fn check_started(fleet: &dyn Fleet) -> Result<(), Status> {
    if fleet.has_started() {
        return Ok(());
    }
    let status = Status::service_unavailable("the hub is starting: the first lists are not complete");
    Err(Status { retry_after: Some(1), ..status })
}

/// Returns 405: the hub does not change Kubernetes objects.
fn read_only(target: &Target) -> Status {
    let status = Status::method_not_allowed();
    let what = match target {
        Target::Resource(path) => path.resource.as_str(),
        Target::Document(_) => "this path",
    };
    Status { message: format!("the hub only reads: send changes of {what} to the cluster's own apiserver"), ..status }
}
