//! Whole configurations: the sample loads, every rule has a text that breaks it, and a file full of mistakes is
//! reported in one go.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::*;

/// A configuration that is right, to which tests add.
const BASE: &str =
    "[clusters.one]\nserver = \"https://one.example.com\"\nlabels = { tier = \"prod\" }\n[resources.pods]\n";

const SINK: &str = "[sinks.audit]\ntype = \"webhook\"\nurl = \"https://audit.example.com\"\n";

fn problems(text: &str) -> Vec<String> {
    match Config::from_toml(text) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.mistakes().iter().map(ToString::to_string).collect(),
    }
}

/// Asserts that `text` has exactly one mistake, at this line (0: none), with these words.
#[track_caller]
fn only(text: &str, line: usize, words: &str) {
    let errors = Config::from_toml(text).map(|_| text.to_owned()).expect_err("must be refused");
    let [mistake] = errors.mistakes() else { panic!("more than one mistake:\n{errors}") };
    assert_eq!(mistake.line.unwrap_or(0), line, "{mistake}");
    assert!(mistake.to_string().contains(words), "{mistake}\nwanted: {words}");
    schema::tests::refuses(text, &mistake.to_string());
}

/// As [`only`], for lines after [`BASE`], the first of which is 1.
#[track_caller]
fn only_in_resource(lines: &str, line: usize, words: &str) {
    only(&format!("{BASE}{lines}"), line + 4, words);
}

/// As [`only`], for lines within a sink, the first of which is 1.
#[track_caller]
fn only_in_sink(lines: &str, line: usize, words: &str) {
    only(&format!("{BASE}{SINK}{lines}"), line + 7, words);
}

/// As [`only`], for the lines of a cluster, the first of which is 1; its header is 0.
#[track_caller]
fn only_in_cluster(lines: &str, line: usize, words: &str) {
    only(&format!("[resources.pods]\n[clusters.one]\n{lines}"), line + 2, words);
}

fn load(folder: &Path, text: &str, environment: &[(&str, &str)]) -> Result<Config, ConfigErrors> {
    let file = folder.join("hub.toml");
    fs::write(&file, text).unwrap();
    Config::from_file_with_env(file, environment.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())))
}

#[test]
fn a_small_configuration_has_the_defaults() {
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
    assert!(config.clusters[0].compression);
}

