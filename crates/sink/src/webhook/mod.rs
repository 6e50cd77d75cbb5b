//! Webhook transport: one POST per attempt, with CloudEvents in the body, signed as in Standard Webhooks.
//!
//! Meaning of the receiver's answer:
//!
//! | answer | meaning |
//! |---|---|
//! | 2xx | acknowledged, as soon as the response head is received |
//! | 410 | the sink is disabled |
//! | 429, 503 | retried, not before `Retry-After` (seconds or a date) |
//! | 400, 413, 422 | retried, in halves |
//! | 3xx | retried; redirects are never followed, since a body is signed for one address |
//! | everything else, or no answer | retried |

mod caller;
mod headers;
mod request;
mod secrets;
mod service;
mod sign;
mod tls;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;

pub use headers::{ExtraHeaders, InvalidHeader, check_header_name};
pub use sign::{InvalidSecret, SigningKeys};
pub use tls::{check_client_cert, check_roots};

use super::{Event, Outcome, Shape, Transport};
use informer_hub_dial::Dial;
pub use informer_hub_types::Compression;
use service::Service;

/// Parameters of a [`WebhookTransport`].
#[derive(Debug)]
pub struct WebhookParams {
    /// Address of the receiver. It may contain credentials: only its scheme, host and port are ever shown.
    pub url: WebhookUrl,
    /// Keys of the signature; `None` sends unsigned requests.
    pub signing_keys: Option<SigningKeys>,
    /// Time limit of one attempt, from the connection to the head of the answer. Default 10 s. Reading the answer's
    /// body takes up to a second more, and does not change the outcome.
    pub timeout: Duration,
    /// PEM file with trusted roots, in addition to the system's.
    pub ca_file: Option<PathBuf>,
    /// Whether a request always has a JSON array of events (`application/cloudevents-batch+json`), rather than a single
    /// event (`application/cloudevents+json`). A sink uses an array if its batches may have several events, even for a
    /// batch of one.
    pub batched: bool,
    /// Format of the events. Default CloudEvents.
    pub shape: Arc<Shape>,
    /// Compression of bodies; `None` sends them uncompressed.
    pub compression: Option<Compression>,
    /// Additional headers.
    pub headers: ExtraHeaders,
    /// Client certificate for mutual TLS.
    pub client_cert: Option<ClientCert>,
    /// Function of the embedding program that opens the connections to the receiver, for `http` addresses only. With
    /// `None`, the client uses TCP and the environment's proxies.
    pub dial: Option<Dial>,
}

impl WebhookParams {
    /// Returns the default parameters: single events, unsigned.
    #[must_use]
    pub fn new(url: WebhookUrl) -> Self {
        Self {
            url,
            signing_keys: None,
            timeout: Duration::from_secs(10),
            ca_file: None,
            batched: false,
            shape: Arc::default(),
            compression: None,
            headers: ExtraHeaders::default(),
            client_cert: None,
            dial: None,
        }
    }
}

/// Files of a client certificate. They are checked before each attempt and read again when they change. Connections
/// with the old certificate are then no longer used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCert {
    /// PEM file with the certificate and the intermediate certificates.
    pub cert_file: PathBuf,
    /// PEM file with the private key.
    pub key_file: PathBuf,
}

/// Address of a receiver. `Debug` and `Display` show only scheme, host and port.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookUrl(reqwest::Url);

/// Error of building a webhook. Every variant except [`Self::Client`] is a mistake in the configuration.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// Not an absolute `http` or `https` URL. The address itself is not shown: it may contain credentials.
    #[error("cannot use url: {0}; it should look like https://audit.example.com/k8s")]
    Url(String),
    /// The file with trusted roots could not be read.
    #[error("cannot read ca_file {}", .path.display())]
    CaFile {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// The file with trusted roots has no usable certificate.
    #[error("ca_file {} holds no PEM certificate", .path.display())]
    NoCertificate {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file of the client certificate or of its key could not be read.
    #[error("cannot read {key} {}", .path.display())]
    ClientCertFile {
        /// Configuration key of the file: `client_cert_file` or `client_key_file`.
        key: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// The client certificate cannot be used.
    #[error("{key} {}: {problem}", .path.display())]
    ClientCert {
        /// Configuration key of the unusable file: `client_cert_file` or `client_key_file`.
        key: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Description of the problem.
        problem: &'static str,
    },
    /// TLS is not supported over connections of [`Dial`].
    #[error("url says https, but connections dialled by the program have no TLS; write http")]
    DialledTls,
    /// The HTTP client could not be built, e.g. without usable system roots.
    #[error("cannot set up the http client")]
    Client(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl WebhookUrl {
    /// Parses an address.
    ///
    /// # Errors
    /// [`WebhookError::Url`] if it is not an absolute `http` or `https` URL.
    pub fn parse(text: &str) -> Result<Self, WebhookError> {
        let url = reqwest::Url::parse(text).map_err(|error| WebhookError::Url(error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(WebhookError::Url(format!("its scheme is {:?}", url.scheme())));
        }
        Ok(Self(url))
    }

    fn is_https(&self) -> bool {
        self.0.scheme() == "https"
    }
}

impl WebhookError {
    /// Returns the configuration key that is wrong.
    #[must_use]
    pub fn key(&self) -> &'static str {
        match self {
            Self::Url(_) | Self::DialledTls => "url",
            Self::CaFile { .. } | Self::NoCertificate { .. } | Self::Client(_) => "ca_file",
            Self::ClientCertFile { key, .. } | Self::ClientCert { key, .. } => key,
        }
    }
}

impl fmt::Display for WebhookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.0.scheme(), self.0.host_str().unwrap_or_default())?;
        self.0.port().map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl fmt::Debug for WebhookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// Transport that delivers batches to a webhook. It keeps one connection pool.
#[derive(Debug)]
pub struct WebhookTransport {
    service: Arc<Service>,
}

impl WebhookTransport {
    /// Builds the transport. Reads the certificate files but does not connect. Attempts need a tokio runtime with I/O
    /// and time.
    ///
    /// # Errors
    /// [`WebhookError`] if a parameter is wrong.
    pub fn new(params: WebhookParams) -> Result<Self, WebhookError> {
        Ok(Self { service: Arc::new(Service::new(params)?) })
    }
}

impl Transport for WebhookTransport {
    fn attempt(&self, batch: Arc<[Event]>) -> BoxFuture<'static, Outcome> {
        let service = Arc::clone(&self.service);
        async move { service.exchange(&batch).await }.boxed()
    }
}

/// Maps a response of the receiver at `url` to an outcome, by the table in the module documentation. Reads as much of
/// the body as an attempt does, but without a time limit.
///
/// For tests and fuzzing, which have a response without a request.
pub async fn outcome_of<B: Into<reqwest::Body>>(answer: http::Response<B>, url: &WebhookUrl) -> Outcome {
    service::outcome_of(answer.into(), &url.0, &secrets::Secrets::of_url(&url.0), None).await
}

#[cfg(test)]
mod tests;
