//! Certificate files of webhooks: trusted roots and the client certificate.

use std::path::Path;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::{ClientCert, WebhookError};
use informer_hub_tls::{Identity, Roots, certificates, client_config, provider};

/// Checks that a PEM file of trusted roots can be used. Reads the file but does not connect.
///
/// # Errors
/// [`WebhookError`] if the file is not usable.
pub fn check_roots(path: &Path) -> Result<(), WebhookError> {
    let usable = client_config(Roots::Only(read_roots(path)?), None);
    usable.map(drop).map_err(|_| WebhookError::NoCertificate { path: path.to_owned() })
}

pub(super) fn read_roots(path: &Path) -> Result<Vec<CertificateDer<'static>>, WebhookError> {
    let pem = std::fs::read(path).map_err(|source| WebhookError::CaFile { path: path.to_owned(), source })?;
    match certificates(&pem) {
        Ok(roots) if !roots.is_empty() => Ok(roots),
        _ => Err(WebhookError::NoCertificate { path: path.to_owned() }),
    }
}

/// Checks that a client certificate and its key can be used. Reads the files but does not connect.
///
/// # Errors
/// [`WebhookError`] names the wrong file and the problem.
pub fn check_client_cert(cert: &ClientCert) -> Result<(), WebhookError> {
    read_identity(cert).map(drop)
}

/// Reads a client certificate. Certificate and key are checked separately, so that an error names the wrong file.
pub(super) fn read_identity(cert: &ClientCert) -> Result<Identity, WebhookError> {
    let read = |key, path: &Path| {
        std::fs::read(path).map_err(|source| WebhookError::ClientCertFile { key, path: path.to_owned(), source })
    };
    let wrong = |key, path: &Path, problem| WebhookError::ClientCert { key, path: path.to_owned(), problem };
    let (cert_key, key_key) = ("client_cert_file", "client_key_file");
    let pem = read(cert_key, &cert.cert_file)?;
    let private = read(key_key, &cert.key_file)?;
    let chain = certificates(&pem).unwrap_or_default();
    if chain.is_empty() {
        return Err(wrong(cert_key, &cert.cert_file, "holds no PEM certificate"));
    }
    let Ok(key) = PrivateKeyDer::from_pem_slice(&private) else {
        return Err(wrong(key_key, &cert.key_file, "holds no PEM private key"));
    };
    match rustls::sign::CertifiedKey::from_der(chain.clone(), key.clone_key(), &provider()) {
        Ok(_) => Ok(Identity { chain, key }),
        Err(rustls::Error::InconsistentKeys(_)) => {
            Err(wrong(key_key, &cert.key_file, "does not match the certificate in client_cert_file"))
        }
        Err(_) => Err(wrong(key_key, &cert.key_file, "certificate and key cannot be used for TLS")),
    }
}
