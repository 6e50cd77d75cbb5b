//! Results of requests to a backend.

use futures::future::BoxFuture;

/// Failed request to a backend. It may be repeated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BackendError(
    /// Request and cause.
    pub String,
);

/// Result of a request to a backend.
pub type Answered<T> = BoxFuture<'static, Result<T, BackendError>>;
