//! Parser of kubeconfigs. Of a kubeconfig from an untrusted object, only the credentials are copied. Of a kubeconfig
//! file that belongs to the operator, only the contexts are read.

use serde::Deserialize;
use serde_json::Value;

use super::credentials::{Credentials, Keys, given};
use crate::{InlineKubeconfig, url};

/// Names of a kubeconfig's keys, for error messages.
pub(super) const KEYS: Keys = Keys {
    server: "server",
    ca: "certificate-authority-data",
    insecure: "insecure-skip-tls-verify",
    certificate: "client-certificate-data",
    key: "client-key-data",
    proxy: "proxy-url",
};

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(super) struct Kubeconfig {
    clusters: Option<Vec<NamedCluster>>,
    users: Option<Vec<NamedUser>>,
    contexts: Option<Vec<NamedContext>>,
    current_context: Option<String>,
}

#[derive(Deserialize)]
struct NamedCluster {
    name: String,
    cluster: Option<Cluster>,
}

#[derive(Deserialize)]
struct NamedUser {
    name: String,
    user: Option<User>,
}

#[derive(Deserialize)]
struct NamedContext {
    name: String,
    context: Option<Context>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(super) struct Cluster {
    pub(super) server: Option<String>,
    pub(super) certificate_authority: Option<String>,
    pub(super) certificate_authority_data: Option<String>,
    pub(super) insecure_skip_tls_verify: Option<bool>,
    pub(super) tls_server_name: Option<String>,
    pub(super) proxy_url: Option<String>,
    pub(super) extensions: Option<Vec<Extension>>,
}

/// Named extension of a cluster entry.
#[derive(Clone, Deserialize)]
pub(super) struct Extension {
    pub(super) name: String,
    #[serde(default)]
    pub(super) extension: Value,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct User {
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<String>,
    username: Option<String>,
    password: Option<String>,
    client_certificate: Option<String>,
    client_certificate_data: Option<String>,
    client_key: Option<String>,
    client_key_data: Option<String>,
    exec: Option<Value>,
    auth_provider: Option<Value>,
    #[serde(rename = "as")]
    impersonate: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Context {
    cluster: String,
    user: Option<String>,
}

impl Kubeconfig {
    /// Parses a kubeconfig. Errors do not quote the text.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let read: Self = serde_saphyr::from_str(text).map_err(|error| {
            let place = error.location().map(|at| format!(": error at line {}, column {}", at.line(), at.column()));
            format!("is not a valid kubeconfig{}", place.unwrap_or_default())
        })?;
        if read.contexts.as_deref().unwrap_or_default().is_empty() {
            return Err("is a kubeconfig without contexts".to_owned());
        }
        Ok(read)
    }

    /// Returns the names of the kubeconfig's contexts.
    pub(super) fn contexts(&self) -> impl Iterator<Item = &str> {
        self.contexts.iter().flatten().map(|context| context.name.as_str())
    }

    /// Checks that a context (by default the current one) refers to a cluster with a valid address.
    pub(super) fn check(&self, context: Option<&str>) -> Result<(), String> {
        let (cluster, _) = self.of_context(context)?;
        url(cluster.server.as_deref().unwrap_or_default()).map(drop).map_err(|problem| format!("server: {problem}"))
    }

    fn of_context(&self, context: Option<&str>) -> Result<(&Cluster, Option<&User>), String> {
        let wanted = context.or(self.current_context.as_deref()).filter(|name| !name.is_empty());
        let wanted = wanted.ok_or("names no current context; set current-context")?;
        let found = self.contexts.iter().flatten().find(|context| context.name == wanted);
        let found = found.and_then(|named| named.context.as_ref());
        let context = found.ok_or_else(|| format!("has no context {wanted:?}"))?;
        let cluster = self.clusters.iter().flatten().find(|cluster| cluster.name == context.cluster);
        let cluster = cluster.and_then(|named| named.cluster.as_ref());
        let cluster = cluster.ok_or_else(|| format!("has no cluster {:?}, named by its context", context.cluster))?;
        let Some(user) = context.user.as_deref().filter(|user| !user.is_empty()) else { return Ok((cluster, None)) };
        let known = self.users.iter().flatten().find(|known| known.name == user);
        let known = known.ok_or_else(|| format!("has no user {user:?}, named by its context"))?;
        Ok((cluster, known.user.as_ref()))
    }

    /// Returns the credentials of the current context. Fails if they have keys that only the operator may set, such as
    /// `exec`.
    pub(super) fn credentials(&self) -> Result<Credentials, String> {
        let (cluster, user) = self.of_context(None)?;
        let mut credentials = of_cluster(cluster)?;
        let Some(user) = user else { return Ok(credentials) };
        let refused = [
            ("exec", user.exec.is_some(), "commands from Secrets are not run"),
            ("auth-provider", user.auth_provider.is_some(), "it would read and write files of the hub"),
            ("tokenFile", user.token_file.is_some(), "Secrets must not name files of the hub; write token"),
            ("client-certificate", user.client_certificate.is_some(), "write client-certificate-data"),
            ("client-key", user.client_key.is_some(), "write client-key-data"),
            ("as", user.impersonate.is_some(), "impersonation from Secrets is not allowed"),
        ];
        if let Some((key, _, why)) = refused.into_iter().find(|(_, is_there, _)| *is_there) {
            return Err(format!("its user has {key}, which is not supported: {why}"));
        }
        credentials.token = given(user.token.as_deref());
        credentials.password =
            given(user.username.as_deref()).map(|name| (name, user.password.clone().unwrap_or_default()));
        credentials.certificate =
            match (given(user.client_certificate_data.as_deref()), given(user.client_key_data.as_deref())) {
                (Some(certificate), Some(key)) => Some((certificate, key)),
                (None, None) => None,
                _ => {
                    return Err(
                        "its user has one of client-certificate-data and client-key-data; both are needed".to_owned()
                    );
                }
            };
        Ok(credentials)
    }
}

/// Builds a kubeconfig from untrusted text, with only the keys that are allowed in it.
pub(super) fn from_data(text: &str, origin: &str) -> Result<InlineKubeconfig, String> {
    Kubeconfig::read(text)?.credentials()?.kubeconfig(KEYS, origin)
}

/// Returns the address and the CA of a cluster entry, as credentials without a user.
pub(super) fn of_cluster(cluster: &Cluster) -> Result<Credentials, String> {
    if cluster.certificate_authority.as_ref().is_some_and(|file| !file.is_empty()) {
        let problem = "its cluster has certificate-authority, which is not supported: write certificate-authority-data";
        return Err(problem.to_owned());
    }
    Ok(Credentials {
        server: cluster.server.clone().unwrap_or_default(),
        ca_data: given(cluster.certificate_authority_data.as_deref()),
        insecure: cluster.insecure_skip_tls_verify.unwrap_or(false),
        tls_server_name: given(cluster.tls_server_name.as_deref()),
        proxy_url: given(cluster.proxy_url.as_deref()),
        ..Credentials::default()
    })
}
