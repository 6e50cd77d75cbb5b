//! Configuration: what the file and the environment say, checked, with every mistake reported at once.
//!
//! The types here are the checked result; nothing that is not checked leaves this module. figment lays the environment
//! over the file (`raw`), then each table is read key by key (`resolve` and its siblings), so that one mistake does not
//! hide the next. Lines come from the spans of `toml_edit`, which figment does not keep (`spans`).
//!
//! # Environment
//! `INFORMER_HUB_` and then the key's levels in upper case with `__` between them: `INFORMER_HUB_HUB__LISTEN`,
//! `INFORMER_HUB_SINKS__AUDIT__URL`. A level means the key of the file that is spelt like it, where `-`, `.` and `/`
//! are written `_` (`INFORMER_HUB_CLUSTERS__PROD_EU__CONTEXT` is `clusters.prod-eu.context`); two keys that are spelt
//! alike cannot be told apart, which is a mistake. A level that the file does not have is a new key in lower case.
//! Lists and tables are written as TOML writes them inline: `["a", "b"]`, `{env = "NAME"}`. Variables without `__` are
//! left alone.

mod clusters;
mod error;
mod files;
pub mod fleet;
mod listen;
mod probes;
mod raw;
mod resolve;
mod resources;
mod rules;
pub mod schema;
mod show;
mod sink_files;
mod sinks;
mod sources;
mod spans;
mod table;
mod transports;
mod units;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use self::error::{ConfigErrors, Mistake};
pub use self::listen::{AuthConfig, ServiceConfig, TlsConfig};
pub use self::probes::{Probes, WrongKey, WrongKubeconfig};
pub use self::rules::{is_loopback, url};
pub use self::schema::{reference, schema};
pub use self::show::{Setting, SettingOrigin, settings, settings_as_toml};
pub use self::sources::{
    ClusterSourceConfig, ClusterSourceKind, Contexts, InlineKubeconfig, LabelPattern, Management, NamePattern,
    ProviderConfig, SecretFormat,
};
pub use self::transports::{
    BodyConfig, ClientCertConfig, FileConfig, HeaderConfig, HeaderText, NatsAuth, NatsConfig, StdoutConfig,
    TemplateText, TransportConfig, WebhookConfig,
};
pub use self::units::{ByteSize, HumanDuration, InvalidUnit};
pub use informer_hub_types::{
    BatchParams as BatchConfig, Compression, EventType, Initial, OnFilterError, Preset, RateLimit as RateLimitConfig,
    RetryParams as RetryConfig,
};
use informer_hub_types::{
    ClusterLabels, ClusterName, ClusterSelector, FieldPath, Fsync, LabelSelector, Selected, StoreLimits,
};

/// A checked configuration.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// `[hub]`.
    pub hub: HubConfig,
    /// `[clusters.<name>]`, by name.
    pub clusters: Vec<ClusterConfig>,
    /// `[cluster_sources.<name>]`, by name.
    pub sources: Vec<ClusterSourceConfig>,
    /// `[resources.<name>]`, by name.
    pub resources: Vec<ResourceConfig>,
    /// `[sinks.<name>]`, by name.
    pub sinks: Vec<SinkConfig>,
}

