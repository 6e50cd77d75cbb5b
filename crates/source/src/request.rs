//! Requests to an apiserver: URLs, deadlines, and classification of failures.

use std::error::Error;
use std::fmt::Write as _;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, ETAG, IF_NONE_MATCH, RETRY_AFTER};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::{AuthError, Body};
use rustls::AlertDescription;

use super::exec::NoCredentials;
use informer_hub_codec::{ErrorClass, SourceError, bounded, classify_status};
use informer_hub_dial::causes;
use informer_hub_pool::{Lane, StreamError};

/// Size limit of the body of a failed answer, in bytes.
const MAX_ERROR_BODY: usize = 64 * 1024;
/// Deadline for the body of a failed answer.
const ERROR_BODY_DEADLINE: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Json,
    /// Kubernetes protobuf.
    Protobuf,
}

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// A GET request. The header `accept` allows JSON, or Kubernetes protobuf and JSON.
#[derive(Debug, Clone)]
pub(super) struct Get {
    pub(super) path: String,
    pub(super) query: Query,
    pub(super) accept: &'static str,
    /// `Accept` header of a second request, sent if the server refuses `accept` with 406 or 415. `None` sends no second
    /// request.
    pub(super) fallback: Option<&'static str>,
    /// Whether the answer may be compressed.
    pub(super) compressed: bool,
    /// Kind of pooled connection that carries the request.
    pub(super) lane: Lane,
}

impl Get {
    /// Creates a request for JSON, which may be compressed.
    pub(super) fn json(path: impl Into<String>, query: Query, lane: Lane) -> Self {
        let (path, accept) = (path.into(), "application/json");
        Self { path, query, accept, fallback: None, compressed: true, lane }
    }
}

/// A percent-encoded URL query.
#[derive(Debug, Clone, Default)]
pub(super) struct Query(String);

impl Query {
    pub(super) fn add(&mut self, key: &str, value: &str) {
        self.0.push(if self.0.is_empty() { '?' } else { '&' });
        self.0.push_str(key);
        self.0.push('=');
        encode(value, &mut self.0);
    }

