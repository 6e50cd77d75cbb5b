//! Roster of a simulated fleet: its live processes, the operator's drains and pins, and the move in progress.

use std::collections::BTreeMap;

use informer_hub_fleet::roster::{MoveInProgress, RosterEntry, RosterItem};
use informer_hub_types::clock;

use super::SimulatedBackend;
use crate::backend::Answered;
use crate::roster_store::RosterStore;

/// Roster in memory: entries by key, and the last revision.
#[derive(Default)]
pub(super) struct Roster {
    entries: BTreeMap<String, RosterEntry>,
    revision: u64,
}

impl Roster {
    /// Removes the drains and pins that the operator has set.
    pub(super) fn clear(&mut self) {
        self.entries.retain(|_, entry| !matches!(entry.item, RosterItem::Drain(_) | RosterItem::Pin { .. }));
    }

    pub(super) fn moving(&self) -> Option<MoveInProgress> {
        self.entries.values().find_map(|entry| match &entry.item {
            RosterItem::Move(held) => held.clone(),
            _ => None,
        })
    }

    pub(super) fn write(&mut self, item: RosterItem) -> u64 {
        self.revision += 1;
        let (revision, written_millis) = (self.revision, clock::wall_millis());
        self.entries.insert(item.key(), RosterEntry { item, revision, written_millis });
        revision
    }
}

impl RosterStore for SimulatedBackend {
    fn roster(&self) -> Answered<Vec<RosterEntry>> {
        self.perform(|fleet| fleet.roster.lock().entries.values().cloned().collect())
    }

    fn put_roster(&self, item: &RosterItem) -> Answered<()> {
        let item = item.clone();
        self.perform(move |fleet| _ = fleet.roster.lock().write(item))
    }

    fn replace_roster(&self, item: &RosterItem, expected: Option<u64>) -> Answered<Option<u64>> {
        let item = item.clone();
        self.perform(move |fleet| {
            let mut roster = fleet.roster.lock();
            let found = roster.entries.get(&item.key()).map(|entry| entry.revision);
            (found == expected).then(|| roster.write(item))
        })
    }

    fn remove_roster(&self, item: &RosterItem) -> Answered<()> {
        let key = item.key();
        self.perform(move |fleet| _ = fleet.roster.lock().entries.remove(&key))
    }
}
