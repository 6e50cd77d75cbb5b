//! A configuration: refused with mistakes that name something, or taken, and then by everybody who reads it.

use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use informer_hub::app;
use informer_hub_config::{Config, ConfigErrors, SinkConfig};
use informer_hub_types::clock;

/// Where the service reads it from, as a file of this process.
static FILE: LazyLock<PathBuf> =
    LazyLock::new(|| std::env::temp_dir().join(format!("informer-hub-noise-{}.toml", std::process::id())));

pub(crate) fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let config = match Config::from_toml(text) {
        Ok(config) => config,
        Err(errors) => return look_at(&errors),
    };
    config.sinks.iter().for_each(waits);
    for wait in [config.hub.shutdown_deadline, config.hub.checkpoint] {
        assert!(clock::now().checked_add(wait).is_some());
    }
    std::fs::write(&*FILE, text).expect("the directory for temporary files can be written");
    let loaded = app::load(&*FILE);
    std::fs::remove_file(&*FILE).expect("it was just written");
    match loaded {
        Ok(loaded) => assert_eq!(loaded.sinks.len(), config.sinks.len()),
        Err(errors) => look_at(&errors),
    }
}

fn look_at(errors: &ConfigErrors) {
    assert!(!errors.mistakes().is_empty());
    for mistake in errors.mistakes() {
        assert!(!mistake.problem.trim().is_empty(), "{mistake:?} does not say what is wrong");
        let is_named = !mistake.key.is_empty() || mistake.line.is_some() || mistake.variable.is_some();
        assert!(is_named, "{mistake:?} does not say where");
        assert!(mistake.line.is_none_or(|line| line > 0) && mistake.column.is_none_or(|column| column > 0));
    }
    let shown = errors.to_string();
    assert!(shown.lines().count() > errors.mistakes().len());
}

/// Every wait of a sink can be waited for.
fn waits(sink: &SinkConfig) {
    let retry = &sink.retry;
    assert!(retry.first <= retry.max, "{retry:?}");
    for wait in [retry.first, retry.max, retry.give_up_after, retry.refused_for, sink.batch.max_wait] {
        assert!(clock::now().checked_add(wait + Duration::from_secs(3600)).is_some(), "{wait:?}");
    }
    assert!(sink.batch.max_events > 0 && sink.batch.max_bytes > 0);
}
