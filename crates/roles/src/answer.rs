//! Error and result of requests to the backend: the log and the buckets that all processes of a fleet share.

use futures::future::BoxFuture;

/// Error of a request to a [`Backend`](crate::Backend). The caller may repeat the request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BackendError(
    /// The request and the cause of its failure, for operators.
    pub String,
);

/// Future with the result of a request to a [`Backend`](crate::Backend).
pub type Answered<T> = BoxFuture<'static, Result<T, BackendError>>;
