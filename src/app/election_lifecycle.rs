//! Start of the leader elections when the hub starts, and release of their leases when it stops.

use super::elections::Elections;
use super::reconciler::Reconciler;
use super::reload::RunningHub;
use informer_hub_types::clock::{self, Instant};

impl RunningHub {
    /// Starts to compete for the Lease, or in a fleet for the leases of the sinks. Does nothing without elections.
    pub(super) fn begin_election(&self) {
        let Some(Elections(elections)) = &self.election else { return };
        let reconciler = Reconciler::new(elections, &self.sinks, &self.env, &self.registry);
        // This function is called once, so the cell is still empty.
        let _ = self.reconciler.set(reconciler.begin());
        elections.begin(&self.env.io);
    }

    /// Publishes what the sinks have delivered, and releases the Lease. Waits until `deadline`.
    pub(super) async fn resign(&self, deadline: Instant) {
        let (Some(Elections(elections)), Some(reconciler)) = (&self.election, self.reconciler.get()) else { return };
        // The release comes first if time is short: without it, a successor waits for the expiry of the Lease.
        let half = clock::now() + deadline.saturating_duration_since(clock::now()) / 2;
        // If it takes longer, the last published progress holds, and some events are repeated.
        let _ = tokio::time::timeout_at(half, async { reconciler.lock().await.reconcile().await }).await;
        elections.resign(deadline).await;
    }
}
