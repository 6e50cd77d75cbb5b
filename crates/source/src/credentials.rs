//! Validity periods of the credentials of a cluster: certificates, tokens, files. Returns dates, never secrets.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use kube::config::{AuthInfo, Cluster, Kubeconfig};
#[cfg(feature = "credential-expiry")]
use rustls::pki_types::CertificateDer;
#[cfg(feature = "credential-expiry")]
use rustls::pki_types::pem::PemObject;
use secrecy::ExposeSecret;
use serde::Deserialize;

use super::client::{self, Access, ClientError, read_kubeconfig};
use informer_hub_types::{Credential, CredentialKind};

/// Size limit of a certificate or token file, in bytes.
const MAX_FILE: u64 = 1 << 20;

const IN_CLUSTER: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Returns the credentials that a cluster's settings name, with their validity. Reads files; runs no plugin.
///
/// # Errors
/// The kubeconfig is invalid; see [`read_kubeconfig`].
pub fn credentials(access: &Access) -> Result<Vec<Credential>, ClientError> {
    Ok(match access {
        Access::Kubeconfig { path, context } => {
            context_credentials(&read_kubeconfig(path, context.as_deref())?, context.as_deref())
        }
        Access::InCluster => vec![
            token_file(&Path::new(IN_CLUSTER).join("token")),
            certificate_file(CredentialKind::CaCertificate, &Path::new(IN_CLUSTER).join("ca.crt")),
        ],
        Access::Server { ca_file, token, .. } => {
            let token = token.as_ref().map(|token| match token {
                client::Token::Env(name) => {
                    let text = std::env::var(name).unwrap_or_default();
                    Credential::new(CredentialKind::Token, format!("variable {name}")).with_token(&text)
                }
                client::Token::File(path) => token_file(path),
            });
            let ca = ca_file.as_ref().map(|ca| certificate_file(CredentialKind::CaCertificate, ca));
            token.into_iter().chain(ca).collect()
        }
        Access::Inline { text, .. } => {
            let found = Kubeconfig::from_yaml(text).map(|kubeconfig| context_credentials(&kubeconfig, None));
            // The kubeconfig is from an object of a cluster source. The controller that writes the object also renews
            // the token.
            let rotating =
                |one: Credential| Credential { rotates: one.rotates || one.kind == CredentialKind::Token, ..one };
            found.unwrap_or_default().into_iter().map(rotating).collect()
        }
        Access::Awaited { .. } | Access::Agent => Vec::new(),
    })
}

/// Returns whether the kubeconfig sets `insecure-skip-tls-verify` for the cluster; `false` if the kubeconfig cannot be
/// read.
#[must_use]
pub fn skips_tls_verification(access: &Access) -> bool {
    let (kubeconfig, context) = match access {
        Access::Kubeconfig { path, context } => (read_kubeconfig(path, context.as_deref()).ok(), context.as_deref()),
        Access::Inline { text, .. } => (Kubeconfig::from_yaml(text).ok(), None),
        Access::InCluster | Access::Server { .. } | Access::Awaited { .. } | Access::Agent => (None, None),
    };
    let Some(kubeconfig) = kubeconfig else { return false };
    let name = context.or(kubeconfig.current_context.as_deref()).unwrap_or_default();
    let context = kubeconfig.contexts.iter().find(|named| named.name == name);
    let Some(context) = context.and_then(|named| named.context.as_ref()) else { return false };
    let cluster = kubeconfig.clusters.iter().find(|named| named.name == context.cluster);
    cluster.and_then(|named| named.cluster.as_ref()).is_some_and(|it| it.insecure_skip_tls_verify == Some(true))
}

/// Returns the credentials of a kubeconfig's context; `None` selects the current context.
#[must_use]
pub fn context_credentials(kubeconfig: &Kubeconfig, context: Option<&str>) -> Vec<Credential> {
    let name = context.or(kubeconfig.current_context.as_deref()).unwrap_or_default();
    let context = kubeconfig.contexts.iter().find(|named| named.name == name).and_then(|named| named.context.as_ref());
    let Some(context) = context else { return Vec::new() };
    let user = context.user.as_deref().unwrap_or_default();
    let auth = kubeconfig.auth_infos.iter().find(|named| named.name == user).and_then(|named| named.auth_info.as_ref());
    let cluster = kubeconfig.clusters.iter().find(|named| named.name == context.cluster);
    let cluster = cluster.and_then(|named| named.cluster.as_ref());
    let mut found = auth.map(|auth| user_credentials(user, auth)).unwrap_or_default();
    found.extend(cluster.and_then(|cluster| ca(&context.cluster, cluster)));
    found
}

fn user_credentials(user: &str, auth: &AuthInfo) -> Vec<Credential> {
    use CredentialKind::{AuthProvider, ClientCertificate, Exec, Password, Token};
    let place = || format!("user {user}");
    let mut found = Vec::new();
    match (&auth.client_certificate_data, &auth.client_certificate) {
        (Some(data), _) => found.push(Credential::new(ClientCertificate, place()).with_encoded(data)),
        (None, Some(file)) => found.push(certificate_file(ClientCertificate, Path::new(file))),
        (None, None) => {}
    }
    match (&auth.token, &auth.token_file) {
        (Some(token), _) => {
            found.push(Credential::new(Token, place()).with_token(token.expose_secret()));
        }
        (None, Some(file)) => found.push(token_file(Path::new(file))),
        (None, None) => {}
    }
    if let Some(exec) = &auth.exec {
        found.push(Credential::new(Exec, exec.command.clone().unwrap_or_else(place)));
    }
    if let Some(provider) = &auth.auth_provider {
        found.push(Credential::new(AuthProvider, provider.name.clone()));
    }
    if auth.username.is_some() {
        found.push(Credential::new(Password, place()));
    }
    found
}

