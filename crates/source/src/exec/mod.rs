//! Credential plugins: the `exec` section of a kubeconfig's user, as client-go runs it, for a process without a terminal.
//!
//! kube's own support hands a plugin the whole environment, standard input and standard error, and waits for it without
//! bounds. So `exec` is taken out of a configuration before kube sees it. [`process`] runs the command, [`environment`]
//! says what it inherits, [`token`] keeps its token fresh.

mod environment;
mod process;
mod said;
#[cfg(test)]
mod tests;
mod token;

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

pub use self::process::end_all as end_plugins;
use self::process::{DEADLINE, Killed, MAX_STDERR, MAX_STDOUT, Run};
pub(super) use self::token::{ExecToken, NoCredentials};
use informer_hub_types::{printable_end, printable_start};

/// The interface's versions.
const VERSIONS: [&str; 2] = ["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"];
/// Characters of a command's name, of its hint and of the end of its standard error in a message.
const MAX_NAME: usize = 120;
const MAX_HINT: usize = 200;
const MAX_QUOTE: usize = 240;

/// Why a credential plugin gave no credentials.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExecError {
    /// The operator has to name a command.
    #[error("the exec section names no command")]
    NoCommand,
    /// The operator has to write another version.
    #[error("apiVersion {0:?} of the exec section is not supported: write {first} or {second}", first = VERSIONS[0], second = VERSIONS[1])]
    Version(String),
    /// The operator has to choose another login.
    #[error("command '{0}' wants a terminal (interactiveMode: Always), and there is none: choose a login without one")]
    Interactive(String),
    /// The kubeconfig's cluster cannot be written for the plugin.
    #[error("provideClusterInfo is true, and the cluster of the context cannot be read")]
    ClusterInfo,
    /// kube would run a command of a legacy provider in its own way.
    #[error("auth-provider {0} runs a command (cmd-path), which is not supported: write an exec section")]
    AuthProvider(String),
    /// The operator has to install it.
    #[error("command '{command}' is not in the PATH of the hub{hint}")]
    Missing {
        /// The command.
        command: String,
        /// The kubeconfig's `installHint`.
        hint: String,
    },
    /// The command is there and cannot be run: rights, format, interpreter.
    #[error("command '{command}' cannot be run: {error}")]
    Start {
        /// The command.
        command: String,
        /// Why.
        error: std::io::Error,
    },
    /// The command says that it failed.
    #[error("command '{command}' failed with {status}{wrote}")]
    Failed {
        /// The command.
        command: String,
        /// Its exit code or signal.
        status: ExitStatus,
        /// The end of its standard error.
        wrote: String,
    },
    /// The command was killed.
    #[error("command '{command}' did not end within {} s and was killed{wrote}", limit.as_secs())]
    Deadline {
        /// The command.
        command: String,
        /// How long it may run.
        limit: Duration,
        /// The end of its standard error.
        wrote: String,
    },
    /// The command was killed.
    #[error("command '{command}' wrote more than {limit} bytes to its {stream} and was killed{wrote}")]
    TooLong {
        /// The command.
        command: String,
        /// Which output.
        stream: &'static str,
        /// Bytes that it may write.
        limit: u64,
        /// The end of its standard error.
        wrote: String,
    },
    /// The command's standard output is something else.
    #[error("the output of command '{0}' is no ExecCredential with a status")]
    Output(String),
    /// The status has nothing to authenticate with.
    #[error("command '{0}' gave neither a token nor a certificate with its key")]
    Nothing(String),
    /// A token is due where there was one before.
    #[error("command '{0}' gave a certificate where it gave a token before")]
    Changed(String),
    /// The token cannot be sent.
    #[error("the token of command '{0}' has characters that a header may not have")]
    Token(String),
    /// The time cannot be read.
    #[error("expirationTimestamp of command '{0}' is not a time (RFC 3339)")]
    Expiry(String),
}

