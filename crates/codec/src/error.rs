//! Errors of lists and watches, classified by the reaction they need.

use std::time::Duration;

use informer_hub_types::ListReason;

/// Why a list or watch failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SourceError {
    /// What to do about it.
    pub class: ErrorClass,
    /// What happened, naming the request and the answer; no secret, no object data.
    pub message: String,
}

/// What a failure asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// 429, or 503 with Retry-After: same request again, not before this long.
    Throttled(Option<Duration>),
    /// The apiserver does not accept connections (ECONNREFUSED): same request again, after a backoff.
    Refused,
    /// 410 Gone, or reason Expired: the version or the continue token is too old.
    Expired,
    /// The apiserver has not come as far as the version asked for.
    TooLarge,
    /// 401.
    Unauthorized,
    /// 403.
    Forbidden,
    /// 404: no such resource (any more).
    NotFound,
    /// The server does not do streaming lists (400, 403, 422 that speak of `sendInitialEvents` or
    /// `resourceVersionMatch`), or did not keep their protocol.
    StreamingUnsupported,
    /// Bytes that are not the protocol: wrong content type, broken JSON, an endless line.
    Malformed,
    /// Nothing came for too long.
    Stalled,
    /// Anything else: 5xx, resets, time-outs.
    Transient,
}

impl ErrorClass {
    /// Whether the server has answered that it is not for who asked: somebody has to mend that.
    #[must_use]
    pub fn is_refusal(self) -> bool {
        matches!(self, Self::Unauthorized | Self::Forbidden | Self::NotFound)
    }

    /// Whether the server has not answered, as far as can be told: down, cut off, or broken behind a proxy.
    #[must_use]
    pub fn is_silence(self) -> bool {
        matches!(self, Self::Refused | Self::Stalled | Self::Transient)
    }

    /// Whether the server works, and only the version or the kind of list asked for cannot be had.
    #[must_use]
    pub fn is_answer(self) -> bool {
        matches!(self, Self::Expired | Self::TooLarge | Self::StreamingUnsupported)
    }

    /// Why a list begins that follows such a failure.
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

/// An error of class [`ErrorClass::Malformed`].
pub(super) fn malformed(message: impl Into<String>) -> SourceError {
    SourceError { class: ErrorClass::Malformed, message: message.into() }
}
