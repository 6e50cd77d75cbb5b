//! `Status`: errors in the form that Kubernetes clients understand.

use std::fmt;

use informer_hub_types::shortened;
use serde::Serialize;
use smol_str::SmolStr;

use crate::encode::json;

/// Machine-readable reason of a failure, apimachinery's `StatusReason`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[allow(missing_docs)]
pub enum Reason {
    BadRequest,
    Unauthorized,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    NotAcceptable,
    Conflict,
    Gone,
    Expired,
    Invalid,
    UnsupportedMediaType,
    RequestEntityTooLarge,
    TooManyRequests,
    InternalError,
    ServiceUnavailable,
    Timeout,
}

/// Longest message, in characters. A message may quote data that the client has sent.
const MAX_MESSAGE: usize = 1500;

/// One cause of a failure.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Cause {
    /// Machine-readable kind, such as `ResourceVersionTooLarge`; empty if there is none.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub reason: &'static str,
    /// Description of the cause, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Field of the request; empty if the cause is not in a field.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

/// Resource or object that a failure is about. Unknown fields are empty.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Subject {
    /// API group.
    pub group: SmolStr,
    /// Plural name of the resource, such as `pods`. If request options are invalid, the kind of the options, such as
    /// `ListOptions`.
    pub kind: SmolStr,
    /// Name of the object.
    pub name: SmolStr,
}

/// A failure of a request. The constructors have kube-apiserver's codes, reasons and texts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// HTTP code.
    pub code: u16,
    /// Machine-readable reason, such as `NotFound`.
    pub reason: Reason,
    /// Description of the failure, for people.
    pub message: String,
    /// Resource or object that the failure is about; `None` if unknown.
    pub about: Option<Box<Subject>>,
    /// Details of the failure, such as one for each invalid field; often empty.
    pub causes: Vec<Cause>,
    /// Seconds after which a client may try again; `None` if the answer names no time.
    pub retry_after: Option<u32>,
}

/// The JSON of a [`Status`], with its members in kube-apiserver's order.
#[derive(Serialize)]
struct Document<'a> {
    kind: &'static str,
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    metadata: Metadata,
    status: &'static str,
    message: &'a str,
    reason: Reason,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Details<'a>>,
    code: u16,
}

/// `metadata` of the answer: always an empty object.
#[derive(Serialize)]
struct Metadata {}

#[derive(Serialize)]
struct Details<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    group: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    kind: &'a str,
    #[serde(skip_serializing_if = "<[Cause]>::is_empty")]
    causes: &'a [Cause],
    #[serde(rename = "retryAfterSeconds", skip_serializing_if = "Option::is_none")]
    retry_after: Option<u32>,
}

impl Status {
    /// Returns a failure with a code, a reason and a message. A long message is truncated.
    #[must_use]
    pub fn new(code: u16, reason: Reason, message: impl Into<String>) -> Self {
        let message = shortened(&message.into(), MAX_MESSAGE).into_owned();
        Self { code, reason, message, about: None, causes: Vec::new(), retry_after: None }
    }

    /// Returns the JSON of the failure, on one line and without a line feed at the end.
    #[must_use]
    pub fn json(&self) -> Vec<u8> {
        let document = Document {
            kind: "Status",
            api_version: "v1",
            metadata: Metadata {},
            status: "Failure",
            message: &self.message,
            reason: self.reason,
            details: self.details(),
            code: self.code,
        };
        json(&document)
    }

    fn details(&self) -> Option<Details<'_>> {
        let retry_after = self.retry_after.filter(|seconds| *seconds > 0);
        if self.about.is_none() && self.causes.is_empty() && self.retry_after.is_none() {
            return None;
        }
        let (group, kind, name) = self.about.as_deref().map_or(("", "", ""), |about| {
            let Subject { group, kind, name } = about;
            (group.as_str(), kind.as_str(), name.as_str())
        });
        Some(Details { name, group, kind, causes: &self.causes, retry_after })
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Status {}

#[cfg(test)]
mod tests;
