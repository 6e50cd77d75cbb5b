//! Configuration of the hub: reads the file and the environment, checks them, and reports all mistakes together.
//!
//! The public types are the checked result; unchecked values stay private. figment merges the environment over the file
//! (`raw`). Then each table is read key by key (`resolve` and its siblings), so that one mistake does not hide the
//! next. Line numbers come from the spans of `toml_edit`, since figment drops them (`spans`).
//!
//! # Environment
//! An environment variable overrides a key of the file. Its name is `INFORMER_HUB_` and the parts of the key's path in
//! upper case, joined by `__`. `INFORMER_HUB_HUB__LISTEN` sets `hub.listen`.
//!
//! Characters such as `-`, `.` and `/` in a key are written as `_`. `INFORMER_HUB_CLUSTERS__PROD_EU__CONTEXT` sets
//! `clusters.prod-eu.context`, if the file has this cluster. A part that matches two keys of the file is a mistake. A
//! part that matches no key of the file is a new key, in lower case.
//!
//! Lists and tables are written as inline TOML: `["a", "b"]`, `{env = "NAME"}`. Variables without `__` are ignored.

mod agent;
mod audit;
mod audit_config;
mod authorization;
mod clusters;
mod error;
mod files;
mod fleet_config;
mod ha;
pub mod inventory;
mod listen;
mod probe_checks;
mod probes;
mod raw;
mod reader_config;
mod readers;
mod resolve;
mod resources;
mod rules;
pub mod schema;
mod service_config;
mod shards;
mod show;
mod sink_files;
mod sinks;
mod sources;
mod spans;
mod table;
mod toml_text;
mod transport_config;
mod transports;
mod units;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use self::audit_config::{AuditConfig, AuditLevel, AuditOutputConfig, AuditRuleConfig};
pub use self::error::{ConfigErrors, Mistake};
pub use self::fleet_config::{FleetConfig, FleetRole, NEW_LOG, fleet_keys_to_restart};
pub use self::ha::{HaConfig, LeaseConfig};
pub use self::probes::{KeyProblem, Probes, WrongKubeconfig};
pub use self::reader_config::{
    AccessReviewConfig, AuthorizationConfig, OidcConfig, ReaderConfig, ReaderIdentity, ReaderLimitsConfig, RuleConfig,
    ServiceAccountConfig, TokenReviewConfig,
};
pub use self::rules::{is_loopback, url};
pub use self::schema::{reference, schema};
pub use self::service_config::{AuthConfig, ReadApiConfig, ServiceConfig, TlsConfig};
pub use self::show::{Setting, SettingOrigin, settings, settings_as_toml};
pub use self::sources::{
    ClusterSourceConfig, ClusterSourceKind, Contexts, InlineKubeconfig, LabelPattern, Management, NamePattern,
    ProviderConfig, SecretFormat,
};
pub use self::transport_config::{
    BodyConfig, ClientCertConfig, FileConfig, HeaderConfig, HeaderText, NatsAuth, NatsConfig, StdoutConfig,
    TemplateText, TransportConfig, WebhookConfig,
};
pub use self::units::{ByteSize, HumanDuration, InvalidUnit};
pub use informer_hub_types::{
    BatchParams as BatchConfig, Compression, Encodings, EventType, HttpVersions, Initial, OnFilterError, Preset,
    RateLimit as RateLimitConfig, RetryParams as RetryConfig,
};
use informer_hub_types::{
    ClusterLabels, ClusterName, ClusterSelector, FieldPath, Fsync, LabelSelector, Selected, SinkPartition, StoreLimits,
};

/// Checked configuration. [`Config::default`] has neither clusters nor resources; its fields can be set.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Config {
    /// Table `[hub]`: settings of the process and its HTTP port.
    pub hub: HubConfig,
    /// Tables `[clusters.<name>]`, sorted by name.
    pub clusters: Vec<ClusterConfig>,
    /// Tables `[cluster_sources.<name>]`, sorted by name.
    pub sources: Vec<ClusterSourceConfig>,
    /// Tables `[resources.<name>]`, sorted by name.
    pub resources: Vec<ResourceConfig>,
    /// Tables `[sinks.<name>]`, sorted by name.
    pub sinks: Vec<SinkConfig>,
    /// Tables `[readers.<name>]`, sorted by name.
    pub readers: Vec<ReaderConfig>,
    /// Table `[oidc]`; `None` accepts no JSON Web Tokens.
    pub oidc: Option<OidcConfig>,
    /// Table `[fleet]`; `None` for a hub outside a fleet.
    pub fleet: Option<FleetConfig>,
    /// Table `[ha]`, the leader election; `None` for a hub without replicas, which always delivers.
    pub ha: Option<HaConfig>,
}

