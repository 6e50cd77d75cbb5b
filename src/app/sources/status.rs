//! Status of cluster sources.

use serde::Serialize;

use informer_hub_config::inventory::{Conflict, Problem};
use informer_hub_types::CredentialStatus;

/// Maximum number of problems, and of name conflicts, that are shown for each source. All others are only counted.
pub(super) const MAX_SHOWN: usize = 20;

/// State of a cluster source.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ClusterSourceState {
    /// The source has not reported yet.
    Waiting,
    /// The last report is current.
    Current,
    /// The source cannot be read; its last report is in force.
    Unreachable,
    /// The hub has no permission to read the source; the last report is in force.
    Forbidden,
    /// The management cluster does not serve the source's resource; the last report is in force.
    Absent,
}

impl ClusterSourceState {
    /// All states.
    pub const ALL: [Self; 5] = [Self::Waiting, Self::Current, Self::Unreachable, Self::Forbidden, Self::Absent];

    /// Returns the word used in the status and in metrics.
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

/// Status of one cluster source.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ClusterSourceStatus {
    /// Name of the source.
    pub name: String,
    /// `folder`, `secrets` or `cluster-profiles`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// State of the source.
    pub state: ClusterSourceState,
    /// Why the source cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// When the source was last read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_read: Option<jiff::Timestamp>,
    /// Number of the source's clusters that the hub uses.
    pub clusters: usize,
    /// Number of the source's clusters that are not watched because another cluster has their name.
    pub conflicting: usize,
    /// The first 20 name conflicts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<Conflict>,
    /// Number of the source's objects that do not describe a cluster.
    pub invalid: usize,
    /// The first 20 invalid objects, with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Problem>,
    /// Number of the source's clusters that are not watched because of `max_clusters`.
    pub over: usize,
    /// Credentials for the source's management cluster that expire. Filled in by the reporter.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<CredentialStatus>,
}
