//! Cluster sources, `[cluster_sources.<name>]`: types and parser.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use super::ClusterAccess;
use super::clusters::{access, encoding, http};
use super::error::suggestion;
use super::files::labels;
use super::resources::namespaces;
use super::table::Table;
use informer_hub_types::{ClusterLabels, Encodings, HttpVersions, LabelSelector, check_name};

pub(super) const CLUSTERS: RangeInclusive<usize> = 1..=10_000;
/// Default limit of clusters per source: enough for a large fleet, and a bound for a faulty source.
pub(super) const DEFAULT_CLUSTERS: usize = 1_000;
pub(super) const TYPES: [&str; 3] = ["folder", "secrets", "cluster-profiles"];
pub(super) const EXEC_VERSIONS: [&str; 2] = ["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"];

/// A source of clusters: the table `[cluster_sources.<name>]`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClusterSourceConfig {
    /// Name: the key of the table `[cluster_sources.<name>]`.
    pub name: String,
    /// Kind of the source.
    pub kind: ClusterSourceKind,
    /// Pattern of the clusters' names.
    pub names: NamePattern,
    /// Configured labels for all clusters of the source. They override labels that the source provides.
    pub labels: ClusterLabels,
    /// Patterns of the labels that a cluster takes from its object in the source. Default all, except those that the
    /// source's tool, such as Argo CD, sets for its own use.
    pub take_labels: Vec<LabelPattern>,
    /// Prefix that is added to the keys of labels from the source. Default none.
    pub label_prefix: String,
    /// Maximum number of clusters. Default 1,000.
    pub max_clusters: usize,
    /// Whether lists of the source's clusters are requested gzipped. Default true.
    pub compression: bool,
    /// Versions of HTTP for the source's clusters, and for the management cluster.
    pub http: HttpVersions,
    /// Encodings of objects to request from the source's clusters.
    pub encoding: Encodings,
}

impl ClusterSourceConfig {
    /// Creates a source whose clusters have the names and labels of their objects.
    #[must_use]
    pub fn new(name: impl Into<String>, kind: ClusterSourceKind) -> Self {
        Self {
            name: name.into(),
            kind,
            names: NamePattern::default(),
            labels: ClusterLabels::new(),
            take_labels: vec![LabelPattern::any()],
            label_prefix: String::new(),
            max_clusters: DEFAULT_CLUSTERS,
            compression: true,
            http: HttpVersions::default(),
            encoding: Encodings::default(),
        }
    }
}

/// Kind of a cluster source.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClusterSourceKind {
    /// Kubeconfigs in a directory.
    Folder {
        /// Directory of the kubeconfigs.
        path: PathBuf,
        /// Contexts of a kubeconfig that become clusters.
        contexts: Contexts,
    },
    /// Secrets in a management cluster.
    Secrets {
        /// Management cluster that has the Secrets.
        management: Management,
        /// Format of the Secrets.
        format: SecretFormat,
    },
    /// ClusterProfiles in a management cluster.
    ClusterProfiles {
        /// Management cluster that has the ClusterProfiles.
        management: Management,
        /// Credential commands, by the names in `status.accessProviders`.
        providers: BTreeMap<String, ProviderConfig>,
        /// Whether Secrets with the label `x-k8s.io/cluster-profile` are read too.
        secrets: bool,
        /// Properties of a ClusterProfile that become labels of the cluster.
        take_properties: Vec<String>,
    },
}

impl ClusterSourceKind {
    /// Returns the configuration's word for this kind, such as `folder`.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Folder { .. } => "folder",
            Self::Secrets { .. } => "secrets",
            Self::ClusterProfiles { .. } => "cluster-profiles",
        }
    }

    /// Returns the management cluster, if the kind has one.
    #[must_use]
    pub fn management(&self) -> Option<&Management> {
        match self {
            Self::Folder { .. } => None,
            Self::Secrets { management, .. } | Self::ClusterProfiles { management, .. } => Some(management),
        }
    }
}

/// Contexts of a kubeconfig that become clusters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Contexts {
    /// The current context: each file is one cluster, named after the file.
    #[default]
    Current,
    /// All contexts: each is a cluster, named after the context.
    All,
}

/// Management cluster of a source, and the selected objects.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Management {
    /// Connection to the management cluster.
    pub access: ClusterAccess,
    /// Selected namespaces; empty is all.
    pub namespaces: Vec<String>,
    /// Label selector of the objects. It applies in addition to the label selector that their format requires.
    pub label_selector: Option<LabelSelector>,
}

impl Management {
    /// Creates a management cluster with all namespaces and objects.
    #[must_use]
    pub fn new(access: ClusterAccess) -> Self {
        Self { access, namespaces: Vec::new(), label_selector: None }
    }
}

/// Format of cluster Secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SecretFormat {
    /// Argo CD: `name`, `server` and `config`.
    ArgoCd,
    /// Cluster API: a kubeconfig in `value`.
    ClusterApi,
}

