//! Access control of the HTTP API: checks tokens and certificates of requests. Probes are public.
//!
//! | request | requires |
//! |---|---|
//! | `/livez`, `/readyz` | nothing; the details of unreadiness require the right to look |
//! | `/metrics` | nothing if `metrics_open` is set, else the right to look |
//! | any method of `/v1/query` and below `/clusters/` and `/unique/`, which read only | the right to look |
//! | `GET` and `HEAD` of any other path, known or not | the right to look |
//! | every other method | the right to change |
//!
//! If no credential is required, the host named in the request must be one that the hub serves ([`Hosts`]).

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arc_swap::ArcSwap;
use axum::http::header::{AUTHORIZATION, ORIGIN, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use axum::response::Response;
use hmac::digest::CtOutput;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::answer::{denial, is_kubernetes};
use super::hosts::Hosts;
use informer_hub_access::Reader;
use informer_hub_disk::FileStates;

/// Minimum token length; a shorter token could be guessed.
const MIN_TOKEN: usize = 16;

/// Maximum token length; a longer token does not fit into a request's head.
const MAX_TOKEN: usize = 4096;

/// Invalid token; the owner of the secret can fix it. Does not contain the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidToken {
    /// Too short or too long.
    #[error("the token has {0} characters, expected {MIN_TOKEN} to {MAX_TOKEN}: `openssl rand -hex 32` creates one")]
    Length(
        /// Length of the token.
        usize,
    ),
    /// Contains characters that a header must not contain.
    #[error("the token has white space or non-ASCII characters: `openssl rand -hex 32` creates one")]
    Characters,
}

/// Checks the format of a token.
///
/// # Errors
/// [`InvalidToken`] if the length or a character is invalid.
pub fn check_token(text: &str) -> Result<(), InvalidToken> {
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(InvalidToken::Characters);
    }
    if (MIN_TOKEN..=MAX_TOKEN).contains(&text.len()) { Ok(()) } else { Err(InvalidToken::Length(text.len())) }
}

/// Function that reads a secret.
pub type ReadSecret = Arc<dyn Fn() -> io::Result<String> + Send + Sync>;

/// Source of a token.
#[derive(Clone)]
pub struct TokenFrom {
    file: Option<PathBuf>,
    read: ReadSecret,
}

impl TokenFrom {
    /// Creates a source that calls `read` at the start and whenever `file` has changed.
    #[must_use]
    pub fn new(file: Option<PathBuf>, read: ReadSecret) -> Self {
        Self { file, read }
    }

    fn mac(&self) -> Result<TokenMac, TokenError> {
        let place =
            || self.file.as_deref().map_or_else(|| "its variable".to_owned(), |file| file.display().to_string());
        let text = (self.read)().map_err(|source| TokenError::Unreadable { place: place(), source })?;
        check_token(&text).map_err(|source| TokenError::Invalid { place: place(), source })?;
        Ok(mac(text.as_bytes()))
    }
}

impl fmt::Debug for TokenFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenFrom").field("file", &self.file).finish_non_exhaustive()
    }
}

/// Token that cannot be read or used; the owner of the secret can fix it.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The source could not be read.
    #[error("cannot read the token in {place}")]
    Unreadable {
        /// File or variable.
        place: String,
        /// Error of the read.
        #[source]
        source: io::Error,
    },
    /// The content is not a valid token.
    #[error("the content of {place} is not a token")]
    Invalid {
        /// File or variable.
        place: String,
        /// Reason.
        #[source]
        source: InvalidToken,
    },
}

/// MAC of a token. Comparing two takes constant time.
type TokenMac = CtOutput<Hmac<Sha256>>;

fn mac(token: &[u8]) -> TokenMac {
    let mac = Hmac::<Sha256>::new_from_slice(b"informer-hub token").expect("HMAC takes a key of any length");
    mac.chain_update(token).finalize()
}

/// Right that a request requires or a credential grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Right {
    Read,
    Write,
}

/// Whether the caller has the right to look. Passed to the handler as a request extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MayRead(pub(super) bool);

impl MayRead {
    /// Returns the reader of the request. `is_open` if no credential is required.
    pub(super) fn reader(self, is_open: bool) -> Reader {
        match (self.0, is_open) {
            (true, true) => Reader::open(),
            (true, false) => Reader::administrator(),
            (false, _) => Reader::unknown(),
        }
    }
}

/// Reason for denying a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Denied {
    /// The request has no credential.
    Anonymous,
    /// The token is unknown.
    WrongToken,
    /// The token grants only the right to look.
    ReadOnly,
    /// The request was sent by a web page in a browser.
    WebPage,
    /// The request names a host that the hub does not serve.
    UnknownHost,
}

/// MACs of the current tokens.
#[derive(Default)]
struct TokenMacs {
    change: Option<TokenMac>,
    look: Option<TokenMac>,
}

