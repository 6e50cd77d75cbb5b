//! Start and end of a hub's part in the leader election.

use super::delivered::Reconciler;
use super::reload::RunningHub;

impl RunningHub {
    /// Starts to compete for the Lease, if there is one.
    pub(super) fn begin_election(&self) {
        let Some(election) = &self.election else { return };
        let reconciler = Reconciler::new(&election.shared, &self.sinks, &self.env, &self.registry);
        // Called once.
        let _ = self.reconciler.set(reconciler.begin(election.end()));
        election.begin(&self.env.io);
    }

    /// Publishes what the sinks have delivered, and releases the Lease.
    pub(super) async fn resign(&self) {
        let (Some(election), Some(reconciler)) = (&self.election, self.reconciler.get()) else { return };
        reconciler.lock().await.reconcile().await;
        election.resign().await;
    }
}
