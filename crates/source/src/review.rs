//! What a cluster says before anything is watched: its version, what we may do there, whether lists stream, how much
//! there is. For people who ask whether a configuration will work; the hub itself finds all of it out as it goes.
//!
//! Each question has a deadline of its own and reads a bounded answer. Ask on the runtime of the client.

use std::time::Duration;

use http::Request;
use http::header::{ACCEPT, CONTENT_TYPE};
use kube::Client;
use kube::client::Body;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::kube::{collection, selectors};
use super::request::{Get, Query, about, collect, next_data, send, transient};
use informer_hub_codec::{MAX_OBJECT_BYTES, bounded, classify_status};
use informer_hub_reflector::{ErrorClass, ListBounds, Progress, SourceError};
use informer_hub_types::{ApiResource, Scope, clock};

/// How long one question may take.
const DEADLINE: Duration = Duration::from_secs(10);
/// What is read of an answer that holds no object.
const MAX_ANSWER: usize = 64 * 1024;
/// Objects of one page, and what is read of it.
const PAGE: u32 = 200;
const MAX_PAGE: usize = 64 << 20;
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const SELF_REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// Which version a cluster is, as its `/version` says: `v1.35.2`.
///
/// # Errors
/// Every failure to get it, classified: the first thing to ask, since it shows whether there is a way at all.
pub async fn server_version(client: &Client) -> Result<String, SourceError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Version {
        git_version: String,
    }
    let version: Version = ask("/version".to_owned(), Query::default(), MAX_ANSWER, client).await?;
    Ok(bounded(&version.git_version))
}

/// What the cluster's authorisers say of something that we want to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// Whether we may.
    pub allowed: bool,
    /// Why, in the authoriser's words; often empty.
    pub reason: String,
}

/// Asks whether whoever `client` is may do `verb` on a resource: in a namespace, or in all of them (SelfSubjectAccessReview).
///
/// Every authenticated user may ask, by a cluster role that Kubernetes itself brings (`system:basic-user`).
///
/// # Errors
/// When there is no verdict.
pub async fn may(
    client: &Client,
    verb: &str,
    resource: &ApiResource,
    namespace: Option<&str>,
) -> Result<Verdict, SourceError> {
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
    let asked = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": { "resourceAttributes": {
            "verb": verb, "group": gvr.group.as_str(), "version": gvr.version.as_str(),
            "resource": gvr.resource.as_str(), "namespace": namespace.filter(|_| resource.namespaced).unwrap_or_default(),
        } },
    });
    let review: Review = post(client, REVIEWS, &asked).await?;
    let Status { allowed, reason, error } = review.status;
    Ok(Verdict { allowed, reason: bounded(if reason.is_empty() { &error } else { &reason }) })
}

/// Who an apiserver takes its client for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Identity {
    /// The user. Any text: what shows it escapes it.
    pub username: String,
    /// The user's groups.
    pub groups: Vec<String>,
}

impl Identity {
    /// Namespace and name of the service account, if it is one.
    #[must_use]
    pub fn service_account(&self) -> Option<(&str, &str)> {
        self.username.strip_prefix("system:serviceaccount:")?.split_once(':')
    }

    /// Whether the apiserver was shown no credentials.
    #[must_use]
    pub fn is_anonymous(&self) -> bool {
        self.username == "system:anonymous"
    }
}

/// Asks who `client` is (SelfSubjectReview, served since Kubernetes 1.28). Every authenticated user may ask.
///
/// # Errors
/// When there is no answer; [`ErrorClass::NotFound`] from older servers.
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
    let asked = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    let Review { status: Status { user } } = post(client, SELF_REVIEWS, &asked).await?;
    Ok(Identity { username: user.username, groups: user.groups.unwrap_or_default() })
}

async fn post<T: DeserializeOwned>(client: &Client, path: &str, body: &Value) -> Result<T, SourceError> {
    answer(client, path, body).await.map_err(|error| about("POST", path, error))
}

