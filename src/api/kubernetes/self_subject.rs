//! `SelfSubjectAccessReview`, `SelfSubjectRulesReview` and `SelfSubjectReview`: what the sender of a request may do.
//!
//! Bodies are JSON, or protobuf as kubectl sends them; answers are JSON. Only reads can be allowed: the review allows a
//! read if the hub would answer it for this sender. At URL roots of several clusters, one visible cluster that allows
//! it is enough.

use std::borrow::Cow;
use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use smol_str::SmolStr;

use super::ReadApi;
use super::fleet::{ClusterInfo, Fleet};
use super::respond::json_response;
use super::scope::Clusters;
use crate::api::rights::{Extent, Place, reader_of, sees_cluster};
use informer_hub_access::{Reader, Verb};
use informer_hub_kubeapi::{ResourcePath, Root, Status};
use informer_hub_protobuf::{ConvertError, Converter, Envelope, Omit, Schema};
use informer_hub_types::{ApiResource, Gvr, MAX_QUOTED, shortened};

/// Maximum length of a body in bytes.
const MAX_BODY: usize = 64 << 10;

/// Maximum length of the JSON converted from a protobuf body. Longer than the body, since characters may be escaped.
const MAX_JSON: usize = 8 * MAX_BODY;

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// URL paths that do not belong to a resource, such as discovery and health, and that every reader may get.
const OPEN_PATHS: [&str; 12] = [
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
    "/healthz",
    "/livez",
    "/openapi",
    "/openapi/*",
    "/readyz",
    "/version",
    "/version/",
    "/livez/*",
];

const VERBS: [&str; 3] = ["get", "list", "watch"];

/// Kind of a review that asks about its own sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SelfReview {
    Access,
    Rules,
    User,
}

impl SelfReview {
    /// Returns the kind of review that a path creates; `None` for other paths.
    pub(super) fn of(path: &ResourcePath) -> Option<Self> {
        let is_plain = path.namespace.is_none() && path.name.is_none() && path.subresource.is_none();
        match (path.group.as_str(), path.version.as_str(), path.resource.as_str()) {
            _ if !is_plain || path.is_watch => None,
            ("authorization.k8s.io", "v1", "selfsubjectaccessreviews") => Some(Self::Access),
            ("authorization.k8s.io", "v1", "selfsubjectrulesreviews") => Some(Self::Rules),
            ("authentication.k8s.io", "v1", "selfsubjectreviews") => Some(Self::User),
            _ => None,
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Self::Access => "SelfSubjectAccessReview",
            Self::Rules => "SelfSubjectRulesReview",
            Self::User => "SelfSubjectReview",
        }
    }

    fn api_version(self) -> &'static str {
        match self {
            Self::Access | Self::Rules => "authorization.k8s.io/v1",
            Self::User => "authentication.k8s.io/v1",
        }
    }

    /// Returns the member `spec` of the review that a client sent.
    ///
    /// # Errors
    /// [`Status`] of code 400 if the body is not a review of this kind or has a member of a wrong type.
    fn spec(self, body: &[u8], is_protobuf: bool) -> Result<Value, Status> {
        let json = if is_protobuf { json_of(body, self)? } else { Cow::Borrowed(body) };
        let Written { kind, api_version, spec } = serde_json::from_slice(&json)
            .map_err(|error| Status::bad_request(format!("the body is not a {} in JSON: {error}", self.kind())))?;
        self.check_kind(api_version.as_deref(), kind.as_deref())?;
        Ok(Value::Object(spec))
    }

    fn check_kind(self, api_version: Option<&str>, kind: Option<&str>) -> Result<(), Status> {
        let (wanted, wanted_kind) = (self.api_version(), self.kind());
        let (found, found_kind) = (api_version.unwrap_or(wanted), kind.unwrap_or(wanted_kind));
        if (found, found_kind) == (wanted, wanted_kind) {
            return Ok(());
        }
        let (found, found_kind) = (shortened(found, MAX_QUOTED), shortened(found_kind, MAX_QUOTED));
        let text = format!("the body is a {found_kind:?} of {found:?}, not a {wanted_kind:?} of {wanted:?}");
        Err(Status::bad_request(text))
    }
}