impl Config {
    /// Reads a file, applies the process's environment, and checks the result.
    ///
    /// Relative paths are relative to the file's directory. Reads the file and opens, without reading, each file that it
    /// names; connects to no cluster. Filters, certificates and kubeconfigs are not checked; see
    /// [`Self::from_file_with_probes`].
    ///
    /// # Errors
    /// All mistakes.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, ConfigErrors> {
        Self::read(path.as_ref(), &process_environment(), None, true)
    }

    /// Like [`Self::from_file`], but without checking that the named files, directories and variables exist. For commands
    /// that only inspect the configuration.
    ///
    /// # Errors
    /// All mistakes.
    pub fn from_file_alone(path: impl AsRef<Path>) -> Result<Self, ConfigErrors> {
        Self::read(path.as_ref(), &process_environment(), None, false)
    }

    /// Reads only `[hub]`, for clients of a running hub. Ignores mistakes in other tables. Files and variables that the
    /// keys name need not exist. Environment variables such as `INFORMER_HUB_HUB__LISTEN` override keys of `[hub]`.
    ///
    /// # Errors
    /// All mistakes in `[hub]`, or the error of a file that is unreadable or not TOML.
    pub fn hub_from_file(path: impl AsRef<Path>) -> Result<HubConfig, ConfigErrors> {
        let (path, environment) = (path.as_ref(), process_environment());
        let text = std::fs::read_to_string(path).map_err(|e| resolve::unreadable(path, &e))?;
        let environment = Some(&environment);
        resolve::hub_alone(&resolve::Source {
            file: Some(path),
            text: &text,
            environment,
            probes: None,
            check_references: false,
        })
    }

    /// Like [`Self::from_file`], and also checks values with `probes`. Problems that the probes find are reported with
    /// the other mistakes.
    ///
    /// The probes read the files that the configuration names.
    ///
    /// # Errors
    /// All mistakes.
    pub fn from_file_with_probes(path: impl AsRef<Path>, probes: Probes) -> Result<Self, ConfigErrors> {
        Self::read(path.as_ref(), &process_environment(), Some(probes), true)
    }

    /// Like [`Self::from_file`], with the given environment, which also supplies `HOME` and secrets.
    ///
    /// # Errors
    /// All mistakes.
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
        check_references: bool,
    ) -> Result<Self, ConfigErrors> {
        let text = std::fs::read_to_string(path).map_err(|e| resolve::unreadable(path, &e))?;
        let environment = Some(environment);
        resolve::resolve(&resolve::Source { file: Some(path), text: &text, environment, probes, check_references })
    }

    /// Returns whether requests to the HTTP port must be authenticated.
    #[must_use]
    pub fn authenticates(&self) -> bool {
        self.hub.service.authenticates() || !self.readers.is_empty() || self.oidc.is_some()
    }

    /// Parses a text without environment, for tests and embedding.
    ///
    /// Relative paths are relative to the working directory. Variables with secrets are not checked: a missing one is
    /// an error when the secret is read.
    ///
    /// # Errors
    /// All mistakes.
    pub fn from_toml(text: &str) -> Result<Self, ConfigErrors> {
        resolve::resolve(&resolve::Source { file: None, text, environment: None, probes: None, check_references: true })
    }
}

fn process_environment() -> raw::Environment {
    let lossy = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned())
    };
    std::env::vars_os().map(lossy).collect()
}