/// Credential command for the clusters of a ClusterProfile's access provider (KEP-5339).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProviderConfig {
    /// Command, searched on the PATH if it has no slash.
    pub command: String,
    /// Arguments of the command.
    pub args: Vec<String>,
    /// Environment variables of the command, in addition to the hub's own.
    pub env: BTreeMap<String, String>,
    /// Version of ExecCredential. Default `client.authentication.k8s.io/v1`.
    pub api_version: String,
    /// Whether arguments of a ClusterProfile are appended. Default false.
    pub take_args: bool,
    /// Whether variables of a ClusterProfile are added, if `env` does not have them. Default false.
    pub take_env: bool,
}

impl ProviderConfig {
    /// Creates a command without arguments, for `client.authentication.k8s.io/v1`.
    #[must_use]
    pub fn new(command: impl Into<String>) -> Self {
        Self {
            command: command.into(),
            args: Vec::new(),
            env: BTreeMap::new(),
            api_version: EXEC_VERSIONS[0].to_owned(),
            take_args: false,
            take_env: false,
        }
    }
}

/// Name pattern of a source's clusters: a text with `{name}`, and `{namespace}` for namespaced objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePattern(String);

impl NamePattern {
    /// Replaces `{name}` and `{namespace}` in the pattern. The result need not be a valid cluster name.
    #[must_use]
    pub fn fill(&self, name: &str, namespace: &str) -> String {
        let mut text = String::new();
        let mut rest = self.0.as_str();
        while let Some(start) = rest.find('{') {
            text.push_str(&rest[..start]);
            let end = rest[start..].find('}').map_or(rest.len(), |end| start + end + 1);
            text.push_str(if &rest[start..end] == "{name}" { name } else { namespace });
            rest = &rest[end..];
        }
        text + rest
    }

    /// Returns the pattern as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn has_namespace(&self) -> bool {
        self.0.contains("{namespace}")
    }
}

impl Default for NamePattern {
    fn default() -> Self {
        Self("{name}".to_owned())
    }
}

