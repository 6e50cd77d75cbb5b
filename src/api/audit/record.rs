//! Record of one request, from which its audit events are written.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use axum::http::header::USER_AGENT;
use axum::http::{HeaderName, HeaderValue, Method, Request, response};
use jiff::Timestamp;

use super::Auditor;
use super::target::Target;
use crate::api::authentication::{Access, Denied};
use crate::api::extensions::{PeerAddress, Streaming};
use crate::api::notes::{Notes, Read};
use informer_hub_access::{Reader, ReaderOrigin};
use informer_hub_audit::{
    Event, Facts, Level, ObjectRef, ResourceName, Stage, User, decoded_path, request_uri, user_agent,
};
use informer_hub_types::ClusterName;
use informer_hub_types::clock::{self, Instant};

/// Header of the response with the identifier of the request, as kube-apiserver sends it.
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// Maximum length of a namespace and of a name in an event, in characters.
const MAX_NAME: usize = 253;

/// Data of one request for the audit log. Dropping it writes the request's last audit event.
pub(in crate::api) struct Record {
    auditor: Arc<Auditor>,
    id: String,
    uri: String,
    /// Percent-decoded path of the request, which the audit policy compares with its rules.
    path: String,
    target: Target,
    is_head: bool,
    source: IpAddr,
    agent: Option<String>,
    received: Timestamp,
    began: Instant,
    notes: Notes,
    reader: Reader,
    denied: Option<Denied>,
    /// Status of the response.
    code: Option<u16>,
    /// Bytes of the body that were handed to the connection.
    bytes: u64,
    is_complete: bool,
}

impl Record {
    pub(super) fn new<B>(
        auditor: Arc<Auditor>,
        request: &Request<B>,
        PeerAddress(source): PeerAddress,
        access: &Access,
    ) -> Self {
        let is_secret = access.secrets_of(request.headers());
        let uri = request.uri();
        let whole = uri.path_and_query().map_or("", |whole| whole.as_str());
        let agent = request.headers().get(USER_AGENT).map(|agent| String::from_utf8_lossy(agent.as_bytes()));
        Self {
            id: auditor.log.next_id(),
            uri: request_uri(whole, &is_secret),
            path: decoded_path(uri.path()),
            target: Target::of(request.method(), uri),
            is_head: *request.method() == Method::HEAD,
            source,
            agent: agent.map(|agent| user_agent(&agent, &is_secret)),
            received: clock::wall(),
            began: clock::now(),
            notes: Notes::default(),
            reader: Reader::unknown(),
            denied: None,
            code: None,
            bytes: 0,
            is_complete: false,
            auditor,
        }
    }

    pub(in crate::api) fn notes(&self) -> Notes {
        self.notes.clone()
    }

    /// Sets the reader that sent the request, once it is identified.
    pub(in crate::api) fn identified(&mut self, reader: &Reader) {
        self.reader = reader.clone();
    }

    pub(in crate::api) fn denied(&mut self, denied: Denied) {
        self.denied = Some(denied);
    }

    /// Records the status of the response and adds the audit ID to its headers. For a stream of changes, also writes
    /// the event `ResponseStarted`.
    pub(super) fn answered(&mut self, head: &mut response::Parts) {
        self.code = Some(head.status.as_u16());
        if let Ok(id) = HeaderValue::from_str(&self.id) {
            head.headers.insert(AUDIT_ID, id);
        }
        if self.target.verb == "watch" && head.extensions.get::<Streaming>().is_some() {
            self.write(Stage::ResponseStarted);
        }
    }

    /// Returns whether the request's method is `HEAD`. The response then has no body.
    pub(super) fn is_head(&self) -> bool {
        self.is_head
    }

