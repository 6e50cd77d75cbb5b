//! Events in the form of `audit.k8s.io/v1`, as kube-apiserver writes them at the level `Metadata`.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use serde::{Serialize, Serializer};
use smol_str::SmolStr;

/// Maximum number of a user's groups that an event lists.
const MAX_GROUPS: usize = 64;

/// Maximum length of a user's name, UID and groups, in characters. Longer texts are cut.
const MAX_TEXT: usize = 256;

/// Stage of a request at which an event is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum Stage {
    /// The head of the response of a watch was sent.
    ResponseStarted,
    /// The response is complete, or has broken off.
    ResponseComplete,
    /// The hub panicked while it handled the request.
    Panic,
}

/// Sender of a request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct User {
    username: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    groups: Vec<String>,
}

impl User {
    /// Creates a user. Cuts texts after 256 characters, and drops the groups after the first 64.
    #[must_use]
    pub fn new(name: &str, uid: Option<&str>, groups: &[SmolStr]) -> Self {
        let groups = groups.iter().take(MAX_GROUPS).map(|group| cut(group, MAX_TEXT)).collect();
        Self { username: cut(name, MAX_TEXT), uid: uid.map(|uid| cut(uid, MAX_TEXT)), groups }
    }
}

/// Objects that a request is about.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectRef {
    /// Plural name of the resource.
    pub resource: String,
    /// Namespace of the objects; empty for all namespaces.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name of the object; empty for all objects.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// API group; empty for the core group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_group: String,
    /// Version of the API.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// Subresource, such as `status`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subresource: String,
}

/// One event of the audit log: a request at one of its stages.
///
/// The caller must first bound the length of texts from the client, and remove credentials from them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// Identifier of the request, the same in all of its events.
    pub id: String,
    /// Stage of the request at which the event is written.
    pub stage: Stage,
    /// Path and query, without credentials: the result of [`request_uri`](crate::request_uri).
    pub uri: String,
    /// Verb as Kubernetes names it, or the HTTP method.
    pub verb: String,
    /// User who sent the request.
    pub user: User,
    /// Address of the client's connection.
    pub source: Option<IpAddr>,
    /// Program of the client: the result of [`user_agent`](crate::user_agent).
    pub agent: Option<String>,
    /// Object that is requested; `None` for paths without objects, and for requests of several resources.
    pub object: Option<ObjectRef>,
    /// HTTP status of the response; `None` if the client disconnected before a response was sent.
    pub code: Option<u16>,
    /// When the request was received.
    pub received: Timestamp,
    /// When the stage was reached.
    pub at: Timestamp,
    /// Additional facts by key, such as the decision and its reason, the clusters, and the numbers of objects and bytes
    /// sent.
    pub annotations: BTreeMap<&'static str, String>,
}

/// An [`Event`] in the form in which it is written as JSON: an `Event` of `audit.k8s.io/v1`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Written<'e> {
    kind: &'static str,
    api_version: &'static str,
    level: &'static str,
    #[serde(rename = "auditID")]
    audit_id: &'e str,
    stage: Stage,
    #[serde(rename = "requestURI")]
    request_uri: &'e str,
    verb: &'e str,
    user: &'e User,
    #[serde(rename = "sourceIPs", skip_serializing_if = "Option::is_none")]
    source_ips: Option<[IpAddr; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_agent: &'e Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    object_ref: &'e Option<ObjectRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_status: Option<ResponseStatus>,
    request_received_timestamp: MicroTime,
    stage_timestamp: MicroTime,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: &'e BTreeMap<&'static str, String>,
}

#[derive(Serialize)]
struct ResponseStatus {
    metadata: ResponseMetadata,
    code: u16,
}

#[derive(Serialize)]
struct ResponseMetadata {}

impl Event {
    /// Returns the event as a line of JSON, with its line break.
    #[must_use]
    pub fn line(&self) -> Vec<u8> {
        let written = Written {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level: "Metadata",
            audit_id: &self.id,
            stage: self.stage,
            request_uri: &self.uri,
            verb: &self.verb,
            user: &self.user,
            source_ips: self.source.map(|source| [source]),
            user_agent: &self.agent,
            object_ref: &self.object,
            response_status: self.code.map(|code| ResponseStatus { metadata: ResponseMetadata {}, code }),
            request_received_timestamp: MicroTime(self.received),
            stage_timestamp: MicroTime(self.at),
            annotations: &self.annotations,
        };
        // Cannot fail: texts and numbers always have a form in JSON.
        let mut line = serde_json::to_vec(&written).unwrap_or_default();
        line.push(b'\n');
        line
    }

