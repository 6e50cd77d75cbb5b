//! Denied requests: reasons, counters and responses.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use axum::http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;

use crate::api::error_answer::denial;
use informer_hub_access::{InvalidJwt, RefusedToken};

/// Reason for denying a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::api) enum Denied {
    /// The request has no credential.
    Anonymous,
    /// The token is unknown.
    WrongToken,
    /// The request needs the right to change the hub, but its credential grants only the right to read.
    ReadOnly,
    /// The request was sent by a web page in a browser.
    WebPage,
    /// The request names a host that the hub does not serve.
    UnknownHost,
    /// The request asks to be answered as another user.
    Impersonation,
    /// The JWT of an OIDC issuer is not valid, or cannot be verified.
    Jwt(InvalidJwt),
    /// The token of a service account is not accepted, or cannot be reviewed.
    ServiceAccount(RefusedToken),
}

/// Metric labels of the reasons for denying requests, in the order of [`Denied::number`].
const REASONS: [&str; 16] = [
    "anonymous",
    "token",
    "read_only",
    "web_page",
    "host",
    "issuer",
    "algorithm",
    "signature",
    "audience",
    "expired",
    "not_yet_valid",
    "username",
    "issuer_unavailable",
    "service_account",
    "review_unavailable",
    "impersonation",
];

#[derive(Debug, Default)]
pub(super) struct DeniedCounts {
    total: [AtomicU64; REASONS.len()],
    /// Number of denied requests for each reason, as of the last call of [`Self::unreported`].
    reported: [AtomicU64; REASONS.len()],
}

impl DeniedCounts {
    pub(super) fn add(&self, denied: Denied) {
        self.total[denied.number()].fetch_add(1, Relaxed);
    }

    /// Returns the number of denied requests since the start, by reason.
    pub(super) fn all(&self) -> Vec<(&'static str, u64)> {
        let counts = REASONS.iter().zip(&self.total).map(|(reason, count)| (*reason, count.load(Relaxed)));
        counts.filter(|(_, count)| *count > 0).collect()
    }

    /// Returns the number of requests denied since the last call, by reason.
    pub(super) fn unreported(&self) -> Vec<(&'static str, u64)> {
        let counts = REASONS.iter().zip(self.total.iter().zip(&self.reported));
        let counts = counts.map(|(reason, (total, reported))| {
            let now = total.load(Relaxed);
            (*reason, now - reported.swap(now, Relaxed))
        });
        counts.filter(|(_, count)| *count > 0).collect()
    }
}

impl Denied {
    fn number(self) -> usize {
        match self {
            Self::Anonymous => 0,
            Self::WrongToken => 1,
            Self::ReadOnly => 2,
            Self::WebPage => 3,
            Self::UnknownHost => 4,
            Self::Jwt(InvalidJwt::Issuer) => 5,
            Self::Jwt(InvalidJwt::Algorithm) => 6,
            Self::Jwt(InvalidJwt::Signature) => 7,
            Self::Jwt(InvalidJwt::Audience) => 8,
            Self::Jwt(InvalidJwt::Expired) => 9,
            Self::Jwt(InvalidJwt::NotYet) => 10,
            Self::Jwt(InvalidJwt::Username) => 11,
            Self::Jwt(InvalidJwt::NoKeys) => 12,
            Self::ServiceAccount(RefusedToken::Unknown) => 13,
            Self::ServiceAccount(RefusedToken::Unanswered) => 14,
            Self::Impersonation => 15,
        }
    }

    /// Returns the label of the reason in metrics and in the audit log.
    pub(in crate::api) fn label(self) -> &'static str {
        REASONS[self.number()]
    }

    fn answer(self) -> (StatusCode, String) {
        let (status, problem) = match self {
            Self::Anonymous => {
                (StatusCode::UNAUTHORIZED, "a token is required: send the header Authorization: Bearer TOKEN")
            }
            Self::WrongToken => (StatusCode::UNAUTHORIZED, "the token is not valid; it may have been replaced"),
            Self::ReadOnly => (
                StatusCode::FORBIDDEN,
                "this reader may not change the hub; use the token of hub.auth.token, or set change = true for the reader",
            ),
            Self::UnknownHost => (
                StatusCode::MISDIRECTED_REQUEST,
                "the hub is not served under this host name; add the name to hub.allowed_hosts to allow it",
            ),
            Self::WebPage => (StatusCode::FORBIDDEN, "a web page may not send this request without a token"),
            Self::Impersonation => (
                StatusCode::FORBIDDEN,
                "the hub answers no request as another user: leave out the headers Impersonate-* (kubectl --as, --as-group, \
                 --as-uid)",
            ),
            Self::Jwt(reason @ InvalidJwt::NoKeys) => return (StatusCode::SERVICE_UNAVAILABLE, reason.to_string()),
            Self::Jwt(reason) => return (StatusCode::UNAUTHORIZED, reason.to_string()),
            Self::ServiceAccount(reason @ RefusedToken::Unanswered) => {
                return (StatusCode::SERVICE_UNAVAILABLE, reason.to_string());
            }
            Self::ServiceAccount(reason) => return (StatusCode::UNAUTHORIZED, reason.to_string()),
        };
        (status, problem.to_owned())
    }

    /// Returns the response to a denied request: a Kubernetes `Status` if `path` is below `/clusters/` or `/unique/`,
    /// else JSON.
    pub(in crate::api) fn response(self, path: &str) -> Response {
        let (status, problem) = self.answer();
        let mut response = denial(path, status, &problem);
        let header = match status {
            StatusCode::UNAUTHORIZED => (WWW_AUTHENTICATE, "Bearer realm=\"informer-hub\""),
            StatusCode::SERVICE_UNAVAILABLE => (RETRY_AFTER, "5"),
            _ => return response,
        };
        response.headers_mut().insert(header.0, HeaderValue::from_static(header.1));
        response
    }
}