impl Config {
    /// Reads a file, lays the process's environment over it, and checks the result.
    ///
    /// Relative paths in it are relative to the file's folder. Cost: reads the file and opens, without reading, each
    /// file that it names; asks no cluster anything. Filters, certificates and kubeconfigs are not looked into:
    /// [`crate::app::load`] does that, as the service does.
    ///
    /// # Errors
    /// All mistakes at once.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, ConfigErrors> {
        Self::read(path.as_ref(), &process_environment(), None, true)
    }

    /// As [`Self::from_file`], for who reads what is written and uses nothing of it: files, directories and variables that it
    /// names need not be there.
    ///
    /// # Errors
    /// All mistakes at once.
    pub fn from_file_alone(path: impl AsRef<Path>) -> Result<Self, ConfigErrors> {
        Self::read(path.as_ref(), &process_environment(), None, false)
    }

    /// Reads `[hub]` alone, for clients of a running hub: mistakes in other tables, and files and variables that are missing,
    /// do not count. Variables for keys of `[hub]` do.
    ///
    /// # Errors
    /// All mistakes in `[hub]`, or that the file cannot be read or is not TOML.
    pub fn hub_from_file(path: impl AsRef<Path>) -> Result<HubConfig, ConfigErrors> {
        let (path, environment) = (path.as_ref(), process_environment());
        let text = std::fs::read_to_string(path).map_err(|e| resolve::unreadable(path, &e))?;
        let environment = Some(&environment);
        resolve::hub_alone(&resolve::Source { file: Some(path), text: &text, environment, probes: None, whole: false })
    }

    /// As [`Self::from_file`], and tries values with `probes`: what they find is reported with the other mistakes.
    ///
    /// Cost: what the probes cost; reads the files that it names.
    ///
    /// # Errors
    /// All mistakes at once.
    pub fn from_file_with_probes(path: impl AsRef<Path>, probes: Probes) -> Result<Self, ConfigErrors> {
        Self::read(path.as_ref(), &process_environment(), Some(probes), true)
    }

    /// As [`Self::from_file`], with another environment, in which also `HOME` and secrets are looked up.
    ///
    /// # Errors
    /// All mistakes at once.
    pub fn from_file_with_env(
        path: impl AsRef<Path>,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigErrors> {
        Self::read(path.as_ref(), &environment.into_iter().collect(), None, true)
    }

    fn read(
        path: &Path,
        environment: &raw::Environment,
        probes: Option<Probes>,
        whole: bool,
    ) -> Result<Self, ConfigErrors> {
        let text = std::fs::read_to_string(path).map_err(|e| resolve::unreadable(path, &e))?;
        let environment = Some(environment);
        resolve::resolve(&resolve::Source { file: Some(path), text: &text, environment, probes, whole })
    }

    /// Reads a text without any environment, for tests and embedding.
    ///
    /// Relative paths in it are relative to the working directory. Whether a variable that holds a secret is set is
    /// not looked at here; who reads the secret finds out.
    ///
    /// # Errors
    /// All mistakes at once.
    pub fn from_toml(text: &str) -> Result<Self, ConfigErrors> {
        resolve::resolve(&resolve::Source { file: None, text, environment: None, probes: None, whole: true })
    }
}

fn process_environment() -> raw::Environment {
    let lossy = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned())
    };
    std::env::vars_os().map(lossy).collect()
}

/// `[hub]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubConfig {
    /// Where probes and status are served. Default `127.0.0.1:7080`.
    pub listen: SocketAddr,
    /// Who may ask there, and how what is said is protected.
    pub service: ServiceConfig,
    /// How long a shutdown waits for sinks to drain. Default 20 s.
    pub shutdown_deadline: Duration,
    /// Bytes that the process may have resident; informers keep less of their objects where it would be more. From 64 MiB
    /// on; unset: no limit.
    pub memory_limit: Option<u64>,
    /// Where caches and undelivered events are kept over restarts; unset: in memory only.
    pub state_dir: Option<PathBuf>,
    /// How often caches are put on disk. Default 5 s.
    pub checkpoint: Duration,
    /// When what sinks have taken in is made durable. Default within 10 ms.
    pub fsync: Fsync,
}

impl Default for HubConfig {
    fn default() -> Self {
        let listen = SocketAddr::from(([127, 0, 0, 1], 7080));
        Self {
            listen,
            service: ServiceConfig::default(),
            shutdown_deadline: Duration::from_secs(20),
            memory_limit: None,
            state_dir: None,
            checkpoint: Duration::from_secs(5),
            fsync: Fsync::default(),
        }
    }
}

/// `[clusters.<name>]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterConfig {
    /// The table's key.
    pub name: ClusterName,
    /// `labels`.
    pub labels: ClusterLabels,
    /// How to reach it.
    pub access: ClusterAccess,
    /// Whether lists are asked for gzipped. Default true; turn it off where the network is faster than gzip.
    pub compression: bool,
}

/// How to reach a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterAccess {
    /// A kubeconfig file, with everything that kube supports in one.
    Kubeconfig {
        /// The file; `~` expanded.
        path: PathBuf,
        /// The context; unset: the file's current one.
        context: Option<String>,
    },
    /// The service account of the pod that the hub runs in.
    InCluster,
    /// An address, a CA and a token.
    Server {
        /// `https://…` (or `http://…`, for a proxy on loopback).
        server: String,
        /// PEM file; unset: the system's roots.
        ca_file: Option<PathBuf>,
        /// The bearer token; a file is read again when it changes.
        token: Option<Secret>,
    },
    /// A kubeconfig that a source of clusters found; no table says this.
    Inline(InlineKubeconfig),
    /// A source of clusters named it before the last restart and has yet to say how it is reached; no table says this.
    Awaited {
        /// The source.
        source: String,
    },
}

