//! Schema of cluster sources.

use serde_json::{Value, json};

use super::node::{boolean, choice, default, labels, list, named, node, pattern, table, text, whole};
use super::{access, encoding, http, namespaces, require_one_connection};
use crate::NamePattern;
use crate::sources::{CLUSTERS, DEFAULT_CLUSTERS, EXEC_VERSIONS, TYPES};

/// Returns the schema of a cluster source, with one form for each of its three types.
pub(super) fn source() -> Value {
    let [folder, secrets, profiles] = TYPES;
    let contexts =
        choice("Whether each file is a cluster (its current context), or each of its contexts.", &["current", "all"]);
    let folder = typed_source(
        folder,
        "Kubeconfigs in a directory.",
        vec![
            ("path", text("The directory; hidden files and subdirectories are ignored.")),
            ("contexts", default(contexts, "current")),
            (
                "names",
                default(
                    pattern("Pattern of the clusters' names: {name} is the name of the file or context.", FILE_NAMES),
                    all(),
                ),
            ),
        ],
        &["path"],
    );
    let format = choice("Format of the Secrets.", &["argocd", "cluster-api"]);
    let secrets = managed(secrets, "Secrets in a management cluster.", vec![("format", format)], &["format"]);
    let provider = provider();
    let providers = named("Credential commands, by the names of access providers.", "\\S", &provider);
    let mut profiles = managed(
        profiles,
        "ClusterProfiles in a management cluster.",
        vec![
            ("providers", providers),
            (
                "secrets",
                default(boolean("Whether Secrets with the label x-k8s.io/cluster-profile are read too."), false),
            ),
            (
                "take_properties",
                list("Properties that become labels.", 0, &json!({ "type": "string", "pattern": "\\S" })),
            ),
        ],
        &[],
    );
    profiles["anyOf"] = json!([
        { "required": ["providers"], "properties": { "providers": { "minProperties": 1 } } },
        { "required": ["secrets"], "properties": { "secrets": { "const": true } } },
    ]);
    node("Source of clusters without a table of their own.", json!({ "oneOf": [folder, secrets, profiles] }))
}

const FILE_NAMES: &str = "^[A-Za-z0-9._-]*\\{name\\}([A-Za-z0-9._-]|\\{name\\})*$";
const NAMES: &str = "^([A-Za-z0-9._-]|\\{namespace\\})*\\{name\\}([A-Za-z0-9._-]|\\{name\\}|\\{namespace\\})*$";

fn all() -> String {
    NamePattern::default().as_str().to_owned()
}

fn typed_source(kind: &str, description: &str, own: Vec<(&str, Value)>, required: &[&str]) -> Value {
    let key = json!({ "type": "string", "pattern": "^([A-Za-z0-9._/-]+\\*?|\\*)$" });
    let mut properties = vec![
        ("type", node("Type of the source.", json!({ "const": kind }))),
        ("labels", labels("Labels of each of its clusters.")),
        (
            "take_labels",
            default(
                list("Labels from the source that a cluster keeps: keys, or prefixes and *.", 0, &key),
                json!(["*"]),
            ),
        ),
        ("label_prefix", pattern("Prefix of the keys of labels from the source.", "^[A-Za-z0-9._/-]+$")),
        ("max_clusters", default(whole("Maximum number of clusters.", &CLUSTERS), DEFAULT_CLUSTERS)),
        ("compression", default(boolean("Whether lists of its clusters are requested gzipped."), true)),
        ("http", http()),
        ("encoding", encoding()),
    ];
    properties.extend(own);
    let mut source = table(description, properties);
    source["required"] = json!([&["type"], required].concat());
    source
}

fn managed(kind: &str, description: &str, own: Vec<(&str, Value)>, required: &[&str]) -> Value {
    let mut properties = access();
    properties.extend([
        ("namespaces", namespaces("Selected namespaces. Unset: all.")),
        ("label_selector", text("Label selector in kubectl's notation, in addition to the selector of the type.")),
        ("names", default(pattern("Pattern of the clusters' names, with {name} and {namespace}.", NAMES), all())),
    ]);
    properties.extend(own);
    let mut source = typed_source(kind, description, properties, required);
    require_one_connection(&mut source);
    source
}

fn provider() -> Value {
    let versions = choice("Version of ExecCredential.", &EXEC_VERSIONS);
    let mut provider = table(
        "Credential command.",
        vec![
            ("command", text("Command, searched on the PATH if it has no slash.")),
            ("args", list("Arguments.", 0, &json!({ "type": "string", "pattern": "\\S" }))),
            ("env", labels("Environment variables.")),
            ("api_version", default(versions, EXEC_VERSIONS[0])),
            ("take_args", default(boolean("Whether arguments of a ClusterProfile are appended."), false)),
            ("take_env", default(boolean("Whether variables of a ClusterProfile are added."), false)),
        ],
    );
    provider["required"] = json!(["command"]);
    provider
}
