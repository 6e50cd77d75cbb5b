//! What a source says at one moment.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde::Serialize;

use super::name::name_for;
use crate::{ClusterAccess, ClusterConfig, ClusterSourceConfig, LabelPattern};
use informer_hub_types::{ClusterLabels, ClusterName};

/// What stands between an object and a part of it.
pub(super) const PART: &str = ", context ";

/// A cluster as a source has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The cluster.
    pub cluster: ClusterConfig,
    /// What it was found in: `Secret argocd/prod-eu`.
    pub object: String,
}

/// What is wrong with an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Problem {
    /// The object.
    pub object: String,
    /// What is wrong, with its key and what would be right, and never with a value that may be secret.
    pub problem: String,
}

/// All that a source says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// Its clusters, by the objects that they were found in.
    pub clusters: Vec<Found>,
    /// Objects of which no cluster could be made.
    pub problems: Vec<Problem>,
    /// Clusters that are more than the source may bring.
    pub over: usize,
}

/// A cluster, as its object has it.
pub(super) struct Candidate<'o> {
    /// What the object was found as.
    pub(super) object: String,
    pub(super) name: Cow<'o, str>,
    /// The object's namespace; empty for a file.
    pub(super) namespace: &'o str,
    /// Labels that it brings; whether each is one of the tool itself.
    pub(super) labels: Vec<(&'o str, &'o str, bool)>,
    pub(super) access: ClusterAccess,
}

impl Said {
    /// Takes in what came of an object.
    pub(super) fn note(&mut self, source: &ClusterSourceConfig, object: &str, read: Result<Candidate<'_>, String>) {
        match read.and_then(|candidate| candidate.found(source)) {
            Ok(found) => self.clusters.push(found),
            Err(problem) => self.problems.push(Problem { object: object.to_owned(), problem }),
        }
    }

    /// Of objects that have become wrong, what they said before stays.
    #[must_use]
    pub fn keeping(mut self, before: &Self) -> Self {
        let is_wrong = |found: &Found| {
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

    /// Leaves out what is more than a source may bring: those that were there before stay, of the others those that are
    /// the first by name.
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

    /// The names of its clusters.
    #[must_use]
    pub fn names(&self) -> BTreeSet<ClusterName> {
        self.clusters.iter().map(|found| found.cluster.name.clone()).collect()
    }
}

impl Candidate<'_> {
    fn found(self, source: &ClusterSourceConfig) -> Result<Found, String> {
        let wanted = source.names.fill(&self.name, self.namespace);
        let name = name_for(&wanted)
            .ok_or_else(|| format!("{wanted:?} gives no name for a cluster: it has no letter or digit"))?;
        let labels = labels(source, &self.labels);
        let cluster = ClusterConfig { name, labels, access: self.access, compression: source.compression };
        Ok(Found { cluster, object: self.object })
    }
}

/// The labels of a cluster that brings these.
fn labels(source: &ClusterSourceConfig, brought: &[(&str, &str, bool)]) -> ClusterLabels {
    let taken =
        |key: &str, is_own: bool| source.take_labels.iter().any(|pattern: &LabelPattern| pattern.takes(key, is_own));
    let mut all = ClusterLabels::new();
    for (key, value, is_own) in brought {
        if taken(key, *is_own) {
            all.insert(format!("{}{key}", source.label_prefix), (*value).to_owned());
        }
    }
    all.extend(source.labels.clone());
    all
}
