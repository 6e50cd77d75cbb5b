//! TLS settings for the hub's clients, with ring as their crypto provider.
//!
//! By default, rustls and HTTP clients based on it use the crypto provider of the whole process, or install one. A
//! program that embeds the hub must be free to choose that provider. So every client of the hub takes its TLS settings
//! from this crate, which neither reads nor installs the provider of the process.

use std::fmt;
use std::sync::{Arc, LazyLock};

use rustls::client::WebPkiServerVerifier;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, Error, RootCertStore};
use rustls_platform_verifier::Verifier;

static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| Arc::new(ring::default_provider()));

/// Returns the crypto provider of the hub.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    Arc::clone(&PROVIDER)
}

/// Certificates that a client trusts.
#[derive(Clone, Debug)]
pub enum Roots {
    /// The operating system's trusted certificates. If there are none, no server is trusted.
    AnyOfSystem,
    /// The operating system's trusted certificates and the given certificates. It is an error if there is no
    /// certificate at all.
    SystemAnd(Vec<CertificateDer<'static>>),
    /// Only these certificates.
    Only(Vec<CertificateDer<'static>>),
}

/// Client certificate with its chain and key. `Debug` does not show the key.
pub struct Identity {
    /// The certificate, then its intermediates.
    pub chain: Vec<CertificateDer<'static>>,
    /// Private key of the certificate.
    pub key: PrivateKeyDer<'static>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("chain", &self.chain.len()).finish_non_exhaustive()
    }
}

impl Identity {
    /// Reads certificates and a key from PEM. Both arguments may be the same text.
    ///
    /// # Errors
    /// There is no certificate or no key, or the PEM is malformed.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, pem::Error> {
        let chain = certificates(chain)?;
        if chain.is_empty() {
            return Err(pem::Error::NoItemsFound);
        }
        Ok(Self { chain, key: PrivateKeyDer::from_pem_slice(key)? })
    }
}

/// Reads all certificates of a PEM text. Other sections are skipped.
///
/// # Errors
/// The PEM is malformed.
pub fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, pem::Error> {
    CertificateDer::pem_slice_iter(pem).collect()
}

/// Returns a verifier that accepts servers whose certificate one of these roots has signed.
///
/// # Errors
/// If a root is not a certificate, or `roots` is empty.
pub fn verifier(roots: Vec<CertificateDer<'static>>) -> Result<Arc<WebPkiServerVerifier>, Error> {
    let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(store(roots)?), provider());
    builder.build().map_err(|error| Error::General(error.to_string()))
}

/// Returns TLS settings for a client, without ALPN. Reads the system's certificates if the roots include them.
///
/// # Errors
/// A root or the identity is unusable, or [`Roots::SystemAnd`] has no root at all.
pub fn client_config(roots: Roots, identity: Option<Identity>) -> Result<ClientConfig, Error> {
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let builder = match roots {
        Roots::SystemAnd(others) => {
            let verifier = Verifier::new_with_extra_roots(others, provider())?;
            builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
        }
        Roots::AnyOfSystem => match Verifier::new(provider()) {
            Ok(verifier) => builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)),
            Err(_) => builder.with_root_certificates(RootCertStore::empty()),
        },
        Roots::Only(roots) => builder.with_root_certificates(store(roots)?),
    };
    match identity {
        Some(Identity { chain, key }) => builder.with_client_auth_cert(chain, key),
        None => Ok(builder.with_no_client_auth()),
    }
}

/// Returns TLS settings for a client like [`client_config`], with HTTP/2 and HTTP/1.1 in ALPN.
///
/// # Errors
/// As for [`client_config`].
pub fn http_config(roots: Roots, identity: Option<Identity>) -> Result<ClientConfig, Error> {
    let mut config = client_config(roots, identity)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn store(roots: Vec<CertificateDer<'static>>) -> Result<RootCertStore, Error> {
    let mut store = RootCertStore::empty();
    for root in roots {
        store.add(root)?;
    }
    Ok(store)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use informer_hub_testing::tls::{Ca, answer};
    use rustls::{ClientConnection, Stream};

    use super::*;

    /// Connects to a server whose certificate is signed by `ca`. Returns whether both sides succeed.
    fn connects(ca: &Ca, mutual: bool, config: ClientConfig) -> bool {
        use std::io::{Read, Write};
        let server = if mutual { ca.mutual_server_config() } else { ca.server_config(&[]) };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let serving = std::thread::spawn(move || answer(listener.accept().unwrap().0, server, b"x"));
        let mut tls = ClientConnection::new(Arc::new(config), "127.0.0.1".try_into().unwrap()).unwrap();
        let mut socket = TcpStream::connect(address).unwrap();
        let mut stream = Stream::new(&mut tls, &mut socket);
        let mut byte = [0];
        let answered = stream.write_all(b"?").is_ok() && stream.read_exact(&mut byte).is_ok();
        drop(socket);
        serving.join().unwrap() && answered
    }

    #[test]
    fn only_the_given_roots_are_trusted() {
        let (ca, other) = (Ca::new(), Ca::new());
        let roots = |ca: &Ca| Roots::Only(certificates(ca.pem().as_bytes()).unwrap());
        assert!(connects(&ca, false, client_config(roots(&ca), None).unwrap()));
        assert!(!connects(&ca, false, client_config(roots(&other), None).unwrap()));
        let both = Roots::SystemAnd(certificates(ca.pem().as_bytes()).unwrap());
        assert!(connects(&ca, false, client_config(both, None).unwrap()));
    }

    #[test]
    fn identity_is_shown_to_the_server() {
        let ca = Ca::new();
        let roots = || Roots::Only(certificates(ca.pem().as_bytes()).unwrap());
        let (chain, key) = ca.issue("client");
        let identity = Identity::from_pem(chain.as_bytes(), key.as_bytes()).unwrap();
        assert!(!format!("{identity:?}").contains("Pkcs8"));
        assert!(connects(&ca, true, http_config(roots(), Some(identity)).unwrap()));
        assert!(!connects(&ca, true, http_config(roots(), None).unwrap()));
    }

    #[test]
    fn unusable_pem_is_an_error() {
        let (chain, key) = Ca::new().issue("client");
        assert!(Identity::from_pem(key.as_bytes(), key.as_bytes()).is_err());
        assert!(Identity::from_pem(chain.as_bytes(), chain.as_bytes()).is_err());
        let (_, other) = Ca::new().issue("client");
        let identity = Identity::from_pem(chain.as_bytes(), other.as_bytes()).unwrap();
        assert!(client_config(Roots::Only(Vec::new()), Some(identity)).is_err());
        assert!(certificates(b"-----BEGIN CERTIFICATE-----\n!\n").is_err());
    }

    #[test]
    fn process_wide_provider_stays_uninstalled() {
        let ca = Ca::new();
        client_config(Roots::SystemAnd(certificates(ca.pem().as_bytes()).unwrap()), None).unwrap();
        verifier(certificates(ca.pem().as_bytes()).unwrap()).unwrap();
        assert!(CryptoProvider::get_default().is_none());
    }
}
