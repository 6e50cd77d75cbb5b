//! Sample configurations for single keys, for tests of this and other crates.

#![allow(clippy::missing_panics_doc, reason = "helpers for tests panic on any mistake")]

use std::fs;

use serde_json::{Value, json};

use super::reference::Key;
use crate::toml_text::toml;
use crate::{Config, ConfigErrors};

/// Files used in examples.
const FILES: [&str; 15] = [
    ".kube/config",
    "dashboard-token",
    "hub-cert.pem",
    "hub-client-key.pem",
    "hub-client.pem",
    "hub-key.pem",
    "hub-read-token",
    "hub.creds",
    "hub.nkey",
    "login-ca.pem",
    "message.j2",
    "operators-ca.pem",
    "prod-us-ca.pem",
    "prod-us-token",
    "receiver-ca.pem",
];
const VARIABLES: [&str; 5] = ["API_TOKEN", "AUDIT_API_KEY", "AUDIT_SECRET", "NATS_PASSWORD", "NATS_TOKEN"];

/// Further lines that a sample needs for a key, besides the required keys of its table.
const BESIDE: [(&str, &str); 28] = [
    ("ha.lease.cluster", "namespace = \"hub\""),
    ("ha.lease.name", "namespace = \"hub\""),
    ("hub.audit.keep", "path = \"audit.log\""),
    ("hub.audit.max_size", "path = \"audit.log\""),
    ("hub.audit.rules", "stdout = true"),
    ("hub.authorization.token_review.audience", "clusters = [\"prod-eu\"]"),
    ("hub.authorization.token_review.cache", "clusters = [\"prod-eu\"]"),
    ("readers.*.service_account.cluster", "namespace = \"tools\"\nname = \"grafana\""),
    ("readers.*.service_account.namespace", "cluster = \"prod-eu\"\nname = \"grafana\""),
    ("readers.*.service_account.name", "cluster = \"prod-eu\"\nnamespace = \"tools\""),
    ("hub.authorization.kubernetes.cache", "mode = \"subject-access-review\""),
    ("clusters.*.context", "kubeconfig = \"~/.kube/config\""),
    ("cluster_sources.*.context", "kubeconfig = \"~/.kube/config\""),
    ("cluster_sources.*.secrets", "[cluster_sources.a.providers.b]\ncommand = \"credentials\""),
    ("resources.*.exclude", "resource = \"*.example.com\""),
    ("resources.*.limit", "resource = \"*.example.com\""),
    ("hub.tls.cert_file", "key_file = \"hub-key.pem\""),
    ("hub.tls.key_file", "cert_file = \"hub-cert.pem\""),
    ("hub.tls.client_ca_file", "cert_file = \"hub-cert.pem\"\nkey_file = \"hub-key.pem\""),
    ("sinks.*.client_cert_file", "client_key_file = \"hub-client-key.pem\""),
    ("sinks.*.client_key_file", "client_cert_file = \"hub-client.pem\""),
    ("sinks.*.content_type", "template = \"{}\""),
    ("sinks.*.on_filter_error", "filter = \"true\""),
    ("sinks.*.password", "user = \"hub\""),
    ("sinks.*.user", "password = { env = \"NATS_PASSWORD\" }"),
    ("sinks.*.rate_limit.burst", "events_per_second = 10\n"),
    ("fleet.shards.*.clusters", "resources = [\"pods\"]\n"),
    ("fleet.shards.*.namespaces", "resources = [\"pods\"]\n"),
];

