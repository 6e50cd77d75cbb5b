//! Waiting for what nobody announces, but not for ever. Shared with the tests of the receivers.

use std::time::{Duration, Instant};

/// How long anything may take before the test fails. Generous: two cores may be shared with other tests.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Tries until there is something, or panics with what was waited for.
pub(crate) async fn until<T>(what: &str, mut attempt: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = attempt().await {
            return found;
        }
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} in vain: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
