//! Encodings that a client may request for objects, and the encoding of an apiserver's answers.

use serde::Serialize;

/// Encodings of objects that a client may request from an apiserver.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Encodings {
    /// Kubernetes protobuf where it works, else JSON.
    #[default]
    Auto,
    /// JSON only.
    Json,
}

/// Encoding of the answers of an apiserver.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AnswerEncoding {
    /// JSON.
    Json,
    /// Kubernetes protobuf.
    Protobuf,
}

/// Reason for reading a resource as JSON.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum JsonReason {
    /// The configuration demands JSON.
    Configured,
    /// The type is not built in, so it has no protobuf.
    NotBuiltIn,
    /// The server answered in JSON, or refused protobuf.
    Refused,
    /// The hub's protobuf schema does not cover a part of an object.
    Schema,
    /// An object was malformed, or several answers in a row were not the protobuf that they claimed to be.
    Faulty,
}

impl JsonReason {
    /// Reasons for which protobuf is not requested for a while.
    pub const FALLBACKS: [Self; 3] = [Self::Refused, Self::Schema, Self::Faulty];

    /// Returns the word used in the status and in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Configured => "configured",
            Self::NotBuiltIn => "not-built-in",
            Self::Refused => "refused",
            Self::Schema => "schema",
            Self::Faulty => "faulty",
        }
    }
}

/// Encoding in which an informer reads its resource.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct EncodingInUse {
    /// Encoding of the answers that the informer reads.
    pub used: AnswerEncoding,
    /// Why the encoding is JSON; absent for protobuf.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<JsonReason>,
    /// Details of the reason, for operators: why an answer was not usable as protobuf, or which part of an object the
    /// schema lacks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When protobuf is requested again; absent if protobuf is in use or the reason for JSON is permanent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<jiff::Timestamp>,
}

impl EncodingInUse {
    /// Returns the value for an informer that reads Kubernetes protobuf.
    #[must_use]
    pub fn protobuf() -> Self {
        Self { used: AnswerEncoding::Protobuf, reason: None, message: None, until: None }
    }

    /// Returns the value for an informer that always reads JSON, for a permanent `reason`.
    #[must_use]
    pub fn json(reason: JsonReason) -> Self {
        Self { used: AnswerEncoding::Json, reason: Some(reason), message: None, until: None }
    }

    /// Returns why protobuf is no longer used; `None` if it is used, or was never requested.
    #[must_use]
    pub fn fallback(&self) -> Option<JsonReason> {
        self.reason.filter(|reason| JsonReason::FALLBACKS.contains(reason))
    }
}
