//! Tests of references outside the file: secrets, files and the environment.

use std::fs;
use std::time::Duration;

use super::*;

#[test]
fn secret_is_a_reference_and_never_printed() {
    only_in_sink("signing_secret = \"hunter2\"\n", 1, "a secret does not belong in the configuration; write { env");
    only_in_sink("signing_secret = {}\n", 1, "names no secret; write { env");
    only_in_sink("signing_secret = { env = 1 }\n", 1, "expected a text in quotes");
    let both = "signing_secret = { env = \"A\", file = \"Cargo.toml\" }\n";
    only_in_sink(both, 1, "has both env and file; keep one of them");
    let found = problems(&format!("{BASE}{SINK}signing_secret = {{ value = \"hunter2\" }}\n")).concat();
    assert!(found.contains("value: unknown key; known: env, file") && !found.contains("hunter2"), "{found}");
}

#[test]
fn secrets_and_files_must_exist() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("folder")).unwrap();
    fs::write(folder.path().join("secret"), "s\n").unwrap();
    let check = |line: &str, environment: &[(&str, &str)]| match load(
        folder.path(),
        &format!("{BASE}{SINK}{line}\n"),
        environment,
    ) {
        Ok(config) => format!("{:?}", config.sinks[0].transport),
        Err(errors) => errors.to_string(),
    };
    let env = "signing_secret = { env = \"SECRET\" }";
    assert!(check(env, &[]).contains(":8: sinks.audit.signing_secret.env: environment variable \"SECRET\" is not set"));
    assert!(check(env, &[("SECRET", "")]).contains("environment variable \"SECRET\" is empty"));
    assert!(check(env, &[("SECRET", "hunter2")]).contains("Env(\"SECRET\")"));
    assert!(check("ca_file = \"folder\"", &[]).contains("folder: it is a directory"));
    assert!(check("ca_file = \"nowhere\"", &[]).contains("nowhere: there is no such file"));
    let found = check("signing_secret = { file = \"secret\" }", &[]);
    assert!(found.contains(&format!("{:?}", folder.path().join("secret"))), "{found}");
}

#[test]
fn secret_is_read_without_its_line_break() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    for (text, wanted) in
        [("s", Some("s")), ("s\n", Some("s")), ("s\r\n", Some("s")), ("s\n\n", Some("s\n")), ("\n", None)]
    {
        fs::write(&file, text).unwrap();
        assert_eq!(Secret::File(file.clone()).read().ok().as_deref(), wanted, "{text:?}");
    }
    assert!(Secret::Env("INFORMER_HUB_TEST_OF_A_VARIABLE_THAT_IS_NOT_SET".into()).read().is_err());
}

#[test]
fn environment_overrides_and_extends_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let environment = [
        ("INFORMER_HUB_HUB__LISTEN", "127.0.0.1:8080"),
        ("INFORMER_HUB_CLUSTERS__ONE__LABELS", "{tier = \"prod\", cost-centre = \"12\"}"),
        ("INFORMER_HUB_CLUSTERS__ONE__LABELS__ZONE", "7"),
        ("INFORMER_HUB_CLUSTERS__TWO__SERVER", "https://two.example.com"),
        ("INFORMER_HUB_RESOURCES__PODS__NAMESPACES", "[\"a\", \"b\"]"),
        ("INFORMER_HUB_RESOURCES__PODS__RESYNC", "5m"),
        ("INFORMER_HUB_RESOURCES__PODS__LABEL_SELECTOR", "app in (a,b),!c"),
        ("INFORMER_HUB_SINKS__AUDIT__FILTER", "['a', 'b'].exists(x, x == object.spec['y'])"),
        ("INFORMER_HUB_SINKS__AUDIT__BATCH", "{max_wait = \"1s\"}"),
        ("INFORMER_HUB_RESOURCES__PODS__METADATA_ONLY", "true"),
        ("INFORMER_HUB_SINKS__AUDIT__URL", "http://127.0.0.1:9"),
        ("INFORMER_HUB_SINKS__AUDIT__SIGNING_SECRET__ENV", "S"),
        ("INFORMER_HUB_SINKS__AUDIT__BATCH__MAX_BYTES", "65536"),
        ("INFORMER_HUB_SINKS__AUDIT__CONCURRENCY", "2"),
        ("S", "x"),
    ];
    let config = load(folder.path(), &format!("{BASE}{SINK}"), &environment).unwrap();
    assert_eq!(config.hub.listen.to_string(), "127.0.0.1:8080");
    let labels: Vec<_> = config.clusters[0].labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(labels, ["cost-centre=12", "tier=prod", "zone=7"]);
    assert_eq!(config.clusters[1].name.as_str(), "two");
    assert_eq!(config.resources[0].namespaces, ["a", "b"]);
    assert!(config.resources[0].metadata_only);
    let TransportConfig::Webhook(webhook) = &config.sinks[0].transport else { panic!("another type") };
    assert_eq!((webhook.url.as_str(), webhook.concurrency), ("http://127.0.0.1:9", 2));
    assert_eq!(webhook.signing_secret, Some(Secret::Env("S".into())));
    assert_eq!((config.sinks[0].batch.max_bytes, config.sinks[0].batch.max_wait), (65536, Duration::from_secs(1)));
    assert_eq!(config.sinks[0].filter.as_deref(), Some("['a', 'b'].exists(x, x == object.spec['y'])"));
    assert_eq!(config.resources[0].label_selector, Some("app in (a,b),!c".parse().unwrap()));
}

#[test]
fn environment_mistake_names_its_variable() {
    let folder = tempfile::tempdir().unwrap();
    let shown = |name: &str, value: &str| {
        load(folder.path(), &format!("{BASE}{SINK}"), &[(name, value)]).unwrap_err().to_string()
    };
    for (name, value, wanted) in [
        ("INFORMER_HUB_HUB__LISTEN", "x", "hub.listen: \"x\" is not an IP address"),
        ("INFORMER_HUB_HUBB__LISTEN", "x", "hubb: unknown key; did you mean \"hub\"?"),
        ("INFORMER_HUB_CLUSTERS__NEW__COMPRESSION", "true", "clusters.new: has no connection to the cluster"),
        ("INFORMER_HUB_RESOURCES__PODS__NAMESPACES", "[\"A\"]", "resources.pods.namespaces[0]: \"A\" is not"),
        (
            "INFORMER_HUB_CLUSTERS__ONE__LABELS",
            "{tier = \"prod\", zone = 7}",
            "clusters.one.labels.zone: expected a text",
        ),
        ("INFORMER_HUB_SINKS__AUDIT__SIGNING_SECRET", "hunter2", "sinks.audit.signing_secret: a secret does not"),
        ("INFORMER_HUB_SINKS__AUDIT__MATCH__CLUSTERS", "{tier = \"dev\"}", "sinks.audit.match.clusters: matches no"),
    ] {
        let found = shown(name, value);
        assert!(found.starts_with(&format!("environment {name}: {wanted}")), "{found}\nwanted: {wanted}");
        assert!(found.ends_with("\n1 mistake in the configuration"), "{found}");
        assert!(!found.contains("hunter2"));
    }
}
