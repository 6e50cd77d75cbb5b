//! A credential plugin: its settings, its command, and the credentials that it returns.

use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use jiff::Timestamp;
use kube::Config;
use kube::config::{AuthInfo, ExecConfig, ExecInteractiveMode};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::json;

use super::process::{self, DEADLINE, KillReason, MAX_STDERR, MAX_STDOUT, Run};
use super::{environment, stderr_log};
use informer_hub_types::{printable_end, printable_start};

/// Supported versions of the plugin API, the default first.
const VERSIONS: [&str; 2] = ["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"];
/// Maximum characters of a command's name in an error message.
const MAX_NAME: usize = 120;
const MAX_HINT: usize = 200;
const MAX_QUOTE: usize = 240;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ExecError {
    /// The exec section has no command.
    #[error("the exec section has no command")]
    NoCommand,
    /// The API version is not supported.
    #[error("apiVersion {0:?} of the exec section is not supported: write {first} or {second}", first = VERSIONS[0], second = VERSIONS[1])]
    Version(String),
    /// The login needs a terminal.
    #[error(
        "command '{0}' needs a terminal (interactiveMode: Always), which the hub does not have: choose a login method that needs no terminal"
    )]
    Interactive(String),
    /// The kubeconfig's cluster cannot be serialized for the plugin.
    #[error("cannot read the cluster of the context, which provideClusterInfo requires")]
    ClusterInfo,
    /// The user has a legacy `auth-provider`, whose command kube would run without bounds.
    #[error("auth-provider {0} runs a command (cmd-path), which is not supported: write an exec section")]
    AuthProvider(String),
    /// The command is not installed.
    #[error("command '{command}' is not in the PATH of the hub{hint}")]
    Missing {
        command: String,
        /// The kubeconfig's `installHint`.
        hint: String,
    },
    /// The command cannot be started: permissions, format, interpreter.
    #[error("cannot run command '{command}': {error}")]
    Start { command: String, error: std::io::Error },
    /// The command exited with a failure.
    #[error("command '{command}' failed with {status}{stderr_end}")]
    Failed { command: String, status: ExitStatus, stderr_end: String },
    /// The command exceeded its deadline and was killed.
    #[error("command '{command}' did not end within {} s and was killed{stderr_end}", limit.as_secs())]
    Deadline { command: String, limit: Duration, stderr_end: String },
    /// The command wrote too much and was killed.
    #[error("command '{command}' wrote more than {limit} bytes to its {stream} and was killed{stderr_end}")]
    TooLong { command: String, stream: &'static str, limit: u64, stderr_end: String },
    /// The standard output is not an ExecCredential.
    #[error("the output of command '{0}' is not an ExecCredential with a status")]
    Output(String),
    /// The ExecCredential has no token and no certificate.
    #[error("command '{0}' returned neither a token nor a certificate with its key")]
    Nothing(String),
    /// A later run of the plugin, which should renew the token, returned only a certificate. Holds the command's name.
    #[error("command '{0}' returned a certificate instead of a token")]
    Changed(String),
    /// The token has characters that an HTTP header cannot hold.
    #[error("the token of command '{0}' has characters that are not allowed in a header")]
    Token(String),
    /// The expiration time is invalid.
    #[error("expirationTimestamp of command '{0}' is not an RFC 3339 time")]
    Expiry(String),
}

/// A configured credential plugin.
pub(crate) struct Plugin {
    /// The cluster's name, for log lines.
    cluster: Arc<str>,
    exec: ExecConfig,
    /// Name of the command, truncated for messages.
    pub(super) display_name: String,
    /// Value of the variable `KUBERNETES_EXEC_INFO`, which the plugin reads.
    info: String,
    deadline: Duration,
}

pub(crate) struct Credentials {
    /// The `Authorization` header; `None` if the plugin returned no token.
    pub(crate) header: Option<HeaderValue>,
    /// Client certificate and its key in PEM; `None` if the plugin returned none.
    identity: Option<(String, SecretString)>,
    pub(crate) expires: Option<Timestamp>,
}

