//! Tests of `[readers]`, `[oidc]` and `[hub.authorization]`.

use super::*;
use crate::{AccessReviewConfig, ReaderIdentity, ReaderLimitsConfig, ServiceAccountConfig};

const READER: &str = "[readers.sre]\ntoken = { env = \"T\" }\n";
const OIDC: &str = "[oidc]\nissuer = \"https://login.example.com\"\naudience = \"informer-hub\"\n";

/// Like [`only`], for lines after the token of a reader, counted from 1.
#[track_caller]
fn only_in_reader(lines: &str, line: usize, words: &str) {
    only(&format!("{BASE}{READER}{lines}"), line + 6, words);
}

/// Like [`only`], for lines after [`BASE`], counted from 1.
#[track_caller]
fn only_after(lines: &str, line: usize, words: &str) {
    only(&format!("{BASE}{lines}"), line + 4, words);
}

#[test]
fn readers_are_read() {
    let text = format!(
        "{BASE}{OIDC}[readers.app]\ntoken = {{ env = \"T\" }}\n[readers.sre]\noidc_group = \"sre\"\nchange = true\nallow = [\n\
         {{ clusters = {{ tier = \"prod\" }}, namespaces = [\"shop\", \"team-*\"], resources = [\"po\", \"*.apps\"], \
         except = [\"deploy\"] }},\n{{ namespaces = [\"a\", \"*\"] }},\n]\n\
         limits = {{ requests = 8, scans = 2, watches = 9, bytes_per_second = \"10MiB\" }}\n"
    );
    let config = Config::from_toml(&text).unwrap();
    assert!(config.authenticates() && !config.hub.service.authenticates());
    let [app, sre] = &config.readers[..] else { panic!("{:?}", config.readers) };
    assert_eq!(app.identity, ReaderIdentity::Token(Secret::Env("T".to_owned())));
    assert!(app.allow.is_empty() && !app.change && app.limits == ReaderLimitsConfig::default());
    assert_eq!((&sre.identity, sre.change), (&ReaderIdentity::OidcGroup("sre".to_owned()), true));
    let [rule, open] = &sre.allow[..] else { panic!("{:?}", sre.allow) };
    assert_eq!(rule.namespaces, ["shop", "team-*"]);
    let shown = |rule: &crate::RuleConfig| {
        let resources: Vec<_> = rule.resources.iter().map(ToString::to_string).collect();
        (resources, rule.except.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    assert_eq!(shown(rule), (vec!["pods".to_owned(), "*.apps".to_owned()], vec!["deployments.apps".to_owned()]));
    assert_eq!((shown(open), open.namespaces.len()), ((vec!["*".to_owned()], Vec::new()), 0));
    assert_eq!(open.clusters, ClusterSelector::All);
    let limits = sre.limits;
    assert_eq!((limits.requests, limits.scans, limits.watches), (Some(8), Some(2), Some(9)));
    assert_eq!(limits.bytes_per_second, Some(10 << 20));
}

#[test]
fn identity_is_checked() {
    only_after("[readers.sre]\nallow = []\n", 1, "readers.sre: has no identity; write token = { file = ");
    only_after("[readers.sre]\ntokn = { env = \"T\" }\n", 2, "did you mean \"token\"?");
    only_after("[readers.sre]\ntoken = \"hunter2\"\n", 2, "a secret does not belong in the configuration");
    only_after("[readers.\"a b\"]\ntoken = { env = \"T\" }\n", 1, "is not a valid reader name");
}

#[test]
fn second_identity_is_a_mistake() {
    let text = format!("{BASE}{OIDC}{READER}oidc_group = \"sre\"\n");
    only(&text, 8, "readers.sre: has token and oidc_group; keep one of them");
    let twice = "[readers.a]\ntoken = { env = \"T\" }\n[readers.b]\ntoken = { env = \"T\" }\n";
    only_after(twice, 4, "readers.b.token: is also used by readers.a; merge the rules of the two");
}

#[test]
fn identity_requires_the_table_that_issues_it() {
    only_after("[readers.a]\noidc_group = \"sre\"\n", 2, "readers.a.oidc_group: requires [oidc], which is missing");
    only_after("[readers.a]\noidc_user = \"jane\"\n", 2, "requires [oidc]");
    let certificate = "[readers.a]\ncertificate = { organization = \"sre\" }\n";
    only_after(certificate, 2, "readers.a.certificate: requires client_ca_file in [hub.tls]");
    let account = "[readers.a]\nservice_account = { cluster = \"one\", namespace = \"tools\", name = \"grafana\" }\n";
    only_after(account, 2, "write [hub.authorization] token_review = { clusters = [\"one\"] }");
    let reviewed = format!("{BASE}[hub.authorization]\ntoken_review = {{ clusters = [\"one\"] }}\n{account}");
    let config = Config::from_toml(&reviewed).unwrap();
    let expected = ServiceAccountConfig {
        cluster: ClusterName::new("one").unwrap(),
        namespace: "tools".to_owned(),
        name: "grafana".to_owned(),
    };
    assert_eq!(config.readers[0].identity, ReaderIdentity::ServiceAccount(expected));
}

#[test]
fn incomplete_identities_are_mistakes() {
    let identity = |lines: &str, words: &str| only_after(&format!("[readers.a]\n{lines}\n"), 2, words);
    identity("certificate = {}", "readers.a.certificate: names no certificate; write { organization = \"sre\" }");
    identity("certificate = { organisation = \"sre\" }", "did you mean \"organization\"?");
    identity("certificate = { organization = \"a\", common_name = \"b\" }", "has organization and common_name");
    identity(
        "service_account = { cluster = \"one\", name = \"b\" }",
        "readers.a.service_account: has no namespace; write",
    );
    identity(
        "service_account = { cluster = \"one\", namespace = \"B\", name = \"b\" }",
        "is not the name of a namespace",
    );
}

#[test]
fn rules_are_checked() {
    let rule = |rule: &str, words: &str| only_in_reader(&format!("allow = [{{ {rule} }}]\n"), 1, words);
    only_in_reader("allow = { resources = [\"pods\"] }\n", 1, "expected a list of rules such as [{ namespaces");
    only_in_reader("allow = [\"pods\"]\n", 1, "readers.sre.allow[0]: expected a table, found a text");
    rule("cluster = [\"one\"]", "readers.sre.allow[0].cluster: unknown key; did you mean \"clusters\"?");
    rule("clusters = [\"two\"]", "readers.sre.allow[0].clusters[0]: there is no cluster \"two\"; known: one");
    rule("clusters = { tier = \"dev\" }", "matches no cluster; the label \"tier\" is prod");
    rule("namespaces = []", "is empty; remove the key to select all namespaces");
    rule(
        "namespaces = [\"Shop\"]",
        "\"Shop\" is not a namespace or a pattern; write one such as \"shop\" or \"team-*\"",
    );
    rule("resources = []", "is empty; remove the key to select all resources");
    rule("resources = [\"Pods\"]", "is not a resource");
    rule("resources = [\"deployments.v1.apps\"]", "has a version, but a right applies to all versions");
    rule("except = [\"*\"]", "excludes everything; remove the rule instead");
    rule("except = [\"secrets.v1\"]", "has a version, but a right applies to all versions");
}

#[test]
fn limits_are_checked() {
    let limits = |line: &str, words: &str| only_in_reader(&format!("[readers.sre.limits]\n{line}\n"), 2, words);
    limits("requests = 0", "readers.sre.limits.requests: expected a whole number from 1 to 4096, found 0");
    limits("scans = 65", "expected a whole number from 1 to 64, found 65");
    limits("watch = 1", "unknown key; known: requests, scans");
}

#[test]
fn oidc_keys_are_checked() {
    let config = Config::from_toml(&format!("{BASE}{OIDC}username_claim = \"email\"\n")).unwrap();
    let oidc = config.oidc.as_ref().unwrap();
    assert!(config.authenticates());
    assert_eq!((oidc.issuer.as_str(), oidc.audience.as_str()), ("https://login.example.com", "informer-hub"));
    assert_eq!((oidc.username_claim.as_str(), oidc.groups_claim.as_str()), ("email", "groups"));
    let wrong = |lines: &str, line: usize, words: &str| only_after(&format!("[oidc]\n{lines}\n"), line + 1, words);
    wrong("audience = \"b\"", 0, "oidc: has no issuer; write issuer = \"https://login.example.com\"");
    wrong("issuer = \"https://a\"", 0, "oidc: has no audience; write audience = \"informer-hub\"");
    wrong(
        "issuer = \"login.example.com\"\naudience = \"b\"",
        1,
        "oidc.issuer: the address does not begin with http:// or https://",
    );
    wrong(
        "issuer = \"http://login.example.com\"\naudience = \"b\"",
        1,
        "with http, an attacker can replace the issuer's keys; write https://",
    );
    wrong("issuer = \"https://a/?b\"\naudience = \"b\"", 1, "an issuer has no query and no fragment");
    wrong("issuer = \"https://a\"\naudience = \"b\"\ngroup_claim = \"c\"", 3, "did you mean \"groups_claim\"?");
    assert!(Config::from_toml(&format!("{BASE}[oidc]\nissuer = \"http://127.0.0.1:1\"\naudience = \"b\"\n")).is_ok());
}

#[test]
fn authorization_keys_are_checked() {
    let read = |lines: &str| Config::from_toml(&format!("{BASE}[hub.authorization]\n{lines}\n")).unwrap().hub.service;
    assert!(!read("").authenticates());
    let service = read("kubernetes = { mode = \"subject-access-review\" }");
    assert_eq!(service.authorization.kubernetes, Some(AccessReviewConfig::default()));
    assert!(!service.authenticates(), "rights are no identity");
    let service = read("token_review = { clusters = [\"one\"], audience = \"informer-hub\", cache = \"10s\" }");
    let review = service.authorization.token_review.clone().unwrap();
    assert_eq!((review.audience.as_deref(), review.cache), (Some("informer-hub"), Duration::from_secs(10)));
    assert!(service.authenticates());
    let wrong = |line: &str, words: &str| only_after(&format!("[hub.authorization]\n{line}\n"), 2, words);
    wrong("kubernetes = {}", "hub.authorization.kubernetes: has no mode; write mode = \"subject-access-review\"");
    wrong("kubernetes = { mode = \"rbac\" }", "there is no mode \"rbac\"; known: subject-access-review");
    wrong("kubernetes = { mode = \"subject-access-review\", cache = \"2h\" }", "2h is out of range: from 1s to 1h");
    wrong("token_review = {}", "hub.authorization.token_review: has no clusters; write clusters = [\"prod-eu\"]");
    wrong("token_review = { clusters = [] }", "is empty; remove token_review");
    wrong("token_review = { clusters = [\"two\"] }", "there is no cluster \"two\"; known: one");
}

#[test]
fn readers_protect_a_port_beyond_loopback() {
    let open = "[hub]\nlisten = \"0.0.0.0:1\"\n";
    for lines in [READER, OIDC, "[hub.authorization.token_review]\nclusters = [\"one\"]\n"] {
        assert_eq!(problems(&format!("{BASE}{open}{lines}")), Vec::<String>::new(), "{lines}");
    }
    let text = format!("{BASE}{open}[readers]\n");
    only(&text, 6, "reachable from other machines without authentication");
    let text = format!("{BASE}[hub.auth]\nallow_unauthenticated = true\n{READER}");
    only(&text, 6, "hub.auth.allow_unauthenticated: contradicts [readers] and [oidc]; remove it");
}