/// Where a secret is to be had. The configuration never holds the secret itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Secret {
    /// An environment variable.
    Env(String),
    /// A file, whose trailing line break does not count.
    File(PathBuf),
}

/// `[resources.<name>]`.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceConfig {
    /// The table's key; sinks refer to it.
    pub name: String,
    /// What is watched: `resource`, or else the table's key; of a pattern with `exclude` and `limit`.
    pub resource: Selected,
    /// In which clusters. Default all.
    pub clusters: ClusterSelector,
    /// In which namespaces; empty means all.
    pub namespaces: Vec<String>,
    /// Server-side label selector, checked.
    pub label_selector: Option<LabelSelector>,
    /// Server-side field selector, as written.
    pub field_selector: Option<String>,
    /// Period of resyncs for its sinks; unset: none.
    pub resync: Option<Duration>,
    /// Whether only `metadata` is asked for (PartialObjectMetadata).
    pub metadata_only: bool,
    /// What of each object is kept.
    pub projection: Projection,
    /// Declared indices.
    pub indexes: BTreeMap<String, FieldPath>,
}

/// What of an object is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Projection {
    /// All but these paths. Default: `metadata.managedFields`.
    Drop(Vec<FieldPath>),
    /// Only these paths, plus `apiVersion`, `kind` and the identity in `metadata`.
    Keep(Vec<FieldPath>),
}

/// `[sinks.<name>]`.
#[derive(Clone, Debug, PartialEq)]
pub struct SinkConfig {
    /// The table's key.
    pub name: String,
    /// Which notifications it gets.
    pub select: SinkMatch,
    /// CEL expression over `object`, `oldObject`, `cluster`, `event`; unset: everything.
    pub filter: Option<String>,
    /// What becomes of an event for which the filter cannot be evaluated. Default deliver.
    pub on_filter_error: OnFilterError,
    /// Updates only if one of these paths changed; empty: all updates.
    pub changed: Vec<FieldPath>,
    /// Whether objects that were there before are delivered as `added` with `initial` set. Default skip.
    pub initial: Initial,
    /// Whether an update carries the object as it was before. Default true.
    pub include_old: bool,
    /// What of objects does not leave the process, besides the values of Secrets.
    pub redact: Vec<FieldPath>,
    /// The form of the events. Default CloudEvents.
    pub body: BodyConfig,
    /// How many events may go; unset: as many as there are.
    pub rate_limit: Option<RateLimitConfig>,
    /// Bytes that its journal may take in the state directory. Default: [`StoreLimits`]'.
    pub journal_limit: u64,
    /// Bytes that its dead letters may take there. Default: [`StoreLimits`]'.
    pub dead_letter_limit: u64,
    /// How events are put together.
    pub batch: BatchConfig,
    /// What happens when a delivery fails.
    pub retry: RetryConfig,
    /// The transport.
    pub transport: TransportConfig,
}

impl SinkConfig {
    /// A sink with the defaults of everything else.
    #[must_use]
    pub fn new(name: impl Into<String>, transport: TransportConfig) -> Self {
        Self {
            name: name.into(),
            select: SinkMatch::default(),
            filter: None,
            on_filter_error: OnFilterError::default(),
            changed: Vec::new(),
            initial: Initial::default(),
            include_old: true,
            redact: Vec::new(),
            body: BodyConfig::default(),
            rate_limit: None,
            journal_limit: StoreLimits::default().journal,
            dead_letter_limit: StoreLimits::default().letters,
            batch: BatchConfig::default(),
            retry: RetryConfig::default(),
            transport,
        }
    }
}

/// `match` of a sink.
#[derive(Clone, Debug, PartialEq)]
pub struct SinkMatch {
    /// Keys of `[resources]`; empty means all.
    pub resources: Vec<String>,
    /// Which clusters. Default all.
    pub clusters: ClusterSelector,
    /// Which namespaces; empty means all, and objects without one too.
    pub namespaces: Vec<String>,
    /// Which events. Default `added`, `updated`, `deleted` (not `synced`).
    pub events: Vec<EventType>,
}