#[test]
fn the_sample_of_the_documentation_loads() {
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
fn a_memory_limit_is_a_size_and_may_come_from_the_environment() {
    let limit = |text: &str, variables: &[(&str, &str)]| {
        let environment = variables.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let (file, environment) = (format!("[hub]\n{text}\n{BASE}"), Some(&environment));
        let source = super::resolve::Source { file: None, text: &file, environment, probes: None, whole: true };
        super::resolve::resolve(&source).unwrap().hub.memory_limit
    };
    assert_eq!(limit("", &[]), None);
    assert_eq!(limit("memory_limit = \"2GiB\"", &[]), Some(2 << 30));
    assert_eq!(limit("memory_limit = 67108864", &[]), Some(64 << 20));
    let variable = [("INFORMER_HUB_HUB__MEMORY_LIMIT", "128MiB")];
    assert_eq!(limit("memory_limit = \"2GiB\"", &variable), Some(128 << 20));
}

#[test]
fn where_state_is_kept_and_how_often_is_read() {
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
fn a_file_full_of_mistakes_is_reported_in_one_go() {
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
    assert_eq!(shown, include_str!("golden_mistakes.txt").trim_end());
    assert!(!format!("{errors:?}").contains("hunter2"));
    assert!(!serde_json::to_string(&errors).unwrap().contains("hunter2"));
}

#[test]
fn a_text_that_is_not_toml_has_one_mistake_with_its_place() {
    only("[hub]\nlisten = \n", 2, "not TOML at column 10: ");
    only("[hub]\n[hub]\n", 2, "not TOML at column 2: hub is there twice; keep one of them");
    only("[resources.pods]\n[resources.pods]\n", 2, "pods is there twice");
}

#[test]
fn a_file_that_is_not_there_is_said_so() {
    let folder = tempfile::tempdir().unwrap();
    let errors = Config::from_file(folder.path().join("no.toml")).unwrap_err();
    assert!(errors.to_string().contains("no.toml: cannot read the file: "), "{errors}");
}

#[test]
fn without_clusters_or_resources_an_example_says_what_to_write() {
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
    only("clusters = []\n[resources.pods]\n", 1, "clusters: expected a table, found a list");
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
fn a_cluster_is_reached_in_exactly_one_way() {
    only_in_cluster("", 0, "clusters.one: does not say how to reach the cluster; write kubeconfig = ");
    only_in_cluster("in_cluster = false\n", 0, "does not say how to reach the cluster");
    only_in_cluster("in_cluster = true\nserver = \"https://x\"\n", 0, "has in_cluster and server; keep one of them");
    only_in_cluster("in_clutser = true\n", 1, "unknown key; did you mean \"in_cluster\"?");
    only_in_cluster("in_cluster = 1\n", 1, "expected true or false, found a number");
    only_in_cluster("in_cluster = true\ncontext = \"a\"\n", 2, "context: belongs to kubeconfig, which is not given");
    only_in_cluster("in_cluster = true\ntoken = { env = \"A\" }\n", 2, "token: belongs to server, which is not given");
}

#[test]
fn cluster_values_are_checked() {
    only_in_cluster("server = \"one\"\n", 1, "not an address of http or https");
    only_in_cluster("server = \"http://x\"\ntoken = { env = \"A\" }\n", 1, "would send the token unencrypted");
    only_in_cluster("server = \"https://x\"\ncompression = \"no\"\n", 2, "expected true or false, found a text");
    only_in_cluster("server = \"https://x\"\nlabels = { a = 1 }\n", 2, "clusters.one.labels.a: expected a text");
    only_in_cluster("server = \"https://x\"\ncontxt = 1\n", 2, "unknown key; did you mean \"context\"?");
    only("[clusters.\"a b\"]\nin_cluster = true\n[resources.pods]\n", 1, "cluster name \"a b\" is not valid: 1 to 63");
    let loopback = "server = \"http://127.0.0.1:1\"\ntoken = { env = \"A\" }\nlabels = { empty = \"\" }\n";
    assert_eq!(problems(&format!("[resources.pods]\n[clusters.one]\n{loopback}")), Vec::<String>::new());
}

#[test]
fn resource_names_are_checked() {
    only(&BASE.replace("pods", "Pods"), 4, "resources.Pods: \"Pods\" is not a resource: write it as kubectl does");
    only_in_resource("resource = \"a b\"\n", 1, "resources.pods.resource: \"a b\" is not a resource");
    let named = BASE.replace("[resources.pods]", "[resources.\"My Pods\"]\nresource = \"pods\"");
    assert_eq!(problems(&named), Vec::<String>::new());
}

#[test]
fn patterns_are_checked() {
    let ours = |lines: &str| format!("{BASE}[resources.ours]\nresource = \"*.example.com\"\n{lines}");
    let good = ours("exclude = [\"gears\", \"*.*.b.example.com\"]\nlimit = 7\n[resources.\"*.*.example.com\"]\n");
    let config = Config::from_toml(&good).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let patterns: Vec<_> = config.resources.iter().filter_map(|it| it.resource.pattern()).collect();
    let told: Vec<_> = patterns.iter().map(|it| (it.to_string(), it.exclude.len(), it.limit.get())).collect();
    assert_eq!(told, [("*.*.example.com".to_owned(), 0, 50), ("*.example.com".to_owned(), 2, 7)]);
    let line = 7;
    only(&ours("exclude = [\"*\"]\n"), line, "exclude[0]: leaves nothing of *.example.com");
    only(&ours("exclude = [\"gears.v1.example.com\"]\n"), line, "exclude[0]: names a version");
    only(&ours("exclude = [\"a b\"]\n"), line, "exclude[0]: \"a b\" is not a resource");
    only(&ours("exclude = [\"*.\"]\n"), line, "exclude[0]: \"*.\" is not a pattern: write \"*.example.com\"");
    only(&ours("limit = 0\n"), line, "limit: expected a whole number from 1 to 1000, found 0");
    let again = ours("[resources.again]\nresource = \"*.example.com\"\n");
    only(&again, 5, "is the pattern *.example.com for cluster one, which resources.again is too");
    only_in_resource("exclude = [\"a\"]\n", 1, "exclude: belongs to a pattern such as");
    only_in_resource("limit = 3\n", 1, "limit: belongs to a pattern such as");
    only(&BASE.replace("pods", "\"**\""), 4, "\"**\" is not a pattern");
}

#[test]
fn a_short_name_is_the_same_resource() {
    let text = format!("{BASE}keep = [\"spec\"]\n[resources.po]\n");
    only(&text, 4, "watches objects that resources.po watches too");
}

#[test]
fn cluster_selectors_must_select_something() {
    only_in_resource("clusters = { tier = \"dev\" }\n", 1, "matches no cluster; the label \"tier\" is prod");
    only_in_resource("clusters = { teir = \"prod\" }\n", 1, "no cluster has a label \"teir\"; did you mean \"tier\"?");
    only_in_resource("clusters = [\"on\"]\n", 1, "clusters[0]: there is no cluster \"on\"; did you mean \"one\"?");
    only_in_resource("clusters = []\n", 1, "selects no cluster; remove the key");
    only_in_resource("clusters = {}\n", 1, "selects by no label; remove the key");
    only_in_resource("clusters = \"one\"\n", 1, "expected labels such as");
    let named = Config::from_toml(&format!("{BASE}clusters = [\"one\"]\n")).unwrap();
    assert_eq!(named.resources[0].clusters, ClusterSelector::Names(vec![ClusterName::new("one").unwrap()]));
}

#[test]
fn resource_scopes_are_checked() {
    only_in_resource("namespaces = []\n", 1, "is empty; remove the key for all namespaces");
    only_in_resource("namespaces = [\"a\", \"b\", \"a\"]\n", 1, "namespaces[2]: \"a\" is in the list twice");
    only_in_resource("namespaces = [\n\"a\",\n\"B\"]\n", 3, "namespaces[1]: \"B\" is not a namespace");
    only_in_resource("namespaces = \"a\"\n", 1, "expected a list such as [\"a\", \"b\"], found a text");
    only_in_resource("namespaces = [1]\n", 1, "namespaces[0]: expected a text in quotes, found a number");
    only_in_resource("label_selector = \"a=b c\"\n", 1, "expected a comma or the end, found \"c\" at position 4");
    only_in_resource("label_selector = \"\"\n", 1, "is empty; write a value or remove the key");
    only_in_resource("field_selector = \"status.phase\"\n", 1, "has no operator; write path=value");
}

#[test]
fn resource_values_are_checked() {
    only_in_resource("resync = \"999ms\"\n", 1, "999ms is out of range: from 1s to 7d");
    only_in_resource("resync = \"10\"\n", 1, "\"10\" is not a duration: write a whole number and a unit");
    only_in_resource("drop = [\"spec\"]\nkeep = [\"spec\"]\n", 2, "keep and drop are opposites");
    only_in_resource("drop = [\"metadata.uid\"]\n", 1, "is part of what identifies an object");
    only_in_resource("metadata_only = true\nindexes = { a = \"spec.b\" }\n", 2, "indexes.a: ");
    only_in_resource("metadata_only = true\nkeep = [\"spec\"]\n", 2, "is not in metadata, and metadata_only");
    only_in_resource("indexes = { \"a b\" = \"spec.b\" }\n", 1, "indexes.\"a b\": is not a name for an index");
    only_in_resource("indexes = { a = 1 }\n", 1, "indexes.a: expected a text in quotes, found a number");
    only_in_resource("namespace = \"a\"\n", 1, "unknown key; did you mean \"namespaces\"?");
}

#[test]
fn two_entries_may_not_keep_the_same_objects_in_two_ways() {
    let second = |lines: &str| format!("{BASE}[resources.again]\nresource = \"pods\"\n{lines}");
    // `again` is read first, by name; the mistake is at the later one and names both.
    only(&second("drop = []\n"), 4, "resources.pods: watches objects that resources.again watches too, in cluster one");
    only(&second("metadata_only = true\n"), 4, "watches objects that resources.again watches too");
    only(&second("drop = []\nnamespaces = [\"a\"]\n"), 4, "watches objects that resources.again watches too");
    for fine in ["", "resync = \"10m\"\n", "drop = []\nlabel_selector = \"a\"\n"] {
        assert_eq!(problems(&second(fine)), Vec::<String>::new(), "{fine}");
    }
    let apart = "[clusters.two]\nserver = \"https://two\"\nlabels = { tier = \"dev\" }\n";
    let text = second("drop = []\nclusters = { tier = \"dev\" }\n")
        .replace("[resources.pods]", "[resources.pods]\nclusters = { tier = \"prod\" }");
    assert_eq!(problems(&format!("{apart}{text}")), Vec::<String>::new());
}

#[test]
fn an_index_of_a_resource_is_one_path_whoever_declares_it() {
    let two = |one: &str, other: &str| {
        let text = BASE.replace("[resources.pods]", &format!("[resources.pods]\nindexes = {{ {one} }}"));
        format!("{text}[resources.again]\nresource = \"pods\"\nlabel_selector = \"a\"\nindexes = {{ {other} }}\n")
    };
    let found = problems(&two("a = \"spec.x\"", "a = \"spec.y\""));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("resources.pods.indexes.a: is another path than resources.again.indexes.a"), "{found:?}");
    assert_eq!(problems(&two("a = \"spec.x\"", "a = \"spec.x\", b = \"spec.y\"")), Vec::<String>::new());
}

#[test]
fn sinks_are_checked() {
    let bare = format!("{BASE}[sinks.audit]\n");
    let found = problems(&bare);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].contains("write type = \"webhook\"") && found[1].contains("write url = "), "{found:?}");
    only(
        &format!("{BASE}{}", SINK.replace("webhook", "kafka")),
        6,
        "there is no type of sink \"kafka\"; there is webhook, nats, file, stdout",
    );
    only(&format!("{BASE}{}", SINK.replace("https://", "https://u:hunter2@")), 7, "does not belong in the address");
    only(&format!("{BASE}{}", SINK.replace("url", "uri")), 7, "uri: unknown key; did you mean \"url\"?");
    only_in_sink("initial = \"skipp\"\n", 1, "there is no choice \"skipp\"; did you mean \"skip\"?");
    only_in_sink("timeout = \"1ms\"\n", 1, "1ms is out of range: from 100ms to 5m");
    only_in_sink("concurrency = 0\n", 1, "expected a whole number from 1 to 256, found 0");
    only_in_sink("concurrency = 1.5\n", 1, "expected a whole number from 1 to 256, found 1.5");
    only_in_sink("filter = \" \"\n", 1, "is empty");
    only_in_sink("batches = {}\n", 1, "unknown key; did you mean \"batch\"?");
    only(&format!("{BASE}{}", SINK.replace("sinks.audit", "sinks.\"a b\"")), 5, "is not a name for a sink");
}

