//! What `deploy/monitoring` and `docs/metrics.md` say of metrics is so: they name only metrics that exist, and all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use informer_hub_telemetry::metrics::{CATALOGUE, Kind, Metric};
use serde_json::Value;

fn read(path: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The metric that a name in a query means, histograms by their parts.
fn metric(name: &str) -> Option<&'static Metric> {
    CATALOGUE.iter().find(|metric| match metric.kind {
        Kind::Histogram => ["_bucket", "_sum", "_count"].iter().any(|part| name == format!("{}{part}", metric.name)),
        Kind::Counter | Kind::Gauge => name == metric.name,
    })
}

/// Words of a text that look like names of metrics, each with the labels that its selector names.
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

/// What a query says of metrics that is not so.
fn mistakes(query: &str) -> Vec<String> {
    let of_scrape = ["job", "instance", "le"];
    let mut wrong = Vec::new();
    for (name, labels) in named(query) {
        let Some(metric) = metric(&name) else {
            wrong.push(format!("there is no metric {name}: {query}"));
            continue;
        };
        for label in labels.iter().map(String::as_str) {
            if !metric.labels.contains(&label) && !of_scrape.contains(&label) {
                wrong.push(format!("{name} has no label {label}: {query}"));
            }
        }
    }
    wrong
}

/// The lines of rules after `- alert:`, by its name.
fn alerts() -> BTreeMap<String, String> {
    let rules = read("deploy/monitoring/informer-hub.rules.yaml");
    let parts = rules.split("- alert: ").skip(1).map(|part| part.split_once('\n').expect("an alert has more lines"));
    parts.map(|(name, rest)| (name.trim().to_owned(), rest.to_owned())).collect()
}

/// Every query of the dashboard, by its panel or variable.
fn queries() -> Vec<(String, String)> {
    let board: Value = serde_json::from_str(&read("deploy/monitoring/dashboard.json")).expect("it is JSON");
    let mut found = Vec::new();
    for panel in board["panels"].as_array().expect("it has panels") {
        let title = panel["title"].as_str().expect("a panel has a title");
        for target in panel["targets"].as_array().into_iter().flatten() {
            found.push((title.to_owned(), target["expr"].as_str().expect("a target has a query").to_owned()));
        }
    }
    for variable in board["templating"]["list"].as_array().expect("it has variables") {
        if let Some(query) = variable["query"]["query"].as_str() {
            found.push((variable["name"].to_string(), query.to_owned()));
        }
    }
    found
}

#[test]
fn a_wrong_name_or_label_in_a_query_is_found() {
    assert!(mistakes(r#"sum(rate(informer_hub_events_total{cluster="a",job=~"b"}[5m]))"#).is_empty());
    assert!(mistakes(r#"informer_hub_told_lag_seconds_bucket{subscription="a",le="1"}"#).is_empty());
    assert_eq!(mistakes("informer_hub_event_total + process_cpu").len(), 2);
    assert_eq!(mistakes(r#"informer_hub_events_total{sink!~"a"}"#).len(), 1);
    assert_eq!(mistakes("informer_hub_told_lag_seconds").len(), 1, "a histogram has only parts");
}

#[test]
fn alerts_name_only_metrics_and_labels_that_exist() {
    let wrong: Vec<_> = alerts().values().flat_map(|rule| mistakes(rule)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(alerts().values().all(|rule| !named(rule).is_empty()));
}

#[test]
fn the_dashboard_names_only_metrics_and_labels_that_exist() {
    let queries = queries();
    assert!(queries.len() > 30, "{} queries", queries.len());
    let wrong: Vec<_> = queries
        .iter()
        .flat_map(|(panel, query)| mistakes(query).into_iter().map(move |wrong| format!("{panel}: {wrong}")))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let blind: Vec<_> = queries.iter().filter(|(_, query)| named(query).is_empty()).collect();
    assert!(blind.is_empty(), "{blind:?}");
}

#[test]
fn the_dashboards_panels_do_not_overlap_and_have_numbers_of_their_own() {
    let board: Value = serde_json::from_str(&read("deploy/monitoring/dashboard.json")).expect("it is JSON");
    let (mut numbers, mut taken) = (BTreeSet::new(), BTreeSet::new());
    for panel in board["panels"].as_array().expect("it has panels") {
        assert!(numbers.insert(panel["id"].as_u64()), "{}", panel["id"]);
        let at = |key: &str| panel["gridPos"][key].as_u64().expect("a panel has a place");
        assert!(at("x") + at("w") <= 24, "{}", panel["title"]);
        for (x, y) in (at("x")..at("x") + at("w")).flat_map(|x| (at("y")..at("y") + at("h")).map(move |y| (x, y))) {
            assert!(taken.insert((x, y)), "{} lies on another panel", panel["title"]);
        }
    }
}

#[test]
fn each_metric_is_documented_as_it_is_defined() {
    let docs = read("docs/metrics.md");
    for metric in CATALOGUE {
        let labels = metric.labels.join(", ");
        let row = format!("| `{}` | {} | {labels} | {} |", metric.name, metric.kind.as_str(), metric.help());
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
fn each_alert_is_documented_and_tested_and_says_where() {
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
    let operations = read("docs/operations.md");
    for name in alerts.keys() {
        let link = format!("[{name}](metrics.md#{})", name.to_lowercase());
        assert!(operations.contains(&link), "docs/operations.md does not say what to do first of {name}: {link}");
    }
    let gone = docs.lines().filter_map(|line| line.strip_prefix("### ")).filter(|name| name.starts_with("InformerHub"));
    let gone: Vec<_> = gone.filter(|name| !alerts.contains_key(*name)).collect();
    assert!(gone.is_empty(), "docs/metrics.md has alerts that are none: {gone:?}");
}
