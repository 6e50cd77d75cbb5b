//! The webhook transport: one POST per attempt, CloudEvents in the body, signed as Standard Webhooks does.
//!
//! What a receiver's answer means:
//!
//! | answer | meaning |
//! |---|---|
//! | 2xx | acknowledged, as soon as the head of the answer is there |
//! | 410 | the sink is disabled |
//! | 429, 503 | tried again, not before `Retry-After` (seconds or a date) |
//! | 400, 413, 422 | tried again, in halves |
//! | 3xx | tried again; redirects are never followed, for a signed body is meant for one address |
//! | everything else, and none | tried again |

mod caller;
mod headers;
mod request;
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

/// What a webhook is built from.
#[derive(Debug)]
pub struct WebhookParams {
    /// Where to POST. May hold credentials: it is shown nowhere but for its scheme and host.
    pub url: WebhookUrl,
    /// Keys of the signature; unset: unsigned.
    pub signing_keys: Option<SigningKeys>,
    /// How long one attempt may take, from the connection to the end of the answer. Default 10 s.
    pub timeout: Duration,
    /// PEM file with roots to trust beside the system's.
    pub ca_file: Option<PathBuf>,
    /// Whether bodies are batches (`application/cloudevents-batch+json`, an array) or single events
    /// (`application/cloudevents+json`). One sink keeps to one shape: it is batches, even for a lone event, when its
    /// batches may hold more than one event.
    pub batched: bool,
    /// The form of the events. Default CloudEvents.
    pub shape: Arc<Shape>,
    /// Unset: bodies are sent as they are.
    pub compression: Option<Compression>,
    /// Headers of one's own.
    pub headers: ExtraHeaders,
    /// What the hub shows a receiver that asks who it is.
    pub client_cert: Option<ClientCert>,
    /// What opens connections, in place of TCP and of proxies; for addresses that say `http`. Unset: TCP.
    pub dial: Option<Dial>,
}

impl WebhookParams {
    /// The defaults: single events, unsigned.
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

/// Files of a client certificate. Looked at before each attempt, and read again when they have changed; connections
/// made with what was there before are not used any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCert {
    /// PEM file with the certificate, and those between it and the CA.
    pub cert_file: PathBuf,
    /// PEM file with its private key.
    pub key_file: PathBuf,
}

/// The address of a receiver, which hides all but scheme and host from `Debug` and `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookUrl(reqwest::Url);

/// A webhook that cannot be built; its configuration is at fault, except for [`Self::Client`].
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// Not an address to POST to. The address itself is not repeated: it may hold credentials.
    #[error("url is not usable: {0}; it should look like https://audit.example.com/k8s")]
    Url(String),
    /// The roots could not be read.
    #[error("ca_file {} is not readable", .path.display())]
    CaFile {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The roots are no certificates.
    #[error("ca_file {} holds no PEM certificate", .path.display())]
    NoCertificate {
        /// Which file.
        path: PathBuf,
    },
    /// The client certificate could not be read.
    #[error("{key} {} is not readable", .path.display())]
    ClientCertFile {
        /// `client_cert_file` or `client_key_file`.
        key: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The client certificate cannot be used.
    #[error("{key} {}: {problem}", .path.display())]
    ClientCert {
        /// `client_cert_file` or `client_key_file`.
        key: &'static str,
        /// Which file.
        path: PathBuf,
        /// What is wrong, and what would be right.
        problem: &'static str,
    },
    /// TLS is not spoken over connections that are dialled.
    #[error("url says https, and no TLS is spoken over connections that a program dials itself; it should say http")]
    DialledTls,
    /// The HTTP client could not be built (no usable system roots, for one).
    #[error("http client could not be set up")]
    Client(#[source] reqwest::Error),
}

impl WebhookUrl {
    /// Checks an address.
    ///
    /// # Errors
    /// [`WebhookError::Url`] when it is not an absolute `http` or `https` URL.
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
    /// The key of the configuration that is at fault.
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

/// Delivers batches to a webhook. Cheap to keep: one connection pool.
#[derive(Debug)]
pub struct WebhookTransport {
    service: Arc<Service>,
}

impl WebhookTransport {
    /// Builds the transport; reads `ca_file`, connects to nothing. Attempts must run on a tokio runtime with I/O
    /// and time.
    ///
    /// # Errors
    /// [`WebhookError`] says what is wrong with the parameters.
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

/// What an answer means that a receiver at `url` gave, by the table above. Reads of its body what an attempt would.
///
/// For those who have an answer without having asked: tests, and who feeds it noise.
pub async fn judge<B: Into<reqwest::Body>>(answer: http::Response<B>, url: &WebhookUrl) -> Outcome {
    service::judge(answer.into(), &url.0).await
}

#[cfg(test)]
mod tests;
