//! Consistency tests of `deploy/monitoring` and `docs/metrics.md` with the metrics catalogue.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use informer_hub_telemetry::metrics::{CATALOGUE, Kind, Metric};
use serde_json::Value;

fn read(path: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the metric of a series name. A histogram's series are its parts (`_bucket`, `_sum`, `_count`).
fn metric(name: &str) -> Option<&'static Metric> {
    CATALOGUE.iter().find(|metric| match metric.kind {
        Kind::Histogram => ["_bucket", "_sum", "_count"].iter().any(|part| name == format!("{}{part}", metric.name)),
        Kind::Counter | Kind::Gauge => name == metric.name,
    })
}

/// Returns the words of a text that look like metric names, each with the labels in its selector.
fn named(text: &str) -> Vec<(String, Vec<String>)> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for prefix in ["informer_hub_", "process_"] {
        for (at, _) in text.match_indices(prefix) {
            if text[..at].chars().next_back().is_some_and(is_word) {
                continue;
            }
            let rest = &text[at..];
            let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            let selector = rest[end..].strip_prefix('{').and_then(|inner| inner.split('}').next()).unwrap_or_default();
            let labels = selector.split(',').filter_map(|one| one.split(['=', '!', '~']).next());
            let labels = labels.map(|label| label.trim().to_owned()).filter(|label| !label.is_empty()).collect();
            found.push((rest[..end].to_owned(), labels));
        }
    }
    found
}

/// Returns the unknown metrics and labels of a query.
fn mistakes(query: &str) -> Vec<String> {
    let scrape_labels = ["job", "instance", "le"];
    let mut wrong = Vec::new();
    for (name, labels) in named(query) {
        let Some(metric) = metric(&name) else {
            wrong.push(format!("there is no metric {name}: {query}"));
            continue;
        };
        for label in labels.iter().map(String::as_str) {
            if !metric.labels.contains(&label) && !scrape_labels.contains(&label) {
                wrong.push(format!("{name} has no label {label}: {query}"));
            }
        }
    }
    wrong
}

/// Returns the text of each alert rule, by alert name.
fn alerts() -> BTreeMap<String, String> {
    let rules = read("deploy/monitoring/informer-hub.rules.yaml");
    let parts = rules.split("- alert: ").skip(1).map(|part| part.split_once('\n').expect("an alert has more lines"));
    parts.map(|(name, rest)| (name.trim().to_owned(), rest.to_owned())).collect()
}

/// Returns every query of the dashboard with its panel or variable.
fn queries() -> Vec<(String, String)> {
    let board: Value = serde_json::from_str(&read("deploy/monitoring/dashboard.json")).expect("the dashboard is JSON");
    let mut found = Vec::new();
    for panel in board["panels"].as_array().expect("the dashboard has panels") {
        let title = panel["title"].as_str().expect("a panel has a title");
        for target in panel["targets"].as_array().into_iter().flatten() {
            found.push((title.to_owned(), target["expr"].as_str().expect("a target has a query").to_owned()));
        }
    }
    for variable in board["templating"]["list"].as_array().expect("the dashboard has variables") {
        if let Some(query) = variable["query"]["query"].as_str() {
            found.push((variable["name"].to_string(), query.to_owned()));
        }
    }
    found
}

