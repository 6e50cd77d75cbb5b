//! JSON Schema of the configuration file, for editors and generators.
//!
//! Bounds and defaults are shared with the parser. Tests verify that schema and parser have the same keys, and that the
//! schema rejects every mistake of the parser's tests. Excluded are mistakes that no schema can detect: those that
//! depend on other keys, on files, or on which of two durations is longer.

mod audit;
mod examples;
mod fleet;
mod ha;
mod node;
mod readers;
pub mod reference;
#[cfg(any(test, feature = "testing"))]
pub mod samples;
mod sinks;
mod sources;

#[cfg(test)]
pub(super) mod tests;

use serde_json::{Value, json};

use self::node::{
    boolean, bytes, choice, default, duration, human, labels, list, named, node, pattern, secret, size, table, text,
    whole,
};
pub use self::reference::reference;
use super::clusters::{ENCODINGS, HTTP_VERSIONS};
use super::listen::{CONNECTIONS, REQUESTS, WATCHES, WINDOW_AGE, WINDOW_BYTES};
use super::resolve::{CHECKPOINT, LONGEST_FSYNC, MEMORY, SHUTDOWN};
use super::resources::{LIMIT, LONGEST_RESYNC, SHORTEST_RESYNC};
use super::{AuthConfig, HubConfig, HumanDuration, Projection, ReadApiConfig, ServiceConfig};
use informer_hub_types::{Fsync, HttpVersions, ResourcePattern};

/// Regular expression of the name of a cluster or a sink.
const NAME: &str = "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$";
/// Regular expression of a resource in kubectl's notation (`deployments.apps`), or of a wildcard such as `*.apps`.
const RESOURCE: &str = "^(\\*|(\\*(\\.\\*)?\\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)$";
const NAMESPACE: &str = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$";
/// Regular expression of an http or https address without a user.
const URL: &str = "^https?://[^/?#@\\s]+([/?#]\\S*)?$";
/// Regular expression of an address to which a token may be sent: https, or http on loopback.
const URL_FOR_TOKENS: &str = "^(https://|http://(localhost|127\\.[0-9.]+|\\[::1\\])([:/?#]|$))";
/// Paths that identify an object. `drop` must not contain them.
const IDENTITY: [&str; 7] = [
    "apiVersion",
    "kind",
    "metadata",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "metadata.resourceVersion",
];

/// Returns the JSON Schema (2020-12) of a configuration file.
///
/// It does not consider the environment: a file that is complete only with variables is not valid.
#[must_use]
pub fn schema() -> Value {
    let clusters = named("Clusters, by names of your choice.", NAME, &cluster());
    let mut resources = resources();
    let sinks = named("Receivers of changes, by names of your choice.", NAME, &sinks::sink());
    let mut sources =
        named("Sources of clusters without a table of their own, by names of your choice.", NAME, &sources::source());
    for table in [&mut resources, &mut sources] {
        table["minProperties"] = json!(1);
    }
    let properties = vec![
        ("hub", hub()),
        ("clusters", clusters),
        ("cluster_sources", sources),
        ("resources", resources),
        ("sinks", sinks),
        ("readers", readers::readers()),
        ("oidc", readers::oidc()),
        ("fleet", fleet::fleet()),
        ("ha", ha::ha()),
    ];
    let mut schema = table("Watched clusters and resources, and the receivers of changes.", properties);
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
        "When events accepted by sinks are synced to disk: within this time, up to {longest}; 0s syncs each batch; or never."
    );
    let mut fsync = node(
        &fsync,
        json!({ "anyOf": [{ "const": "never" }, duration("", &(std::time::Duration::ZERO..=LONGEST_FSYNC))] }),
    );
    if let Fsync::Within(within) = is.fsync {
        fsync = default(fsync, human(within));
    }
    let address = "^(\\d{1,3}(\\.\\d{1,3}){3}|\\[[0-9A-Fa-f:.]+\\]):\\d{1,5}$";
    let listen = pattern("IP address and port of the HTTP port for probes, status and readers.", address);
    let host = json!({ "type": "string", "pattern": r"^(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$" });
    let hosts = "Accepted Host names besides localhost and IP addresses, for requests without authentication.";
    let hub = vec![
        ("listen", default(listen, is.listen.to_string())),
        ("allowed_hosts", list(hosts, 1, &host)),
        (
            "shutdown_deadline",
            default(
                duration("How long a shutdown waits for sinks to deliver their pending events.", &SHUTDOWN),
                human(is.shutdown_deadline),
            ),
        ),
        ("memory_limit", size("Limit of the process's resident memory. Unset: no limit.", &MEMORY)),
        ("state_dir", text("Directory for caches and undelivered events over restarts. Unset: in memory only.")),
        ("checkpoint", default(duration("Interval of checkpoints of the caches.", &CHECKPOINT), human(is.checkpoint))),
        ("fsync", fsync),
        (
            "max_connections",
            default(whole("Maximum number of connections.", &CONNECTIONS), ServiceConfig::default().max_connections),
        ),
        ("tls", tls()),
        ("auth", auth()),
        ("read_api", read_api()),
        ("authorization", readers::authorization()),
        ("audit", audit::audit()),
    ];
    default(table("The hub itself.", hub), json!({}))
}