/// Settings of the process and its HTTP port: the table `[hub]`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HubConfig {
    /// Address of the HTTP port. Default `127.0.0.1:7080`.
    pub listen: SocketAddr,
    /// Authentication and TLS of the HTTP port.
    pub service: ServiceConfig,
    /// How long a shutdown waits for sinks to drain. Default 20 s.
    pub shutdown_deadline: Duration,
    /// Limit of the process's resident memory in bytes, at least 64 MiB. Near the limit, informers keep smaller parts
    /// of their objects in memory. `None` is unlimited.
    pub memory_limit: Option<u64>,
    /// Directory in which caches and undelivered events survive restarts; `None` keeps them in memory.
    pub state_dir: Option<PathBuf>,
    /// Interval of checkpoints of the caches. Default 5 s.
    pub checkpoint: Duration,
    /// When events in a sink's journal are synced to disk. Default within 10 ms.
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

impl HubConfig {
    /// Returns the keys of `[hub]` that differ in `new` and take effect only at the next start.
    #[must_use]
    pub fn keys_to_restart(&self, new: &Self) -> Vec<&'static str> {
        let Self { listen, service, shutdown_deadline: _, memory_limit: _, state_dir, checkpoint, fsync } = self;
        let ServiceConfig { tls, auth, allowed_hosts, max_connections, read_api, authorization: _, audit } = service;
        let keys = [
            ("hub.listen", *listen != new.listen),
            ("hub.tls", *tls != new.service.tls),
            ("hub.auth", *auth != new.service.auth),
            ("hub.allowed_hosts", *allowed_hosts != new.service.allowed_hosts),
            ("hub.max_connections", *max_connections != new.service.max_connections),
            ("hub.read_api", *read_api != new.service.read_api),
            ("hub.audit", *audit != new.service.audit),
            ("hub.state_dir", *state_dir != new.state_dir),
            ("hub.checkpoint", *checkpoint != new.checkpoint),
            ("hub.fsync", *fsync != new.fsync),
        ];
        keys.into_iter().filter_map(|(key, differs)| differs.then_some(key)).collect()
    }
}

/// A cluster: the table `[clusters.<name>]`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClusterConfig {
    /// Name: the key of the table `[clusters.<name>]`.
    pub name: ClusterName,
    /// Labels of the cluster, which selectors match.
    pub labels: ClusterLabels,
    /// Connection to the cluster.
    pub access: ClusterAccess,
    /// Whether lists are requested gzipped. Default true. Disable it if the network is faster than gzip.
    pub compression: bool,
    /// Versions of HTTP to use.
    pub http: HttpVersions,
    /// Encodings of objects to request from the apiserver.
    pub encoding: Encodings,
}

/// Connection to a cluster.
///
/// The enum is exhaustive, so that a program must handle every kind of connection. Variants may get further fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterAccess {
    /// A kubeconfig file, with all features that kube supports. See [`ClusterAccess::kubeconfig`].
    #[non_exhaustive]
    Kubeconfig {
        /// Path of the file, with `~` expanded.
        path: PathBuf,
        /// Context of the kubeconfig; `None` selects its current context.
        context: Option<String>,
    },
    /// Service account of the hub's pod.
    InCluster,
    /// The hub does not connect to the cluster: an agent inside the cluster watches it for the fleet.
    Agent,
    /// Address, CA and token. See [`ClusterAccess::server`].
    #[non_exhaustive]
    Server {
        /// `https://…`, or `http://…` for a proxy on loopback.
        server: String,
        /// PEM file with the CA; `None` is the system's roots.
        ca_file: Option<PathBuf>,
        /// Bearer token. If it is in a file, the file is read again when it changes.
        token: Option<Secret>,
    },
    /// Kubeconfig found by a cluster source. Cannot be written in `[clusters]`.
    Inline(InlineKubeconfig),
    /// Cluster known from before the last restart, whose connection its source has not reported again yet. Cannot be
    /// written in `[clusters]`.
    #[non_exhaustive]
    Awaited {
        /// Name of the cluster source.
        source: String,
    },
}

/// Reference to a secret. The configuration never contains the secret itself.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Secret {
    /// Name of the environment variable with the secret.
    Env(String),
    /// File with the secret; a trailing line break is ignored.
    File(PathBuf),
}

