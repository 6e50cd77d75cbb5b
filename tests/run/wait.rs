//! Polling with a deadline. Shared with the tests of the receivers.

use std::time::{Duration, Instant};

/// Timeout of every wait. Generous, because other tests may share the CPUs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Repeats `attempt` until it returns a value. Panics with `what` after [`PATIENCE`].
pub(crate) async fn until<T>(what: &str, mut attempt: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = attempt().await {
            return found;
        }
        assert!(Instant::now() < deadline, "timeout after {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
