//! `SelfSubjectAccessReview`: what the cluster says that its client may do.

use std::error::Error;
use std::io;

use http_body_util::{BodyExt, Limited};
use hyper::body::Body;
use hyper::{Method, Request, StatusCode};
use serde_json::{Value, json};

use super::http::{SimResponse, Status, json_response};
use super::shared::Shared;
use crate::types::Gvr;

const PATH: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// What may be wrong with a request's body.
pub(super) type BoxError = Box<dyn Error + Send + Sync>;

/// Largest review that is read.
const MAX_BODY: usize = 64 * 1024;

/// Whether a request is a review.
pub(super) fn is_review<B>(request: &Request<B>) -> bool {
    request.method() == Method::POST && request.uri().path() == PATH
}

/// Answers a review: everything but lists and watches of what was forbidden is allowed.
pub(super) async fn review<B>(shared: &Shared, request: Request<B>) -> io::Result<SimResponse>
where
    B: Body<Error: Into<BoxError>>,
{
    let body = Limited::new(request.into_body(), MAX_BODY).collect().await;
    let asked = body.ok().and_then(|body| serde_json::from_slice::<Value>(&body.to_bytes()).ok());
    let Some(mut review) = asked.filter(|review| review["spec"]["resourceAttributes"].is_object()) else {
        return Ok(Status::bad_request("the body is no SelfSubjectAccessReview").response());
    };
    let of = |key: &str| review["spec"]["resourceAttributes"][key].as_str().unwrap_or_default();
    let forbidden = shared.is_forbidden(&Gvr::new(of("group"), of("version"), of("resource")));
    review["status"] = if forbidden {
        json!({ "allowed": false, "reason": "forbidden by the simulation" })
    } else {
        json!({ "allowed": true })
    };
    Ok(json_response(StatusCode::CREATED, &review))
}
