//! How long a reflector waits for an answer.

use std::time::Duration;

use informer_hub_reflector::{ErrorClass, ListChunk, SourceError, StallPolicy};

fn stalled(what: &str, limit: Duration) -> SourceError {
    SourceError { class: ErrorClass::Stalled, message: format!("{what} within {limit:?}") }
}

/// Waits for an answer's head, but no longer than `limit`.
pub(in crate::actors) async fn within<T>(
    limit: Duration,
    what: &str,
    opening: impl Future<Output = Result<T, SourceError>>,
) -> Result<T, SourceError> {
    tokio::time::timeout(limit, opening).await.unwrap_or_else(|_| Err(stalled(what, limit)))
}

/// Waits for the next piece of a list; its end without an `End` is an error.
pub(in crate::actors) async fn next_within(
    stall: &StallPolicy,
    next: impl Future<Output = Option<Result<ListChunk, SourceError>>>,
) -> Result<ListChunk, SourceError> {
    let limit = stall.list_chunk;
    match tokio::time::timeout(limit, next).await {
        Ok(Some(chunk)) => chunk,
        Ok(None) => Err(SourceError {
            class: ErrorClass::Transient,
            message: "list: the answer ended before the list did".to_owned(),
        }),
        Err(_) => Err(stalled("list: no further data", limit)),
    }
}
