//! TLS for the replay server, with a new CA and certificate for each run.

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

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
    let ca_key = rcgen::KeyPair::generate().unwrap();
    let mut ca = rcgen::CertificateParams::default();
    ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    std::fs::write(ca_file, ca.self_signed(&ca_key).unwrap().pem()).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let leaf = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let cert = leaf.signed_by(&key, &rcgen::Issuer::new(ca, ca_key)).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let mut config = builder.with_single_cert(vec![cert.der().clone()], key).unwrap();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Some(Arc::new(config))
}
