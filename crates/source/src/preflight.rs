//! Checks of a cluster before it is watched: version, permissions, streaming support, number of objects.
//!
//! Commands such as `check` use them. The hub itself uses only [`server_version`], [`review`] and [`document`]. Each
//! check has a time limit, and a size limit for the answer. The functions must be called on the client's runtime.

use std::time::Duration;

use kube::Client;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::exchange::exchange_within;
use super::kube::{collection, selectors};
use super::request::{Get, Query, about, next_data};
use informer_hub_codec::{MAX_OBJECT_BYTES, bounded, classify_status};
use informer_hub_pool::Lane;
use informer_hub_reflector::{ErrorClass, ListBounds, ObjectAnswer, ObjectRequest, Progress, SourceError};
use informer_hub_types::{ApiResource, Scope, clock};

/// Deadline of one check.
const DEADLINE: Duration = Duration::from_secs(10);
/// Size limit of an answer without objects, in bytes.
const MAX_ANSWER: usize = 64 * 1024;
/// Maximum number of objects per page of a list.
const PAGE: u32 = 200;
const MAX_PAGE: usize = 64 << 20;
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const SELF_REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// Returns the version of the apiserver from `/version`, such as `v1.35.2`.
///
/// # Errors
/// Any failure, classified. Call this first, since it shows whether the cluster can be reached.
pub async fn server_version(client: &Client) -> Result<String, SourceError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Version {
        git_version: String,
    }
    let version: Version = fetch_json("/version", Lane::Watch, MAX_ANSWER, client).await?;
    Ok(bounded(&version.git_version))
}

/// Fetches a document of the apiserver, such as `/openapi/v2`, as JSON of at most 32 MiB.
pub(super) async fn document(path: String, client: &Client) -> Result<Vec<u8>, SourceError> {
    const MAX_DOCUMENT: usize = 32 << 20;
    let document: Box<RawValue> = fetch_json(&path, Lane::Bulk, MAX_DOCUMENT, client).await?;
    Ok(document.get().as_bytes().to_vec())
}

/// Decision of a cluster's authorizers on one action.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AccessVerdict {
    /// Whether the action is allowed.
    pub allowed: bool,
    /// The authorizer's reason; often empty.
    pub reason: String,
}

/// Checks whether the user of `client` may do `verb` on a resource in a namespace or in all of them
/// (SelfSubjectAccessReview).
///
/// Every authenticated user may call it, by the built-in cluster role `system:basic-user`.
///
/// # Errors
/// The cluster gave no decision.
pub async fn check_access(
    client: &Client,
    verb: &str,
    resource: &ApiResource,
    namespace: Option<&str>,
) -> Result<AccessVerdict, SourceError> {
    check_access_to(client, verb, resource, namespace, None).await
}

/// Checks like [`check_access`] whether the user of `client` may do `verb` on the object `name`; with `None`, on all
/// objects.
///
/// # Errors
/// The cluster gave no decision.
pub async fn check_access_to(
    client: &Client,
    verb: &str,
    resource: &ApiResource,
    namespace: Option<&str>,
    name: Option<&str>,
) -> Result<AccessVerdict, SourceError> {
    #[derive(Deserialize)]
    struct Review {
        status: Status,
    }
    #[derive(Deserialize)]
    struct Status {
        #[serde(default)]
        allowed: bool,
        #[serde(default)]
        reason: String,
        #[serde(default, rename = "evaluationError")]
        error: String,
    }
    let gvr = &resource.gvr;
    let request_body = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": { "resourceAttributes": {
            "verb": verb, "group": gvr.group.as_str(), "version": gvr.version.as_str(),
            "resource": gvr.resource.as_str(), "namespace": namespace.filter(|_| resource.namespaced).unwrap_or_default(),
            "name": name.unwrap_or_default(),
        } },
    });
    let review: Review = post(client, REVIEWS, &request_body).await?;
    let Status { allowed, reason, error } = review.status;
    Ok(AccessVerdict { allowed, reason: bounded(if reason.is_empty() { &error } else { &reason }) })
}

/// The user that an apiserver identifies a client as.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Identity {
    /// The user name. May be any text, so escape it for display.
    pub username: String,
    /// The user's groups.
    pub groups: Vec<String>,
}

