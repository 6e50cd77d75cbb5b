//! Errors of index functions, and of adding indices.

use informer_hub_types::DecodeError;

/// Reason why an index function returned no values for an object. The object is then missing from this index only.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct IndexError(
    /// Description of the error; must not contain secrets.
    pub String,
);

impl From<DecodeError> for IndexError {
    /// Converts the error without its cause, which may quote the object.
    fn from(error: DecodeError) -> Self {
        Self(error.to_string())
    }
}

/// Error of adding indices whose names are taken; the caller can fix it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{resource} already has an index named {}: no index was added", names.join(", "))]
#[non_exhaustive]
pub struct IndexerConflict {
    /// The resource.
    pub resource: String,
    /// Names that other indices already have, sorted.
    pub names: Vec<String>,
}

/// Error of adding indices to a store that is in use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddIndexersError {
    /// The names are taken; the caller can fix it.
    #[error(transparent)]
    Conflict(#[from] IndexerConflict),
    /// These indices were removed before they were complete. Other indices of the same request are complete.
    #[error("index {} of {resource} was removed before it was complete", names.join(", "))]
    Removed {
        /// The resource.
        resource: String,
        /// Names of the removed indices, sorted.
        names: Vec<String>,
    },
    /// The cache stopped or failed before the indices were complete. They can be added again after its restart.
    #[error("the cache stopped before the indices were complete")]
    Stopped,
}