fn tls() -> Value {
    let mut tls = table(
        "The hub's own certificate. Without the table: plain HTTP.",
        vec![
            ("cert_file", text("PEM file with the certificate and the intermediate certificates.")),
            ("key_file", text("PEM file with the private key.")),
            ("client_ca_file", text("PEM file with the CA of client certificates, which give full access.")),
        ],
    );
    tls["required"] = json!(["cert_file", "key_file"]);
    tls
}

fn auth() -> Value {
    let is = AuthConfig::default();
    let open = "Whether other machines have full access without authentication.";
    let auth = vec![
        ("token", secret("Bearer token with full access. If set, only probes need no token.")),
        ("read_token", secret("Bearer token with read access.")),
        (
            "metrics_open",
            default(boolean("Whether /metrics needs no authentication, like the probes."), is.metrics_open),
        ),
        ("allow_unauthenticated", default(boolean(open), is.allow_unauthenticated)),
    ];
    let mut auth = default(table("Authentication of requests.", auth), json!({}));
    let closed = json!({ "properties": { "allow_unauthenticated": { "const": false } } });
    auth["dependentSchemas"] = json!({ "token": closed, "read_token": closed });
    auth
}

fn read_api() -> Value {
    let is = ReadApiConfig::default();
    let secrets = "Whether core/v1 Secrets are served. Readers without rules then read all of them.";
    let read_api = vec![
        ("enabled", default(boolean("Whether the port serves clusters as Kubernetes APIs."), is.enabled)),
        (
            "window_bytes",
            default(
                size("Maximum size of the recent changes per resource, from which watches resume.", &WINDOW_BYTES),
                bytes(is.window_bytes as u64),
            ),
        ),
        ("window_age", default(duration("Maximum age of these changes.", &WINDOW_AGE), human(is.window_age))),
        (
            "max_requests",
            default(whole("Maximum number of requests in progress, without watches.", &REQUESTS), is.max_requests),
        ),
        ("max_watches", default(whole("Maximum number of watches.", &WATCHES), is.max_watches)),
        ("serve_secrets", default(boolean(secrets), is.serve_secrets)),
    ];
    default(table("The Kubernetes API for readers.", read_api), json!({}))
}

fn cluster() -> Value {
    let mut properties = access();
    let agent = "Whether an agent inside the cluster watches it for the fleet, so that the hub needs no access.";
    properties.extend([
        ("agent", boolean(agent)),
        ("labels", labels("Labels of your choice, to select clusters.")),
        ("compression", default(boolean("Whether lists are requested gzipped."), true)),
        ("http", http()),
        ("encoding", encoding()),
    ]);
    let mut cluster =
        table("Connection to a cluster: exactly one of kubeconfig, in_cluster, server, agent.", properties);
    require_one_connection(&mut cluster);
    if let Some(ways) = cluster["oneOf"].as_array_mut() {
        ways.push(json!({ "required": ["agent"], "properties": { "agent": { "const": true } } }));
    }
    cluster
}

/// Returns the schema of the key `http`: versions of HTTP for requests to an apiserver.
fn http() -> Value {
    let known: Vec<_> = HTTP_VERSIONS.iter().map(|(word, _)| *word).collect();
    let usual = HTTP_VERSIONS.iter().find(|(_, versions)| *versions == HttpVersions::default());
    let text =
        "Version of HTTP. \"auto\" is HTTP/2 if the server offers it over TLS, with one connection for many watches.";
    default(choice(text, &known), usual.map_or("auto", |(word, _)| word))
}

