//! Orders in which queued keys are taken: first in, first out, or lanes (groups of keys) that take turns.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::Hash;
use std::num::NonZeroUsize;

/// Container of the queued keys. The queue calls it under its lock and never pushes a key that it already contains.
///
/// An implementation must neither panic nor use the queue. The same holds for the code that it calls, such as `Clone`,
/// `Eq` and `Hash` of the keys.
pub trait Order<T>: Send {
    /// Appends `item`.
    fn push(&mut self, item: T);

    /// Removes and returns the next key that may be processed. Returns `None` if there is none, as when all queued keys
    /// are in lanes at their limit.
    fn pop(&mut self) -> Option<T>;

    /// Returns the number of queued keys.
    fn len(&self) -> usize;

    /// Returns whether no key is queued.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether [`Order::pop`] would return a key.
    fn can_pop(&self) -> bool {
        !self.is_empty()
    }

    /// Notes that `item` was added again while queued. An implementation with priorities could move it.
    fn touch(&mut self, item: &T) {
        let _ = item;
    }

    /// Notes that the processing of `item` has ended. Called once per popped key.
    fn done(&mut self, item: &T) {
        let _ = item;
    }
}

/// First in, first out.
#[derive(Debug)]
pub struct Fifo<T>(VecDeque<T>);

impl<T> Default for Fifo<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T: Send> Order<T> for Fifo<T> {
    fn push(&mut self, item: T) {
        self.0.push_back(item);
    }

    fn pop(&mut self) -> Option<T> {
        self.0.pop_front()
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

/// Lanes (groups of keys) that take turns: one key of a lane, then one of the next. Within a lane, first in, first out.
///
/// A lane with many keys delays a key of another lane by at most one key per lane. This is not enough if each key of
/// one lane takes long, e.g. because a cluster does not respond: they would eventually occupy all workers.
/// [`Lanes::at_most`] limits that.
///
/// A lane exists while it has keys. Every operation takes constant time.
pub struct Lanes<T, L, F> {
    lane: F,
    /// Maximum number of keys of one lane (group of keys) in process at a time.
    limit: usize,
    by_name: HashMap<L, Lane<T>>,
    /// Lanes (groups of keys) that wait for their turn: exactly those with a queued key that are below the limit.
    turns: VecDeque<L>,
    len: usize,
}

struct Lane<T> {
    waiting: VecDeque<T>,
    working: usize,
}

impl<T> Lane<T> {
    fn has_turn(&self, limit: usize) -> bool {
        !self.waiting.is_empty() && self.working < limit
    }
}

impl<T, L, F> Lanes<T, L, F>
where
    L: Clone + Eq + Hash,
    F: Fn(&T) -> L,
{
    /// Creates an order in which lanes take turns. `lane` returns the lane (group) of a key and must always return the
    /// same one for the same key.
    #[must_use]
    pub fn new(lane: F) -> Self {
        Self { lane, limit: usize::MAX, by_name: HashMap::new(), turns: VecDeque::new(), len: 0 }
    }

    /// Limits the keys of one lane (group of keys) in process to `limit`. If this is less than the number of workers,
    /// some workers stay free for other lanes.
    #[must_use]
    pub fn at_most(mut self, limit: NonZeroUsize) -> Self {
        self.limit = limit.get();
        self
    }

    /// Applies `change` to a lane (group of keys), then queues the lane for its turn, or removes it if it is empty.
    /// `change` may add a key to the lane, or end the processing of one. It must not take a key, as `pop` does.
    fn change(&mut self, name: L, change: impl FnOnce(&mut Lane<T>)) {
        let lane = self.by_name.entry(name.clone()).or_insert_with(|| Lane { waiting: VecDeque::new(), working: 0 });
        let before = lane.has_turn(self.limit);
        change(lane);
        let after = lane.has_turn(self.limit);
        if lane.waiting.is_empty() && lane.working == 0 {
            self.by_name.remove(&name);
        }
        if after && !before {
            self.turns.push_back(name);
        }
    }
}

impl<T, L, F> Order<T> for Lanes<T, L, F>
where
    T: Send,
    L: Clone + Eq + Hash + Send,
    F: Fn(&T) -> L + Send,
{
    fn push(&mut self, item: T) {
        let name = (self.lane)(&item);
        self.change(name, |lane| lane.waiting.push_back(item));
        self.len += 1;
    }

    fn pop(&mut self) -> Option<T> {
        let name = self.turns.pop_front()?;
        let lane = self.by_name.get_mut(&name)?;
        let item = lane.waiting.pop_front()?;
        lane.working += 1;
        if lane.has_turn(self.limit) {
            self.turns.push_back(name);
        }
        self.len -= 1;
        Some(item)
    }

    fn len(&self) -> usize {
        self.len
    }

    fn can_pop(&self) -> bool {
        !self.turns.is_empty()
    }

    fn done(&mut self, item: &T) {
        let name = (self.lane)(item);
        self.change(name, |lane| lane.working = lane.working.saturating_sub(1));
    }
}

impl<T, L, F> fmt::Debug for Lanes<T, L, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lanes").field("lanes", &self.by_name.len()).field("len", &self.len).finish_non_exhaustive()
    }
}
