//! Protection of the HTTP port (TLS, tokens, limits), made from the `[hub]` configuration.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use crate::api::{Limits, Protection, TlsFiles, TokenFrom};
use informer_hub_config::{Secret, ServiceConfig, TlsConfig};

/// Returns the protection of the port.
///
/// The `Host` header is checked on loopback, and if the configuration lists hosts. A hub that listens elsewhere without
/// a token (`allow_unauthenticated`) is reached by names of pods and services, which it cannot know.
pub(crate) fn protection(service: &ServiceConfig, listen: SocketAddr) -> Protection {
    let is_checked = listen.ip().is_loopback() || !service.allowed_hosts.is_empty();
    Protection {
        hosts: is_checked.then(|| service.allowed_hosts.clone()),
        tls: service.tls.as_ref().map(tls_files),
        token: service.auth.token.as_ref().map(token),
        read_token: service.auth.read_token.as_ref().map(token),
        metrics_open: service.auth.metrics_open,
        limits: Limits { connections: service.max_connections, ..Limits::default() },
    }
}

pub(super) fn tls_files(tls: &TlsConfig) -> TlsFiles {
    let tls = tls.clone();
    TlsFiles { cert_file: tls.cert_file, key_file: tls.key_file, client_ca_file: tls.client_ca_file }
}

fn token(secret: &Secret) -> TokenFrom {
    let secret = secret.clone();
    TokenFrom::new(secret.file().map(Path::to_owned), Arc::new(move || secret.read()))
}