/// As [`only_in_sink`], of a sink of another type, the first line of which is 1.
#[track_caller]
fn only_in(lines: &str, line: usize, words: &str) {
    only(&format!("{BASE}[sinks.audit]\n{lines}"), line + 5, words);
}

fn sink(lines: &str) -> SinkConfig {
    Config::from_toml(&format!("{BASE}[sinks.audit]\n{lines}"))
        .unwrap_or_else(|errors| panic!("{errors}"))
        .sinks
        .remove(0)
}

#[test]
fn what_a_sink_sends_and_how_is_checked() {
    let both = "filter = \"true\"\non_filter_error = \"dropp\"\n";
    only_in_sink(both, 2, "there is no choice \"dropp\"; did you mean \"drop\"?");
    only_in_sink("on_filter_error = \"drop\"\n", 1, "belongs to filter, which is not given");
    only_in_sink("include_old = \"no\"\n", 1, "expected true or false");
    only_in_sink("redact = [\"spec\", \"a b\"]\n", 1, "redact[1]: \"a b\" is not a path");
    only_in_sink("redact = [\"metadata.name\"]\n", 1, "is part of what identifies an object");
    only_in_sink("rate_limit = { burst = 3 }\n", 1, "does not say how many; write { events_per_second");
    only_in_sink("rate_limit = { events_per_secnd = 3 }\n", 1, "did you mean \"events_per_second\"?");
    only_in_sink("rate_limit = { events_per_second = 0 }\n", 1, "expected a whole number from 1 to 1000000, found 0");
    only_in_sink("format = \"cloudevent\"\n", 1, "there is no format \"cloudevent\"; did you mean \"cloudevents\"?");
    let both = "type = \"webhook\"\nurl = \"https://x\"\nformat = \"json\"\npreset = \"slack\"\n";
    only_in(both, 0, "sinks.audit: has format and preset; keep one of them");
    only_in_sink("preset = \"slak\"\n", 1, "there is no preset \"slak\"; did you mean \"slack\"?");
    only_in_sink("preset = \"slack\"\nbatch = { max_events = 2 }\n", 2, "sends one event at a time; remove the key");
    only_in_sink("content_type = \"text/plain\"\n", 1, "belongs to template, which is not given");
    only_in_sink("template = \"x\"\ncontent_type = \"text\"\n", 2, "is not a media type");
    only_in_sink("template_file = \"nowhere\"\n", 1, "there is no such file");
    let slack = sink("type = \"webhook\"\nurl = \"https://x\"\npreset = \"slack\"\n");
    assert_eq!((slack.body, slack.batch.max_events), (BodyConfig::Preset(Preset::Slack), 1));
    let limited =
        sink("type = \"stdout\"\nrate_limit = { events_per_second = 7 }\nredact = [\"spec\"]\ninclude_old = false\n");
    let limit = limited.rate_limit.unwrap();
    assert_eq!((limit.events_per_second.get(), limit.burst.get()), (7, 7));
    assert_eq!((limited.redact.len(), limited.include_old), (1, false));
}