    pub(super) fn sent(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// Records that the whole answer was handed to the connection.
    pub(super) fn completed(&mut self) {
        self.is_complete = true;
    }

    /// Returns whether access control or the handler denied the request. A handler that hid objects has denied it too,
    /// although its answer may be 404.
    fn is_denied(&self) -> bool {
        self.denied.is_some() || self.notes.is_withheld() || matches!(self.code, Some(401 | 403))
    }

    fn write(&self, stage: Stage) {
        let read = self.notes.read();
        let object = self.object(&read);
        let mut resources: Vec<_> = read
            .resources
            .iter()
            .map(|gvr| ResourceName { group: gvr.group.clone(), resource: gvr.resource.clone() })
            .collect();
        if let Some(object) = object.as_ref().filter(|_| resources.is_empty()) {
            let (group, resource) = (object.api_group.as_str().into(), object.resource.as_str().into());
            resources.push(ResourceName { group, resource });
        }
        let parts = self.reader.parts();
        let facts = Facts {
            reader: &parts.name,
            groups: &parts.groups,
            verb: &self.target.verb,
            resources: &resources,
            path: &self.path,
            is_denied: self.is_denied(),
        };
        if self.auditor.policy.level(&facts) == Level::None {
            return;
        }
        self.auditor.log.push(&Event {
            id: self.id.clone(),
            stage,
            uri: self.uri.clone(),
            verb: self.target.verb.clone(),
            user: User::new(&parts.name, parts.uid.as_deref(), &parts.groups),
            source: Some(self.source),
            agent: self.agent.clone(),
            object,
            code: if stage == Stage::Panic { Some(500) } else { self.code },
            received: self.received,
            at: clock::wall(),
            annotations: self.annotations(stage, &read),
        });
    }

    /// Returns the object reference for the audit event. If the request's path names an object or resource, returns a
    /// reference to it.
    ///
    /// Otherwise returns a reference to the resource that the handler has read, with the object if only one was read.
    /// `None` if the handler has read several resources or none.
    fn object(&self, read: &Read) -> Option<ObjectRef> {
        let [gvr] = &read.resources[..] else { return self.target.object.clone() };
        let of_path = self.target.object.clone();
        let (namespace, name) = read.object.clone().unwrap_or_default();
        let cut = |text: String| text.chars().take(MAX_NAME).collect();
        Some(of_path.unwrap_or_else(|| ObjectRef {
            resource: gvr.resource.to_string(),
            namespace: cut(namespace),
            name: cut(name),
            api_group: gvr.group.to_string(),
            api_version: gvr.version.to_string(),
            subresource: String::new(),
        }))
    }

    fn annotations(&self, stage: Stage, read: &Read) -> BTreeMap<&'static str, String> {
        let decision = if self.is_denied() { "forbid" } else { "allow" };
        let mut all = BTreeMap::from([
            ("authorization.k8s.io/decision", decision.to_owned()),
            ("authorization.k8s.io/reason", self.reason()),
        ]);
        if !read.clusters.is_empty() {
            let names: Vec<_> = read.clusters.iter().map(ClusterName::as_str).collect();
            all.insert("informer-hub.io/clusters", names.join(","));
            let count = read.clusters.len() + read.more_clusters;
            all.insert("informer-hub.io/cluster-count", count.to_string());
        }
        if stage == Stage::ResponseStarted {
            return all;
        }
        if !read.resources.is_empty() || self.notes.objects() > 0 {
            all.insert("informer-hub.io/objects", self.notes.objects().to_string());
        }
        all.insert("informer-hub.io/bytes", self.bytes.to_string());
        let took = clock::now().duration_since(self.began);
        all.insert("informer-hub.io/latency", format!("{:.6}s", took.as_secs_f64()));
        if !self.is_complete {
            all.insert("informer-hub.io/incomplete", "the client disconnected, or the answer was cut off".to_owned());
        }
        all
    }

    /// Returns why the request was allowed or denied, as text for the event.
    fn reason(&self) -> String {
        if let Some(denied) = self.denied {
            return denied.label().to_owned();
        }
        if self.is_denied() {
            return "no rule and no access review allows it".to_owned();
        }
        let grants = self.reader.grants();
        match (self.reader.origin(), grants.everything) {
            (ReaderOrigin::Anonymous, true) => "the port requires no credential".to_owned(),
            (ReaderOrigin::Anonymous, false) => "the path is public".to_owned(),
            (ReaderOrigin::Administrator, _) => "hub.auth.token".to_owned(),
            (ReaderOrigin::ReadToken, _) => "hub.auth.read_token".to_owned(),
            (ReaderOrigin::Table(name), _) => format!("readers.{name}"),
            (ReaderOrigin::Certificate, true) if grants.rules.is_empty() => {
                "a client certificate that belongs to no reader".to_owned()
            }
            _ => match (grants.rules.is_empty(), grants.reviews) {
                (false, false) => "rules of readers".to_owned(),
                (false, true) => "rules of readers, or access reviews".to_owned(),
                (true, true) => "access reviews".to_owned(),
                (true, false) => "a reader without rules".to_owned(),
            },
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.write(if std::thread::panicking() { Stage::Panic } else { Stage::ResponseComplete });
        self.auditor.ended();
    }
}