fn ca(name: &str, cluster: &Cluster) -> Option<Credential> {
    let kind = CredentialKind::CaCertificate;
    match (&cluster.certificate_authority_data, &cluster.certificate_authority) {
        (Some(data), _) => Some(Credential::new(kind, format!("cluster {name}")).with_encoded(data)),
        (None, Some(file)) => Some(certificate_file(kind, Path::new(file))),
        (None, None) => None,
    }
}

fn read_file(kind: CredentialKind, path: &Path) -> (Credential, Option<Vec<u8>>) {
    let mut found = Credential::new(kind, path.display().to_string());
    found.file = Some(path.to_owned());
    let modified = fs::metadata(path).and_then(|metadata| metadata.modified());
    found.written = modified.ok().and_then(|time| Timestamp::try_from(time).ok());
    let mut bytes = Vec::new();
    match File::open(path).and_then(|file| file.take(MAX_FILE).read_to_end(&mut bytes)) {
        Ok(_) => (found, Some(bytes)),
        Err(error) => {
            found.problem = Some(format!("cannot be read: {error}"));
            (found, None)
        }
    }
}

/// Reads the validity of a certificate in a PEM file. Blocks.
#[must_use]
pub fn certificate_file(kind: CredentialKind, path: &Path) -> Credential {
    let (found, bytes) = read_file(kind, path);
    match bytes {
        Some(pem) => found.with_pem(&pem),
        None => found,
    }
}

fn token_file(path: &Path) -> Credential {
    let (found, bytes) = read_file(CredentialKind::TokenFile, path);
    match bytes {
        Some(bytes) => found.with_token(&String::from_utf8_lossy(&bytes)),
        None => found,
    }
}

/// Returns the end and the start of validity of each certificate in a PEM text; `None` in a build without certificate
/// parsing.
#[cfg(feature = "credential-expiry")]
#[allow(clippy::unnecessary_wraps, reason = "a build without the feature returns `None`")]
fn validities(pem: &[u8]) -> Option<Vec<(Timestamp, Timestamp)>> {
    let dates = |der: CertificateDer<'_>| {
        let (_, certificate) = x509_parser::parse_x509_certificate(&der).ok()?;
        let validity = certificate.validity();
        let time = |seconds| Timestamp::from_second(seconds).ok();
        Some((time(validity.not_after.timestamp())?, time(validity.not_before.timestamp())?))
    };
    Some(CertificateDer::pem_slice_iter(pem).flatten().filter_map(dates).collect())
}

#[cfg(not(feature = "credential-expiry"))]
fn validities(_: &[u8]) -> Option<Vec<(Timestamp, Timestamp)>> {
    None
}

/// Setters for the validity of a credential, which is read from base64, PEM or a token.
trait WithValidity {
    fn with_encoded(self, data: &str) -> Self;
    fn with_pem(self, pem: &[u8]) -> Self;
    fn with_token(self, token: &str) -> Self;
}

impl WithValidity for Credential {
    fn with_encoded(self, data: &str) -> Self {
        let text: String = data.split_whitespace().collect();
        match STANDARD.decode(text) {
            Ok(pem) => self.with_pem(&pem),
            Err(_) => Self { problem: Some("is not base64".to_owned()), ..self },
        }
    }

    /// Sets the validity from the certificates in a PEM text. For a client certificate with its chain, the earliest
    /// expiry counts. For CAs, the latest counts, since one valid CA is enough.
    fn with_pem(mut self, pem: &[u8]) -> Self {
        let Some(all) = validities(pem) else { return self };
        let chosen = if self.kind == CredentialKind::CaCertificate { all.iter().max() } else { all.iter().min() };
        match chosen {
            Some((expires, issued)) => (self.expires, self.issued) = (Some(*expires), Some(*issued)),
            None => self.problem = Some("holds no certificate in PEM".to_owned()),
        }
        self
    }

    /// Sets the validity of a token from its claims. A token that is not a JWT gets no dates.
    fn with_token(mut self, token: &str) -> Self {
        #[derive(Deserialize)]
        struct Claims {
            exp: Option<f64>,
            iat: Option<f64>,
        }
        let token = token.trim();
        if token.is_empty() {
            self.problem = Some("is empty".to_owned());
            return self;
        }
        let mut parts = token.split('.');
        let (Some(_), Some(claims), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
            return self;
        };
        let claims = URL_SAFE_NO_PAD.decode(claims.trim_end_matches('=')).ok();
        if let Some(claims) = claims.and_then(|bytes| serde_json::from_slice::<Claims>(&bytes).ok()) {
            let time = |seconds: Option<f64>| {
                let seconds = seconds?;
                // A date out of range is ignored.
                #[expect(clippy::cast_possible_truncation, reason = "a cast of a float saturates")]
                Timestamp::from_second(seconds as i64).ok()
            };
            (self.expires, self.issued) = (time(claims.exp), time(claims.iat));
        }
        self
    }
}

/// Returns the kubeconfigs that kubectl reads by default: those in `KUBECONFIG`, or `~/.kube/config`.
#[must_use]
pub fn default_kubeconfigs() -> Vec<PathBuf> {
    let named = std::env::var_os("KUBECONFIG").map(|paths| std::env::split_paths(&paths).collect::<Vec<_>>());
    let named = named.unwrap_or_default().into_iter().filter(|path| !path.as_os_str().is_empty()).collect::<Vec<_>>();
    if named.is_empty() {
        return std::env::home_dir().map(|home| home.join(".kube/config")).into_iter().collect();
    }
    named
}

#[cfg(test)]
#[path = "credentials_tests.rs"]
mod tests;
