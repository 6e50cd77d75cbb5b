//! The part of the schema that is about sources of clusters.

use serde_json::{Value, json};

use super::node::{choice, default, labels, list, named, node, pattern, table, text, truth, whole};
use super::{access, namespaces, ways};
use crate::NamePattern;
use crate::sources::{CLUSTERS, DEFAULT_CLUSTERS, EXEC_VERSIONS, TYPES};

/// A source, of one of three types.
pub(super) fn source() -> Value {
    let [folder, secrets, profiles] = TYPES;
    let contexts = choice("Whether a file is a cluster, or each of its contexts.", &["current", "all"]);
    let folder = of(
        folder,
        "Kubeconfigs in a folder.",
        vec![
            ("path", text("The folder; hidden files and folders in it do not count.")),
            ("contexts", default(contexts, "current")),
            (
                "names",
                default(
                    pattern("What its clusters are called: {name} is the file's or the context's.", FILE_NAMES),
                    all(),
                ),
            ),
        ],
        &["path"],
    );
    let format = choice("What the Secrets hold.", &["argocd", "cluster-api"]);
    let secrets = managed(secrets, "Secrets in a management cluster.", vec![("format", format)], &["format"]);
    let provider = provider();
    let providers = named("Commands that give credentials, by the names of access providers.", "\\S", &provider);
    let mut profiles = managed(
        profiles,
        "ClusterProfiles in a management cluster.",
        vec![
            ("providers", providers),
            ("secrets", default(truth("Whether Secrets with the label x-k8s.io/cluster-profile count."), false)),
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
    node("Where clusters come from that no table names.", json!({ "oneOf": [folder, secrets, profiles] }))
}

const FILE_NAMES: &str = "^[A-Za-z0-9._-]*\\{name\\}([A-Za-z0-9._-]|\\{name\\})*$";
const NAMES: &str = "^([A-Za-z0-9._-]|\\{namespace\\})*\\{name\\}([A-Za-z0-9._-]|\\{name\\}|\\{namespace\\})*$";

fn all() -> String {
    NamePattern::default().as_str().to_owned()
}

fn of(kind: &str, description: &str, own: Vec<(&str, Value)>, required: &[&str]) -> Value {
    let key = json!({ "type": "string", "pattern": "^([A-Za-z0-9._/-]+\\*?|\\*)$" });
    let mut properties = vec![
        ("type", node("What is looked at.", json!({ "const": kind }))),
        ("labels", labels("Labels that each of its clusters gets.")),
        (
            "take_labels",
            default(list("Labels that a cluster keeps: keys, or their beginnings and *.", 0, &key), json!(["*"])),
        ),
        ("label_prefix", pattern("What is put before the keys of these.", "^[A-Za-z0-9._/-]+$")),
        ("max_clusters", default(whole("Clusters that it may bring.", &CLUSTERS), DEFAULT_CLUSTERS)),
        ("compression", default(truth("Whether lists of its clusters are asked for gzipped."), true)),
    ];
    properties.extend(own);
    let mut source = table(description, properties);
    source["required"] = json!([&["type"], required].concat());
    source
}

fn managed(kind: &str, description: &str, own: Vec<(&str, Value)>, required: &[&str]) -> Value {
    let mut properties = access();
    properties.extend([
        ("namespaces", namespaces("Where it looks. Unset: in all.")),
        ("label_selector", text("As kubectl takes it; besides what the type asks for itself.")),
        ("names", default(pattern("What its clusters are called, of {name} and {namespace}.", NAMES), all())),
    ]);
    properties.extend(own);
    let mut source = of(kind, description, properties, required);
    ways(&mut source);
    source
}

fn provider() -> Value {
    let versions = choice("The version of ExecCredential.", &EXEC_VERSIONS);
    let mut provider = table(
        "A command that gives credentials.",
        vec![
            ("command", text("The command; looked for on the PATH if it has no slash.")),
            ("args", list("Its arguments.", 0, &json!({ "type": "string", "pattern": "\\S" }))),
            ("env", labels("Variables that it is given.")),
            ("api_version", default(versions, EXEC_VERSIONS[0])),
            ("take_args", default(truth("Whether arguments that a ClusterProfile gives are appended."), false)),
            ("take_env", default(truth("Whether variables that a ClusterProfile gives are added."), false)),
        ],
    );
    provider["required"] = json!(["command"]);
    provider
}
