//! Keys that are to be added later: each once, at the earliest of its times.

use std::collections::{BTreeMap, HashMap};

use super::Key;
use informer_hub_types::clock::Instant;

/// When a key is due; the number keeps those of one instant in the order in which they were asked for.
type Place = (Instant, u64);

/// Delayed keys by the time they are due. Every operation costs the logarithm of their number.
///
/// Invariant: `places` has exactly the keys of `due`, each with its place there.
#[derive(Debug)]
pub(super) struct Delays<T> {
    due: BTreeMap<Place, T>,
    places: HashMap<T, Place>,
    asked: u64,
}

impl<T: Key> Delays<T> {
    pub(super) fn new() -> Self {
        Self { due: BTreeMap::new(), places: HashMap::new(), asked: 0 }
    }

    /// Puts `item` in line for `at`, unless it is there for an earlier time or the same.
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

    /// Takes the first key that is due by `now`, with the time it was due at.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<(T, Instant)> {
        let first = self.due.first_entry().filter(|entry| entry.key().0 <= now)?;
        let ((at, _), item) = first.remove_entry();
        self.places.remove(&item);
        Some((item, at))
    }

    /// When the next key is due.
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