async fn answer<T: DeserializeOwned>(client: &Client, path: &str, body: &Value) -> Result<T, SourceError> {
    let request = Request::post(path).header(ACCEPT, "application/json").header(CONTENT_TYPE, "application/json");
    let request = request.body(Body::from(body.to_string().into_bytes()));
    let request = request.map_err(|error| transient(format!("not a request: {error}")))?;
    let response = send(client, request, DEADLINE).await?;
    let status = response.status();
    let body = collect(response.into_body(), MAX_ANSWER, DEADLINE).await?;
    if !status.is_success() {
        return Err(classify_status(status.as_u16(), &body, None));
    }
    parsed(&body)
}

/// Whether the server streams lists of a resource. Asked for an object of a name that nobody has, so that the answer is
/// empty however much there is.
///
/// # Errors
/// When it cannot be told: not by a server that does not stream, which is `false`.
pub async fn streams(client: &Client, resource: &ApiResource, scope: &Scope) -> Result<bool, SourceError> {
    let mut query = Query::default();
    for (key, value) in [
        ("fieldSelector", "metadata.name=informer-hub-looks-for-nothing"),
        ("watch", "true"),
        ("allowWatchBookmarks", "true"),
        ("timeoutSeconds", "5"),
        ("sendInitialEvents", "true"),
        ("resourceVersionMatch", "NotOlderThan"),
    ] {
        query.add(key, value);
    }
    let get = Get { path: collection(resource, scope), query, accept: "application/json", compressed: false };
    let response = match get.open(client, DEADLINE).await {
        Ok(response) => response,
        Err(error) if error.class == ErrorClass::StreamingUnsupported => return Ok(false),
        Err(error) => return Err(error),
    };
    let mut body = response.into_body();
    let read = async {
        let mut seen = Vec::new();
        // A server that takes it for a plain watch sends nothing, and ends it.
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

/// How much there is of a resource.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Estimate {
    /// Objects; `None`: there are more than one, and the server does not say how many (it does not with selectors).
    pub objects: Option<u64>,
    /// Bytes of the JSON of one of them.
    pub sample: Option<usize>,
}

/// Asks for one object, and how many there are besides. The server counts them without reading them.
///
/// # Errors
/// What the hub's own lists would meet: no rights, a field selector that the resource does not have.
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
    let accept = if metadata_only {
        "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
    } else {
        "application/json"
    };
    let path = collection(resource, scope);
    let get = Get { path: path.clone(), query, accept, compressed: true };
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

/// Lists objects of a resource, up to so many, each as JSON.
///
/// # Errors
/// What the hub's own lists would meet.
pub async fn objects(
    client: &Client,
    resource: &ApiResource,
    scope: &Scope,
    most: usize,
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
        let asked = clock::now();
        progress.begin_page();
        let mut query = selectors(scope);
        query.add("limit", &PAGE.to_string());
        if let Some(token) = token.as_deref() {
            query.add("continue", token);
        }
        let get = Get { path: path.clone(), query, accept: "application/json", compressed: true };
        let body = get.fetch(client, MAX_PAGE, DEADLINE).await?;
        let named = |error: SourceError| about("GET", &path, error);
        let page: Page = parsed(&body).map_err(named)?;
        let items = page.items.unwrap_or_default();
        progress.note_items(items.len() as u64, clock::now() - asked, &bounds).map_err(named)?;
        found.extend(items.into_iter().map(|item| Box::<str>::from(item).into_boxed_bytes()).take(most - found.len()));
        token = page.metadata.token.filter(|token| !token.is_empty());
        let Some(token) = token.as_deref().filter(|_| found.len() < most) else { return Ok(found) };
        let pause = progress.note_page(token, Some(PAGE), &bounds).map_err(named)?;
        tokio::time::sleep(pause).await;
    }
}

async fn ask<T: DeserializeOwned>(path: String, query: Query, limit: usize, client: &Client) -> Result<T, SourceError> {
    let get = Get { path: path.clone(), query, accept: "application/json", compressed: true };
    let body = get.fetch(client, limit, DEADLINE).await?;
    parsed(&body).map_err(|error| about("GET", &path, error))
}

/// Never quotes the body.
fn parsed<'b, T: Deserialize<'b>>(body: &'b [u8]) -> Result<T, SourceError> {
    serde_json::from_slice(body).map_err(|error| SourceError {
        class: ErrorClass::Malformed,
        message: format!("not the answer that is due: line {} column {}", error.line(), error.column()),
    })
}

#[cfg(test)]
#[path = "review_tests.rs"]
mod tests;
