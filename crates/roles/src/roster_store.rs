//! Interface to the roster of a fleet: its live processes, the operator's drains and pins, and the move in progress.

use informer_hub_fleet::roster::{RosterEntry, RosterItem};

use super::answer::Answered;

/// Store of the roster: live collectors and deliverers, drains, pins, and the move in progress.
///
/// # Contract
/// As with [`Backend`](crate::Backend), a request may fail although it was executed, and ends within a deadline.
pub trait RosterStore: Send + Sync + 'static {
    /// Returns all entries. They may lack the last writes, but a later call never returns an older state.
    fn roster(&self) -> Answered<Vec<RosterEntry>>;

    /// Writes an item; overwrites its entry if there is one.
    fn put_roster(&self, item: &RosterItem) -> Answered<()>;

    /// Writes an item if its entry has the revision `expected`; `None` expects no entry. Returns the new revision;
    /// `None` if the entry has changed.
    fn replace_roster(&self, item: &RosterItem, expected: Option<u64>) -> Answered<Option<u64>>;

    /// Removes the entry of an item.
    fn remove_roster(&self, item: &RosterItem) -> Answered<()>;
}
