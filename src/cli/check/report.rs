//! What a check found: the shape of its JSON, and what is worst in it.

use std::time::Duration;

use serde::{Serialize, Serializer};

use informer_hub_config::ConfigErrors;
use informer_hub_source::Identity;
use informer_hub_types::Credential;

/// How bad something is; the worst decides the exit code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::cli) enum Level {
    /// Nothing to do.
    Fine,
    /// It works, but not for long, or not as well as it could.
    Warning,
    /// Something that is configured will not be watched.
    Error,
}

/// One thing that somebody should do something about.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Finding {
    pub(super) level: Level,
    /// The key of the configuration that it is about.
    pub(super) about: String,
    pub(super) problem: String,
    /// What to do.
    pub(super) advice: String,
}

/// All that was found.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    pub(super) file: String,
    pub(super) result: Level,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mistakes: Option<ConfigErrors>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) cluster_sources: Vec<SourceReport>,
    pub(super) clusters: Vec<ClusterReport>,
    /// About the process as a whole.
    pub(super) findings: Vec<Finding>,
    pub(super) objects: u64,
    /// Bytes that the objects take, estimated.
    pub(super) object_memory: u64,
    /// Bytes that the process takes with them, estimated.
    pub(super) memory: u64,
}

/// What was found of one source of clusters.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SourceReport {
    pub(super) source: String,
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    /// Whether it could be looked at.
    pub(super) reached: bool,
    #[serde(rename = "tookMillis", serialize_with = "millis")]
    pub(super) took: Duration,
    /// Clusters that it brings.
    pub(super) clusters: Vec<String>,
    /// Clusters whose names others have.
    pub(super) conflicting: usize,
    /// Objects of which no cluster can be made.
    pub(super) invalid: usize,
    pub(super) findings: Vec<Finding>,
}

impl SourceReport {
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

    /// Notes something about it.
    pub(super) fn find(&mut self, level: Level, problem: impl Into<String>, advice: impl Into<String>) {
        let about = format!("cluster_sources.{}", self.source);
        self.findings.push(Finding { level, about, problem: problem.into(), advice: advice.into() });
    }
}

/// What was found of one cluster.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClusterReport {
    pub(super) cluster: String,
    /// The source that brings it; unset: a table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) source: Option<String>,
    /// Unset: it was not reached.
    pub(super) version: Option<String>,
    /// Who the cluster takes the hub for. Unset: it does not say, or was not reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) identity: Option<Identity>,
    #[serde(rename = "tookMillis", serialize_with = "millis")]
    pub(super) took: Duration,
    pub(super) credentials: Vec<Credential>,
    pub(super) resources: Vec<ResourceReport>,
    pub(super) findings: Vec<Finding>,
}

/// What was found of one entry of `[resources]` in one cluster.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ResourceReport {
    /// The key in the configuration.
    pub(super) name: String,
    /// What the cluster calls it, in full; unset: it has no such resource, or could not be asked.
    pub(super) resource: Option<String>,
    pub(super) streaming: Option<bool>,
    pub(super) scopes: Vec<ScopeReport>,
}

/// What was found of a resource in one namespace, or in all of them.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ScopeReport {
    /// Unset: all of them.
    pub(super) namespace: Option<String>,
    pub(super) list: Option<bool>,
    pub(super) watch: Option<bool>,
    pub(super) objects: Option<u64>,
    /// Bytes that the objects take, estimated.
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

    /// Notes something about the cluster itself.
    pub(super) fn find(&mut self, level: Level, problem: impl Into<String>, advice: impl Into<String>) {
        let about = format!("clusters.{}", self.cluster);
        self.findings.push(Finding { level, about, problem: problem.into(), advice: advice.into() });
    }
}

impl Report {
    /// Everything there is to do, the worst first.
    pub(super) fn all_findings(&self) -> Vec<&Finding> {
        let mut all: Vec<_> = self.cluster_sources.iter().flat_map(|source| &source.findings).collect();
        all.extend(self.clusters.iter().flat_map(|cluster| &cluster.findings));
        all.extend(&self.findings);
        all.sort_by_key(|finding| std::cmp::Reverse(finding.level));
        all
    }

    /// Sets the result by what was found.
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
