//! What of `[hub]` concerns its own port: `[hub.tls]`, `[hub.auth]`, and who may be let in without either.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use super::Secret;
use super::table::Table;

/// Fewer would not leave a probe its place, more take more descriptors than most systems give a process.
pub(super) const CONNECTIONS: RangeInclusive<usize> = 16..=65_536;

/// Who may ask the hub over HTTP, and how what is said is protected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceConfig {
    /// `[hub.tls]`; unset: plain HTTP.
    pub tls: Option<TlsConfig>,
    /// `[hub.auth]`.
    pub auth: AuthConfig,
    /// Hosts that requests may name, beside `localhost` and IP addresses: `hub.example.com`, `*.example.com`. Checked
    /// where nobody has to say who they are: on loopback, and elsewhere if there are some. Default none.
    pub allowed_hosts: Vec<String>,
    /// Connections at a time. Default 1024.
    pub max_connections: usize,
}

impl Default for ServiceConfig {
    fn default() -> Self {
        Self { tls: None, auth: AuthConfig::default(), allowed_hosts: Vec::new(), max_connections: 1024 }
    }
}

/// `[hub.tls]`. The files are read again when they change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfig {
    /// PEM file with the certificate, and those between it and the CA.
    pub cert_file: PathBuf,
    /// PEM file with its private key.
    pub key_file: PathBuf,
    /// PEM file with roots; who has a certificate of one of them may do everything. Unset: nobody is asked for one.
    pub client_ca_file: Option<PathBuf>,
}

/// `[hub.auth]`. Files are read again when they change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthConfig {
    /// Who has it may do everything.
    pub token: Option<Secret>,
    /// Who has it may look, and change nothing.
    pub read_token: Option<Secret>,
    /// Whether `/metrics` is for everybody, as probes are. Default false.
    pub metrics_open: bool,
    /// Whether everybody may do everything, from other machines too. Default false.
    pub allow_unauthenticated: bool,
}

impl ServiceConfig {
    /// Whether who asks has to say who they are.
    #[must_use]
    pub fn authenticates(&self) -> bool {
        let certificates = self.tls.as_ref().is_some_and(|tls| tls.client_ca_file.is_some());
        certificates || self.auth.token.is_some() || self.auth.read_token.is_some()
    }
}

/// Reads what belongs to the port from `[hub]`.
pub(super) fn service(hub: &mut Table<'_>, listen: SocketAddr) -> ServiceConfig {
    let max_connections = hub.number("max_connections", CONNECTIONS);
    let allowed_hosts = allowed_hosts(hub);
    let tls = hub.table("tls").and_then(tls);
    let auth = hub.table("auth").map(auth).unwrap_or_default();
    let default = ServiceConfig::default();
    let max_connections = max_connections.unwrap_or(default.max_connections);
    let service = ServiceConfig { tls, auth, allowed_hosts, max_connections };
    check_reach(hub, &service, listen);
    service
}

/// `allowed_hosts`: names without scheme and port.
fn allowed_hosts(hub: &mut Table<'_>) -> Vec<String> {
    let Some(texts) = hub.texts("allowed_hosts") else { return Vec::new() };
    if texts.is_empty() && hub.checker.is_clean(&hub.path.key("allowed_hosts")) {
        hub.mistake("allowed_hosts", "is empty; remove the key, or write such as [\"hub.example.com\"]");
    }
    let is_part = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    let is_name = |text: &str| text.strip_prefix("*.").unwrap_or(text).split('.').all(is_part);
    for (path, text) in texts.iter().filter(|(_, text)| !is_name(text)) {
        let problem =
            format!("{text:?} is not a host's name; write one such as \"hub.example.com\" or \"*.example.com\"");
        hub.checker.mistake(path, problem);
    }
    texts.into_iter().map(|(_, text)| text).collect()
}

fn tls(mut table: Table<'_>) -> Option<TlsConfig> {
    let (cert, key) = (table.file("cert_file"), table.file("key_file"));
    let client_ca_file = table.file("client_ca_file");
    for (name, given) in [("cert_file", cert.is_some()), ("key_file", key.is_some())] {
        if !given && table.lacks(&[name]) {
            let path = table.path.clone();
            table
                .checker
                .mistake(&path, format!("has no {name}; write {name} = \"hub-{}.pem\"", &name[..name.len() - 5]));
        }
    }
    let found = cert.zip(key).map(|(cert_file, key_file)| TlsConfig { cert_file, key_file, client_ca_file });
    if let Some(tls) = &found {
        table.probe_server_tls(tls);
    }
    table.finish();
    found
}

fn auth(mut table: Table<'_>) -> AuthConfig {
    let (token, read_token) = (table.secret("token"), table.secret("read_token"));
    table.probe_token("token", token.as_ref());
    table.probe_token("read_token", read_token.as_ref());
    let metrics_open = table.truth("metrics_open").unwrap_or_default();
    let allow_unauthenticated = table.truth("allow_unauthenticated").unwrap_or_default();
    if allow_unauthenticated && (token.is_some() || read_token.is_some()) {
        table.mistake("allow_unauthenticated", "contradicts the token; keep one of them");
    }
    table.finish();
    AuthConfig { token, read_token, metrics_open, allow_unauthenticated }
}

/// Nobody is let in from other machines without a word: what is shown names clusters, and dead letters hold objects.
fn check_reach(hub: &Table<'_>, service: &ServiceConfig, listen: SocketAddr) {
    let open = service.authenticates() || service.auth.allow_unauthenticated;
    let clean = ["tls", "auth", "listen"].iter().all(|key| hub.checker.is_clean(&hub.path.key(key)));
    if listen.ip().is_loopback() || open || !clean || !hub.lacks(&["tls", "auth"]) {
        return;
    }
    hub.mistake(
        "listen",
        format!(
            "{listen} is reached from other machines, and nothing asks who is there; write a token such as \
             [hub.auth] token = {{ file = \"hub-token\" }}, or [hub.tls] with a client_ca_file, or listen on \
             127.0.0.1:{}; where something else keeps others out, [hub.auth] allow_unauthenticated = true",
            listen.port()
        ),
    );
}
