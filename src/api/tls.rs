//! TLS files of the port: its certificate, and the CA of client certificates. `guard.rs` reloads them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use informer_hub_disk::FileStates;

/// TLS files, checked for changes every second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// PEM file with the certificate and the intermediate certificates.
    pub cert_file: PathBuf,
    /// PEM file with the private key.
    pub key_file: PathBuf,
    /// PEM file with the CA of client certificates. A certificate that matches no reader grants all rights, unless
    /// access reviews are enabled. Without this file, no client certificate is requested.
    pub client_ca_file: Option<PathBuf>,
}

/// Unusable TLS file; the operator can fix it.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file could not be read.
    #[error("cannot read {key} {}", .path.display())]
    Unreadable {
        /// `cert_file`, `key_file` or `client_ca_file`.
        key: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Error of the read.
        #[source]
        source: io::Error,
    },
    /// A file cannot be used.
    #[error("{key} {}: {problem}", .path.display())]
    Unusable {
        /// `cert_file`, `key_file` or `client_ca_file`.
        key: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Why the file is unusable.
        problem: &'static str,
    },
}

impl TlsError {
    /// Returns the configuration key of the file.
    #[must_use]
    pub fn key(&self) -> &'static str {
        match self {
            Self::Unreadable { key, .. } | Self::Unusable { key, .. } => key,
        }
    }
}

impl TlsFiles {
    /// Returns the sizes and modification times of the files, to detect changes.
    pub(super) fn states(&self) -> FileStates {
        let files = [Some(&self.cert_file), Some(&self.key_file), self.client_ca_file.as_ref()];
        FileStates::of(files.into_iter().flatten())
    }

    /// Reads the files into a TLS configuration. A client certificate is optional, because probes have none.
    pub(super) fn read(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let (chain, key) = self.certified()?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let useless = |problem| unusable("cert_file", &self.cert_file, problem);
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|_| useless("the provider supports no version of TLS"))?;
        let builder = match &self.client_ca_file {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let roots = Arc::new(roots(path)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).allow_unauthenticated();
                let verifier = verifier.build();
                let wrong = |_| unusable("client_ca_file", path, "its certificates cannot be used as CA certificates");
                builder.with_client_cert_verifier(verifier.map_err(wrong)?)
            }
        };
        let config = builder.with_single_cert(chain, key);
        let mut config = config.map_err(|_| useless("certificate and key cannot be used for TLS"))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// Reads the hub's certificate chain and private key. The two files are checked separately, so that an error names
    /// the right one.
    fn certified(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
        let chain = certificates("cert_file", &self.cert_file)?;
        let pem = content("key_file", &self.key_file)?;
        let wrong = |problem| unusable("key_file", &self.key_file, problem);
        let key = PrivateKeyDer::from_pem_slice(&pem).map_err(|_| wrong("holds no PEM private key"))?;
        let provider = rustls::crypto::ring::default_provider();
        match rustls::sign::CertifiedKey::from_der(chain.clone(), key.clone_key(), &provider) {
            Ok(_) => Ok((chain, key)),
            Err(rustls::Error::InconsistentKeys(_)) => Err(wrong("is not the key of the certificate in cert_file")),
            Err(_) => Err(wrong("certificate and key cannot be used for TLS")),
        }
    }
}

/// Checks the files without opening a port.
///
/// # Errors
/// [`TlsError`] if a file cannot be used.
pub fn check_tls(files: &TlsFiles) -> Result<(), TlsError> {
    files.read().map(drop)
}

fn roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("client_ca_file", path)? {
        roots.add(certificate).map_err(|_| unusable("client_ca_file", path, "holds an invalid certificate"))?;
    }
    Ok(roots)
}

fn certificates(key: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = content(key, path)?;
    match CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>() {
        Ok(chain) if !chain.is_empty() => Ok(chain),
        _ => Err(unusable(key, path, "holds no PEM certificate")),
    }
}

fn content(key: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::Unreadable { key, path: path.to_owned(), source })
}

fn unusable(key: &'static str, path: &Path, problem: &'static str) -> TlsError {
    TlsError::Unusable { key, path: path.to_owned(), problem }
}