/// A command that gives credentials.
pub(super) struct Plugin {
    /// The cluster's name, for log lines.
    cluster: Arc<str>,
    exec: ExecConfig,
    /// The command, for messages.
    shown: String,
    /// `KUBERNETES_EXEC_INFO`.
    info: String,
    deadline: Duration,
}

/// What a plugin has given.
pub(super) struct Credentials {
    /// `Authorization`.
    pub(super) header: Option<HeaderValue>,
    /// Certificate and key in PEM.
    identity: Option<(String, SecretString)>,
    pub(super) expires: Option<Timestamp>,
}

impl Plugin {
    /// Takes the plugin out of a configuration; `None` if something else authenticates, or nothing.
    ///
    /// # Errors
    /// The exec section is wrong, or would need what there is not.
    pub(super) fn take_from(config: &mut Config, cluster: &Arc<str>) -> Result<Option<Self>, ExecError> {
        let auth = &mut config.auth_info;
        let Some(exec) = auth.exec.take() else {
            return legacy(auth).map_or(Ok(None), |provider| Err(ExecError::AuthProvider(provider)));
        };
        let has_password = auth.username.is_some() && auth.password.is_some();
        if auth.auth_provider.is_some() || has_password || auth.token.is_some() || auth.token_file.is_some() {
            return legacy(auth).map_or(Ok(None), |provider| Err(ExecError::AuthProvider(provider)));
        }
        Self::new(exec, cluster).map(Some)
    }

    fn new(exec: ExecConfig, cluster: &Arc<str>) -> Result<Self, ExecError> {
        let command = exec.command.as_deref().filter(|command| !command.is_empty()).ok_or(ExecError::NoCommand)?;
        let shown = printable_start(command, MAX_NAME);
        let version = exec.api_version.as_deref().unwrap_or(VERSIONS[0]);
        if !VERSIONS.contains(&version) {
            return Err(ExecError::Version(printable_start(version, MAX_NAME)));
        }
        if exec.interactive_mode == Some(ExecInteractiveMode::Always) {
            return Err(ExecError::Interactive(shown));
        }
        let mut spec = json!({ "interactive": false });
        if exec.provide_cluster_info {
            let cluster = exec.cluster.as_ref().and_then(|cluster| serde_json::to_value(cluster).ok());
            spec["cluster"] = cluster.ok_or(ExecError::ClusterInfo)?;
        }
        let info = json!({ "apiVersion": version, "kind": "ExecCredential", "spec": spec }).to_string();
        Ok(Self { cluster: Arc::clone(cluster), exec, shown, info, deadline: DEADLINE })
    }

    /// The program, its arguments and its whole environment.
    fn command(&self) -> Command {
        let mut command = Command::new(self.exec.command.as_deref().unwrap_or_default());
        command.args(self.exec.args.iter().flatten());
        command.env_clear().envs(environment::inherited()).envs(self.own_variables());
        command.env("KUBERNETES_EXEC_INFO", &self.info);
        command
    }

    /// `env` of the exec section.
    fn own_variables(&self) -> impl Iterator<Item = (&String, &String)> {
        let all = self.exec.env.iter().flatten();
        all.filter_map(|entry| Some((entry.get("name")?, entry.get("value")?)))
    }

    /// Runs the command once, within its bounds.
    ///
    /// # Errors
    /// See [`ExecError`]. Nothing of the standard output is in one.
    ///
    /// # Cancel safety
    /// Dropping it kills the command.
    pub(super) async fn run(&self) -> Result<Credentials, ExecError> {
        let run = process::run(self.command(), self.deadline).await.map_err(|error| self.not_started(error))?;
        let answer = run.status.filter(ExitStatus::success).map(|_| self.read(&run.stdout));
        let text = self.concealed(run.stderr.words(), answer.as_ref().and_then(|answer| answer.as_ref().ok()));
        said::log(&self.cluster, &self.shown, &text, run.stderr.total);
        answer.unwrap_or_else(|| Err(self.failed(&run, &text)))
    }

