//! Deadline of waits.

use std::time::Duration;

/// Deadline of any wait, with room for a busy machine.
const DEADLINE: Duration = Duration::from_secs(90);

pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(DEADLINE, future).await;
    done.unwrap_or_else(|_| panic!("not within {DEADLINE:?}: {what}"))
}
