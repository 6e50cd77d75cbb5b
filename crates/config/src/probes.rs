//! Checks of filters, secrets, certificates and kubeconfigs. The caller passes them in as functions.
//!
//! This crate knows where a value is in the file, and collects all mistakes. The code that uses the value is in other
//! crates, so its checks are passed in by the composition root.

use std::path::Path;

use super::service_config::TlsConfig;

/// Functions that check values. Each returns a description of the problem without secrets. The default accepts every value;
/// its fields can be set.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Probes {
    /// Checks a sink's `filter`.
    pub filter: fn(&str) -> Result<(), String>,
    /// Checks the content of a `signing_secret`.
    pub signing_secret: fn(&str) -> Result<(), String>,
    /// Checks a `ca_file`.
    pub ca_file: fn(&Path) -> Result<(), String>,
    /// Checks a `client_cert_file` and its `client_key_file`.
    pub client_cert: fn(&Path, &Path) -> Result<(), KeyProblem>,
    /// Checks the hub's own certificate, its key, and the CA of client certificates.
    pub server_tls: fn(&TlsConfig) -> Result<(), KeyProblem>,
    /// Checks a token for access to the hub's own port.
    pub token: fn(&str) -> Result<(), String>,
    /// Checks a sink's template and the media type of its output.
    pub template: fn(&str, &str) -> Result<(), String>,
    /// Checks the name of a header and, if readable, its value.
    pub header: fn(&str, Option<&str>) -> Result<(), String>,
    /// Checks the subject pattern of a NATS sink.
    pub subject: fn(&str) -> Result<(), String>,
    /// Checks a `kubeconfig` and its `context`.
    pub kubeconfig: fn(&Path, Option<&str>) -> Result<(), WrongKubeconfig>,
}

impl Default for Probes {
    fn default() -> Self {
        Self {
            filter: |_| Ok(()),
            signing_secret: |_| Ok(()),
            ca_file: |_| Ok(()),
            client_cert: |_, _| Ok(()),
            server_tls: |_| Ok(()),
            token: |_| Ok(()),
            template: |_, _| Ok(()),
            header: |_, _| Ok(()),
            subject: |_| Ok(()),
            kubeconfig: |_, _| Ok(()),
        }
    }
}

/// Configuration key with a wrong value, and the problem.
pub type KeyProblem = (&'static str, String);

/// Problem found by [`Probes::kubeconfig`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum WrongKubeconfig {
    /// The file is not a kubeconfig.
    File(String),
    /// The file is valid, but has no such context.
    Context(String),
}
