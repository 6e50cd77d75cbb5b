//! Reasons for which an informer lists a resource, as metrics count them.

/// Reason for which an informer lists a resource.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ListReason {
    /// First list of the informer.
    First,
    /// An actor of the informer was restarted.
    Restart,
    /// The server no longer has the resourceVersion from which the watch was to resume (410).
    Expired,
    /// The apiserver's resourceVersion is older than the one that the hub requested or has cached: the apiserver lags
    /// behind, or its etcd was restored from a backup.
    TooLarge,
    /// The previous watch or list failed: connection, timeout, overload or server error.
    Failed,
    /// The previous watch ended without a resourceVersion from which a new one could resume.
    Ended,
    /// The response was malformed, or the server reported that it could not read its own data.
    Malformed,
    /// The server answered 401, 403 or 404.
    Refused,
    /// The server does not support the streaming list that was tried before.
    Unsupported,
}

impl ListReason {
    /// All reasons.
    pub const ALL: [Self; 9] = [
        Self::First,
        Self::Restart,
        Self::Expired,
        Self::TooLarge,
        Self::Failed,
        Self::Ended,
        Self::Malformed,
        Self::Refused,
        Self::Unsupported,
    ];

    /// Returns the word used in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Restart => "restart",
            Self::Expired => "expired",
            Self::TooLarge => "too_large",
            Self::Failed => "failed",
            Self::Ended => "ended",
            Self::Malformed => "malformed",
            Self::Refused => "refused",
            Self::Unsupported => "unsupported",
        }
    }
}