/// Decides whether requests are allowed.
pub(super) struct Access {
    token: Option<TokenFrom>,
    read_token: Option<TokenFrom>,
    macs: ArcSwap<TokenMacs>,
    /// Whether client certificates are accepted.
    certificates: bool,
    metrics_open: bool,
    /// Hosts accepted in requests without a credential; `None` accepts any.
    hosts: Option<Hosts>,
    /// Denied requests since the last report.
    refused: AtomicU64,
    /// Requests for other hosts since the last report.
    misdirected: AtomicU64,
}

impl Access {
    pub(super) fn new(
        token: Option<TokenFrom>,
        read_token: Option<TokenFrom>,
        certificates: bool,
        metrics_open: bool,
        hosts: Option<Hosts>,
    ) -> Result<Self, TokenError> {
        let (refused, misdirected) = (AtomicU64::new(0), AtomicU64::new(0));
        let macs = ArcSwap::default();
        let access = Self { token, read_token, macs, certificates, metrics_open, hosts, refused, misdirected };
        access.reload_tokens()?;
        Ok(access)
    }

    /// Returns the state of the token files.
    pub(super) fn files(&self) -> FileStates {
        let tokens = [&self.token, &self.read_token].into_iter().flatten();
        FileStates::of(tokens.filter_map(|token| token.file.as_ref()))
    }

    /// Reads the tokens again. If one cannot be read, all stay unchanged.
    pub(super) fn reload_tokens(&self) -> Result<(), TokenError> {
        let mac = |token: &Option<TokenFrom>| token.as_ref().map(TokenFrom::mac).transpose();
        self.macs.store(Arc::new(TokenMacs { change: mac(&self.token)?, look: mac(&self.read_token)? }));
        Ok(())
    }

    /// Returns the number of denied requests since the last call.
    pub(super) fn refused(&self) -> u64 {
        self.refused.swap(0, Relaxed)
    }

    /// Returns the number of requests for other hosts since the last call.
    pub(super) fn misdirected(&self) -> u64 {
        self.misdirected.swap(0, Relaxed)
    }

    /// Returns whether no credential is required.
    pub(super) fn is_open(&self) -> bool {
        !self.certificates && self.token.is_none() && self.read_token.is_none()
    }

    /// Decides a request. `certified` is set if the connection has a valid client certificate.
    pub(super) fn authorize<B>(&self, request: &Request<B>, certified: bool) -> Result<MayRead, Denied> {
        let path = request.uri().path();
        // The read API changes nothing, whatever the method.
        let only_reads = is_kubernetes(path) || path == super::query::PATH;
        let looks = matches!(*request.method(), Method::GET | Method::HEAD) || only_reads;
        let known = self.identify(request.headers(), certified);
        let is_probe = matches!(path, "/livez" | "/readyz");
        let is_public = is_probe || (path == "/metrics" && self.metrics_open);
        // A page that uses DNS rebinding has no token, so what needs no credential is restricted to known hosts.
        let has_credential = known.is_ok() && !self.is_open();
        let is_unknown_host = !has_credential && self.hosts.as_ref().is_some_and(|hosts| !hosts.accepts(request));
        let verdict = match (known, looks) {
            (_, true) if is_unknown_host && is_probe => Ok(MayRead(false)),
            (Ok(_), _) if is_unknown_host => Err(Denied::UnknownHost),
            (Err(_), true) if is_unknown_host && is_public => Err(Denied::UnknownHost),
            // Browsers send requests of a page to hosts that its author cannot reach, but always with an `Origin`
            // header.
            (Ok(_), false) if self.is_open() && request.headers().contains_key(ORIGIN) => Err(Denied::WebPage),
            (Ok(_), true) | (Ok(Right::Write), false) => Ok(MayRead(true)),
            (Ok(Right::Read), false) => Err(Denied::ReadOnly),
            (Err(_), true) if is_public => Ok(MayRead(false)),
            (Err(denied), _) => Err(denied),
        };
        match verdict {
            Ok(_) => {}
            Err(Denied::UnknownHost) => {
                self.misdirected.fetch_add(1, Relaxed);
            }
            Err(_) => {
                self.refused.fetch_add(1, Relaxed);
            }
        }
        verdict
    }

    fn identify(&self, headers: &HeaderMap, certified: bool) -> Result<Right, Denied> {
        if self.is_open() || (self.certificates && certified) {
            return Ok(Right::Write);
        }
        let token = mac(bearer(headers).ok_or(Denied::Anonymous)?);
        let macs = self.macs.load();
        match (macs.change.as_ref() == Some(&token), macs.look.as_ref() == Some(&token)) {
            (true, _) => Ok(Right::Write),
            (false, true) => Ok(Right::Read),
            (false, false) => Err(Denied::WrongToken),
        }
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
            .field("token", &self.token)
            .field("read_token", &self.read_token)
            .finish_non_exhaustive()
    }
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.as_bytes().split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

impl Denied {
    /// Returns the response to a request of `path`: a `Status` below the Kubernetes roots.
    pub(super) fn response(self, path: &str) -> Response {
        let (status, problem) = match self {
            Self::Anonymous => {
                (StatusCode::UNAUTHORIZED, "a token is required: send the header Authorization: Bearer TOKEN")
            }
            Self::WrongToken => (StatusCode::UNAUTHORIZED, "the token is not valid; it may have been replaced"),
            Self::ReadOnly => (StatusCode::FORBIDDEN, "this token is read-only; use the one of hub.auth.token"),
            Self::UnknownHost => (
                StatusCode::MISDIRECTED_REQUEST,
                "the hub is not served under this host name; add the name to hub.allowed_hosts to allow it",
            ),
            Self::WebPage => (StatusCode::FORBIDDEN, "a web page may not send this request without a token"),
        };
        let mut response = denial(path, status, problem);
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"informer-hub\""));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    const WRITE: &str = "change-0123456789abcdef";
    const READ: &str = "look-0123456789abcdef";

