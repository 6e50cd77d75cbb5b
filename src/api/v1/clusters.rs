//! Clusters that a request selects.

use super::failure::Failure;
use super::sight::Sight;
use crate::api::kubernetes::Fleet;
use informer_hub_types::{
    ClusterLabels, ClusterName, InvalidSelector, LabelSelector, nearest_name, position_of, shortened,
};

/// Clusters that a request selects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::api) enum ClusterChoice {
    All,
    One(ClusterName),
    /// Clusters whose labels match, including clusters that are added later.
    Matching(LabelSelector),
}

impl ClusterChoice {
    /// Parses a cluster's name, a label selector, or `*`. An empty text means `*`.
    ///
    /// # Errors
    /// [`Failure`] of code 400 for other texts.
    pub(in crate::api) fn parse(text: &str) -> Result<Self, Failure> {
        if text.is_empty() || text == "*" {
            return Ok(Self::All);
        }
        if let Ok(name) = ClusterName::new(text) {
            return Ok(Self::One(name));
        }
        let selector = text.parse().map_err(|InvalidSelector { problem, at, .. }| {
            let start = shortened(text, 64);
            Failure::invalid(format!(
                "clusters: {start:?} is neither a cluster's name nor a label selector: {problem} at position {}",
                position_of(text, at)
            ))
        })?;
        Ok(Self::Matching(selector))
    }

    /// Refuses the name of a cluster that the hub does not have or the reader may not see.
    ///
    /// # Errors
    /// [`Failure`] of code 404. It suggests the most similar name among the clusters that the reader may see by rules.
    pub(in crate::api) fn check(&self, fleet: &dyn Fleet, sight: &Sight) -> Result<(), Failure> {
        let Self::One(name) = self else { return Ok(()) };
        let known = fleet.clusters();
        if let Some(cluster) = known.iter().find(|cluster| cluster.name == *name) {
            if sight.cluster(&cluster.name, &cluster.labels) {
                return Ok(());
            }
            sight.withhold();
        }
        let named = known.iter().filter(|cluster| sight.names_cluster(&cluster.name, &cluster.labels));
        let nearest = nearest_name(name.as_str(), named.map(|cluster| cluster.name.as_str()), 2);
        Err(Failure::unknown_cluster(name.as_str(), nearest))
    }

    /// Returns whether a cluster is selected.
    pub(in crate::api) fn includes(&self, name: &ClusterName, labels: &ClusterLabels) -> bool {
        match self {
            Self::All => true,
            Self::One(wanted) => wanted == name,
            Self::Matching(selector) => selector.matches(|label| labels.get(label).map(String::as_str)),
        }
    }

    /// Returns the names of the selected clusters that the reader may see; `None` if these are all clusters of the hub.
    pub(in crate::api) fn names(&self, fleet: &dyn Fleet, sight: &Sight) -> Option<Vec<ClusterName>> {
        if *self == Self::All && sight.is_everything() {
            return None;
        }
        let known = fleet.clusters().into_iter();
        let is_it =
            |name: &ClusterName, labels: &ClusterLabels| self.includes(name, labels) && sight.cluster(name, labels);
        Some(known.filter(|cluster| is_it(&cluster.name, &cluster.labels)).map(|cluster| cluster.name).collect())
    }
}