    fn not_started(&self, error: std::io::Error) -> ExecError {
        let command = self.shown.clone();
        if error.kind() != std::io::ErrorKind::NotFound {
            return ExecError::Start { command, error };
        }
        let hint = self.exec.install_hint.as_deref().map(str::trim).filter(|hint| !hint.is_empty());
        ExecError::Missing {
            command,
            hint: hint.map_or(String::new(), |hint| format!(": {}", printable_start(hint, MAX_HINT))),
        }
    }

    fn failed(&self, run: &Run, stderr: &str) -> ExecError {
        let command = self.shown.clone();
        let wrote = printable_end(stderr.trim(), MAX_QUOTE);
        let wrote = if wrote.is_empty() { wrote } else { format!("; it wrote: {wrote}") };
        match (run.killed, run.status) {
            (Some(Killed::Stdout), _) => {
                ExecError::TooLong { command, stream: "standard output", limit: MAX_STDOUT as u64, wrote }
            }
            (Some(Killed::Stderr), _) => {
                ExecError::TooLong { command, stream: "standard error", limit: MAX_STDERR, wrote }
            }
            (None, Some(status)) => ExecError::Failed { command, status, wrote },
            (Some(Killed::Deadline) | None, _) => ExecError::Deadline { command, limit: self.deadline, wrote },
        }
    }

    /// The credentials in what the command has printed: JSON, or YAML, which client-go reads too.
    fn read(&self, stdout: &[u8]) -> Result<Credentials, ExecError> {
        let output = || ExecError::Output(self.shown.clone());
        let parsed: Output =
            serde_json::from_slice(stdout).or_else(|_| serde_saphyr::from_slice(stdout).map_err(|_| output()))?;
        let status = parsed.status.filter(|_| parsed.kind.is_none_or(|kind| kind == "ExecCredential"));
        let status = status.ok_or_else(output)?;
        let expires =
            status.expiration_timestamp.map(|time| time.parse().map_err(|_| ExecError::Expiry(self.shown.clone())));
        let header = status.token.filter(|token| !token.is_empty()).map(|token| {
            let mut header =
                HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| ExecError::Token(self.shown.clone()))?;
            header.set_sensitive(true);
            Ok(header)
        });
        let identity = status.client_certificate_data.zip(status.client_key_data.map(SecretString::from));
        if header.is_none() && identity.is_none() {
            return Err(ExecError::Nothing(self.shown.clone()));
        }
        Ok(Credentials { header: header.transpose()?, identity, expires: expires.transpose()? })
    }

    /// Standard error without the secrets that are known to the plugin: its token, variables and options that hold
    /// secrets by their names, and whatever looks like a signed token.
    fn concealed(&self, stderr: &[u8], given: Option<&Credentials>) -> String {
        let mut text = String::from_utf8_lossy(stderr).into_owned();
        let token = given.and_then(|given| given.header.as_ref()?.to_str().ok()?.strip_prefix("Bearer "));
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

    /// Values of `--client-secret=VALUE` and `--client-secret VALUE`.
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

/// A JSON Web Token: base64 of `{"`, dots, and some length.
fn is_signed_token(word: &str) -> bool {
    word.starts_with("eyJ") && word.len() > 30 && word.contains('.')
}

/// The name of a provider that kube would run a command for.
fn legacy(auth: &AuthInfo) -> Option<String> {
    let provider = auth.auth_provider.as_ref()?;
    let runs = provider.config.contains_key("cmd-path") && !provider.config.contains_key("id-token");
    runs.then(|| printable_start(&provider.name, MAX_NAME))
}

impl Credentials {
    /// Has a client show the certificate, if there is one.
    pub(super) fn identify(&self, auth: &mut AuthInfo) {
        let Some((certificate, key)) = &self.identity else { return };
        auth.client_certificate = None;
        auth.client_key = None;
        auth.client_certificate_data = Some(STANDARD.encode(certificate));
        auth.client_key_data = Some(STANDARD.encode(key.expose_secret()).into());
    }
}

/// `ExecCredential`, as far as it matters.
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