impl Plugin {
    /// Removes the plugin from `config` and returns it; `None` if there is none, or if `config` has credentials of
    /// another kind, which take precedence.
    ///
    /// # Errors
    /// The exec section is invalid or not supported.
    pub(crate) fn take_from(config: &mut Config, cluster: &Arc<str>) -> Result<Option<Self>, ExecError> {
        let auth = &mut config.auth_info;
        let Some(exec) = auth.exec.take() else {
            return legacy_provider(auth).map_or(Ok(None), |provider| Err(ExecError::AuthProvider(provider)));
        };
        let has_password = auth.username.is_some() && auth.password.is_some();
        if auth.auth_provider.is_some() || has_password || auth.token.is_some() || auth.token_file.is_some() {
            return legacy_provider(auth).map_or(Ok(None), |provider| Err(ExecError::AuthProvider(provider)));
        }
        Self::new(exec, cluster).map(Some)
    }

    fn new(exec: ExecConfig, cluster: &Arc<str>) -> Result<Self, ExecError> {
        let command = exec.command.as_deref().filter(|command| !command.is_empty()).ok_or(ExecError::NoCommand)?;
        let display_name = printable_start(command, MAX_NAME);
        let version = exec.api_version.as_deref().unwrap_or(VERSIONS[0]);
        if !VERSIONS.contains(&version) {
            return Err(ExecError::Version(printable_start(version, MAX_NAME)));
        }
        if exec.interactive_mode == Some(ExecInteractiveMode::Always) {
            return Err(ExecError::Interactive(display_name));
        }
        let mut spec = json!({ "interactive": false });
        if exec.provide_cluster_info {
            let cluster = exec.cluster.as_ref().and_then(|cluster| serde_json::to_value(cluster).ok());
            spec["cluster"] = cluster.ok_or(ExecError::ClusterInfo)?;
        }
        let info = json!({ "apiVersion": version, "kind": "ExecCredential", "spec": spec }).to_string();
        Ok(Self { cluster: Arc::clone(cluster), exec, display_name, info, deadline: DEADLINE })
    }

    /// Returns the command to start, with its arguments and its whole environment.
    fn command(&self) -> Command {
        let mut command = Command::new(self.exec.command.as_deref().unwrap_or_default());
        command.args(self.exec.args.iter().flatten());
        command.env_clear().envs(environment::inherited()).envs(self.own_variables());
        command.env("KUBERNETES_EXEC_INFO", &self.info);
        command
    }

    /// Returns the variables that the exec section sets in `env`.
    fn own_variables(&self) -> impl Iterator<Item = (&String, &String)> {
        let all = self.exec.env.iter().flatten();
        all.filter_map(|entry| Some((entry.get("name")?, entry.get("value")?)))
    }

    /// Runs the command once, within its deadline and output limits.
    ///
    /// # Errors
    /// See [`ExecError`]. No error quotes the standard output.
    ///
    /// # Cancel safety
    /// Dropping the future kills the command.
    pub(crate) async fn run(&self) -> Result<Credentials, ExecError> {
        let run = process::run(self.command(), self.deadline).await.map_err(|error| self.start_error(error))?;
        let answer = run.status.filter(ExitStatus::success).map(|_| self.read(&run.stdout));
        let text = self.redacted(run.stderr.words(), answer.as_ref().and_then(|answer| answer.as_ref().ok()));
        stderr_log::log(&self.cluster, &self.display_name, &text, run.stderr.total);
        answer.unwrap_or_else(|| Err(self.run_error(&run, &text)))
    }

    fn start_error(&self, error: std::io::Error) -> ExecError {
        let command = self.display_name.clone();
        if error.kind() != std::io::ErrorKind::NotFound {
            return ExecError::Start { command, error };
        }
        let hint = self.exec.install_hint.as_deref().map(str::trim).filter(|hint| !hint.is_empty());
        ExecError::Missing {
            command,
            hint: hint.map_or(String::new(), |hint| format!(": {}", printable_start(hint, MAX_HINT))),
        }
    }

    fn run_error(&self, run: &Run, stderr: &str) -> ExecError {
        let command = self.display_name.clone();
        let stderr_end = printable_end(stderr.trim(), MAX_QUOTE);
        let stderr_end = if stderr_end.is_empty() { stderr_end } else { format!("; stderr: {stderr_end}") };
        match (run.kill_reason, run.status) {
            (Some(KillReason::Stdout), _) => {
                ExecError::TooLong { command, stream: "standard output", limit: MAX_STDOUT as u64, stderr_end }
            }
            (Some(KillReason::Stderr), _) => {
                ExecError::TooLong { command, stream: "standard error", limit: MAX_STDERR, stderr_end }
            }
            (None, Some(status)) => ExecError::Failed { command, status, stderr_end },
            (Some(KillReason::Deadline) | None, _) => ExecError::Deadline { command, limit: self.deadline, stderr_end },
        }
    }

