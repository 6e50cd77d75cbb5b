//! Tests of `[hub]`: its keys and the access to its port.

use std::fs;
use std::time::Duration;

use super::*;

/// Like [`only`], for lines of `[hub]`, counted from 1; its header is 0.
#[track_caller]
fn only_in_hub(lines: &str, line: usize, words: &str) {
    only(&format!("{BASE}[hub]\n{lines}"), line + 5, words);
}

#[test]
fn hub_keys_are_checked() {
    let hub = |line: &str, words: &str| only(&format!("[hub]\n{line}\n{BASE}"), 2, words);
    hub("listen = 7080", "hub.listen: expected a text in quotes, found a number");
    hub("listen = \":7080\"", "is not an IP address and a port; write e.g. \"127.0.0.1:7080\"");
    hub("listn = \"a\"", "hub.listn: unknown key; did you mean \"listen\"?");
    hub("shutdown_deadline = \"0s\"", "0s is out of range: from 1s to 1h");
    hub("shutdown_deadline = 20", "expected a duration such as \"10m\", found 20");
    hub("state_dir = 7", "hub.state_dir: expected a text in quotes, found a number");
    hub("checkpoint = \"50ms\"", "hub.checkpoint: 50ms is out of range: from 100ms to 10m");
    hub(
        "fsync = \"soon\"",
        "hub.fsync: \"soon\" is not a duration such as \"10ms\", nor \"0s\" for each batch by itself, nor",
    );
    hub("fsync = \"1m\"", "hub.fsync: 1m is out of range: from 0s to 10s, or \"never\"");
    hub("memory_limit = \"63MiB\"", "hub.memory_limit: 63MiB is out of range: from 64MiB to 64TiB");
    hub("memory_limit = \"half\"", "hub.memory_limit: \"half\" is not a size: write a whole number and a unit");
    hub("memory_limit = -1", "hub.memory_limit: expected a size such as \"64MiB\", found -1");
}

#[test]
fn memory_limit_is_a_size_in_file_or_environment() {
    let limit = |text: &str, variables: &[(&str, &str)]| {
        let environment = variables.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let (file, environment) = (format!("[hub]\n{text}\n{BASE}"), Some(&environment));
        let source =
            super::resolve::Source { file: None, text: &file, environment, probes: None, check_references: true };
        super::resolve::resolve(&source).unwrap().hub.memory_limit
    };
    assert_eq!(limit("", &[]), None);
    assert_eq!(limit("memory_limit = \"2GiB\"", &[]), Some(2 << 30));
    assert_eq!(limit("memory_limit = 67108864", &[]), Some(64 << 20));
    let variable = [("INFORMER_HUB_HUB__MEMORY_LIMIT", "128MiB")];
    assert_eq!(limit("memory_limit = \"2GiB\"", &variable), Some(128 << 20));
}

#[test]
fn state_settings_are_read() {
    let hub = |lines: &str| Config::from_toml(&format!("[hub]\n{lines}\n{BASE}")).unwrap().hub;
    let default = hub("");
    assert_eq!((default.state_dir, default.checkpoint), (None, Duration::from_secs(5)));
    assert_eq!(default.fsync, Fsync::Within(Duration::from_millis(10)));
    let set = hub("state_dir = \"somewhere\"\ncheckpoint = \"100ms\"\nfsync = \"0s\"");
    assert_eq!((set.state_dir, set.checkpoint), (Some("somewhere".into()), Duration::from_millis(100)));
    assert_eq!(set.fsync, Fsync::Within(Duration::ZERO));
    assert_eq!(hub("fsync = \"never\"").fsync, Fsync::Never);
}

#[test]
fn port_beyond_loopback_requires_authentication() {
    let refused = "0.0.0.0:7080 is reachable from other machines without authentication";
    only_in_hub("listen = \"0.0.0.0:7080\"", 1, refused);
    only_in_hub("listen = \"[::]:7080\"", 1, "[hub.auth] token = { file = \"hub-token\" }");
    only_in_hub("listen = \"10.1.2.3:7080\"\n[hub.auth]\nmetrics_open = true", 1, "or listen on 127.0.0.1:7080");
    for fine in [
        "listen = \"127.0.0.5:1\"",
        "listen = \"[::1]:1\"",
        "listen = \"0.0.0.0:1\"\nauth = { token = { env = \"T\" } }",
        "listen = \"0.0.0.0:1\"\nauth = { read_token = { env = \"T\" } }",
        "listen = \"0.0.0.0:1\"\nauth = { allow_unauthenticated = true }",
    ] {
        assert_eq!(problems(&format!("{BASE}[hub]\n{fine}\n")), Vec::<String>::new(), "{fine}");
    }
    let slip = "listen = \"0.0.0.0:1\"\n[hub.auht]\ntoken = { env = \"T\" }";
    only_in_hub(slip, 2, "did you mean \"auth\"");
}

