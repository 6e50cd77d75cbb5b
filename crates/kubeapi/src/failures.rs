//! Constructors of [`Status`], one for each failure that the read API answers.

use std::fmt;

use informer_hub_types::shortened;

use crate::quote::Quoted;
use crate::{Cause, Reason, Status, Subject};

/// A refused access to a resource, for the message of [`Status::forbidden`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Access<'a> {
    /// Name of the user.
    pub user: &'a str,
    /// Verb, such as `list`.
    pub verb: &'a str,
    /// API group; empty for the core group.
    pub group: &'a str,
    /// Plural name of the resource.
    pub resource: &'a str,
    /// Subresource; empty for none.
    pub subresource: &'a str,
    /// Namespace; empty for all, and for resources that are not namespaced.
    pub namespace: &'a str,
    /// Name of the object; empty for all.
    pub name: &'a str,
}

/// An invalid field of a request's options, for [`Status::invalid`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FieldError {
    /// The field must not be set.
    Forbidden {
        /// Invalid field.
        field: &'static str,
        /// Explanation of the mistake.
        detail: &'static str,
    },
    /// The value of the field is not one of the supported values.
    NotSupported {
        /// Invalid field.
        field: &'static str,
        /// Value that was sent.
        value: String,
        /// Values that the field supports.
        supported: &'static [&'static str],
    },
}

/// Longest name in the `details` of an answer, in characters: enough for any `<cluster>:<name>`.
const MAX_NAME: usize = 320;

/// kube-apiserver's message for a list at an exact resourceVersion whose state is no longer retained.
const LIST_EXPIRED: &str = "The resourceVersion for the provided list is too old.";
const CONTINUE_EXPIRED: &str = "The provided continue parameter is too old to display a consistent list result. You can \
                                start a new list without the continue parameter.";

impl Status {
    /// Returns 404 for an object that does not exist: `pods "web-0" not found`.
    #[must_use]
    pub fn object_not_found(group: &str, resource: &str, name: &str) -> Self {
        let message = format!("{} {} not found", Qualified(group, resource), Quoted(name));
        Self::new(404, Reason::NotFound, message).about(group, resource, name)
    }

    /// Returns 404 for a path that does not exist, and for a resource that is not served.
    #[must_use]
    pub fn path_not_found() -> Self {
        Self::new(404, Reason::NotFound, "the server could not find the requested resource").about("", "", "")
    }

    /// Returns 404 for a cluster that is not configured.
    #[must_use]
    pub fn cluster_not_found(name: &str) -> Self {
        Self::object_not_found("informer-hub.io", "clusters", name)
    }