    #[cfg(test)]
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Percent-encodes all characters that are not unreserved (RFC 3986).
pub(super) fn encode(text: &str, out: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

/// Returns whether a content type means JSON. Also accepts plain text for the index of OpenAPI documents, since
/// kube-apiserver declares this JSON as plain text.
fn is_json(kind: &str, path: &str) -> bool {
    let kind = kind.trim_start().to_ascii_lowercase();
    kind.starts_with("application/json") || path == "/openapi/v3" && kind.starts_with("text/plain")
}

/// Returns the encoding that a content type means. Returns `None` if it is neither JSON nor a protobuf that the
/// `Accept` header allows.
fn encoding_of(kind: &str, path: &str, accept: &str) -> Option<Encoding> {
    let plain = kind.split(';').next().unwrap_or_default().trim();
    if accept.starts_with(PROTOBUF) && plain.eq_ignore_ascii_case(PROTOBUF) {
        return Some(Encoding::Protobuf);
    }
    is_json(kind, path).then_some(Encoding::Json)
}

/// Returns the encoding of a successful answer.
pub(super) fn encoding(response: &Response<Body>) -> Encoding {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    encoding_of(kind, "", PROTOBUF).unwrap_or(Encoding::Json)
}

impl Get {
    /// Sends the request and waits for the head of a successful answer.
    ///
    /// # Errors
    /// No answer, or an answer that is not 2xx or not in an accepted encoding, classified. The message has the path.
    pub(super) async fn open(self, client: &Client, deadline: Duration) -> Result<Response<Body>, SourceError> {
        self.open_unless(None, client, deadline).await
    }

    /// Sends the request like [`Self::open`], conditional on an ETag. If the document still has the ETag `tag`, returns
    /// the 304 answer, which has no body.
    async fn open_unless(
        self,
        tag: Option<&str>,
        client: &Client,
        deadline: Duration,
    ) -> Result<Response<Body>, SourceError> {
        let (path, mut accept) = (self.path.clone(), self.accept);
        let named = |error: SourceError| about("GET", &path, error);
        let second = self.fallback.map(|accept| Self { accept, fallback: None, ..self.clone() });
        let mut response = send(client, self.request(tag).map_err(named)?, deadline).await.map_err(named)?;
        let is_refused = matches!(response.status(), StatusCode::NOT_ACCEPTABLE | StatusCode::UNSUPPORTED_MEDIA_TYPE);
        if let Some(second) = second.filter(|_| is_refused) {
            accept = second.accept;
            response = send(client, second.request(tag).map_err(named)?, deadline).await.map_err(named)?;
        }
        let status = response.status();
        if status == StatusCode::NOT_MODIFIED && tag.is_some() {
            return Ok(response);
        }
        if !status.is_success() {
            let header = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
            let body = collect(response.into_body(), MAX_ERROR_BODY, ERROR_BODY_DEADLINE).await.unwrap_or_default();
            return Err(named(classify_status(status.as_u16(), &body, header.map(Duration::from_secs))));
        }
        match response.headers().get(CONTENT_TYPE).map(|value| value.to_str().unwrap_or("unreadable")) {
            Some(kind) if encoding_of(kind, &path, accept).is_none() => {
                let message = format!("answered {:?} instead of application/json", bounded(kind));
                Err(named(SourceError { class: ErrorClass::Malformed, message }))
            }
            _ => Ok(response),
        }
    }

    /// Sends the request and reads the complete answer.
    ///
    /// # Errors
    /// As for [`Self::open`]; also if the body exceeds `limit` bytes or the deadline.
    pub(super) async fn fetch(self, client: &Client, limit: usize, deadline: Duration) -> Result<Vec<u8>, SourceError> {
        let path = self.path.clone();
        let response = self.open(client, deadline).await?;
        let body = collect(response.into_body(), limit, deadline).await;
        body.map_err(|error| about("GET", &path, error))
    }

    /// Sends the request and reads the complete answer. Returns body and ETag, or `None` if the document still has the
    /// ETag `tag`.
    ///
    /// # Errors
    /// As for [`Self::fetch`].
    pub(super) async fn fetch_unless(
        self,
        tag: Option<&str>,
        client: &Client,
        limit: usize,
        deadline: Duration,
    ) -> Result<Option<(Vec<u8>, Option<String>)>, SourceError> {
        let path = self.path.clone();
        let response = self.open_unless(tag, client, deadline).await?;
        if response.status() == StatusCode::NOT_MODIFIED {
            return Ok(None);
        }
        let tag = response.headers().get(ETAG).and_then(|value| value.to_str().ok()).map(ToOwned::to_owned);
        let body = collect(response.into_body(), limit, deadline).await;
        let body = body.map_err(|error| about("GET", &path, error))?;
        Ok(Some((body, tag)))
    }

    fn request(self, tag: Option<&str>) -> Result<Request<Body>, SourceError> {
        let mut builder = Request::get(format!("{}{}", self.path, self.query.0)).header(ACCEPT, self.accept);
        builder = builder.extension(self.lane);
        if let Some(tag) = tag {
            builder = builder.header(IF_NONE_MATCH, tag);
        }
        if !self.compressed {
            builder = builder.header(ACCEPT_ENCODING, "identity");
        }
        builder.body(Body::empty()).map_err(|error| transient(format!("invalid request: {error}")))
    }
}

/// Name of the server that a request was sent to, for error messages. The client sets it when it sends the request.
#[derive(Clone, Default)]
pub(super) struct TargetServer(Arc<OnceLock<Arc<str>>>);

impl TargetServer {
    pub(super) fn note(&self, server: &Arc<str>) {
        // Ignore the error: a repeated request goes to the same server.
        let _ = self.0.set(Arc::clone(server));
    }

    fn server(&self) -> &str {
        self.0.get().map_or("the server", |server| server)
    }
}

/// Sends a request and waits for the head of the answer.
///
/// # Errors
/// No connection, or no answer within `deadline`. The message names the server.
pub(super) async fn send(
    client: &Client,
    mut request: Request<Body>,
    deadline: Duration,
) -> Result<Response<Body>, SourceError> {
    let target = TargetServer::default();
    request.extensions_mut().insert(target.clone());
    match tokio::time::timeout(deadline, client.send(request)).await {
        Err(_) => Err(stalled(&format!("no answer from {} within {} s", target.server(), deadline.as_secs()))),
        Ok(sent) => sent.map_err(|error| failure(&error)),
    }
}

/// Start of the error message for a server that cannot be reached.
const NO_CONNECTION: &str = "cannot connect to ";

/// Adds method and path to an error message, unless the server could not be reached at all.
pub(super) fn about(method: &str, path: &str, error: SourceError) -> SourceError {
    if error.message.starts_with(NO_CONNECTION) {
        return error;
    }
    SourceError { message: format!("{method} {path}: {}", error.message), ..error }
}

pub(super) async fn collect(mut body: Body, limit: usize, deadline: Duration) -> Result<Vec<u8>, SourceError> {
    let read = async {
        let mut bytes = Vec::new();
        while let Some(data) = next_data(&mut body).await? {
            if bytes.len() + data.len() > limit {
                let message = format!("the answer is larger than {limit} bytes");
                return Err(SourceError { class: ErrorClass::Malformed, message });
            }
            bytes.extend_from_slice(&data);
        }
        Ok(bytes)
    };
    let late = || Err(stalled(&format!("the answer did not end within {} s", deadline.as_secs())));
    tokio::time::timeout(deadline, read).await.unwrap_or_else(|_| late())
}

/// Returns the next bytes of a body; `None` at its end.
///
/// # Cancel safety
/// No data is lost if the future is dropped.
pub(super) async fn next_data(body: &mut Body) -> Result<Option<Bytes>, SourceError> {
    loop {
        match body.frame().await {
            None => return Ok(None),
            Some(Err(error)) => return Err(failure(&error)),
            Some(Ok(frame)) => {
                // Skip trailers.
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}

pub(super) fn stalled(message: &str) -> SourceError {
    SourceError { class: ErrorClass::Stalled, message: message.to_owned() }
}

pub(super) fn transient(message: String) -> SourceError {
    SourceError { class: ErrorClass::Transient, message }
}

pub(super) fn failure(error: &kube::Error) -> SourceError {
    let is_plugin_error = matches!(error, kube::Error::Service(cause) if cause.is::<NoCredentials>());
    let class = if is_plugin_error || matches!(error, kube::Error::Auth(_)) || is_certificate_refused(error) {
        ErrorClass::Unauthorized
    } else if is_refused(error) {
        ErrorClass::Refused
    } else {
        ErrorClass::Transient
    };
    SourceError { class, message: bounded(&describe(error)) }
}

/// Describes an error and its causes, without output of a credential plugin.
pub(super) fn describe(error: &kube::Error) -> String {
    match error {
        kube::Error::Auth(error) => format!("cannot get credentials: {}", describe_auth(error)),
        error => chain(error),
    }
}

fn describe_auth(error: &AuthError) -> String {
    match error {
        AuthError::AuthExecRun { cmd, out } => format!("command '{cmd}' failed with {}", out.status),
        AuthError::AuthExecStart(error) => format!("cannot run the command: {error}"),
        AuthError::ReadTokenFile(error, path) => format!("cannot read token file {}: {error}", path.display()),
        AuthError::MissingCommand => "the exec section has no command".to_owned(),
        AuthError::AuthExecParse(_) | AuthError::ExecPluginFailed => {
            "the output of the command is not an ExecCredential with a status".to_owned()
        }
        AuthError::NoValidNativeRootCA(_) => "the system has no root certificates".to_owned(),
        _ => "the authentication of the kubeconfig failed".to_owned(),
    }
}

/// Joins the messages of a client error and its causes. Leaves out the message of `kube::Error::Service`, which only
/// wraps a cause.
fn chain(error: &kube::Error) -> String {
    let source = error.source().filter(|_| matches!(error, kube::Error::Service(_)));
    source.map_or_else(|| causes(error), causes)
}

/// Returns whether the error is a TLS alert by which the server refuses the client's certificate, or demands one. With
/// TLS 1.3, the alert arrives with the first read after the handshake.
fn is_certificate_refused(error: &(dyn Error + 'static)) -> bool {
    if let Some(rustls::Error::AlertReceived(alert)) = error.downcast_ref() {
        return matches!(
            alert,
            AlertDescription::BadCertificate
                | AlertDescription::UnsupportedCertificate
                | AlertDescription::CertificateRevoked
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateUnknown
                | AlertDescription::CertificateRequired
                | AlertDescription::UnknownCA
                // OpenSSL and rustls send this if another CA of the same name has signed the certificate.
                | AlertDescription::DecryptError
                | AlertDescription::AccessDenied
        );
    }
    // `source` of an I/O error skips the error inside it.
    let io = match error.downcast_ref::<StreamError>() {
        Some(StreamError::Io(io)) => Some(&**io),
        _ => error.downcast_ref::<io::Error>(),
    };
    let inner = io.and_then(io::Error::get_ref).map(|inner| inner as &(dyn Error + 'static));
    inner.or_else(|| error.source()).is_some_and(is_certificate_refused)
}

fn is_refused(error: &kube::Error) -> bool {
    let mut cause = error.source();
    while let Some(error) = cause {
        if error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::ConnectionRefused) {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_values_are_encoded() {
        let mut query = Query::default();
        query.add("labelSelector", "app in (a,b),tier!=x");
        query.add("continue", "a+b/c=é");
        assert_eq!(query.as_str(), "?labelSelector=app%20in%20%28a%2Cb%29%2Ctier%21%3Dx&continue=a%2Bb%2Fc%3D%C3%A9");
    }

    #[test]
    fn failure_message_has_causes_without_wrapper() {
        let eof = std::io::Error::new(
            std::io::ErrorKind::UnexpectedEof,
            "peer closed connection without sending TLS close_notify: https://docs.rs/rustls/latest/rustls/",
        );
        let error = failure(&kube::Error::Service(Box::new(eof)));
        assert_eq!(error.message, "peer closed connection without sending TLS close_notify");
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let error = failure(&kube::Error::Service(Box::new(refused)));
        assert_eq!((error.class, error.message.as_str()), (ErrorClass::Refused, "connection refused"));
    }

    #[test]
    fn failure_message_omits_plugin_output() {
        let status = std::process::ExitStatus::default();
        let out = std::process::Output { status, stdout: b"hunter2".to_vec(), stderr: b"hunter2".to_vec() };
        let error = kube::Error::Auth(AuthError::AuthExecRun { cmd: "aws".to_owned(), out: Box::new(out) });
        let error = failure(&error);
        assert!(error.class == ErrorClass::Unauthorized && error.message.contains("aws"));
        assert!(!error.message.contains("hunter2") && !error.message.contains("104, 117"), "{error}");
    }
}