    /// Parses the plugin's standard output as JSON or else YAML, as client-go does, and returns the credentials in it.
    fn read(&self, stdout: &[u8]) -> Result<Credentials, ExecError> {
        let output = || ExecError::Output(self.display_name.clone());
        let parsed: Output =
            serde_json::from_slice(stdout).or_else(|_| serde_saphyr::from_slice(stdout).map_err(|_| output()))?;
        let status = parsed.status.filter(|_| parsed.kind.is_none_or(|kind| kind == "ExecCredential"));
        let status = status.ok_or_else(output)?;
        let expires = status
            .expiration_timestamp
            .map(|time| time.parse().map_err(|_| ExecError::Expiry(self.display_name.clone())));
        let header = status.token.filter(|token| !token.is_empty()).map(|token| {
            let mut header = HeaderValue::try_from(format!("Bearer {token}"))
                .map_err(|_| ExecError::Token(self.display_name.clone()))?;
            header.set_sensitive(true);
            Ok(header)
        });
        let identity = status.client_certificate_data.zip(status.client_key_data.map(SecretString::from));
        if header.is_none() && identity.is_none() {
            return Err(ExecError::Nothing(self.display_name.clone()));
        }
        Ok(Credentials { header: header.transpose()?, identity, expires: expires.transpose()? })
    }

    /// Removes secrets from the standard error: the token, the values of confidential variables and options, and words
    /// that look like signed tokens.
    fn redacted(&self, stderr: &[u8], credentials: Option<&Credentials>) -> String {
        let mut text = String::from_utf8_lossy(stderr).into_owned();
        let token =
            credentials.and_then(|credentials| credentials.header.as_ref()?.to_str().ok()?.strip_prefix("Bearer "));
        let own = self.own_variables().map(|(name, value)| (name.clone(), value.clone()));
        let inherited = environment::inherited();
        let inherited =
            inherited.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        let variables = own.chain(inherited).filter(|(name, _)| environment::is_confidential(name));
        let secrets =
            token.map(str::to_owned).into_iter().chain(variables.map(|(_, value)| value)).chain(self.secret_options());
        for secret in secrets.filter(|secret| secret.len() >= 6) {
            text = text.replace(&secret, "…");
        }
        let words = text.split_inclusive(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '=' | ':' | ','));
        words.map(|word| if is_signed_token(word) { "… " } else { word }).collect()
    }

    /// Returns the values of options whose names suggest a secret: `--client-secret=VALUE` and `--client-secret VALUE`.
    fn secret_options(&self) -> impl Iterator<Item = String> {
        let args = self.exec.args.as_deref().unwrap_or_default();
        let following =
            args.windows(2).filter(|pair| pair[0].starts_with('-') && environment::is_confidential(&pair[0]));
        let following = following.map(|pair| pair[1].clone()).filter(|value| !value.starts_with('-'));
        let joined =
            args.iter().filter_map(|arg| arg.split_once('=')).filter(|(name, _)| environment::is_confidential(name));
        following.chain(joined.map(|(_, value)| value.to_owned()))
    }
}

/// Returns whether a word looks like a JSON Web Token: it is long, starts with base64 of `{"`, and has a dot.
fn is_signed_token(word: &str) -> bool {
    word.starts_with("eyJ") && word.len() > 30 && word.contains('.')
}

/// Returns the name of the user's legacy `auth-provider`, if kube would run a command for it.
fn legacy_provider(auth: &AuthInfo) -> Option<String> {
    let provider = auth.auth_provider.as_ref()?;
    let runs = provider.config.contains_key("cmd-path") && !provider.config.contains_key("id-token");
    runs.then(|| printable_start(&provider.name, MAX_NAME))
}

impl Credentials {
    /// Sets the plugin's client certificate in `auth`, if it returned one.
    pub(crate) fn set_certificate(&self, auth: &mut AuthInfo) {
        let Some((certificate, key)) = &self.identity else { return };
        auth.client_certificate = None;
        auth.client_key = None;
        auth.client_certificate_data = Some(STANDARD.encode(certificate));
        auth.client_key_data = Some(STANDARD.encode(key.expose_secret()).into());
    }
}

/// Members of an `ExecCredential` that the hub uses.
#[derive(Deserialize)]
struct Output {
    kind: Option<String>,
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    expiration_timestamp: Option<String>,
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
