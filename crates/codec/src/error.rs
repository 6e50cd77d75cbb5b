//! Errors of lists and watches, with the class by which the reflector decides its reaction.

use std::time::Duration;

use informer_hub_types::ListReason;

/// A failed list or watch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SourceError {
    /// The class that decides how to react.
    pub class: ErrorClass,
    /// Text that names the request and the failure. Contains no secret and no object data.
    pub message: String,
}

/// Class of a failure, by the reaction that it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// 429, or a 5xx that says when to retry. The request may be repeated after this duration; `None` if the server
    /// names none.
    ///
    /// The duration is from the header `Retry-After`, or from `retryAfterSeconds` in the `Status`.
    Throttled(Option<Duration>),
    /// The apiserver refuses connections (ECONNREFUSED): repeat the request after a backoff.
    Refused,
    /// 410 Gone, or reason Expired: the `resourceVersion` or the continue token is too old.
    Expired,
    /// The apiserver has not reached the requested `resourceVersion` yet.
    TooLarge,
    /// 401: missing or invalid credentials.
    Unauthorized,
    /// 403: no permission.
    Forbidden,
    /// 404: the resource does not exist, or no longer.
    NotFound,
    /// The server does not support streaming lists (400, 403, 422 that mention `sendInitialEvents` or
    /// `resourceVersionMatch`), or violates their protocol.
    StreamingUnsupported,
    /// Protocol violation (wrong content type, invalid JSON, a line that is too long), or an object that the apiserver
    /// cannot read from etcd (`StoreReadError`).
    Malformed,
    /// No data before a deadline.
    Stalled,
    /// Any other failure: 5xx, connection resets, timeouts.
    Transient,
}

impl ErrorClass {
    /// Returns whether the server refused access, or lacks the resource. Usually an operator has to fix it.
    #[must_use]
    pub fn is_refusal(self) -> bool {
        matches!(self, Self::Unauthorized | Self::Forbidden | Self::NotFound)
    }

    /// Returns whether the server could not be reached: down, disconnected, or failing behind a proxy.
    #[must_use]
    pub fn is_unreachable(self) -> bool {
        matches!(self, Self::Refused | Self::Stalled | Self::Transient)
    }

    /// Returns whether the error shows that the server works: it rejected only the requested `resourceVersion` or kind
    /// of list.
    #[must_use]
    pub fn is_healthy_answer(self) -> bool {
        matches!(self, Self::Expired | Self::TooLarge | Self::StreamingUnsupported)
    }

    /// Returns the reason that is reported for the relist after this failure.
    #[must_use]
    pub fn list_reason(self) -> ListReason {
        match self {
            Self::Expired => ListReason::Expired,
            Self::TooLarge => ListReason::TooLarge,
            Self::Malformed => ListReason::Malformed,
            Self::StreamingUnsupported => ListReason::Unsupported,
            Self::Unauthorized | Self::Forbidden | Self::NotFound => ListReason::Refused,
            Self::Transient | Self::Stalled | Self::Refused | Self::Throttled(_) => ListReason::Failed,
        }
    }
}

pub(super) fn malformed(message: impl Into<String>) -> SourceError {
    SourceError { class: ErrorClass::Malformed, message: message.into() }
}
