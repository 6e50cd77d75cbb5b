//! Tests that the schema and the parser of the configuration agree on keys, valid values and mistakes.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use jsonschema::Validator;
use serde_json::Value;

use super::{reference, schema};
use crate::Config;
use crate::raw::{Environment, merge};

static VALIDATOR: LazyLock<Validator> = LazyLock::new(|| jsonschema::validator_for(&schema()).expect("it is a schema"));

/// Texts of mistakes that no schema can detect: they depend on other keys, on files, on comparing durations or sizes
/// with units, or on embedded languages.
const BEYOND: &[&str] = &[
    "is out of range",
    "is longer than",
    "matches no cluster",
    "no cluster has a label",
    "there is no cluster",
    "there is no [resources.",
    "matches nothing",
    "watches the same objects as",
    "requires a pattern",
    "excludes all of",
    "has a version, but",
    "has the same pattern",
    "differs from",
    "; write different paths",
    "does not work with match.events",
    "or one of its partitions",
    "has a name of more than 63 characters",
    "there is no such file",
    "is a directory",
    "there is no directory",
    "is duplicated",
    "is reachable from other machines",
    "is not a label selector",
    "expected a comma or the end",
    "is also used by readers.",
    "requires [oidc]",
    "an agent needs a fleet",
    "requires client_ca_file",
    "requires the cluster in token_review",
    "contradicts [readers]",
    "has a version, but a right",
    "excludes everything",
    "an issuer has no query",
    "has no effect in a fleet",
    "has no effect without the role deliver",
    "combines collect with another role",
    "no entry of [resources] watches",
];

/// Returns the schema errors of a text; empty if it is valid or not TOML.
fn against(text: &str) -> Vec<String> {
    let Ok(raw) = merge(text, &Environment::new()) else { return Vec::new() };
    let value = serde_json::to_value(&raw.values).expect("TOML's values are JSON's");
    VALIDATOR.iter_errors(&value).map(|error| error.to_string()).collect()
}

/// Asserts that the schema rejects `text`, which the parser has rejected with `problem`. Does nothing for mistakes that
/// no schema can detect.
#[track_caller]
pub(crate) fn refuses(text: &str, problem: &str) {
    let seen = !BEYOND.iter().any(|words| problem.contains(words)) && merge(text, &Environment::new()).is_ok();
    assert!(!seen || !against(text).is_empty(), "the schema accepts what is wrong ({problem}):\n{text}");
}

#[test]
fn examples_match_the_schema() {
    for (name, text) in [
        ("agent", include_str!("../../../../config/agent.toml")),
        ("collector", include_str!("../../../../config/collector.toml")),
        ("replica", include_str!("../../../../config/replica.toml")),
        ("deliverer", include_str!("../../../../config/deliverer.toml")),
        ("hub", include_str!("../../../../config/hub.toml")),
        ("in-cluster", include_str!("../../../../config/in-cluster.toml")),
        ("kind", include_str!("../../../../config/kind.toml")),
        ("minimal", include_str!("../../../../config/minimal.toml")),
    ] {
        assert_eq!(against(text), Vec::<String>::new(), "config/{name}.toml");
    }
}

#[test]
fn schema_file_is_up_to_date() {
    let file: Value = serde_json::from_str(include_str!("../../../../config/schema.json")).expect("it is JSON");
    assert!(file == schema(), "out of date; run: informer-hub config schema > config/schema.json");
}

#[test]
fn reference_page_is_up_to_date() {
    let page = include_str!("../../../../docs/configuration.md");
    assert!(page == reference(), "out of date; run: make reference");
}

/// Returns the known keys of a table, which the parser lists when it reports an unknown key. `HERE` in `text` marks the
/// table.
fn known_to_the_reader(text: &str) -> BTreeSet<String> {
    let text = text.replace("HERE", "zzzzzzzzzzzzzzzzzzzzzzzz = 1");
    let errors = Config::from_toml(&text).expect_err("it has an unknown key").to_string();
    let list = errors.lines().find_map(|line| line.split_once("unknown key; known: "));
    let (_, list) = list.unwrap_or_else(|| panic!("no unknown key:\n{errors}"));
    list.split(", ").map(str::to_owned).collect()
}