/// JSON body of a review that a client sent.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    kind: Option<String>,
    api_version: Option<String>,
    #[serde(default)]
    spec: Map<String, Value>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct AccessSpec {
    resource_attributes: Option<ResourceAttributes>,
    non_resource_attributes: Option<PathAttributes>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ResourceAttributes {
    namespace: String,
    verb: String,
    group: String,
    resource: String,
    subresource: String,
}

impl ResourceAttributes {
    fn is_wildcard(&self) -> bool {
        self.resource == "*" || self.group == "*"
    }

    /// Returns the name of the resource as kubectl writes it, such as `deployments.apps`.
    fn name(&self) -> String {
        let name =
            if self.group.is_empty() { self.resource.clone() } else { format!("{}.{}", self.resource, self.group) };
        shortened(&name, MAX_QUOTED).to_string()
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct PathAttributes {
    path: String,
    verb: String,
}

/// Sender of a review, the clusters below the URL root that it may know of, and the resources of all caches.
struct Sender<'a> {
    api: &'a ReadApi,
    reader: Reader,
    clusters: Vec<ClusterInfo>,
    resources: Vec<ApiResource>,
}

/// Answers a review that asks about its own sender, such as `SelfSubjectAccessReview`.
pub(super) async fn answer(
    api: &Arc<ReadApi>,
    parts: &Parts,
    body: Body,
    root: &Root,
    review: SelfReview,
) -> Result<Response, Status> {
    let is_protobuf = is_protobuf(parts)?;
    let fleet: Arc<dyn Fleet> = api.fleet()?;
    let reader = reader_of(parts);
    let (clusters, _) = Clusters::of(root);
    let mut found = clusters.find(&*fleet);
    found.retain(|cluster| sees_cluster(&reader, &cluster.name, &cluster.labels));
    if matches!(clusters, Clusters::One(_)) && found.is_empty() {
        return Err(Status::path_not_found());
    }
    let body = to_bytes(body, MAX_BODY).await.map_err(|_| Status::request_too_large("limit is 64 KiB"))?;
    let spec = review.spec(&body, is_protobuf)?;
    let sender = Sender { api, reader, clusters: found, resources: api.resources() };
    let status = match review {
        SelfReview::Access => sender.access(&spec).await?,
        SelfReview::Rules => match spec["namespace"].as_str() {
            Some(namespace) if !namespace.is_empty() => sender.rules(namespace).await,
            _ => return Err(Status::bad_request("spec.namespace must be the name of a namespace")),
        },
        SelfReview::User => sender.user(),
    };
    let mut answer = json!({
        "kind": review.kind(),
        "apiVersion": review.api_version(),
        "metadata": { "creationTimestamp": null },
        "status": status,
    });
    if review != SelfReview::User {
        answer["spec"] = spec;
    }
    Ok(json_response(StatusCode::CREATED, answer.to_string()))
}

/// Returns whether the body is protobuf instead of JSON.
///
/// # Errors
/// [`Status`] of code 415 for other encodings.
fn is_protobuf(parts: &Parts) -> Result<bool, Status> {
    let written = parts.headers.get(CONTENT_TYPE).map_or(JSON, |value| value.to_str().unwrap_or_default());
    let media = written.split(';').next().unwrap_or_default().trim();
    match [JSON, PROTOBUF].iter().position(|known| media.eq_ignore_ascii_case(known)) {
        Some(at) => Ok(at == 1),
        None => Err(Status::unsupported_media_type(&[JSON, PROTOBUF])),
    }
}

/// Converts the body of a review from protobuf to JSON.
fn json_of(body: &[u8], review: SelfReview) -> Result<Cow<'static, [u8]>, Status> {
    let wrong = |error: ConvertError| Status::bad_request(format!("the body is not a review in protobuf: {error}"));
    let Envelope { api_version, kind, raw } = Envelope::read(body).map_err(wrong)?;
    review.check_kind(Some(api_version), Some(kind))?;
    let message = Schema::builtin().kind(api_version, kind);
    let message = message.ok_or_else(|| Status::bad_request("the body is of an unknown kind"))?;
    let mut json = Vec::new();
    Converter::default().object(message, None, raw, &Omit::default(), MAX_JSON, &mut json).map_err(wrong)?;
    Ok(Cow::Owned(json))
}

impl Sender<'_> {
    async fn access(&self, spec: &Value) -> Result<Value, Status> {
        let spec: AccessSpec = serde_json::from_value(spec.clone())
            .map_err(|error| Status::bad_request(format!("cannot decode spec: {error}")))?;
        let refusal = match (&spec.resource_attributes, &spec.non_resource_attributes) {
            (Some(wanted), None) => (!self.allows(wanted).await).then(|| self.reason(wanted)),
            (None, Some(wanted)) => {
                let is_open = OPEN_PATHS.iter().any(|open| covers(open, &wanted.path));
                let is_answered = wanted.verb.eq_ignore_ascii_case("get") && is_open;
                (!is_answered).then(|| "the hub allows only get of API, version and health paths".to_owned())
            }
            _ => {
                let text = "exactly one of spec.resourceAttributes and spec.nonResourceAttributes must be set";
                return Err(Status::bad_request(text));
            }
        };
        Ok(match refusal {
            None => json!({ "allowed": true }),
            Some(reason) => json!({ "allowed": false, "reason": reason }),
        })
    }

    /// Returns why the hub does not allow an access, as text for the answer to a review.
    fn reason(&self, wanted: &ResourceAttributes) -> String {
        if !VERBS.contains(&wanted.verb.as_str()) || !wanted.subresource.is_empty() {
            return "the hub only reads objects".to_owned();
        }
        let name = wanted.name();
        match self.find(wanted) {
            // Restricted readers must not learn which resources are cached.
            _ if !self.reader.sees_everything() => {
                format!("no rule of the hub allows it, or the hub does not cache {name}")
            }
            None => format!("the hub does not cache {name}"),
            Some(_) => format!("the hub does not serve {name}"),
        }
    }

    /// Returns the resource that a review asks about; `None` if the hub does not cache it.
    fn find(&self, wanted: &ResourceAttributes) -> Option<&ApiResource> {
        let is_it =
            |resource: &&ApiResource| resource.gvr.group == wanted.group && resource.gvr.resource == wanted.resource;
        self.resources.iter().find(is_it)
    }

    /// Returns whether the hub would answer a read of a resource.
    async fn allows(&self, wanted: &ResourceAttributes) -> bool {
        let verb = match wanted.verb.as_str() {
            "get" => Verb::Get,
            "list" => Verb::List,
            "watch" => Verb::Watch,
            _ => return false,
        };
        if !wanted.subresource.is_empty() {
            return false;
        }
        let resource = match self.find(wanted) {
            Some(resource) => resource.clone(),
            // The hub does not serve it, so no cluster is asked.
            None if self.reader.grants().reviews || !wanted.is_wildcard() => return false,
            None => ApiResource {
                gvr: Gvr::new(&wanted.group, "v1", &wanted.resource),
                kind: wanted.resource.as_str().into(),
                namespaced: true,
            },
        };
        let place = |cluster: &ClusterInfo| {
            let extent = Extent::of(Some(wanted.namespace.as_str()).filter(|namespace| !namespace.is_empty()));
            Place { cluster: cluster.name.clone(), labels: cluster.labels.clone(), extent }
        };
        let places = self.clusters.iter().map(place).collect();
        let visibility = self.api.rights().reviewed(&self.reader, verb, &resource, places).await;
        if wanted.is_wildcard() {
            return visibility.is_everything();
        }
        self.clusters.iter().any(|cluster| {
            let (name, labels) = (&cluster.name, &cluster.labels);
            match wanted.namespace.as_str() {
                "" if resource.namespaced => visibility.sees_any(name, labels),
                "" => visibility.sees(name, labels, None),
                namespace => visibility.sees(name, labels, Some(namespace).filter(|_| resource.namespaced)),
            }
        })
    }

    async fn rules(&self, namespace: &str) -> Value {
        let allowed = futures::future::join_all(self.resources.iter().map(|resource| async move {
            let wanted = ResourceAttributes {
                namespace: namespace.to_owned(),
                verb: "list".to_owned(),
                group: resource.gvr.group.to_string(),
                resource: resource.gvr.resource.to_string(),
                subresource: String::new(),
            };
            self.allows(&wanted).await.then_some(resource)
        }));
        let allowed = allowed.await;
        let texts = |resource: &ApiResource| (resource.gvr.group.to_string(), resource.gvr.resource.to_string());
        let mut names: Vec<_> = allowed.into_iter().flatten().map(texts).collect();
        names.sort_unstable();
        names.dedup();
        let rule =
            |(group, resource): &(_, _)| json!({ "verbs": VERBS, "apiGroups": [group], "resources": [resource] });
        json!({
            "resourceRules": names.iter().map(rule).collect::<Vec<_>>(),
            "nonResourceRules": [{ "verbs": ["get"], "nonResourceURLs": OPEN_PATHS }],
            "incomplete": false,
        })
    }

    fn user(&self) -> Value {
        let parts = self.reader.parts();
        let texts = |all: &[SmolStr]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
        let mut info = json!({ "username": parts.name.as_str(), "groups": texts(&parts.groups) });
        if let Some(uid) = &parts.uid {
            info["uid"] = json!(uid.as_str());
        }
        let mut extra = serde_json::Map::new();
        // Leaves out the attributes that only the hub uses.
        for (name, values) in parts.extra.iter().filter(|(name, _)| !name.starts_with("informer-hub.io/")) {
            extra.insert(name.to_string(), json!(texts(values)));
        }
        if !extra.is_empty() {
            info["extra"] = Value::Object(extra);
        }
        json!({ "userInfo": info })
    }
}

/// Returns whether the pattern `open`, which may end with `*`, matches a path.
fn covers(open: &str, path: &str) -> bool {
    open.strip_suffix('*').map_or(open == path, |prefix| path.starts_with(prefix))
}
