//! Cluster Secrets of Argo CD: `name`, `server`, and `config` as JSON.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;

use super::credentials::{Credentials, Keys, given};
use super::object::{Secret, read};
use super::source_report::{Candidate, SourceReport};
use crate::{ClusterAccess, ClusterSourceConfig, Management};

/// Label selector of Argo CD's cluster Secrets.
pub const ARGOCD_SELECTOR: &str = "argocd.argoproj.io/secret-type=cluster";

/// Prefix of the label keys that Argo CD sets for its own use.
const OWN: &str = "argocd.argoproj.io/";

/// Host name under which pods reach the apiserver of their own cluster.
const ITSELF: &str = "kubernetes.default.svc";

const KEYS: Keys = Keys {
    server: "data.server",
    ca: "data.config: tlsClientConfig.caData",
    insecure: "data.config: tlsClientConfig.insecure",
    certificate: "data.config: tlsClientConfig.certData",
    key: "data.config: tlsClientConfig.keyData",
    proxy: "data.config: proxyUrl",
};

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Login {
    username: Option<String>,
    password: Option<String>,
    bearer_token: Option<String>,
    tls_client_config: Option<Tls>,
    aws_auth_config: Option<Value>,
    exec_provider_config: Option<Value>,
    proxy_url: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Tls {
    insecure: Option<bool>,
    server_name: Option<String>,
    ca_data: Option<String>,
    cert_data: Option<String>,
    key_data: Option<String>,
}

/// Reads the clusters that Argo CD's Secrets describe. Each Secret is given as JSON.
pub fn report_from_argocd<J: AsRef<[u8]>>(
    source: &ClusterSourceConfig,
    management: &Management,
    secrets: impl IntoIterator<Item = J>,
) -> SourceReport {
    let mut report = SourceReport::default();
    for json in secrets {
        match read::<Secret>(json.as_ref()) {
            Ok(secret) => report.note(source, &secret.title(), candidate(&secret, management)),
            Err(problem) => report.note(source, "Secret", Err(problem)),
        }
    }
    report
}

fn candidate<'s>(secret: &'s Secret, management: &Management) -> Result<Candidate<'s>, String> {
    let object = secret.title();
    let server = secret.text("server")?.ok_or("data.server is missing; it is the apiserver's address")?;
    let config = match secret.text("config")? {
        None => Login::default(),
        Some(text) => serde_json::from_str(&text).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            format!("data.config is not the JSON of an Argo CD cluster: error at line {line}, column {column}")
        })?,
    };
    let credentials = credentials(server, config)?;
    let host = credentials.server.parse::<http::Uri>().ok().and_then(|uri| uri.host().map(str::to_owned));
    let is_itself = host.is_some_and(|host| host == ITSELF || host.starts_with(&format!("{ITSELF}.")));
    let access = if is_itself && credentials.is_anonymous() {
        // Only pods of the management cluster can resolve this host. The hub may run elsewhere, so it uses its own
        // connection.
        management.access.clone()
    } else {
        ClusterAccess::Inline(credentials.kubeconfig(KEYS, &object)?)
    };
    Ok(Candidate {
        object,
        name: secret.text("name")?.map_or(Cow::Borrowed(secret.metadata.name.as_str()), Cow::Owned),
        namespace: &secret.metadata.namespace,
        labels: secret.metadata.labels(|key| key.starts_with(OWN)),
        access,
    })
}

fn credentials(server: String, config: Login) -> Result<Credentials, String> {
    let is_there = |value: &Option<Value>| value.as_ref().is_some_and(|value| !value.is_null());
    if is_there(&config.aws_auth_config) {
        return Err(
            "data.config has awsAuthConfig, which is not supported: its token comes from a program of Argo CD; \
                    write a [clusters.<name>] with a kubeconfig whose user has exec"
                .to_owned(),
        );
    }
    if is_there(&config.exec_provider_config) {
        return Err("data.config has execProviderConfig, which is not supported: commands from Secrets are not run; \
                    write a [clusters.<name>] with a kubeconfig whose user has exec"
            .to_owned());
    }
    let (token, user) = (given(config.bearer_token.as_deref()), given(config.username.as_deref()));
    if token.is_some() && user.is_some() {
        return Err("data.config has bearerToken and username; keep one of them".to_owned());
    }
    let tls = config.tls_client_config.unwrap_or_default();
    let certificate = match (given(tls.cert_data.as_deref()), given(tls.key_data.as_deref())) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        (Some(_), None) => return Err("data.config: tlsClientConfig has certData without keyData".to_owned()),
        (None, Some(_)) => return Err("data.config: tlsClientConfig has keyData without certData".to_owned()),
    };
    Ok(Credentials {
        server,
        ca_data: given(tls.ca_data.as_deref()),
        insecure: tls.insecure.unwrap_or(false),
        tls_server_name: given(tls.server_name.as_deref()),
        proxy_url: given(config.proxy_url.as_deref()),
        token,
        password: user.map(|name| (name, config.password.unwrap_or_default())),
        certificate,
        ..Credentials::default()
    })
}