fn known_to_the_schema(pointer: &str) -> BTreeSet<String> {
    let schema = schema();
    let node = schema.pointer(pointer).unwrap_or_else(|| panic!("nothing at {pointer}"));
    node["properties"].as_object().unwrap_or_else(|| panic!("no table at {pointer}")).keys().cloned().collect()
}

#[test]
fn schema_has_exactly_the_keys_of_the_reader() {
    const SINK: &str = "/properties/sinks/additionalProperties/oneOf";
    const READER: &str = "/properties/readers/additionalProperties";
    const SOURCE: &str = "/properties/cluster_sources/additionalProperties/oneOf";
    let same = |text: &str, pointer: &str| {
        let (reader, schema) = (known_to_the_reader(text), known_to_the_schema(pointer));
        let difference: Vec<_> = reader.symmetric_difference(&schema).collect();
        assert!(difference.is_empty(), "at {pointer} one of them lacks {difference:?}");
    };
    same("HERE\n", "");
    same("[hub]\nHERE\n", "/properties/hub");
    same("[hub.tls]\nHERE\n", "/properties/hub/properties/tls");
    same("[hub.auth]\nHERE\n", "/properties/hub/properties/auth");
    same("[hub.read_api]\nHERE\n", "/properties/hub/properties/read_api");
    same("[hub.authorization]\nHERE\n", "/properties/hub/properties/authorization");
    for table in ["kubernetes", "token_review"] {
        let text = format!("[hub.authorization.{table}]\nHERE\n");
        same(&text, &format!("/properties/hub/properties/authorization/properties/{table}"));
    }
    same("[oidc]\nHERE\n", "/properties/oidc");
    same("[fleet]\nHERE\n", "/properties/fleet");
    same("[fleet.window]\nHERE\n", "/properties/fleet/properties/window");
    same("[ha]\nHERE\n", "/properties/ha");
    same("[ha.lease]\nHERE\n", "/properties/ha/properties/lease");
    same("[readers.a]\ntoken = { env = \"T\" }\nHERE\n", READER);
    same("[readers.a]\nallow = [{ HERE }]\n", &format!("{READER}/properties/allow/items"));
    for table in ["certificate", "service_account", "limits"] {
        same(&format!("[readers.a]\n{table} = {{ HERE }}\n"), &format!("{READER}/properties/{table}"));
    }
    same("[clusters.a]\nserver = \"https://a\"\nHERE\n", "/properties/clusters/additionalProperties");
    same("[resources.pods]\nHERE\n", "/properties/resources/additionalProperties");
    let sources = ["type = \"folder\"\npath = \"x\"\n", "type = \"secrets\"\n", "type = \"cluster-profiles\"\n"];
    for (number, lines) in sources.into_iter().enumerate() {
        same(&format!("[cluster_sources.a]\n{lines}HERE\n"), &format!("{SOURCE}/{number}"));
    }
    let provider = "[cluster_sources.a]\ntype = \"cluster-profiles\"\n[cluster_sources.a.providers.b]\nHERE\n";
    same(provider, &format!("{SOURCE}/2/properties/providers/additionalProperties"));
    for (number, kind) in ["webhook", "nats", "file", "stdout"].into_iter().enumerate() {
        let sink = format!("[sinks.a]\ntype = \"{kind}\"\n");
        same(&format!("{sink}HERE\n"), &format!("{SINK}/{number}"));
        for table in ["match", "batch", "retry", "rate_limit"] {
            let text = format!("{sink}{table} = {{ HERE }}\n");
            same(&text, &format!("{SINK}/{number}/properties/{table}"));
        }
    }
}
