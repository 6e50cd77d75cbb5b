//! The part of the hub's status that each status command shows.

/// Part of the status that a command shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum Subject {
    /// Totals and all problems.
    Status,
    /// Every cluster.
    Clusters,
    /// Informers, i.e. the resources of each cluster.
    Resources,
    /// Every sink.
    Sinks,
}

impl Subject {
    /// Returns the plural noun for the rows of this part of the status.
    pub(super) fn plural(self) -> &'static str {
        match self {
            Self::Status | Self::Clusters => "clusters",
            Self::Resources => "resources",
            Self::Sinks => "sinks",
        }
    }
}