#[test]
fn query_check_finds_wrong_names_and_labels() {
    assert!(mistakes(r#"sum(rate(informer_hub_events_total{cluster="a",job=~"b"}[5m]))"#).is_empty());
    assert!(mistakes(r#"informer_hub_told_lag_seconds_bucket{subscription="a",le="1"}"#).is_empty());
    assert_eq!(mistakes("informer_hub_event_total + process_cpu").len(), 2);
    assert_eq!(mistakes(r#"informer_hub_events_total{sink!~"a"}"#).len(), 1);
    assert_eq!(mistakes("informer_hub_told_lag_seconds").len(), 1, "a histogram has no series of its own name");
}

#[test]
fn alerts_use_only_existing_metrics_and_labels() {
    let wrong: Vec<_> = alerts().values().flat_map(|rule| mistakes(rule)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(alerts().values().all(|rule| !named(rule).is_empty()));
}

#[test]
fn dashboard_uses_only_existing_metrics_and_labels() {
    let queries = queries();
    assert!(queries.len() > 30, "{} queries", queries.len());
    let wrong: Vec<_> = queries
        .iter()
        .flat_map(|(panel, query)| mistakes(query).into_iter().map(move |wrong| format!("{panel}: {wrong}")))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let without_metric: Vec<_> = queries.iter().filter(|(_, query)| named(query).is_empty()).collect();
    assert!(without_metric.is_empty(), "{without_metric:?}");
}

#[test]
fn dashboard_panels_have_unique_ids_and_do_not_overlap() {
    let board: Value = serde_json::from_str(&read("deploy/monitoring/dashboard.json")).expect("the dashboard is JSON");
    let (mut numbers, mut occupied) = (BTreeSet::new(), BTreeSet::new());
    for panel in board["panels"].as_array().expect("the dashboard has panels") {
        assert!(numbers.insert(panel["id"].as_u64()), "{}", panel["id"]);
        let at = |key: &str| panel["gridPos"][key].as_u64().expect("a panel has a place");
        assert!(at("x") + at("w") <= 24, "{}", panel["title"]);
        for (x, y) in (at("x")..at("x") + at("w")).flat_map(|x| (at("y")..at("y") + at("h")).map(move |y| (x, y))) {
            assert!(occupied.insert((x, y)), "{} overlaps another panel", panel["title"]);
        }
    }
}

#[test]
fn metrics_page_documents_each_metric_as_defined() {
    let docs = read("docs/metrics.md");
    for metric in CATALOGUE {
        let labels = if metric.labels.is_empty() { String::new() } else { format!("{{{}}}", metric.labels.join(",")) };
        let kind = metric.kind.as_str();
        assert_eq!(kind == "counter", metric.name.ends_with("_total"), "{}", metric.name);
        let mark = if kind == "histogram" { " (histogram)" } else { "" };
        let row = format!("| `{}{labels}`{mark} | {} |", metric.name, metric.help());
        assert!(docs.lines().any(|line| line == row), "docs/metrics.md lacks this line:\n{row}");
    }
    let unknown: BTreeSet<_> = named(&docs)
        .into_iter()
        .map(|(name, _)| name)
        .filter(|name| metric(name).is_none() && !CATALOGUE.iter().any(|metric| metric.name == name))
        .collect();
    assert!(unknown.is_empty(), "docs/metrics.md names {unknown:?}");
}

#[test]
fn each_alert_has_a_section_a_runbook_link_and_tests() {
    let (docs, tests) = (read("docs/metrics.md"), read("deploy/monitoring/informer-hub.rules.test.yaml"));
    let alerts = alerts();
    for (name, rule) in &alerts {
        assert!(docs.contains(&format!("\n### {name}\n")), "docs/metrics.md has no section {name}");
        let runbook = format!("runbook: docs/metrics.md#{}", name.to_lowercase());
        assert!(rule.contains(&runbook), "{name} lacks {runbook}");
        assert!(rule.contains("severity: warning") || rule.contains("severity: critical"), "{name} has no severity");
        for case in ["fires", "does not fire without a reason"] {
            assert!(tests.contains(&format!("- name: {name} {case}\n")), "no test that {name} {case}");
        }
    }
    let gone = docs.lines().filter_map(|line| line.strip_prefix("### ")).filter(|name| name.starts_with("InformerHub"));
    let gone: Vec<_> = gone.filter(|name| !alerts.contains_key(*name)).collect();
    assert!(gone.is_empty(), "docs/metrics.md documents unknown alerts: {gone:?}");
}
