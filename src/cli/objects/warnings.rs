//! Warnings that the hub sends with its answers. Each is printed once, on standard error.

use std::collections::BTreeSet;

use informer_hub_types::printable;

/// Set of the warnings that were printed, so that none is printed twice.
#[derive(Debug, Default)]
pub(in crate::cli) struct Warnings {
    seen: BTreeSet<String>,
}

impl Warnings {
    /// Prints the warnings that were not printed before.
    pub(in crate::cli) fn print(&mut self, texts: Vec<String>) {
        for text in texts {
            if !self.seen.contains(&text) {
                note!("Warning: {}", printable(&text));
                self.seen.insert(text);
            }
        }
    }
}
