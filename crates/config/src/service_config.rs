//! Types of the hub's own port: `[hub.tls]`, `[hub.auth]`, `[hub.read_api]`, and other keys of `[hub]` for the port.

use std::path::PathBuf;
use std::time::Duration;

use super::Secret;
use super::audit_config::AuditConfig;
use super::reader_config::AuthorizationConfig;

/// Authentication, TLS and limits of the hub's HTTP port.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServiceConfig {
    /// `[hub.tls]`: certificate and key of the HTTP port; `None` serves plain HTTP.
    pub tls: Option<TlsConfig>,
    /// `[hub.auth]`: tokens for the HTTP port.
    pub auth: AuthConfig,
    /// Names accepted in the header `Host`, besides `localhost` and IP addresses: `hub.example.com`, `*.example.com`.
    /// Default none.
    ///
    /// Only requests without authentication are checked. If the hub listens on a loopback address, all of them are
    /// checked. If it listens on another address, they are checked only if this list is not empty.
    pub allowed_hosts: Vec<String>,
    /// Maximum number of connections. Default 1024.
    pub max_connections: usize,
    /// `[hub.read_api]`: the Kubernetes API for readers.
    pub read_api: ReadApiConfig,
    /// `[hub.authorization]`: sends review requests to clusters, to check the rights and the tokens of users.
    pub authorization: AuthorizationConfig,
    /// `[hub.audit]`: the log of requests; `None` logs no requests.
    pub audit: Option<AuditConfig>,
}

impl Default for ServiceConfig {
    fn default() -> Self {
        Self {
            tls: None,
            auth: AuthConfig::default(),
            allowed_hosts: Vec::new(),
            max_connections: 1024,
            read_api: ReadApiConfig::default(),
            authorization: AuthorizationConfig::default(),
            audit: None,
        }
    }
}

/// `[hub.tls]`: TLS of the HTTP port. The files are read again when they change.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsConfig {
    /// PEM file with the certificate and the intermediate certificates.
    pub cert_file: PathBuf,
    /// PEM file with the private key.
    pub key_file: PathBuf,
    /// PEM file with the CA of client certificates; `None` requests no client certificate.
    ///
    /// A client certificate gives full access, unless a table `[readers.<name>]` matches it or access reviews are
    /// enabled.
    pub client_ca_file: Option<PathBuf>,
}

impl TlsConfig {
    /// Creates TLS from the files of the certificate and its key, without client certificates.
    #[must_use]
    pub fn new(cert_file: impl Into<PathBuf>, key_file: impl Into<PathBuf>) -> Self {
        Self { cert_file: cert_file.into(), key_file: key_file.into(), client_ca_file: None }
    }
}

/// `[hub.auth]`: tokens for the HTTP port. A token in a file is read again when the file changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuthConfig {
    /// Token with full access.
    pub token: Option<Secret>,
    /// Token with read access.
    pub read_token: Option<Secret>,
    /// Whether `/metrics` needs no authentication, like the probes. Default false.
    pub metrics_open: bool,
    /// Whether other machines have full access without authentication. Default false.
    pub allow_unauthenticated: bool,
}

/// `[hub.read_api]`: the Kubernetes API for readers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadApiConfig {
    /// Whether the hub's port serves this API. Default true.
    pub enabled: bool,
    /// Maximum bytes of recent changes per resource, from which watches resume. Default 16 MiB.
    pub window_bytes: usize,
    /// Maximum age of the changes from which watches resume. Default 5 min.
    pub window_age: Duration,
    /// Maximum number of requests in progress, not counting watches. Default 64.
    pub max_requests: usize,
    /// Maximum number of watches. Default 10,000.
    pub max_watches: usize,
    /// Whether readers that may see everything also see core/v1 Secrets. Default false. Readers with rules see the
    /// Secrets that their rules name, whatever this value is.
    pub serve_secrets: bool,
}

impl Default for ReadApiConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            window_bytes: 16 << 20,
            window_age: Duration::from_secs(300),
            max_requests: 64,
            max_watches: 10_000,
            serve_secrets: false,
        }
    }
}

impl ServiceConfig {
    /// Returns whether the HTTP port requests client certificates.
    #[must_use]
    pub fn requests_certificates(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.client_ca_file.is_some())
    }

    /// Returns whether `[hub]` has a way to authenticate requests. See also
    /// [`Config::authenticates`](super::Config::authenticates).
    #[must_use]
    pub fn authenticates(&self) -> bool {
        let tokens = self.auth.token.is_some() || self.auth.read_token.is_some();
        tokens || self.requests_certificates() || self.authorization.token_review.is_some()
    }
}
