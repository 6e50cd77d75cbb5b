//! Delayed keys. Each key is delayed once, until the earliest time requested for it.

use std::collections::{BTreeMap, HashMap};

use super::Key;
use informer_hub_types::clock::Instant;

/// Due time of a key, and a request number that orders keys due at the same time.
type DueKey = (Instant, u64);

/// Delayed keys by due time. Every operation takes logarithmic time.
///
/// Invariant: `places` contains exactly the keys of `due`, each with its [`DueKey`] in `due`.
#[derive(Debug)]
pub(super) struct Delays<T> {
    due: BTreeMap<DueKey, T>,
    places: HashMap<T, DueKey>,
    asked: u64,
}

impl<T: Key> Delays<T> {
    pub(super) fn new() -> Self {
        Self { due: BTreeMap::new(), places: HashMap::new(), asked: 0 }
    }

    /// Delays `item` until `at`, unless it is already delayed until an earlier time.
    pub(super) fn put(&mut self, item: T, at: Instant) {
        if let Some(place) = self.places.get(&item).copied() {
            if place.0 <= at {
                return;
            }
            self.due.remove(&place);
        }
        self.asked += 1;
        let place = (at, self.asked);
        self.places.insert(item.clone(), place);
        self.due.insert(place, item);
    }

    /// Removes and returns the first key due by `now`, with its due time.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<(T, Instant)> {
        let first = self.due.first_entry().filter(|entry| entry.key().0 <= now)?;
        let ((at, _), item) = first.remove_entry();
        self.places.remove(&item);
        Some((item, at))
    }

    /// Returns when the next key is due; `None` if no key is delayed.
    pub(super) fn next(&self) -> Option<Instant> {
        self.due.first_key_value().map(|((at, _), _)| *at)
    }

    pub(super) fn len(&self) -> usize {
        self.due.len()
    }

    pub(super) fn clear(&mut self) {
        self.due.clear();
        self.places.clear();
    }
}