    /// Returns 405 for an HTTP method that the path does not have.
    #[must_use]
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, Reason::MethodNotAllowed, message).about("", "", "")
    }

    /// Returns 405 for an action that a resource does not have: `create is not supported on resources of kind "pods"`.
    #[must_use]
    pub fn action_not_supported(group: &str, resource: &str, action: &str) -> Self {
        let kind = Qualified(group, resource).to_string();
        let message = format!("{action} is not supported on resources of kind {}", Quoted(&kind));
        Self::new(405, Reason::MethodNotAllowed, message).about(group, resource, "")
    }

    /// Returns 406 with the media types that are offered.
    #[must_use]
    pub fn not_acceptable(offered: &[&str]) -> Self {
        let message = format!("only the following media types are accepted: {}", offered.join(", "));
        Self::new(406, Reason::NotAcceptable, message)
    }

    /// Returns 415 with the media types that are accepted.
    #[must_use]
    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        let accepted = accepted.join(", ");
        let message =
            format!("the body of the request was in an unknown format - accepted media types include: {accepted}");
        Self::new(415, Reason::UnsupportedMediaType, message)
    }

    /// Returns 410 with this message, after which clients list again.
    #[must_use]
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, Reason::Expired, message)
    }

    /// Returns 410 for a list at a resourceVersion whose state is no longer retained.
    #[must_use]
    pub fn list_expired() -> Self {
        Self::expired(LIST_EXPIRED)
    }

    /// Returns 410 for a continue token whose snapshot is no longer retained.
    #[must_use]
    pub fn continue_expired() -> Self {
        Self::expired(CONTINUE_EXPIRED)
    }

    /// Returns 410 for a resourceVersion from which a watch cannot start or continue. A watch sends it as the object of
    /// an `ERROR` event. `oldest` is shown in parentheses: usually the oldest resourceVersion that a watch can start
    /// from, 0 if unknown.
    #[must_use]
    pub fn watch_expired(requested: u64, oldest: u64) -> Self {
        Self::expired(format!("too old resource version: {requested} ({oldest})"))
    }

    /// Returns 400 for an invalid request. `message` says why.
    #[must_use]
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, Reason::BadRequest, message)
    }

    /// Returns 422 for options that are invalid or contradict each other. `group` and `kind` name the options, such as
    /// `meta.k8s.io` and `ListOptions`.
    #[must_use]
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let mut texts: Vec<String> = Vec::new();
        for error in errors {
            let text = format!("{}: {error}", error.field());
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let problem = match texts.as_slice() {
            [] => String::new(),
            [only] => format!(": {only}"),
            several => format!(": [{}]", several.join(", ")),
        };
        let message = format!("{} {} is invalid{problem}", Qualified(group, kind), Quoted(name));
        let causes = errors.iter().map(FieldError::cause).collect();
        Self { causes, ..Self::new(422, Reason::Invalid, message).about(group, kind, name) }
    }

    /// Returns 429 for a client that exceeds a limit. The client may try again after `retry_after` seconds.
    #[must_use]
    pub fn too_many_requests(message: impl Into<String>, retry_after: u32) -> Self {
        Self { retry_after: Some(retry_after), ..Self::new(429, Reason::TooManyRequests, message) }
    }

    /// Returns 503 for a request that the hub cannot answer at present. `message` says why.
    #[must_use]
    pub fn service_unavailable(message: impl Into<String>) -> Self {
        Self::new(503, Reason::ServiceUnavailable, message)
    }

    /// Returns 500: `Internal error occurred: <problem>`.
    #[must_use]
    pub fn internal_error(problem: impl fmt::Display) -> Self {
        let problem = problem.to_string();
        let status = Self::new(500, Reason::InternalError, format!("Internal error occurred: {problem}"));
        Self { causes: vec![Cause { reason: "", message: problem, field: String::new() }], ..status }
    }

    /// Returns 504 with the message `Timeout: <message>`. `retry_after` is the number of seconds after which to try
    /// again.
    #[must_use]
    pub fn timeout(message: impl fmt::Display, retry_after: u32) -> Self {
        let status = Self::new(504, Reason::Timeout, format!("Timeout: {message}"));
        Self { retry_after: Some(retry_after), ..status }
    }

    /// Returns 504 for a requested resourceVersion that the cache has not reached in time. client-go tries again after
    /// a second.
    #[must_use]
    pub fn version_too_large(requested: u64, current: u64) -> Self {
        let message = "Too large resource version".to_owned();
        let cause = Cause { reason: "ResourceVersionTooLarge", message, field: String::new() };
        let status = Self::timeout(format_args!("Too large resource version: {requested}, current: {current}"), 1);
        Self { causes: vec![cause], ..status }
    }

    /// Returns 401 for a request without valid credentials.
    #[must_use]
    pub fn unauthorized() -> Self {
        Self::new(401, Reason::Unauthorized, "Unauthorized")
    }

    /// Returns 403 for an access to a resource. `reason` is the authorizer's; empty if it gave none.
    #[must_use]
    pub fn forbidden(access: &Access<'_>, reason: &str) -> Self {
        let Access { group, resource, name, .. } = *access;
        let name_quoted = if name.is_empty() { String::new() } else { format!(" {}", Quoted(name)) };
        let denied = with_reason(&escape_html(&access.to_string()), reason);
        let message = format!("{}{name_quoted} is forbidden: {denied}", Qualified(group, resource));
        Self::new(403, Reason::Forbidden, message).about(group, resource, name)
    }

    /// Returns 403 for an access to a path that is not a resource. `reason` is the authorizer's; empty if it gave none.
    #[must_use]
    pub fn path_forbidden(user: &str, verb: &str, path: &str, reason: &str) -> Self {
        let denied = format!("User {} cannot {verb} path {}", Quoted(user), Quoted(path));
        let message = format!("forbidden: {}", with_reason(&escape_html(&denied), reason));
        Self::new(403, Reason::Forbidden, message).about("", "", "")
    }

    /// Returns 413 for a request that exceeds a size limit. `message` says which.
    #[must_use]
    pub fn request_too_large(message: impl fmt::Display) -> Self {
        Self::new(413, Reason::RequestEntityTooLarge, format!("Request entity too large: {message}"))
    }

    /// Sets the `details` of the answer: the resource or object that the failure is about.
    #[must_use]
    pub fn about(self, group: &str, kind: &str, name: &str) -> Self {
        let name = shortened(name, MAX_NAME).into();
        let subject = Subject { group: group.into(), kind: kind.into(), name };
        Self { about: Some(Box::new(subject)), ..self }
    }
}

impl FieldError {
    fn field(&self) -> &'static str {
        match self {
            Self::Forbidden { field, .. } | Self::NotSupported { field, .. } => field,
        }
    }

    fn cause(&self) -> Cause {
        let reason = match self {
            Self::Forbidden { .. } => "FieldValueForbidden",
            Self::NotSupported { .. } => "FieldValueNotSupported",
        };
        Cause { reason, message: self.to_string(), field: self.field().to_owned() }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forbidden { detail, .. } => write!(f, "Forbidden: {detail}"),
            Self::NotSupported { value, supported, .. } => {
                let supported: Vec<_> = supported.iter().map(|value| Quoted(value).to_string()).collect();
                write!(f, "Unsupported value: {}: supported values: {}", Quoted(value), supported.join(", "))
            }
        }
    }
}

impl fmt::Display for Access<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { user, verb, group, resource, subresource, namespace, .. } = *self;
        let slash = if subresource.is_empty() { "" } else { "/" };
        let resource = format!("{resource}{slash}{subresource}");
        let (user, resource, group) = (Quoted(user), Quoted(&resource), Quoted(group));
        write!(f, "User {user} cannot {verb} resource {resource} in API group {group} ")?;
        if namespace.is_empty() {
            f.write_str("at the cluster scope")
        } else {
            write!(f, "in the namespace {}", Quoted(namespace))
        }
    }
}

/// A resource or kind with its group, as `deployments.apps`.
struct Qualified<'a>(&'a str, &'a str);

impl fmt::Display for Qualified<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(group, name) = self;
        if group.is_empty() { f.write_str(name) } else { write!(f, "{name}.{group}") }
    }
}

fn with_reason(denied: &str, reason: &str) -> String {
    if reason.is_empty() { denied.to_owned() } else { format!("{denied}: {reason}") }
}

/// Escapes `&`, `<` and `>`, since a browser may show the message as HTML.
fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
