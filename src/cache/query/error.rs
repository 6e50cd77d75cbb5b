//! Errors of queries.

use std::time::Duration;

use crate::index_errors::IndexError;
use informer_hub_query::InvalidExpr;
use informer_hub_types::{ObjectKey, nearest_name};

/// Error of a query. Unless noted otherwise, the caller can fix it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// No informer of the resource declares an index of this name, and no computed index has it.
    #[error("no index {index:?} is declared for {resource}; {}declared: {}", nearest_index(index, known), if known.is_empty() { "none".to_owned() } else { known.join(", ") })]
    UnknownIndex {
        /// Name of the index.
        index: String,
        /// The resource.
        resource: String,
        /// Names of the existing indices.
        known: Vec<String>,
    },
    /// The index function fails for the given object.
    #[error("index {index:?} has no values for {key}")]
    Unindexable {
        /// Name of the index.
        index: String,
        /// Key of the object.
        key: ObjectKey,
        /// Cause.
        #[source]
        source: IndexError,
    },
    /// The time limit passed before all candidates were examined.
    #[error(
        "no answer within {within:?}: examined {examined} of about {candidates} objects; narrow the query (by cluster, namespace or index) or raise the time limit"
    )]
    Deadline {
        /// Time limit.
        within: Duration,
        /// Number of objects examined.
        examined: u64,
        /// Approximate number of candidates.
        candidates: u64,
    },
    /// The time limit passed before the query could start, because other scans used all slots.
    #[error("no answer within {within:?}: all scan slots were in use; retry later")]
    Crowded {
        /// Time limit.
        within: Duration,
    },
    /// Too many scans are queued.
    #[error("{waiting} scans are queued already; retry later")]
    Busy {
        /// Number of queued scans.
        waiting: usize,
    },
    /// The answer exceeds a limit.
    #[error("the answer has more than {limit} {what}; set a limit or narrow the query")]
    TooMuch {
        /// Unit of the limit, in the plural.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// The condition is invalid.
    #[error(transparent)]
    Invalid(#[from] InvalidExpr),
    /// The query combines incompatible parts.
    #[error("{0}")]
    Contradiction(&'static str),
    /// The continue token was not made by this process, or was modified.
    #[error("the continue token was not issued by this process: start over without it")]
    ForgedToken,
    /// The continue token belongs to another query.
    #[error("the continue token belongs to another query: repeat that query unchanged, or start over without it")]
    ForeignToken,
    /// The snapshot of the continue token is no longer pinned.
    #[error("the snapshot of the continue token has expired: start over without it")]
    ExpiredToken,
    /// The query panicked; the caller cannot fix it.
    #[error("cannot answer the query: internal error, see the log")]
    Broken,
    /// The caller no longer waits.
    #[error("the query was cancelled")]
    Cancelled,
    /// The cache stopped before it answered.
    #[error("the hub is shutting down, or its cache of the resource was restarted; try again")]
    Stopped,
}

/// Returns `did you mean "by-node"? ` if a similar name exists.
fn nearest_index(index: &str, known: &[String]) -> String {
    let nearest = nearest_name(index, known.iter().map(String::as_str), 2);
    nearest.map(|name| format!("did you mean {name:?}? ")).unwrap_or_default()
}