/// Returns a valid configuration with this value for a key; `None` omits the key. `of` is the type to which the key
/// belongs.
#[must_use]
pub fn around(key: &Key, of: Option<&str>, value: Option<&Value>) -> String {
    let (parent, name) = key.path.rsplit_once('.').expect("every key is in a table");
    let beside = BESIDE.iter().find(|(path, _)| *path == key.path).map_or("", |(_, lines)| lines);
    let mut lines = value.map_or(String::new(), |value| format!("{name} = {}\n", toml(value)));
    // If the key is omitted, these lines would be mistakes, since they depend on it.
    if value.is_some() {
        lines += beside;
    }
    let is_provider = parent.ends_with(".providers.*");
    if value.is_some() && is_provider && name != "command" {
        lines += "command = \"credentials\"\n";
    }
    let of = if is_provider { Some("cluster-profiles") } else { of };
    let top = parent.split('.').next().expect("a path has a first step");
    let at = |table: &str, always: &str| {
        let header = parent.replacen(".*", &format!(".{}", table.split('.').nth(1).unwrap_or("a")), 1);
        let header = header.replace(".*", ".b");
        let own = value.is_some() && top == table.split('.').next().unwrap_or_default();
        match own {
            true if header == table => format!("[{table}]\n{always}{lines}\n"),
            true => format!("[{table}]\n{always}[{header}]\n{lines}\n"),
            false => format!("[{table}]\n{always}\n"),
        }
    };
    let of_agent = key.path == "clusters.*.agent";
    let reaches = value.is_some() && ["agent", "context", "in_cluster", "kubeconfig", "server"].contains(&name);
    let server = if top == "clusters" && reaches { "" } else { "server = \"https://eu\"\n" };
    let labels = if name == "labels" && value.is_some() { "" } else { "labels = { tier = \"prod\" }\n" };
    let named = if key.path == "resources.*.resource" { "resources.apps" } else { "resources.pods" };
    let named_needs = match (key.path.as_str(), value) {
        ("resources.*.resource", None) => "resource = \"pods\"\n",
        ("fleet.shards.*.namespaces", Some(_)) => "namespaces = [\"shop\"]\n",
        _ => "",
    };
    let hub = if key.path == "hub.auth.allow_unauthenticated" { "listen = \"127.0.0.1:0\"\n" } else { "" };
    let kind = of.filter(|_| top == "sinks").unwrap_or("webhook");
    let needs = match (kind, name) {
        ("webhook" | "nats", "url") | ("file", "path") if value.is_some() => "",
        ("webhook", _) => "url = \"https://example.com\"\n",
        ("nats", _) => "url = \"tls://example.com\"\n",
        ("file", _) => "path = \"other.jsonl\"\n",
        _ => "",
    };
    let source =
        if top == "cluster_sources" { at("cluster_sources.a", &source(of, name, value)) } else { String::new() };
    let hub = format!("{hub}{}", beside_readers(&key.path, value));
    let oidc = if key.path.starts_with("oidc.") || key.path.starts_with("readers.*.oidc") {
        at("oidc", &oidc(name, value))
    } else {
        String::new()
    };
    let fleet = if top == "fleet" || of_agent { at("fleet", &fleet(name, value)) } else { String::new() };
    // A fleet without the role `deliver` must not have sinks.
    let sinks =
        if top == "fleet" || of_agent { String::new() } else { at("sinks.a", &format!("type = \"{kind}\"\n{needs}")) };
    let ha = match (parent, value) {
        ("ha", _) => at("ha", "lease = { namespace = \"hub\" }\n"),
        ("ha.lease", Some(_)) => at("ha", ""),
        _ => String::new(),
    };
    let readers = if top == "readers" { at("readers.r", &reader(&key.path, value)) } else { String::new() };
    at("hub", &hub)
        + &fleet
        + &oidc
        + &ha
        + &readers
        + &source
        + &at("clusters.prod-eu", &format!("{server}{labels}"))
        + "[clusters.prod-us]\nserver = \"https://us\"\n"
        + &at(named, named_needs)
        + &sinks
}

/// Returns the lines that a cluster source of this type requires, except the line of the tested key.
fn source(of: Option<&str>, name: &str, value: Option<&Value>) -> String {
    let kind = of.unwrap_or("folder");
    let is_there = |key: &str| value.is_some() && name == key;
    let line = |key: &str, value: &str| if is_there(key) { String::new() } else { format!("{key} = {value}\n") };
    let reaches = ["context", "in_cluster", "kubeconfig", "server"].iter().any(|key| is_there(key));
    let reach = if reaches { String::new() } else { line("server", "\"https://management\"") };
    let needs = match kind {
        "secrets" => line("format", "\"argocd\"") + &reach,
        "cluster-profiles" => line("secrets", "true") + &reach,
        _ => line("path", "\"clusters\""),
    };
    line("type", &format!("\"{kind}\"")) + &needs
}