impl Identity {
    /// Returns namespace and name if the user is a service account; `None` for other users.
    #[must_use]
    pub fn service_account(&self) -> Option<(&str, &str)> {
        self.username.strip_prefix("system:serviceaccount:")?.split_once(':')
    }

    /// Returns whether the user is anonymous, because the client sent no credentials.
    #[must_use]
    pub fn is_anonymous(&self) -> bool {
        self.username == "system:anonymous"
    }
}

/// Returns the user that the apiserver identifies `client` as, by a SelfSubjectReview (since Kubernetes 1.28). Every
/// authenticated user may call it.
///
/// # Errors
/// There is no answer. [`ErrorClass::NotFound`] from older servers.
pub async fn whoami(client: &Client) -> Result<Identity, SourceError> {
    #[derive(Deserialize)]
    struct Review {
        status: Status,
    }
    #[derive(Deserialize)]
    struct Status {
        #[serde(rename = "userInfo")]
        user: User,
    }
    #[derive(Deserialize)]
    struct User {
        username: String,
        #[serde(default)]
        groups: Option<Vec<String>>,
    }
    let request_body = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    let Review { status: Status { user } } = post(client, SELF_REVIEWS, &request_body).await?;
    Ok(Identity { username: user.username, groups: user.groups.unwrap_or_default() })
}

async fn post<T: DeserializeOwned>(client: &Client, path: &str, body: &Value) -> Result<T, SourceError> {
    let answer = review(client, path, body.to_string().into_bytes()).await?;
    parsed(&answer).map_err(|error| about("POST", path, error))
}

/// Posts a review, such as a SelfSubjectAccessReview, and returns the answer's body.
pub(super) async fn review(client: &Client, path: &str, body: Vec<u8>) -> Result<Vec<u8>, SourceError> {
    answer(client, path, body).await.map_err(|error| about("POST", path, error))
}

async fn answer(client: &Client, path: &str, body: Vec<u8>) -> Result<Vec<u8>, SourceError> {
    let request = ObjectRequest { method: "POST", path: path.to_owned(), body };
    let ObjectAnswer { status, body } = exchange_within(client, request, MAX_ANSWER).await?;
    if !(200..300).contains(&status) {
        return Err(classify_status(status, &body, None));
    }
    Ok(body)
}

/// Checks whether the server supports streaming lists of a resource. Requests an object that does not exist, so that the
/// answer is always empty.
///
/// # Errors
/// The check failed. For a server without streaming lists, the result is `false`.
pub async fn supports_streaming_lists(
    client: &Client,
    resource: &ApiResource,
    scope: &Scope,
) -> Result<bool, SourceError> {
    let mut query = Query::default();
    for (key, value) in [
        ("fieldSelector", "metadata.name=informer-hub-streaming-check"),
        ("watch", "true"),
        ("allowWatchBookmarks", "true"),
        ("timeoutSeconds", "5"),
        ("sendInitialEvents", "true"),
        ("resourceVersionMatch", "NotOlderThan"),
    ] {
        query.add(key, value);
    }
    let get = Get { compressed: false, ..Get::json(collection(resource, scope), query, Lane::Watch) };
    let response = match get.open(client, DEADLINE).await {
        Ok(response) => response,
        Err(error) if error.class == ErrorClass::StreamingUnsupported => return Ok(false),
        Err(error) => return Err(error),
    };
    let mut body = response.into_body();
    let read = async {
        let mut seen = Vec::new();
        // A server without streaming lists treats the request as a plain watch, and never sends the bookmark with this
        // annotation.
        while let Some(data) = next_data(&mut body).await? {
            seen.extend_from_slice(&data);
            if memchr::memmem::find(&seen, b"k8s.io/initial-events-end").is_some() {
                return Ok(true);
            }
            if seen.len() > MAX_ANSWER {
                break;
            }
        }
        Ok(false)
    };
    tokio::time::timeout(DEADLINE, read).await.unwrap_or(Ok(false))
}

/// Estimated number and size of the objects of a resource.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Estimate {
    /// Number of objects. `None` if there are several and the server does not count them, e.g. for a list with
    /// selectors.
    pub objects: Option<u64>,
    /// Size of one object as JSON, in bytes; `None` if there are none.
    pub sample: Option<usize>,
}

