//! Types of the hub's own port: `[hub.tls]`, `[hub.auth]` and access without them.

use std::path::PathBuf;

use super::Secret;

/// Authentication, TLS and limits of the hub's HTTP port.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServiceConfig {
    /// `[hub.tls]`; `None` serves plain HTTP.
    pub tls: Option<TlsConfig>,
    /// `[hub.auth]`.
    pub auth: AuthConfig,
    /// Accepted `Host` names besides `localhost` and IP addresses: `hub.example.com`, `*.example.com`. Checked without
    /// authentication: on loopback, and on other addresses if the list is not empty. Default none.
    pub allowed_hosts: Vec<String>,
    /// Maximum number of connections. Default 1024.
    pub max_connections: usize,
}

impl Default for ServiceConfig {
    fn default() -> Self {
        Self { tls: None, auth: AuthConfig::default(), allowed_hosts: Vec::new(), max_connections: 1024 }
    }
}

/// `[hub.tls]`. The files are read again when they change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfig {
    /// PEM file with the certificate and the intermediate certificates.
    pub cert_file: PathBuf,
    /// PEM file with the private key.
    pub key_file: PathBuf,
    /// PEM file with the CA of client certificates, which give full access. `None` requests no client certificate.
    pub client_ca_file: Option<PathBuf>,
}

/// `[hub.auth]`. Files are read again when they change.
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

impl ServiceConfig {
    /// Whether requests must be authenticated.
    #[must_use]
    pub fn authenticates(&self) -> bool {
        let certificates = self.tls.as_ref().is_some_and(|tls| tls.client_ca_file.is_some());
        certificates || self.auth.token.is_some() || self.auth.read_token.is_some()
    }
}
