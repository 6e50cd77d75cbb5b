//! Tests of whole configurations: the sample loads, each rule is violated by a text, and all mistakes of a file are
//! reported together.

mod agent;
mod audit;
mod clusters;
mod fleet;
mod ha;
mod hub;
mod outside;
mod readers;
mod resources;
mod sinks;
mod sources;
mod values;

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::*;

/// Valid configuration that tests extend.
const BASE: &str =
    "[clusters.one]\nserver = \"https://one.example.com\"\nlabels = { tier = \"prod\" }\n[resources.pods]\n";

const SINK: &str = "[sinks.audit]\ntype = \"webhook\"\nurl = \"https://audit.example.com\"\n";

fn problems(text: &str) -> Vec<String> {
    match Config::from_toml(text) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.mistakes().iter().map(ToString::to_string).collect(),
    }
}

/// Asserts that `text` has exactly one mistake, at this line (0 for none), with these words.
#[track_caller]
fn only(text: &str, line: usize, words: &str) {
    let errors = Config::from_toml(text).map(|_| text.to_owned()).expect_err("must be refused");
    let [mistake] = errors.mistakes() else { panic!("more than one mistake:\n{errors}") };
    assert_eq!(mistake.line.unwrap_or(0), line, "{mistake}");
    assert!(mistake.to_string().contains(words), "{mistake}\nwanted: {words}");
    schema::tests::refuses(text, &mistake.to_string());
}

/// Like [`only`], for lines after [`BASE`], counted from 1.
#[track_caller]
fn only_in_resource(lines: &str, line: usize, words: &str) {
    only(&format!("{BASE}{lines}"), line + 4, words);
}

/// Like [`only`], for lines of a sink, counted from 1.
#[track_caller]
fn only_in_sink(lines: &str, line: usize, words: &str) {
    only(&format!("{BASE}{SINK}{lines}"), line + 7, words);
}

fn load(folder: &Path, text: &str, environment: &[(&str, &str)]) -> Result<Config, ConfigErrors> {
    let file = folder.join("hub.toml");
    fs::write(&file, text).unwrap();
    Config::from_file_with_env(file, environment.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())))
}

#[test]
fn small_configuration_has_the_defaults() {
    let config = Config::from_toml(&format!("{BASE}{SINK}")).unwrap();
    assert_eq!(config.hub, HubConfig::default());
    let pods = &config.resources[0];
    assert_eq!((pods.name.as_str(), pods.resource.to_string().as_str()), ("pods", "pods"));
    assert_eq!(pods.clusters, ClusterSelector::All);
    assert!(pods.namespaces.is_empty() && pods.resync.is_none() && !pods.metadata_only);
    assert_eq!(pods.projection, Projection::Drop(vec!["metadata.managedFields".parse().unwrap()]));
    let sink = &config.sinks[0];
    assert_eq!(sink.select.events, [EventType::Added, EventType::Updated, EventType::Deleted]);
    assert_eq!((sink.batch.max_events, sink.batch.max_bytes), (100, 1 << 20));
    assert_eq!(sink.retry.give_up_after, Duration::from_secs(24 * 3600));
    let TransportConfig::Webhook(webhook) = &sink.transport else { panic!("another type") };
    assert_eq!((webhook.timeout, webhook.concurrency), (Duration::from_secs(10), 4));
    assert!(config.clusters[0].compression && config.clusters[0].encoding == Encodings::Auto);
}

#[test]
fn sample_configuration_loads() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join(".kube")).unwrap();
    fs::write(folder.path().join(".kube/config"), "").unwrap();
    let text = r#"
[hub]
listen = "127.0.0.1:7080"
[clusters.prod-eu]
kubeconfig = "~/.kube/config"
context = "prod-eu"
labels = { region = "eu", tier = "prod" }
[clusters.dev]
in_cluster = true
labels = { tier = "dev" }
[resources.pods]
clusters = { tier = "prod" }
namespaces = ["shop", "pay"]
label_selector = "app"
field_selector = "status.phase=Running"
resync = "10m"
metadata_only = false
drop = ["metadata.managedFields"]
indexes = { by-node = "spec.nodeName", by-image = "spec.containers[*].image" }
[resources.dev-pods]
resource = "pods"
clusters = { tier = "dev" }
[sinks.audit]
type = "webhook"
url = "https://audit.example.com/k8s"
signing_secret = { env = "AUDIT_SECRET" }
match = { resources = ["pods"], clusters = { tier = "prod" }, events = ["added", "updated", "deleted"] }
filter = "object.status.phase == 'Failed'"
changed = ["spec", "status.phase"]
initial = "skip"
batch = { max_events = 100, max_wait = "250ms" }
retry = { first = "500ms", max = "5m", give_up_after = "24h" }
"#;
    let home = folder.path().to_str().unwrap();
    let config = load(folder.path(), text, &[("HOME", home), ("AUDIT_SECRET", "whsec_x")]).unwrap();
    let access = &config.clusters[1].access;
    let path = folder.path().join(".kube/config");
    assert_eq!(*access, ClusterAccess::Kubeconfig { path, context: Some("prod-eu".into()) });
    assert_eq!(config.resources[0].resource, "pods".parse().unwrap());
    assert_eq!(config.resources[1].resync, Some(Duration::from_secs(600)));
    assert_eq!(config.resources[1].indexes.len(), 2);
    assert_eq!(config.sinks[0].select.resources, ["pods"]);
    assert_eq!(config.sinks[0].changed.len(), 2);
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let text = r#"[hub]
listen = "localhost:7080"
state_dir = "hub.toml"
memory_limit = "2MiB"