#[test]
fn port_settings_are_checked() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["cert.pem", "key.pem", "ca.pem"] {
        fs::write(folder.path().join(name), "content").unwrap();
    }
    let tls = "[hub.tls]\ncert_file = \"cert.pem\"\nkey_file = \"key.pem\"\n";
    let text = format!("{BASE}[hub]\nlisten = \"0.0.0.0:1\"\nmax_connections = 99\n{tls}client_ca_file = \"ca.pem\"\n");
    let service = load(folder.path(), &text, &[]).unwrap().hub.service;
    assert!(service.authenticates() && service.max_connections == 99);
    assert_eq!(service.tls.unwrap().client_ca_file, Some(folder.path().join("ca.pem")));
    let errors = load(folder.path(), &format!("{BASE}[hub]\nlisten = \"0.0.0.0:1\"\n{tls}"), &[]).unwrap_err();
    assert!(errors.to_string().contains("without authentication"), "TLS alone does not authenticate: {errors}");
    only_in_hub("max_connections = 3", 1, "from 16 to 65536");
    let hosts = |list: &str| load(folder.path(), &format!("{BASE}[hub]\nallowed_hosts = {list}\n"), &[]);
    let good = hosts("[\"hub.example.com\", \"*.svc\", \"localhost\"]").unwrap().hub.service.allowed_hosts;
    assert_eq!(good, ["hub.example.com", "*.svc", "localhost"]);
    for bad in ["http://hub", "hub:80", "*", "a..b", "a b", "*.*.b"] {
        only_in_hub(&format!("allowed_hosts = [\"{bad}\"]"), 1, "is not a host's name");
    }
    only_in_hub("allowed_hosts = []", 1, "is empty; remove the key");
    only_in_hub("auth = { token = \"hunter2\" }", 1, "a secret does not belong in the configuration");
    only_in_hub("auth = { token = { env = \"T\" }, allow_unauthenticated = true }", 1, "contradicts the token");
    let errors = load(folder.path(), &format!("{BASE}[hub.tls]\ncert_file = \"cert.pem\"\n"), &[]).unwrap_err();
    assert!(errors.to_string().contains("has no key_file; write key_file = \"hub-key.pem\""), "{errors}");
    let errors = load(folder.path(), &format!("{BASE}[hub.tls]\ncert_fil = \"cert.pem\"\n"), &[]).unwrap_err();
    assert!(errors.to_string().contains("did you mean \"cert_file\""), "{errors}");
}

#[test]
fn read_api_settings_are_checked() {
    let read =
        |lines: &str| Config::from_toml(&format!("{BASE}[hub.read_api]\n{lines}\n")).unwrap().hub.service.read_api;
    let default = read("");
    assert_eq!(default, ReadApiConfig::default());
    assert!(default.enabled && !default.serve_secrets);
    assert_eq!((default.window_bytes, default.window_age), (16 << 20, Duration::from_secs(300)));
    assert_eq!((default.max_requests, default.max_watches), (64, 10_000));
    let set = read("enabled = false\nwindow_bytes = \"1GiB\"\nwindow_age = \"10s\"\nmax_requests = 1\nmax_watches = 7");
    assert!(!set.enabled && read("serve_secrets = true").serve_secrets);
    assert_eq!((set.window_bytes, set.window_age), (1 << 30, Duration::from_secs(10)));
    assert_eq!((set.max_requests, set.max_watches), (1, 7));
    let wrong = |line: &str, words: &str| only_in_hub(&format!("[hub.read_api]\n{line}"), 2, words);
    wrong("enable = true", "hub.read_api.enable: unknown key; did you mean \"enabled\"?");
    wrong("window_bytes = \"64KiB\"", "hub.read_api.window_bytes: 64KiB is out of range: from 1MiB to 16GiB");
    wrong("window_age = \"1s\"", "hub.read_api.window_age: 1s is out of range: from 10s to 1d");
    wrong("max_requests = 0", "hub.read_api.max_requests: expected a whole number from 1 to 4096, found 0");
    wrong("max_watches = \"all\"", "hub.read_api.max_watches: expected a whole number from 1 to 1000000");
    wrong("serve_secrets = 1", "hub.read_api.serve_secrets: expected true or false, found a number");
}

#[test]
fn read_api_settings_come_from_the_environment_too() {
    let folder = tempfile::tempdir().unwrap();
    let variables =
        [("INFORMER_HUB_HUB__READ_API__ENABLED", "false"), ("INFORMER_HUB_HUB__READ_API__WINDOW_BYTES", "64MiB")];
    let read_api = load(folder.path(), BASE, &variables).unwrap().hub.service.read_api;
    assert_eq!((read_api.enabled, read_api.window_bytes), (false, 64 << 20));
    let errors = load(folder.path(), BASE, &[("INFORMER_HUB_HUB__READ_API__MAX_WATCHES", "0")]).unwrap_err();
    assert!(errors.to_string().contains("INFORMER_HUB_HUB__READ_API__MAX_WATCHES"), "{errors}");
}