    /// Returns an event that reports how many events were lost.
    pub(crate) fn of_losses(id: String, lost: u64, at: Timestamp) -> Self {
        Self {
            id,
            stage: Stage::ResponseComplete,
            uri: String::new(),
            verb: "lost".to_owned(),
            user: User::new("system:informer-hub", None, &[]),
            source: None,
            agent: None,
            object: None,
            code: None,
            received: at,
            at,
            annotations: BTreeMap::from([("informer-hub.io/lost-events", lost.to_string())]),
        }
    }
}

/// Cuts a text after `most` characters, and marks the cut with `…`.
pub(crate) fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}…", &text[..at]),
    }
}

/// Time in the form of Kubernetes' `MicroTime`.
struct MicroTime(Timestamp);

impl Serialize for MicroTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:.6}", self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> Event {
        Event {
            id: "00000000-0000-4000-8000-000000000001".to_owned(),
            stage: Stage::ResponseComplete,
            uri: "/clusters/a/apis/apps/v1/namespaces/shop/deployments?limit=500".to_owned(),
            verb: "list".to_owned(),
            user: User::new("ann", None, &["sre".into(), "system:authenticated".into()]),
            source: Some([127, 0, 0, 1].into()),
            agent: Some("kubectl/v1.37.0".to_owned()),
            object: Some(ObjectRef {
                resource: "deployments".to_owned(),
                namespace: "shop".to_owned(),
                api_group: "apps".to_owned(),
                api_version: "v1".to_owned(),
                ..ObjectRef::default()
            }),
            code: Some(200),
            received: Timestamp::new(1_700_000_000, 0).unwrap(),
            at: Timestamp::new(1_700_000_000, 1_500_999).unwrap(),
            annotations: BTreeMap::from([("authorization.k8s.io/decision", "allow".to_owned())]),
        }
    }

    #[test]
    fn event_has_the_form_of_kube_apiserver() {
        let expected = concat!(
            r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","#,
            r#""auditID":"00000000-0000-4000-8000-000000000001","stage":"ResponseComplete","#,
            r#""requestURI":"/clusters/a/apis/apps/v1/namespaces/shop/deployments?limit=500","verb":"list","#,
            r#""user":{"username":"ann","groups":["sre","system:authenticated"]},"sourceIPs":["127.0.0.1"],"#,
            r#""userAgent":"kubectl/v1.37.0","objectRef":{"resource":"deployments","namespace":"shop","#,
            r#""apiGroup":"apps","apiVersion":"v1"},"responseStatus":{"metadata":{},"code":200},"#,
            r#""requestReceivedTimestamp":"2023-11-14T22:13:20.000000Z","#,
            r#""stageTimestamp":"2023-11-14T22:13:20.001500Z","#,
            r#""annotations":{"authorization.k8s.io/decision":"allow"}}"#,
            "\n"
        );
        assert_eq!(String::from_utf8(event().line()).unwrap(), expected);
    }

    #[test]
    fn event_is_one_line_whatever_its_texts_contain() {
        let text = "a\nb\r\u{0}\"\\\u{2028}";
        let event =
            Event { uri: text.to_owned(), agent: Some(text.to_owned()), user: User::new(text, None, &[]), ..event() };
        let line = event.line();
        assert_eq!(line.iter().position(|byte| *byte == b'\n'), Some(line.len() - 1));
        let json: serde_json::Value = serde_json::from_slice(&line).unwrap();
        assert_eq!((&json["requestURI"], &json["user"]["username"]), (&text.into(), &text.into()));
    }

    #[test]
    fn users_with_long_names_and_many_groups_are_cut() {
        let groups: Vec<SmolStr> = (0..1000).map(|number| format!("{}{number}", "ü".repeat(300)).into()).collect();
        let user = User::new(&"x".repeat(10_000), Some(&"y".repeat(10_000)), &groups);
        assert_eq!(user.username.chars().count(), MAX_TEXT + 1);
        assert_eq!((user.groups.len(), user.groups[0].chars().count()), (MAX_GROUPS, MAX_TEXT + 1));
        let event = Event { user, ..event() };
        assert!(event.line().len() < 64 << 10);
    }
}