/// A watched resource, or a pattern of resources: the table `[resources.<name>]`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ResourceConfig {
    /// Name: the key of the table `[resources.<name>]`, to which sinks refer.
    pub name: String,
    /// Watched resource, or pattern of resources. It is the value of the key `resource`; without this key, the table's
    /// name.
    ///
    /// A pattern also holds the values of the keys `exclude` and `limit`.
    pub resource: Selected,
    /// Selected clusters. Default all.
    pub clusters: ClusterSelector,
    /// Selected namespaces; empty is all.
    pub namespaces: Vec<String>,
    /// Label selector, applied by the apiserver.
    pub label_selector: Option<LabelSelector>,
    /// Field selector, applied by the apiserver.
    pub field_selector: Option<String>,
    /// Resync period for the resource's sinks; `None` disables resyncs.
    pub resync: Option<Duration>,
    /// Whether only `metadata` is requested (PartialObjectMetadata).
    pub metadata_only: bool,
    /// Parts of each object that are kept.
    pub projection: Projection,
    /// Indices of the cache: name, and path of the indexed value.
    pub indexes: BTreeMap<String, FieldPath>,
}

/// Parts of an object that are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Projection {
    /// Everything except these paths. Default: `metadata.managedFields`.
    Drop(Vec<FieldPath>),
    /// Only these paths, plus `apiVersion`, `kind` and the identity in `metadata`.
    Keep(Vec<FieldPath>),
}

/// A sink: the table `[sinks.<name>]`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SinkConfig {
    /// Name of the sink: the key of the table `[sinks.<name>]`. For a partition of a sink, its number and the number of
    /// partitions are appended: `audit-1-of-4`.
    pub name: String,
    /// Partition of the objects that this sink delivers; `None` delivers all objects.
    pub partition: Option<SinkPartition>,
    /// `match`: selection of the notifications that are delivered.
    pub select: SinkMatch,
    /// CEL expression over `object`, `oldObject`, `cluster`, `event`; `None` accepts everything.
    pub filter: Option<String>,
    /// Whether an event is delivered if `filter` cannot be evaluated for it. Default deliver.
    pub on_filter_error: OnFilterError,
    /// Delivers updates only if one of these paths changed; empty delivers all updates.
    pub changed: Vec<FieldPath>,
    /// Whether objects that existed before the sink are delivered as `added` events with `initial` set. Default skip.
    pub initial: Initial,
    /// Whether an update includes the previous object. Default true.
    pub include_old: bool,
    /// Paths whose values are redacted, besides the values of Secrets.
    pub redact: Vec<FieldPath>,
    /// Format of the events. Default CloudEvents.
    pub body: BodyConfig,
    /// Rate limit of deliveries; `None` is unlimited.
    pub rate_limit: Option<RateLimitConfig>,
    /// Maximum bytes of the sink's journal in the state directory. Default 1 GiB.
    pub journal_limit: u64,
    /// Maximum bytes of the sink's dead letters in the state directory. Default 256 MiB.
    pub dead_letter_limit: u64,
    /// Batch limits.
    pub batch: BatchConfig,
    /// Retry delays and limits.
    pub retry: RetryConfig,
    /// Transport of the sink: its `type` and the keys of this type.
    pub transport: TransportConfig,
}

impl SinkConfig {
    /// Creates a sink with defaults for everything else.
    #[must_use]
    pub fn new(name: impl Into<String>, transport: TransportConfig) -> Self {
        Self {
            name: name.into(),
            partition: None,
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

    /// Splits the sink into `count` sinks, each of which delivers one partition of the objects.
    pub fn partitions(self, count: NonZeroU16) -> impl Iterator<Item = Self> {
        SinkPartition::all(count).map(move |partition| Self {
            name: format!("{}-{partition}", self.name),
            partition: Some(partition),
            ..self.clone()
        })
    }

    /// Returns the name of the sink's table, without the number of a partition.
    #[must_use]
    pub fn table(&self) -> &str {
        let suffix = self.partition.map(|partition| format!("-{partition}"));
        suffix.and_then(|suffix| self.name.strip_suffix(suffix.as_str())).unwrap_or(&self.name)
    }
}

/// `match` of a sink: the notifications that it delivers. All conditions must hold.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SinkMatch {
    /// Selected keys of `[resources]`; empty is all.
    pub resources: Vec<String>,
    /// Selected clusters. Default all.
    pub clusters: ClusterSelector,
    /// Selected namespaces; empty is all, including objects without a namespace.
    pub namespaces: Vec<String>,
    /// Selected event types. Default `added`, `updated`, `deleted` (not `synced`).
    pub events: Vec<EventType>,
}