/// Returns the schema of the key `encoding`: encodings of objects requested from an apiserver.
fn encoding() -> Value {
    let known: Vec<_> = ENCODINGS.iter().map(|(word, _)| *word).collect();
    let text = "Encoding of lists and watches. \"auto\" is Kubernetes protobuf where it works, which costs servers half the CPU.";
    default(choice(text, &known), "auto")
}

/// Returns the keys that configure the connection to a cluster, with their schemas.
fn access() -> Vec<(&'static str, Value)> {
    vec![
        ("kubeconfig", text("Kubeconfig file.")),
        ("context", text("Context of the kubeconfig. Unset: its current context.")),
        ("in_cluster", boolean("Whether to use the service account of the hub's pod.")),
        ("server", pattern("Address of the apiserver.", URL)),
        ("ca_file", text("PEM file with the CA. Unset: the system's.")),
        ("token", secret("Bearer token.")),
    ]
}

/// Changes the schema `node` of a table so that it requires exactly one way to connect: `kubeconfig`, `server` or
/// `in_cluster`. It accepts `context` only with `kubeconfig`, and `ca_file` and `token` only with `server`.
fn require_one_connection(node: &mut Value) {
    node["oneOf"] = json!([
        { "required": ["kubeconfig"] },
        { "required": ["server"] },
        { "required": ["in_cluster"], "properties": { "in_cluster": { "const": true } } },
    ]);
    node["dependentRequired"] = json!({ "context": ["kubeconfig"], "ca_file": ["server"], "token": ["server"] });
    node["dependentSchemas"] = json!({ "token": { "properties": { "server": { "pattern": URL_FOR_TOKENS } } } });
}

/// Returns the schema of the key `clusters`, with which resources and sinks select clusters.
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
    let index = pattern("Path, in which [*] is each element of a list.", "\\S");
    let mut resource = table(
        "Watched resource. The key is the resource in kubectl's notation, plural[.version].group, a pattern such as \
         *.example.com, or a name of your choice.",
        vec![
            ("resource", pattern("Resource or pattern, if the key is a name of your choice.", RESOURCE)),
            (
                "exclude",
                list(
                    "Resources or patterns that a pattern excludes.",
                    0,
                    &json!({ "type": "string", "pattern": RESOURCE }),
                ),
            ),
            (
                "limit",
                whole(
                    &format!(
                        "Maximum number of resources that a pattern watches per cluster, the first by name; default {}.",
                        ResourcePattern::LIMIT
                    ),
                    &LIMIT,
                ),
            ),
            ("clusters", selector("Selected clusters, by name or by label. Unset: all.")),
            ("namespaces", namespaces("Selected namespaces. Unset: all.")),
            ("label_selector", text("Label selector in kubectl's notation, applied by the apiserver.")),
            ("field_selector", pattern("Field selector in kubectl's notation, applied by the apiserver.", "^[^=]+=")),
            (
                "resync",
                duration(
                    "Period of resyncs: all objects are sent to the sinks again, from memory. Unset: never.",
                    &(SHORTEST_RESYNC..=LONGEST_RESYNC),
                ),
            ),
            ("metadata_only", default(boolean("Whether only metadata is requested."), false)),
            ("drop", default(paths("Paths that are removed from each object.", false), drop)),
            ("keep", paths("Paths that are kept of each object, besides its identity. Excludes drop.", true)),
            ("indexes", named("Index names, and the paths whose values are indexed.", "^[A-Za-z0-9._-]+$", &index)),
        ],
    );
    resource["not"] = json!({ "required": ["drop", "keep"] });
    let inside = json!({ "pattern": "^metadata($|[.\\[])" });
    resource["if"] = json!({ "required": ["metadata_only"], "properties": { "metadata_only": { "const": true } } });
    resource["then"] = json!({ "properties": {
        "keep": { "items": inside }, "indexes": { "additionalProperties": inside },
    } });
    // An entry whose name is not a resource needs the key `resource`.
    let other = json!({ "required": ["resource"] });
    let names = json!({ "patternProperties": { (RESOURCE): true }, "additionalProperties": other });
    node("Watched resources.", json!({ "type": "object", "additionalProperties": resource, "allOf": [names] }))
}