#[test]
fn keys_of_a_webhook_are_checked() {
    only_in_sink("compression = \"gz\"\n", 1, "there is no compression \"gz\"; there is gzip, zstd");
    only_in_sink("client_cert_file = \"Cargo.toml\"\n", 1, "needs its key; write client_key_file");
    only_in_sink("client_key_file = \"Cargo.toml\"\n", 1, "needs its certificate; write client_cert_file");
    only_in_sink("client_cert_file = \"Cargo.toml\"\nclient_key_fil = \"a\"\n", 2, "did you mean \"client_key_file\"?");
    let plain =
        "type = \"webhook\"\nurl = \"http://x\"\nclient_cert_file = \"Cargo.toml\"\nclient_key_file = \"Cargo.toml\"\n";
    only_in(plain, 3, "is shown to nobody where url is http");
    only_in_sink("headers = { x-api-key = \"hunter2\" }\n", 1, "headers.x-api-key: a secret does not belong");
    only_in_sink("headers = { Authorization = \"Bearer hunter2\" }\n", 1, "a secret does not belong");
    only_in_sink("headers = { x-a = 1 }\n", 1, "expected a text or { env = \"NAME\" }, found a number");
    only_in_sink("headers = { x-a = \"1\", X-A = \"2\" }\n", 1, "is there twice");
    let misspelt = problems(&format!("{BASE}{SINK}headers = {{ x-api-key = {{ enf = \"A\" }} }}\n")).concat();
    assert!(misspelt.contains("headers.x-api-key.enf: unknown key; did you mean \"env\"?"), "{misspelt}");
    let found =
        sink("type = \"webhook\"\nurl = \"https://x\"\nheaders = { x-api-key = { env = \"K\" }, x-team = \"a\" }\n");
    let TransportConfig::Webhook(webhook) = found.transport else { panic!("another type") };
    let values: Vec<_> = webhook.headers.into_iter().map(|header| header.value).collect();
    assert_eq!(values, [HeaderText::Secret(Secret::Env("K".into())), HeaderText::Plain("a".into())]);
}

