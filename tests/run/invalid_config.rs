//! Tests that an invalid configuration ends the start and prints every mistake with its place.

use std::net::TcpListener;

use crate::process::{Launch, Process};

const WELL: &str = "[clusters.c0]\nserver = \"http://127.0.0.1:1\"\n[resources.pods]\n";

/// Launches a hub that must not start, and returns its log.
async fn refused(launch: Launch) -> String {
    let mut hub = launch.start_as_text();
    assert_eq!(hub.ended().await, 2, "{}", hub.log());
    log_of(&hub)
}

fn log_of(hub: &Process) -> String {
    let log = hub.log();
    assert!(!log.contains("serving") && !log.contains('\u{1b}'), "{log}");
    log
}

fn line_of(log: &str, key: &str) -> String {
    let found = log.lines().find(|line| line.contains(key));
    found.unwrap_or_else(|| panic!("no line with {key}:\n{log}")).to_owned()
}

#[tokio::test]
async fn every_mistake_is_printed_with_its_line() {
    let toml = format!(
        "shutdown_deadlin = \"1s\"\n{WELL}[clusters.k]\nkubeconfig = \"kube\"\ncontext = \"gone\"\n[clusters.b]\n\
         kubeconfig = \"broken\"\n[clusters.n]\nkubeconfig = \"nowhere\"\n[clusters.s]\nserver = \"https://127.0.0.1:1\"\n\
         ca_file = \"rubbish.pem\"\ntoken = {{ file = \"empty\" }}\n[sinks.a]\ntype = \"webhook\"\n\
         url = \"http://127.0.0.1:1/\"\nfilter = \"object.x ==\"\nsigning_secret = {{ env = \"NOT_THERE\" }}\n[sinks.b]\n\
         type = \"webhook\"\nurl = \"https://127.0.0.1:1/\"\nfilter = \"objekt.x == 1\"\n\
         signing_secret = {{ file = \"bad-key\" }}\nca_file = \"rubbish.pem\"\n"
    );
    let kube = "apiVersion: v1\nkind: Config\nclusters: []\nusers: []\ncontexts: [{name: blue, context: {cluster: c, \
                user: u}}]\n";
    let launch = Launch::new(&toml).file("kube", kube).file("broken", "users: [hunter2").file("empty", "\n");
    let log = refused(launch.file("rubbish.pem", "hunter2").file("bad-key", "whsec_!hunter2!")).await;
    for (key, line, says) in [
        ("hub.shutdown_deadlin:", 3, "did you mean \"shutdown_deadline\""),
        ("clusters.k.context", 9, "it has blue"),
        ("clusters.b.kubeconfig", 11, "not a valid kubeconfig: error at line 1"),
        ("clusters.n.kubeconfig", 13, "no such file"),
        ("clusters.s.ca_file", 16, "holds no PEM certificate"),
        ("clusters.s.token.file", 17, "secret is empty"),
        ("sinks.a.filter", 21, "line 1, column 12: expected a value"),
        ("sinks.a.signing_secret.env", 22, "\"NOT_THERE\" is not set"),
        ("sinks.b.filter", 26, "objekt"),
        ("sinks.b.signing_secret", 27, "base64"),
        ("sinks.b.ca_file", 28, "holds no PEM certificate"),
    ] {
        let found = line_of(&log, key);
        assert!(found.contains(&format!("hub.toml:{line}: ")) && found.contains(says), "{key}: {found}\n{log}");
    }
    assert!(log.ends_with("11 mistakes in the configuration"), "{log}");
    assert!(!log.contains("hunter2"), "{log}");
}

#[tokio::test]
async fn mistake_in_the_environment_names_the_variable() {
    let sink = "[sinks.a]\ntype = \"webhook\"\nurl = \"http://127.0.0.1:1/\"\nsigning_secret = { env = \"KEY\" }\n";
    let launch =
        Launch::new(&format!("{WELL}{sink}")).env("KEY", "whsec_?").env("INFORMER_HUB_SINKS__A__FILTER", "1 +");
    let log = refused(launch).await;
    assert!(line_of(&log, "sinks.a.filter").starts_with("environment INFORMER_HUB_SINKS__A__FILTER: "), "{log}");
    assert!(line_of(&log, "sinks.a.signing_secret").contains("hub.toml:9: "), "{log}");
}

#[tokio::test]
async fn missing_or_invalid_file_is_reported() {
    assert!(refused(Launch::new("= 3\n")).await.contains("hub.toml:3: not TOML"));
    let log = refused(Launch::new(WELL).arg("--config").arg("other.toml")).await;
    assert!(log.contains("other.toml") || log.contains("cannot be used multiple times"), "{log}");
}

#[tokio::test]
async fn invalid_log_filter_is_reported_and_ignored() {
    let hub = Launch::new(WELL).env("RUST_LOG", "informer_hub=loud").start();
    let line = hub.line("cannot parse RUST_LOG").await;
    assert_eq!(line["level"], "WARN", "{line}");
    hub.line("serving").await;
}

#[tokio::test]
async fn port_in_use_exits_with_1_and_an_explanation() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut hub = Launch::new(WELL).env("INFORMER_HUB_HUB__LISTEN", &address).start_as_text();
    assert_eq!(hub.ended().await, 1);
    let log = log_of(&hub);
    let line = line_of(&log, &address);
    assert!(line.contains("hub.listen") && line.contains("choose a free port") && line.contains("in use"), "{log}");
}
