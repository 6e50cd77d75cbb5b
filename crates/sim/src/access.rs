//! `SelfSubjectAccessReview` and `SelfSubjectReview` endpoints: the client's permissions and user name.

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

/// Error of reading a request body.
pub(super) type BoxError = Box<dyn Error + Send + Sync>;

/// Largest accepted review, in bytes.
const MAX_BODY: usize = 64 * 1024;

/// Returns whether a request is a review.
pub(super) fn is_review<B>(request: &Request<B>) -> bool {
    request.method() == Method::POST && matches!(request.uri().path(), PATH | SELF_PATH)
}

/// Answers a review. Everything is allowed except lists and watches of forbidden resources. The user name is the
/// configured one.
pub(super) async fn review<B>(shared: &Shared, request: Request<B>) -> io::Result<SimResponse>
where
    B: Body<Error: Into<BoxError>>,
{
    if request.uri().path() == SELF_PATH {
        return Ok(user_info(shared));
    }
    let body = Limited::new(request.into_body(), MAX_BODY).collect().await;
    let review = body.ok().and_then(|body| serde_json::from_slice::<Value>(&body.to_bytes()).ok());
    let Some(mut review) = review.filter(|review| review["spec"]["resourceAttributes"].is_object()) else {
        return Ok(Status::bad_request("the body is not a SelfSubjectAccessReview").response());
    };
    let attribute = |key: &str| review["spec"]["resourceAttributes"][key].as_str().unwrap_or_default();
    let forbidden = shared.is_forbidden(&Gvr::new(attribute("group"), attribute("version"), attribute("resource")));
    review["status"] = if forbidden {
        json!({ "allowed": false, "reason": "forbidden by the simulation" })
    } else {
        json!({ "allowed": true })
    };
    Ok(json_response(StatusCode::CREATED, &review))
}

fn user_info(shared: &Shared) -> SimResponse {
    let Some(username) = &shared.config.username else {
        return Status::new(404, "NotFound", "the server could not find the requested resource").response();
    };
    let user = json!({ "username": username, "groups": ["system:authenticated"] });
    let kind = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "status": { "userInfo": user },
    });
    json_response(StatusCode::CREATED, &kind)
}
