//! Timeouts of list and watch requests.

use std::time::Duration;

use informer_hub_reflector::{ErrorClass, ListChunk, ListerWatcher, SourceError, StallPolicy};
use informer_hub_types::ResourceVersion;

fn stalled(what: &str, limit: Duration) -> SourceError {
    SourceError { class: ErrorClass::Stalled, message: format!("{what} within {limit:?}") }
}

/// Waits at most `limit` for a response to begin.
pub(in crate::actors) async fn within<T>(
    limit: Duration,
    what: &str,
    opening: impl Future<Output = Result<T, SourceError>>,
) -> Result<T, SourceError> {
    tokio::time::timeout(limit, opening).await.unwrap_or_else(|_| Err(stalled(what, limit)))
}

/// Reads the current resourceVersion of a resource, before its watch is reopened.
pub(in crate::actors) async fn current_version(
    stall: &StallPolicy,
    source: &dyn ListerWatcher,
) -> Result<Option<ResourceVersion>, SourceError> {
    within(stall.watch_head, "list of one object: no answer", source.current_version()).await
}

/// Waits for the next part of a list response. If the stream ends before an `End`, returns an error.
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
