//! `SelfSubjectAccessReview` and `SelfSubjectReview`: what the client may do, and who it is.

use std::error::Error;
use std::io;

use http_body_util::{BodyExt, Limited};
use hyper::body::Body;
use hyper::{Method, Request, StatusCode};
use serde_json::{Value, json};

use super::http::{SimResponse, Status, json_response};
use super::shared::Shared;
use informer_hub_types::Gvr;

const PATH: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

const SELF_PATH: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// What may be wrong with a request's body.
pub(super) type BoxError = Box<dyn Error + Send + Sync>;

/// Largest review that is read.
const MAX_BODY: usize = 64 * 1024;

/// Whether a request is a review.
pub(super) fn is_review<B>(request: &Request<B>) -> bool {
    request.method() == Method::POST && matches!(request.uri().path(), PATH | SELF_PATH)
}

/// Answers a review: everything but lists and watches of what was forbidden is allowed, and the client is whom the
/// simulation is configured to see.
pub(super) async fn review<B>(shared: &Shared, request: Request<B>) -> io::Result<SimResponse>
where
    B: Body<Error: Into<BoxError>>,
{
    if request.uri().path() == SELF_PATH {
        return Ok(who(shared));
    }
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

fn who(shared: &Shared) -> SimResponse {
    let Some(username) = &shared.config.username else {
        return Status::new(404, "NotFound", "the server could not find the requested resource").response();
    };
    let user = json!({ "username": username, "groups": ["system:authenticated"] });
    let kind = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "status": { "userInfo": user },
    });
    json_response(StatusCode::CREATED, &kind)
}
