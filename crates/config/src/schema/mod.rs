//! The JSON Schema of a configuration file: for editors, and for whoever generates such files.
//!
//! Bounds and defaults are those that the reader uses. A test asks the reader for the keys that it knows and holds the
//! schema to them; another has every mistake of the reader's tests refused here too, but for those that no schema can
//! see: what depends on other keys, on files, or on the order of durations.

mod examples;
mod node;
pub mod reference;
#[cfg(any(test, feature = "testing"))]
pub mod samples;
mod sinks;
mod sources;

#[cfg(test)]
pub(super) mod tests;

use serde_json::{Value, json};

use self::node::{
    default, duration, human, labels, list, named, node, pattern, secret, size, table, text, truth, whole,
};
pub use self::reference::reference;
use super::listen::CONNECTIONS;
use super::resolve::{CHECKPOINT, LONGEST_FSYNC, MEMORY, SHUTDOWN};
use super::resources::{LIMIT, LONGEST_RESYNC, SHORTEST_RESYNC};
use super::{AuthConfig, HubConfig, HumanDuration, Projection, ServiceConfig};
use informer_hub_types::{Fsync, ResourcePattern};

/// The name of a cluster or a sink.
const NAME: &str = "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$";
/// A resource as kubectl writes it, or a pattern.
const RESOURCE: &str = "^(\\*|(\\*(\\.\\*)?\\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)$";
const NAMESPACE: &str = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$";
/// An address of http or https, without a user.
const URL: &str = "^https?://[^/?#@\\s]+([/?#]\\S*)?$";
/// One that a token may go to.
const URL_FOR_TOKENS: &str = "^(https://|http://(localhost|127\\.[0-9.]+|\\[::1\\])([:/?#]|$))";
/// Paths that identify an object.
const IDENTITY: [&str; 7] = [
    "apiVersion",
    "kind",
    "metadata",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "metadata.resourceVersion",
];

/// The JSON Schema (2020-12) of a configuration file.
///
/// What comes from the environment it does not see: a file that only the environment makes whole does not pass.
#[must_use]
pub fn schema() -> Value {
    let clusters = named("Clusters, by the names that you give them.", NAME, &cluster());
    let mut resources = resources();
    let sinks = named("Who is told of changes, by the names that you give them.", NAME, &sinks::sink());
    let mut sources =
        named("Where clusters come from that no table names, by names of yours.", NAME, &sources::source());
    for table in [&mut resources, &mut sources] {
        table["minProperties"] = json!(1);
    }
    let properties = vec![
        ("hub", hub()),
        ("clusters", clusters),
        ("cluster_sources", sources),
        ("resources", resources),
        ("sinks", sinks),
    ];
    let mut schema = table("Which clusters are watched, what of them, and who is told.", properties);
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    examples::put_into(&mut schema);
    schema["title"] = json!("Configuration of informer-hub");
    schema["required"] = json!(["resources"]);
    let some = json!({ "required": ["clusters"], "properties": { "clusters": { "minProperties": 1 } } });
    schema["anyOf"] = json!([some, { "required": ["cluster_sources"] }]);
    schema
}

fn hub() -> Value {
    let is = HubConfig::default();
    let longest = HumanDuration(LONGEST_FSYNC);
    let fsync = format!(
        "When what sinks have taken in is made durable: within this, up to {longest}; 0s: each batch by itself; or never."
    );
    let mut fsync = node(
        &fsync,
        json!({ "anyOf": [{ "const": "never" }, duration("", &(std::time::Duration::ZERO..=LONGEST_FSYNC))] }),
    );
    if let Fsync::Within(within) = is.fsync {
        fsync = default(fsync, human(within));
    }
    let address = "^(\\d{1,3}(\\.\\d{1,3}){3}|\\[[0-9A-Fa-f:.]+\\]):\\d{1,5}$";
    let listen = pattern("Where probes and status are served: an IP address and a port.", address);
    let host = json!({ "type": "string", "pattern": r"^(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$" });
    let hosts = "Hosts that requests may name beside localhost and IP addresses, where nobody has to say who they are.";
    let hub = vec![
        ("listen", default(listen, is.listen.to_string())),
        ("allowed_hosts", list(hosts, 1, &host)),
        (
            "shutdown_deadline",
            default(
                duration("How long a shutdown waits for sinks to deliver what they have.", &SHUTDOWN),
                human(is.shutdown_deadline),
            ),
        ),
        ("memory_limit", size("Bytes that the process may have resident. Unset: no limit.", &MEMORY)),
        ("state_dir", text("Where caches and undelivered events are kept over restarts. Unset: in memory only.")),
        ("checkpoint", default(duration("How often caches are put on disk.", &CHECKPOINT), human(is.checkpoint))),
        ("fsync", fsync),
        (
            "max_connections",
            default(whole("Connections at a time.", &CONNECTIONS), ServiceConfig::default().max_connections),
        ),
        ("tls", tls()),
        ("auth", auth()),
    ];
    default(table("The hub itself.", hub), json!({}))
}

fn tls() -> Value {
    let mut tls = table(
        "The hub's own certificate. Without the table: plain HTTP.",
        vec![
            ("cert_file", text("PEM file with the certificate, and those between it and the CA.")),
            ("key_file", text("PEM file with its private key.")),
            ("client_ca_file", text("PEM file with roots: who has a certificate of one of them may do everything.")),
        ],
    );
    tls["required"] = json!(["cert_file", "key_file"]);
    tls
}

