//! Parser of `[clusters.<name>]`, and of the key `clusters` with which resources and sinks select clusters.

use std::path::PathBuf;

use figment::value::Value;

use super::error::suggestion;
use super::files::labels;
use super::rules::{is_loopback, url};
use super::spans::KeyPath;
use super::table::{Checker, Table, texts};
use super::{ClusterAccess, ClusterConfig, Secret};
use informer_hub_types::{ClusterLabels, ClusterName, ClusterSelector, Encodings, HttpVersions};

impl ClusterConfig {
    /// Creates a cluster without labels, with gzipped lists and the default HTTP versions and encodings.
    #[must_use]
    pub fn new(name: ClusterName, access: ClusterAccess) -> Self {
        let (http, encoding) = (HttpVersions::default(), Encodings::default());
        Self { name, labels: ClusterLabels::new(), access, compression: true, http, encoding }
    }
}

impl ClusterAccess {
    /// Returns a connection by a kubeconfig file and one of its contexts; `None` selects the current context.
    #[must_use]
    pub fn kubeconfig(path: impl Into<PathBuf>, context: Option<String>) -> Self {
        Self::Kubeconfig { path: path.into(), context }
    }

    /// Returns a connection to an `http` or `https` address, with a PEM file of the CA and a bearer token. Without a
    /// CA, the system's roots are trusted.
    #[must_use]
    pub fn server(server: impl Into<String>, ca_file: Option<PathBuf>, token: Option<Secret>) -> Self {
        Self::Server { server: server.into(), ca_file, token }
    }

    /// Returns a placeholder connection: the cluster is known from before a restart, and the cluster source `source`
    /// has not reported its connection again yet.
    #[must_use]
    pub fn awaited(source: impl Into<String>) -> Self {
        Self::Awaited { source: source.into() }
    }
}

/// Accepted values of the key `http`.
pub(super) const HTTP_VERSIONS: &[(&str, HttpVersions)] =
    &[("auto", HttpVersions::Auto), ("1.1", HttpVersions::Http1), ("2", HttpVersions::Http2)];

/// Accepted values of the key `encoding`.
pub(super) const ENCODINGS: &[(&str, Encodings)] = &[("auto", Encodings::Auto), ("json", Encodings::Json)];

/// Clusters against which selectors are checked.
#[derive(Clone, Copy)]
pub(super) struct KnownClusters<'c> {
    /// Clusters of `[clusters]`.
    pub(super) tables: &'c [ClusterConfig],
    /// Whether cluster sources may add clusters, so that an unknown name or label is not a mistake.
    pub(super) is_open: bool,
}

/// Reads all clusters, sorted by name.
pub(super) fn clusters(table: Table<'_>) -> Vec<ClusterConfig> {
    let checker = table.checker;
    let mut found = Vec::new();
    for (key, path, value) in table.entries() {
        let name = ClusterName::new(&key).map_err(|e| checker.mistake(&path, e));
        let mut table = Table::new(checker, path.clone(), value);
        let access = access_or_agent(&mut table);
        let labels = table.take("labels").map(|value| labels(checker, &path.key("labels"), value)).unwrap_or_default();
        let compression = table.boolean("compression").unwrap_or(true);
        let (http, encoding) = (http(&mut table), encoding(&mut table));
        table.finish();
        found.extend(name.ok().map(|name| ClusterConfig { name, labels, access, compression, http, encoding }));
    }
    found
}

/// Reports clusters with `agent = true` as mistakes, in a configuration without `[fleet]`: an agent writes to the log
/// of a fleet.
pub(super) fn refuse_agents(checker: &Checker<'_>, clusters: &[ClusterConfig]) {
    for cluster in clusters.iter().filter(|cluster| cluster.access == ClusterAccess::Agent) {
        let path = KeyPath::default().key("clusters").key(cluster.name.as_str()).key("agent");
        checker.mistake(&path, "an agent needs a fleet; add [fleet], or connect with kubeconfig, in_cluster or server");
    }
}

pub(super) fn http(table: &mut Table<'_>) -> HttpVersions {
    table.choice("http", "HTTP version", HTTP_VERSIONS).unwrap_or_default()
}

pub(super) fn encoding(table: &mut Table<'_>) -> Encodings {
    table.choice("encoding", "encoding", ENCODINGS).unwrap_or_default()
}

/// Reads the connection of a cluster in `[clusters]`. With `agent = true`, returns
/// [`ClusterAccess::Agent`]: the hub does not connect to the cluster, because an agent watches it.
fn access_or_agent(table: &mut Table<'_>) -> ClusterAccess {
    let is_given = table.has("agent");
    let is_agent = table.boolean("agent").unwrap_or(is_given);
    if !is_agent {
        return access(table);
    }
    for key in ["kubeconfig", "context", "in_cluster", "server", "ca_file", "token"] {
        if table.take(key).is_some() {
            table.mistake(key, "has no effect with agent = true; remove one of them");
        }
    }
    ClusterAccess::Agent
}

/// Reads how the hub connects to a cluster: by `kubeconfig`, `server` or `in_cluster`.
pub(super) fn access(table: &mut Table<'_>) -> ClusterAccess {
    check_connection(table);
    let kubeconfig = table.file("kubeconfig");
    let context = table.text("context");
    let server = table.text("server");
    let ca_file = table.file("ca_file");
    let has_token = table.has("token");
    let token = table.secret("token");
    table.probe_ca_file(ca_file.as_deref());
    table.probe_kubeconfig(kubeconfig.as_deref(), context.as_deref());
    if let Some(server) = &server {
        check_server(table, server, has_token);
    }
    match (kubeconfig, server) {
        (Some(path), _) => ClusterAccess::Kubeconfig { path, context },
        (None, Some(server)) => ClusterAccess::Server { server, ca_file, token },
        (None, None) => ClusterAccess::InCluster,
    }
}

