//! TLS of a cluster's client, with the hub's crypto provider. The kube crate's own TLS would use the crypto provider of
//! the process.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector};
use kube::Config;
use kube::config::AuthInfo;
use parking_lot::Mutex;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use secrecy::ExposeSecret;
use sha2::{Digest, Sha256};

use informer_hub_tls::{Identity, Roots, certificates, client_config, provider, verifier};
use informer_hub_types::clock::{self, Instant};
use informer_hub_types::{HttpVersions, with_causes};

/// Maximum age of the roots read from a CA file. The first handshake after that rereads the file.
const CA_AGE: Duration = Duration::from_secs(60);

/// Unusable TLS settings of a cluster, without secrets in the message. The operator must fix them.
#[derive(Debug, thiserror::Error)]
pub(super) enum TlsError {
    /// A file cannot be read.
    #[error("cannot read the {what} {}", path.display())]
    File { what: &'static str, path: PathBuf, source: std::io::Error },
    /// Data in a kubeconfig is not base64.
    #[error("the {0} is not base64")]
    Base64(&'static str),
    /// The client certificate has no key, or the key no certificate.
    #[error("only one of client certificate and client key is set: set both or neither")]
    Incomplete,
    /// The client certificate or its key is not PEM.
    #[error("the client certificate and its key must be PEM: {0}")]
    Identity(rustls::pki_types::pem::Error),
    /// The CA file is not PEM.
    #[error("CA file {} has no valid PEM: {problem}", path.display())]
    CaFile { path: PathBuf, problem: String },
    /// The name that the server's certificate must have (`tls-server-name`) is invalid.
    #[error("tls-server-name {0:?} is neither a host name nor an address")]
    ServerName(String),
    /// The certificates cannot be used with TLS.
    #[error("cannot use the configured CA certificates or client certificate: {0}")]
    Unusable(#[from] rustls::Error),
}

pub(super) const H2: &[u8] = b"h2";
pub(super) const HTTP1: &[u8] = b"http/1.1";

/// TLS settings of a cluster's connections.
pub(super) struct Tls {
    config: ClientConfig,
    server_name: Option<ServerName<'static>>,
}

impl Tls {
    /// Reads the certificate files that a client configuration names.
    pub(super) fn of(config: &Config) -> Result<Self, TlsError> {
        let server_name = config
            .tls_server_name
            .as_ref()
            .map(|name| ServerName::try_from(name.clone()).map_err(|_| TlsError::ServerName(name.clone())));
        Ok(Self { config: of_cluster(config)?, server_name: server_name.transpose()? })
    }

    /// Returns a connector that adds TLS to the connections of `connector`, for `https` addresses. The TLS handshake
    /// offers `protocols` by ALPN.
    pub(super) fn connector<H>(&self, connector: H, protocols: &[&[u8]]) -> HttpsConnector<H> {
        let mut config = self.config.clone();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        match &self.server_name {
            Some(name) => {
                HttpsConnector::new(connector, config, false, Arc::new(FixedServerNameResolver::new(name.clone())))
            }
            None => HttpsConnector::from((connector, config)),
        }
    }
}

/// Digest of all settings that a connection depends on, including the client certificate but no token.
pub(super) type Fingerprint = [u8; 32];

/// Returns the digest of a cluster's connection settings. Reads files.
pub(super) fn fingerprint(config: &Config, http: HttpVersions) -> Result<Fingerprint, TlsError> {
    let (chain, key) = identity_pem(&config.auth_info)?;
    let mut digest = Sha256::new();
    let mut add = |part: Option<&[u8]>| {
        // Lengths separate the parts, so that different parts never give the same digest.
        digest.update(part.map_or(u64::MAX, |part| part.len() as u64).to_le_bytes());
        digest.update(part.unwrap_or_default());
    };
    let text = format!(
        "{} {:?} {:?} {:?} {} {:?}",
        config.cluster_url,
        http,
        config.proxy_url,
        config.tls_server_name,
        config.accept_invalid_certs,
        config.root_cert_file
    );
    add(Some(text.as_bytes()));
    add(chain.as_deref());
    add(key.as_deref());
    for root in config.root_cert.iter().flatten() {
        add(Some(root));
    }
    Ok(digest.finalize().into())
}

fn of_cluster(config: &Config) -> Result<ClientConfig, TlsError> {
    let is_replaced = config.accept_invalid_certs || config.root_cert_file.is_some();
    let roots = match &config.root_cert {
        _ if is_replaced => Roots::Only(Vec::new()),
        Some(roots) => Roots::Only(roots.iter().cloned().map(CertificateDer::from).collect()),
        None => Roots::SystemAnd(Vec::new()),
    };
    let mut tls = client_config(roots, identity(&config.auth_info)?)?;
    if config.accept_invalid_certs {
        tls.dangerous().set_certificate_verifier(Arc::new(AnyServer));
    } else if let Some(path) = &config.root_cert_file {
        tls.dangerous().set_certificate_verifier(Arc::new(CaFile::open(path.clone())?));
    }
    Ok(tls)
}

/// Certificate chain and key of the client, as PEM; `None` if missing.
type IdentityPem = (Option<Vec<u8>>, Option<Vec<u8>>);

fn identity_pem(auth: &AuthInfo) -> Result<IdentityPem, TlsError> {
    let key_data = auth.client_key_data.as_ref().map(ExposeSecret::expose_secret);
    let chain = pem("client certificate", auth.client_certificate_data.as_deref(), auth.client_certificate.as_deref())?;
    Ok((chain, pem("client key", key_data, auth.client_key.as_deref())?))
}

fn identity(auth: &AuthInfo) -> Result<Option<Identity>, TlsError> {
    match identity_pem(auth)? {
        (None, None) => Ok(None),
        (Some(chain), Some(key)) => Identity::from_pem(&chain, &key).map(Some).map_err(TlsError::Identity),
        (Some(_), None) | (None, Some(_)) => Err(TlsError::Incomplete),
    }
}

/// Returns a certificate or key as PEM. Inline data takes precedence over a file.
fn pem(what: &'static str, data: Option<&str>, file: Option<&str>) -> Result<Option<Vec<u8>>, TlsError> {
    match (data, file) {
        (Some(data), _) => STANDARD.decode(data).map(Some).map_err(|_| TlsError::Base64(what)),
        (None, Some(file)) => read(what, Path::new(file)).map(Some),
        (None, None) => Ok(None),
    }
}

fn read(what: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::File { what, path: path.to_owned(), source })
}

/// Verifier of server certificates with the roots in a CA file. A handshake rereads the file if the roots are older
/// than [`CA_AGE`]. While the file is unusable, the last roots stay in use.
#[derive(Debug)]
struct CaFile {
    path: PathBuf,
    current: Mutex<(Arc<WebPkiServerVerifier>, Instant)>,
}

impl CaFile {
    fn open(path: PathBuf) -> Result<Self, TlsError> {
        let current = Mutex::new((Self::load(&path)?, clock::now()));
        Ok(Self { path, current })
    }

    fn load(path: &Path) -> Result<Arc<WebPkiServerVerifier>, TlsError> {
        let wrong = |problem| TlsError::CaFile { path: path.to_owned(), problem };
        let roots = certificates(&read("CA file", path)?).map_err(|error| wrong(error.to_string()))?;
        verifier(roots).map_err(|error| wrong(error.to_string()))
    }

    fn current(&self) -> Arc<WebPkiServerVerifier> {
        let mut current = self.current.lock();
        if current.1 + CA_AGE <= clock::now() {
            match Self::load(&self.path) {
                Ok(fresh) => current.0 = fresh,
                Err(error) => {
                    let error = with_causes(&error);
                    tracing::warn!(
                        file = %self.path.display(), error,
                        "cannot reload the CA file of a cluster; the previous certificates stay in use"
                    );
                }
            }
            current.1 = clock::now();
        }
        Arc::clone(&current.0)
    }
}

impl ServerCertVerifier for CaFile {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.current().verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.current().verify_tls12_signature(message, cert, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.current().verify_tls13_signature(message, cert, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}

/// Verifier that accepts every server certificate, for `insecure-skip-tls-verify`.
#[derive(Debug)]
struct AnyServer;

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
#[path = "tls_tests.rs"]
mod tests;