#[test]
fn keys_of_nats_are_checked() {
    let nats = |lines: &str| format!("type = \"nats\"\nurl = \"nats://a, tls://b:4222\"\n{lines}");
    let only =
        |lines: &str, line: usize, words: &str| only_in(&nats(lines), if line == 0 { 0 } else { line + 2 }, words);
    only_in("type = \"nats\"\n", 0, "does not say where to; write url = \"nats://");
    only_in("type = \"nats\"\nurl = \"https://a\"\n", 2, "not an address of nats or tls");
    only_in("type = \"nats\"\nurl = \"nats://u:hunter2@a\"\n", 2, "use creds_file, token, user or nkey");
    only_in("type = \"natss\"\nurl = \"nats://a\"\n", 1, "did you mean \"nats\"?");
    only("user = \"u\"\n", 1, "needs a password");
    only("password = { env = \"P\" }\n", 1, "belongs to user, which is not given");
    only("token = \"hunter2\"\n", 1, "a secret does not belong in the configuration");
    only("token = { env = \"T\" }\nnkey = { env = \"N\" }\n", 0, "has token and nkey; keep one of them");
    only("stream = \"a.b\"\n", 1, "is not the name of a stream");
    only("signing_secret = { env = \"S\" }\n", 1, "unknown key");
    let found = sink(&nats("user = \"u\"\npassword = { env = \"P\" }\n"));
    assert_eq!(found.transport.concurrency(), 4);
    let TransportConfig::Nats(config) = found.transport else { panic!("another type") };
    assert_eq!(config.urls, ["nats://a", "tls://b:4222"]);
    assert_eq!(config.subject, "k8s.{cluster}.{resource}.{namespace}.{name}");
    assert!(matches!(config.auth, Some(NatsAuth::Password { .. })));
}

