//! TLS for the replay server, with a new CA and certificate for each run.

use std::path::Path;
use std::sync::Arc;

use informer_hub_testing::tls::Ca;
use tokio_rustls::rustls::ServerConfig;

/// Protocol of the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Wire {
    /// HTTP/1.1 without TLS.
    #[default]
    Plain,
    /// HTTP/1.1 over TLS.
    Http1,
    /// HTTP/2 over TLS.
    Http2,
}

impl Wire {
    /// Parses the name used in the environment.
    pub fn named(name: &str) -> Self {
        match name {
            "" | "plain" => Self::Plain,
            "http1" => Self::Http1,
            "http2" => Self::Http2,
            other => panic!("unknown wire {other}; there are plain, http1, http2"),
        }
    }

    /// Returns the name used in the environment.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Http1 => "http1",
            Self::Http2 => "http2",
        }
    }
}

/// Creates the TLS configuration of the server, and writes its CA to `ca_file`. Returns `None` without TLS.
pub fn server(wire: Wire, ca_file: &Path) -> Option<Arc<ServerConfig>> {
    let protocols: &[&[u8]] = match wire {
        Wire::Plain => return None,
        Wire::Http1 => &[b"http/1.1"],
        Wire::Http2 => &[b"h2", b"http/1.1"],
    };
    let ca = Ca::new();
    std::fs::write(ca_file, ca.pem()).unwrap();
    Some(ca.server_config(protocols))
}
