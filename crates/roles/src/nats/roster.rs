//! Roster of a fleet on JetStream: its live processes, the operator's drains and pins, and the move in progress.

use informer_hub_fleet::roster::{RosterEntry, RosterItem};

use super::NatsBackend;
use crate::backend::Answered;
use crate::roster_store::RosterStore;

impl RosterStore for NatsBackend {
    fn roster(&self) -> Answered<Vec<RosterEntry>> {
        self.perform(|services| async move { services.roster.entries().await })
    }

    fn put_roster(&self, item: &RosterItem) -> Answered<()> {
        let item = item.clone();
        self.perform(move |services| async move { services.roster.put(&item).await.map(drop) })
    }

    fn replace_roster(&self, item: &RosterItem, expected: Option<u64>) -> Answered<Option<u64>> {
        let item = item.clone();
        self.perform(move |services| async move { services.roster.replace(&item, expected).await })
    }

    fn remove_roster(&self, item: &RosterItem) -> Answered<()> {
        let item = item.clone();
        self.perform(move |services| async move { services.roster.remove(&item).await })
    }
}
