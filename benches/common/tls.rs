//! TLS for the replay server: a certificate of its own authority, made anew for each run.

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

/// How clients are spoken to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Wire {
    /// Without TLS.
    #[default]
    Plain,
    /// With TLS, HTTP/1.1.
    Http1,
    /// With TLS, HTTP/2.
    Http2,
}

impl Wire {
    /// As the environment writes it.
    pub fn named(name: &str) -> Self {
        match name {
            "" | "plain" => Self::Plain,
            "http1" => Self::Http1,
            "http2" => Self::Http2,
            other => panic!("no wire {other}; there are plain, http1, http2"),
        }
    }

    /// The other way round.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Http1 => "http1",
            Self::Http2 => "http2",
        }
    }
}

/// The server's side; writes the authority's certificate to `ca_file`, for clients to trust. `None` without TLS.
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
