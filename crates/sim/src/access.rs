//! Endpoints for access and token reviews. `SelfSubjectAccessReview` and `SelfSubjectReview` are about the client
//! itself: its permissions and its user name. `SubjectAccessReview` and `TokenReview` are about users and tokens that a
//! test defines.

use std::error::Error;
use std::io;

use http_body_util::{BodyExt, Limited};
use hyper::body::Body;
use hyper::{Method, Request, StatusCode};
use serde_json::{Value, json};

use super::http::{SimResponse, Status, json_response};
use super::media::Media;
use super::shared::Shared;
use informer_hub_types::Gvr;

const PATH: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

const SELF_PATH: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

const ACCESS_PATH: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

const TOKEN_PATH: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

pub(super) type BoxError = Box<dyn Error + Send + Sync>;

/// Maximum size of the review that a client sends, in bytes.
const MAX_BODY: usize = 64 * 1024;

pub(super) fn is_review<B>(request: &Request<B>) -> bool {
    request.method() == Method::POST && matches!(request.uri().path(), PATH | SELF_PATH | ACCESS_PATH | TOKEN_PATH)
}

/// Answers a request to any of the four review endpoints. The client itself may access every resource that the test has
/// not forbidden. Other users have only the permissions that the test has set.
pub(super) async fn review<B>(shared: &Shared, request: Request<B>) -> io::Result<SimResponse>
where
    B: Body<Error: Into<BoxError>>,
{
    if request.uri().path() == SELF_PATH {
        return Ok(user_info(shared));
    }
    let path = request.uri().path().to_owned();
    let body = Limited::new(request.into_body(), MAX_BODY).collect().await;
    let review = body.ok().and_then(|body| serde_json::from_slice::<Value>(&body.to_bytes()).ok());
    if path != PATH {
        return match review {
            Some(review) => review_of_others(shared, &path, review).await,
            None => Ok(Status::bad_request("the body is not a review").response(Media::Json)),
        };
    }
    let Some(mut review) = review.filter(|review| review["spec"]["resourceAttributes"].is_object()) else {
        return Ok(Status::bad_request("the body is not a SelfSubjectAccessReview").response(Media::Json));
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

async fn review_of_others(shared: &Shared, path: &str, mut review: Value) -> io::Result<SimResponse> {
    if shared.users().is_silent {
        return std::future::pending().await;
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let spec = review["spec"].take();
    review["status"] = if path == TOKEN_PATH {
        match shared.users().tokens.get(&text(&spec["token"])) {
            Some(user) => json!({
                "authenticated": true, "audiences": spec["audiences"],
                "user": { "username": user, "groups": ["system:serviceaccounts", "system:authenticated"] },
            }),
            None => json!({ "authenticated": false, "error": "unknown to the simulation" }),
        }
    } else {
        let attributes = &spec["resourceAttributes"];
        let (user, resource) = (text(&spec["user"]), text(&attributes["resource"]));
        let is_allowed =
            |namespace: String| shared.users().allowed.contains(&[user.clone(), resource.clone(), namespace]);
        json!({ "allowed": is_allowed(String::new()) || is_allowed(text(&attributes["namespace"])) })
    };
    Ok(json_response(StatusCode::CREATED, &review))
}

fn user_info(shared: &Shared) -> SimResponse {
    let Some(username) = &shared.config.username else {
        return Status::new(404, "NotFound", "the server could not find the requested resource").response(Media::Json);
    };
    let user = json!({ "username": username, "groups": ["system:authenticated"] });
    let kind = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "status": { "userInfo": user },
    });
    json_response(StatusCode::CREATED, &kind)
}
