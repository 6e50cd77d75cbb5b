//! What is shown of sources of clusters.

use std::sync::Arc;

use serde::Serialize;

use super::Entry;
use informer_hub_config::fleet::{Conflict, Problem, Roster};
use informer_hub_types::CredentialStatus;

/// Problems and conflicts that are shown of a source; of more there is the number.
const SHOWN: usize = 20;

/// How a source is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClusterSourceState {
    /// It has said nothing yet.
    Waiting,
    /// What it says is known.
    Current,
    /// It cannot be looked at; what it said before is in force.
    Unreachable,
    /// The hub may not look at it; what it said before is in force.
    Forbidden,
    /// Its management cluster has no such resource; what it said before is in force.
    Absent,
}

impl ClusterSourceState {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Waiting, Self::Current, Self::Unreachable, Self::Forbidden, Self::Absent];

    /// The word in the status and in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Current => "current",
            Self::Unreachable => "unreachable",
            Self::Forbidden => "forbidden",
            Self::Absent => "absent",
        }
    }
}

/// A source at one moment.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSourceStatus {
    /// Its name.
    pub name: String,
    /// `folder`, `secrets` or `cluster-profiles`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// How it is doing.
    pub state: ClusterSourceState,
    /// Why it cannot be looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// When it was last known what it says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_read: Option<jiff::Timestamp>,
    /// Clusters that it brings.
    pub clusters: usize,
    /// Clusters whose names others have.
    pub conflicting: usize,
    /// Which: the first 20.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<Conflict>,
    /// Objects of which no cluster can be made.
    pub invalid: usize,
    /// Which, and why: the first 20.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Problem>,
    /// Clusters that are more than `max_clusters`.
    pub over: usize,
    /// What its management cluster is reached with, as far as that has an end. Who asks sources does not know it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<CredentialStatus>,
}

pub(super) fn of(entry: &Entry, roster: &Arc<Roster>) -> ClusterSourceStatus {
    let Entry { config, said, state, last_error, last_read, .. } = entry;
    let conflicts: Vec<_> =
        roster.conflicts.iter().filter(|conflict| conflict.source == config.name).cloned().collect();
    ClusterSourceStatus {
        name: config.name.clone(),
        kind: config.kind.as_str(),
        state: *state,
        last_error: last_error.clone(),
        last_read: *last_read,
        clusters: roster.count(&config.name),
        conflicting: conflicts.len(),
        conflicts: conflicts.into_iter().take(SHOWN).collect(),
        invalid: said.problems.len(),
        problems: said.problems.iter().take(SHOWN).cloned().collect(),
        over: said.over,
        credentials: Vec::new(),
    }
}
