//! Page of the log: consecutive entries of one partition, limited by their size.

use crate::entry::{Entry, Sequence};

/// Consecutive retained entries of a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntryPage {
    /// The entries, in order.
    pub entries: Vec<Entry>,
    /// Sequence of the partition's last entry at the time of the request.
    pub last: Sequence,
}

impl EntryPage {
    /// Creates a page without entries. `last` is the sequence of the partition's last entry.
    #[must_use]
    pub fn new(last: Sequence) -> Self {
        Self { entries: Vec::new(), last }
    }

    /// Returns whether the partition has entries after this page.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.entries.last().is_some_and(|entry| entry.sequence < self.last)
    }
}