/// Returns the lines of `[hub]` that an identity of a reader, or a key of `token_review`, depends on.
fn beside_readers(path: &str, value: Option<&Value>) -> &'static str {
    const TLS: &str =
        "tls = { cert_file = \"hub-cert.pem\", key_file = \"hub-key.pem\", client_ca_file = \"operators-ca.pem\" }\n";
    const REVIEW: &str = "authorization = { token_review = { clusters = [\"prod-eu\"] } }\n";
    match path {
        _ if path.starts_with("readers.*.certificate.") => TLS,
        _ if path.starts_with("readers.*.service_account.") => REVIEW,
        "hub.authorization.token_review.audience" | "hub.authorization.token_review.cache" if value.is_none() => REVIEW,
        _ => "",
    }
}

/// Returns the lines that `[oidc]` requires, except the line of the tested key.
fn oidc(name: &str, value: Option<&Value>) -> String {
    let line = |key: &str, text: &str| if value.is_some() && name == key { "" } else { text }.to_owned();
    line("issuer", "issuer = \"https://login\"\n") + &line("audience", "audience = \"hub\"\n")
}

/// Returns the lines that `[fleet]` requires, except the line of the tested key.
fn fleet(name: &str, value: Option<&Value>) -> String {
    let line = |key: &str, text: &str| if value.is_some() && name == key { "" } else { text }.to_owned();
    let beside = match (name, value) {
        ("zone", Some(_)) => "prefer = { region = \"eu\" }\n",
        ("prefer", Some(_)) => "zone = \"eu-west\"\n",
        _ => "",
    };
    line("nats", "nats = [\"nats://nats\"]\n")
        + &line("name", "name = \"fleet\"\n")
        + &line("roles", "roles = [\"collect\"]\n")
        + beside
}

/// Returns the identity that a reader requires; empty if the tested key sets one.
fn reader(path: &str, value: Option<&Value>) -> String {
    let token = "token = { env = \"API_TOKEN\" }\n".to_owned();
    let is_identity = ["token", "certificate.", "oidc_", "service_account."]
        .iter()
        .any(|key| path.strip_prefix("readers.*.").is_some_and(|rest| rest.starts_with(key)));
    if is_identity && value.is_some() { String::new() } else { token }
}

fn read(text: &str) -> Result<Config, ConfigErrors> {
    let folder = tempfile::tempdir().expect("a folder can be made");
    fs::create_dir(folder.path().join(".kube")).expect("a folder can be made");
    for file in FILES {
        fs::write(folder.path().join(file), "content").expect("a file can be written");
    }
    let file = folder.path().join("hub.toml");
    fs::write(&file, text).expect("a file can be written");
    let home = ("HOME".to_owned(), folder.path().to_string_lossy().into_owned());
    let secrets = VARIABLES.map(|name| (name.to_owned(), "0123456789abcdef".to_owned()));
    Config::from_file_with_env(&file, secrets.into_iter().chain([home]))
}

/// Reads a valid configuration, with the files and variables of the examples. Each call uses a temporary directory of its
/// own for the paths.
#[allow(clippy::must_use_candidate, reason = "a call alone checks a configuration")]
pub fn load(text: &str) -> Config {
    read(text).unwrap_or_else(|mistakes| panic!("{mistakes}\n{text}"))
}

/// Returns a value that differs from the default: the example, or the default with a greater number. `None` if neither
/// exists.
#[must_use]
pub fn another(key: &Key) -> Option<Value> {
    let example = key.example.clone().filter(|example| Some(example) != key.default.as_ref());
    let of_default = || match key.default.as_ref()? {
        Value::Bool(is) => Some(json!(!is)),
        // An odd number stays odd, as fleet.replicas must be.
        Value::Number(number) => Some(json!(number.as_u64()? + 2)),
        Value::String(text) => {
            let end = text.rfind(|c: char| c.is_ascii_digit())? + 1;
            let start = text[..end].rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| at + 1);
            let number: u64 = text[start..end].parse().ok()?;
            Some(json!(format!("{}{}{}", &text[..start], number + 1, &text[end..])))
        }
        _ => None,
    };
    example.or_else(of_default)
}