/// Estimates number and size of the objects by a list limited to one object. The answer has the number of remaining
/// objects, which the server counts without reading them.
///
/// # Errors
/// The list failed, for example by missing permissions or an unsupported field selector.
pub async fn estimate(
    client: &Client,
    resource: &ApiResource,
    scope: &Scope,
    metadata_only: bool,
) -> Result<Estimate, SourceError> {
    #[derive(Deserialize)]
    struct Page<'a> {
        #[serde(default)]
        metadata: Metadata,
        #[serde(borrow)]
        items: Option<Vec<&'a RawValue>>,
    }
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        remaining_item_count: Option<u64>,
        #[serde(default, rename = "continue")]
        token: String,
    }
    let mut query = selectors(scope);
    query.add("limit", "1");
    let path = collection(resource, scope);
    let mut get = Get::json(&path, query, Lane::Bulk);
    if metadata_only {
        get.accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
    }
    let body = get.fetch(client, MAX_OBJECT_BYTES + MAX_ANSWER, DEADLINE).await?;
    let page: Page<'_> = parsed(&body).map_err(|error| about("GET", &path, error))?;
    let items = page.items.unwrap_or_default();
    let Metadata { remaining_item_count, token } = page.metadata;
    let left = if token.is_empty() { Some(remaining_item_count.unwrap_or(0)) } else { remaining_item_count };
    Ok(Estimate {
        objects: left.map(|left| left + items.len() as u64),
        sample: items.first().map(|item| item.get().len()),
    })
}

/// Lists up to `limit` objects of a resource in pages, each object as JSON.
///
/// # Errors
/// The list failed.
pub async fn list_objects(
    client: &Client,
    resource: &ApiResource,
    scope: &Scope,
    limit: usize,
) -> Result<Vec<Box<[u8]>>, SourceError> {
    #[derive(Deserialize)]
    struct Page {
        #[serde(default)]
        metadata: Metadata,
        items: Option<Vec<Box<RawValue>>>,
    }
    #[derive(Default, Deserialize)]
    struct Metadata {
        #[serde(default, rename = "continue")]
        token: Option<String>,
    }
    let path = collection(resource, scope);
    let (mut found, mut token) = (Vec::new(), None::<String>);
    let (mut progress, bounds) = (Progress::default(), ListBounds::default());
    loop {
        let request_body = clock::now();
        progress.begin_page();
        let mut query = selectors(scope);
        query.add("limit", &PAGE.to_string());
        if let Some(token) = token.as_deref() {
            query.add("continue", token);
        }
        let body = Get::json(&path, query, Lane::Bulk).fetch(client, MAX_PAGE, DEADLINE).await?;
        let named = |error: SourceError| about("GET", &path, error);
        let page: Page = parsed(&body).map_err(named)?;
        let items = page.items.unwrap_or_default();
        progress.note_items(items.len() as u64, clock::now() - request_body, &bounds).map_err(named)?;
        found.extend(items.into_iter().map(|item| Box::<str>::from(item).into_boxed_bytes()).take(limit - found.len()));
        token = page.metadata.token.filter(|token| !token.is_empty());
        let Some(token) = token.as_deref().filter(|_| found.len() < limit) else { return Ok(found) };
        let pause = progress.note_page(token, Some(PAGE), &bounds).map_err(named)?;
        tokio::time::sleep(pause).await;
    }
}

async fn fetch_json<T: DeserializeOwned>(
    path: &str,
    lane: Lane,
    limit: usize,
    client: &Client,
) -> Result<T, SourceError> {
    let body = Get::json(path, Query::default(), lane).fetch(client, limit, DEADLINE).await?;
    parsed(&body).map_err(|error| about("GET", path, error))
}

/// Parses an answer. The error does not quote the answer.
fn parsed<'b, T: Deserialize<'b>>(body: &'b [u8]) -> Result<T, SourceError> {
    serde_json::from_slice(body).map_err(|error| SourceError {
        class: ErrorClass::Malformed,
        message: format!("unexpected answer: line {} column {}", error.line(), error.column()),
    })
}

#[cfg(test)]
#[path = "review_tests.rs"]
mod tests;