[clusters.prod]
kubeconfig = "missing.yaml"
in_cluster = true
labels = { tier = "prod", weight = 3 }

[resources.pods]
namespace = ["shop"]
namespaces = ["shop", "Pay_1"]
clusters = { tier = "prd" }
label_selector = "app in (a"
resync = "100ms"

[resources.nodes]
metadata_only = true
drop = []
keep = ["metadata.labels"]
indexes = { by-zone = "spec.zone" }

[sinks.audit]
type = "webhok"
url = "audit.example.com"
signing_secret = "hunter2"
match = { resources = ["pod"], events = ["aded"] }
retry = { first = "10m", max = "5m" }
batch = { max_events = 0, max_bytes = "1XB" }
compression = "gzp"
headers = { x-api-key = "hunter2" }
redact = ["metadata.uid"]

[sinks.bus]
type = "nats"
url = "http://nats"
user = "hub"
on_filter_error = "drop"

[sinks.lines]
type = "file"
path = "missing/events.jsonl"
fsync = "yes"

[sink.other]

[resources.ours]
resource = "*.example.com"
exclude = ["*.example.com"]
limit = 0
"#;
    let environment = [
        ("INFORMER_HUB_HUB__SHUTDOWN_DEADLINE", "soon"),
        ("INFORMER_HUB_SINKS__AUDIT__TIMEOUT", "1h"),
        ("INFORMER_HUB_SINKS____URL", "x"),
    ];
    let errors = load(folder.path(), text, &environment).unwrap_err();
    let shown = errors.to_string().replace(folder.path().to_str().unwrap(), "DIR");
    assert_eq!(shown, include_str!("../golden_mistakes.txt").trim_end());
    assert!(!format!("{errors:?}").contains("hunter2"));
    assert!(!serde_json::to_string(&errors).unwrap().contains("hunter2"));
}

#[test]
fn syntax_error_is_one_mistake_with_its_position() {
    only("[hub]\nlisten = \n", 2, "not TOML at column 10: ");
    only("[hub]\n[hub]\n", 2, "not TOML at column 2: hub is duplicated; keep one of them");
    only("[resources.pods]\n[resources.pods]\n", 2, "pods is duplicated");
}

#[test]
fn missing_file_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let errors = Config::from_file(folder.path().join("no.toml")).unwrap_err();
    assert!(errors.to_string().contains("no.toml: cannot read the file: "), "{errors}");
}

#[test]
fn missing_clusters_and_resources_are_reported_with_an_example() {
    let found = problems("");
    assert_eq!(found.len(), 2);
    assert!(found[0].contains("clusters: there is no cluster; write for example\n    [clusters.local]\n"), "{found:?}");
    assert!(found[1].contains("resources: there is nothing to watch; write for example\n"), "{found:?}");
    // A misspelt table is one mistake, not two.
    only("[cluster.a]\nin_cluster = true\n[resources.pods]\n", 1, "cluster: unknown key; did you mean \"clusters\"?");
}

#[test]
fn tables_must_be_tables() {
    only(&format!("hub = 3\n{BASE}"), 1, "hub: expected a table, found a number");
    only("[resources.pods]\n[clusters]\none = 3\n", 3, "clusters.one: expected a table, found a number");
    only(&format!("{BASE}[sinks]\naudit = 3\n"), 6, "sinks.audit: expected a table, found a number");
    let list = "clusters: expected a table, found a list; write [clusters.NAME] for each, in single brackets";
    only("[[clusters]]\nname = \"one\"\n[resources.pods]\n", 1, list);
    only(&format!("hub = []\n{BASE}"), 1, "hub: expected a table, found a list");
}

proptest::proptest! {
    #![proptest_config(informer_hub_testing::properties(256))]

    /// Builds configurations from valid lines, some with a wrong value.
    #[test]
    fn arbitrary_text_does_not_panic_the_reader(
        picks in proptest::collection::btree_map(0..60_usize, 0..16_usize, 0..60),
        noise in "[\\[\\]{}=\"'.,a-z0-9 \n-]{0,40}",
    ) {
        let sample = include_str!("../../../../config/hub.toml");
        let lines: Vec<_> = sample.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
        let values = ["1", "\"\"", "[]", "{}", "true", "[[1]]", "\"1h\"", "{ a = { b = [1] } }"];
        let mut text = String::new();
        for (at, value) in picks {
            let Some(line) = lines.get(at) else { continue };
            match (line.split_once(" = "), values.get(value)) {
                (Some((key, _)), Some(value)) => text.extend([key, " = ", value, "\n"]),
                _ => text.extend([line, "\n"]),
            }
        }
        for text in [text.clone(), text + &noise] {
            // Most of these texts are invalid, and then have a mistake with a description.
            if let Err(errors) = Config::from_toml(&text) {
                proptest::prop_assert!(!errors.mistakes().is_empty());
            }
        }
    }
}