/// Checks that exactly one of `kubeconfig`, `in_cluster` and `server` is given, and no key that belongs to the other
/// two.
fn check_connection(table: &mut Table<'_>) {
    let checker = table.checker;
    let (kubeconfig, server) = (table.has("kubeconfig"), table.has("server"));
    let missing = table.lacks(&["kubeconfig", "in_cluster", "server"]);
    let has_in_cluster = table.has("in_cluster");
    let inside = table.boolean("in_cluster") != Some(false) && has_in_cluster;
    let connections = [(kubeconfig, "kubeconfig"), (inside, "in_cluster"), (server, "server")];
    let given: Vec<_> = connections.into_iter().filter_map(|(given, key)| given.then_some(key)).collect();
    match given[..] {
        // A misspelt key is reported as unknown instead. `in_cluster = false` alone is not a connection.
        [] if !missing && !has_in_cluster => {}
        [] => checker.mistake(
            &table.path,
            "has no connection to the cluster; write kubeconfig = \"~/.kube/config\", in_cluster = true, \
             or server = \"https://…\"",
        ),
        [_] => {}
        _ => checker.mistake(&table.path, format!("has {}; keep one of them", given.join(" and "))),
    }
    for (key, needs, met) in
        [("context", "kubeconfig", kubeconfig), ("ca_file", "server", server), ("token", "server", server)]
    {
        if table.has(key) && !met {
            table.mistake(key, format!("requires {needs}, which is missing"));
        }
    }
}

fn check_server(table: &Table<'_>, server: &str, has_token: bool) {
    match url(server) {
        Err(problem) => table.mistake("server", problem),
        Ok(uri) if has_token && uri.scheme_str() == Some("http") && !is_loopback(uri.host().unwrap_or_default()) => {
            table.mistake("server", "would send the token unencrypted; write https://");
        }
        Ok(_) => {}
    }
}

/// Reads `clusters = { label = "value" }` or `clusters = ["name"]`, and checks that it selects a cluster. The check is
/// skipped if cluster sources may add clusters.
pub(super) fn selector(table: &mut Table<'_>, known: KnownClusters<'_>) -> ClusterSelector {
    let checker = table.checker;
    let path = table.path.key("clusters");
    let selector = match table.take("clusters") {
        None => return ClusterSelector::All,
        Some(Value::Array(_, names)) if names.is_empty() => {
            checker.mistake(&path, "selects no cluster; remove the key to select all clusters");
            return ClusterSelector::All;
        }
        Some(Value::Dict(_, labels)) if labels.is_empty() => {
            checker.mistake(&path, "has no labels; remove the key to select all clusters");
            return ClusterSelector::All;
        }
        Some(value @ Value::Array(..)) => return by_name(checker, &path, &value, known),
        Some(value @ Value::Dict(..)) => ClusterSelector::Labels(labels(checker, &path, value)),
        Some(_) => {
            checker.mistake(&path, "expected labels such as { tier = \"prod\" } or names such as [\"prod-eu\"]");
            return ClusterSelector::All;
        }
    };
    let clusters = known.tables;
    let any = clusters.iter().any(|cluster| selector.matches(&cluster.name, &cluster.labels));
    if !any && !known.is_open && !clusters.is_empty() && checker.is_clean(&path) {
        checker.mistake(&path, format!("matches no cluster; {}", label_hint(&selector, clusters)));
    }
    selector
}

fn by_name(checker: &Checker<'_>, path: &KeyPath, value: &Value, known: KnownClusters<'_>) -> ClusterSelector {
    let all = || known.tables.iter().map(|cluster| cluster.name.as_str());
    let mut names = Vec::new();
    for (path, name) in texts(checker, path, value).unwrap_or_default() {
        match ClusterName::new(&name) {
            Ok(valid) if known.is_open || known.tables.iter().any(|cluster| cluster.name == valid) => names.push(valid),
            Err(wrong) if known.is_open => checker.mistake(&path, wrong),
            _ => checker.mistake(&path, format!("there is no cluster {name:?}{}", suggestion(&name, all()))),
        }
    }
    ClusterSelector::Names(names)
}

/// Explains why no cluster has the requested labels, with the known keys or values as suggestions. Empty for a selector by
/// names.
fn label_hint(selector: &ClusterSelector, clusters: &[ClusterConfig]) -> String {
    let ClusterSelector::Labels(requested) = selector else { return String::new() };
    let all = || clusters.iter().flat_map(|cluster| &cluster.labels);
    for (key, value) in requested {
        let mut values: Vec<_> = all().filter(|(k, _)| *k == key).map(|(_, v)| v.as_str()).collect();
        values.sort_unstable();
        values.dedup();
        if values.is_empty() {
            let mut keys: Vec<_> = all().map(|(k, _)| k.as_str()).collect();
            keys.sort_unstable();
            keys.dedup();
            return format!("no cluster has a label {key:?}{}", suggestion(key, keys));
        }
        if !values.contains(&value.as_str()) {
            return format!("the label {key:?} is {} on the clusters that have it", values.join(" or "));
        }
    }
    "no cluster has all of these labels".to_owned()
}

/// Returns a cluster that both selectors select; `None` if there is none.
pub(super) fn meet(one: &ClusterSelector, other: &ClusterSelector, clusters: &[ClusterConfig]) -> Option<ClusterName> {
    let in_both = |name: &ClusterName, labels: &ClusterLabels| one.matches(name, labels) && other.matches(name, labels);
    clusters.iter().find(|cluster| in_both(&cluster.name, &cluster.labels)).map(|cluster| cluster.name.clone())
}