fn auth() -> Value {
    let is = AuthConfig::default();
    let open = "Whether everybody may do everything, from other machines too.";
    let auth = vec![
        ("token", secret("What everybody but a probe has to send; who has it may do everything.")),
        ("read_token", secret("Who has it may look, and change nothing.")),
        ("metrics_open", default(truth("Whether /metrics is for everybody, as probes are."), is.metrics_open)),
        ("allow_unauthenticated", default(truth(open), is.allow_unauthenticated)),
    ];
    let mut auth = default(table("Who may ask.", auth), json!({}));
    let closed = json!({ "properties": { "allow_unauthenticated": { "const": false } } });
    auth["dependentSchemas"] = json!({ "token": closed, "read_token": closed });
    auth
}

fn cluster() -> Value {
    let mut properties = access();
    properties.extend([
        ("labels", labels("Yours, to select clusters by.")),
        ("compression", default(truth("Whether lists are asked for gzipped."), true)),
    ]);
    let mut cluster = table("How a cluster is reached: exactly one of kubeconfig, in_cluster, server.", properties);
    ways(&mut cluster);
    cluster
}

/// The keys that say how a cluster is reached.
fn access() -> Vec<(&'static str, Value)> {
    vec![
        ("kubeconfig", text("A kubeconfig file.")),
        ("context", text("Unset: the kubeconfig's current context.")),
        ("in_cluster", truth("The service account of the pod that the hub runs in.")),
        ("server", pattern("The apiserver's address.", URL)),
        ("ca_file", text("PEM file with the CA. Unset: the system's.")),
        ("token", secret("The bearer token.")),
    ]
}

/// Which of these keys go together.
fn ways(node: &mut Value) {
    node["oneOf"] = json!([
        { "required": ["kubeconfig"] },
        { "required": ["server"] },
        { "required": ["in_cluster"], "properties": { "in_cluster": { "const": true } } },
    ]);
    node["dependentRequired"] = json!({ "context": ["kubeconfig"], "ca_file": ["server"], "token": ["server"] });
    node["dependentSchemas"] = json!({ "token": { "properties": { "server": { "pattern": URL_FOR_TOKENS } } } });
}

/// `clusters` of resources and sinks.
fn selector(description: &str) -> Value {
    let names = json!({ "type": "array", "minItems": 1, "items": { "type": "string", "pattern": NAME } });
    let labels = json!({ "type": "object", "minProperties": 1, "additionalProperties": { "type": "string" } });
    node(description, json!({ "oneOf": [names, labels] }))
}

fn namespaces(description: &str) -> Value {
    let mut list = list(description, 1, &json!({ "type": "string", "pattern": NAMESPACE }));
    list["uniqueItems"] = json!(true);
    list
}

fn paths(description: &str, identity: bool) -> Value {
    let mut path = json!({ "type": "string", "pattern": "^\\S+$" });
    if !identity {
        path["not"] = json!({ "enum": IDENTITY });
    }
    list(description, 0, &path)
}

fn resources() -> Value {
    let drop = match Projection::default() {
        Projection::Drop(paths) => paths.iter().map(ToString::to_string).collect(),
        Projection::Keep(_) => Vec::new(),
    };
    let index = pattern("A path, where [*] is each element of a list.", "\\S");
    let mut resource = table(
        "What is watched. The key is the resource as kubectl writes it, plural[.version].group, a pattern such as \
         *.example.com, or a name of yours.",
        vec![
            ("resource", pattern("The resource, or the pattern, where the key is a name of yours.", RESOURCE)),
            (
                "exclude",
                list(
                    "Of a pattern: what it leaves out, by name or by pattern.",
                    0,
                    &json!({ "type": "string", "pattern": RESOURCE }),
                ),
            ),
            (
                "limit",
                whole(
                    &format!(
                        "Of a pattern: resources watched in a cluster, the first by name; {}.",
                        ResourcePattern::LIMIT
                    ),
                    &LIMIT,
                ),
            ),
            ("clusters", selector("In which clusters: names, or labels that they have. Unset: all.")),
            ("namespaces", namespaces("Unset: all.")),
            ("label_selector", text("As kubectl takes it; the apiserver sends only what matches.")),
            ("field_selector", pattern("As kubectl takes it; the apiserver sends only what matches.", "^[^=]+=")),
            (
                "resync",
                duration(
                    "Every object again for the sinks, from memory. Unset: never.",
                    &(SHORTEST_RESYNC..=LONGEST_RESYNC),
                ),
            ),
            ("metadata_only", default(truth("Ask for metadata only."), false)),
            ("drop", default(paths("What is not kept of each object.", false), drop)),
            ("keep", paths("Only these paths, and what identifies the object. The opposite of drop.", true)),
            ("indexes", named("Paths to look objects up by, by name.", "^[A-Za-z0-9._-]+$", &index)),
        ],
    );
    resource["not"] = json!({ "required": ["drop", "keep"] });
    let inside = json!({ "pattern": "^metadata($|[.\\[])" });
    resource["if"] = json!({ "required": ["metadata_only"], "properties": { "metadata_only": { "const": true } } });
    resource["then"] = json!({ "properties": {
        "keep": { "items": inside }, "indexes": { "additionalProperties": inside },
    } });
    // A key that is no resource is a name, and the resource stands beside it.
    let other = json!({ "required": ["resource"] });
    let names = json!({ "patternProperties": { (RESOURCE): true }, "additionalProperties": other });
    node("What is watched.", json!({ "type": "object", "additionalProperties": resource, "allOf": [names] }))
}