    fn token(text: &'static str) -> TokenFrom {
        TokenFrom::new(None, Arc::new(move || Ok(text.to_owned())))
    }

    fn guarded(metrics_open: bool) -> Access {
        Access::new(Some(token(WRITE)), Some(token(READ)), true, metrics_open, Some(Hosts::default())).unwrap()
    }

    fn request(method: Method, path: &str, token: Option<&str>) -> Request<()> {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, format!("bearer {token}"));
        }
        request.body(()).unwrap()
    }

    #[test]
    fn request_requires_its_right_and_probes_require_none() {
        let access = guarded(false);
        let authorize = |method, path, token| access.authorize(&request(method, path, token), false);
        for (method, path, token, wanted) in [
            (Method::GET, "/livez", None, Ok(MayRead(false))),
            (Method::HEAD, "/readyz", None, Ok(MayRead(false))),
            (Method::GET, "/readyz", Some("no-such-token-anywhere"), Ok(MayRead(false))),
            (Method::GET, "/readyz", Some(READ), Ok(MayRead(true))),
            (Method::POST, "/livez", None, Err(Denied::Anonymous)),
            (Method::GET, "/metrics", None, Err(Denied::Anonymous)),
            (Method::GET, "/v1/status", None, Err(Denied::Anonymous)),
            (Method::GET, "/v1/status", Some(READ), Ok(MayRead(true))),
            (Method::GET, "/v1/status", Some(WRITE), Ok(MayRead(true))),
            (Method::GET, "/v1/status", Some(""), Err(Denied::WrongToken)),
            (Method::GET, "/v1/status", Some("change-0123456789abcdeF"), Err(Denied::WrongToken)),
            (Method::GET, "/no/such/path", None, Err(Denied::Anonymous)),
            (Method::GET, "/livez/", None, Err(Denied::Anonymous)),
            (Method::POST, "/v1/reload", Some(READ), Err(Denied::ReadOnly)),
            (Method::DELETE, "/v1/status", Some(READ), Err(Denied::ReadOnly)),
            (Method::POST, "/v1/reload", Some(WRITE), Ok(MayRead(true))),
        ] {
            assert_eq!(authorize(method.clone(), path, token), wanted, "{method} {path} {token:?}");
        }
        assert_eq!(access.refused(), 9);
        assert_eq!(access.refused(), 0);
        assert_eq!(
            access.authorize(&request(Method::POST, "/v1/reload", None), true),
            Ok(MayRead(true)),
            "a certificate"
        );
        assert_eq!(guarded(true).authorize(&request(Method::GET, "/metrics", None), false), Ok(MayRead(false)));
    }

    #[test]
    fn open_port_denies_changes_by_web_pages() {
        let access = Access::new(None, None, false, false, None).unwrap();
        let mut asked = request(Method::POST, "/v1/sinks/a/dead-letters/purge", None);
        assert_eq!(access.authorize(&asked, false), Ok(MayRead(true)));
        asked.headers_mut().insert(ORIGIN, HeaderValue::from_static("https://example.com"));
        assert_eq!(access.authorize(&asked, false), Err(Denied::WebPage));
    }

    #[test]
    fn client_certificate_is_ignored_unless_configured() {
        let access = Access::new(Some(token(WRITE)), None, false, false, None).unwrap();
        assert_eq!(access.authorize(&request(Method::GET, "/v1/status", None), true), Err(Denied::Anonymous));
    }

    #[test]
    fn replaced_token_takes_effect_and_an_invalid_one_keeps_the_old() {
        let text = Arc::new(Mutex::new(WRITE.to_owned()));
        let read = Arc::clone(&text);
        let from = TokenFrom::new(None, Arc::new(move || Ok(read.lock().clone())));
        let access = Access::new(Some(from), None, false, false, None).unwrap();
        let may = |token| access.authorize(&request(Method::GET, "/v1/status", Some(token)), false).is_ok();
        *text.lock() = READ.to_owned();
        access.reload_tokens().unwrap();
        assert!(may(READ) && !may(WRITE));
        for half in ["", "short", "two words, which no header has"] {
            *text.lock() = half.to_owned();
            let error = access.reload_tokens().unwrap_err();
            assert!(!format!("{error:?}").contains("two words"), "{error:?}");
            assert!(may(READ) && !may(half));
        }
    }
}
