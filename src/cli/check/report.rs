//! Report of a check: its JSON members, and its overall result.

use std::time::Duration;

use serde::{Serialize, Serializer};

use informer_hub_config::ConfigErrors;
use informer_hub_source::Identity;
use informer_hub_types::Credential;

/// Severity of a finding; the worst one decides the exit code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::cli) enum Level {
    /// No action needed.
    Fine,
    /// The configuration works, but not for long or not as well as it could.
    Warning,
    /// A part of the configuration will not work: resources are not watched, or readers see nothing.
    Error,
}

/// A problem with advice for the operator.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Finding {
    pub(super) level: Level,
    /// Configuration key that the problem is about, such as `clusters.prod-eu`.
    pub(super) about: String,
    pub(super) problem: String,
    pub(super) advice: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    pub(super) file: String,
    pub(super) result: Level,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mistakes: Option<ConfigErrors>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) cluster_sources: Vec<SourceCheck>,
    pub(super) clusters: Vec<ClusterReport>,
    /// Findings about the process as a whole.
    pub(super) findings: Vec<Finding>,
    pub(super) objects: u64,
    /// Estimated memory of all cached objects, in bytes.
    pub(super) object_memory: u64,
    /// Estimated memory of the process including all objects, in bytes.
    pub(super) memory: u64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SourceCheck {
    pub(super) source: String,
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    /// Whether the cluster source could be read.
    pub(super) reached: bool,
    #[serde(rename = "tookMillis", serialize_with = "millis")]
    pub(super) took: Duration,
    /// Names of the clusters that the cluster source adds.
    pub(super) clusters: Vec<String>,
    /// Number of clusters of the source that are not watched, because their name belongs to another cluster.
    pub(super) conflicting: usize,
    /// Number of objects of the cluster source that do not describe a cluster.
    pub(super) invalid: usize,
    pub(super) findings: Vec<Finding>,
}

impl SourceCheck {
    pub(super) fn new(source: &str, kind: &'static str) -> Self {
        Self {
            source: source.to_owned(),
            kind,
            reached: false,
            took: Duration::ZERO,
            clusters: Vec::new(),
            conflicting: 0,
            invalid: 0,
            findings: Vec::new(),
        }
    }

    pub(super) fn find(&mut self, level: Level, problem: impl Into<String>, advice: impl Into<String>) {
        let about = format!("cluster_sources.{}", self.source);
        self.findings.push(Finding { level, about, problem: problem.into(), advice: advice.into() });
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClusterReport {
    pub(super) cluster: String,
    /// Name of the cluster source that found the cluster; unset for a `[clusters]` table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) source: Option<String>,
    /// Version of the apiserver; unset if the cluster was not reached.
    pub(super) version: Option<String>,
    /// User and groups of the hub in the cluster. Unset if they are unknown or the cluster was not reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) identity: Option<Identity>,
    #[serde(rename = "tookMillis", serialize_with = "millis")]
    pub(super) took: Duration,
    pub(super) credentials: Vec<Credential>,
    pub(super) resources: Vec<ResourceReport>,
    pub(super) findings: Vec<Finding>,
}

/// Report on one entry of `[resources]` in one cluster.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ResourceReport {
    pub(super) name: String,
    /// Name of the entry, for the text report. If the configured resource has another name, it follows after a colon.
    #[serde(skip)]
    pub(super) shown: String,
    /// Plural, version and group of the resource in the cluster. Unset if the cluster has no such resource or did not
    /// answer.
    pub(super) resource: Option<String>,
    pub(super) streaming: Option<bool>,
    pub(super) scopes: Vec<ScopeReport>,
}

/// Report on a resource in one namespace, or in all namespaces.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ScopeReport {
    /// Namespace; unset for all namespaces.
    pub(super) namespace: Option<String>,
    pub(super) list: Option<bool>,
    pub(super) watch: Option<bool>,
    pub(super) objects: Option<u64>,
    /// Estimated memory of the resource's objects, in bytes; unset if their number is unknown.
    pub(super) memory: Option<u64>,
}

impl ClusterReport {
    pub(super) fn new(cluster: &str) -> Self {
        Self {
            cluster: cluster.to_owned(),
            source: None,
            version: None,
            identity: None,
            took: Duration::ZERO,
            credentials: Vec::new(),
            resources: Vec::new(),
            findings: Vec::new(),
        }
    }

    pub(super) fn find(&mut self, level: Level, problem: impl Into<String>, advice: impl Into<String>) {
        let about = format!("clusters.{}", self.cluster);
        self.findings.push(Finding { level, about, problem: problem.into(), advice: advice.into() });
    }
}

impl Report {
    /// Returns all findings, worst first.
    pub(super) fn all_findings(&self) -> Vec<&Finding> {
        let mut all: Vec<_> = self.cluster_sources.iter().flat_map(|source| &source.findings).collect();
        all.extend(self.clusters.iter().flat_map(|cluster| &cluster.findings));
        all.extend(&self.findings);
        all.sort_by_key(|finding| std::cmp::Reverse(finding.level));
        all
    }

    /// Sets the overall result from the findings.
    pub(super) fn judge(mut self) -> Self {
        let worst = self.all_findings().iter().map(|finding| finding.level).max();
        let mistakes = self.mistakes.as_ref().map(|_| Level::Error);
        self.result = worst.max(mistakes).unwrap_or(Level::Fine);
        self
    }
}

fn millis<S: Serializer>(took: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(took.as_millis()).unwrap_or(u64::MAX))
}
