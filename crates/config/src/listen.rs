//! Parser of the hub's port settings: `[hub.tls]`, `[hub.auth]`, `[hub.read_api]`, `[hub.authorization]`,
//! `[hub.audit]`, and the check of unauthenticated access.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::audit::audit;
use super::authorization::authorization;
use super::service_config::{AuthConfig, ReadApiConfig, ServiceConfig, TlsConfig};
use super::table::Table;

/// Bounds of `max_connections`. Fewer leave no room for probes; more exceed the file descriptors of most systems.
pub(super) const CONNECTIONS: RangeInclusive<usize> = 16..=65_536;

/// Bounds of `window_bytes`, the maximum bytes of recent changes from which watches resume. With less than the minimum,
/// one relist would expire all watches.
pub(super) const WINDOW_BYTES: RangeInclusive<u64> = 1 << 20..=1 << 34;

/// Bounds of `window_age`, the maximum age of the changes from which watches resume. With less than the minimum,
/// watches would expire between two bookmarks or retries.
pub(super) const WINDOW_AGE: RangeInclusive<Duration> = Duration::from_secs(10)..=Duration::from_secs(86_400);

/// Bounds of `max_requests`.
pub(super) const REQUESTS: RangeInclusive<usize> = 1..=4096;

/// Bounds of `max_watches`.
pub(super) const WATCHES: RangeInclusive<usize> = 1..=1_000_000;

/// Reads the port settings of `[hub]`. `others` is true if `[oidc]` or `[readers]` authenticate requests.
pub(super) fn service(hub: &mut Table<'_>, listen: SocketAddr, others: bool) -> ServiceConfig {
    let max_connections = hub.number("max_connections", CONNECTIONS);
    let allowed_hosts = allowed_hosts(hub);
    let tls = hub.table("tls").and_then(tls);
    let auth = hub.table("auth").map(auth).unwrap_or_default();
    let read_api = hub.table("read_api").map(read_api).unwrap_or_default();
    let authorization = hub.table("authorization").map(authorization).unwrap_or_default();
    let audit = hub.table("audit").and_then(audit);
    let default = ServiceConfig::default();
    let max_connections = max_connections.unwrap_or(default.max_connections);
    let service = ServiceConfig { tls, auth, allowed_hosts, max_connections, read_api, authorization, audit };
    check_reach(hub, &service, listen, others);
    if others && service.auth.allow_unauthenticated {
        let path = hub.path.key("auth").key("allow_unauthenticated");
        hub.checker.mistake(&path, "contradicts [readers] and [oidc]; remove it");
    }
    service
}

/// Reads `allowed_hosts`: names without scheme and port.
fn allowed_hosts(hub: &mut Table<'_>) -> Vec<String> {
    let Some(texts) = hub.texts("allowed_hosts") else { return Vec::new() };
    if texts.is_empty() && hub.checker.is_clean(&hub.path.key("allowed_hosts")) {
        hub.mistake("allowed_hosts", "is empty; remove the key, or write e.g. [\"hub.example.com\"]");
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
    let metrics_open = table.boolean("metrics_open").unwrap_or_default();
    let allow_unauthenticated = table.boolean("allow_unauthenticated").unwrap_or_default();
    if allow_unauthenticated && (token.is_some() || read_token.is_some()) {
        table.mistake("allow_unauthenticated", "contradicts the token; keep one of them");
    }
    table.finish();
    AuthConfig { token, read_token, metrics_open, allow_unauthenticated }
}

fn read_api(mut table: Table<'_>) -> ReadApiConfig {
    let default = ReadApiConfig::default();
    let read = ReadApiConfig {
        enabled: table.boolean("enabled").unwrap_or(default.enabled),
        window_bytes: table.size("window_bytes", WINDOW_BYTES).unwrap_or(default.window_bytes),
        window_age: table.duration("window_age", WINDOW_AGE).unwrap_or(default.window_age),
        max_requests: table.number("max_requests", REQUESTS).unwrap_or(default.max_requests),
        max_watches: table.number("max_watches", WATCHES).unwrap_or(default.max_watches),
        serve_secrets: table.boolean("serve_secrets").unwrap_or(default.serve_secrets),
    };
    table.finish();
    read
}

/// Reports a mistake if other machines can reach the port without authentication and the configuration does not allow
/// this explicitly. The port shows names of clusters on its status pages, and objects in dead letters.
fn check_reach(hub: &Table<'_>, service: &ServiceConfig, listen: SocketAddr, others: bool) {
    let open = others || service.authenticates() || service.auth.allow_unauthenticated;
    let clean = ["tls", "auth", "authorization", "listen"].iter().all(|key| hub.checker.is_clean(&hub.path.key(key)));
    if listen.ip().is_loopback() || open || !clean || !hub.lacks(&["tls", "auth"]) {
        return;
    }
    hub.mistake(
        "listen",
        format!(
            "{listen} is reachable from other machines without authentication; write a token such as \
             [hub.auth] token = {{ file = \"hub-token\" }}, or [hub.tls] with a client_ca_file, or listen on \
             127.0.0.1:{}; if access is restricted otherwise, write [hub.auth] allow_unauthenticated = true",
            listen.port()
        ),
    );
}
