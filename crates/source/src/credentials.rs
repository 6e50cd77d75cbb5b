//! How long what a cluster is reached with is good for: certificates, tokens, files. Dates only; nothing secret leaves.

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

/// What is read of a file: no certificate or token is as large.
const MOST: u64 = 1 << 20;

const IN_CLUSTER: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Everything that a cluster is reached with, as it is now. Reads files, and runs no plugin.
///
/// # Errors
/// The kubeconfig's, as [`read_kubeconfig`] has them.
pub fn credentials(access: &Access) -> Result<Vec<Credential>, ClientError> {
    Ok(match access {
        Access::Kubeconfig { path, context } => {
            of_context(&read_kubeconfig(path, context.as_deref())?, context.as_deref())
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
            let found = Kubeconfig::from_yaml(text).map(|kubeconfig| of_context(&kubeconfig, None));
            // What wrote the object that it is from writes the next one.
            let rotating =
                |one: Credential| Credential { rotates: one.rotates || one.kind == CredentialKind::Token, ..one };
            found.unwrap_or_default().into_iter().map(rotating).collect()
        }
        Access::Awaited { .. } => Vec::new(),
    })
}

/// Whether a kubeconfig says `insecure-skip-tls-verify` of the cluster; false where it cannot be read.
#[must_use]
pub fn skips_tls_verification(access: &Access) -> bool {
    let (kubeconfig, context) = match access {
        Access::Kubeconfig { path, context } => (read_kubeconfig(path, context.as_deref()).ok(), context.as_deref()),
        Access::Inline { text, .. } => (Kubeconfig::from_yaml(text).ok(), None),
        Access::InCluster | Access::Server { .. } | Access::Awaited { .. } => (None, None),
    };
    let Some(kubeconfig) = kubeconfig else { return false };
    let wanted = context.or(kubeconfig.current_context.as_deref()).unwrap_or_default();
    let context = kubeconfig.contexts.iter().find(|named| named.name == wanted);
    let Some(context) = context.and_then(|named| named.context.as_ref()) else { return false };
    let cluster = kubeconfig.clusters.iter().find(|named| named.name == context.cluster);
    cluster.and_then(|named| named.cluster.as_ref()).is_some_and(|it| it.insecure_skip_tls_verify == Some(true))
}

/// Everything that a context of a kubeconfig is reached with; the current one if none is named.
#[must_use]
pub fn of_context(kubeconfig: &Kubeconfig, context: Option<&str>) -> Vec<Credential> {
    let wanted = context.or(kubeconfig.current_context.as_deref()).unwrap_or_default();
    let context =
        kubeconfig.contexts.iter().find(|named| named.name == wanted).and_then(|named| named.context.as_ref());
    let Some(context) = context else { return Vec::new() };
    let user = context.user.as_deref().unwrap_or_default();
    let auth = kubeconfig.auth_infos.iter().find(|named| named.name == user).and_then(|named| named.auth_info.as_ref());
    let cluster = kubeconfig.clusters.iter().find(|named| named.name == context.cluster);
    let cluster = cluster.and_then(|named| named.cluster.as_ref());
    let mut found = auth.map(|auth| of_user(user, auth)).unwrap_or_default();
    found.extend(cluster.and_then(|cluster| ca(&context.cluster, cluster)));
    found
}

fn of_user(user: &str, auth: &AuthInfo) -> Vec<Credential> {
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

fn of_file(kind: CredentialKind, path: &Path) -> (Credential, Option<Vec<u8>>) {
    let mut found = Credential::new(kind, path.display().to_string());
    found.file = Some(path.to_owned());
    let modified = fs::metadata(path).and_then(|metadata| metadata.modified());
    found.written = modified.ok().and_then(|time| Timestamp::try_from(time).ok());
    let mut bytes = Vec::new();
    match File::open(path).and_then(|file| file.take(MOST).read_to_end(&mut bytes)) {
        Ok(_) => (found, Some(bytes)),
        Err(error) => {
            found.problem = Some(format!("cannot be read: {error}"));
            (found, None)
        }
    }
}

/// Reads the dates of a certificate in a PEM file. Blocks.
#[must_use]
pub fn certificate_file(kind: CredentialKind, path: &Path) -> Credential {
    let (found, bytes) = of_file(kind, path);
    match bytes {
        Some(pem) => found.with_pem(&pem),
        None => found,
    }
}

fn token_file(path: &Path) -> Credential {
    let (found, bytes) = of_file(CredentialKind::TokenFile, path);
    match bytes {
        Some(bytes) => found.with_token(&String::from_utf8_lossy(&bytes)),
        None => found,
    }
}

/// Returns until when, and from when, each certificate of a PEM text is valid; `None` in a build that cannot read them.
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

/// Reads the dates of a credential from its text.
trait Dated {
    fn with_encoded(self, data: &str) -> Self;
    fn with_pem(self, pem: &[u8]) -> Self;
    fn with_token(self, token: &str) -> Self;
}

impl Dated for Credential {
    fn with_encoded(self, data: &str) -> Self {
        let text: String = data.split_whitespace().collect();
        match STANDARD.decode(text) {
            Ok(pem) => self.with_pem(&pem),
            Err(_) => Self { problem: Some("is not base64".to_owned()), ..self },
        }
    }

    /// Of a chain what ends first counts; of several CAs what ends last, for one that is good is enough.
    fn with_pem(mut self, pem: &[u8]) -> Self {
        let Some(all) = validities(pem) else { return self };
        let chosen = if self.kind == CredentialKind::CaCertificate { all.iter().max() } else { all.iter().min() };
        match chosen {
            Some((expires, issued)) => (self.expires, self.issued) = (Some(*expires), Some(*issued)),
            None => self.problem = Some("holds no certificate in PEM".to_owned()),
        }
        self
    }

    /// A token that is no JWT has no dates.
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
                // Beyond what a timestamp holds it is none.
                #[expect(clippy::cast_possible_truncation, reason = "a cast of a float saturates")]
                Timestamp::from_second(seconds as i64).ok()
            };
            (self.expires, self.issued) = (time(claims.exp), time(claims.iat));
        }
        self
    }
}

/// Where the kubeconfigs are that kubectl would read: `KUBECONFIG`, which may name several, or `~/.kube/config`.
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
