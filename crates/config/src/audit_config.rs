//! Types of `[hub.audit]`: where requests are logged, and which.

use std::path::PathBuf;

use informer_hub_types::Exclusion;

/// `[hub.audit]`: the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuditConfig {
    /// Output of the log.
    pub output: AuditOutputConfig,
    /// Rules; the first that matches a request decides whether it is logged. A request that matches none is logged, except
    /// probes and scrapes of the metrics.
    pub rules: Vec<AuditRuleConfig>,
}

impl AuditConfig {
    /// Creates a log of all requests except probes and scrapes of the metrics.
    #[must_use]
    pub fn new(output: AuditOutputConfig) -> Self {
        Self { output, rules: Vec::new() }
    }
}

/// Output of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditOutputConfig {
    /// Standard output.
    Stdout,
    /// A file that the hub writes and rotates.
    File {
        /// Path of the log. Its directory must exist.
        path: PathBuf,
        /// Size in bytes at which the file is rotated. Default 100 MiB.
        max_size: u64,
        /// Number of rotated files to keep. Default 10.
        keep: usize,
    },
}

impl AuditOutputConfig {
    /// Returns the output to this file, with the default size and number of rotated files.
    #[must_use]
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self::File { path: path.into(), max_size: 100 << 20, keep: 10 }
    }
}

/// Parts of a request that are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditLevel {
    /// Nothing: the request is not logged.
    None,
    /// Everything except bodies.
    Metadata,
}

/// Entry of `rules`. A request matches the rule if it matches every list below. A list matches the request if one of
/// its entries does, or if the list is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuditRuleConfig {
    /// Level of the requests that match.
    pub level: AuditLevel,
    /// Names of users, or patterns with `*`.
    pub readers: Vec<String>,
    /// Groups of users, or patterns with `*`.
    pub groups: Vec<String>,
    /// Verbs that the rule matches; empty for all.
    pub verbs: Vec<String>,
    /// Requested resources, by names without API versions. An entry is one resource, or all resources of some API
    /// groups.
    pub resources: Vec<Exclusion>,
    /// Request paths, or patterns with `*`.
    pub paths: Vec<String>,
}
