//! Requests for leases: get, create and update.

use std::io;
use std::sync::atomic::Ordering::Relaxed;

use http_body_util::{BodyExt, Limited};
use hyper::body::Body;
use hyper::{Method, Request, StatusCode};
use serde_json::Value;

use super::access::BoxError;
use super::http::{SimResponse, Status, json_response};
use super::media::Media;
use super::shared::Shared;
use informer_hub_types::Gvr;

/// Largest accepted lease, in bytes; an apiserver accepts annotations of up to 256 KiB.
const MAX_BODY: usize = 512 * 1024;

/// Path of a lease request: a namespace, and the name of a lease. Without a name, the request is about all leases of
/// the namespace.
struct Place {
    namespace: String,
    name: Option<String>,
}

impl Place {
    fn parse(path: &str) -> Option<Self> {
        let rest = path.strip_prefix("/apis/coordination.k8s.io/v1/namespaces/")?;
        let mut parts = rest.split('/');
        let (namespace, collection, name) = (parts.next()?, parts.next()?, parts.next());
        let is_lease = collection == "leases" && !namespace.is_empty() && parts.next().is_none();
        is_lease.then(|| Self { namespace: namespace.to_owned(), name: name.map(str::to_owned) })
    }
}

pub(super) fn is_lease<B>(request: &Request<B>) -> bool {
    Place::parse(request.uri().path()).is_some()
}

pub(super) async fn answer<B>(shared: &Shared, request: Request<B>) -> io::Result<SimResponse>
where
    B: Body<Error: Into<BoxError>>,
{
    let result = apply(shared, request).await;
    shared.counters.leases.fetch_add(1, Relaxed);
    let delay = shared.leases().delay;
    if !delay.is_zero() {
        shared.stall(delay).await;
    }
    Ok(match result {
        Ok((code, lease)) => json_response(code, &lease),
        Err(status) => status.response(Media::Json),
    })
}

async fn apply<B>(shared: &Shared, request: Request<B>) -> Result<(StatusCode, Value), Status>
where
    B: Body<Error: Into<BoxError>>,
{
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let place = Place::parse(&path).ok_or_else(|| Status::bad_request("not the path of a lease"))?;
    if shared.is_forbidden(&Gvr::new("coordination.k8s.io", "v1", "leases")) {
        let message =
            format!("leases.coordination.k8s.io is forbidden: User \"sim\" cannot {method} resource \"leases\"");
        return Err(Status::new(403, "Forbidden", message));
    }
    let Place { namespace, name } = &place;
    if let Some(name) = name.as_deref().filter(|_| method == Method::GET) {
        return shared.leases().read(namespace, name).map(|lease| (StatusCode::OK, lease));
    }
    let body = Limited::new(request.into_body(), MAX_BODY).collect().await;
    let lease = body.ok().and_then(|body| serde_json::from_slice::<Value>(&body.to_bytes()).ok());
    let lease = lease.filter(|lease| lease["kind"] == "Lease" && lease["metadata"].is_object());
    let lease = lease.ok_or_else(|| Status::bad_request("the body is not a Lease"));
    match (method, name) {
        (Method::POST, None) => shared.leases().create(namespace, lease?).map(|lease| (StatusCode::CREATED, lease)),
        (Method::PUT, Some(name)) => {
            shared.leases().replace(namespace, name, lease?).map(|lease| (StatusCode::OK, lease))
        }
        _ => Err(Status::new(405, "MethodNotAllowed", "the simulation serves get, create and update of leases")),
    }
}
