//! Tests of README.md: its configurations load, and its length is bounded.

use std::fs;
use std::path::Path;

use informer_hub_config::{Config, TransportConfig};
use informer_hub_sink::Filter;

fn readme() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).expect("README.md exists")
}

/// Returns the fenced blocks of one language, in order.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    text.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap_or_default().to_owned()).collect()
}

fn load(text: &str) -> Config {
    let folder = tempfile::tempdir().expect("a folder can be made");
    fs::create_dir(folder.path().join(".kube")).expect("a folder can be made");
    fs::write(folder.path().join(".kube/config"), "content").expect("a file can be written");
    let file = folder.path().join("hub.toml");
    fs::write(&file, text).expect("a file can be written");
    let environment = [
        ("HOME".to_owned(), folder.path().to_str().expect("a UTF-8 path").to_owned()),
        ("AUDIT_SECRET".to_owned(), "whsec_c2VjcmV0".to_owned()),
    ];
    Config::from_file_with_env(&file, environment).unwrap_or_else(|errors| panic!("{errors}"))
}

#[test]
fn readme_configuration_loads_unchanged() {
    let blocks = blocks(&readme(), "toml");
    assert_eq!(blocks.len(), 2, "the README shows a file, and a sink to add to it");
    let config = load(&blocks[0]);
    assert_eq!((config.clusters.len(), config.resources.len(), config.sinks.len()), (1, 2, 0));
    assert_eq!(
        config.hub.listen,
        "127.0.0.1:7080".parse().expect("an address"),
        "README.md calls curl with this address"
    );
}

#[test]
fn readme_sink_loads_when_appended_to_its_configuration() {
    let config = load(&blocks(&readme(), "toml").concat());
    let sink = &config.sinks[0];
    let TransportConfig::Webhook(webhook) = &sink.transport else { panic!("another type") };
    assert!(webhook.signing_secret.is_some());
    Filter::compile(sink.filter.as_deref().expect("the sink has a filter")).expect("a filter that compiles");
}

#[test]
fn webhook_defaults_match_the_documented_values() {
    let config = load(&blocks(&readme(), "toml").concat());
    let sink = &config.sinks[0];
    let TransportConfig::Webhook(webhook) = &sink.transport else { panic!("another type") };
    assert_eq!((sink.batch.max_events, sink.batch.max_bytes, sink.batch.max_wait.as_millis()), (100, 1 << 20, 250));
    assert_eq!((sink.retry.first.as_millis(), sink.retry.max.as_secs()), (500, 300));
    assert_eq!(sink.retry.give_up_after.as_secs(), 24 * 3600);
    assert_eq!((webhook.timeout.as_secs(), config.hub.shutdown_deadline.as_secs()), (10, 20));
}

/// README.md's Rust code is a documentation test; `tests/docs` verifies its links and commands.
#[test]
fn readme_has_at_most_150_lines() {
    let lines = readme().lines().count();
    assert!(lines <= 150, "README.md has {lines} lines; move details to docs/");
}
