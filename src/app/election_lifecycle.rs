//! Start and end of leader elections with the hub.

use super::elections::Elections;
use super::reconciler::Reconciler;
use super::reload::RunningHub;

impl RunningHub {
    /// Starts to compete for the Lease, or in a fleet for the leases of the sinks. Does nothing without elections.
    pub(super) fn begin_election(&self) {
        let Some(Elections(elections)) = &self.election else { return };
        let reconciler = Reconciler::new(elections, &self.sinks, &self.env, &self.registry);
        // This function is called once, so the cell is still empty.
        let _ = self.reconciler.set(reconciler.begin());
        elections.begin(&self.env.io);
    }

    /// Publishes what the sinks have delivered, and releases the Lease.
    pub(super) async fn resign(&self) {
        let (Some(Elections(elections)), Some(reconciler)) = (&self.election, self.reconciler.get()) else { return };
        reconciler.lock().await.reconcile().await;
        elections.resign().await;
    }
}
