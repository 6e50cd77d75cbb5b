//! Clusters and problems that a source reports at one moment.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde::Serialize;

use super::name::name_for;
use crate::{ClusterAccess, ClusterConfig, ClusterSourceConfig, LabelPattern};
use informer_hub_types::{ClusterLabels, ClusterName};

/// Separator between a kubeconfig file and one of its contexts in [`FoundCluster::object`].
pub(super) const PART: &str = ", context ";

/// Cluster found by a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundCluster {
    /// The cluster.
    pub cluster: ClusterConfig,
    /// Object that describes the cluster: `Secret argocd/prod-eu`.
    pub object: String,
}

/// Problem of an object that should describe a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Problem {
    /// Object with the problem, such as `Secret argocd/prod-eu`.
    pub object: String,
    /// Description with the key and the correction, without values that may be secret.
    pub problem: String,
}

/// All clusters and problems of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceReport {
    /// Clusters that the source has found. [`Self::keeping`] sorts them by object.
    pub clusters: Vec<FoundCluster>,
    /// Problems of objects that do not describe a usable cluster.
    pub problems: Vec<Problem>,
    /// Number of clusters that were dropped because of the source's `max_clusters`.
    pub over: usize,
}

/// Cluster as its object describes it, before the settings of the source determine its name and labels.
pub(super) struct Candidate<'o> {
    /// Object that describes the cluster, for messages: `Secret argocd/prod-eu`.
    pub(super) object: String,
    pub(super) name: Cow<'o, str>,
    /// Namespace of the object; empty for a file.
    pub(super) namespace: &'o str,
    /// Key and value of each label of the object, and whether the tool that manages the object owns the label.
    pub(super) labels: Vec<(&'o str, &'o str, bool)>,
    pub(super) access: ClusterAccess,
}

impl SourceReport {
    /// Adds the result of reading one object: a cluster, or a problem.
    pub(super) fn note(&mut self, source: &ClusterSourceConfig, object: &str, read: Result<Candidate<'_>, String>) {
        match read.and_then(|candidate| candidate.found(source)) {
            Ok(found) => self.clusters.push(found),
            Err(problem) => self.problems.push(Problem { object: object.to_owned(), problem }),
        }
    }

    /// Adds clusters of the previous report, `before`, if their objects have a problem in this report. So a mistake in
    /// an object removes no cluster.
    #[must_use]
    pub fn keeping(mut self, before: &Self) -> Self {
        let is_wrong = |found: &FoundCluster| {
            self.problems.iter().any(|Problem { object, .. }| {
                let rest = found.object.strip_prefix(object.as_str());
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(PART))
            })
        };
        let kept: Vec<_> = before.clusters.iter().filter(|found| is_wrong(found)).cloned().collect();
        self.clusters.extend(kept);
        self.clusters.sort_by(|one, other| one.object.cmp(&other.object));
        self
    }

    /// Keeps at most `most` clusters: first those whose names are in `before`, then others; each group in the order of
    /// names.
    #[must_use]
    pub fn limited(mut self, most: usize, before: &BTreeSet<ClusterName>) -> Self {
        if self.clusters.len() <= most {
            return self;
        }
        let mut order: Vec<_> = (0..self.clusters.len()).collect();
        let name = |at: usize| &self.clusters[at].cluster.name;
        order.sort_by(|&one, &other| {
            let rank = |at| (!before.contains(name(at)), name(at), at);
            rank(one).cmp(&rank(other))
        });
        let kept: BTreeSet<_> = order.into_iter().take(most).collect();
        self.over = self.clusters.len() - most;
        let mut at = 0..;
        self.clusters.retain(|_| at.next().is_some_and(|at| kept.contains(&at)));
        self
    }

    /// Returns the names of the clusters.
    #[must_use]
    pub fn names(&self) -> BTreeSet<ClusterName> {
        self.clusters.iter().map(|found| found.cluster.name.clone()).collect()
    }
}

impl Candidate<'_> {
    fn found(self, source: &ClusterSourceConfig) -> Result<FoundCluster, String> {
        let filled = source.names.fill(&self.name, self.namespace);
        let name = name_for(&filled)
            .ok_or_else(|| format!("cannot derive a cluster name from {filled:?}: it has no letter or digit"))?;
        let labels = labels(source, &self.labels);
        let cluster = ClusterConfig {
            name,
            labels,
            access: self.access,
            compression: source.compression,
            http: source.http,
            encoding: source.encoding,
        };
        Ok(FoundCluster { cluster, object: self.object })
    }
}

/// Returns the labels of a cluster: those of its object that the source accepts, overridden by the source's own labels.
fn labels(source: &ClusterSourceConfig, of_object: &[(&str, &str, bool)]) -> ClusterLabels {
    let taken =
        |key: &str, is_own: bool| source.take_labels.iter().any(|pattern: &LabelPattern| pattern.matches(key, is_own));
    let mut all = ClusterLabels::new();
    for (key, value, is_own) in of_object {
        if taken(key, *is_own) {
            all.insert(format!("{}{key}", source.label_prefix), (*value).to_owned());
        }
    }
    all.extend(source.labels.clone());
    all
}
