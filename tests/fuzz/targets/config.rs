//! Fuzz target: a configuration file. It is refused with located mistakes, or accepted by the parser and the service.

use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use informer_hub::app;
use informer_hub_config::{Config, ConfigErrors, SinkConfig};
use informer_hub_types::clock;

/// Temporary file from which the service loads the configuration.
static FILE: LazyLock<PathBuf> =
    LazyLock::new(|| std::env::temp_dir().join(format!("informer-hub-fuzz-{}.toml", std::process::id())));

pub(crate) fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let config = match Config::from_toml(text) {
        Ok(config) => config,
        Err(errors) => return verify_mistakes(&errors),
    };
    config.sinks.iter().for_each(verify_waits);
    for wait in [config.hub.shutdown_deadline, config.hub.checkpoint] {
        assert!(clock::now().checked_add(wait).is_some());
    }
    std::fs::write(&*FILE, text).expect("the directory for temporary files can be written");
    let loaded = app::load(&*FILE);
    std::fs::remove_file(&*FILE).expect("it was just written");
    match loaded {
        Ok(loaded) => assert_eq!(loaded.sinks.len(), config.sinks.len()),
        Err(errors) => verify_mistakes(&errors),
    }
}

fn verify_mistakes(errors: &ConfigErrors) {
    assert!(!errors.mistakes().is_empty());
    for mistake in errors.mistakes() {
        assert!(!mistake.problem.trim().is_empty(), "{mistake:?} has no problem text");
        let is_named = !mistake.key.is_empty() || mistake.line.is_some() || mistake.variable.is_some();
        assert!(is_named, "{mistake:?} has no location");
        assert!(mistake.line.is_none_or(|line| line > 0) && mistake.column.is_none_or(|column| column > 0));
    }
    let shown = errors.to_string();
    assert!(shown.lines().count() > errors.mistakes().len());
}

/// Verifies that each of a sink's durations can be added to the current time.
fn verify_waits(sink: &SinkConfig) {
    let retry = &sink.retry;
    assert!(retry.first <= retry.max, "{retry:?}");
    for wait in [retry.first, retry.max, retry.give_up_after, retry.refused_for, sink.batch.max_wait] {
        assert!(clock::now().checked_add(wait + Duration::from_secs(3600)).is_some(), "{wait:?}");
    }
    assert!(sink.batch.max_events > 0 && sink.batch.max_bytes > 0);
}