impl FromStr for NamePattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bare = text.replace("{name}", "").replace("{namespace}", "");
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if !text.contains("{name}") {
            return Err(format!("{text:?} has no {{name}}, so all clusters would have the same name"));
        }
        if !bare.chars().all(legal) {
            return Err(format!(
                "{text:?} is not a name pattern; use {{name}}, {{namespace}}, A-Z, a-z, 0-9, '.', '_' and '-'"
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

/// Pattern of label keys: a key, or a prefix and `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelPattern(String);

impl LabelPattern {
    /// Returns the pattern that matches every key, except those that the source's tool, such as Argo CD, sets for its
    /// own use.
    #[must_use]
    pub fn any() -> Self {
        Self("*".to_owned())
    }

    /// Returns whether a key matches. A key that the source's tool sets for its own use (`is_own`) matches only by its
    /// full name.
    #[must_use]
    pub fn matches(&self, key: &str, is_own: bool) -> bool {
        match self.0.strip_suffix('*') {
            Some(start) => !is_own && key.starts_with(start),
            None => self.0 == key,
        }
    }
}

impl FromStr for LabelPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let key = text.strip_suffix('*').unwrap_or(text);
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
        if text.is_empty() || !key.chars().all(legal) {
            return Err(format!(
                "{text:?} is not a label key; write one such as \"team\", a prefix such as \"example.com/*\", or \"*\""
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

/// Kubeconfig that a cluster source found. It is kept in memory only, and `Debug` shows none of its content.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct InlineKubeconfig {
    text: Arc<str>,
    origin: Arc<str>,
}

impl InlineKubeconfig {
    /// Wraps a kubeconfig (YAML or JSON) and its origin, for messages.
    #[must_use]
    pub fn new(text: &str, origin: &str) -> Self {
        Self { text: text.into(), origin: origin.into() }
    }

    /// Returns the text of the kubeconfig, including its secrets.
    #[must_use]
    pub fn expose(&self) -> &Arc<str> {
        &self.text
    }

    /// Returns the origin, e.g. `Secret argocd/prod-eu`.
    #[must_use]
    pub fn origin(&self) -> &Arc<str> {
        &self.origin
    }
}

impl fmt::Debug for InlineKubeconfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InlineKubeconfig").field("origin", &self.origin).finish_non_exhaustive()
    }
}

/// Reads all sources, sorted by name.
pub(super) fn sources(table: Table<'_>) -> Vec<ClusterSourceConfig> {
    let checker = table.checker;
    let mut found = Vec::new();
    for (name, path, value) in table.entries() {
        if let Err(wrong) = check_name("cluster source", &name) {
            checker.mistake(&path, format!("is not a valid name of a cluster source; use {}", wrong.rule));
        }
        found.extend(read_source(name, Table::new(checker, path, value)));
    }
    found
}

fn read_source(name: String, mut table: Table<'_>) -> Option<ClusterSourceConfig> {
    let kind = kind(&mut table);
    let names: Option<NamePattern> = table.parsed("names");
    let is_folder = matches!(kind, Some(ClusterSourceKind::Folder { .. }));
    if is_folder && names.as_ref().is_some_and(NamePattern::has_namespace) {
        table.mistake("names", "has {namespace}, but files have no namespace; use {name}");
    }
    let checker = table.checker;
    let given = table.take("labels").map(|value| labels(checker, &table.path.key("labels"), value)).unwrap_or_default();
    let take_labels = table.parsed_list("take_labels");
    let label_prefix = table.text("label_prefix").unwrap_or_default();
    if !is_key_part(&label_prefix) {
        table.mistake("label_prefix", "is not the start of a label's key; use A-Z, a-z, 0-9, '.', '_', '-' and '/'");
    }
    let max_clusters = table.number("max_clusters", CLUSTERS).unwrap_or(DEFAULT_CLUSTERS);
    let compression = table.boolean("compression").unwrap_or(true);
    let (http, encoding) = (http(&mut table), encoding(&mut table));
    if kind.is_some() {
        table.finish();
    }
    Some(ClusterSourceConfig {
        name,
        kind: kind?,
        names: names.unwrap_or_default(),
        labels: given,
        take_labels: match take_labels {
            Some(list) => list.into_iter().map(|(_, pattern)| pattern).collect(),
            None => vec![LabelPattern::any()],
        },
        label_prefix,
        max_clusters,
        compression,
        http,
        encoding,
    })
}

fn is_key_part(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/'))
}

/// Reads `type` and the keys that belong to it. Other keys are not checked if the type is unknown.
fn kind(table: &mut Table<'_>) -> Option<ClusterSourceKind> {
    if table.lacks(&["type"]) {
        table.checker.mistake(&table.path, format!("has no type; write type = {:?}", TYPES[0]));
    }
    let text = table.text("type")?;
    match text.as_str() {
        "folder" => {
            if table.lacks(&["path"]) {
                table.checker.mistake(&table.path, "has no path; write path = \"/etc/informer-hub/clusters\"");
            }
            let path = table.folder("path");
            let contexts = table.parsed("contexts").unwrap_or_default();
            Some(ClusterSourceKind::Folder { path: path.unwrap_or_default(), contexts })
        }
        "secrets" => {
            let management = management(table);
            if table.lacks(&["format"]) {
                table.checker.mistake(&table.path, "has no format; write format = \"argocd\" or \"cluster-api\"");
            }
            let format = table.parsed("format");
            Some(ClusterSourceKind::Secrets { management, format: format.unwrap_or(SecretFormat::ArgoCd) })
        }
        "cluster-profiles" => {
            let management = management(table);
            let providers = table.table("providers").map(providers).unwrap_or_default();
            let secrets = table.boolean("secrets").unwrap_or(false);
            if providers.is_empty() && !secrets && table.lacks(&["providers", "secrets"]) {
                table.checker.mistake(
                    &table.path,
                    "has no credentials; write a table providers.<name> with a command for each access \
                     provider, or secrets = true",
                );
            }
            let properties = table.texts("take_properties").into_iter().flatten().map(|(_, name)| name);
            let take_properties = properties.collect();
            Some(ClusterSourceKind::ClusterProfiles { management, providers, secrets, take_properties })
        }
        other => {
            let problem = format!("there is no type of cluster source {other:?}{}", suggestion(other, TYPES));
            table.mistake("type", problem);
            None
        }
    }
}

fn management(table: &mut Table<'_>) -> Management {
    Management { access: access(table), namespaces: namespaces(table), label_selector: table.parsed("label_selector") }
}

fn providers(table: Table<'_>) -> BTreeMap<String, ProviderConfig> {
    let checker = table.checker;
    let mut found = BTreeMap::new();
    for (name, path, value) in table.entries() {
        let mut table = Table::new(checker, path, value);
        if table.lacks(&["command"]) {
            checker.mistake(&table.path, "has no command; write command = \"…\"");
        }
        let command = table.text("command");
        let args = table.texts("args").into_iter().flatten().map(|(_, text)| text).collect();
        let env = table.take("env").map(|value| labels(checker, &table.path.key("env"), value)).unwrap_or_default();
        let api_version = table.text("api_version").unwrap_or_else(|| EXEC_VERSIONS[0].to_owned());
        if !EXEC_VERSIONS.contains(&api_version.as_str()) {
            let known = suggestion(&api_version, EXEC_VERSIONS);
            table.mistake("api_version", format!("there is no version {api_version:?}{known}"));
        }
        let take_args = table.boolean("take_args").unwrap_or(false);
        let take_env = table.boolean("take_env").unwrap_or(false);
        table.finish();
        let Some(command) = command else { continue };
        found.insert(name, ProviderConfig { command, args, env, api_version, take_args, take_env });
    }
    found
}

impl FromStr for Contexts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "current" => Ok(Self::Current),
            "all" => Ok(Self::All),
            other => Err(format!("there is no choice {other:?}{}", suggestion(other, ["current", "all"]))),
        }
    }
}

impl FromStr for SecretFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "argocd" => Ok(Self::ArgoCd),
            "cluster-api" => Ok(Self::ClusterApi),
            other => Err(format!("there is no format {other:?}{}", suggestion(other, ["argocd", "cluster-api"]))),
        }
    }
}

impl SecretFormat {
    /// Returns the configuration's word for this format, such as `argocd`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ArgoCd => "argocd",
            Self::ClusterApi => "cluster-api",
        }
    }
}