#[test]
fn keys_of_files_are_checked() {
    only_in("type = \"file\"\n", 0, "does not say where to; write path = \"events.jsonl\"");
    only_in("type = \"file\"\npath = \"src\"\n", 2, "src is a directory");
    only_in("type = \"file\"\npath = \"nowhere/a.jsonl\"\n", 2, "nowhere; make it first");
    only_in("type = \"file\"\npath = \"a.jsonl\"\nmax_size = 10\n", 3, "10B is out of range: from 1KiB to 1TiB");
    only_in("type = \"file\"\npath = \"a.jsonl\"\nkeep = 0\n", 3, "expected a whole number from 1 to 1000, found 0");
    only_in("type = \"file\"\npath = \"a.jsonl\"\nconcurrency = 2\n", 3, "unknown key");
    only_in("type = \"stdout\"\npath = \"a.jsonl\"\n", 2, "unknown key");
    let twice = "type = \"file\"\npath = \"a.jsonl\"\n[sinks.b]\ntype = \"file\"\npath = \"a.jsonl\"\n";
    only_in(twice, 5, "is where sinks.audit writes too; give each its own");
    let TransportConfig::File(file) = sink("type = \"file\"\npath = \"a.jsonl\"\n").transport else {
        panic!("another type")
    };
    assert_eq!((file.max_size, file.keep, file.fsync), (100 << 20, 5, true));
    assert_eq!(sink("type = \"stdout\"\n").transport.concurrency(), 1);
}

#[test]
fn batches_and_retries_have_bounds() {
    only_in_sink("batch = { max_events = 10001 }\n", 1, "batch.max_events: expected a whole number from 1 to 10000");
    only_in_sink("batch = { max_bytes = 10 }\n", 1, "10B is out of range: from 1KiB to 64MiB");
    only_in_sink("batch = { max_bytes = true }\n", 1, "expected a size such as \"64MiB\", found true or false");
    only_in_sink("batch = { max_wait = \"2m\" }\n", 1, "2m is out of range: from 0s to 1m");
    only_in_sink("retry = { first = \"1ms\" }\n", 1, "1ms is out of range: from 10ms to 1d");
    only_in_sink("retry = { first = \"2s\", max = \"1s\" }\n", 1, "retry.first: 2s is longer than max, which is 1s");
    only_in_sink(
        "retry = { max = \"2m\", give_up_after = \"1m\" }\n",
        1,
        "2m is longer than give_up_after, which is 1m",
    );
    only_in_sink("retry = { first = \"2m\", give_up_after = \"1m\" }\n", 1, "2m is longer than give_up_after");
}

#[test]
fn a_default_of_retries_gives_way_to_what_is_written() {
    let retry = |text: &str| {
        let config = Config::from_toml(&format!("{BASE}{SINK}retry = {{ {text} }}\n")).unwrap();
        let retry = &config.sinks[0].retry;
        [retry.first, retry.max, retry.give_up_after].map(|d| HumanDuration(d).to_string()).join(" ")
    };
    assert_eq!(retry("give_up_after = \"1m\""), "500ms 1m 1m");
    assert_eq!(retry("max = \"100ms\""), "100ms 100ms 1d");
    assert_eq!(retry("first = \"10m\""), "10m 10m 1d");
}

#[test]
fn what_a_sink_matches_must_be_there() {
    only_in_sink("match = { resources = [\"pod\"] }\n", 1, "there is no [resources.pod]; did you mean \"pods\"?");
    only_in_sink("match = { resources = [\"pods\", \"pods\"] }\n", 1, "\"pods\" is in the list twice");
    only_in_sink("match = { resources = [] }\n", 1, "is empty; remove the key for all resources");
    only_in_sink(
        "match = { events = [\"adedd\"] }\n",
        1,
        "events[0]: there is no event \"adedd\"; did you mean \"added\"?",
    );
    only_in_sink("match = { events = [] }\n", 1, "is empty; remove the key");
    only_in_sink("match = { clusters = { tier = \"dev\" } }\n", 1, "sinks.audit.match.clusters: matches no cluster");
    let elsewhere = "[clusters.two]\nserver = \"https://two\"\n[resources.nodes]\nclusters = [\"two\"]\n";
    let text = format!("{BASE}{elsewhere}{SINK}match = {{ resources = [\"nodes\"], clusters = [\"one\"] }}\n");
    only(&text, 12, "sinks.audit.match: matches nothing: none of its resources is watched in its clusters");
}

