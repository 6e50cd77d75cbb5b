//! Connection from the watcher of a cluster source to the hub.

use std::sync::Weak;

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::status::ClusterSourceState;
use crate::app::error::ReloadError;
use informer_hub_config::inventory::SourceReport;

/// Functions of the hub that a [`SourceFeed`] calls.
pub(in crate::app) trait SourceHost: Send + Sync + 'static {
    /// Stores the report of a cluster source: its clusters and problems. If the feed belongs to a watcher that was
    /// replaced, ignores the report and returns false.
    fn store(&self, feed: &SourceFeed, report: SourceReport) -> bool;

    /// Stores the state of a cluster source for the status.
    fn set_state(&self, feed: &SourceFeed, state: ClusterSourceState, error: Option<String>);

    /// Applies the stored reports of cluster sources to the clusters of the hub.
    fn apply(&self) -> BoxFuture<'_, Result<(), ReloadError>>;
}

/// Handle through which the watcher of one cluster source publishes its reports and its state.
#[derive(Clone)]
pub(in crate::app) struct SourceFeed {
    pub(super) host: Weak<dyn SourceHost>,
    pub(super) name: String,
    /// Number of the watcher: reports of an earlier watcher of the same source are ignored.
    pub(super) generation: u64,
    /// Ends the watcher.
    pub(super) stop: CancellationToken,
}

impl SourceFeed {
    /// Publishes the complete report of the source and applies it. Returns whether the watcher goes on.
    pub(super) async fn publish(&self, report: SourceReport) -> bool {
        let Some(host) = self.host.upgrade() else { return false };
        if self.stop.is_cancelled() || !host.store(self, report) {
            return false;
        }
        match host.apply().await {
            Ok(()) => true,
            Err(error) => {
                let error = format!("{:#}", anyhow::Error::new(error));
                tracing::error!(
                    source = self.name,
                    error,
                    "cannot add or remove the clusters of a cluster source; trying again with its next report"
                );
                !self.stop.is_cancelled()
            }
        }
    }

    /// Publishes the state of the source, with the error that explains it.
    pub(super) fn set_state(&self, state: ClusterSourceState, error: Option<String>) {
        if let Some(host) = self.host.upgrade() {
            host.set_state(self, state, error);
        }
    }
}
