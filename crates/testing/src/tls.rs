//! Test CA, and configurations of TLS servers with its certificates.

use std::fmt;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    ALL_VERSIONS, ConfigBuilder, RootCertStore, ServerConfig, ServerConnection, Stream, SupportedProtocolVersion,
    WantsVerifier,
};

/// Address in the certificates of test servers, which listen on loopback.
const SERVER: &str = "127.0.0.1";

/// CA with a new key, used by one test.
pub struct Ca(CertifiedIssuer<'static, KeyPair>);

impl Ca {
    /// Creates a CA.
    ///
    /// # Panics
    /// If ring cannot create keys.
    #[allow(clippy::new_without_default, reason = "each CA has another key, so there is no default one")]
    #[must_use]
    pub fn new() -> Self {
        let mut ca = CertificateParams::default();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(ca, new_key()).expect("a CA can sign itself"))
    }

    /// Returns the CA's certificate as PEM.
    #[must_use]
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Issues a certificate for a host name, an address or a user. Returns the certificate and its key as PEM.
    ///
    /// # Panics
    /// If the name is not ASCII.
    #[must_use]
    pub fn issue(&self, name: &str) -> (String, String) {
        self.issue_with(&named(name))
    }

    /// Issues a certificate with these parameters. Returns the certificate and its key as PEM.
    ///
    /// # Panics
    /// If the parameters are invalid.
    #[must_use]
    pub fn issue_with(&self, params: &CertificateParams) -> (String, String) {
        let key = new_key();
        let certificate = params.signed_by(&key, &self.0).expect("the parameters are valid");
        (certificate.pem(), key.serialize_pem())
    }

    /// Returns the configuration of a server on 127.0.0.1 that offers these protocols in ALPN.
    ///
    /// # Panics
    /// If ring cannot create keys.
    #[must_use]
    pub fn server_config(&self, protocols: &[&[u8]]) -> Arc<ServerConfig> {
        let (chain, key) = self.server_identity();
        let config = builder().with_no_client_auth().with_single_cert(chain, key);
        let mut config = config.expect("the key is that of the certificate");
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Arc::new(config)
    }

    /// Returns the configuration of a server on 127.0.0.1 that requires a client certificate of this CA.
    ///
    /// # Panics
    /// If ring cannot create keys.
    #[must_use]
    pub fn mutual_server_config(&self) -> Arc<ServerConfig> {
        self.mutual_server_config_of(&[], ALL_VERSIONS)
    }

    /// Returns the configuration of a server on 127.0.0.1 that requires a client certificate of this CA. The server
    /// offers these protocols in ALPN and these TLS versions.
    ///
    /// # Panics
    /// If ring cannot create keys.
    #[must_use]
    pub fn mutual_server_config_of(
        &self,
        protocols: &[&[u8]],
        versions: &[&'static SupportedProtocolVersion],
    ) -> Arc<ServerConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).expect("the CA is a valid root");
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build();
        let (chain, key) = self.server_identity();
        let builder = ServerConfig::builder_with_provider(provider()).with_protocol_versions(versions);
        let builder = builder.expect("ring supports all versions of TLS");
        let builder = builder.with_client_cert_verifier(verifier.expect("there is a root"));
        let mut config = builder.with_single_cert(chain, key).expect("the key is that of the certificate");
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Arc::new(config)
    }

    fn server_identity(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let key = new_key();
        let certificate = named(SERVER).signed_by(&key, &self.0).expect("the parameters are valid");
        (vec![certificate.der().clone()], PrivateKeyDer::Pkcs8(key.serialize_der().into()))
    }
}

impl fmt::Debug for Ca {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ca").finish_non_exhaustive()
    }
}

/// Accepts a TLS connection on `socket`, reads once and writes `answer`. Returns whether all of this succeeded.
#[must_use]
pub fn answer(mut socket: TcpStream, config: Arc<ServerConfig>, answer: &[u8]) -> bool {
    let Ok(mut tls) = ServerConnection::new(config) else { return false };
    let mut stream = Stream::new(&mut tls, &mut socket);
    stream.read(&mut [0; 4096]).is_ok() && stream.write_all(answer).is_ok()
}

fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(vec![name.to_owned()]).expect("the name is ASCII");
    // Use a subject of its own: with the CA's, OpenSSL considers the certificate self-signed.
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn new_key() -> KeyPair {
    KeyPair::generate().expect("ring creates keys")
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn builder() -> ConfigBuilder<ServerConfig, WantsVerifier> {
    let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    builder.expect("ring supports the default versions of TLS")
}
