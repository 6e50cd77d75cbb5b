//! Retries of watches, which should never end.

use std::time::Duration;

use crate::cli::client::Refused;
use crate::cli::print::ReaderGone;
use informer_hub_types::{exponential_backoff, printable, rng};

/// Wait before the first retry. Each further retry doubles it. Jitter adds up to 100 %.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// Longest wait between two attempts, without jitter.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Backoff of a watch.
#[derive(Debug, Default)]
pub(in crate::cli) struct Retry {
    failures: u32,
}

impl Retry {
    /// Waits after a watch has ended without an error, before it is opened again. This prevents a busy loop with a hub
    /// that ends each watch immediately, for example during its shutdown.
    pub(in crate::cli) async fn ended(&mut self) {
        self.failures = 0;
        self.wait().await;
    }

    /// Waits after an error, before the watch continues. Prints the error on standard error if it is the first since
    /// the watch last worked.
    ///
    /// # Errors
    /// The error itself, if repeating the request would not help.
    pub(in crate::cli) async fn failed(&mut self, error: anyhow::Error) -> anyhow::Result<()> {
        if is_final(&error) {
            return Err(error);
        }
        if self.failures == 0 {
            note!("informer-hub: the watch was interrupted; retrying: {}", printable(&format!("{error:#}")));
        }
        self.failures += 1;
        self.wait().await;
        Ok(())
    }

    async fn wait(&self) {
        let wait = exponential_backoff(FIRST_WAIT, self.failures.max(1) - 1, LONGEST_WAIT);
        tokio::time::sleep(wait.mul_f64(1.0 + rng::unit())).await;
    }
}

/// Whether repeating the request would not help.
fn is_final(error: &anyhow::Error) -> bool {
    let code = error.downcast_ref::<Refused>().map(|refused| refused.refusal.code);
    error.is::<ReaderGone>() || code.is_some_and(|code| (400..500).contains(&code) && code != 429)
}
