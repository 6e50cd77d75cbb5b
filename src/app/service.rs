//! From the configuration's words to what the hub's own port is guarded with.

use std::sync::Arc;

use crate::api::{Limits, Protection, TlsFiles, TokenFrom};
use crate::config::{Secret, ServiceConfig, TlsConfig};

/// How the port is protected.
pub(super) fn protection(service: &ServiceConfig) -> Protection {
    Protection {
        tls: service.tls.as_ref().map(tls_files),
        token: service.auth.token.as_ref().map(token),
        read_token: service.auth.read_token.as_ref().map(token),
        metrics_open: service.auth.metrics_open,
        limits: Limits { connections: service.max_connections, ..Limits::default() },
    }
}

pub(super) fn tls_files(tls: &TlsConfig) -> TlsFiles {
    let TlsConfig { cert_file, key_file, client_ca_file } = tls.clone();
    TlsFiles { cert_file, key_file, client_ca_file }
}

fn token(secret: &Secret) -> TokenFrom {
    let file = match secret {
        Secret::File(path) => Some(path.clone()),
        Secret::Env(_) => None,
    };
    let secret = secret.clone();
    TokenFrom::new(file, Arc::new(move || secret.read()))
}