#[test]
fn a_secret_is_only_referred_to_and_never_printed() {
    only_in_sink("signing_secret = \"hunter2\"\n", 1, "a secret does not belong in the configuration; write { env");
    only_in_sink("signing_secret = {}\n", 1, "names no secret; write { env");
    only_in_sink("signing_secret = { env = 1 }\n", 1, "expected a text in quotes");
    let both = "signing_secret = { env = \"A\", file = \"Cargo.toml\" }\n";
    only_in_sink(both, 1, "has both env and file; keep one of them");
    let found = problems(&format!("{BASE}{SINK}signing_secret = {{ value = \"hunter2\" }}\n")).concat();
    assert!(found.contains("value: unknown key; there is env, file") && !found.contains("hunter2"), "{found}");
}

#[test]
fn secrets_and_files_must_be_there() {
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
fn a_secret_is_read_without_its_line_break() {
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
fn the_environment_overrides_the_file_and_adds_to_it() {
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
fn a_mistake_in_the_environment_names_its_variable() {
    let folder = tempfile::tempdir().unwrap();
    let shown = |name: &str, value: &str| {
        load(folder.path(), &format!("{BASE}{SINK}"), &[(name, value)]).unwrap_err().to_string()
    };
    for (name, value, wanted) in [
        ("INFORMER_HUB_HUB__LISTEN", "x", "hub.listen: \"x\" is not an IP address"),
        ("INFORMER_HUB_HUBB__LISTEN", "x", "hubb: unknown key; did you mean \"hub\"?"),
        ("INFORMER_HUB_CLUSTERS__NEW__COMPRESSION", "true", "clusters.new: does not say how to reach the cluster"),
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

proptest::proptest! {
    #![proptest_config(crate::cache::testing::properties(256))]

    /// Some lines of a right configuration, in order, some with a value that does not belong there.
    #[test]
    fn no_text_makes_the_reader_panic(
        picks in proptest::collection::btree_map(0..60_usize, 0..16_usize, 0..60),
        noise in "[\\[\\]{}=\"'.,a-z0-9 \n-]{0,40}",
    ) {
        let sample = include_str!("../../config/hub.toml");
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
            // Few of them are right; those that are not say why.
            if let Err(errors) = Config::from_toml(&text) {
                proptest::prop_assert!(!errors.mistakes().is_empty());
            }
        }
    }
}

/// As [`only`], for the lines of `[hub]`, the first of which is 1; its header is 0.
#[track_caller]
fn only_in_hub(lines: &str, line: usize, words: &str) {
    only(&format!("{BASE}[hub]\n{lines}"), line + 5, words);
}

#[test]
fn a_port_that_other_machines_reach_asks_who_is_there() {
    let refused = "0.0.0.0:7080 is reached from other machines, and nothing asks who is there";
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
fn what_belongs_to_the_port_is_checked_as_everything_is() {
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
    assert!(errors.to_string().contains("nothing asks who is there"), "TLS alone asks nobody: {errors}");
    only_in_hub("max_connections = 3", 1, "from 16 to 65536");
    only_in_hub("auth = { token = \"hunter2\" }", 1, "a secret does not belong in the configuration");
    only_in_hub("auth = { token = { env = \"T\" }, allow_unauthenticated = true }", 1, "contradicts the token");
    let errors = load(folder.path(), &format!("{BASE}[hub.tls]\ncert_file = \"cert.pem\"\n"), &[]).unwrap_err();
    assert!(errors.to_string().contains("has no key_file; write key_file = \"hub-key.pem\""), "{errors}");
    let errors = load(folder.path(), &format!("{BASE}[hub.tls]\ncert_fil = \"cert.pem\"\n"), &[]).unwrap_err();
    assert!(errors.to_string().contains("did you mean \"cert_file\""), "{errors}");
}

const SOURCE: &str = "[resources.pods]\n[cluster_sources.fleet]\n";

/// As [`only`], for the lines of a source of clusters, the first of which is 1; its header is 0.
#[track_caller]
fn only_in_source(lines: &str, line: usize, words: &str) {
    only(&format!("{SOURCE}{lines}"), line + 2, words);
}

#[test]
fn sources_of_clusters_are_enough_and_have_defaults() {
    let text = "type = \"secrets\"\nformat = \"argocd\"\nin_cluster = true\nnamespaces = [\"argocd\"]\n";
    let config = Config::from_toml(&format!("{SOURCE}{text}")).unwrap();
    assert!(config.clusters.is_empty());
    let [source] = &config.sources[..] else { panic!("{:?}", config.sources) };
    assert_eq!((source.name.as_str(), source.names.as_str(), source.max_clusters), ("fleet", "{name}", 1000));
    assert!(source.compression && source.take_labels == [LabelPattern::any()]);
    let ClusterSourceKind::Secrets { management, format } = &source.kind else { panic!("{source:?}") };
    assert_eq!((management.namespaces.len(), *format), (1, SecretFormat::ArgoCd));
    let text =
        "type = \"cluster-profiles\"\nserver = \"https://m\"\n[cluster_sources.fleet.providers.gke]\ncommand = \"g\"\n";
    let config = Config::from_toml(&format!("{SOURCE}{text}")).unwrap();
    let ClusterSourceKind::ClusterProfiles { providers, secrets, .. } = &config.sources[0].kind else {
        panic!("another")
    };
    assert_eq!((providers["gke"].api_version.as_str(), *secrets), ("client.authentication.k8s.io/v1", false));
}

#[test]
fn sources_of_clusters_are_checked() {
    const SECRETS: &str = "type = \"secrets\"\nformat = \"argocd\"\nin_cluster = true\n";
    const FOLDER: &str = "type = \"folder\"\npath = \"x\"\n";
    const PROFILES: &str = "type = \"cluster-profiles\"\nin_cluster = true\n";
    only_in_source("", 0, "does not say what is looked at; write type = \"folder\"");
    only_in_source(
        "type = \"secret\"\n",
        1,
        "there is no type of cluster source \"secret\"; did you mean \"secrets\"?",
    );
    only_in_source("type = \"folder\"\n", 0, "does not say which folder");
    only_in_source("type = \"secrets\"\nformat = \"argocd\"\n", 0, "does not say how to reach the cluster");
    only_in_source("type = \"secrets\"\nin_cluster = true\n", 0, "does not say what the Secrets hold");
    only_in_source("type = \"secrets\"\nin_cluster = true\nformat = \"argo\"\n", 3, "there is no format \"argo\"");
    only_in_source(&format!("{SECRETS}path = \"x\"\n"), 4, "unknown key");
    only_in_source(&format!("{SECRETS}names = \"x\"\n"), 4, "has no {name}");
    only_in_source(&format!("{SECRETS}names = \"{{name}}/\"\n"), 4, "is not a pattern of names");
    only_in_source(&format!("{FOLDER}names = \"{{namespace}}{{name}}\"\n"), 3, "files have none");
    only_in_source(
        &format!("{FOLDER}contexts = \"every\"\n"),
        3,
        "there is no choice \"every\"; there is current, all",
    );
    only_in_source(&format!("{FOLDER}take_labels = [\"a*b\"]\n"), 3, "is not the key of a label");
    only_in_source(&format!("{FOLDER}label_prefix = \"a b\"\n"), 3, "is not the beginning of a label's key");
    only_in_source(&format!("{FOLDER}max_clusters = 0\n"), 3, "from 1 to 10000");
    only_in_source(PROFILES, 0, "does not say how credentials are had");
    only_in_source(&format!("{PROFILES}providers = {{ gke = {{ args = [] }} }}\n"), 3, "does not say which command");
    only_in_source(
        &format!("{PROFILES}providers = {{ gke = {{ command = \"g\", api_version = \"v1\" }} }}\n"),
        3,
        "there is no version \"v1\"",
    );
    only(&format!("{BASE}[cluster_sources.\"a b\"]\n{FOLDER}"), 5, "is not a name for a source of clusters");
    only(&format!("[resources.pods]\n[cluster_source.a]\n{FOLDER}"), 2, "did you mean \"cluster_sources\"?");
}

#[test]
fn with_sources_a_name_or_label_that_no_table_has_may_come_later() {
    let source = "[cluster_sources.f]\ntype = \"folder\"\npath = \"x\"\n";
    let sink = format!("{SINK}match = {{ clusters = {{ tier = \"other\" }} }}\n");
    let text = format!("{BASE}clusters = [\"later\"]\n{source}{sink}");
    let config = Config::from_toml(&text).unwrap();
    assert_eq!(config.resources[0].clusters, ClusterSelector::Names(vec!["later".parse().unwrap()]));
    only(&format!("{BASE}clusters = [\"a b\"]\n{source}"), 5, "cluster name \"a b\" is not valid");
    only(&format!("{BASE}clusters = [\"later\"]\n"), 5, "there is no cluster \"later\"");
}
