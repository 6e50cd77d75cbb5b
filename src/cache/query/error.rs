//! Why a question has no answer.

use std::time::Duration;

use crate::cache::indexers::IndexError;
use informer_hub_query::InvalidExpr;
use informer_hub_types::{ObjectKey, nearest_name};

/// A question that cannot be answered; unless it is said otherwise, whoever asks can fix it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// No informer of the resource declares the index, and it is not a computed one.
    #[error("no index {index:?} is declared for {resource}; {}declared: {}", nearest_index(index, known), if known.is_empty() { "none".to_owned() } else { known.join(", ") })]
    UnknownIndex {
        /// The index asked for.
        index: String,
        /// The resource asked.
        resource: String,
        /// What there is.
        known: Vec<String>,
    },
    /// The function of the index has no values for the object that was to be compared.
    #[error("index {index:?} has no values for {key}")]
    Unindexable {
        /// The index asked for.
        index: String,
        /// The object to be compared.
        key: ObjectKey,
        /// Why.
        #[source]
        source: IndexError,
    },
    /// The time was up.
    #[error(
        "no answer within {within:?}: {examined} of about {candidates} objects were looked at; ask for fewer (by cluster, namespace or index) or allow more time"
    )]
    Deadline {
        /// What was allowed.
        within: Duration,
        /// How many objects had been looked at.
        examined: u64,
        /// How many there were to look at.
        candidates: u64,
    },
    /// The time was up before it was this question's turn.
    #[error("no answer within {within:?}: as many scans as may run at once were under way all the time")]
    Crowded {
        /// What was allowed.
        within: Duration,
    },
    /// Too many wait for their turn.
    #[error("{waiting} scans wait for their turn already; ask again later")]
    Busy {
        /// How many.
        waiting: usize,
    },
    /// The answer would be too large.
    #[error("the answer has more than {limit} {what}; set a limit or ask for fewer")]
    TooMuch {
        /// What there is too much of.
        what: &'static str,
        /// How much there may be.
        limit: usize,
    },
    /// The condition cannot be put to objects.
    #[error(transparent)]
    Invalid(#[from] InvalidExpr),
    /// The question has parts that do not go together.
    #[error("{0}")]
    Contradiction(&'static str),
    /// Whoever made the token, it was not this process, or it was changed since.
    #[error("the continue token is not one of this process: start over without it")]
    ForgedToken,
    /// The token is of another question.
    #[error("the continue token belongs to another question: repeat that question unchanged, or start over without it")]
    ForeignToken,
    /// The snapshot that the token is about is not held any more.
    #[error("the snapshot of the continue token is not held any more: start over without it")]
    ExpiredToken,
    /// Something in this program panicked over the question; nobody outside can fix it.
    #[error("the question could not be answered: a fault of this program, see its log")]
    Broken,
    /// Whoever asked does not wait any more.
    #[error("nobody waits for the answer any more")]
    Cancelled,
    /// The cache stopped before it answered.
    #[error("the cache is shutting down")]
    Stopped,
}

/// `did you mean "by-node"? `, where one is that near.
fn nearest_index(index: &str, known: &[String]) -> String {
    let nearest = nearest_name(index, known.iter().map(String::as_str), 2);
    nearest.map(|name| format!("did you mean {name:?}? ")).unwrap_or_default()
}
